//! The mapping table: which PIDs exist, and which are free.
//!
//! The table has no directory. A PID is the offset of its mapping word. So a page is found by one
//! load, at any size, and a pool opens without a read of the table. The table grows by a segment of
//! 504 words at a time, which one PMwCAS puts before the others. Segments stay until the map is
//! dropped.
//!
//! # The life of a PID
//!
//! | word | the PID is |
//! | --- | --- |
//! | zero | free, and never was used |
//! | a link | that page's |
//! | removed in an earlier generation | free: no thread can know it any more |
//! | removed in this one, epoch not known | waiting; a thread that searches a free PID records the epoch |
//! | removed in this one in epoch e | free when no thread is pinned since before e (three epochs later) |
//!
//! The word itself decides: the PMwCAS that publishes a page expects the word as it was read. So a
//! PID is allocated together with its page, or not at all, and removed together with the page.
//! There is no list of free PIDs that a crash could lose, and nothing to recover. A search for a
//! free PID begins at two cursors: in the newest segment, and then, for a bounded number of words,
//! in a round through all segments. The cursors are hints. After a crash any of their values is
//! valid, and a damaged one is reset. But a word is a PID only if it belongs to the table: each
//! segment names its tree, and a segment that does not is an error, before anything is written
//! there.
//!
//! Why no PID is reused too early: a thread that still knows it has read a word that led to the
//! page before its removal, and is pinned since; the recorded epoch is read after the removal. Why
//! no swap mistakes a later removal for an earlier one: the word has its epoch, which does not rise
//! by three while a thread that has read the word is pinned.

use std::sync::atomic::Ordering;

use pando_index::Result;
use pando_pmem::{Domain, mutant};
use pando_pmwcas::Policy;
use pando_tree::blocks::Reserved;
use pando_tree::context::Context;

use crate::context::{Damaged, Pid};
use crate::layout::{
    ANCHOR_BYTES, BEGUN_AT, FRESH_AT, Link, NEXT_SEGMENT_AT, NUMBER_AT, OFF_MASK, OWNER_AT,
    ROOT_AT, SEGMENT_BYTES, SEGMENTS_AT, SWEEP_AT, WORDS_AT,
};
use crate::residence::Residence;
use crate::tree::BwTree;

/// Words that one search for a free PID reads, beyond the newest segment.
const SWEPT: usize = 64;
/// How often another PID is searched before a segment is added.
const ATTEMPTS: usize = 2;
const INDEX_SHIFT: u32 = 48;
const FIRST_INDEX: u64 = WORDS_AT / 8;

/// A PID that is free as long as its word holds `word`.
#[derive(Clone, Copy, Debug)]
pub struct FreePid {
    pub pid: Pid,
    pub word: u64,
}

/// A place in the table: a segment or the anchor, and a word in it.
#[derive(Clone, Copy, Debug)]
struct Place {
    segment: u64,
    index: u64,
}

impl Place {
    fn decode(word: u64, anchor: u64) -> Self {
        match word {
            0 => Self { segment: anchor, index: FIRST_INDEX },
            _ => Self { segment: word & OFF_MASK, index: word >> INDEX_SHIFT },
        }
    }

    fn encode(self) -> u64 {
        self.segment | self.index << INDEX_SHIFT
    }

    /// Whether it is a word of the table, or the place behind the words of a segment.
    fn is_valid<D: Domain>(self, context: Context<'_, D>, anchor: u64) -> bool {
        (FIRST_INDEX..=words_in(self.segment, anchor)).contains(&self.index)
            && (self.segment == anchor || check_segment(context, self.segment, anchor).is_ok())
    }
}

/// The anchor of an empty tree.
pub(crate) fn first_anchor<'op, D: Domain>(context: Context<'op, D>) -> Reserved<'op, D> {
    let mut block = context.guard.reserve(ANCHOR_BYTES)?;
    block.zero(0, ANCHOR_BYTES);
    block.flush(0, ANCHOR_BYTES);
    Ok(block)
}

/// The word that says whether the tree with this root PID ever had a record.
pub(crate) fn begun_off(root: Pid) -> u64 {
    root - ROOT_AT + BEGUN_AT
}

/// Refuses a block that is no segment of the table.
pub(crate) fn check_segment<D: Domain>(
    context: Context<'_, D>,
    segment: u64,
    anchor: u64,
) -> Result<(), Damaged> {
    let block = context.pool().active_block(segment);
    let is_segment = block.is_some_and(|bytes| bytes >= SEGMENT_BYTES)
        && match context.fixed(segment + OWNER_AT) {
            // Segments from before this word existed.
            0 => is_listed(context, segment, anchor),
            owner => owner == anchor,
        };
    if is_segment { Ok(()) } else { Err(Damaged::at(segment)) }
}

/// Whether the table's list of segments has this one.
#[cold]
fn is_listed<D: Domain>(context: Context<'_, D>, segment: u64, anchor: u64) -> bool {
    let mut at = anchor + SEGMENTS_AT;
    // At most as many as the pool has room for: a damaged list may be a cycle.
    for _ in 0..context.pool().size_bytes() / SEGMENT_BYTES {
        let found = context.read(at);
        if found == segment
            || context.pool().words_within(found, SEGMENT_BYTES / 8).is_none()
            || found == 0
        {
            return found == segment;
        }
        at = found + NEXT_SEGMENT_AT;
    }
    false
}

/// Whether the cursor at `off` points to a word of the table, or behind the words of a segment.
pub(crate) fn is_cursor_valid<D: Domain>(context: Context<'_, D>, off: u64, anchor: u64) -> bool {
    // Acquire: pairs with the swap that set the cursor, after the segment was published.
    let place = Place::decode(context.pool().word(off).load(Ordering::Acquire), anchor);
    place.is_valid(context, anchor)
}

/// The segment behind `segment` in the table; behind the last one, the anchor.
fn next_segment<D: Domain>(
    context: Context<'_, D>,
    anchor: u64,
    segment: u64,
) -> Result<u64, Damaged> {
    let at = if segment == anchor { anchor + SEGMENTS_AT } else { segment + NEXT_SEGMENT_AT };
    match context.read(at) {
        0 => Ok(anchor),
        next => check_segment(context, next, anchor).map(|()| next),
    }
}

impl<D: Domain, S: Residence> BwTree<D, S> {
    /// A PID for a new page.
    pub(crate) fn free_pid(&self, context: Context<'_, D>) -> Result<FreePid> {
        loop {
            if let Some(free) = self.fresh_pid(context) {
                return Ok(free);
            }
            if let Some(free) = self.swept_pid(context)? {
                return Ok(free);
            }
            self.add_segment(context)?;
        }
    }

    /// A PID for a new page that is not `first`, which a search would find again.
    pub(crate) fn other_free_pid(&self, context: Context<'_, D>, first: Pid) -> Result<FreePid> {
        for _ in 0..ATTEMPTS {
            let free = self.free_pid(context)?;
            if free.pid != first {
                return Ok(free);
            }
        }
        // It is the only free one.
        self.add_segment(context)?;
        loop {
            let free = self.free_pid(context)?;
            if free.pid != first {
                return Ok(free);
            }
        }
    }

    /// Gives back a PID that was not used, if no other was taken from the newest segment since.
    pub(crate) fn give_back_pid(&self, context: Context<'_, D>, free: FreePid) {
        let cursor = context.pool().word(self.anchor(context) + FRESH_AT);
        let found = cursor.load(Ordering::Acquire);
        let place = Place::decode(found, self.anchor(context));
        let before = Place { index: place.index.saturating_sub(1), ..place };
        if before.index >= FIRST_INDEX && before.segment + before.index * 8 == free.pid {
            // If this fails, the sweep finds it.
            let _ = cursor.compare_exchange(found, before.encode());
        }
    }

    /// A free PID of the newest segment.
    fn fresh_pid(&self, context: Context<'_, D>) -> Option<FreePid> {
        let anchor = self.anchor(context);
        let cursor = context.pool().word(anchor + FRESH_AT);
        loop {
            // Acquire: pairs with the swap that set the cursor, after the segment was published.
            let found = cursor.load(Ordering::Acquire);
            let place = Place::decode(found, anchor);
            // A damaged cursor is replaced with the next segment.
            if place.index >= words_in(place.segment, anchor) || !place.is_valid(context, anchor) {
                return None;
            }
            let next = Place { index: place.index + 1, ..place };
            if cursor.compare_exchange(found, next.encode()).is_ok()
                && let Some(free) = free_at::<D, S>(context, place)
            {
                return Some(free);
            }
        }
    }

    /// A free PID of any segment.
    fn swept_pid(&self, context: Context<'_, D>) -> Result<Option<FreePid>, Damaged> {
        let anchor = self.anchor(context);
        let cursor = context.pool().word(anchor + SWEEP_AT);
        for _ in 0..SWEPT {
            let found = cursor.load(Ordering::Acquire);
            let mut place = Place::decode(found, anchor);
            if !place.is_valid(context, anchor) {
                place = Place { segment: anchor, index: FIRST_INDEX };
            } else if place.index >= words_in(place.segment, anchor) {
                let segment = next_segment(context, anchor, place.segment)?;
                place = Place { segment, index: FIRST_INDEX };
            }
            let next = Place { index: place.index + 1, ..place };
            if cursor.compare_exchange(found, next.encode()).is_ok()
                && let Some(free) = free_at::<D, S>(context, place)
            {
                return Ok(Some(free));
            }
        }
        Ok(None)
    }

    pub(crate) fn add_segment(&self, context: Context<'_, D>) -> Result<()> {
        let anchor = self.anchor(context);
        let newest = context.read(anchor + SEGMENTS_AT);
        self.check_newest(context, newest)?;
        let mut block = context.reserve(SEGMENT_BYTES)?;
        block.zero(0, SEGMENT_BYTES);
        block.write_u64(NEXT_SEGMENT_AT, newest);
        block.write_u64(OWNER_AT, anchor);
        if S::MAY_BE_ABSENT && newest != 0 {
            block.write_u64(NUMBER_AT, context.fixed(newest + NUMBER_AT) + 1);
        }
        block.flush(0, SEGMENT_BYTES);
        let segment = block.off();
        let is_done = context.publish(|operation| {
            let (word, policy) = (anchor + SEGMENTS_AT, Policy::FreeNewOnFailure);
            let entry = operation.reserve_entry(word, newest, policy)?;
            operation.activate(entry, block);
            Ok(true)
        })?;
        if is_done {
            let cursor = context.pool().word(anchor + FRESH_AT);
            let place = Place { segment, index: FIRST_INDEX };
            // If another thread has set it meanwhile, the sweep finds the words of this segment.
            let _ = cursor.compare_exchange(cursor.load(Ordering::Acquire), place.encode());
        }
        Ok(())
    }
}

impl<D: Domain, S> BwTree<D, S> {
    /// Refuses to put a segment before `newest` if that is no segment: those behind it would be
    /// lost.
    fn check_newest(&self, context: Context<'_, D>, newest: u64) -> Result<(), Damaged> {
        let anchor = self.anchor(context);
        if newest != 0 {
            return check_segment(context, newest, anchor);
        }
        for at in [FRESH_AT, SWEEP_AT] {
            let cursor = context.pool().word(anchor + at).load(Ordering::Acquire);
            let segment = Place::decode(cursor, anchor).segment;
            let is_lost = segment != anchor
                && check_segment(context, segment, anchor).is_ok()
                // A segment may have been added since.
                && context.read(anchor + SEGMENTS_AT) == 0;
            if is_lost {
                return Err(Damaged::at(anchor + SEGMENTS_AT));
            }
        }
        Ok(())
    }
}

fn words_in(segment: u64, anchor: u64) -> u64 {
    if segment == anchor { ANCHOR_BYTES / 8 } else { SEGMENT_BYTES / 8 }
}

/// The mapping words of a segment or the anchor.
pub(crate) fn words_of(segment: u64, anchor: u64) -> impl Iterator<Item = Pid> {
    (FIRST_INDEX..words_in(segment, anchor)).map(move |index| segment + index * 8)
}

/// The PID of the word at `place`, if it is free.
fn free_at<D: Domain, S: Residence>(context: Context<'_, D>, place: Place) -> Option<FreePid> {
    let pid = place.segment + place.index * 8;
    let link = Link::at(context, pid);
    if link == Link::EMPTY {
        return Some(FreePid { pid, word: 0 });
    }
    let is_absent = S::MAY_BE_ABSENT && link.is_absent();
    if !link.is_removed() || is_absent || link.0 == pando_pmwcas::MAX_VALUE {
        return None;
    }
    let generation = context.pool().generation();
    match link.removal_epoch(generation) {
        Some(0) => {
            stamp(context, pid, link);
            None
        }
        Some(epoch) if !mutant!("bw-pid-at-once") && !context.guard.is_ripe(epoch) => None,
        _ => Some(FreePid { pid, word: link.0 }),
    }
}

/// Records the epoch: the page was removed no later.
pub(crate) fn stamp<D: Domain>(context: Context<'_, D>, pid: Pid, link: Link) {
    let stamped = Link::removed(context.pool().generation(), context.guard.unlink_epoch());
    // Not durable: after a crash the epoch does not matter.
    let _ = context.pmwcas.compare_exchange_undurable(context.guard, pid, link.0, stamped.0);
}

#[cfg(test)]
mod tests {
    use pando_pmem::Process;
    use pando_tree::testing::Fixture;

    use super::*;
    use crate::{BwTrees, Options};

    /// The second PID for a root's split differs from the first, also if the first is the only free
    /// one, and if the sweep finds it again.
    #[test]
    fn another_free_pid_is_another() {
        let tree = Fixture::<Process, BwTrees>::anonymous(Options::default()).index;
        let guard = tree.pin().expect("pins");
        let context = tree.context(&guard);
        let anchor = tree.anchor(context);
        let taken = Link::base(anchor, false).0;
        let words: Vec<Pid> = words_of(anchor, anchor).collect();
        let word = |pid| context.pool().word(pid);
        words.iter().for_each(|&pid| word(pid).store(taken, Ordering::Release));
        let only = words[words.len() / 2];
        word(only).store(0, Ordering::Release);
        // The cursor of the newest segment is at its end, so the sweep, which goes in rounds, finds
        // everything.
        let end = Place { segment: anchor, index: words_in(anchor, anchor) };
        word(anchor + FRESH_AT).store(end.encode(), Ordering::Release);
        let first = tree.free_pid(context).expect("a PID");
        assert_eq!((first.pid, first.word), (only, 0));
        let newest = || context.read(anchor + SEGMENTS_AT);
        assert_eq!(newest(), 0);
        let other = tree.other_free_pid(context, first.pid).expect("a PID");
        assert_ne!(other.pid, first.pid);
        let segment = newest();
        assert!(words_of(segment, anchor).any(|pid| pid == other.pid), "it is in a new segment");
        check_segment(context, segment, anchor).expect("a segment");
        // With more than one free PID no further segment is made.
        for _ in 0..100 {
            let first = tree.free_pid(context).expect("a PID");
            assert_ne!(tree.other_free_pid(context, first.pid).expect("a PID").pid, first.pid);
        }
        assert_eq!(newest(), segment);
        word(anchor + SEGMENTS_AT).store(0, Ordering::Release);
        check_segment(context, only & !63, anchor).expect_err("no segment is there");
    }
}
