//! The lease of a participant slot (`pando-pmem/src/participant.rs`). Its version says which thread
//! has the slot, and a bit says whether that thread is pinned. The data of the slot (`Local`) are
//! plain memory. Only pinned threads access them, and each sees the writes of the one before.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use loom::thread;

use crate::atomic::Atomic;
use crate::explore;

const PINNED: u64 = 1 << 32;

/// The parts that the mutants change.
#[derive(Clone, Copy)]
struct Code {
    /// `Word::compare_exchange_transient`, by which a thread pins, or takes a slot.
    pin: Ordering,
    /// `Word::store_transient`, by which a thread unpins.
    unpin: Ordering,
    /// `take` refuses slots in which a thread is pinned.
    asks: bool,
    /// `take` raises the version.
    counts: bool,
    /// `pin_leased` pins by a CAS, not by a store.
    swaps: bool,
}

const AS_WRITTEN: Code =
    Code { pin: AcqRel, unpin: Release, asks: true, counts: true, swaps: true };

struct Slot {
    code: Code,
    lease: Atomic,
    local: UnsafeCell<u64>,
}

// SAFETY: the test is about the cell; loom reports accesses that are not ordered.
unsafe impl Sync for Slot {}
// SAFETY: as for Sync.
unsafe impl Send for Slot {}

impl Slot {
    /// `announce`; `is_late`: the first announcement is withdrawn.
    fn announce(&self, found: u64, next: u64, is_late: bool) -> bool {
        let mut withdraws = is_late;
        while self.lease.compare_exchange(found, next, self.code.pin, Relaxed).is_ok() {
            if !std::mem::replace(&mut withdraws, false) {
                return true;
            }
            self.lease.store(found, self.code.unpin);
        }
        false
    }

    /// `pin_leased` of the thread with that version: `None` if it has lost the slot; whether it was
    /// pinned before.
    fn pin(&self, version: u64) -> Option<bool> {
        let found = self.lease.load(Relaxed);
        let pinned = version | PINNED;
        if found == version {
            if !self.code.swaps {
                self.lease.store(pinned, Release);
                return Some(false);
            }
            return self.announce(version, pinned, false).then_some(false);
        }
        (found == pinned).then_some(true)
    }

    /// `take`; the new version.
    fn take(&self, is_late: bool) -> Option<u64> {
        let found = self.lease.load(Relaxed);
        if self.code.asks && found & PINNED != 0 {
            return None;
        }
        let next = (found & !PINNED) + u64::from(self.code.counts);
        self.announce(found, next | PINNED, is_late).then_some(next)
    }

    fn unpin(&self, version: u64) {
        self.lease.store(version, self.code.unpin);
    }

    fn use_local(&self) {
        // SAFETY: the pointer is the cell's, and loom reports a second user.
        self.local.with_mut(|local| unsafe { *local += 1 });
    }
}

/// A thread that has used the slot pins twice, and two others take it.
fn lease(code: Code) {
    explore(Some(3), move || {
        let slot = Arc::new(Slot { code, lease: Atomic::new(0), local: UnsafeCell::new(0) });
        let takers = [false, true].map(|is_late| {
            let slot = slot.clone();
            thread::spawn(move || {
                let version = slot.take(is_late);
                if let Some(version) = version {
                    slot.use_local();
                    slot.unpin(version);
                }
                u64::from(version.is_some())
            })
        });
        let mut uses = 0;
        for _ in 0..2 {
            if let Some(is_nested) = slot.pin(0) {
                slot.use_local();
                uses += 1;
                if !is_nested {
                    slot.unpin(0);
                }
            }
        }
        uses += takers.into_iter().map(|taker| taker.join().unwrap()).sum::<u64>();
        assert!(uses >= 1);
        assert!(slot.take(false).is_some(), "all have unpinned");
        // SAFETY: as in `use_local`.
        slot.local.with(|local| assert_eq!(unsafe { *local }, uses));
    });
}

model_tests! { lease, AS_WRITTEN;
    holds fn a_slot_has_one_pinned_thread_who_finds_what_the_last_one_left {}
    fails fn unpinning_must_release { unpin: Relaxed }
    fails fn pinning_must_acquire { pin: Release }
    fails fn a_slot_must_not_be_taken_while_a_thread_is_pinned { asks: false }
    fails fn a_take_must_raise_the_version { counts: false }
    fails fn a_pin_must_be_one_step { swaps: false }
}
