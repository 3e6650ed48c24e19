//! Structure modifications of leaves: split, consolidation, drop (paper 4.2, 5.1).
//!
//! A leaf without a free slot is replaced by two leaves if more than half of its slots are live,
//! otherwise by one. A leaf without a live slot is dropped, and its range goes to the leaf before
//! it (the first leaf is never dropped). Leaves with records are not merged.
//!
//! # Three phases, and what stops in each
//!
//! | phase | what is done | inserts | updates, deletes | searches | a crash leaves |
//! | --- | --- | --- | --- | --- | --- |
//! | close | `control` closed, by a thread that finds the leaf full or empty | replace the leaf, and are carried along | go on | go on | the old leaf |
//! | copy | room is reserved; the live slots are copied, and divided | the same | go on | go on | the old leaf |
//! | sync | each value word is closed, and the copy updated to its final content; written back | the same | of closed words: replace the leaf, and are carried along | go on | the old leaf, closed words count as open ones |
//! | link | one PMwCAS: the predecessor's `next` to the new leaf, this one's `next` marked, blocks allocated and freed | the same | the same | go on | by PMwCAS: old or new |
//! | publish | the new leaves' metadata, by a CAS of the old one's `replacement` | go on in the new | the same | go on in the new | the new leaves |
//! | install | inner nodes (`install.rs`) | go on | go on | go on | |
//!
//! In the paper's sync phase, threads update one shared copy while updates change the old and the
//! new leaf, which the copy and sync bits of values distinguish. If two updates restore an earlier
//! value, a late synchronizer can undo a third update, because its CAS compares values, and values
//! return. Here a synchronized value word is closed, so its content is final, and each thread has a
//! copy of its own.
//!
//! # Changes that are carried along
//!
//! A thread replaces a leaf because it has no slot for a record, or because the value word that the
//! thread must change is closed. Then the thread makes its change in the replacement. The PMwCAS is
//! then the insert, update or delete, durably, and the change takes effect when the replacement is
//! published. (Otherwise threads that claim all slots of leaf after leaf, and a thread that always
//! finds them claimed, or words closed, could delay each other for ever, by one replacement after
//! the other. So each replacement is some thread's success.) A closed leaf takes no inserts, so a
//! key that is absent then stays absent. A closed word never changes, so the basis of a change
//! still holds. If a change removes a record's block, the same PMwCAS frees it. The log of a thread
//! that wrote the block's name into the closed word may still exist: recovery finds the name there
//! and leaves the block alone.
//!
//! # Cooperation
//!
//! Each thread that needs the replacement of the leaf does all of it, with blocks of its own
//! (cooperative SMO). The PMwCAS decides: it succeeds only once, since it marks the old leaf's
//! `next`. Its policies free the blocks of the other threads, so nothing leaks when a thread stops
//! or dies. If the successful thread stops before it has published, the others find the mark, read
//! the new leaves from the chain, and publish them themselves: no thread has changed these before.
//!
//! Neighbours: the PMwCAS expects the successor's block in this leaf's `next`, and changes the
//! predecessor's. If the successor is replaced first, the PMwCAS fails, and the next attempt uses
//! the new successor. If the predecessor is replaced first, the same happens after its replacement
//! is published, which this thread helps to complete (this recursion goes to the left, one step for
//! each thread that has stopped between linking and publishing). No next pointer is copied and then
//! changed.

use std::cmp::Ordering as Compare;
use std::sync::atomic::Ordering;

use pando_index::{Error, Result};
use pando_pmem::{Domain, Guard, mutant};
use pando_pmwcas::Policy;
use pando_tree::checked::Steps;
use pando_tree::key::{Probe, Side};

use crate::layout::{
    Content, Image, MAX_SLOTS, NEXT_AT, RECORD_TAG, REPLACED, block_bytes, class_of, classes_at,
    closed, content, is_closed, key_at, plain, slot_to_take, value_at,
};
use crate::record;
use crate::record::Record;
use crate::recovery;
use crate::separator::Separator;
use crate::tree::{Found, NbTree};
use crate::volatile::leaf::{Control, FREE, slots};
use crate::volatile::node::LeafRef;
use crate::volatile::nodes::{Leaf, Replacement};

/// A change that a leaf cannot take any more, for its replacement.
#[derive(Clone, Copy)]
pub(crate) enum Change<'change> {
    /// The record, if the leaf does not have its key.
    Insert(&'change Record<'change>),
    /// The record, in place of one that was found in a closed word.
    Update(Found, &'change Record<'change>),
    /// The removal of a record that was found in a closed word.
    Delete(Found),
}

/// A slot's copy.
#[derive(Clone, Copy, Debug, Default)]
struct Copy {
    /// `None` for a record that is carried along.
    slot: Option<usize>,
    slice: u64,
    class: u64,
    word: u64,
    fingerprint: u8,
}

/// The live slots of a leaf, and one record more.
struct Copies {
    list: [Copy; MAX_SLOTS + 1],
    len: usize,
}

impl Copies {
    fn all(&self) -> &[Copy] {
        &self.list[..self.len]
    }

    fn push(&mut self, copy: Copy) {
        self.list[self.len] = copy;
        self.len += 1;
    }

    fn all_mut(&mut self) -> &mut [Copy] {
        &mut self.list[..self.len]
    }

    /// Removes the copy of a slot.
    fn remove(&mut self, slot: usize) {
        if let Some(at) = self.all().iter().position(|copy| copy.slot == Some(slot)) {
            self.len -= 1;
            self.list.swap(at, self.len);
        }
    }
}

impl<D: Domain> NbTree<D> {
    /// Replaces the leaf, or finds it replaced, without waiting. The leaf never changes after that.
    pub(crate) fn replace(&self, guard: &Guard<'_, D>, leaf: LeafRef<'_>) -> Result<()> {
        self.replace_with(guard, leaf, None).map(drop)
    }

    /// The same, with a change that is carried along. Returns whether this call made the change.
    #[cold]
    #[inline(never)]
    pub(crate) fn replace_with(
        &self,
        guard: &Guard<'_, D>,
        leaf: LeafRef<'_>,
        change: Option<Change<'_>>,
    ) -> Result<bool> {
        let was_closed = leaf.control::<D>().is_closed();
        let control = leaf.close::<D>();
        if was_closed {
            // Another thread is replacing it, and will probably finish soon.
            for _ in 0..D::SPINS {
                if leaf.is_replaced::<D>() {
                    break;
                }
                std::hint::spin_loop();
            }
        }
        // The leaf takes no inserts any more: a key that is absent now stays absent.
        let is_absent = |record: &Record<'_>| {
            let bitmap = control.bitmap();
            self.search(guard, leaf, bitmap, &record.probe, record.fingerprint).is_none()
        };
        let change = change.filter(|change| match change {
            Change::Insert(record) => mutant!("nbtree-carries-what-is-there") || is_absent(record),
            Change::Update(..) | Change::Delete(_) => true,
        });
        let mut is_made = false;
        let mut steps = Steps::of_attempts();
        while !leaf.is_replaced::<D>() {
            steps.take(guard, leaf.block_off)?;
            is_made = self.try_replace(guard, leaf, control, change)?;
        }
        self.install(guard, leaf);
        Ok(is_made)
    }

    /// One attempt; afterwards the leaf is replaced, or not. Returns whether the change, which
    /// nothing prevents, was made.
    fn try_replace(
        &self,
        guard: &Guard<'_, D>,
        leaf: LeafRef<'_>,
        control: Control,
        change: Option<Change<'_>>,
    ) -> Result<bool> {
        let next_off = leaf.block_off + NEXT_AT;
        let next = self.catalog.read(guard, next_off);
        let Some(previous_off) = self.previous_next(guard, leaf)? else { return Ok(false) };
        if next & REPLACED != 0 {
            self.publish_found(guard, leaf, previous_off, next & !REPLACED);
            return Ok(false);
        }
        // The copy phase.
        let mut copies = self.copy(guard, leaf, control);
        let (comes, goes) = match change {
            Some(Change::Insert(record)) => (Some(record), None),
            Some(Change::Update(found, record)) => (Some(record), Some(found)),
            Some(Change::Delete(found)) => (None, Some(found)),
            None => (None, None),
        };
        let record_block = match comes {
            Some(record) if record.inline.is_none() => Some(self.reserve(guard, record)?),
            _ => None,
        };
        if let Some(found) = goes {
            copies.remove(found.slot);
        }
        if let Some(record) = comes {
            let block_off = record_block.as_ref().map_or(0, |block| block.off());
            let (class, word) = record.inline.unwrap_or((0, RECORD_TAG | block_off));
            let (slice, fingerprint) = (record.probe.slice, record.fingerprint);
            copies.push(Copy { slot: None, slice, class, word, fingerprint });
        }
        let room = self.slots();
        // A delete takes no more room than it frees: it may be the operation that makes room in a
        // full pool.
        let is_delete = matches!(change, Some(Change::Delete(_)));
        let blocks = match copies.len {
            0 if !leaf.low.is_lowest() => 0,
            live if live > room / 2 && !is_delete => 2,
            _ => 1,
        };
        let left_len = if blocks == 2 { copies.len / 2 } else { copies.len };
        let middle = (blocks == 2).then(|| self.divide(guard, &mut copies, left_len));
        let bytes = block_bytes(room);
        let reserve = || guard.reserve(bytes).map_err(Error::storage);
        let mut left_block = if blocks > 0 { Some(reserve()?) } else { None };
        let mut right_block = if blocks > 1 { Some(reserve()?) } else { None };
        // The sync phase.
        self.sync(guard, leaf, control, &mut copies);
        let is_live = |copy: &&Copy| content(copy.word) != Content::Deleted;
        let live = |part: &[Copy]| part.iter().any(|copy| is_live(&copy));
        if blocks > 0 && !leaf.low.is_lowest() && !live(copies.all()) {
            // Deletes have emptied it meanwhile: the next attempt drops it.
            return Ok(false);
        }
        let (left, right) = copies.all().split_at(left_len);
        let mut middle = middle;
        if !(live(left) && live(right)) {
            // Deletes have emptied one: the other is enough.
            (right_block, middle) = (None, None);
        }
        let (left, right) = if middle.is_some() { (left, right) } else { (copies.all(), &[][..]) };
        let build = |part: &[Copy], block: &mut pando_pmem::Reservation<'_, '_, D>, low, next| {
            let mut image = Image::new(room, next);
            let mut fingerprints = [FREE; MAX_SLOTS];
            let mut free: u64 = (1 << room) - 1;
            for copy in part.iter().filter(is_live) {
                let slot = slot_to_take(free, copy.fingerprint, room)
                    .expect("no leaf has more live slots than it has slots");
                free &= !(1 << slot);
                fingerprints[slot] = copy.fingerprint;
                image.fill(slot, copy.slice, copy.class, copy.word);
            }
            if let Some(target) = block.range_mut(0, bytes) {
                image.write_to(target);
            }
            block.flush(0, bytes);
            let control = Control::new(!free & ((1 << room) - 1));
            let leaf = Leaf::new::<D>(block.off(), low, control, &fingerprints);
            self.layers.root.retired.leaf(leaf)
        };
        let new_right = match (&mut right_block, middle) {
            (Some(block), Some(middle)) => Some(build(right, block, middle, next)),
            _ => None,
        };
        let behind = new_right.as_ref().map_or(next, |right| right.block_off);
        let new_left =
            left_block.as_mut().map(|block| build(left, block, leaf.low.clone(), behind));
        // The link phase.
        let old_record = goes.and_then(|found| match content(found.word) {
            Content::Record(off) => Some(off),
            _ => None,
        });
        let is_linked = self.context(guard).publish(|link| {
            match left_block {
                Some(block) => {
                    let entry =
                        link.reserve_entry(previous_off, leaf.block_off, Policy::FreeOne)?;
                    link.activate(entry, block);
                }
                None => {
                    link.add_word(previous_off, leaf.block_off, next)?;
                    link.own_block(leaf.block_off, Policy::FreeOldOnSuccess)?;
                }
            }
            for block in [right_block, record_block].into_iter().flatten() {
                let owned = link.own_block(0, Policy::FreeNewOnFailure)?;
                link.activate(owned, block);
            }
            if let Some(off) = old_record.filter(|_| !mutant!("nbtree-old-record-kept")) {
                link.own_block(off, Policy::FreeOldOnSuccess)?;
            }
            let marked = if mutant!("nbtree-next-unmarked") { next } else { next | REPLACED };
            link.add_word(next_off, next, marked)?;
            Ok(true)
        })?;
        if is_linked {
            leaf.publish::<D>(Replacement::new(new_left, new_right));
        }
        Ok((mutant!("nbtree-goes-along-alone") || is_linked) && change.is_some())
    }

    /// Offset of the word that names the leaf's block; `None` if it must be searched again.
    fn previous_next(&self, guard: &Guard<'_, D>, leaf: LeafRef<'_>) -> Result<Option<u64>> {
        if leaf.low.is_lowest() {
            return Ok(Some(self.root_off));
        }
        let mut room = [0; 8];
        let probe = Probe::new(leaf.low.bytes(&mut room));
        let previous = self.find_leaf(guard, &probe, Side::Before, FREE);
        let off = previous.block_off + NEXT_AT;
        if self.catalog.read(guard, off) & REPLACED != 0 {
            // Its replacement is not published yet.
            self.replace(guard, previous)?;
            return Ok(None);
        }
        Ok(Some(off))
    }

    /// The slots of the bitmap that hold records now.
    fn copy(&self, guard: &Guard<'_, D>, leaf: LeafRef<'_>, control: Control) -> Copies {
        let pool = guard.pool();
        let mut copies = Copies { list: [Copy::default(); MAX_SLOTS + 1], len: 0 };
        for slot in slots(control.bitmap()) {
            let word = self.settled(guard, leaf, slot);
            if content(word) == Content::Deleted {
                continue;
            }
            // Relaxed: stored before the slot was decided.
            let at = |at| pool.word(leaf.block_off + at).load(Ordering::Relaxed);
            copies.push(Copy {
                slot: Some(slot),
                slice: at(key_at(slot)),
                class: class_of(at(classes_at(slot)), slot),
                word: plain(word),
                fingerprint: leaf.fingerprint(slot),
            });
        }
        copies
    }

    /// Moves the `left_len` lowest keys to the front; returns what separates them from the others.
    fn divide(&self, guard: &Guard<'_, D>, copies: &mut Copies, left_len: usize) -> Separator {
        fn key<'all, D: Domain>(
            guard: &'all Guard<'_, D>,
            copy: &Copy,
            room: &'all mut [u8; 8],
        ) -> &'all [u8] {
            match content(copy.word) {
                Content::Record(off) => record::parts(guard, off).0,
                _ => {
                    *room = copy.slice.to_be_bytes();
                    room
                }
            }
        }
        // A call of its own, so that the comparison of slices is inlined into each sort.
        #[cold]
        #[inline(never)]
        fn compare_keys<D: Domain>(guard: &Guard<'_, D>, left: &Copy, right: &Copy) -> Compare {
            let (mut left_room, mut right_room) = ([0; 8], [0; 8]);
            key(guard, left, &mut left_room).cmp(key(guard, right, &mut right_room))
        }
        let compare = |left: &Copy, right: &Copy| match left.slice.cmp(&right.slice) {
            Compare::Equal => compare_keys(guard, left, right),
            apart => apart,
        };
        copies.all_mut().select_nth_unstable_by(left_len, compare);
        let (left, right) = copies.all().split_at(left_len);
        let (mut left_room, mut right_room) = ([0; 8], [0; 8]);
        let lowest = key(guard, &right[0], &mut right_room);
        match content(right[0].word) {
            Content::Record(_) => {
                let highest = left.iter().max_by(|left, right| compare(left, right));
                let highest = highest.map_or(&[][..], |copy| key(guard, copy, &mut left_room));
                Separator::between(highest, lowest)
            }
            _ => Separator::eight(right[0].slice),
        }
    }

    /// Closes every value word of the bitmap, and updates the copies to their final content.
    fn sync(&self, guard: &Guard<'_, D>, leaf: LeafRef<'_>, control: Control, copies: &mut Copies) {
        let pool = guard.pool();
        for copy in copies.all_mut() {
            let Some(slot) = copy.slot else { continue };
            let value = pool.word(leaf.block_off + value_at(slot));
            loop {
                let word = value.load(Ordering::Acquire);
                let is_over = content(word) == Content::Deleted || is_closed(word);
                if mutant!("nbtree-open-while-copied")
                    || is_over
                    || value.compare_exchange(word, closed(word)).is_ok()
                {
                    copy.word = if mutant!("nbtree-no-sync") { copy.word } else { plain(word) };
                    break;
                }
            }
        }
        if D::needs_write_back() {
            // The log of a thread that has not finished must find in this block what the new blocks
            // contain. The fence of the PMwCAS's descriptor completes this before anything is
            // linked.
            let undurable =
                slots(control.bitmap()).filter(|&slot| leaf.may_be_undurable::<D>(slot));
            for slot in undurable {
                if !mutant!("nbtree-log-outlives-word") {
                    pool.word(leaf.block_off + value_at(slot)).flush();
                }
            }
        }
    }

    /// Publishes the new leaves that were linked in place of the leaf, behind the word at
    /// `previous_off` and before the leaf at `next`, if the linking thread has not done so yet.
    fn publish_found(&self, guard: &Guard<'_, D>, leaf: LeafRef<'_>, previous_off: u64, next: u64) {
        let first = self.catalog.read(guard, previous_off);
        if first == leaf.block_off || first & REPLACED != 0 {
            // Not the predecessor any more.
            return;
        }
        if first == next {
            leaf.publish::<D>(Replacement::new(None, None));
            return;
        }
        let second = self.catalog.read(guard, first + NEXT_AT);
        if leaf.is_replaced::<D>() || second & REPLACED != 0 {
            return;
        }
        // Before they are published, no thread changes the new leaves. If they are published
        // already, this has no effect.
        let Some(left) = recovery::survey(guard, first, self.slots()) else { return };
        let right = if second == next {
            None
        } else {
            let Some(right) = recovery::survey(guard, second, self.slots()) else { return };
            let Some(((_, highest), (lowest, _))) = left.ends.zip(right.ends) else { return };
            Some(Box::new(right.into_leaf::<D>(highest.divided_from(&lowest))))
        };
        let left = Box::new(left.into_leaf::<D>(leaf.low.clone()));
        leaf.publish::<D>(Replacement::new(Some(left), right));
    }
}
