//! The conformance suite, in the domain that pays nothing and the one that writes lines back; with
//! small pages, in the paper's design, and by single-word CAS. (The domains between are the crash
//! lab's and the public API's.)

use crate::common::{Planted, anonymous, in_file, small, small_plain};
use pando_bwtree::{BwTrees, CasBwTrees, Options};
use pando_pmem::{Adr, Volatile};

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

mod plain {
    use super::*;
    fn tree() -> Planted<Volatile, BwTrees> {
        anonymous(small_plain())
    }
    pando_index::conformance_suite!(tree);
}

mod adr {
    use super::*;
    pando_index::conformance_suite!(|| in_file::<Adr>(small()));
}

mod cas {
    use super::*;
    fn tree() -> Planted<Volatile, CasBwTrees> {
        anonymous(small())
    }
    pando_index::conformance_suite!(tree);
}
