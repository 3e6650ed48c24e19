//! Skip lists for tests.

pub use pando_pmem::testing::watchdog;
pub use pando_tree::testing::{abandon, check, dump, folder};

use std::path::Path;

use pando_pmem::Domain;
use pando_skiplist::{Options, SkipLists};
use pando_tree::maps::IndexKind;

/// A list of kind `K` with its pool.
pub type Planted<D, K = SkipLists> = pando_tree::testing::Planted<D, K>;

/// Options under which values of all kinds are met, and high nodes among few; the same ones in each
/// run.
pub fn small_values() -> Options {
    Options { inline_bytes: 32, levels_at_once: 2, height_seed: 1, even_gaps: false }
}

/// There is no page to be filled before something happens.
const SCALE: f64 = 0.4;

/// On anonymous memory.
pub fn anonymous<D: Domain, K: IndexKind<Options = Options>>(options: Options) -> Planted<D, K> {
    Planted::anonymous(options).scaled(SCALE)
}

/// In a new file, in memory if there is a tmpfs.
pub fn in_file<D: Domain>(options: Options) -> Planted<D> {
    Planted::in_file(options).scaled(SCALE)
}

/// In the new file `path`, which may grow to `max_bytes`.
pub fn create<D: Domain>(path: &Path, max_bytes: u64, options: Options) -> Planted<D> {
    Planted::create(path, max_bytes, options).scaled(SCALE)
}

/// In the file that a test left at `path`.
pub fn reopen<D: Domain>(path: &Path) -> Planted<D> {
    Planted::reopen(path).scaled(SCALE)
}
