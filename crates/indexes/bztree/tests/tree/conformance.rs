//! The conformance suite, over both persistence domains, both value modes and both kinds of leaves.

use crate::common::{Fixture, small_nodes, small_ranges};
use pando_bztree::{Numbers, Options, ValueMode};
use pando_pmem::{Adr, Process};

fn pointers() -> Options {
    Options { value_mode: ValueMode::Pointer, ..small_nodes() }
}

fn sorted() -> Options {
    Options { numbers: Numbers::Sorted, ..Options::default() }
}

pando_index::conformance_suite! {
    defaults => || Fixture::<Process>::anonymous(Options::default());
    sorted => || Fixture::<Process>::anonymous(sorted());
    adr_ranged => || Fixture::<Adr>::in_file(small_ranges());
    pointers => || Fixture::<Process>::anonymous(pointers());
    process => || Fixture::<Process>::in_file(small_nodes());
    adr => || Fixture::<Adr>::in_file(small_nodes());
}
