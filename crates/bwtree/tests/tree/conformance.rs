//! The conformance suite, in the domain that pays nothing, the one that orders stores and the one that
//! writes lines back; with small pages, and in the paper's design.

use crate::common::{Planted, anonymous, in_file, small, small_plain};
use pando_bwtree::{BwTrees, Options};
use pando_pmem::{Adr, Process, Volatile};

mod volatile {
    use super::*;
    fn tree() -> Planted<Volatile, BwTrees> {
        anonymous(Options::default())
    }
    pando_index::conformance_suite!(tree);
}

mod small_pages {
    use super::*;
    fn tree() -> Planted<Volatile, BwTrees> {
        anonymous(small())
    }
    pando_index::conformance_suite!(tree);
}

mod process {
    use super::*;
    pando_index::conformance_suite!(|| in_file::<Process>(small_plain()));
}

mod adr {
    use super::*;
    pando_index::conformance_suite!(|| in_file::<Adr>(small()));
}
