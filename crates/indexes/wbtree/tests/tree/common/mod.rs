//! wB+-Trees for tests.

pub use pando_tree::testing::{NAME, Records, abandon, check, dump, folder};

use std::path::Path;

use pando_pmem::Domain;
use pando_tree::maps::Settings;
use pando_wbtree::{NodeKind, Options, WbTrees};

/// A tree with its pool.
pub type Planted<D> = pando_tree::testing::Planted<D, WbTrees>;

/// Options under which few records make many nodes, and few changes a copy.
pub fn small_nodes(leaf: NodeKind) -> Options {
    Options { leaf, node_lines: 4, node_versions: 24, ..Options::default() }
}

/// The same, for records of eight bytes.
pub fn small_fixed(leaf: NodeKind) -> Options {
    Options { is_variable: false, node_lines: 3, ..small_nodes(leaf) }
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
