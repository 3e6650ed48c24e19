//! The tree: its handle, the descent from the root to a leaf, and the search in a leaf (paper 5.3).
//!
//! # Which leaf has a key
//!
//! Inner nodes may be out of date: a replaced leaf stays in them until its replacement is installed
//! (`install.rs`). But a replaced leaf is closed, and names its replacement. A leaf's range shrinks
//! only by its replacement. So a descent that ends in an open leaf has found the leaf of the key,
//! and from a closed leaf it continues to the replacement. A dropped leaf names nothing: its range
//! is that of the leaf before it, and the descent starts again when the inner nodes say so.
//!
//! # What a search sees
//!
//! At some point in time since the operation began, the leaf was not replaced: when its `control`
//! was found open, or, if it was closed, when it named no replacement. The slots of `control`'s
//! bitmap at that time are all that were ever decided in the leaf. Of the slots of a key, at most
//! one is live at any time, and a deleted one stays deleted. So:
//!
//! * A live slot, its value word not closed: the record was in the tree, with this value, when the
//!   word was read. (While a value word is open, no other place of the tree has the record.)
//! * A live slot, closed: the word never changes any more, and no thread changes the record
//!   elsewhere before the leaf names its replacement. So this was its value at that time, or when
//!   the word was closed, whichever came last. (In the paper, the reader first updates the new
//!   leaf, sync-on-read: 4.2. Here no thread can see the new leaf before it is up to date.)
//! * No live slot: the key was absent when `control` was read, or when its slot was deleted. In a
//!   closed leaf it was absent at that time: a closed leaf takes no insert, and neither does its
//!   replacement before the leaf names it.
//!
//! In a domain with write-backs, the basis of each answer is made durable first, if its slot says
//! that a change may not be durable (`volatile/leaf.rs`). So there are no dirty reads, which the
//! paper accepts without eADR.

use std::cmp::Ordering as Compare;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_index::Result;
use pando_pmem::{Domain, Guard, mutant};
use pando_tree::deref_to_handle;
use pando_tree::handle::Handle;
use pando_tree::key::{Probe, Side};

use crate::layers::Layers;
use crate::layout::{
    Content, class_of, classes_at, content, home_slot, is_pending, join_value, key_at, plain,
    value_at,
};
use crate::options::Options;
use crate::record;
use crate::recovery;
use crate::separator::is_eight;
use crate::volatile::leaf::slots;
use crate::volatile::node::{Kind, LeafRef};

/// An NBTree in a pool. Any number of handles may be open in the process that has opened the pool.
#[derive(Clone, Debug)]
pub struct NbTree<D: Domain> {
    handle: Handle<D, Options>,
    pub(crate) layers: Arc<Layers>,
}

deref_to_handle!(NbTree<D>, Options);

/// A slot that holds the searched key, and its value word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub slot: usize,
    pub word: u64,
}

impl<D: Domain> NbTree<D> {
    /// Opens the tree: rebuilds the layers in process memory, unless another handle has them.
    pub(crate) fn new(handle: Handle<D, Options>) -> Self {
        let Handle { catalog, root_off, options } = &handle;
        let build = || recovery::build(catalog, *root_off, options);
        let layers = catalog.shared_state(*root_off, build);
        Self { handle, layers }
    }

    /// Slots of a leaf.
    pub(crate) fn slots(&self) -> usize {
        self.options.leaf_slots as usize
    }

    #[inline(always)]
    pub(crate) fn pin(&self) -> Result<Guard<'_, D>> {
        self.layers.check()?;
        self.handle.pin()
    }

    /// The leaf of `probe`: open, or closed and not replaced yet.
    #[inline(always)]
    pub(crate) fn find_leaf<'guard>(
        &self,
        guard: &'guard Guard<'_, D>,
        probe: &Probe<'_>,
        side: Side,
        fingerprint: u8,
    ) -> LeafRef<'guard> {
        let home_off = classes_at(home_slot(fingerprint, self.slots()));
        loop {
            let mut node = self.layers.root.slot().load(guard);
            let leaf = loop {
                match node.kind() {
                    Kind::Inner(inner) => {
                        node = inner.slot(inner.index(probe, side)).load(guard);
                    }
                    Kind::Leaf(leaf) => break leaf,
                }
            };
            // Probably the record's line, while the leaf's line is loaded.
            guard.pool().prefetch(node.block_hint.wrapping_add(home_off));
            if !leaf.control::<D>().is_closed() {
                return leaf;
            }
            if let Some(leaf) = self.current(guard, leaf, probe, side) {
                return leaf;
            }
        }
    }

    /// The present replacement of a closed leaf; `None` if it was dropped.
    #[cold]
    #[inline(never)]
    pub(crate) fn current<'guard>(
        &self,
        guard: &'guard Guard<'_, D>,
        mut leaf: LeafRef<'guard>,
        probe: &Probe<'_>,
        side: Side,
    ) -> Option<LeafRef<'guard>> {
        while let Some(replacement) = leaf.replaced_by(guard) {
            self.install(guard, leaf);
            let is_right = |right: &LeafRef<'_>| match right.low.compare(probe) {
                Compare::Less => false,
                Compare::Equal => side == Side::Holding,
                Compare::Greater => true,
            };
            leaf = replacement.right(guard).filter(is_right).or(replacement.left(guard))?;
        }
        Some(leaf)
    }

    /// The slot of the bitmap at `control` that holds the key.
    #[inline(always)]
    pub(crate) fn search(
        &self,
        guard: &Guard<'_, D>,
        leaf: LeafRef<'_>,
        bitmap: u64,
        probe: &Probe<'_>,
        fingerprint: u8,
    ) -> Option<Found> {
        let pool = guard.pool();
        let mut candidates = leaf.matches(fingerprint) & bitmap;
        while candidates != 0 {
            let slot = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            // Relaxed: stored before the slot was decided.
            let slice = pool.word(leaf.block_off + key_at(slot)).load(Ordering::Relaxed);
            if slice != probe.slice {
                continue;
            }
            let word = self.settled(guard, leaf, slot);
            match content(word) {
                Content::Value if is_eight(probe) => return Some(Found { slot, word }),
                Content::Record(off) if record::has_key(guard, off, probe.bytes) => {
                    return Some(Found { slot, word });
                }
                // A thread that relies on the deletion must not do so before it is durable.
                Content::Deleted => self.make_durable(guard, leaf, slot),
                Content::Value | Content::Record(_) | Content::Empty | Content::Damaged => {}
            }
        }
        None
    }

    /// The value word of a decided slot. If its insert is not complete, this completes it.
    #[inline(always)]
    pub(crate) fn settled(&self, guard: &Guard<'_, D>, leaf: LeafRef<'_>, slot: usize) -> u64 {
        // Acquire: pairs with the CAS that wrote a record's block.
        let word = guard.pool().word(leaf.block_off + value_at(slot)).load(Ordering::Acquire);
        if is_pending(word) { self.complete_insert(guard, leaf, slot) } else { word }
    }

    #[cold]
    #[inline(never)]
    fn complete_insert(&self, guard: &Guard<'_, D>, leaf: LeafRef<'_>, slot: usize) -> u64 {
        let value = guard.pool().word(leaf.block_off + value_at(slot));
        loop {
            let word = value.load(Ordering::Acquire);
            if !is_pending(word) {
                return word;
            }
            leaf.begin_change::<D>(slot);
            let _ = value.compare_exchange(word, plain(word));
            value.flush();
            D::fence();
            leaf.end_change::<D>(slot);
        }
    }

    /// Makes durable what was read from the slot's value word.
    #[inline(always)]
    pub(crate) fn make_durable(&self, guard: &Guard<'_, D>, leaf: LeafRef<'_>, slot: usize) {
        if !mutant!("nbtree-dirty-read") && leaf.may_be_undurable::<D>(slot) {
            guard.pool().word(leaf.block_off + value_at(slot)).flush();
            D::fence();
        }
    }

    /// Lends the value of a slot with this value word.
    #[inline(always)]
    pub(crate) fn lend<R>(
        &self,
        guard: &Guard<'_, D>,
        leaf: LeafRef<'_>,
        found: Found,
        visit: impl FnOnce(&[u8]) -> R,
    ) -> R {
        match content(found.word) {
            Content::Record(off) => visit(record::parts(guard, off).1),
            _ => visit(&self.number(guard, leaf, found).to_le_bytes()),
        }
    }

    /// The value of eight bytes of a slot with this value word.
    #[inline(always)]
    fn number(&self, guard: &Guard<'_, D>, leaf: LeafRef<'_>, found: Found) -> u64 {
        let Found { slot, word } = found;
        // Relaxed: as the slot's key.
        let classes = guard.pool().word(leaf.block_off + classes_at(slot)).load(Ordering::Relaxed);
        join_value(class_of(classes, slot), word)
    }

    /// Live records of a leaf.
    pub(crate) fn count_live(&self, guard: &Guard<'_, D>, leaf: LeafRef<'_>) -> u64 {
        let is_live = |&slot: &usize| {
            matches!(content(self.settled(guard, leaf, slot)), Content::Value | Content::Record(_))
        };
        slots(leaf.control::<D>().bitmap()).filter(is_live).count() as u64
    }
}
