//! The conformance suite, over every persistence domain and both value modes.

use crate::common::{anonymous, in_file, small_nodes};
use pando_bztree::{Options, ValueMode};
use pando_pmem::{Adr, Eadr, Process, Volatile, counting::Counting};

fn pointers() -> Options {
    Options { value_mode: ValueMode::Pointer, ..small_nodes() }
}

mod volatile {
    use super::*;
    pando_index::conformance_suite!(|| anonymous::<Volatile>(small_nodes()));
}

mod volatile_defaults {
    use super::*;
    pando_index::conformance_suite!(|| anonymous::<Volatile>(Options::default()));
}

mod volatile_pointers {
    use super::*;
    pando_index::conformance_suite!(|| anonymous::<Volatile>(pointers()));
}

mod process {
    use super::*;
    pando_index::conformance_suite!(|| in_file::<Process>(small_nodes()));
}

mod eadr {
    use super::*;
    pando_index::conformance_suite!(|| in_file::<Eadr>(small_nodes()));
}

mod adr {
    use super::*;
    pando_index::conformance_suite!(|| in_file::<Adr>(small_nodes()));
}

mod counting {
    use super::*;
    pando_index::conformance_suite!(|| in_file::<Counting>(small_nodes()));
}
