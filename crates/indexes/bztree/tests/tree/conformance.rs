//! The conformance suite, over both persistence domains, both value modes and both kinds of leaves.

use crate::common::{Planted, small_nodes, small_ranges};
use pando_bztree::{Numbers, Options, ValueMode};
use pando_pmem::{Adr, Process};

fn pointers() -> Options {
    Options { value_mode: ValueMode::Pointer, ..small_nodes() }
}

fn sorted() -> Options {
    Options { numbers: Numbers::Sorted, ..Options::default() }
}

pando_index::conformance_suite! {
    defaults => || Planted::<Process>::anonymous(Options::default());
    sorted => || Planted::<Process>::anonymous(sorted());
    adr_ranged => || Planted::<Adr>::in_file(small_ranges());
    pointers => || Planted::<Process>::anonymous(pointers());
    process => || Planted::<Process>::in_file(small_nodes());
    adr => || Planted::<Adr>::in_file(small_nodes());
}
