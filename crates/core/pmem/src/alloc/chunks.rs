//! The chunk table: one word for each chunk of 64 KiB, which says how the chunk is used.
//!
//! ```text
//! bits  63..40       39..32  31..24   23..0
//!       generation   stamp   kind     argument
//! ```
//!
//! | kind | argument | after a crash |
//! | --- | --- | --- |
//! | 0 free | 0 | free |
//! | 1 claimed | chunks of the span in its first, else 0 | free, unless of this generation |
//! | 2 slab | size class | slab |
//! | 3 head of an active span | chunks of the span | active |
//! | 4 body of an active span | 0 | active |
//! | 5 hole: free, and the file may have no room there (`holes.rs`) | 0; with a generation: a hole that a thread holds in that generation | hole |
//!
//! A claim has the lower 24 bits of the generation, and the stamp of the newest census
//! (`census.rs`; zero in a pool that one process has). After 2^24 openings, a claim of an earlier
//! generation may count as one of this generation. Then the chunk is free only at the next opening.
//!
//! A span is claimed chunk by chunk with CASes (`claim.rs`). Activation changes first the bodies,
//! then the head. After a crash, the log that names the span settles which of these words became
//! durable. It uses the head's argument, which is durable before the log is (`reserve_span`).

use std::sync::atomic::Ordering;

use super::sizes::CLASS_COUNT;
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::error::Result;
use crate::layout::{CHUNK_BYTES, FRONTIER_OFF};
use crate::mutant;
use crate::pool::Pool;
use crate::slots::ReserveAccess;
use crate::superblock::SIZE_OFF;
use crate::word::Word;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    Free,
    /// Free, and the file may have no room for it.
    Hole,
    /// A hole that a thread holds.
    HeldHole,
    Claimed {
        chunks: u64,
    },
    Slab {
        class: usize,
    },
    Head {
        chunks: u64,
    },
    Body,
}

/// The reserve, in chunks. It is for operations that give room back: a merge of two nodes needs a
/// block for the new node before it frees the old ones.
pub(crate) const RESERVE_CHUNKS: u64 = 2;
/// Further chunks, which are for operations that undo others; fewer in a small pool.
const UNDO_CHUNKS: u64 = 16;

impl<D: Domain> Pool<D> {
    /// How many of the last chunks a thread with this access leaves alone.
    pub(crate) fn spare_chunks(&self, access: ReserveAccess) -> u64 {
        let max_chunks = self.geometry().max_chunks;
        match access {
            ReserveAccess::Any | ReserveAccess::Undo | ReserveAccess::With => 0,
            ReserveAccess::Without => RESERVE_CHUNKS,
            ReserveAccess::Revocable => RESERVE_CHUNKS + UNDO_CHUNKS.min(max_chunks / 8),
        }
    }
}

const ARGUMENT_MASK: u64 = (1 << 24) - 1;

/// The word of a chunk; `tag` is that of a claim ([`tag_of`]).
pub(crate) fn encode(chunk: Chunk, tag: u32) -> u64 {
    let tag = u64::from(tag) << 32;
    match chunk {
        Chunk::Free => 0,
        Chunk::Claimed { chunks } => tag | 1 << 24 | chunks,
        Chunk::Slab { class } => 2 << 24 | class as u64,
        Chunk::Head { chunks } => 3 << 24 | chunks,
        Chunk::Body => 4 << 24,
        Chunk::Hole => HOLE,
        Chunk::HeldHole => tag | HOLE,
    }
}

const HOLE: u64 = 5 << 24;

/// Whether `word` says, in a later generation, that its chunk may have no room.
pub(crate) fn is_hole_word(word: u64) -> bool {
    word & u64::from(u32::MAX) == HOLE
}

/// The upper half of a word that is void in other generations.
pub(crate) fn tag_of(generation: u32, stamp: u8) -> u32 {
    generation << 8 | u32::from(stamp)
}

/// The stamp of a claim that no census frees: of a thread without a pin, which no epoch waits for.
pub(crate) const LASTING_STAMP: u8 = u8::MAX;

/// Whether the upper half of `word` is of that generation.
pub(crate) fn is_of(word: u64, generation: u32) -> bool {
    (word >> 40) as u32 == generation & 0xFF_FFFF
}

/// The stamp in the upper half of `word`.
pub(crate) fn stamp_of(word: u64) -> u8 {
    (word >> 32) as u8
}

/// Decodes `word` in `generation`; `None` for a word that no thread can have written.
#[inline]
pub(crate) fn decode(word: u64, generation: u32) -> Option<Chunk> {
    let argument = word & ARGUMENT_MASK;
    let tag = (word >> 32) as u32;
    match (word >> 24) & 0xFF {
        0 if word == 0 => Some(Chunk::Free),
        1 if !is_of(word, generation) => Some(Chunk::Free),
        1 => Some(Chunk::Claimed { chunks: argument }),
        2 if tag == 0 && argument < CLASS_COUNT as u64 => {
            Some(Chunk::Slab { class: argument as usize })
        }
        3 if tag == 0 && argument > 0 => Some(Chunk::Head { chunks: argument }),
        4 if tag == 0 && argument == 0 => Some(Chunk::Body),
        5 if argument == 0 && tag != 0 && is_of(word, generation) => Some(Chunk::HeldHole),
        5 if argument == 0 => Some(Chunk::Hole),
        _ => None,
    }
}

impl Chunk {
    pub(crate) fn is_free(self) -> bool {
        matches!(self, Self::Free | Self::Hole)
    }
}

impl<D: Domain> Pool<D> {
    pub(crate) fn chunk_word(&self, index: u64) -> Word<'_, D> {
        self.word(self.geometry().chunk_word_off(index))
    }

    /// How chunk `index` is used. A damaged word counts as a body, which stays unchanged.
    #[inline]
    pub(crate) fn chunk(&self, index: u64) -> Chunk {
        // Acquire: a thread that sees a slab sees its header (`set_chunk`, release). A thread that
        // sees a free chunk sees all accesses of its last owner (the same, or the CAS of a claim).
        let word = self.chunk_word(index).load(Ordering::Acquire);
        decode(word, self.generation()).unwrap_or(Chunk::Body)
    }

    /// The word of a chunk, as this thread writes it.
    pub(crate) fn encoded(&self, chunk: Chunk) -> u64 {
        encode(chunk, self.tag())
    }

    pub(crate) fn set_chunk(&self, index: u64, chunk: Chunk) {
        let word = self.chunk_word(index);
        word.store(self.encoded(chunk), Ordering::Release);
        word.flush();
    }

    /// Chunks that were ever used.
    pub(crate) fn frontier(&self) -> u64 {
        // Acquire: the file is long enough, since it was extended before the frontier was raised.
        self.word(FRONTIER_OFF).load(Ordering::Acquire).min(self.geometry().max_chunks)
    }

    /// Chunks that the pool has, used or not.
    pub(super) fn chunks_there(&self) -> u64 {
        (self.size_bytes() - self.geometry().chunks_off) / CHUNK_BYTES
    }

    /// Sets the frontier to the end of the pool, if it lies beyond: no block there was ever
    /// activated, or the word is damaged. So all chunks below the frontier exist.
    pub(crate) fn recover_frontier(&self) {
        let end = self.chunks_there();
        let frontier = self.word(FRONTIER_OFF);
        if frontier.load(Ordering::Acquire) > end {
            frontier.store(end, Ordering::Release);
        }
    }

    pub(crate) fn reserve_span(&self, guard: &Guard<'_, D>, bytes: u64) -> Result<u64> {
        let chunks = bytes.div_ceil(CHUNK_BYTES);
        let first = self.claim_chunks(guard, chunks)?;
        // Durable before any log names the span: a recovery of the log reads the length of the span
        // in the head. It must not read the length of an earlier span.
        // Nor may the medium have a slab inside, which a killed thread has dissolved without a
        // write-back: the span's content would be its header and the states of its blocks.
        if !mutant!("stale-claim") {
            self.flush(self.geometry().chunk_word_off(first), chunks * 8);
        }
        self.flush_extent();
        D::fence();
        Ok(self.geometry().chunk_off(first))
    }

    /// Starts the write-back of the pool's size and frontier. They must be durable before a block
    /// of a new chunk is activated. The thread that raised them may not have flushed them yet.
    pub(crate) fn flush_extent(&self) {
        self.word(SIZE_OFF).flush();
        self.word(FRONTIER_OFF).flush();
    }

    /// The first chunk of the span at `off`, and its length.
    fn span_at(&self, off: u64) -> Option<(u64, u64)> {
        let first = self.geometry().chunk_of(off)?;
        if self.geometry().chunk_off(first) != off || first >= self.frontier() {
            return None;
        }
        match self.chunk(first) {
            Chunk::Claimed { chunks } | Chunk::Head { chunks }
                if chunks > 0 && first + chunks <= self.geometry().max_chunks =>
            {
                Some((first, chunks))
            }
            _ => None,
        }
    }

    pub(crate) fn activate_span(&self, off: u64) {
        let Some((first, chunks)) = self.span_at(off) else { return };
        self.mark_span(first, chunks);
    }

    /// Marks an active span of `chunks` chunks from chunk `first` on.
    pub(crate) fn mark_span(&self, first: u64, chunks: u64) {
        for index in first + 1..first + chunks {
            self.set_chunk(index, Chunk::Body);
        }
        let head = self.chunk_word(first);
        let active = self.encoded(Chunk::Head { chunks });
        let found = head.load(Ordering::Acquire);
        // Several threads may mark a segment of the table of participants; only one counts it.
        if found != active && head.compare_exchange(found, active).is_ok() {
            self.cache.used.note_activated(first, chunks * CHUNK_BYTES);
        }
        head.flush();
    }

    /// Deactivates a span. In recovery, with a log that names the span, also a span whose
    /// activation was interrupted. (Without such a log, the words of an interrupted activation have
    /// no meaning: the chunks may belong to another span by now.)
    ///
    /// The CAS of the head decides: of several threads that free one span, one succeeds. If a crash
    /// leaves a claimed head and active bodies, the log that names the span settles them.
    pub(crate) fn deactivate_span(&self, off: u64, in_recovery: bool) -> Result<(), ()> {
        // After a crash a claim is void, but its length is used here.
        let first = self.geometry().chunk_of(off).ok_or(())?;
        if self.geometry().chunk_off(first) != off || first >= self.frontier() {
            return Err(());
        }
        let head = self.chunk_word(first);
        let found = head.load(Ordering::Acquire);
        let chunks = found & ARGUMENT_MASK;
        let kind = (found >> 24) & 0xFF;
        let active = kind == 3;
        let cut_short = in_recovery && kind == 1 && !is_of(found, self.generation());
        if !(active || cut_short) || chunks == 0 || first + chunks > self.geometry().max_chunks {
            return Err(());
        }
        let claimed = |chunks| self.encoded(Chunk::Claimed { chunks });
        let is_freed = head.compare_exchange(found, claimed(chunks)).is_err();
        if mutant!("freed-twice") {
            head.store(claimed(chunks), Ordering::Release);
        } else if is_freed {
            // Another thread has freed it.
            return Err(());
        }
        head.flush();
        for index in first + 1..first + chunks {
            self.set_chunk(index, Chunk::Claimed { chunks: 0 });
        }
        if active {
            self.cache.used.note_deactivated(first, chunks * CHUNK_BYTES);
        }
        Ok(())
    }

    /// Frees chunk `index` if it is claimed, and not stamped by the census `stamp`: no process has
    /// it. Returns whether it was freed.
    pub(super) fn free_lost_chunk(&self, index: u64, stamp: u8) -> bool {
        let word = self.chunk_word(index);
        let found = word.load(Ordering::Acquire);
        let free = match decode(found, self.generation()) {
            Some(Chunk::Claimed { .. }) => Chunk::Free,
            Some(Chunk::HeldHole) => Chunk::Hole,
            _ => return false,
        };
        if [stamp, LASTING_STAMP].contains(&stamp_of(found)) {
            return false;
        }
        // Acquire and release: as any claim, and any free.
        let is_freed = word.compare_exchange(found, self.encoded(free)).is_ok();
        self.note_freed(u64::from(is_freed));
        is_freed
    }

    /// Ends the activation, or the deactivation, of a span that a dead thread has begun: its bodies
    /// are claimed as its head is. The span belongs to an operation of that thread.
    pub fn end_for_dead(&self, off: u64) {
        let Some((first, chunks)) = self.span_at(off) else { return };
        if matches!(self.chunk(first), Chunk::Claimed { .. }) {
            let bodies = first + 1..first + chunks;
            bodies.filter(|&index| self.chunk(index) == Chunk::Body).for_each(|index| {
                self.set_chunk(index, Chunk::Claimed { chunks: 0 });
            });
        }
    }

    /// Frees claimed chunks: a span, or one chunk.
    pub(crate) fn release_chunks(&self, off: u64) {
        let Some((first, chunks)) = self.span_at(off) else { return };
        if !matches!(self.chunk(first), Chunk::Claimed { .. }) {
            return;
        }
        for index in (first..first + chunks).rev() {
            // Not flushed: a claim of an earlier generation counts as free.
            self.chunk_word(index).store(0, Ordering::Release);
        }
        self.note_freed(chunks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_chunk_words() {
        let encode = |chunk| super::encode(chunk, tag_of(9, 3));
        assert_eq!(encode(Chunk::Free), 0);
        assert_eq!(encode(Chunk::Claimed { chunks: 5 }), 0x0000_0903_0100_0005);
        assert_eq!(encode(Chunk::Slab { class: 3 }), 0x0000_0000_0200_0003);
        assert_eq!(encode(Chunk::Head { chunks: 7 }), 0x0000_0000_0300_0007);
        assert_eq!(encode(Chunk::Body), 0x0000_0000_0400_0000);
        assert_eq!(encode(Chunk::Hole), 0x0000_0000_0500_0000);
        assert_eq!(encode(Chunk::HeldHole), 0x0000_0903_0500_0000);
    }

    #[test]
    fn a_claim_ends_with_its_generation() {
        let claim = encode(Chunk::Claimed { chunks: 5 }, tag_of(9, 3));
        assert_eq!(decode(claim, 9), Some(Chunk::Claimed { chunks: 5 }));
        assert_eq!(decode(claim, 10), Some(Chunk::Free));
        let held = encode(Chunk::HeldHole, tag_of(9, 3));
        assert_eq!(decode(held, 9), Some(Chunk::HeldHole));
        assert_eq!(decode(held, 10), Some(Chunk::Hole));
        assert!(is_hole_word(held) && is_hole_word(HOLE) && !is_hole_word(claim));
    }

    #[test]
    fn words_that_were_never_written_are_told() {
        for word in
            [1, 6 << 24, 5 << 24 | 1, 2 << 24 | 0xFF_FFFF, 3 << 24, 4 << 24 | 1, 1 << 40 | 3 << 24]
        {
            assert_eq!(decode(word, 1), None, "{word:#x}");
        }
    }
}
