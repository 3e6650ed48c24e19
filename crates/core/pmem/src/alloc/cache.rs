//! What the allocator keeps in process memory: which slabs have room, and whose they are; losing it
//! costs nothing.
//!
//! Each size class has a stack of slabs with room (Treiber's, with a counter against ABA).
//! `slab_search.rs` says when a slab stands there, and who may claim it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::sizes::{CLASS_COUNT, MAX_SPAN_CHUNKS};
use super::used::Used;
use crate::layout::{CHUNK_BYTES, Geometry, MAX_POOL_BYTES};
use crate::sys::Zeroed;

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
// A class fits `listed_class`.
const _: () = assert!(CLASS_COUNT < 256);

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
    pub discovered: AtomicU64,
    /// Words of the chunk table in which free chunks were looked for.
    pub surveyed: AtomicU64,
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
    pub fn take_claim(&self, chunk: u64) -> Option<Claim> {
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

    /// The class of the stack on which the chunk stands, if it is listed.
    pub fn listed_class(&self, chunk: u64) -> Option<usize> {
        let state = self.states[chunk as usize].load(Ordering::Acquire);
        let class = || self.listed_class[chunk as usize].load(Ordering::Relaxed);
        (state & LISTED != 0).then(|| class().into())
    }

    /// Whether the chunk is neither listed nor current.
    pub fn is_idle(&self, chunk: u64) -> bool {
        self.states[chunk as usize].load(Ordering::Acquire) & (CURRENT | LISTED) == 0
    }

    /// Takes a slab off the stack of `class`.
    pub fn pop_listed(&self, class: usize) -> Option<u64> {
        let chunk = self.pop(class)?;
        // However late this comes, it takes away what this pop is about: nobody lists the chunk
        // again before.
        self.states[chunk as usize].fetch_and(!LISTED, Ordering::AcqRel);
        Some(chunk)
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
