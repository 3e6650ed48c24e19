//! NBTrees for tests.

pub use pando_tree::testing::{NAME, Records, check, dump, folder_and_pool};

use pando_nbtree::NbTrees;
pub use pando_nbtree::Options;

/// A tree with its pool.
pub type Fixture<D> = pando_tree::testing::Fixture<D, NbTrees>;

/// Options under which few records make many nodes.
pub fn small_nodes() -> Options {
    Options { leaf_slots: 6, inner_children: 4 }
}
