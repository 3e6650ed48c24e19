//! The search for free chunks, and their claim.
//!
//! Searches are *next-fit by size*: for each number of bits of a span's length in chunks, a search
//! starts behind the span that the last search of its kind has found. A search reads the last chunk
//! of a place first, and continues behind the last chunk that is in use. So where all chunks are in
//! use, it reads one word for each length of the span, not every word.
//!
//! | step, in this order | cost |
//! | --- | --- |
//! | freed chunks, if enough are known | 128 words of the chunk table, or 8 for each chunk of the span, if that is more |
//! | chunks that earlier generations left free | 512 words, each word once, and such a search |
//! | chunks beyond the frontier, and free chunks right below it; the file grows | room in the file |
//! | this thread's empty slabs dissolve, blocks are collected; all freed chunks | the whole table |
//! | refused: empty slabs of all threads dissolve, for the next attempt | one word of process memory for each chunk |
//!
//! The limit of the first step bounds the cost of a search that finds nothing. A later search
//! continues from there, and finds the free chunks. While searches pass once over the table, the
//! pool grows by an eighth of it at most, though it may have room; where most chunks are in use, by
//! a hundredth. A search for one chunk has no limit, since it finds any free chunk.
//!
//! A span is claimed chunk by chunk with CASes. A thread that finds a chunk in use frees the chunks
//! that it has claimed, and continues its search. Holes in the span get room before a block there
//! is used (`holes.rs`). If the file system has no room, the thread frees all chunks, and searches
//! again for chunks that have room.

use std::sync::atomic::Ordering;

use super::chunks::{Chunk, decode, encode, is_hole_word};
use super::sizes::MAX_SPAN_CHUNKS;
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::layout::{CHUNK_BYTES, FRONTIER_OFF};
use crate::mutant;
use crate::pool::Pool;
use crate::slots::ReserveAccess;

/// Words of the chunk table that one search for freed chunks reads, for a span of at most sixteen
/// chunks.
const SEARCH_AT_ONCE: u64 = 128;
/// The same for each chunk of a longer span.
const SEARCH_A_CHUNK: u64 = 8;

/// Words of the chunk table that one survey reads before the pool is extended.
const SURVEY_AT_ONCE: u64 = 512;

/// How much a search reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// A bounded number of words.
    Bounded,
    /// The whole table.
    Whole,
}

impl<D: Domain> Pool<D> {
    /// Claims `chunks` neighbouring chunks and returns the first.
    pub(crate) fn claim_chunks(&self, guard: &Guard<'_, D>, chunks: u64) -> Result<u64> {
        if chunks > MAX_SPAN_CHUNKS {
            return Err(Error::BlockTooLarge {
                requested_bytes: chunks.saturating_mul(CHUNK_BYTES),
                max_bytes: MAX_SPAN_CHUNKS * CHUNK_BYTES,
            });
        }
        let mut no_room = None;
        let access = guard.reserve_access();
        self.check_room_to_undo(chunks, access)?;
        let available = self.claim_available(chunks, access, self.tag(), &mut no_room);
        let Err(error) = available else { return available };
        // The last step: any free chunk, also those of blocks in limbo, and soon those of empty
        // slabs that this thread kept for other sizes. (Three times, because one collection gives
        // back a bounded number of blocks. While this thread is pinned, only one epoch can pass.)
        self.dissolve_empty_slabs(guard);
        self.discover_again(guard);
        for _ in 0..3 {
            guard.collect();
        }
        let found = self.claim_freed(chunks, Search::Whole, self.tag(), &mut no_room);
        found.ok_or(no_room.unwrap_or(error))
    }

    /// Refuses a thread whose work may have to be undone, if too few chunks would stay free. Reads
    /// the table of a pool that is nearly full.
    fn check_room_to_undo(&self, chunks: u64, access: ReserveAccess) -> Result<()> {
        if access != ReserveAccess::Revocable {
            return Ok(());
        }
        let wanted = chunks + self.spare_chunks(access);
        let max_chunks = self.geometry().max_chunks;
        let frontier = self.frontier().min(max_chunks);
        let beyond = max_chunks - frontier;
        let freed = (0..frontier).filter(|&chunk| self.chunk(chunk).is_free());
        if beyond >= wanted || beyond + freed.take(wanted as usize).count() as u64 >= wanted {
            return Ok(());
        }
        Err(self.full(chunks))
    }

    fn full(&self, chunks: u64) -> Error {
        let max_bytes = self.geometry().max_bytes;
        Error::PoolFull { requested_bytes: chunks * CHUNK_BYTES, max_bytes }
    }

    /// The first three steps of a claim with that tag, also for a thread that is not pinned.
    pub(crate) fn claim_available(
        &self,
        chunks: u64,
        reserve_access: ReserveAccess,
        tag: u32,
        no_room: &mut Option<Error>,
    ) -> Result<u64> {
        if let Some(first) = self.claim_freed(chunks, Search::Bounded, tag, no_room) {
            return Ok(first);
        }
        if self.survey(chunks)
            && let Some(first) = self.claim_freed(chunks, Search::Bounded, tag, no_room)
        {
            return Ok(first);
        }
        self.claim_beyond_frontier(chunks, reserve_access, tag)
    }

    /// Searches the chunk table for chunks that earlier generations left free, from the end of the
    /// last survey on; returns whether it found `wanted` of them. Reads the table, not the chunks.
    pub(crate) fn survey(&self, wanted: u64) -> bool {
        let frontier = self.frontier();
        let mut found = 0;
        for _ in 0..SURVEY_AT_ONCE {
            if self.cache.surveyed.load(Ordering::Relaxed) >= frontier {
                return false;
            }
            let chunk = self.cache.surveyed.fetch_add(1, Ordering::Relaxed);
            if chunk < frontier && self.chunk(chunk).is_free() {
                self.note_freed(1);
                if found == 0 {
                    self.cache.search_on(wanted, chunk);
                }
                found += 1;
                if found == wanted {
                    return true;
                }
            }
        }
        false
    }

    /// Claims freed chunks below the frontier. If the file system has no room for holes among them,
    /// stores the error in `no_room`, and claims chunks that have room.
    fn claim_freed(
        &self,
        chunks: u64,
        search: Search,
        tag: u32,
        no_room: &mut Option<Error>,
    ) -> Option<u64> {
        let known = self.freed_chunks();
        let most_words = match search {
            Search::Whole => u64::MAX,
            Search::Bounded if known < chunks => return None,
            Search::Bounded if chunks == 1 => u64::MAX,
            Search::Bounded => SEARCH_AT_ONCE.max(SEARCH_A_CHUNK * chunks),
        };
        let found = match self.search(chunks, most_words, tag, Chunk::is_free) {
            Ok(found) => found,
            Err(error) => {
                *no_room = Some(error);
                // Chunks that have room: a claim of these fails only if another thread succeeds.
                self.search(chunks, most_words, tag, |chunk| chunk == Chunk::Free).unwrap_or(None)
            }
        };
        match found {
            Some(_) => self.note_claimed(chunks),
            // The count may be too high: a chunk counts twice if it is freed before a survey has
            // passed it.
            None if chunks == 1 => self.forget_freed(known),
            None => {}
        }
        found
    }

    /// Reads `most_words` words, or the whole table once, from the end of the last search for such
    /// a span on.
    fn search(
        &self,
        chunks: u64,
        most_words: u64,
        tag: u32,
        serves: impl Fn(Chunk) -> bool + Copy,
    ) -> Result<Option<u64>> {
        let frontier = self.frontier();
        let start = self.cache.search_from(chunks, frontier);
        let (mut first, mut wrapped, mut looked) = (start, start == 0, 0);
        let found = loop {
            if first + chunks > frontier {
                first = 0;
                if wrapped {
                    break None;
                }
                wrapped = true;
            }
            let is_round = wrapped && start != 0 && first >= start;
            if is_round || looked >= most_words || chunks > frontier {
                break None;
            }
            let (words, taken) = self.last_taken(first, chunks, serves);
            looked += words;
            match taken {
                Some(taken) => first = taken + 1,
                None => match self.claim_exactly(first, chunks, tag) {
                    Ok(()) => break Some(first),
                    Err(Unclaimed::Taken(taken)) => first = taken + 1,
                    Err(Unclaimed::NoRoom(error)) => return Err(error),
                },
            }
        };
        self.cache.search_on(chunks, found.map_or(first, |first| first + chunks));
        Ok(found)
    }

    /// Returns the number of words that it has read, and the last chunk of the span at `first` that
    /// does not serve.
    fn last_taken(
        &self,
        first: u64,
        chunks: u64,
        serves: impl Fn(Chunk) -> bool,
    ) -> (u64, Option<u64>) {
        let is_taken = |&chunk: &u64| !serves(self.chunk(chunk));
        match (first..first + chunks).rev().find(is_taken) {
            Some(taken) => (first + chunks - taken, Some(taken)),
            None => (chunks, None),
        }
    }

    fn claim_beyond_frontier(
        &self,
        chunks: u64,
        reserve_access: ReserveAccess,
        tag: u32,
    ) -> Result<u64> {
        let spare = self.spare_chunks(reserve_access);
        let frontier = self.word(FRONTIER_OFF);
        loop {
            let reached = frontier.load(Ordering::Acquire).min(self.geometry().max_chunks);
            let is_free = |&back: &u64| self.chunk(reached - back).is_free();
            let joined = (1..=chunks.min(reached)).take_while(is_free).count() as u64;
            let first = reached - joined;
            let end = first + chunks;
            if end + spare > self.geometry().max_chunks {
                return Err(self.full(chunks));
            }
            self.grow(self.geometry().chunk_off(end + spare))?;
            if end == reached || frontier.compare_exchange(reached, end).is_ok() {
                // A thread that uses a chunk makes the pool's size and frontier durable first: see
                // `flush_extent`.
                match self.claim_exactly(first, chunks, tag) {
                    Ok(()) => {
                        self.note_claimed(joined);
                        return Ok(first);
                    }
                    // Another thread searched below the new frontier, and was faster. The other
                    // chunks stay free, and later searches find them.
                    Err(Unclaimed::Taken(_)) => continue,
                    Err(Unclaimed::NoRoom(error)) => {
                        self.note_freed(chunks - joined);
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Claims the chunks from `first`, and makes room for holes among them; otherwise claims none.
    fn claim_exactly(&self, first: u64, chunks: u64, tag: u32) -> Result<(), Unclaimed> {
        let claim = |index| Chunk::Claimed { chunks: if index == first { chunks } else { 0 } };
        let mut holes = 0;
        for index in first..first + chunks {
            let word = self.chunk_word(index);
            let found = word.load(Ordering::Acquire);
            let hole = if mutant!("reused-without-room") { claim(index) } else { Chunk::HeldHole };
            let mine = match decode(found, self.generation()) {
                Some(Chunk::Free) => Some(claim(index)),
                Some(Chunk::Hole) => Some(hole),
                _ => None,
            };
            let mine = mine.map(|mine| encode(mine, tag));
            if mine.is_none_or(|mine| word.compare_exchange(found, mine).is_err()) {
                self.unclaim(first, index);
                return Err(Unclaimed::Taken(index));
            }
            holes += u64::from(is_hole_word(found));
        }
        if holes > 0 {
            if let Err(error) = self.fill_holes(first, chunks, holes) {
                self.unclaim(first, first + chunks);
                return Err(Unclaimed::NoRoom(error));
            }
            for index in first..first + chunks {
                let claimed = encode(claim(index), tag);
                self.chunk_word(index).store(claimed, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Restores the chunks from `first` to `end`, which this thread has claimed.
    fn unclaim(&self, first: u64, end: u64) {
        for index in first..end {
            let was = match self.chunk(index) {
                Chunk::HeldHole => Chunk::Hole,
                _ => Chunk::Free,
            };
            let word = self.encoded(was);
            self.chunk_word(index).store(word, Ordering::Release);
        }
    }
}

/// Why chunks were not claimed.
enum Unclaimed {
    /// This chunk is in use.
    Taken(u64),
    /// Some of them are holes, and the file system has no room.
    NoRoom(Error),
}
