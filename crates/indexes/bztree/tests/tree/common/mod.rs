//! BzTrees for tests.

pub mod scenario;
pub use pando_pmem::testing::watchdog;
pub use pando_tree::testing::{NAME, Records, abandon, check, dump, folder, take_all};

use std::path::Path;
use std::sync::Arc;

use pando_bztree::{BzTrees, Options};
use pando_pmem::{Domain, Pool};
use pando_tree::maps::Settings;

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

/// The index of `pool`, created if there is none.
pub fn plant<D: Domain>(pool: Arc<Pool<D>>, options: Options) -> Planted<D> {
    Planted::of(pool, &settings(options))
}

/// On anonymous memory.
pub fn anonymous<D: Domain>(options: Options) -> Planted<D> {
    Planted::anonymous(&settings(options))
}

/// In a new file, in memory if there is a tmpfs.
pub fn in_file<D: Domain>(options: Options) -> Planted<D> {
    Planted::in_file(&settings(options))
}

/// In the new file `path`, which may grow to `max_bytes`.
pub fn create<D: Domain>(path: &Path, max_bytes: u64, options: Options) -> Planted<D> {
    Planted::create(path, max_bytes, &settings(options))
}

/// In the file that a test left at `path`.
pub fn reopen<D: Domain>(path: &Path) -> Planted<D> {
    Planted::reopen(path)
}

fn settings(options: Options) -> Settings {
    options.settings().expect("options in range")
}
