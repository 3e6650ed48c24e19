//! The allocator's data in process memory: which slabs have room, and which are claimed. A crash
//! loses nothing by losing it.
//!
//! Each size class has a stack of slabs with room (Treiber's, with a counter against ABA).
//! `slab_search.rs` says when a slab is on its stack, and who may claim it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::sizes::{CLASS_COUNT, MAX_SPAN_CHUNKS};
use super::used::Used;
use crate::layout::{CHUNK_BYTES, Geometry, MAX_POOL_BYTES};
use crate::sys::Zeroed;

const CURRENT: u32 = 1;
const LISTED: u32 = 2;
/// The version of the last claim is above the two flags. (If a thread sleeps through all 2^30
/// versions, and then takes a claim for its own, it allocates from another thread's slab. That is
/// allowed, as in a full pool.)
const VERSION: u32 = 4;

/// Bits of a stack's word that name a chunk. The other bits are a counter, which is large enough
/// that no thread sleeps through a whole round of it.
const TOP_BITS: u32 = 29;
const TOP_MASK: u64 = (1 << TOP_BITS) - 1;

const _: () = assert!(MAX_POOL_BYTES / CHUNK_BYTES <= TOP_MASK);
// A class fits into `listed_class`.
const _: () = assert!(CLASS_COUNT < 256);

#[derive(Debug)]
pub(crate) struct Cache {
    /// Lower 29 bits: chunk index plus one, zero if empty; above: counter.
    stacks: [AtomicU64; CLASS_COUNT],
    next: Zeroed<AtomicU32>,
    states: Zeroed<AtomicU32>,
    /// The class of the stack on which a listed chunk is.
    listed_class: Zeroed<AtomicU8>,
    /// Chunks that the search for slabs has visited, in all rounds. The first round ends when this
    /// reaches the frontier.
    pub discovered: AtomicU64,
    /// Words of the chunk table that the search for free chunks of earlier generations has read.
    pub surveyed: AtomicU64,
    freed: AtomicU64,
    /// The start of the next search for a span, by the number of bits of its length in chunks. The
    /// search for unused room shares the start for one chunk.
    search: [AtomicU64; SPAN_CLASSES],
    pub(super) used: Used,
}

/// Classes of spans, by length: each has its own start of the next search.
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

    /// Takes all current slabs, by class.
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

    /// The known number of free chunks below the frontier; a hint.
    pub fn freed_chunks(&self) -> u64 {
        self.freed.load(Ordering::Relaxed)
    }

    pub fn note_freed(&self, chunks: u64) {
        self.freed.fetch_add(chunks, Ordering::Relaxed);
    }

    /// Notes that a search found no free chunk, though `known` were counted. Does nothing if the
    /// count has changed since.
    pub fn forget_freed(&self, known: u64) {
        let _ = self.freed.compare_exchange(known, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn note_claimed(&self, chunks: u64) {
        // The hint only steers the search, so it may be wrong; it must not wrap below zero.
        let _ = self.freed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |freed| {
            Some(freed.saturating_sub(chunks))
        });
    }

    /// The first chunk of the next search for a span of `chunks` chunks.
    pub fn search_from(&self, chunks: u64, frontier: u64) -> u64 {
        // Relaxed, here and below: a hint, which only steers the search.
        let from = self.search[span_class(chunks)].load(Ordering::Relaxed);
        if from < frontier { from } else { 0 }
    }

    /// Sets the first chunk of the next search for a span of that length.
    pub fn search_on(&self, chunks: u64, from: u64) {
        self.search[span_class(chunks)].store(from, Ordering::Relaxed);
    }

    pub fn is_current(&self, chunk: u64) -> bool {
        self.states[chunk as usize].load(Ordering::Acquire) & CURRENT != 0
    }

    /// Claims the chunk; none if another thread has it.
    pub fn claim_current(&self, chunk: u64) -> Option<Claim> {
        self.change(chunk, |found| {
            (found & CURRENT == 0).then(|| (found | CURRENT).wrapping_add(VERSION))
        })
    }

    /// Takes the claim from the thread that has it; none if no thread has it.
    pub fn take_claim(&self, chunk: u64) -> Option<Claim> {
        self.change(chunk, |found| (found & CURRENT != 0).then(|| found.wrapping_add(VERSION)))
    }

    /// Whether the claim is still valid.
    #[inline]
    pub fn holds(&self, claim: Claim) -> bool {
        claim.is_in(self.states[claim.chunk as usize].load(Ordering::Acquire))
    }

    /// Ends the claim; false if another thread has taken it.
    pub fn clear_current(&self, claim: Claim) -> bool {
        self.change(claim.chunk, |found| claim.is_in(found).then_some(found & !CURRENT)).is_some()
    }

    /// Replaces the chunk's state by the result of `change`, unless that is none. Returns the claim
    /// of the new state.
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
        // Relaxed: `unlist` reads it after the epochs of the slab that this pinned thread has seen
        // in the chunk.
        self.listed_class[chunk as usize].store(class as u8, Ordering::Relaxed);
        self.push(chunk, class);
    }

    /// The class of the stack on which the chunk is, if it is listed.
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
        // Even if this comes late, it clears the flag of this pop: the chunk is not listed again
        // before.
        self.states[chunk as usize].fetch_and(!LISTED, Ordering::AcqRel);
        Some(chunk)
    }

    fn push(&self, chunk: u64, class: usize) {
        let stack = &self.stacks[class];
        let mut head = stack.load(Ordering::Acquire);
        loop {
            // Relaxed: the CAS below publishes it (release), and `pop` reads it (acquire).
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
            // If the slab was popped meanwhile, this value is stale, and the CAS fails on the
            // counter.
            let next = self.next[chunk as usize].load(Ordering::Relaxed);
            let popped = counted(head) | u64::from(next);
            match stack.compare_exchange(head, popped, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(chunk),
                Err(other) => head = other,
            }
        }
    }
}

/// The counter bits of a stack's word, plus one.
fn counted(head: u64) -> u64 {
    (head & !TOP_MASK).wrapping_add(1 << TOP_BITS)
}
