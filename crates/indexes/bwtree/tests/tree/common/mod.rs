//! Bw-trees for tests.

pub mod stored;

pub use pando_pmem::testing::watchdog;
pub use pando_tree::testing::{NAME, Records, abandon, check, dump, folder_and_pool};

use pando_bwtree::{BwTrees, Options};

/// A tree of kind `K` with its pool.
pub type Fixture<D, K = BwTrees> = pando_tree::testing::Fixture<D, K>;

/// Options under which pages are soon split and merged, and values soon leave them.
pub fn small() -> Options {
    Options {
        leaf_bytes: 256,
        inner_bytes: 256,
        merge_bytes: 112,
        inline_bytes: 32,
        chain_deltas: 5,
        delta_bytes: 160,
        ..Options::default()
    }
}

/// The same in the paper's design.
pub fn small_plain() -> Options {
    Options {
        chain_deltas: 3,
        ..Options {
            leaf_bytes: 256,
            inner_bytes: 256,
            merge_bytes: 112,
            inline_bytes: 32,
            ..Options::plain()
        }
    }
}

/// The key of a number.
pub fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Values of both kinds: in the page, and in blocks.
pub fn value(number: u64) -> Vec<u8> {
    vec![number as u8; if number.is_multiple_of(5) { 40 } else { 8 }]
}
