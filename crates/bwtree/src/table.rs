//! The mapping table: which PIDs there are, and which are free.
//!
//! The table has no directory. A PID is the offset of its mapping word, so a page is found by one load, at
//! any size, and a pool opens without looking at the table. It grows by a segment of 504 words at a time,
//! which one PMwCAS puts before the others; segments stay until the map is dropped.
//!
//! # A PID's life
//!
//! | word | the PID is |
//! | --- | --- |
//! | zero | free, and never was used |
//! | a link | that page's |
//! | removed in an earlier incarnation | free: nobody is left who could know it |
//! | removed in this one, epoch not known | waiting; whoever looks for a free PID writes down the epoch |
//! | removed in this one in epoch e | free when nobody is pinned since before e (three epochs later) |
//!
//! The word itself decides: the PMwCAS that makes a page expects the word as it was found, so a PID is given
//! out together with its page, or not at all, and removed together with the page. There is no list of free
//! PIDs that a crash could lose, and nothing to recover. A free PID is looked for where two cursors
//! point: in the newest segment, and then, for a bounded number of words, round all of them. The cursors are hints;
//! whatever a crash leaves of them will do.
//!
//! Why no PID returns too early: a thread that still knows it has read a word that led to the page before
//! that was removed, and is pinned since; the epoch that is written down is read after the removal. Why no
//! swap mistakes a later removal for an earlier one: the word has its epoch, and that does not rise by three while
//! whoever has read it is pinned.

use std::sync::atomic::Ordering;

use pando_index::Error;
use pando_pmem::{Domain, Guard, Reservation};
use pando_pmwcas::Policy;

use crate::context::{Context, Pid};
use crate::layout::{
    ANCHOR_BYTES, FRESH_AT, Link, NEXT_SEGMENT_AT, OFF_MASK, SEGMENT_BYTES, SEGMENTS_AT, SWEEP_AT,
    WORDS_AT,
};
use crate::tree::BwTree;

/// Words that one search for a free PID looks at, beyond the newest segment.
const SWEPT: usize = 64;
/// How often another PID is looked for before there is one segment more.
const ATTEMPTS: usize = 2;
const INDEX_SHIFT: u32 = 48;
const FIRST_INDEX: u64 = WORDS_AT / 8;

/// A PID that is free as long as its word holds this.
#[derive(Clone, Copy, Debug)]
pub struct FreePid {
    pub pid: Pid,
    pub word: u64,
}

/// A place in the table: a segment, or the anchor, and a word there.
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
}

/// The anchor of an empty tree.
pub(crate) fn first_anchor<'op, 'pool, D: Domain>(
    guard: &'op Guard<'pool, D>,
) -> pando_pmem::Result<Reservation<'op, 'pool, D>> {
    let mut block = guard.reserve(ANCHOR_BYTES)?;
    block.zero(0, ANCHOR_BYTES);
    block.flush(0, ANCHOR_BYTES);
    Ok(block)
}

/// The segment behind `segment` in the table; the last one's is the anchor.
fn next_segment<D: Domain>(context: Context<'_, '_, D>, anchor: u64, segment: u64) -> u64 {
    let at = if segment == anchor { anchor + SEGMENTS_AT } else { segment + NEXT_SEGMENT_AT };
    match context.read(at) {
        0 => anchor,
        next => next,
    }
}

impl<D: Domain, S> BwTree<D, S> {
    /// A PID for a new page.
    pub(crate) fn free_pid(&self, context: Context<'_, '_, D>) -> Result<FreePid, Error> {
        loop {
            if let Some(free) = self.fresh_pid(context) {
                return Ok(free);
            }
            if let Some(free) = self.swept_pid(context) {
                return Ok(free);
            }
            self.add_segment(context)?;
        }
    }

    /// A PID for a new page that is not `first`, which nothing keeps from being found again.
    pub(crate) fn other_free_pid(
        &self,
        context: Context<'_, '_, D>,
        first: Pid,
    ) -> Result<FreePid, Error> {
        for _ in 0..ATTEMPTS {
            let free = self.free_pid(context)?;
            if free.pid != first {
                return Ok(free);
            }
        }
        // It is the only one that is left.
        self.add_segment(context)?;
        loop {
            let free = self.free_pid(context)?;
            if free.pid != first {
                return Ok(free);
            }
        }
    }

    /// One of the newest segment.
    fn fresh_pid(&self, context: Context<'_, '_, D>) -> Option<FreePid> {
        let anchor = self.anchor(context);
        let cursor = context.pool().word(anchor + FRESH_AT);
        loop {
            // Acquire: with the swap that put the cursor there, after the segment was.
            let found = cursor.load(Ordering::Acquire);
            let place = Place::decode(found, anchor);
            if place.index >= words(place.segment, anchor) {
                return None;
            }
            let next = Place { index: place.index + 1, ..place };
            if cursor.compare_exchange(found, next.encode()).is_ok()
                && let Some(free) = free_at(context, place)
            {
                return Some(free);
            }
        }
    }

    /// One of any segment.
    fn swept_pid(&self, context: Context<'_, '_, D>) -> Option<FreePid> {
        let anchor = self.anchor(context);
        let cursor = context.pool().word(anchor + SWEEP_AT);
        for _ in 0..SWEPT {
            let found = cursor.load(Ordering::Acquire);
            let mut place = Place::decode(found, anchor);
            if place.index >= words(place.segment, anchor) {
                let segment = next_segment(context, anchor, place.segment);
                place = Place { segment, index: FIRST_INDEX };
            }
            let next = Place { index: place.index + 1, ..place };
            if cursor.compare_exchange(found, next.encode()).is_ok()
                && let Some(free) = free_at(context, place)
            {
                return Some(free);
            }
        }
        None
    }

    fn add_segment(&self, context: Context<'_, '_, D>) -> Result<(), Error> {
        let anchor = self.anchor(context);
        let newest = context.read(anchor + SEGMENTS_AT);
        let mut block = context.guard.reserve(SEGMENT_BYTES).map_err(Error::storage)?;
        block.zero(0, SEGMENT_BYTES);
        block.write_u64(NEXT_SEGMENT_AT, newest);
        block.flush(0, SEGMENT_BYTES);
        let mut operation = context.pmwcas.allocate(context.guard).map_err(Error::storage)?;
        let entry = operation
            .reserve_entry(anchor + SEGMENTS_AT, newest, Policy::FreeNewOnFailure)
            .map_err(Error::storage)?;
        let segment = operation.activate(entry, block);
        if operation.execute() {
            let cursor = context.pool().word(anchor + FRESH_AT);
            let place = Place { segment, index: FIRST_INDEX };
            // If another thread's is there by now, the sweep finds this one's words.
            let _ = cursor.compare_exchange(cursor.load(Ordering::Acquire), place.encode());
        }
        Ok(())
    }
}

fn words(segment: u64, anchor: u64) -> u64 {
    if segment == anchor { ANCHOR_BYTES / 8 } else { SEGMENT_BYTES / 8 }
}

/// The mapping words of a segment or the anchor.
pub(crate) fn words_of(segment: u64, anchor: u64) -> impl Iterator<Item = Pid> {
    (FIRST_INDEX..words(segment, anchor)).map(move |index| segment + index * 8)
}

/// The PID of the word there, if it is free.
fn free_at<D: Domain>(context: Context<'_, '_, D>, place: Place) -> Option<FreePid> {
    let pid = place.segment + place.index * 8;
    let link = context.link(pid);
    if link == Link::EMPTY {
        return Some(FreePid { pid, word: 0 });
    }
    if !link.is_removed() || link.0 == pando_pmwcas::MAX_VALUE {
        return None;
    }
    let incarnation = context.pool().incarnation();
    match link.removal_epoch(incarnation) {
        Some(0) => {
            stamp(context, pid, link);
            None
        }
        Some(epoch) if !context.guard.is_ripe(epoch) => None,
        _ => Some(FreePid { pid, word: link.0 }),
    }
}

/// Writes down when the page was removed at the latest.
pub(crate) fn stamp<D: Domain>(context: Context<'_, '_, D>, pid: Pid, link: Link) {
    let stamped = Link::removed(context.pool().incarnation(), context.guard.unlink_epoch());
    // Need not be durable: after a crash it does not matter.
    let _ = context.pmwcas.compare_exchange_undurable(context.guard, pid, link.0, stamped.0);
}
