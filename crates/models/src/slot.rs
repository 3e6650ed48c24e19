//! The hand-over of a participant slot from thread to thread (`pando-pmem/src/participant.rs`):
//! what a slot's holder caches in process memory (`Local`) is plain memory, and whoever claims the
//! slot next, for a life or to take that over (`take_over_slot`), finds it as it was left.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::thread;

use crate::atomic::Atomic;
use crate::explore;

const FREE: u64 = 0;
const CLAIMED: u64 = 1;

struct Slot {
    state: Atomic,
    local: UnsafeCell<u64>,
}

// SAFETY: the cell is what is on trial; loom reports accesses that are not ordered.
unsafe impl Sync for Slot {}
// SAFETY: as for Sync.
unsafe impl Send for Slot {}

impl Slot {
    /// `claim_slot`, for one slot.
    fn claim(&self) -> bool {
        let found = self.state.load(Acquire);
        found != CLAIMED && self.state.compare_exchange(found, CLAIMED, SeqCst, SeqCst).is_ok()
    }

    /// As `claim`, without the CAS.
    fn claim_unchecked(&self) -> bool {
        let found = self.state.load(Acquire);
        self.state.store(CLAIMED, Release);
        found != CLAIMED
    }

    /// `give_back`.
    fn give_back(&self, order: Ordering) {
        self.state.compare_exchange(CLAIMED, FREE, order, Relaxed).unwrap();
    }

    fn use_local(&self) {
        // SAFETY: the pointer is the cell's own, and loom reports a second user.
        self.local.with_mut(|local| unsafe { *local += 1 });
    }
}

fn hand_over(claim: fn(&Slot) -> bool, release: Ordering) {
    explore(None, move || {
        let slot = Arc::new(Slot { state: Atomic::new(FREE), local: UnsafeCell::new(0) });
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let slot = slot.clone();
                thread::spawn(move || {
                    let claimed = claim(&slot);
                    if claimed {
                        slot.use_local();
                        slot.give_back(release);
                    }
                    u64::from(claimed)
                })
            })
            .collect();
        let claims: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert!(claims >= 1);
        assert!(slot.claim());
        // SAFETY: as in `use_local`.
        slot.local.with(|local| assert_eq!(unsafe { *local }, claims));
    });
}

#[test]
fn a_slot_has_one_holder_who_finds_what_the_last_one_left() {
    hand_over(Slot::claim, SeqCst);
}

#[test]
#[should_panic]
fn giving_back_must_release() {
    hand_over(Slot::claim, Relaxed);
}

#[test]
#[should_panic]
fn claiming_must_be_one_step() {
    hand_over(Slot::claim_unchecked, SeqCst);
}
