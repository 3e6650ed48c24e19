//! The peer `btree-olc`: a B+-tree with optimistic lock coupling, in memory, of this crate.
//!
//! No crate has this tree. It is here for comparisons only: sorted nodes of 4 KiB are what scans of
//! other indexes are compared with. The protocol is that of Leis, Haubenschild and Neumann,
//! "Optimistic Lock Coupling: A Scalable and Efficient General-Purpose Synchronization Method"
//! (2019).
//!
//! # Nodes
//!
//! A node has 32 bytes of header, an array of 254 keys and an array of 254 words. Keys are sorted.
//! In a leaf, a word is the value of its key. In an inner node, it is the index of a child, and the
//! key is the least key that this child may have.
//!
//! | header | written |
//! | --- | --- |
//! | version: a counter, and a lock bit | by each change |
//! | `low`: the least key that the node may have | before other threads see the node |
//! | `next`: the leaf behind this one | by a split |
//! | count of keys | by inserts, removes and splits |
//! | level: 0 in a leaf | before other threads see the node; in the root, by its split |
//!
//! Nodes are in an arena and have an index there. The root is a node apart from it, and remains the
//! root: its split moves all its records to two new nodes. No node is freed or merged, so no node
//! becomes obsolete, and a version has no bit for that. A leaf whose records are all removed stays
//! empty, and scans walk over it.
//!
//! # Protocol
//!
//! A *reader* of a node reads its version, then its words, then the version again. If the version
//! is locked or has changed, the operation starts again at the root. The words are atomics, so a
//! reader may see a mixture of two states, but never a torn word, and it uses nothing of it before
//! the second read of the version. A wrong index of a child leads to no node or to a wrong one, of
//! which only the version is read.
//!
//! A *descent* reads the version of the child before it validates the version of the parent.
//! Then the child was responsible for the key at the version that was read.
//!
//! A *writer* descends in the same way, finds the place in the leaf, and locks the leaf by a
//! compare-and-swap from the version that it has read. If this succeeds, the place is still right.
//! It shifts the records behind the place and unlocks the leaf with a new version. It waits for no
//! lock while it has one, so writers cannot block each other for ever.
//!
//! An insert into a full leaf first splits the topmost full node of the path, and then starts
//! again. The parent of this node, if it has one, has room. A split locks the parent and the node:
//!
//! | step | written |
//! | --- | --- |
//! | 1 | the upper half of the node, in a new node that no other thread knows |
//! | 2 | in a leaf, `next`; then its count |
//! | 3 | the new node's least key and index, in the parent |
//! | 4 | the versions, which unlocks the three nodes |
//!
//! `low` of a node never changes, because the new node is always the right one. Therefore an
//! ascending scan follows `next`: if it has validated a leaf and its `next`, the next leaf begins
//! where that leaf ended. A descending scan descends again, to the key before `low`. Scans copy up
//! to 32 records and validate before they pass them on.
//!
//! # Deviations and costs
//!
//! * A reader that finds a lock restarts. It spins a few times, and then yields its core.
//! * Each split is in the middle, also for ascending keys, which leave leaves half full.
//! * Records are shifted word by word, because the words are atomics. A `memmove` would be faster.
//! * The arena grows by 1 MiB under the lock of the node that is split.
//! * Binary search has no branch, and so no speculation on the next line of a cold node.

mod arena;
mod node;
#[cfg(test)]
mod tests;
mod tree;

pub use arena::OutOfNodes;
use node::{Node, PAGE_CAPACITY};
pub use tree::Tree;

use super::words::{key_word, value_word};
use crate::system::{Order, Refusal, Scan, System};

/// The tree with nodes of 4 KiB.
pub type Pages = Tree<PAGE_CAPACITY>;

impl System for Pages {
    #[inline]
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        Ok(self.insert(key_word(key)?, value_word(value)?)?)
    }

    #[inline]
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        Ok(self.put(key_word(key)?, value_word(value)?)?)
    }

    #[inline]
    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        let value = Tree::get(self, key_word(key)?);
        Ok(value.map(|value| visit(&value.to_le_bytes())).is_some())
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        Ok(self.remove(key_word(key)?))
    }

    #[inline]
    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        let show = |key: u64, value: u64| visit(&key.to_be_bytes(), &value.to_le_bytes());
        match order {
            Order::Ascending => self.ascend(key_word(from)?, limit, show),
            Order::Descending => self.descend(key_word(from)?, limit, show),
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        let mut count = 0;
        self.ascend(0, u64::MAX, |_, _| count += 1);
        Ok(count)
    }

    fn footprint_bytes(&self) -> Option<u64> {
        Some((1 + self.nodes()) * size_of::<Node<PAGE_CAPACITY>>() as u64)
    }
}
