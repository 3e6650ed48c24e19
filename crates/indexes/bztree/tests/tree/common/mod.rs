//! BzTrees for tests.

pub mod scenario;
pub use pando_pmem::testing::watchdog;
pub use pando_tree::testing::{NAME, Records, abandon, check, dump, folder, take_all};

use pando_bztree::{BzTrees, Options};

/// A tree with its pool.
pub type Planted<D> = pando_tree::testing::Planted<D, BzTrees>;

/// Options under which few records make many nodes.
pub fn small_nodes() -> Options {
    Options {
        leaf_bytes: 512,
        inner_bytes: 256,
        free_bytes: 128,
        merge_bytes: 128,
        inline_bytes: 128,
        ..Options::default()
    }
}
