//! The conformance suite, in the domain that pays nothing, the one that orders stores and the one
//! that writes lines back, and with values that leave their nodes.

use crate::common::{Planted, anonymous, in_file, small_values};
use pando_pmem::{Adr, Process, Volatile};
use pando_skiplist::{CasSkipLists, Options, SkipLists};

mod volatile {
    use super::*;
    fn list() -> Planted<Volatile, SkipLists> {
        anonymous(Options::default())
    }
    pando_index::conformance_suite!(list);
}

mod process {
    use super::*;
    pando_index::conformance_suite!(|| in_file::<Process>(small_values()));
}

mod adr {
    use super::*;
    pando_index::conformance_suite!(|| in_file::<Adr>(small_values()));
}

mod cas {
    use super::*;
    fn list() -> Planted<Volatile, CasSkipLists> {
        anonymous(small_values())
    }
    pando_index::conformance_suite!(list);
}
