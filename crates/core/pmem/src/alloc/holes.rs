//! Unused room goes back to the system: holes are punched in the file, in free chunks.
//!
//! A *hole* is a free chunk for which the file may have no room. No thread stores into it or loads
//! from it before room was made: on a full file system, either would be a SIGBUS.
//!
//! # Protocol
//!
//! The word of the chunk table decides. A hole that a thread holds carries the generation, so after
//! a crash it is a hole, at whichever step the thread was.
//!
//! | step of [`release_unused`](Pool::release_unused) | a crash leaves |
//! | --- | --- |
//! | the word of a free chunk := held hole, durable | a hole, which has room |
//! | the hole is punched | a hole without room, not counted |
//! | the count of punched chunks (control page) rises | a hole without room |
//! | the word := hole; any thread may claim it | the same |
//!
//! | step of a claim (`claim.rs`) | a crash leaves |
//! | --- | --- |
//! | the word of a hole := held hole | a hole without room |
//! | the count falls, durable | a hole without room, not counted |
//! | room is made, durable | a hole, which has room, not counted |
//! | the word := claimed; the claim continues as for any chunk | a hole, or a free chunk, which has room |
//!
//! If the file system has no room, the thread returns the room that it made, raises the count
//! again, and sets the word to hole again. The claim is refused with
//! [`Error::FileSystemFull`](crate::Error::FileSystemFull), unless chunks with room serve.
//!
//! So a chunk that is not a hole has room, after any crash, and the count is never larger than the
//! number of chunks without room. Opening a pool relies on both (`pool/room.rs`). A file may have
//! fewer blocks than all chunks without the counted ones need. Then it is a copy that left out
//! zeros, or a crash came between two steps. So room is made for all chunks that are no holes, and
//! the others are punched, and counted.
//!
//! No thread can read a free chunk, since its epochs have passed. Only an
//! [`OptimisticRead`](crate::OptimisticRead) can, and drops the words that it has read. In a file
//! in memory, even that takes room, so a pool with an optimistic read keeps its room until it is
//! closed. The first optimistic read notes this before it loads anything, by a store that is
//! ordered with the check here: either this thread sees the store, or the read begins when no word
//! leads to the chunk any more.
//!
//! A file in memory has huge pages. To return a part of one, the system splits it. If another
//! thread has the page at that instant, the system keeps the part and reports no error. The chunks
//! are counted as punched then, and have room. So a search that finds no free chunk compares the
//! room of the file with the count. If the file has more, the thread holds the holes and punches
//! them again. Held holes are holes after a crash, and the count does not change. If the system
//! returns nothing of it (it may never do so for huge pages, as with `huge=always`), the process
//! notes how much is kept, and punches again only when that is more by a chunk. So later searches
//! cost one `fstat`.
//!
//! While a thread punches, at most [`AT_ONCE`] chunks cannot be allocated. A thread that stalls
//! there keeps them.
//!
//! # Truncating the file
//!
//! During [`Pool::compact`] no other thread uses the pool. The file is truncated after the last
//! chunk in use:
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | all unused room is returned | as above |
//! | the count falls by the holes that are cut off, durable | holes that are not counted |
//! | the size (superblock) := the end of the last chunk in use, durable | a file that is longer than its pool; opening it lowers the frontier |
//! | the words of the chunks that are cut off := free, durable; the frontier := the end | the same |
//! | the file is truncated | a smaller pool |
//!
//! The words become free only when they lie beyond the size, where growth makes room for all
//! chunks.

use std::sync::atomic::{Ordering, fence};

use super::chunks::{Chunk, decode};
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::error::Result;
use crate::layout::{CHUNK_BYTES, FRONTIER_OFF, PUNCHED_OFF};
use crate::mutant;
use crate::pool::Pool;
use crate::superblock::{SIZE_OFF, size_word};

/// Chunks that a thread holds at most while it punches them.
const AT_ONCE: u64 = 16;

impl<D: Domain> Pool<D> {
    /// Returns unused room to the system: at most `max_bytes`, but at least one chunk of 64 KiB.
    /// Returns the number of bytes; zero means that no unused room is left. For background threads:
    /// one call reads each word of the chunk table once at most, and gives back blocks that wait
    /// for their epoch.
    ///
    /// The pool keeps its size, and takes the room again as it needs it. Then a write may be
    /// refused with [`Error::FileSystemFull`](crate::Error::FileSystemFull), as when the pool
    /// grows. Room beyond the chunks that were ever used is kept. A file system without holes gets
    /// nothing back, and neither does a pool that processes share.
    pub fn release_unused(&self, max_bytes: u64) -> Result<u64> {
        if self.is_shared() {
            return Ok(0);
        }
        {
            let guard = self.pin()?;
            self.dissolve_empty_slabs(&guard);
            self.take_empty_slabs(&guard);
        }
        self.reclaim()?;
        let guard = self.pin()?;
        let most = (max_bytes / CHUNK_BYTES).max(1);
        let frontier = self.frontier();
        let mut next = self.cache.search_from(1, frontier);
        let (mut looked, mut given) = (0, 0);
        while looked < frontier && given < most {
            let first = next % frontier;
            let wanted = AT_ONCE.min(most - given).min(frontier - first);
            let held = self.hold(Chunk::Free, first, wanted);
            let passed = held.max(1);
            next = first + passed;
            self.cache.search_on(1, next);
            looked += passed;
            if held > 0 && !self.punch(&guard, first, held)? {
                return Ok(given * CHUNK_BYTES);
            }
            given += held;
        }
        match given {
            0 => self.punch_again(&guard, frontier),
            _ => Ok(given * CHUNK_BYTES),
        }
    }

    /// Takes free chunks, or holes, from `first` on; returns how many.
    fn hold(&self, wanted: Chunk, first: u64, most: u64) -> u64 {
        let held = self.encoded(Chunk::HeldHole);
        let is_mine = |&index: &u64| {
            let word = self.chunk_word(index);
            let found = word.load(Ordering::Acquire);
            decode(found, self.generation()) == Some(wanted)
                && word.compare_exchange(found, held).is_ok()
        };
        (first..first + most).take_while(is_mine).count() as u64
    }

    /// Punches all holes again, if the system has kept the room of any; returns the bytes that it
    /// gives up now.
    fn punch_again(&self, _guard: &Guard<'_, D>, frontier: u64) -> Result<u64> {
        let kept_bytes = self.kept_bytes()?;
        if !self.may_return_kept(kept_bytes) || !self.may_have_holes() {
            return Ok(0);
        }
        let mut index = 0;
        while index < frontier {
            let most = AT_ONCE.min(frontier - index);
            let is_hole = |&index: &u64| self.chunk(index) == Chunk::Hole;
            let held = match mutant!("punched-again-unheld") {
                false => self.hold(Chunk::Hole, index, most),
                true => (index..index + most).take_while(is_hole).count() as u64,
            };
            if held > 0 {
                self.note_claimed(held);
                let punched = self.give_room_back(index, held);
                self.set_chunks(index, held, Chunk::Hole);
                self.note_freed(held);
                punched?;
            }
            index += held.max(1);
        }
        let returned_bytes = kept_bytes.saturating_sub(self.kept_bytes()?);
        self.note_kept(if returned_bytes < CHUNK_BYTES { kept_bytes } else { 0 });
        Ok(returned_bytes)
    }

    /// Punches chunks that this thread holds; false if the file cannot have holes, or must not have
    /// them now.
    fn punch(&self, _guard: &Guard<'_, D>, first: u64, chunks: u64) -> Result<bool> {
        // Ordered with the store of the first optimistic read.
        fence(Ordering::SeqCst);
        if !self.may_have_holes() {
            self.set_chunks(first, chunks, Chunk::Free);
            return Ok(false);
        }
        self.note_claimed(chunks);
        for index in first..first + chunks {
            if !mutant!("punched-before-known") {
                self.chunk_word(index).flush();
            }
        }
        self.flush_extent();
        D::fence();
        let punched = self.give_room_back(first, chunks);
        if let Ok(true) = punched {
            let count = self.word(PUNCHED_OFF);
            count.fetch_add(chunks);
            count.flush();
        }
        // If it failed, a part of the room may be gone.
        self.set_chunks(first, chunks, Chunk::Hole);
        self.note_freed(chunks);
        punched
    }

    /// Truncates the pool after the last chunk in use. No other thread uses the pool.
    pub(crate) fn cut(&self) -> Result<()> {
        let chunks = (self.size_bytes() - self.geometry().chunks_off) / CHUNK_BYTES;
        let is_used = |&index: &u64| !self.chunk(index).is_free();
        // A pool has at least one chunk.
        let end = (0..chunks).rev().find(is_used).map_or(1, |last| last + 1);
        if end >= chunks {
            return Ok(());
        }
        let holes = (end..chunks).filter(|&index| self.chunk(index) == Chunk::Hole).count() as u64;
        let count = self.word(PUNCHED_OFF);
        count.fetch_add(holes.wrapping_neg());
        count.flush();
        D::fence();
        let size = self.word(SIZE_OFF);
        size.store(size_word(self.geometry().chunk_off(end)), Ordering::Release);
        size.flush();
        D::fence();
        for index in end..chunks {
            self.set_chunk(index, Chunk::Free);
        }
        let frontier = self.word(FRONTIER_OFF);
        if frontier.load(Ordering::Acquire) > end {
            frontier.store(end, Ordering::Release);
            frontier.flush();
        }
        D::fence();
        self.truncate(self.geometry().chunk_off(end))
    }

    fn set_chunks(&self, first: u64, chunks: u64, to: Chunk) {
        for index in first..first + chunks {
            self.set_chunk(index, to);
        }
    }

    /// Makes room for the `holes` held holes among the `chunks` chunks from `first`, which this
    /// thread has.
    pub(super) fn fill_holes(&self, first: u64, chunks: u64, holes: u64) -> Result<()> {
        let count = self.word(PUNCHED_OFF);
        count.fetch_add(holes.wrapping_neg());
        count.flush();
        D::fence();
        let end = first + chunks;
        let mut index = first;
        while index < end {
            let is_held = |&index: &u64| self.chunk(index) == Chunk::HeldHole;
            let run = (index..end).take_while(is_held).count() as u64;
            if run > 0
                && let Err(error) = self.make_room(index, run)
            {
                self.empty_again(first, index + run);
                count.fetch_add(holes);
                count.flush();
                return Err(error);
            }
            index += run.max(1);
        }
        Ok(())
    }

    /// Returns the room of held holes, as far as that is possible.
    fn empty_again(&self, first: u64, end: u64) {
        for index in (first..end).filter(|&index| self.chunk(index) == Chunk::HeldHole) {
            // If the file system refuses this, the file has more room than is counted, which is
            // allowed.
            let _ = self.give_room_back(index, 1);
        }
    }
}
