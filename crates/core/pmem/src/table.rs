//! The table of participants: the offsets of the slots and their descriptors, and the growth of the
//! table.
//!
//! The first segment, of 128 slots, is part of the layout. Each further segment is a span of
//! chunks, as large as all segments before it, so the table doubles: 256, 512, ... 8,192 slots. A
//! word of the directory (control page) holds the offset of the span, or zero.
//!
//! ```text
//! byte     0                128 * slots                    2,176 * slots
//! segment  slots, 128 each  descriptor partitions, 2,048 each
//! ```
//!
//! # Growth
//!
//! A thread that finds all slots pinned grows the table. It has no slot, so it has no log. It needs
//! none, since the word of the directory decides.
//!
//! | step | other threads | a crash leaves |
//! | --- | --- | --- |
//! | claims a span (chunk table, in this generation only) | | free chunks |
//! | writes zeros, durable, with the claims and the pool's size | | the same |
//! | word of the directory: 0 to the offset, by CAS | find the segment; a second growing thread gives its span back | either |
//! | word of the directory, durable | do the same before they use the segment | the segment |
//! | marks the chunks as allocated, durable | the same | the segment; recovery marks the chunks |
//! | count of claimed slots: beyond the earlier segments, durable | | the segment, with slots to recover |
//!
//! So a crash leaves a whole segment or none. The table never shrinks.
//!
//! Recovery uses a word of the directory only if the chunks there can be those of a segment:
//! allocated as one span of the right length, or free, or claimed by an earlier generation.
//! Otherwise the table ends before that segment, and a reference to a descriptor after it is
//! damaged. `check` compares the directory with the allocated spans.

use std::fmt::Display;
use std::sync::atomic::Ordering;

use crate::alloc::{Block, Chunk};
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::layout::{
    CHUNK_BYTES, DESCRIPTORS_OFF, PARTICIPANT_BYTES, PARTICIPANTS_HIGH_OFF, PARTICIPANTS_OFF,
    PARTITION_BYTES, SEGMENT_COUNT, SEGMENTS_OFF, slot_place,
};
use crate::mutant;
use crate::pool::Pool;
use crate::slots::ReserveAccess;
#[cfg(feature = "testing")]
use crate::testing::refusal;
use crate::word::Word;

fn segment_bytes(slots: usize) -> u64 {
    slots as u64 * (PARTICIPANT_BYTES + PARTITION_BYTES)
}

impl<D: Domain> Pool<D> {
    fn directory_word(&self, segment: usize) -> Word<'_, D> {
        self.word(SEGMENTS_OFF + segment as u64 * 8)
    }

    /// The offset of a segment after the first, if the table has it. The word of the directory is
    /// durable then.
    #[inline]
    fn segment_off(&self, segment: usize) -> Option<u64> {
        // Acquire: the thread that stored it has made the word of the directory durable.
        match self.segments[segment].load(Ordering::Acquire) {
            0 => self.find_segment(segment),
            off => Some(off),
        }
    }

    #[cold]
    fn find_segment(&self, segment: usize) -> Option<u64> {
        let word = self.directory_word(segment);
        // Acquire: pairs with the CAS of the thread that has grown the table.
        let off = word.load(Ordering::Acquire);
        if off == 0 || !self.may_be_segment(segment, off) {
            return None;
        }
        word.flush();
        D::fence();
        self.mark_segment(segment, off);
        // Release: see `segment_off`.
        self.segments[segment].store(off, Ordering::Release);
        Some(off)
    }

    fn chunks_of_segment(&self, segment: usize) -> u64 {
        segment_bytes(self.first_slots() << segment).div_ceil(CHUNK_BYTES)
    }

    /// Whether the chunks at `off` can be those of a segment.
    fn may_be_segment(&self, segment: usize, off: u64) -> bool {
        let chunks = self.chunks_of_segment(segment);
        let Some(first) = self.geometry().chunk_of(off) else { return false };
        let is_there = self.geometry().chunk_off(first) == off && first + chunks <= self.frontier();
        is_there
            && (first..first + chunks).all(|index| match self.chunk(index) {
                Chunk::Free | Chunk::Claimed { .. } => true,
                Chunk::Head { chunks: found } => index == first && found == chunks,
                Chunk::Body => index > first,
                Chunk::Slab { .. } | Chunk::Hole | Chunk::HeldHole => false,
            })
    }

    /// Marks the chunks of a segment as allocated, durably. Any thread may do this, many times.
    fn mark_segment(&self, segment: usize, off: u64) {
        let chunks = self.chunks_of_segment(segment);
        let Some(first) = self.geometry().chunk_of(off) else { return };
        self.mark_span(first, chunks);
        D::fence();
    }

    /// Finds the segments that earlier generations have added.
    pub(crate) fn recover_segments(&self) {
        (0..SEGMENT_COUNT).take_while(|&segment| self.segment_off(segment).is_some()).count();
    }

    /// The spans of the table's further segments, as the directory names them.
    pub fn segment_spans(&self) -> Vec<Block> {
        let span = |segment| {
            let off = self.directory_word(segment).load(Ordering::Acquire);
            Block { off, bytes: self.chunks_of_segment(segment) * CHUNK_BYTES }
        };
        (0..SEGMENT_COUNT).map(span).filter(|span| span.off != 0).collect()
    }

    fn segment_count(&self) -> usize {
        (0..SEGMENT_COUNT).take_while(|&segment| self.segment_off(segment).is_some()).count()
    }

    /// The number of slots that the table has now.
    pub fn participant_slots(&self) -> usize {
        self.first_slots() << self.segment_count()
    }

    /// The offset of `slot`; the table must have it.
    #[inline]
    pub(crate) fn slot_off(&self, slot: usize) -> u64 {
        if slot < self.first_slots() {
            return PARTICIPANTS_OFF + slot as u64 * PARTICIPANT_BYTES;
        }
        let place = slot_place(slot, self.first_slots());
        let off = self.segment_off(place.segment).expect("the segment of a slot exists");
        off + place.index as u64 * PARTICIPANT_BYTES
    }

    /// The offset of the descriptors of `slot`, if the table has it.
    #[inline(always)]
    pub fn partition_off(&self, slot: usize) -> Option<u64> {
        if slot < self.first_slots() {
            return Some(DESCRIPTORS_OFF + slot as u64 * PARTITION_BYTES);
        }
        self.far_partition_off(slot)
    }

    #[cold]
    fn far_partition_off(&self, slot: usize) -> Option<u64> {
        let place = slot_place(slot, self.first_slots());
        if place.index >= place.slots {
            return None;
        }
        let off = self.segment_off(place.segment)?;
        let partitions = off + place.slots as u64 * PARTICIPANT_BYTES;
        Some(partitions + place.index as u64 * PARTITION_BYTES)
    }

    /// The offsets of the slots that may have been used since the last recovery.
    pub(crate) fn used_slots(&self) -> impl Iterator<Item = u64> {
        let (first, high) = (self.first_slots(), self.participants_high());
        let of = move |from: usize, slots: usize, off: u64| {
            let used = high.saturating_sub(from).min(slots) as u64;
            (0..used).map(move |index| off + index * PARTICIPANT_BYTES)
        };
        let more = (0..SEGMENT_COUNT)
            .map(move |segment| first << segment)
            .enumerate()
            .take_while(move |&(_, slots)| slots < high)
            .filter_map(|(segment, slots)| Some((slots, self.segment_off(segment)?)))
            .flat_map(move |(slots, off)| of(slots, slots, off));
        of(0, first, PARTICIPANTS_OFF).chain(more)
    }

    /// Adds a segment to a table of `seen` slots, unless another thread has added one.
    #[cold]
    pub(crate) fn grow_table(&self, seen: usize) -> Result<()> {
        let segment = self.segment_count();
        if self.first_slots() << segment > seen {
            return Ok(());
        }
        let too_many =
            |why: &dyn Display| Error::NoParticipantSlot { threads: seen, why: why.to_string() };
        if segment == SEGMENT_COUNT {
            return Err(too_many(&"it has its largest size"));
        }
        #[cfg(feature = "testing")]
        if refusal::is_refused(refusal::Resource::Block) {
            return Err(too_many(&"a test refuses room"));
        }
        let word = self.directory_word(segment);
        let chunks = self.chunks_of_segment(segment);
        let mut no_room = None;
        let first = self
            .claim_available(chunks, ReserveAccess::Without, self.lasting_tag(), &mut no_room)
            .map_err(|error| too_many(no_room.as_ref().unwrap_or(&error)))?;
        let off = self.geometry().chunk_off(first);
        let bytes = segment_bytes(seen);
        // The chunks are claimed, so only this thread reaches them.
        if let Some(mut zeroed) = self.exclusive(off, bytes) {
            zeroed.zero(0, bytes as usize);
        }
        if !mutant!("segment-published-undurably") {
            self.flush(off, bytes);
        }
        // So a recovery that finds the word of the directory finds no hole among the chunks.
        (first..first + chunks).for_each(|index| self.chunk_word(index).flush());
        self.flush_extent();
        D::fence();
        if word.compare_exchange(0, off).is_err() {
            self.release_chunks(off);
            // Another thread was faster, or the word is damaged.
            return match self.segment_off(segment) {
                Some(_) => Ok(()),
                None => Err(too_many(&"its directory is damaged")),
            };
        }
        self.find_segment(segment);
        Ok(())
    }

    /// Raises the count of claimed slots to `to`, durably.
    pub(crate) fn raise_high(&self, to: u64) {
        let high = self.word(PARTICIPANTS_HIGH_OFF);
        let mut found = high.load(Ordering::Acquire);
        while found < to {
            match high.compare_exchange(found, to) {
                Ok(_) => break,
                Err(other) => found = other,
            }
        }
        self.secure_participants_high();
    }

    /// Makes [`participants_high`](Self::participants_high) durable, so that a recovery reads every
    /// slot below it. A thread must call this before it writes in a participant's part of the pool.
    /// That holds if it has prepared the slot, if it takes a slot that another thread has prepared,
    /// and if it writes in the part of another participant. The thread that prepares it may have
    /// stalled before its own call.
    pub fn secure_participants_high(&self) {
        self.word(PARTICIPANTS_HIGH_OFF).flush();
        D::fence();
    }

    /// How many slots, from the first, may have been used since the last recovery.
    pub fn participants_high(&self) -> usize {
        let high = self.word(PARTICIPANTS_HIGH_OFF).load(Ordering::Acquire) as usize;
        // The usual case does not read the directory.
        if high <= self.first_slots() { high } else { high.min(self.participant_slots()) }
    }
}
