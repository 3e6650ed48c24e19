//! Slabs with room: how a thread finds one, claims it, and releases it.
//!
//! Each size class has a stack of slabs with room (`cache.rs`). A slab is *current*, *listed* (on
//! the stack) or neither. If it is neither, and a block of it is given back, it is listed. A listed
//! slab may be dissolved, so a thread that pops a chunk checks how the chunk is used now. Before a
//! chunk becomes a slab again, it is taken off the stack on which it may still be. So no chunk is
//! on two stacks.
//!
//! *Current* means that one thread has claimed the slab, to allocate from it or to dissolve it.
//! Only the thread that makes a slab has it before the chunk table says durably that it is a slab.
//! Another thread claims a chunk that it, pinned, has seen to be a slab, and checks the chunk again
//! afterwards. If the slab was dissolved in between, the chunk becomes no slab before the claiming
//! thread has released the claim, and unpinned. So a thread that makes a slab of a chunk always
//! finds it unclaimed.
//!
//! A claim has a *version*, which each new claim of the chunk raises. A thread that is refused room
//! takes the claims of empty slabs from other threads, by raising the version, and dissolves these
//! slabs ([`Pool::take_empty_slabs`]). So chunks that idle threads kept for their size classes can
//! join into spans, and the next attempt finds them. A thread checks the version before it
//! allocates from its slab, and forgets a slab that is no longer its own. If the claim is taken
//! right after that check, the taken bits decide, as below: either the block is taken and the slab
//! does not dissolve, or the slab is dissolved and has no free block. The thread is pinned, so the
//! chunk is not reused before it has finished.
//!
//! In a full pool, threads take blocks from other threads' current slabs too
//! ([`Pool::reserve_in_others`]): a block is claimed by a CAS, by any thread. They then make the
//! table's word durable themselves.
//!
//! Slabs of earlier generations are unknown at first. A cursor passes over the chunks that existed
//! at opening, a few at each shortage. It lists the slabs with room, and dissolves the empty ones.
//!
//! Claims and stacks are process memory. If several processes share the pool (`processes.rs`), each
//! has its own, and may claim the same slab. Then the taken bits decide, as in a full pool: they
//! say which process has a block, and which one dissolves an empty slab. A process that allocates
//! from its current slab looks at the chunk's word each time, so it finds that another one has
//! dissolved the slab. A slab with room that another process has listed is found by the cursor,
//! which goes round and round for that.
//!
//! A thread that stalls while it has taken a slab off a stack leaves it on no stack. A thread that
//! stalls in [`Pool::unlist`] may have taken many. So the cursor passes over the chunks again, some
//! each time that the pool is full, and lists such slabs.

use std::sync::atomic::Ordering;

use super::cache::Claim;
use super::chunks::Chunk;
use super::sizes::CLASS_COUNT;
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::mutant;
use crate::pool::Pool;
use crate::word::barrier_after_swap;

/// Chunks that the cursor visits at one shortage, before a new slab is made.
const DISCOVER_AT_ONCE: u64 = 8;
/// Chunks that the cursor visits again when the pool is full.
const AGAIN_AT_ONCE: u64 = 64;
impl<D: Domain> Pool<D> {
    /// Finds and claims a slab of `class` with room.
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

    /// Claims a slab of `class`; none if the chunk is no such slab any more, or another thread has
    /// it.
    fn claim_slab(&self, chunk: u64, class: usize) -> Option<Claim> {
        let is_slab = || self.chunk(chunk) == Chunk::Slab { class };
        let claim = if is_slab() { self.cache.claim_current(chunk) } else { None }?;
        if is_slab() {
            // A thread of an earlier generation may have been killed before it wrote the word back.
            // This thread fences before a durable word names a block of the slab.
            if !mutant!("killed-threads-slab-believed") {
                self.chunk_word(chunk).flush();
            }
            return Some(claim);
        }
        // The slab was dissolved meanwhile.
        self.cache.clear_current(claim);
        None
    }

    /// Prepares a free chunk to become a slab: takes it off the stack on which it may still be,
    /// with all other chunks there that are no slabs of that class any more.
    pub(crate) fn unlist(&self, chunk: u64) {
        let Some(class) = self.cache.listed_class(chunk) else { return };
        let mut kept = Vec::new();
        while self.cache.listed_class(chunk).is_some() {
            match self.cache.pop_listed(class) {
                Some(other) if self.chunk(other) == (Chunk::Slab { class }) => kept.push(other),
                Some(_) => {}
                // Another thread has popped it, and will clear its flag.
                None => break,
            }
        }
        for other in kept {
            self.cache.list(other, class);
        }
    }

    /// Visits all chunks that the cursor has not visited since the pool was opened.
    pub(crate) fn discover_all(&self, guard: &Guard<'_, D>) {
        while self.cache.discovered.load(Ordering::Relaxed) < self.frontier() {
            self.discover(guard, CLASS_COUNT);
        }
    }

    /// Visits the next few chunks again, after all were visited.
    pub(crate) fn discover_again(&self, guard: &Guard<'_, D>) {
        let frontier = self.frontier();
        for _ in 0..AGAIN_AT_ONCE.min(frontier) {
            let chunk = self.cache.discovered.fetch_add(1, Ordering::Relaxed) % frontier;
            if self.cache.is_idle(chunk) {
                self.list_or_dissolve(guard, chunk, CLASS_COUNT);
            }
        }
    }

    /// Visits the next few chunks of earlier generations; returns whether a slab of `wanted` with
    /// room was among them. Dissolves empty slabs of other classes.
    fn discover(&self, guard: &Guard<'_, D>, wanted: usize) -> bool {
        let mut listed = false;
        for _ in 0..DISCOVER_AT_ONCE {
            let frontier = self.frontier();
            let goes_round = self.is_shared() && frontier > 0;
            if self.cache.discovered.load(Ordering::Relaxed) >= frontier && !goes_round {
                return listed;
            }
            let chunk = self.cache.discovered.fetch_add(1, Ordering::Relaxed);
            if chunk < frontier {
                listed |= self.list_or_dissolve(guard, chunk, wanted);
            } else if !goes_round {
                return listed;
            } else if self.cache.is_idle(chunk % frontier) {
                listed |= self.list_or_dissolve(guard, chunk % frontier, wanted);
            }
        }
        listed
    }

    /// Lists the chunk if it is a slab with room, or dissolves it if it is empty and not of
    /// `wanted`. Returns whether it is a slab of `wanted` with room. A claimed slab stays as it is.
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

    /// Dissolves a slab if no block of it is taken, or else lists it. If a thread has claimed the
    /// slab, that thread does so later.
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

    /// Dissolves the empty slabs of this thread, of threads that have ended, and of earlier
    /// generations.
    pub(crate) fn dissolve_empty_slabs(&self, guard: &Guard<'_, D>) {
        let own = &guard.local().slabs;
        self.release_ended_slabs();
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

    /// Dissolves the empty slabs of all threads, for a thread that is refused room. Their chunks
    /// become free when no thread can read them any more.
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

    /// Releases a slab, if this thread still has it.
    pub(crate) fn release_current(&self, guard: &Guard<'_, D>, claim: Claim, class: usize) {
        let (mut claim, chunk) = (claim, claim.chunk);
        loop {
            if !self.cache.clear_current(claim) {
                // The thread that took the claim lists or dissolves the slab.
                return;
            }
            barrier_after_swap();
            // A block may have been given back between the last check and the end of the claim. A
            // thread that gives one back later sees that the slab is unclaimed (`release_in_slab`).
            // The language needs the barrier: with acquire alone, both threads may miss the other's
            // change (`crates/testing/models/src/slab.rs`).
            if self.chunk(chunk) != (Chunk::Slab { class }) || !self.has_room(chunk, class) {
                return;
            }
            // The thread that gave the last block back may have seen this thread's claim.
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
