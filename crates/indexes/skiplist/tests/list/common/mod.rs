//! Skip lists for tests.

pub use pando_pmem::testing::watchdog;
pub use pando_tree::testing::{abandon, check, dump, folder_and_pool};

use pando_skiplist::{Options, SkipLists};

/// A list of kind `K` with its pool.
pub type Fixture<D, K = SkipLists> = pando_tree::testing::Fixture<D, K>;

/// Options under which a few records have values of all kinds, and some high nodes; the same ones
/// in each run.
pub fn small_values() -> Options {
    Options { inline_bytes: 32, levels_at_once: 2, height_seed: 1, even_gaps: false }
}
