//! wB+-Trees for tests.

pub use pando_tree::testing::{NAME, Records, abandon, check, dump, folder, folder_and_pool};

use pando_wbtree::{NodeKind, Options, RecordBytes, WbTrees};

/// A tree with its pool.
pub type Fixture<D> = pando_tree::testing::Fixture<D, WbTrees>;

/// Options under which few records make many nodes, and few changes cause a copy.
pub fn small_nodes(leaf: NodeKind) -> Options {
    Options { leaf, node_lines: 4, node_versions: 24, ..Options::default() }
}

/// The same, for records of eight bytes.
pub fn small_fixed(leaf: NodeKind) -> Options {
    Options { records: RecordBytes::Fixed, node_lines: 3, ..small_nodes(leaf) }
}

/// Small trees whose leaves have slot arrays: two with records of eight bytes, and one with others.
pub fn slotted() -> [Options; 3] {
    let [both, slots_alone] = [NodeKind::SlotBitmap, NodeKind::SlotOnly];
    [small_fixed(both), small_fixed(slots_alone), small_nodes(both)]
}

/// Small trees of each kind of leaf with records of eight bytes, and one with others.
pub fn small_trees() -> [Options; 4] {
    let [first, second, third] = [NodeKind::SlotBitmap, NodeKind::BitmapOnly, NodeKind::SlotOnly];
    [small_fixed(first), small_fixed(second), small_fixed(third), small_nodes(first)]
}
