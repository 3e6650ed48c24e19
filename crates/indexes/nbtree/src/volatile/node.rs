//! References to nodes in process memory, the words that hold them, and how their memory is freed.
//! This is the only file of the crate that turns addresses into nodes.
//!
//! A word ([`Slot`], or a leaf's replacement) publishes a node. A thread that holds a guard finds
//! the node by this word. Later one thread removes it from the word and *retires* it: its memory is
//! freed when no thread can hold it any more, by the epochs of the pool ([`Retired`]). A node that
//! no other thread ever saw is simply dropped.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use pando_pmem::{Domain, Guard};

use super::nodes::{Inner, Leaf, Replacement, Slot};
use super::spare::Spares;

/// In the address of a slot: its inner node is being replaced, and the slot is final.
const FROZEN: usize = 1;
/// In the address of a node: it is an inner node.
const INNER: usize = 2;
const TAGS: usize = FROZEN | INNER;

const _: () = assert!(align_of::<Leaf>() > TAGS && align_of::<Inner>() > TAGS);

/// A node; valid as long as the guard is held under which it was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'guard> {
    /// With [`INNER`], never with [`FROZEN`].
    tagged: *mut (),
    /// Probably the offset of the block, if it is a leaf: a hint for prefetches.
    pub block_hint: u64,
    guard: PhantomData<&'guard Leaf>,
}

impl PartialEq for Node<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.tagged == other.tagged
    }
}

/// A leaf or an inner node; valid as long as the guard is held under which it was found.
///
/// It is the address of the node's box, and not a reference to the node. Through a reference no
/// code may write to, or free, the node. But a thread that removes a node from the tree must do so
/// ([`Retired::retire`]).
#[derive(Debug)]
pub(crate) struct Ref<'guard, T> {
    address: NonNull<T>,
    guard: PhantomData<&'guard T>,
}

pub(crate) type LeafRef<'guard> = Ref<'guard, Leaf>;
pub(crate) type InnerRef<'guard> = Ref<'guard, Inner>;

impl<T> Clone for Ref<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ref<'_, T> {}

impl<'guard, T> Ref<'guard, T> {
    /// # Safety
    /// The address is that of a box that was turned into a raw pointer, and its memory is not freed
    /// before the lifetime ends.
    unsafe fn new(address: NonNull<T>) -> Self {
        Self { address, guard: PhantomData }
    }

    /// The node, for as long as the guard is held.
    #[inline(always)]
    pub fn get(self) -> &'guard T {
        // SAFETY: the requirement of `new`.
        unsafe { self.address.as_ref() }
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.get()
    }
}

impl<'guard> Ref<'guard, Leaf> {
    /// The replacement of the leaf, if it is decided.
    #[inline(always)]
    pub fn replaced_by<D: Domain>(self, _: &'guard Guard<'_, D>) -> Option<&'guard Replacement> {
        D::observe_process_memory();
        // Acquire: pairs with the CAS of `publish`.
        let replacement = self.replacement.load(Ordering::Acquire);
        // SAFETY: published by `publish`, and freed with this leaf.
        unsafe { replacement.as_ref() }
    }

    /// The leaf as a node.
    pub fn node(self) -> Node<'guard> {
        Node::tagged(self.address.as_ptr().cast(), self.block_off)
    }
}

impl<'guard> Ref<'guard, Inner> {
    /// The inner node as a node.
    pub fn node(self) -> Node<'guard> {
        Node::tagged(self.address.as_ptr().cast::<()>().map_addr(|address| address | INNER), 0)
    }
}

/// A node by its kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind<'guard> {
    Leaf(LeafRef<'guard>),
    Inner(InnerRef<'guard>),
}

impl<'guard> Node<'guard> {
    fn tagged(tagged: *mut (), block_hint: u64) -> Self {
        Self { tagged, block_hint, guard: PhantomData }
    }

    /// A leaf to be published; before that, [`discard`](Self::discard) frees it.
    pub fn of_leaf(leaf: Box<Leaf>) -> Self {
        let block_off = leaf.block_off;
        Self::tagged(Box::into_raw(leaf).cast(), block_off)
    }

    /// The same, for an inner node.
    pub fn of_inner(inner: Inner) -> Self {
        Self::of_boxed_inner(Box::new(inner))
    }

    fn of_boxed_inner(inner: Box<Inner>) -> Self {
        Self::tagged(Box::into_raw(inner).cast::<()>().map_addr(|address| address | INNER), 0)
    }

    #[inline(always)]
    pub fn is_inner(self) -> bool {
        self.tagged.addr() & INNER != 0
    }

    fn address(self) -> *mut () {
        self.tagged.map_addr(|address| address & !TAGS)
    }

    #[inline(always)]
    pub fn kind(self) -> Kind<'guard> {
        // SAFETY: not null: `of_leaf` or `of_inner` made it from a box.
        let address = unsafe { NonNull::new_unchecked(self.address()) };
        if self.is_inner() {
            // SAFETY: `of_inner` made it. The node was found in a word that published it, under the
            // guard of this lifetime, and is not freed before that guard is dropped.
            Kind::Inner(unsafe { Ref::new(address.cast()) })
        } else {
            // SAFETY: as above, for leaves.
            Kind::Leaf(unsafe { Ref::new(address.cast()) })
        }
    }

    /// Frees a node that no other thread has ever seen.
    ///
    /// # Safety
    /// The node was made by [`of_leaf`](Self::of_leaf), [`of_inner`](Self::of_inner) or
    /// [`Retired::inner`]. No word has ever held it, and no copy of it is used again.
    pub unsafe fn discard(self) {
        // SAFETY: the caller's.
        unsafe { self.free(&Memory::default()) }
    }

    /// # Safety
    /// The node was made by `of_leaf` or `of_inner`, and no thread can reach it, now or later.
    unsafe fn free(self, memory: &Memory) {
        if self.is_inner() {
            // SAFETY: the caller's.
            memory.inner.keep(unsafe { Box::from_raw(self.address().cast::<Inner>()) });
        } else {
            // SAFETY: the caller's.
            memory.leaves.keep(unsafe { Box::from_raw(self.address().cast::<Leaf>()) });
        }
    }
}

impl Replacement {
    pub fn new(left: Option<Box<Leaf>>, right: Option<Box<Leaf>>) -> Self {
        let raw = |leaf: Box<Leaf>| NonNull::from(Box::leak(leaf));
        Self { left: left.map(raw), right: right.map(raw) }
    }

    pub fn left<'guard, D: Domain>(&self, _: &'guard Guard<'_, D>) -> Option<LeafRef<'guard>> {
        // SAFETY: made from a box. It is freed no earlier than the leaf that it replaces is
        // retired, since only then it can be reached, and replaced, by another path. A thread that
        // reads this has held a guard since it found that leaf.
        self.left.map(|leaf| unsafe { Ref::new(leaf) })
    }

    pub fn right<'guard, D: Domain>(&self, _: &'guard Guard<'_, D>) -> Option<LeafRef<'guard>> {
        // SAFETY: as above.
        self.right.map(|leaf| unsafe { Ref::new(leaf) })
    }

    /// Frees the leaves of a replacement that was not published.
    fn discard(self) {
        for leaf in [self.left, self.right].into_iter().flatten() {
            // SAFETY: made from a box, and never published.
            drop(unsafe { Box::from_raw(leaf.as_ptr()) });
        }
    }
}

impl Leaf {
    /// Publishes the replacement of the leaf, unless another thread has published one.
    pub fn publish<D: Domain>(&self, replacement: Replacement) {
        D::observe_process_memory();
        let new = Box::into_raw(Box::new(replacement));
        let null = std::ptr::null_mut();
        // Release: publishes the new leaves.
        let published =
            self.replacement.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire);
        if published.is_err() {
            // SAFETY: made right above, and not published.
            unsafe { Box::from_raw(new) }.discard();
        }
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        let replacement = *self.replacement.get_mut();
        if !replacement.is_null() {
            // SAFETY: `publish` made it from a box. Like the leaf, no thread can reach it any more.
            // The leaves that it names are freed separately.
            drop(unsafe { Box::from_raw(replacement) });
        }
    }
}

impl Slot {
    /// An unused slot.
    pub const fn none() -> Self {
        Self { node: AtomicPtr::new(std::ptr::null_mut()), block_hint: AtomicU64::new(0) }
    }

    pub fn new(node: Node<'_>) -> Self {
        Self { node: AtomicPtr::new(node.tagged), block_hint: AtomicU64::new(node.block_hint) }
    }

    /// The node.
    #[inline(always)]
    pub fn load<'guard, D: Domain>(&self, _: &'guard Guard<'_, D>) -> Node<'guard> {
        D::observe_process_memory();
        // Acquire: pairs with the CAS that published the node.
        let found = self.node.load(Ordering::Acquire);
        // Relaxed: a hint.
        let block_hint = self.block_hint.load(Ordering::Relaxed);
        Node::tagged(found.map_addr(|address| address & !FROZEN), block_hint)
    }

    /// Prefetches the slot's line.
    #[inline(always)]
    pub fn prefetch(&self) {
        pando_pmem::prefetch::for_read(std::ptr::from_ref(self).cast());
    }

    /// Replaces `from` by `to`; false if the slot holds something else, or is frozen.
    pub fn replace<D: Domain>(&self, from: Node<'_>, to: Node<'_>) -> bool {
        D::observe_process_memory();
        // Release: publishes the new node.
        let replaced =
            self.node.compare_exchange(from.tagged, to.tagged, Ordering::AcqRel, Ordering::Acquire);
        if replaced.is_ok() {
            // Relaxed: a hint.
            self.block_hint.store(to.block_hint, Ordering::Relaxed);
        }
        replaced.is_ok()
    }

    /// Freezes the slot: it is final.
    pub fn freeze<D: Domain>(&self) {
        loop {
            D::observe_process_memory();
            let found = self.node.load(Ordering::Acquire);
            let frozen = found.map_addr(|address| address | FROZEN);
            let froze =
                self.node.compare_exchange(found, frozen, Ordering::AcqRel, Ordering::Acquire);
            if found == frozen || froze.is_ok() {
                return;
            }
        }
    }

    /// Like [`freeze`](Self::freeze), inside a hardware transaction, which orders it.
    pub fn freeze_in_transaction(&self) {
        let found = self.node.load(Ordering::Relaxed);
        self.node.store(found.map_addr(|address| address | FROZEN), Ordering::Relaxed);
    }

    /// The node of a slot that no other thread can reach.
    fn take(&mut self) -> Node<'static> {
        Node::tagged(self.node.get_mut().map_addr(|address| address & !FROZEN), 0)
    }
}

/// A node that no thread can find any more, but that some may still hold.
#[derive(Debug)]
struct Entry {
    node: Node<'static>,
    epoch: u64,
    next: *mut Entry,
}

/// Freed memory of nodes.
#[derive(Debug, Default)]
struct Memory {
    leaves: Spares<Leaf>,
    inner: Spares<Inner>,
}

/// Nodes that wait for their epoch, and the memory of those whose epoch has passed.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    memory: Memory,
    first: AtomicPtr<Entry>,
    count: AtomicUsize,
    /// The lowest epoch whose nodes were not ripe at the last collection; zero if all were.
    unripe: AtomicU64,
}

// SAFETY: any thread may drop nodes, and threads share only their atomics.
unsafe impl Send for Retired {}
// SAFETY: as above; the list is changed by CAS and swap.
unsafe impl Sync for Retired {}
// SAFETY: as above.
unsafe impl Send for Replacement {}
// SAFETY: as above.
unsafe impl Sync for Replacement {}

/// A collection runs whenever so many nodes have been retired.
const COLLECT_EVERY: usize = 64;

impl Retired {
    /// An inner node to be published; before that, [`Node::discard`] frees it.
    pub fn inner<'guard>(&self, inner: Inner) -> Node<'guard> {
        Node::of_boxed_inner(self.memory.inner.boxed(inner))
    }

    /// A leaf to be published.
    pub fn leaf(&self, leaf: Leaf) -> Box<Leaf> {
        self.memory.leaves.boxed(leaf)
    }

    /// Frees `node` when no thread can hold it any more.
    ///
    /// # Safety
    /// The calling thread, and no other, has just removed the node from the only word by which it
    /// could be found.
    pub unsafe fn retire<D: Domain>(&self, guard: &Guard<'_, D>, node: Node<'_>) {
        let epoch = guard.unlink_epoch();
        let entry = Entry { node: Node::tagged(node.tagged, 0), epoch, next: std::ptr::null_mut() };
        let entry = Box::into_raw(Box::new(entry));
        self.push(entry, entry);
        // Relaxed: it only decides when to collect.
        if self.count.fetch_add(1, Ordering::Relaxed) % COLLECT_EVERY == COLLECT_EVERY - 1 {
            self.collect(guard);
        }
    }

    /// Pushes a chain of entries, which belong to this thread alone, on the list.
    fn push(&self, first: *mut Entry, last: *mut Entry) {
        let mut found = self.first.load(Ordering::Relaxed);
        loop {
            // SAFETY: the chain belongs to this thread alone.
            unsafe { (*last).next = found };
            // Release: publishes the entries; pairs with the swap in `collect`.
            match self.first.compare_exchange_weak(
                found,
                first,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(other) => found = other,
            }
        }
    }

    fn collect<D: Domain>(&self, guard: &Guard<'_, D>) {
        // If a thread has stopped, one load instead of a walk. Relaxed: a hint.
        let unripe = self.unripe.load(Ordering::Relaxed);
        if unripe != 0 && !guard.is_ripe(unripe) {
            return;
        }
        // Acquire: pairs with `push`. From here on the entries belong to this thread alone.
        let mut next = self.first.swap(std::ptr::null_mut(), Ordering::Acquire);
        let (mut kept, mut last) = (std::ptr::null_mut::<Entry>(), std::ptr::null_mut::<Entry>());
        // The epoch of the newest ripe entry.
        let mut ripe_until = 0;
        let mut unripe_from = u64::MAX;
        while !next.is_null() {
            // SAFETY: `retire` made it from a box, and it belongs to this thread alone.
            let mut entry = unsafe { Box::from_raw(next) };
            next = entry.next;
            let is_ripe = entry.epoch <= ripe_until
                || (entry.epoch < unripe_from && guard.is_ripe(entry.epoch));
            if is_ripe {
                ripe_until = ripe_until.max(entry.epoch);
                // SAFETY: no thread could find the node since its epoch, and no thread that could
                // find it before is still pinned.
                unsafe { entry.node.free(&self.memory) };
            } else {
                unripe_from = unripe_from.min(entry.epoch);
                entry.next = kept;
                kept = Box::into_raw(entry);
                if last.is_null() {
                    last = kept;
                }
            }
        }
        let unripe = if kept.is_null() { 0 } else { unripe_from };
        self.unripe.store(unripe, Ordering::Relaxed);
        if !kept.is_null() {
            self.push(kept, last);
        }
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        let mut next = *self.first.get_mut();
        while !next.is_null() {
            // SAFETY: `retire` made it from a box, and no other thread has the list any more.
            let entry = unsafe { Box::from_raw(next) };
            next = entry.next;
            // SAFETY: no thread uses the tree any more.
            unsafe { entry.node.free(&self.memory) };
        }
    }
}

/// The root of the volatile layers, which it owns.
#[derive(Debug)]
pub(crate) struct Root {
    slot: Slot,
    /// Replaced nodes.
    pub retired: Retired,
}

impl Root {
    pub fn new(node: Node<'_>) -> Self {
        Self { slot: Slot::new(node), retired: Retired::default() }
    }

    #[inline(always)]
    pub fn slot(&self) -> &Slot {
        &self.slot
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // A stack instead of recursion: chains of replacements may be long.
        let mut rest = vec![self.slot.take()];
        while let Some(node) = rest.pop() {
            match node.kind() {
                Kind::Inner(_) => {
                    // SAFETY: no thread uses the tree any more, and each node is reached once: an
                    // inner node has a replaced leaf only as long as it does not have the
                    // replacement.
                    let mut inner = unsafe { Box::from_raw(node.address().cast::<Inner>()) };
                    rest.extend(inner.slots_mut().iter_mut().map(Slot::take));
                }
                Kind::Leaf(_) => {
                    // SAFETY: as above.
                    let leaf = unsafe { Box::from_raw(node.address().cast::<Leaf>()) };
                    // SAFETY: published by `publish`, and freed with the leaf.
                    let replacement = unsafe { leaf.replacement.load(Ordering::Relaxed).as_ref() };
                    let leaves = replacement.map(|one| [one.left, one.right]).into_iter().flatten();
                    rest.extend(leaves.flatten().map(|leaf| Node::tagged(leaf.as_ptr().cast(), 0)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pando_pmem::{CreateOptions, Pool, Process};

    use super::*;
    use crate::separator::Separator;
    use crate::volatile::leaf::Control;

    /// Small, so that Miri can run it.
    fn small() -> CreateOptions {
        CreateOptions { max_bytes: 1 << 20, ..CreateOptions::default() }
    }

    /// A node that a thread may hold is not freed; the others are; and the rest is freed with the
    /// list.
    #[test]
    fn nodes_wait_for_who_may_hold_them() {
        let pool = Pool::<Process>::anonymous(&small()).expect("memory");
        let retired = Retired::default();
        let low = Separator::new(b"longer than eight bytes");
        let shared = low.clone().parts().1.expect("is no number");
        let alive = || Arc::strong_count(&shared) - 2;
        let retire = |count: usize| {
            for _ in 0..count {
                let guard = pool.pin().expect("a slot");
                let leaf = Leaf::new::<Process>(64, low.clone(), Control::new(0), &[]);
                let slot = Slot::new(Node::of_leaf(retired.leaf(leaf)));
                // As in an operation that found the leaf and read it.
                let Kind::Leaf(found) = slot.load(&guard).kind() else { panic!("a leaf") };
                assert_eq!(found.block_off, 64);
                // SAFETY: the slot is not used any more.
                unsafe { retired.retire(&guard, found.node()) };
            }
        };
        let (is_pinned, let_go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let held = pool.pin().expect("a slot");
                is_pinned.wait();
                let_go.wait();
                drop(held);
            });
            is_pinned.wait();
            retire(10 * COLLECT_EVERY);
            let kept = alive();
            let_go.wait();
            assert_eq!(kept, 10 * COLLECT_EVERY, "given back while it may be held");
        });
        retire(10 * COLLECT_EVERY);
        assert!(alive() <= 2 * COLLECT_EVERY, "{} are kept", alive());
        drop(retired);
        assert_eq!(alive(), 0);
    }
}
