//! The conformance suite, over both persistence domains, both value modes and both kinds of leaves.

use crate::common::{Planted, small_nodes, small_ranges};
use pando_bztree::{Numbers, Options, ValueMode};
use pando_pmem::{Adr, Process};

fn pointers() -> Options {
    Options { value_mode: ValueMode::Pointer, ..small_nodes() }
}

mod sorted {
    use super::*;
    fn sorted() -> Options {
        Options { numbers: Numbers::Sorted, ..Options::default() }
    }
    pando_index::conformance_suite!(|| Planted::<Process>::anonymous(sorted()));
}

mod adr_ranged {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Adr>::in_file(small_ranges()));
}

mod defaults {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Process>::anonymous(Options::default()));
}

mod pointers {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Process>::anonymous(pointers()));
}

mod process {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Process>::in_file(small_nodes()));
}

mod adr {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Adr>::in_file(small_nodes()));
}
