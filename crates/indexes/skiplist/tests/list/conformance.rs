//! The conformance suite, in both domains, with values inside and outside of nodes.

use crate::common::{Fixture, small_values};
use pando_pmem::{Adr, Process};
use pando_skiplist::{CasSkipLists, Options, SkipLists};
use pando_tree::maps::IndexKind;

/// No page must be filled before anything happens.
const SCALE: f64 = 0.4;

/// A list in process memory.
fn list<K: IndexKind<Options = Options>>(options: Options) -> Fixture<Process, K> {
    Fixture::anonymous(options).scaled(SCALE)
}

pando_index::conformance_suite! {
    defaults => || list::<SkipLists>(Options::default());
    process => || Fixture::<Process>::in_file(small_values()).scaled(SCALE);
    adr => || Fixture::<Adr>::in_file(small_values()).scaled(SCALE);
    cas => || list::<CasSkipLists>(small_values());
}
