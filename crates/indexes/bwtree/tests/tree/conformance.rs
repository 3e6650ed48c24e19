//! The conformance suite, in both domains; with small pages, in the paper's design, and by
//! single-word CAS.

use crate::common::{Fixture, small, small_plain};
use pando_bwtree::{BwTrees, CasBwTrees, Options};
use pando_pmem::{Adr, Process};
use pando_tree::maps::IndexKind;

/// Pages are small, so a small part of the suite's work is enough.
const SCALE: f64 = 0.4;

/// A tree in process memory.
fn tree<K: IndexKind<Options = Options>>(options: Options) -> Fixture<Process, K> {
    Fixture::anonymous(options).scaled(SCALE)
}

pando_index::conformance_suite! {
    defaults => || tree::<BwTrees>(Options::default());
    small_pages => || tree::<BwTrees>(small());
    plain => || tree::<BwTrees>(small_plain());
    adr => || Fixture::<Adr>::in_file(small()).scaled(SCALE);
    cas => || tree::<CasBwTrees>(small());
}
