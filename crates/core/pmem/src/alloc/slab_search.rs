//! Slabs with room: how a thread finds one, has it to itself, and lets go of it.
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

use std::sync::atomic::Ordering;

use super::cache::Claim;
use super::chunks::Chunk;
use super::sizes::CLASS_COUNT;
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::pool::Pool;
use crate::word::barrier_after_swap;

/// Chunks that one shortage looks at before it takes a fresh chunk.
const DISCOVER_AT_ONCE: u64 = 8;
/// Chunks that are looked at again when the pool is full.
const AGAIN_AT_ONCE: u64 = 64;
impl<D: Domain> Pool<D> {
    /// A slab of `class` with room, now this participant's.
    pub(crate) fn find_slab(&self, guard: &Guard<'_, D>, class: usize) -> Option<Claim> {
        loop {
            while let Some(chunk) = self.cache.pop_listed(class) {
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

    /// Readies a chunk that is free to become a slab: takes it off the stack on which it may have
    /// been left, with all others there that are no slabs of that class any more.
    pub(crate) fn unlist(&self, chunk: u64) {
        let Some(class) = self.cache.listed_class(chunk) else { return };
        let mut kept = Vec::new();
        while self.cache.listed_class(chunk).is_some() {
            match self.cache.pop_listed(class) {
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
            if self.cache.is_idle(chunk) {
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
