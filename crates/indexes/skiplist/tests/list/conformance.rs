//! The conformance suite, in both domains, with values inside and outside of nodes.

use crate::common::{Planted, small_values};
use pando_pmem::{Adr, Process};
use pando_skiplist::{CasSkipLists, Options, SkipLists};

/// No page must be filled before anything happens.
const SCALE: f64 = 0.4;

mod defaults {
    use super::*;
    fn list() -> Planted<Process, SkipLists> {
        Planted::anonymous(Options::default()).scaled(SCALE)
    }
    pando_index::conformance_suite!(list);
}

mod process {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Process>::in_file(small_values()).scaled(SCALE));
}

mod adr {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Adr>::in_file(small_values()).scaled(SCALE));
}

mod cas {
    use super::*;
    fn list() -> Planted<Process, CasSkipLists> {
        Planted::anonymous(small_values()).scaled(SCALE)
    }
    pando_index::conformance_suite!(list);
}
