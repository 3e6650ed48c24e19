//! The conformance suite, with small leaves and with large ones, with write-backs and without.

use pando_pmem::{Adr, Process, Volatile};

use crate::common::{anonymous, defaults, in_file, small_nodes};

mod volatile {
    use super::*;
    pando_index::conformance_suite!(|| anonymous::<Volatile>(&small_nodes()));
}

mod volatile_defaults {
    use super::*;
    pando_index::conformance_suite!(|| anonymous::<Volatile>(&defaults()));
}

mod process {
    use super::*;
    pando_index::conformance_suite!(|| in_file::<Process>(&small_nodes()));
}

mod adr {
    use super::*;
    pando_index::conformance_suite!(|| in_file::<Adr>(&small_nodes()));
}
