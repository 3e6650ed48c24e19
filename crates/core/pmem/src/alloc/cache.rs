//! What the allocator keeps in process memory: which slabs have room. Losing it costs nothing.
//!
//! Each size class has a stack of slabs with room (Treiber's, with a counter against ABA). A slab
//! is *current*, *listed* (on a stack) or neither; when it is neither and a block of it is given
//! back, it is listed. A listed slab may be dissolved, so whoever pops a chunk looks what it is
//! now; and before a chunk becomes a slab again, it is taken off the stack on which it may still
//! stand, so that no chunk stands on two.
//!
//! *Current* is a claim that one thread has: to allocate from the slab, or to dissolve it. Nobody
//! but its maker has it before the chunk table says durably that it is a slab. It is claimed of a
//! chunk that the claimer, pinned, has seen to be a slab, and that is looked at again afterwards:
//! if it was dissolved in between, it becomes no slab before the claimer has let go of it and of
//! its epoch. So who makes a slab of a chunk always finds it unclaimed.
//!
//! A claim has a *version*, which each new claim of the chunk raises. A thread that is refused
//! room takes the claims of slabs that are empty from other threads, by raising the version, and
//! dissolves these slabs ([`Pool::take_empty_slabs`]): so chunks that idle threads kept for sizes
//! of their own join, and the next attempt finds them. A thread looks at the version before it
//! allocates from its slab, and forgets a slab that is no longer its own. If the claim is taken
//! right after that look, the two meet at the taken bits, as below: either the block is taken and
//! the slab does not dissolve, or the slab is dissolved and has no free block. The thread is
//! pinned, so the chunk becomes nothing else before it is done.
//!
//! When a pool is full, others take blocks from current slabs too ([`Pool::reserve_in_others`]): a
//! claim of a block is a CAS, whoever does it. They then make the table's word durable themselves.
//!
//! Slabs of earlier generations are unknown at first. A cursor passes over the chunks that were
//! there at opening, a few at each shortage; it lists the slabs with room that it finds, and
//! dissolves the empty ones.
//!
//! A thread that stops for ever with a slab in its hands leaves it on no stack, and one that stops
//! while it takes a chunk off a stack may have many in its hands. So the cursor goes round the
//! chunks again, some at each time that a pool is full, and does the same.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::chunks::Chunk;
use super::used::Used;
use super::{CLASS_COUNT, MAX_SPAN_CHUNKS, slab};
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::layout::{CHUNK_BYTES, Geometry, MAX_POOL_BYTES};
use crate::pool::Pool;
use crate::sys::Zeroed;
use crate::word::barrier_after_swap;

/// Chunks that one shortage looks at before it takes a fresh chunk.
const DISCOVER_AT_ONCE: u64 = 8;
/// Chunks that are looked at again when the pool is full.
const AGAIN_AT_ONCE: u64 = 64;
/// Words of the chunk table that one shortage looks at before the pool is extended.
const SURVEY_AT_ONCE: u64 = 512;

const CURRENT: u32 = 1;
const LISTED: u32 = 2;
/// The version of the last claim stands above the two flags. (A thread that sleeps through all
/// 2^30 of them, and then takes the claim for its own, allocates from another's slab, as it may
/// when a pool is full.)
const VERSION: u32 = 4;

/// Bits of a stack's word that name a chunk; the others count, so that a thread that has slept
/// through a whole round of the counter, and then finds the same chunk on top, need not be thought
/// of.
const TOP_BITS: u32 = 29;
const TOP_MASK: u64 = (1 << TOP_BITS) - 1;

const _: () = assert!(MAX_POOL_BYTES / CHUNK_BYTES <= TOP_MASK);

#[derive(Debug)]
pub(crate) struct Cache {
    /// Lower 29 bits: chunk index plus one, zero if empty; above: counter.
    stacks: [AtomicU64; CLASS_COUNT],
    next: Zeroed<AtomicU32>,
    states: Zeroed<AtomicU32>,
    /// On the stack of which class a listed chunk stands.
    listed_class: Zeroed<AtomicU8>,
    /// Chunks in which slabs were looked for, in all rounds. The first round is over when it has
    /// reached the frontier.
    discovered: AtomicU64,
    surveyed: AtomicU64,
    freed: AtomicU64,
    /// Where the next search for a span goes on, by the number of bits of its length in chunks. The
    /// look for room that is not used goes on with the search for one chunk.
    search: [AtomicU64; SPAN_CLASSES],
    pub(super) used: Used,
}

/// Lengths of spans that are told apart where a search goes on.
const SPAN_CLASSES: usize = (u64::BITS - MAX_SPAN_CHUNKS.leading_zeros()) as usize;

fn span_class(chunks: u64) -> usize {
    (u64::BITS - chunks.leading_zeros()) as usize - 1
}

/// A thread's claim of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub chunk: u64,
    version: u32,
}

impl Claim {
    const NONE: Self = Self { chunk: u64::MAX, version: 0 };

    fn is_in(self, state: u32) -> bool {
        state & !LISTED == self.version | CURRENT
    }
}

/// The slabs that one participant allocates from.
#[derive(Debug)]
pub(crate) struct SlabCache {
    current: [Cell<Claim>; CLASS_COUNT],
    hints: [Cell<u64>; CLASS_COUNT],
}

impl Default for SlabCache {
    fn default() -> Self {
        Self {
            current: [const { Cell::new(Claim::NONE) }; CLASS_COUNT],
            hints: [const { Cell::new(0) }; CLASS_COUNT],
        }
    }
}

impl SlabCache {
    pub fn current(&self, class: usize) -> Option<Claim> {
        Some(self.current[class].get()).filter(|&claim| claim != Claim::NONE)
    }

    pub fn set_current(&self, class: usize, claim: Claim) {
        self.current[class].set(claim);
        self.hints[class].set(0);
    }

    pub fn clear(&self, class: usize) {
        self.current[class].set(Claim::NONE);
    }

    /// All current slabs, by class; then there are none.
    pub fn take(&self) -> Vec<(usize, Claim)> {
        let take = |class| {
            let current = self.current(class);
            self.clear(class);
            current.map(|claim| (class, claim))
        };
        (0..CLASS_COUNT).filter_map(take).collect()
    }

    pub fn hint(&self, class: usize) -> u64 {
        self.hints[class].get()
    }

    pub fn set_hint(&self, class: usize, word: u64) {
        self.hints[class].set(word);
    }
}

impl Cache {
    pub fn new(geometry: &Geometry) -> std::io::Result<Self> {
        Ok(Self {
            stacks: [const { AtomicU64::new(0) }; CLASS_COUNT],
            next: Zeroed::new(geometry.max_chunks)?,
            states: Zeroed::new(geometry.max_chunks)?,
            listed_class: Zeroed::new(geometry.max_chunks)?,
            discovered: AtomicU64::new(0),
            surveyed: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            search: [const { AtomicU64::new(0) }; SPAN_CLASSES],
            used: Used::default(),
        })
    }

    /// Chunks known to be free below the frontier; a hint.
    pub fn freed_chunks(&self) -> u64 {
        self.freed.load(Ordering::Relaxed)
    }

    pub fn note_freed(&self, chunks: u64) {
        self.freed.fetch_add(chunks, Ordering::Relaxed);
    }

    /// A search found none free, and `known` were said to be; unless more have come since.
    pub fn forget_freed(&self, known: u64) {
        let _ = self.freed.compare_exchange(known, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn note_claimed(&self, chunks: u64) {
        // A hint that only steers the search, so it may be off; it must not wrap below zero.
        let _ = self.freed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |freed| {
            Some(freed.saturating_sub(chunks))
        });
    }

    /// Where a search for a span of so many chunks begins.
    pub fn search_from(&self, chunks: u64, frontier: u64) -> u64 {
        // Relaxed, here and below: a hint, which only steers the search.
        let from = self.search[span_class(chunks)].load(Ordering::Relaxed);
        if from < frontier { from } else { 0 }
    }

    /// Where the next search for a span of that length begins.
    pub fn search_on(&self, chunks: u64, from: u64) {
        self.search[span_class(chunks)].store(from, Ordering::Relaxed);
    }

    pub fn is_current(&self, chunk: u64) -> bool {
        self.states[chunk as usize].load(Ordering::Acquire) & CURRENT != 0
    }

    /// Claims the chunk; none if another has it.
    pub fn claim_current(&self, chunk: u64) -> Option<Claim> {
        self.change(chunk, |found| {
            (found & CURRENT == 0).then(|| (found | CURRENT).wrapping_add(VERSION))
        })
    }

    /// Takes the claim from whoever has it; none if nobody has, or it changes now.
    fn take_claim(&self, chunk: u64) -> Option<Claim> {
        self.change(chunk, |found| (found & CURRENT != 0).then(|| found.wrapping_add(VERSION)))
    }

    /// Whether the claim still stands.
    #[inline]
    pub fn holds(&self, claim: Claim) -> bool {
        claim.is_in(self.states[claim.chunk as usize].load(Ordering::Acquire))
    }

    /// Ends the claim; false if another has taken it.
    pub fn clear_current(&self, claim: Claim) -> bool {
        self.change(claim.chunk, |found| claim.is_in(found).then_some(found & !CURRENT)).is_some()
    }

    /// Changes the chunk's state as `change` says, unless that is none; then the claim that the
    /// state names.
    fn change(&self, chunk: u64, change: impl Fn(u32) -> Option<u32>) -> Option<Claim> {
        let state = &self.states[chunk as usize];
        let mut found = state.load(Ordering::Acquire);
        loop {
            let new = change(found)?;
            match state.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Claim { chunk, version: new & !(CURRENT | LISTED) }),
                Err(other) => found = other,
            }
        }
    }

    /// Lists a slab that is neither listed nor current.
    pub fn list(&self, chunk: u64, class: usize) {
        let listed = |found| (found & (CURRENT | LISTED) == 0).then_some(found | LISTED);
        if self.change(chunk, listed).is_none() {
            return;
        }
        // Relaxed: read by `unlist`, which comes after the grace of the slab that this thread,
        // pinned, has seen in the chunk.
        self.listed_class[chunk as usize].store(class as u8, Ordering::Relaxed);
        self.push(chunk, class);
    }

    fn push(&self, chunk: u64, class: usize) {
        let stack = &self.stacks[class];
        let mut head = stack.load(Ordering::Acquire);
        loop {
            // Relaxed: published by the CAS below (release), read by `pop` (acquire).
            self.next[chunk as usize].store((head & TOP_MASK) as u32, Ordering::Relaxed);
            let pushed = counted(head) | (chunk + 1);
            match stack.compare_exchange(head, pushed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => head = other,
            }
        }
    }

    fn pop(&self, class: usize) -> Option<u64> {
        let stack = &self.stacks[class];
        let mut head = stack.load(Ordering::Acquire);
        loop {
            let chunk = (head & TOP_MASK).checked_sub(1)?;
            // If the slab was popped meanwhile, this is stale, and the CAS fails on the counter.
            let next = self.next[chunk as usize].load(Ordering::Relaxed);
            let popped = counted(head) | u64::from(next);
            match stack.compare_exchange(head, popped, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(chunk),
                Err(other) => head = other,
            }
        }
    }
}

/// The counter of a stack's word, one on.
fn counted(head: u64) -> u64 {
    (head & !TOP_MASK).wrapping_add(1 << TOP_BITS)
}

impl<D: Domain> Pool<D> {
    /// A slab of `class` with room, now this participant's.
    pub(crate) fn find_slab(&self, guard: &Guard<'_, D>, class: usize) -> Option<Claim> {
        loop {
            while let Some(chunk) = self.pop_listed(class) {
                if let Some(claim) = self.claim_slab(chunk, class) {
                    return Some(claim);
                }
            }
            if !self.discover(guard, class) {
                return None;
            }
        }
    }

    /// Claims a slab of `class`; none if the chunk is no such slab any more, or another has it.
    fn claim_slab(&self, chunk: u64, class: usize) -> Option<Claim> {
        let is_slab = || self.chunk(chunk) == Chunk::Slab { class };
        let claim = if is_slab() { self.cache.claim_current(chunk) } else { None }?;
        if is_slab() {
            return Some(claim);
        }
        // Dissolved meanwhile.
        self.cache.clear_current(claim);
        None
    }

    fn pop_listed(&self, class: usize) -> Option<u64> {
        let chunk = self.cache.pop(class)?;
        // However late this comes, it takes away what this pop is about: nobody lists the chunk
        // again before.
        self.cache.states[chunk as usize].fetch_and(!LISTED, Ordering::AcqRel);
        Some(chunk)
    }

    /// Readies a chunk that is free to become a slab: takes it off the stack on which it may have
    /// been left, with all others there that are no slabs of that class any more.
    pub(crate) fn unlist(&self, chunk: u64) {
        let listed = || self.cache.states[chunk as usize].load(Ordering::Acquire) & LISTED != 0;
        if !listed() {
            return;
        }
        let class = usize::from(self.cache.listed_class[chunk as usize].load(Ordering::Relaxed));
        let mut kept = Vec::new();
        while listed() {
            match self.pop_listed(class) {
                Some(other) if self.chunk(other) == (Chunk::Slab { class }) => kept.push(other),
                Some(_) => {}
                // Another thread has popped it and is about to say so.
                None => break,
            }
        }
        for other in kept {
            self.cache.list(other, class);
        }
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

    /// Looks at all chunks that nobody has looked at since the pool was opened.
    pub(crate) fn discover_all(&self, guard: &Guard<'_, D>) {
        while self.cache.discovered.load(Ordering::Relaxed) < self.frontier() {
            self.discover(guard, CLASS_COUNT);
        }
    }

    /// Looks again at the next few chunks, when all have been looked at.
    pub(crate) fn discover_again(&self, guard: &Guard<'_, D>) {
        let frontier = self.frontier();
        for _ in 0..AGAIN_AT_ONCE.min(frontier) {
            let chunk = self.cache.discovered.fetch_add(1, Ordering::Relaxed) % frontier;
            let state = self.cache.states[chunk as usize].load(Ordering::Acquire);
            if state & (CURRENT | LISTED) == 0 {
                self.list_or_dissolve(guard, chunk, CLASS_COUNT);
            }
        }
    }

    /// Looks at the next few chunks of earlier generations; whether a slab of `wanted` with room
    /// was among them. Empty slabs of other classes dissolve.
    fn discover(&self, guard: &Guard<'_, D>, wanted: usize) -> bool {
        let mut listed = false;
        for _ in 0..DISCOVER_AT_ONCE {
            let frontier = self.frontier();
            if self.cache.discovered.load(Ordering::Relaxed) >= frontier {
                return listed;
            }
            let chunk = self.cache.discovered.fetch_add(1, Ordering::Relaxed);
            if chunk >= frontier {
                return listed;
            }
            listed |= self.list_or_dissolve(guard, chunk, wanted);
        }
        listed
    }

    /// Lists the chunk if it is a slab with room, or dissolves it if nothing is in it. Whether it
    /// is one of `wanted`, which does not dissolve. A slab that a thread has claimed stays as it
    /// is.
    fn list_or_dissolve(&self, guard: &Guard<'_, D>, chunk: u64, wanted: usize) -> bool {
        match self.chunk(chunk) {
            Chunk::Slab { class } if self.has_room(chunk, class) => {
                if class != wanted && self.is_empty(chunk, class) {
                    self.dissolve_or_list(guard, chunk, class);
                } else {
                    self.cache.list(chunk, class);
                }
                class == wanted
            }
            _ => false,
        }
    }

    /// Dissolves a slab in which nothing is taken, or else lists it, if it is nobody's. Whose it is
    /// sees to it later.
    pub(crate) fn dissolve_or_list(&self, guard: &Guard<'_, D>, chunk: u64, class: usize) {
        if let Some(claim) = self.claim_slab(chunk, class) {
            self.dissolve_or_release(guard, claim, class);
        }
    }

    fn dissolve_or_release(&self, guard: &Guard<'_, D>, claim: Claim, class: usize) {
        if !self.dissolve_slab(guard, claim, class) {
            self.release_current(guard, claim, class);
        }
    }

    /// Dissolves the slabs that hold nothing and that are this thread's, those of threads that have
    /// ended, or nobody's yet.
    pub(crate) fn let_go_of_empty_slabs(&self, guard: &Guard<'_, D>) {
        let own = &guard.local().slabs;
        self.let_go_of_ended_slabs();
        for class in 0..CLASS_COUNT {
            let Some(claim) = own.current(class) else { continue };
            if !self.cache.holds(claim) {
                own.clear(class);
            } else if self.is_empty(claim.chunk, class) {
                own.clear(class);
                self.dissolve_or_release(guard, claim, class);
            }
        }
        self.discover_all(guard);
    }

    /// Dissolves the slabs that hold nothing, whosever they are, for a thread that is refused room:
    /// their chunks join what is free beside them when nobody can look at them any more.
    #[cold]
    pub(crate) fn take_empty_slabs(&self, guard: &Guard<'_, D>) {
        for chunk in (0..self.frontier()).filter(|&chunk| self.cache.is_current(chunk)) {
            let Chunk::Slab { class } = self.chunk(chunk) else { continue };
            if self.is_empty(chunk, class)
                && let Some(claim) = self.cache.take_claim(chunk)
            {
                self.dissolve_or_release(guard, claim, class);
            }
        }
    }

    /// Lets go of a slab that is this thread's, if it still is.
    pub(crate) fn release_current(&self, guard: &Guard<'_, D>, claim: Claim, class: usize) {
        let (mut claim, chunk) = (claim, claim.chunk);
        loop {
            if !self.cache.clear_current(claim) {
                // Who took the claim sees to the slab.
                return;
            }
            barrier_after_swap();
            // A block may have come back between the last look and the store. Who gives it back
            // later sees that the slab is nobody's (`release_in_slab`). The language asks for the
            // barrier: acquire alone lets both miss the other
            // (`crates/testing/models/src/slab.rs`).
            if self.chunk(chunk) != (Chunk::Slab { class }) || !self.has_room(chunk, class) {
                return;
            }
            // Who gave the last block back may have met this thread's claim.
            let again =
                if self.is_empty(chunk, class) { self.claim_slab(chunk, class) } else { None };
            let Some(again) = again else {
                self.cache.list(chunk, class);
                return;
            };
            if self.dissolve_slab(guard, again, class) {
                return;
            }
            claim = again;
        }
    }
}

const _: () = assert!(slab::HEADER_BYTES == 512);
