//! Free chunks are searched for, and claimed.
//!
//! Searches are *next-fit by size*: for each number of bits that a span's length in chunks has, a
//! search goes on behind the span that the last one of its kind has found. A search looks at the
//! last chunk of a place first, and goes on behind the last one that is taken; so where chunks are
//! in use, it looks at one word for each length of the span, not at all.
//!
//! | what is tried in turn | what it costs |
//! | --- | --- |
//! | freed chunks, if enough are known to be there | 128 words of the chunk table, or 8 for each chunk of the span, if that is more |
//! | chunks that earlier generations left free | 512 words, once for each word, and such a search |
//! | chunks beyond the frontier, and those right below it that are free; the file grows | room in the file |
//! | this thread's empty slabs dissolve, what waits for its epoch comes back; all freed chunks | the whole table |
//! | refused: empty slabs of all threads dissolve, for the next attempt | a word of process memory a chunk |
//!
//! The limit of the first step bounds what a search costs that finds nothing. What is free is found
//! by a later search, which goes on from there: while searches go once round the table, the pool
//! grows by an eighth of it at most, though there may be room; where most chunks are in use, by a
//! hundredth. A search for one chunk has no limit, since it finds whatever is free.
//!
//! A span is claimed chunk by chunk with CASes; whoever meets a chunk that is not free gives back
//! what it claimed and looks further. Holes among them get room before they are anyone's
//! (`holes.rs`); if the file system has none, the thread gives all back, and looks again for chunks
//! that have room.

use std::sync::atomic::Ordering;

use super::chunks::{Chunk, RESERVE_CHUNKS, decode, encode, is_hole_word};
use super::sizes::MAX_SPAN_CHUNKS;
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::layout::{CHUNK_BYTES, FRONTIER_OFF};
use crate::mutant;
use crate::pool::Pool;
use crate::slots::ReserveAccess;

/// Words of the chunk table that one search for freed chunks looks at, if the span is no longer
/// than sixteen.
const SEARCH_AT_ONCE: u64 = 128;
/// The same for each chunk of a longer span.
const SEARCH_A_CHUNK: u64 = 8;

/// Words of the chunk table that one shortage looks at before the pool is extended.
const SURVEY_AT_ONCE: u64 = 512;

/// What a search looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// So much that it costs little.
    Bounded,
    /// Everything.
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
        let available = self.claim_available(chunks, guard.reserve_access(), &mut no_room);
        let Err(error) = available else { return available };
        // The last resort: whatever is free anywhere, also what may come out of limbo, and soon the
        // empty slabs that this thread kept for sizes that it does not ask for now. (Thrice because
        // one collection gives back so much and no more; pinned, this thread lets one epoch pass at
        // most.)
        self.let_go_of_empty_slabs(guard);
        self.discover_again(guard);
        for _ in 0..3 {
            guard.collect();
        }
        let found = self.claim_freed(chunks, Search::Whole, &mut no_room);
        found.ok_or(no_room.unwrap_or(error))
    }

    /// The first three steps of a claim, also for a thread that is not pinned.
    pub(crate) fn claim_available(
        &self,
        chunks: u64,
        reserve_access: ReserveAccess,
        no_room: &mut Option<Error>,
    ) -> Result<u64> {
        if let Some(first) = self.claim_freed(chunks, Search::Bounded, no_room) {
            return Ok(first);
        }
        if self.survey(chunks)
            && let Some(first) = self.claim_freed(chunks, Search::Bounded, no_room)
        {
            return Ok(first);
        }
        self.claim_beyond_frontier(chunks, reserve_access)
    }

    /// Looks in the chunk table for chunks that earlier generations left free, from where the last
    /// survey ended; whether it found `wanted` of them. Only the table is read, not the chunks.
    pub(crate) fn survey(&self, wanted: u64) -> bool {
        let frontier = self.frontier();
        let mut found = 0;
        for _ in 0..SURVEY_AT_ONCE {
            if self.cache.surveyed.load(Ordering::Relaxed) >= frontier {
                return false;
            }
            let chunk = self.cache.surveyed.fetch_add(1, Ordering::Relaxed);
            if chunk < frontier && self.chunk(chunk).is_free() {
                self.cache.note_freed(1);
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
    /// it says so in `no_room`, and claims chunks that have room.
    fn claim_freed(&self, chunks: u64, search: Search, no_room: &mut Option<Error>) -> Option<u64> {
        let known = self.cache.freed_chunks();
        let most_words = match search {
            Search::Whole => u64::MAX,
            Search::Bounded if known < chunks => return None,
            Search::Bounded if chunks == 1 => u64::MAX,
            Search::Bounded => SEARCH_AT_ONCE.max(SEARCH_A_CHUNK * chunks),
        };
        let found = match self.search(chunks, most_words, Chunk::is_free) {
            Ok(found) => found,
            Err(error) => {
                *no_room = Some(error);
                // Of chunks that have room, each claim that fails is another thread's success.
                self.search(chunks, most_words, |chunk| chunk == Chunk::Free).unwrap_or(None)
            }
        };
        match found {
            Some(_) => self.cache.note_claimed(chunks),
            // Chunks are counted twice if they are freed before the cursor of `discover` has
            // passed.
            None if chunks == 1 => self.cache.forget_freed(known),
            None => {}
        }
        found
    }

    /// Looks at `most_words` words, or once at all, from where the last search for such a span
    /// ended.
    fn search(
        &self,
        chunks: u64,
        most_words: u64,
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
                None => match self.claim_exactly(first, chunks) {
                    Ok(()) => break Some(first),
                    Err(Unclaimed::Taken(taken)) => first = taken + 1,
                    Err(Unclaimed::NoRoom(error)) => return Err(error),
                },
            }
        };
        self.cache.search_on(chunks, found.map_or(first, |first| first + chunks));
        Ok(found)
    }

    /// How many words it looked at, and the last of the chunks from `first` that does not serve.
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

    fn claim_beyond_frontier(&self, chunks: u64, reserve_access: ReserveAccess) -> Result<u64> {
        let spare = if reserve_access == ReserveAccess::Without { RESERVE_CHUNKS } else { 0 };
        let frontier = self.word(FRONTIER_OFF);
        loop {
            let reached = frontier.load(Ordering::Acquire).min(self.geometry().max_chunks);
            let is_free = |&back: &u64| self.chunk(reached - back).is_free();
            let joined = (1..=chunks.min(reached)).take_while(is_free).count() as u64;
            let first = reached - joined;
            let end = first + chunks;
            if end + spare > self.geometry().max_chunks {
                return Err(Error::PoolFull {
                    requested_bytes: chunks * CHUNK_BYTES,
                    max_bytes: self.geometry().max_bytes,
                });
            }
            self.grow(self.geometry().chunk_off(end + spare))?;
            if end == reached || frontier.compare_exchange(reached, end).is_ok() {
                // Whoever uses a chunk makes durable first how far the pool reaches: see
                // `flush_extent`.
                match self.claim_exactly(first, chunks) {
                    Ok(()) => {
                        self.cache.note_claimed(joined);
                        return Ok(first);
                    }
                    // Someone searched below the new frontier and was faster. What is left of these
                    // chunks is free, and found as all that is.
                    Err(Unclaimed::Taken(_)) => continue,
                    Err(Unclaimed::NoRoom(error)) => {
                        self.cache.note_freed(chunks - joined);
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Claims the chunks from `first`, with room for all of them, or gives back what it claimed.
    fn claim_exactly(&self, first: u64, chunks: u64) -> Result<(), Unclaimed> {
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
            let mine = mine.map(|mine| encode(mine, self.generation()));
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
                let claimed = encode(claim(index), self.generation());
                self.chunk_word(index).store(claimed, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Gives back the chunks from `first` to `end`, as they were when they were claimed.
    fn unclaim(&self, first: u64, end: u64) {
        for index in first..end {
            let was = match self.chunk(index) {
                Chunk::HeldHole => Chunk::Hole,
                _ => Chunk::Free,
            };
            let word = encode(was, self.generation());
            self.chunk_word(index).store(word, Ordering::Release);
        }
    }
}

/// Why chunks were not claimed.
enum Unclaimed {
    /// This one is in use.
    Taken(u64),
    /// There are holes among them, and no room for those.
    NoRoom(Error),
}
