//! Room that is not used goes back to the system: holes are punched in the file, in chunks that are
//! free.
//!
//! A *hole* is a chunk that is free and for which the file may have no room. Nobody stores into it,
//! and nobody loads from it, before room was made there: on a full file system either would be a
//! SIGBUS.
//!
//! # Protocol
//!
//! The word of the chunk table decides. A hole that a thread has carries the generation, so that
//! after a crash it is a hole, whatever the thread was about to do.
//!
//! | step of [`release_unused`](Pool::release_unused) | a crash leaves |
//! | --- | --- |
//! | the word of a free chunk := held hole, durable | a hole, which has room |
//! | the hole is punched | a hole without room, not counted |
//! | the count of punched chunks (control page) rises | a hole without room |
//! | the word := hole; anyone may claim it | the same |
//!
//! | step of a claim (`claim.rs`) | a crash leaves |
//! | --- | --- |
//! | the word of a hole := held hole | a hole without room |
//! | the count falls, durable | a hole without room, not counted |
//! | room is made, durable | a hole, which has room, not counted |
//! | the word := claimed; it goes on as any chunk that is claimed | a hole, or a free chunk, which has room |
//!
//! If there is no room, what was made of it goes back, the count rises again, the word becomes hole
//! again, and the claim is refused with [`Error::FileSystemFull`](crate::Error::FileSystemFull),
//! unless chunks with room serve.
//!
//! So a chunk that is not a hole has room, in each state that a crash can leave; and the count is
//! never more than the chunks that have no room. Opening a pool relies on both (`pool/room.rs`): a
//! file that has fewer blocks than all chunks but the counted ones take is a copy that left out
//! zeros, or was cut short in between. Then room is made for all chunks that are no holes, the
//! others are punched, and counted.
//!
//! No thread can look at a chunk that is free: it has passed its epochs. A
//! [`OptimisticRead`](crate::OptimisticRead) can, and drops what it has seen; where even that takes
//! room, in a file in memory, a pool with an optimistic read keeps its room until it is closed. The
//! first such read says so before it loads anything, by a store that is ordered with the look here:
//! either this thread sees it, or the read begins when nothing leads to the chunk any more.
//!
//! While a thread punches, at most [`AT_ONCE`] chunks are not to be had. A thread that stops there
//! keeps them.

//! # Cutting the file
//!
//! [`Pool::compact`] has the pool for itself. What lies behind the last chunk in use is cut off:
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | all room that is not used is returned | as above |
//! | the count falls by the holes that are cut off, durable | holes that are not counted |
//! | the size (superblock) := the end of the last chunk in use, durable | a file that is longer than its pool; opening it takes the frontier back |
//! | the words of what is cut off := free, durable; the frontier := the end | the same |
//! | the file is truncated | a smaller pool |
//!
//! The words become free only when they lie behind the size, where growing makes room for all.

use std::sync::atomic::{Ordering, fence};

use super::chunks::{Chunk, decode, encode};
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::error::Result;
use crate::layout::{CHUNK_BYTES, FRONTIER_OFF, PUNCHED_OFF};
use crate::mutant;
use crate::pool::Pool;
use crate::superblock::{SIZE_OFF, size_word};

/// Chunks that a thread takes from others while it punches them.
const AT_ONCE: u64 = 16;

impl<D: Domain> Pool<D> {
    /// Returns room that the pool does not use to the system, at most `max_bytes` of it but a chunk
    /// of 64 KiB at least; how many bytes it was. Zero says that there is none left to return. For
    /// threads in the background: one call looks at each word of the chunk table once at most, and
    /// gives back blocks that wait for their epoch.
    ///
    /// The pool keeps its size, and takes the room again as it needs it; then a write may be
    /// refused with [`Error::FileSystemFull`](crate::Error::FileSystemFull), as when the pool
    /// grows. What lies beyond the chunks that were ever used stays. A file system that has no
    /// holes gets nothing back.
    pub fn release_unused(&self, max_bytes: u64) -> Result<u64> {
        {
            let guard = self.pin()?;
            self.let_go_of_empty_slabs(&guard);
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
            let held = self.hold_free(first, wanted);
            let passed = held.max(1);
            next = first + passed;
            self.cache.search_on(1, next);
            looked += passed;
            if held > 0 && !self.punch(&guard, first, held)? {
                break;
            }
            given += held;
        }
        Ok(given * CHUNK_BYTES)
    }

    /// Takes chunks that are free, and have room, from `first` on; how many.
    fn hold_free(&self, first: u64, most: u64) -> u64 {
        let held = encode(Chunk::HeldHole, self.generation());
        let is_mine = |&index: &u64| {
            let word = self.chunk_word(index);
            let found = word.load(Ordering::Acquire);
            decode(found, self.generation()) == Some(Chunk::Free)
                && word.compare_exchange(found, held).is_ok()
        };
        (first..first + most).take_while(is_mine).count() as u64
    }

    /// Punches chunks that this thread holds; false if the file cannot have holes, or must not now.
    fn punch(&self, _guard: &Guard<'_, D>, first: u64, chunks: u64) -> Result<bool> {
        // Ordered with the store of the first optimistic read.
        fence(Ordering::SeqCst);
        if !self.may_have_holes() {
            self.let_go(first, chunks, Chunk::Free);
            return Ok(false);
        }
        self.cache.note_claimed(chunks);
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
        // If it failed, part of the room may be gone.
        self.let_go(first, chunks, Chunk::Hole);
        self.cache.note_freed(chunks);
        punched
    }

    /// Cuts the pool behind the last chunk in use. Nobody else uses it.
    pub(crate) fn cut(&self) -> Result<()> {
        let chunks = (self.size_bytes() - self.geometry().chunks_off) / CHUNK_BYTES;
        let is_used = |&index: &u64| !self.chunk(index).is_free();
        // A pool has a chunk at least.
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

    fn let_go(&self, first: u64, chunks: u64, to: Chunk) {
        for index in first..first + chunks {
            self.set_chunk(index, to);
        }
    }

    /// Makes room for the `holes` chunks that this thread holds as such, of the `chunks` from
    /// `first` that are its own.
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

    /// Gives the room of held holes back, as far as that is possible.
    fn empty_again(&self, first: u64, end: u64) {
        for index in (first..end).filter(|&index| self.chunk(index) == Chunk::HeldHole) {
            // The file system said that there is no room; if it refuses this too, there is more
            // room than counted.
            let _ = self.give_room_back(index, 1);
        }
    }
}
