//! NBTrees for tests.

pub use pando_tree::testing::{NAME, Records, check, dump, folder};

use std::path::Path;
use std::sync::Arc;

use pando_nbtree::NbTrees;
use pando_pmem::{Domain, Pool};
use pando_tree::maps::{IndexKind, Settings};

/// A tree with its pool.
pub type Planted<D> = pando_tree::testing::Planted<D, NbTrees>;

/// Settings under which few records make many nodes.
pub fn small_nodes() -> Settings {
    let mut settings = defaults();
    settings.set("leaf_slots", "6").expect("in range");
    settings.set("inner_children", "4").expect("in range");
    settings
}

pub fn defaults() -> Settings {
    Settings::new(NbTrees::SETTINGS)
}

/// The index of `pool`, created if there is none.
pub fn plant<D: Domain>(pool: Arc<Pool<D>>, settings: &Settings) -> Planted<D> {
    Planted::of(pool, settings)
}

/// On anonymous memory.
pub fn anonymous<D: Domain>(settings: &Settings) -> Planted<D> {
    Planted::anonymous(settings)
}

/// In a new file, in memory if there is a tmpfs.
pub fn in_file<D: Domain>(settings: &Settings) -> Planted<D> {
    Planted::in_file(settings)
}

/// In the new file `path`, which may grow to `max_bytes`.
pub fn create<D: Domain>(path: &Path, max_bytes: u64, settings: &Settings) -> Planted<D> {
    Planted::create(path, max_bytes, settings)
}

/// In the file that a test left at `path`.
pub fn reopen<D: Domain>(path: &Path) -> Planted<D> {
    Planted::reopen(path)
}
