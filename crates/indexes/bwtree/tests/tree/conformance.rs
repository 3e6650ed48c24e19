//! The conformance suite, in both domains; with small pages, in the paper's design, and by
//! single-word CAS.

use crate::common::{Planted, small, small_plain};
use pando_bwtree::{BwTrees, CasBwTrees, Options};
use pando_pmem::{Adr, Process};

/// Pages are small, so a small part of the suite's work is enough.
const SCALE: f64 = 0.4;

mod defaults {
    use super::*;
    fn tree() -> Planted<Process, BwTrees> {
        Planted::anonymous(Options::default()).scaled(SCALE)
    }
    pando_index::conformance_suite!(tree);
}

mod small_pages {
    use super::*;
    fn tree() -> Planted<Process, BwTrees> {
        Planted::anonymous(small()).scaled(SCALE)
    }
    pando_index::conformance_suite!(tree);
}

mod plain {
    use super::*;
    fn tree() -> Planted<Process, BwTrees> {
        Planted::anonymous(small_plain()).scaled(SCALE)
    }
    pando_index::conformance_suite!(tree);
}

mod adr {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Adr>::in_file(small()).scaled(SCALE));
}

mod cas {
    use super::*;
    fn tree() -> Planted<Process, CasBwTrees> {
        Planted::anonymous(small()).scaled(SCALE)
    }
    pando_index::conformance_suite!(tree);
}
