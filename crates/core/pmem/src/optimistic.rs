//! Optimistic reads: loads of shared blocks without a pin, validated by the epoch.
//!
//! A pin is a full barrier, and a full barrier waits for each write-back that its thread has begun.
//! So a search right after a durable write would wait for the medium before it reads the first
//! node. An optimistic read does not wait. It is enough for a reader; a writer pins after its
//! search, not before it.
//!
//! | step | what is true |
//! | --- | --- |
//! | load the epoch: `e` | a block that is found linked from now on was not unlinked before `e` |
//! | load words of blocks, each found through another | |
//! | load the epoch again ([`OptimisticRead::is_valid`]): still `e` | no block that was linked meanwhile is reused, which takes `e + 3`: the words were words of the linked blocks |
//! | pin, then validate again | the pin protects as if it had been taken at the first step |
//!
//! So a loaded word must be validated by `is_valid` before it is used; above all, no offset is
//! followed before. A word that was loaded from a reused block belongs to the new owner, and is
//! dropped.
//!
//! In the language's terms, this is no data race. A race takes two accesses of one place of which
//! one is a store, one is not atomic, and neither happens before the other. The table shows why no
//! access races with a load of an optimistic read:
//!
//! | other access of the block | how | why it is no race |
//! | --- | --- | --- |
//! | another optimistic read | `Word` and `Words`: aligned atomic words, nothing else | both are loads |
//! | a change of a shared block, by any index, PMwCAS or the allocator | `Word`: an atomic word | both are atomic, of one size and place |
//! | a new owner fills its block | [`Exclusive`](crate::Exclusive): relaxed stores of whole words | the same |
//! | bytes of a block that does not change any more are read ([`Pool::bytes`]) | plain loads | both are loads |
//! | a chunk is given back to the system, or a file is made longer | by the kernel, not by the program | it is no access of the program |
//!
//! There is no other way to write to a block: the program never makes a `&mut` to memory of a
//! mapping. So a load is defined however the block is used next, in any kind of map: it returns
//! some word that was stored there.
//!
//! Why the pin comes in time: it announces an epoch that it loads after the first step and before
//! the last, so that is `e` too. The announcement is visible before the last load. From then on it
//! keeps the epoch at `e + 1` at most, like every late announcement (`epoch.rs`). If the thread was
//! pinned before, the earlier pin protects.
//!
//! Orderings. The first load must come before all later ones, also where one thread raised the
//! epoch and another unlinked the block: it pairs with the fence in
//! [`Guard::unlink_epoch`](crate::Guard::unlink_epoch). On x86-64, loads are not reordered;
//! elsewhere that takes a fence. The last load is after an acquire fence. A thread that reuses a
//! block has acquired the epoch that allowed it, so a thread that sees its stores also sees that
//! epoch.

use std::sync::atomic::{Ordering, compiler_fence, fence};

use crate::domain::Domain;
use crate::error::Result;
use crate::pool::Pool;

/// A read of a pool's blocks that began in some epoch. It does not prevent the reuse of a block,
/// and may be kept for any time.
#[derive(Clone, Copy, Debug)]
pub struct OptimisticRead<'pool, D: Domain> {
    pool: &'pool Pool<D>,
    epoch: u64,
}

impl<D: Domain> Pool<D> {
    /// Begins an optimistic read. Fails where a pin fails.
    #[inline(always)]
    pub fn optimistic_read(&self) -> Result<OptimisticRead<'_, D>> {
        if !self.is_last_used() {
            drop(self.pin()?);
        }
        self.note_optimistic_read();
        let epoch = self.epoch();
        if cfg!(target_arch = "x86_64") {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        Ok(OptimisticRead { pool: self, epoch })
    }
}

impl<D: Domain> OptimisticRead<'_, D> {
    /// Whether all words that were loaded since the read began are valid.
    #[inline(always)]
    pub fn is_valid(&self) -> bool {
        // Acquire: all earlier loads, of any ordering, come before the load of the epoch.
        fence(Ordering::Acquire);
        self.pool.epoch() == self.epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, Process};

    #[test]
    fn an_optimistic_read_is_valid_until_the_epoch_is_raised() {
        let pool = Pool::<Process>::anonymous(&CreateOptions::default()).expect("memory");
        let read = pool.optimistic_read().expect("a read");
        let guard = pool.pin().expect("a pin");
        assert!(read.is_valid());
        // A thread that is pinned in the epoch lets it rise once, which makes the read invalid, and
        // not twice.
        assert_eq!(pool.try_advance(), pool.epoch());
        assert!(!read.is_valid());
        let (epoch, later) = (pool.epoch(), pool.optimistic_read().expect("a read"));
        assert_eq!((pool.try_advance(), later.is_valid()), (epoch, true));
        drop(guard);
    }

    #[test]
    fn a_pin_after_a_valid_read_protects_as_one_before_it() {
        let pool = Pool::<Process>::anonymous(&CreateOptions::default()).expect("memory");
        let block = pool.pin().expect("a pin").reserve(64).expect("room").into_logged();
        let read = pool.optimistic_read().expect("a read");
        let guard = pool.pin().expect("a pin");
        assert!(read.is_valid());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pool.pin().expect("a pin").retire(block);
                for _ in 0..10 {
                    pool.pin().expect("a pin").collect();
                }
                assert_eq!(pool.pin().expect("a pin").waiting(), 1, "a reader may look at it");
            });
        });
        drop(guard);
    }
}
