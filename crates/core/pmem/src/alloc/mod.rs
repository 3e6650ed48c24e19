//! The three-stage allocator (BzTree paper 6.1, PMwCAS paper 5.2): *reserve*, *activate*, *free*.
//!
//! # States of a block
//!
//! | state | active bit (durable) | taken bit (this generation) | owner |
//! | --- | --- | --- | --- |
//! | free | 0 | 0 | none |
//! | reserved | 0 | 1 | the [`Reservation`], in process memory |
//! | active | 1 | 1 | the word that names it |
//! | in limbo | 0 | 1 | an epoch: it is unlinked, and threads may still read it |
//!
//! A crash forgets every taken bit: each word of them carries the generation in which it was
//! written, and is void in the next. So *reserved* and *in limbo* become *free* without work at
//! recovery, and *active* stays. The word with the active bit decides.
//!
//! Where the active bit and the owner's word must change together, a durable log names both: the
//! participant's log (`exchange.rs`), or a PMwCAS descriptor, whose recovery calls
//! [`Pool::recover_deactivate`]. A block is not reused while a log stands that could deactivate it,
//! because the thread that writes the log holds a guard.
//!
//! Small blocks come from *slabs*, chunks of one size class (`slab.rs`). Large blocks are *spans*
//! of whole chunks (`chunks.rs`). Lists of slabs with room are process memory only, and are rebuilt
//! slab by slab as blocks are allocated (`cache.rs`, `slab_search.rs`). `sizes.rs` lists the sizes
//! of blocks.

mod audit;
mod cache;
mod census;
mod chunks;
mod claim;
mod exchange;
mod freed;
mod holes;
mod sizes;
mod slab;
mod slab_search;
mod used;

pub use audit::{Block, Usage};
pub(crate) use cache::{Cache, SlabCache};
pub(crate) use chunks::{Chunk, is_hole_word};
pub use exchange::Exchange;
pub use sizes::{BLOCK_ALIGN, block_bytes};

use self::sizes::{CLASS_BYTES, class_of};
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::exclusive::Exclusive;
use crate::pool::Pool;
use crate::slots::ReserveAccess;
#[cfg(feature = "testing")]
use crate::testing::refusal;

/// The size class of blocks in the reserve: 4 KiB.
const RESERVE_CLASS: usize = 31;
const _: () = assert!(CLASS_BYTES[RESERVE_CLASS] == 4096);

/// A reserved block. Only its thread has it; it is free again after a drop or a crash.
#[derive(Debug)]
pub struct Reservation<'guard, 'pool, D: Domain> {
    guard: &'guard Guard<'pool, D>,
    off: u64,
    bytes: u64,
    kept: bool,
}

impl<'pool, D: Domain> Guard<'pool, D> {
    /// Reserves a block of at least `bytes` bytes, at a multiple of [`BLOCK_ALIGN`]. It has the
    /// content of its last owner.
    ///
    /// A refusal retires chunks that are not used, so the next attempt may find room. After this
    /// guard is dropped, and [`Pool::reclaim`] was called, all blocks that no thread can read any
    /// more are available.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation<'_, 'pool, D>> {
        #[cfg(feature = "testing")]
        if refusal::is_refused(refusal::Resource::Block) {
            let max_bytes = self.pool().geometry().max_bytes;
            return Err(Error::PoolFull { requested_bytes: bytes, max_bytes });
        }
        let found = self.find_room(bytes);
        if !matches!(found, Ok(_) | Err(Error::BlockTooLarge { .. })) {
            self.pool().take_empty_slabs(self);
        }
        let (off, bytes) = found?;
        Ok(Reservation { guard: self, off, bytes, kept: false })
    }

    /// Takes a block; returns its offset and length.
    fn find_room(&self, bytes: u64) -> Result<(u64, u64)> {
        Ok(match class_of(bytes) {
            Some(class) => match self.pool().reserve_in_slab(self, class) {
                Ok(off) => (off, CLASS_BYTES[class]),
                // If no chunk is left for this size, a larger block serves, or a block of another
                // thread's current slab.
                Err(error) => match self
                    .pool()
                    .reserve_in_larger(self, class)
                    .or_else(|| self.pool().reserve_in_others(self, class))
                {
                    Some(found) => found,
                    None if self.reserve_access() == ReserveAccess::With => {
                        // The reserve is for blocks that are large enough for any node.
                        let class = class.max(RESERVE_CLASS);
                        (self.pool().reserve_in_kept(self, class)?, CLASS_BYTES[class])
                    }
                    None => return Err(error),
                },
            },
            None => (self.pool().reserve_span(self, bytes)?, block_bytes(bytes)),
        })
    }
}

impl<D: Domain> Reservation<'_, '_, D> {
    /// Offset of the block.
    pub fn off(&self) -> u64 {
        self.off
    }

    /// Bytes of the block: at least the requested number.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies `source` to byte `at` of the block.
    #[inline]
    pub fn write(&mut self, at: u64, source: &[u8]) {
        if let Some(mut range) = self.range_mut(at, source.len() as u64) {
            range.write(0, source);
        }
    }

    /// The range, for writes; `None` for a thread that a test has killed.
    #[inline]
    pub fn range_mut(&mut self, at: u64, bytes: u64) -> Option<Exclusive<'_>> {
        self.check(at, bytes);
        self.guard.pool().exclusive(self.off + at, bytes)
    }

    /// Writes `value`, little-endian, to byte `at` of the block.
    #[inline]
    pub fn write_u64(&mut self, at: u64, value: u64) {
        if let Some(mut range) = self.range_mut(at, 8) {
            range.write_u64(0, value);
        }
    }

    /// Sets `bytes` bytes from byte `at` to zero.
    #[inline]
    pub fn zero(&mut self, at: u64, bytes: u64) {
        if let Some(mut range) = self.range_mut(at, bytes) {
            range.zero(0, bytes as usize);
        }
    }

    /// Starts the write-back of the range.
    #[track_caller]
    pub fn flush(&self, at: u64, bytes: u64) {
        self.check(at, bytes);
        self.guard.pool().flush(self.off + at, bytes);
    }

    fn check(&self, at: u64, bytes: u64) {
        assert!(
            at <= self.bytes && bytes <= self.bytes - at,
            "{bytes} bytes at {at} exceed a block of {} bytes",
            self.bytes
        );
    }

    /// Passes the block to a durable owner, which a log names, and which activates it next by
    /// [`Pool::activate_logged`]. Returns the block's offset.
    pub fn into_logged(mut self) -> u64 {
        self.kept = true;
        self.off
    }
}

impl<D: Domain> Drop for Reservation<'_, '_, D> {
    fn drop(&mut self) {
        if !self.kept {
            self.guard.pool().reuse(self.guard, self.off);
        }
    }
}

impl<D: Domain> Pool<D> {
    /// Sets the active bit of a block whose owner a log names, durably; recovery can settle that
    /// log. The bit is durable after the caller's next fence.
    pub fn activate_logged(&self, off: u64) {
        match self.slab_place(off) {
            Ok(place) => self.set_active(&place),
            Err(_) => self.activate_span(off),
        }
    }

    /// Clears the active bit of the block at `off`, which must be unreachable or owned by a log.
    /// The bit is durable after the caller's next fence. Until then, and until no thread can read
    /// the block, it must not go to [`Guard::retire`] or [`Pool::reuse`].
    pub fn deactivate(&self, off: u64) -> Result<()> {
        match self.slab_place(off) {
            Ok(place) => {
                if self.clear_active(&place) {
                    Ok(())
                } else {
                    Err(Error::BadFree { off, reason: "the block there is not allocated" })
                }
            }
            Err(not_in_slab) => self.deactivate_span(off, false).map_err(|_| not_in_slab),
        }
    }

    /// Like [`deactivate`](Self::deactivate), for recovery: a bit that is cleared already stays
    /// cleared, and an offset without a block is ignored.
    pub fn recover_deactivate(&self, off: u64) {
        match self.slab_place(off) {
            Ok(place) => drop(self.clear_active(&place)),
            Err(_) => drop(self.deactivate_span(off, true)),
        }
    }

    /// Gives a block back for reuse after [`recover_deactivate`](Self::recover_deactivate), once
    /// the log that named it is cleared, durably. Only in recovery.
    pub fn recover_reuse(&self, off: u64) {
        match self.slab_place(off) {
            Ok(place) if !self.is_active(&place) => self.recover_release_in_slab(&place),
            Ok(_) => {}
            Err(_) => self.release_chunks(off),
        }
    }

    /// Gives a block back for reuse that is not active, and that no thread can read.
    pub fn reuse(&self, guard: &Guard<'_, D>, off: u64) {
        match self.slab_place(off) {
            Ok(place) => self.release_in_slab(guard, &place),
            Err(_) => self.release_chunks(off),
        }
    }
}
