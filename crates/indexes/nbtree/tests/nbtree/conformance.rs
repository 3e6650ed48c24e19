//! The conformance suite, with small leaves and with large ones, with write-backs and without.

use pando_pmem::{Adr, Process};

use crate::common::{Options, Planted, small_nodes};

mod defaults {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Process>::anonymous(Options::default()));
}

mod process {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Process>::in_file(small_nodes()));
}

mod adr {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Adr>::in_file(small_nodes()));
}
