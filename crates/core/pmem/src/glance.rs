//! Glances: looks at shared blocks without a pin, to be believed as long as the epoch stands.
//!
//! A pin is a full barrier, and that waits for every write-back that its thread has begun: who
//! wrote durably a moment ago and now looks for the next key waits for the medium before the first
//! node. A glance waits for nothing. Who only reads needs no more; who then writes pins behind the
//! look, not before it.
//!
//! | step | what is true |
//! | --- | --- |
//! | the epoch is loaded: `e` | what is found linked from now on was not unlinked before `e` |
//! | words are loaded, of blocks to which others led | |
//! | the epoch is loaded again ([`Glance::holds`]), and is `e` | no block that was linked meanwhile is reused, which takes `e + 3`: the words were those of the blocks that were linked |
//! | the thread pins, and then asks again | it is pinned as if it had been since the first step |
//!
//! So no word is believed, above all no offset followed, before `holds` was asked behind its load.
//! What was loaded from a block that is in use for something else by then is a word of whatever its
//! new owner writes there; it is dropped.
//!
//! Why that is no data race, in the language's sense. A race takes two accesses of one place of
//! which one is a store, one is not atomic, and neither happens before the other.
//!
//! | access of a block by then | how | beside a load of a glance |
//! | --- | --- | --- |
//! | the glance's own | `Word` and `Words`: aligned atomic words, nothing else | both are loads |
//! | a change of a shared block, by any index, PMwCAS or the allocator | `Word`: an atomic word | both are atomic, of one size and place |
//! | a new owner fills its block | [`Exclusive`](crate::Exclusive): relaxed stores of whole words | the same |
//! | bytes of a block that does not change any more are read ([`Pool::bytes`]) | plain loads | both are loads |
//! | a chunk is given back to the system, or a file is made longer | by the kernel, and not by the program | none of the language's |
//!
//! There is no other way to write to a block: no `&mut` to memory of a mapping is ever made. So
//! whatever a block is used for next, in whichever kind of map, a glance that still looks at it is
//! sound, and what it loads is some word that was stored there.
//!
//! Why the pin comes in time: it announces an epoch that it loads behind the first step, and before
//! the last; so that is `e` too. The announcement is visible before the last load, and from then on
//! holds the epoch at no more than `e + 1`, as every late announcement does (`epoch.rs`). Of a
//! thread that was pinned before, the earlier pin holds.
//!
//! Orderings. The first load must come before all later ones, also where the epoch was raised by
//! one thread and the block unlinked by another: pairs with the fence in
//! [`Guard::unlink_epoch`](crate::Guard::unlink_epoch). On x86-64 loads are not reordered;
//! elsewhere that takes a fence. The last is behind an acquire fence: whoever reuses a block has
//! acquired the epoch that allowed it, so who sees what it wrote sees that epoch.

use std::sync::atomic::{Ordering, compiler_fence, fence};

use crate::domain::Domain;
use crate::error::Result;
use crate::pool::Pool;

/// A look at a pool's blocks that began in some epoch. It keeps nothing from being reused, and may
/// be kept for any time.
#[derive(Clone, Copy, Debug)]
pub struct Glance<'pool, D: Domain> {
    pool: &'pool Pool<D>,
    epoch: u64,
}

impl<D: Domain> Pool<D> {
    /// Begins a look; refused to whom a pin is refused.
    #[inline(always)]
    pub fn glance(&self) -> Result<Glance<'_, D>> {
        if !self.is_last_used() {
            drop(self.pin()?);
        }
        self.note_glance();
        let epoch = self.epoch();
        if cfg!(target_arch = "x86_64") {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        Ok(Glance { pool: self, epoch })
    }
}

impl<D: Domain> Glance<'_, D> {
    /// Whether all that was loaded since the look began is to be believed.
    #[inline(always)]
    pub fn holds(&self) -> bool {
        // Acquire: whatever was loaded, by whichever ordering, was loaded before the epoch.
        fence(Ordering::Acquire);
        self.pool.epoch() == self.epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, Volatile};

    #[test]
    fn a_glance_holds_until_the_epoch_is_raised() {
        let pool = Pool::<Volatile>::anonymous(&CreateOptions::default()).expect("memory");
        let glance = pool.glance().expect("a look");
        let guard = pool.pin().expect("a pin");
        assert!(glance.holds());
        // Whoever is pinned in the epoch lets it rise once, which ends the look, and no further.
        assert_eq!(pool.try_advance(), pool.epoch());
        assert!(!glance.holds());
        let (epoch, later) = (pool.epoch(), pool.glance().expect("a look"));
        assert_eq!((pool.try_advance(), later.holds()), (epoch, true));
        drop(guard);
    }

    #[test]
    fn a_look_before_a_pin_is_as_good_as_the_pin() {
        let pool = Pool::<Volatile>::anonymous(&CreateOptions::default()).expect("memory");
        let block = pool.pin().expect("a pin").reserve(64).expect("room").into_logged();
        let glance = pool.glance().expect("a look");
        let guard = pool.pin().expect("a pin");
        assert!(glance.holds());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pool.pin().expect("a pin").retire(block);
                for _ in 0..10 {
                    pool.pin().expect("a pin").collect();
                }
                assert_eq!(pool.pin().expect("a pin").waiting(), 1, "someone may look at it");
            });
        });
        drop(guard);
    }
}
