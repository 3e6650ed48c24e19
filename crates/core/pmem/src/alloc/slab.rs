//! Slabs: chunks that hold blocks of one size.
//!
//! ```text
//! byte    0        8 .. 63   64 .. 191             192 .. 447                  448 .. 511
//! 0       class    zero      active: 16 words      taken: 32 words             zero
//! 512     block 0, block 1, ...
//! ```
//!
//! * `class` is the size class, with [`SLAB_MARK`] above it.
//! * `active`: one bit for each block, durable: the block belongs to a word somewhere.
//! * `taken`: each word has bits for 32 blocks. The upper half has the lower 24 bits of the
//!   generation, and the stamp of the newest census at the last change (`census.rs`). A word of an
//!   earlier generation counts as a copy of the active bits. A block may be taken if its bit is
//!   clear.
//!
//! Why a claim by CAS on `taken` is correct: an active bit is set and cleared only while the
//! block's taken bit is set in a word of this generation. So when a CAS succeeds that found the
//! taken bit clear in such a word, the block has no owner, though it may have been allocated and
//! freed since the word was read. A word of an earlier generation never comes back once it was
//! replaced. So the active bits that stand for its taken bits have not changed since either.
//!
//! A chunk stops being a slab only after one thread, which has claimed it (`slab_search.rs`), has
//! taken all its blocks. Then the table's word changes, and the chunk waits for its epoch. So a
//! thread that saw the chunk as a slab still finds these words when it reads them.

use std::sync::atomic::Ordering;

use super::cache::Claim;
use super::chunks::{Chunk, is_of, stamp_of};
use super::sizes::{CLASS_BYTES, CLASS_COUNT, SLAB_HEADER_BYTES};
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::layout::CHUNK_BYTES;
use crate::mutant;
use crate::pool::Pool;
use crate::slots::ReserveAccess;
use crate::word::{Word, barrier_after_swap};

const SLAB_MARK: u64 = 0x5AB0 << 48;
pub(crate) const ACTIVE_AT: u64 = 64;
const TAKEN_AT: u64 = 192;

const _: () = {
    let most_blocks = (CHUNK_BYTES - SLAB_HEADER_BYTES) / 64;
    assert!(ACTIVE_AT + most_blocks.div_ceil(64) * 8 <= TAKEN_AT);
    assert!(TAKEN_AT + most_blocks.div_ceil(32) * 8 <= SLAB_HEADER_BYTES);
};

/// A block of a slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub chunk: u64,
    pub class: usize,
    pub block: u64,
}

impl Place {
    pub fn bytes(&self) -> u64 {
        CLASS_BYTES[self.class]
    }

    fn active_mask(&self) -> u64 {
        1 << (self.block % 64)
    }
}

pub(crate) fn blocks_of(class: usize) -> u64 {
    (CHUNK_BYTES - SLAB_HEADER_BYTES) / CLASS_BYTES[class]
}

/// The bits of taken word `index` that belong to blocks.
fn valid_bits(class: usize, index: u64) -> u32 {
    match blocks_of(class) - index * 32 {
        blocks @ 0..32 => (1 << blocks) - 1,
        _ => u32::MAX,
    }
}

/// The largest class of which the thread takes blocks, if there are none of `class`.
fn largest_instead<D: Domain>(guard: &Guard<'_, D>, class: usize) -> usize {
    let bytes = CLASS_BYTES[class];
    match guard.is_fitting() {
        true => CLASS_BYTES.partition_point(|&larger| larger <= bytes + bytes / 4) - 1,
        false => CLASS_COUNT - 1,
    }
}

impl<D: Domain> Pool<D> {
    fn active_word(&self, chunk: u64, index: u64) -> Word<'_, D> {
        self.word(self.geometry().chunk_off(chunk) + ACTIVE_AT + index * 8)
    }

    fn taken_word(&self, chunk: u64, index: u64) -> Word<'_, D> {
        self.word(self.geometry().chunk_off(chunk) + TAKEN_AT + index * 8)
    }

    /// The number of active blocks among those of active word `index`.
    pub(crate) fn active_count(&self, chunk: u64, index: u64) -> u32 {
        self.active_word(chunk, index).load(Ordering::Acquire).count_ones()
    }

    fn active_bits(&self, chunk: u64, index: u64) -> u32 {
        let word = self.active_word(chunk, index / 2).load(Ordering::Acquire);
        (word >> (index % 2 * 32)) as u32
    }

    /// The taken bits of `word`, as they count in this generation.
    fn taken_bits(&self, chunk: u64, index: u64, word: u64) -> u32 {
        if mutant!("stale-taken-bits") || is_of(word, self.generation()) {
            word as u32
        } else {
            self.active_bits(chunk, index)
        }
    }

    fn tagged(&self, bits: u32) -> u64 {
        u64::from(self.tag()) << 32 | u64::from(bits)
    }

    /// The block at `off`, if `off` is the first byte of a block of a slab.
    pub(crate) fn slab_place(&self, off: u64) -> Result<Place> {
        let bad = |reason| Error::BadFree { off, reason };
        let chunk = self.geometry().chunk_of(off).ok_or_else(|| bad("no block lies there"))?;
        if chunk >= self.frontier() {
            return Err(bad("the pool has never allocated there"));
        }
        let Chunk::Slab { class } = self.chunk(chunk) else {
            return Err(bad("no block begins there"));
        };
        let at = off - self.geometry().chunk_off(chunk);
        let Some(within) = at.checked_sub(SLAB_HEADER_BYTES) else {
            return Err(bad("the allocator's own data lies there"));
        };
        let block = within / CLASS_BYTES[class];
        if !within.is_multiple_of(CLASS_BYTES[class]) || block >= blocks_of(class) {
            return Err(bad("no block begins there"));
        }
        Ok(Place { chunk, class, block })
    }

    pub(crate) fn block_off(&self, chunk: u64, class: usize, block: u64) -> u64 {
        self.geometry().chunk_off(chunk) + SLAB_HEADER_BYTES + block * CLASS_BYTES[class]
    }

    /// A block of `class`, not from the reserve: the reserve is for blocks that are large enough
    /// for any node.
    pub(crate) fn reserve_in_slab(&self, guard: &Guard<'_, D>, class: usize) -> Result<u64> {
        match guard.reserve_access() {
            ReserveAccess::With => guard
                .with_reserve_access(ReserveAccess::Without, || self.reserve_in_kept(guard, class)),
            _ => self.reserve_in_kept(guard, class),
        }
    }

    /// A block of `class`, from all chunks that the thread may use.
    pub(crate) fn reserve_in_kept(&self, guard: &Guard<'_, D>, class: usize) -> Result<u64> {
        loop {
            if let Some(off) = self.take_from_own(guard, class) {
                return Ok(off);
            }
            let found = self.find_slab(guard, class).or_else(|| {
                // Threads that have ended may have slabs.
                self.release_ended_slabs().then(|| self.find_slab(guard, class)).flatten()
            });
            let claim = match found {
                Some(claim) => claim,
                None => match self.new_slab(guard, class) {
                    Ok(claim) => claim,
                    // The search for a chunk may have freed blocks that waited for their epoch.
                    Err(error) => self.find_slab(guard, class).ok_or(error)?,
                },
            };
            self.set_current(guard, class, claim);
        }
    }

    fn set_current(&self, guard: &Guard<'_, D>, class: usize, claim: Claim) {
        guard.local().slabs.set_current(class, claim);
        self.slots.with_slabs.set(guard.slot());
    }

    /// A block of the thread's current slab of `class`. If the slab is full, or another thread has
    /// taken it, the thread releases it.
    fn take_from_own(&self, guard: &Guard<'_, D>, class: usize) -> Option<u64> {
        let own = &guard.local().slabs;
        let claim = own.current(class)?;
        if self.cache.holds(claim)
            && let Some(block) = self.take_block(claim.chunk, class, own.hint(class))
        {
            own.set_hint(class, block / 32);
            return Some(self.block_off(claim.chunk, class, block));
        }
        own.clear(class);
        self.release_current(guard, claim, class);
        None
    }

    /// A block of a larger class than `class`, from an existing slab, and its length.
    #[cold]
    pub(crate) fn reserve_in_larger(
        &self,
        guard: &Guard<'_, D>,
        class: usize,
    ) -> Option<(u64, u64)> {
        (class + 1..=largest_instead(guard, class)).find_map(|larger| {
            loop {
                if let Some(off) = self.take_from_own(guard, larger) {
                    return Some((off, CLASS_BYTES[larger]));
                }
                self.set_current(guard, larger, self.find_slab(guard, larger)?);
            }
        })
    }

    /// A block of `class`, or else of the next larger class with room, from the current slab of
    /// another thread, and its length. A thread without access to the reserve takes none from it.
    #[cold]
    pub(crate) fn reserve_in_others(
        &self,
        guard: &Guard<'_, D>,
        class: usize,
    ) -> Option<(u64, u64)> {
        let spare = self.spare_chunks(guard.reserve_access());
        let end = self.frontier().min(self.geometry().max_chunks - spare);
        let largest = largest_instead(guard, class);
        let mut larger: Option<(usize, u64)> = None;
        let take = |chunk: u64, of: usize| {
            let block = self.take_block(chunk, of, 0)?;
            // The thread that made the slab may not have made its word durable. So this thread
            // must, or the block would be lost.
            self.chunk_word(chunk).flush();
            D::fence();
            Some((self.block_off(chunk, of, block), CLASS_BYTES[of]))
        };
        for chunk in (0..end).filter(|&chunk| self.cache.is_current(chunk)) {
            match self.chunk(chunk) {
                Chunk::Slab { class: of } if of == class => {
                    if let Some(taken) = take(chunk, of) {
                        return Some(taken);
                    }
                }
                Chunk::Slab { class: of }
                    if (class + 1..=largest).contains(&of) && self.has_room(chunk, of) =>
                {
                    larger = larger.filter(|&(best, _)| best <= of).or(Some((of, chunk)));
                }
                _ => {}
            }
        }
        larger.and_then(|(of, chunk)| take(chunk, of))
    }

    /// Takes a free block of the chunk, if it is a slab of `class` and has one.
    fn take_block(&self, chunk: u64, class: usize, hint: u64) -> Option<u64> {
        if self.chunk(chunk) != (Chunk::Slab { class }) {
            return None;
        }
        let words = blocks_of(class).div_ceil(32);
        for step in 0..words {
            let index = (hint + step) % words;
            let taken = self.taken_word(chunk, index);
            let mut found = taken.load(Ordering::Acquire);
            loop {
                let bits = self.taken_bits(chunk, index, found);
                let free = !bits & valid_bits(class, index);
                if free == 0 {
                    break;
                }
                let bit = free.trailing_zeros();
                match taken.compare_exchange(found, self.tagged(bits | 1 << bit)) {
                    Ok(_) => return Some(index * 32 + u64::from(bit)),
                    Err(other) => found = other,
                }
            }
        }
        None
    }

    pub(crate) fn has_room(&self, chunk: u64, class: usize) -> bool {
        (0..blocks_of(class).div_ceil(32)).any(|index| {
            let word = self.taken_word(chunk, index).load(Ordering::Acquire);
            !self.taken_bits(chunk, index, word) & valid_bits(class, index) != 0
        })
    }

    fn new_slab(&self, guard: &Guard<'_, D>, class: usize) -> Result<Claim> {
        let chunk = self.claim_chunks(guard, 1)?;
        let off = self.geometry().chunk_off(chunk);
        self.word(off).store(SLAB_MARK | class as u64, Ordering::Release);
        for index in 0..(TAKEN_AT - ACTIVE_AT) / 8 {
            if !mutant!("slab-not-cleared") {
                self.active_word(chunk, index).store(0, Ordering::Release);
            }
        }
        for index in 0..blocks_of(class).div_ceil(32) {
            self.taken_word(chunk, index).store(self.tagged(0), Ordering::Release);
        }
        // All of these are durable before the table's word makes the chunk a slab. The medium may
        // have held anything there, also words that look like taken bits of a later generation.
        self.flush(off, TAKEN_AT + blocks_of(class).div_ceil(32) * 8);
        self.flush_extent();
        D::fence();
        self.unlist(chunk);
        let claim = match self.cache.claim_current(chunk) {
            Some(claim) => claim,
            // Another process has dissolved the slab that was here, with a claim of this one on it.
            None if self.is_shared() => loop {
                let taken = self.cache.take_claim(chunk);
                if let Some(claim) = taken.or_else(|| self.cache.claim_current(chunk)) {
                    break claim;
                }
            },
            None => unreachable!("chunk {chunk} is claimed before it is a slab"),
        };
        self.set_chunk(chunk, Chunk::Slab { class });
        D::fence();
        Ok(claim)
    }

    pub(crate) fn set_active(&self, place: &Place) {
        let word = self.active_word(place.chunk, place.block / 64);
        let was = word.fetch_or(place.active_mask());
        word.flush();
        if was & place.active_mask() == 0 {
            self.cache.used.note_activated(place.chunk, place.bytes());
        }
    }

    /// Clears the active bit; returns whether it was set.
    pub(crate) fn clear_active(&self, place: &Place) -> bool {
        // The block stays taken until it is given back. That also holds if it became active in an
        // earlier generation, and the taken word still is of that generation. The stamp comes
        // before the change of the active bit: else a census would take the block for a lost one.
        let index = place.block / 32;
        let taken = self.taken_word(place.chunk, index);
        let mut found = taken.load(Ordering::Acquire);
        while (found >> 32) as u32 != self.tag() && !mutant!("deactivated-without-stamp") {
            let bits = self.taken_bits(place.chunk, index, found);
            match taken.compare_exchange(found, self.tagged(bits)) {
                Ok(_) => break,
                Err(other) => found = other,
            }
        }
        let word = self.active_word(place.chunk, place.block / 64);
        let was = word.fetch_and(!place.active_mask());
        word.flush();
        let was_active = was & place.active_mask() != 0;
        if was_active {
            self.cache.used.note_deactivated(place.chunk, place.bytes());
        }
        was_active
    }

    pub(crate) fn is_active(&self, place: &Place) -> bool {
        let word = self.active_word(place.chunk, place.block / 64).load(Ordering::Acquire);
        word & place.active_mask() != 0
    }

    pub(crate) fn is_taken(&self, place: &Place) -> bool {
        let index = place.block / 32;
        let word = self.taken_word(place.chunk, index).load(Ordering::Acquire);
        self.taken_bits(place.chunk, index, word) & 1 << (place.block % 32) != 0
    }

    /// Clears the taken bit, and frees the chunk if it was the last one.
    pub(crate) fn release_in_slab(&self, guard: &Guard<'_, D>, place: &Place) {
        let index = place.block / 32;
        let taken = self.taken_word(place.chunk, index);
        let bit = 1_u32 << (place.block % 32);
        let mut found = taken.load(Ordering::Acquire);
        let left = loop {
            let bits = self.taken_bits(place.chunk, index, found) & !bit;
            match taken.compare_exchange(found, self.tagged(bits)) {
                Ok(_) => break bits,
                Err(other) => found = other,
            }
        };
        self.find_use(guard, place.chunk, place.class, left == 0);
    }

    /// After a block of the slab was given back: lists the slab, or dissolves it if it is empty.
    fn find_use(&self, guard: &Guard<'_, D>, chunk: u64, class: usize, may_be_empty: bool) {
        // Either a thread that releases the slab, and then checks it for room, sees this block, or
        // this thread sees that the slab is released.
        barrier_after_swap();
        if self.cache.is_current(chunk) {
            return;
        }
        if may_be_empty && self.is_empty(chunk, class) {
            self.dissolve_or_list(guard, chunk, class);
        } else {
            self.cache.list(chunk, class);
        }
    }

    /// Gives the blocks of a slab back that are taken, not active, and not stamped by the census
    /// `stamp`: no process has them. Returns how many.
    pub(super) fn free_lost_in_slab(
        &self,
        guard: &Guard<'_, D>,
        chunk: u64,
        class: usize,
        stamp: u8,
    ) -> u64 {
        let mut freed = 0;
        for index in 0..blocks_of(class).div_ceil(32) {
            let taken = self.taken_word(chunk, index);
            let found = taken.load(Ordering::Acquire);
            if !is_of(found, self.generation()) {
                continue;
            }
            let lost = found as u32 & !self.active_bits(chunk, index) & valid_bits(class, index);
            let is_stamped = stamp_of(found) == stamp && !mutant!("census-believes-stamped-words");
            if lost == 0 || is_stamped {
                continue;
            }
            let left = found as u32 & !lost;
            // Fails if a thread has stamped the word, as it does before it changes an active bit.
            if taken.compare_exchange(found, self.tagged(left)).is_ok() {
                freed += u64::from(lost.count_ones());
                self.find_use(guard, chunk, class, left == 0);
            }
        }
        freed
    }

    /// The number of blocks of a slab that are taken and not active.
    pub(super) fn inactive_in_slab(&self, chunk: u64, class: usize) -> u64 {
        let inactive = |index| {
            let word = self.taken_word(chunk, index).load(Ordering::Acquire);
            let taken = self.taken_bits(chunk, index, word);
            let bits = taken & !self.active_bits(chunk, index) & valid_bits(class, index);
            u64::from(bits.count_ones())
        };
        (0..blocks_of(class).div_ceil(32)).map(inactive).sum()
    }

    pub(crate) fn is_empty(&self, chunk: u64, class: usize) -> bool {
        (0..blocks_of(class).div_ceil(32)).all(|index| {
            let word = self.taken_word(chunk, index).load(Ordering::Acquire);
            self.taken_bits(chunk, index, word) == 0
        })
    }

    /// Clears the taken bit, in recovery. A later search for room finds the slab.
    pub(crate) fn recover_release_in_slab(&self, place: &Place) {
        let taken = self.taken_word(place.chunk, place.block / 32);
        let found = taken.load(Ordering::Acquire);
        if is_of(found, self.generation()) {
            taken.fetch_and(!(1 << (place.block % 32)));
        }
    }

    /// Turns a slab that this thread has claimed into a free chunk, if it still is one of `class`,
    /// and no block of it is taken.
    /// Otherwise the claim stays.
    pub(crate) fn dissolve_slab(&self, guard: &Guard<'_, D>, claim: Claim, class: usize) -> bool {
        let chunk = claim.chunk;
        let words = blocks_of(class).div_ceil(32);
        // Another process may have dissolved it, and the chunk may be used in another way since.
        let is_slab = self.chunk(chunk) == (Chunk::Slab { class })
            || mutant!("slab-of-another-process-dissolved");
        if !is_slab || !self.is_empty(chunk, class) {
            return false;
        }
        for index in 0..words {
            let taken = self.taken_word(chunk, index);
            let found = taken.load(Ordering::Acquire);
            let all = self.tagged(valid_bits(class, index));
            if self.taken_bits(chunk, index, found) != 0
                || taken.compare_exchange(found, all).is_err()
            {
                // Another thread allocates from it: the blocks that were taken here are freed.
                for taken_index in 0..index {
                    let word = self.taken_word(chunk, taken_index);
                    word.fetch_and(!u64::from(u32::MAX));
                }
                return false;
            }
        }
        self.set_chunk(chunk, Chunk::Claimed { chunks: 1 });
        D::fence();
        // Before this thread unpins: a thread that makes a slab of the chunk finds it unclaimed.
        self.cache.clear_current(claim);
        // Not collected now: a collection may be the caller.
        guard.push_limbo(self.geometry().chunk_off(chunk));
        true
    }
}
