//! Skip lists for tests.

pub use pando_pmem::testing::watchdog;
pub use pando_tree::testing::{abandon, check, dump, folder};

use std::path::Path;

use pando_pmem::Domain;
use pando_skiplist::{Options, SkipLists};
use pando_tree::maps::{IndexKind, Settings};
use pando_tree::testing::NAME;

/// A list of kind `K` with its pool.
pub type Planted<D, K = SkipLists> = pando_tree::testing::Planted<D, K>;

/// Options under which values of all kinds are met, and high nodes among few; the same ones in each
/// run.
pub fn small_values() -> Options {
    Options { inline_bytes: 32, levels_at_once: 2, height_seed: 1, even_gaps: false }
}

/// On anonymous memory.
pub fn anonymous<D: Domain, K: IndexKind>(options: Options) -> Planted<D, K> {
    scaled(Planted::anonymous(&settings(options)))
}

/// In a new file, in memory if there is a tmpfs.
pub fn in_file<D: Domain>(options: Options) -> Planted<D> {
    scaled(Planted::in_file(&settings(options)))
}

/// In the new file `path`, which may grow to `max_bytes`.
pub fn create<D: Domain>(path: &Path, max_bytes: u64, options: Options) -> Planted<D> {
    scaled(Planted::create(path, max_bytes, &settings(options)))
}

/// In the file that a test left at `path`.
pub fn reopen<D: Domain>(path: &Path) -> Planted<D> {
    scaled(Planted::reopen(path))
}

fn settings(options: Options) -> Settings {
    options.settings().expect("options in range")
}

/// One more handle of the pool's list, as another thread may have it.
pub fn another_handle<D: Domain, K: IndexKind>(
    planted: &Planted<D, K>,
    options: Options,
) -> K::Index<D> {
    planted.catalog.find_or_create_index::<K>(NAME, &settings(options)).expect("the map")
}

/// There is no page to be filled before something happens.
fn scaled<D: Domain, K: IndexKind>(mut planted: Planted<D, K>) -> Planted<D, K> {
    planted.scale = 0.4;
    planted
}
