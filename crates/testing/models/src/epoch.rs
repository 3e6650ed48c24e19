//! Epochs: no block is reused while a thread may access it (`pando-pmem/src/epoch.rs`).
//!
//! A thread can reach a block that another thread has unlinked in two ways:
//!
//! * *Directly*: it pins, finds the block linked, and reads it. Two epochs of grace are enough.
//! * *By an operation*: the operation's owner found the block linked and names it in its
//!   descriptor. A helper that pinned later, perhaps after the unlinking, reads the block because
//!   the operation names it. This needs three epochs of grace.
//!
//! An optimistic read (`pando-pmem/src/optimistic.rs`) may find words of a reused block, and must
//! notice it. If a thread pins and the read is still valid then, it is as safe as a pin before.
//!
//! A thread may defer work with the block when it unpins (`Guard::defer`). The work is done before
//! the block is reused.
//!
//! The block is a cell that loom watches: the model fails if an access is not ordered before the
//! reuse.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{Ordering, fence};
use loom::thread;

use crate::atomic::Atomic;
use crate::explore;

/// The parts that the mutants change.
#[derive(Clone, Copy)]
struct Code {
    /// `Word::compare_exchange_transient`: a full barrier follows the announcement. (A CAS is one
    /// on x86, but not in the language.)
    announcement_fenced: bool,
    /// `try_advance`: a fence between the load of the epoch and the loads of the slots.
    advance_fenced: bool,
    /// `unlink_epoch`: a fence between the unlinking and the load of the epoch.
    unlink_fenced: bool,
    /// `Word::store_transient`, with which a thread unpins.
    unpin: Ordering,
    /// The loads of slots in `try_advance`.
    look: Ordering,
    /// `GRACE_EPOCHS`.
    grace: u64,
    /// `try_advance` does deferred work.
    does_deferred: bool,
    /// A thread defers its work before it unpins.
    leaves_in_time: bool,
    /// `OptimisticRead::is_valid`: a fence before the last load of the epoch.
    validation_acquires: bool,
    /// `OptimisticRead::is_valid` compares the epoch.
    validates: bool,
}

const AS_WRITTEN: Code = Code {
    announcement_fenced: true,
    advance_fenced: true,
    unlink_fenced: true,
    unpin: Release,
    look: Acquire,
    grace: 3,
    does_deferred: true,
    leaves_in_time: true,
    validation_acquires: true,
    validates: true,
};

/// The version of every lease.
const VERSION: u64 = 1;
const EPOCH_SHIFT: u32 = 8;

struct Pool {
    code: Code,
    epoch: Atomic,
    /// Participant slots ever claimed.
    high: Atomic,
    slots: [Atomic; 3],
    /// Whether the thread of the slot has deferred work with the block.
    deferred: [Atomic; 3],
    /// Whether the block is linked.
    link: Atomic,
    /// Whether an operation names the block.
    operation: Atomic,
    block: UnsafeCell<u64>,
    /// A word of the block, for optimistic reads: 1 when the block is reused.
    word: Atomic,
}

// SAFETY: the test is about the cell; loom reports accesses that are not ordered.
unsafe impl Sync for Pool {}
// SAFETY: as for Sync.
unsafe impl Send for Pool {}

impl Pool {
    fn new(code: Code, claimed: u64) -> Arc<Self> {
        Arc::new(Self {
            code,
            epoch: Atomic::new(1),
            high: Atomic::new(claimed),
            slots: [(); 3].map(|()| Atomic::new(VERSION)),
            deferred: Default::default(),
            link: Atomic::new(1),
            operation: Atomic::new(0),
            block: UnsafeCell::new(0),
            word: Atomic::new(0),
        })
    }

    /// `prepare_slot` of the highest slot: `raise_high`.
    fn raise_high(&self, from: u64, to: u64) {
        assert_eq!(self.high.compare_exchange(from, to, AcqRel, Acquire), Ok(from));
    }

    fn pin(&self, slot: usize) {
        let pinned = self.epoch.load(Relaxed) << EPOCH_SHIFT | VERSION;
        let order = if self.code.announcement_fenced { AcqRel } else { SeqCst };
        // No thread takes another's slot here: see `slot`.
        let found = self.slots[slot].compare_exchange(VERSION, pinned, order, Relaxed);
        assert_eq!(found, Ok(VERSION));
        if self.code.announcement_fenced {
            fence(SeqCst);
        }
    }

    fn optimistic_read(&self) -> u64 {
        let epoch = self.epoch.load(Acquire);
        fence(SeqCst);
        epoch
    }

    fn holds(&self, epoch: u64) -> bool {
        if self.code.validation_acquires {
            fence(Acquire);
        }
        !self.code.validates || self.epoch.load(Acquire) == epoch
    }

    fn unpin(&self, slot: usize) {
        self.slots[slot].store(VERSION, self.code.unpin);
    }

    fn unlink_epoch(&self) -> u64 {
        if self.code.unlink_fenced {
            fence(SeqCst);
        }
        self.epoch.load(Acquire)
    }

    fn try_advance(&self) -> u64 {
        let epoch = self.epoch.load(Acquire);
        if self.code.advance_fenced {
            fence(SeqCst);
        }
        for slot in 0..self.high.load(Acquire) {
            let pinned = self.slots[slot as usize].load(self.code.look);
            if pinned != VERSION && pinned >> EPOCH_SHIFT != epoch {
                return epoch;
            }
            if self.code.does_deferred {
                self.do_deferred(slot as usize);
            }
        }
        match self.epoch.compare_exchange(epoch, epoch + 1, SeqCst, SeqCst) {
            Ok(_) => epoch + 1,
            Err(other) => other,
        }
    }

    fn do_deferred(&self, slot: usize) {
        if self.deferred[slot].load(Acquire) == 1 {
            self.look_at_block();
            let _ = self.deferred[slot].compare_exchange(1, 0, SeqCst, SeqCst);
        }
    }

    fn look_at_block(&self) {
        self.block.with(|_| ());
    }

    /// Unlinks the block; the epoch of the unlinking.
    fn unlink(&self) -> u64 {
        assert_eq!(self.link.compare_exchange(1, 0, SeqCst, SeqCst), Ok(1));
        self.unlink_epoch()
    }

    /// Reuses the block that was unlinked in `epoch` as soon as its grace epochs are over.
    fn reuse_when_ripe(&self, epoch: u64) {
        for _ in 0..=self.code.grace {
            if epoch + self.code.grace <= self.try_advance() {
                for deferred in &self.deferred {
                    assert_eq!(
                        deferred.load(Relaxed),
                        0,
                        "the block is reused before the deferred work is done"
                    );
                }
                self.block.with_mut(|_| ());
                self.word.store(1, Relaxed);
                return;
            }
        }
    }
}

/// A thread that has just claimed its slot finds the block linked or unlinked. Another thread
/// raises the epoch whenever this is allowed.
fn direct_reader(code: Code) {
    explore(Some(2), move || {
        let pool = Pool::new(code, 1);
        pool.pin(0);
        let collector = thread::spawn({
            let pool = pool.clone();
            move || {
                pool.try_advance();
                pool.try_advance();
            }
        });
        let reader = thread::spawn({
            let pool = pool.clone();
            move || {
                pool.raise_high(1, 2);
                pool.pin(1);
                if pool.link.load(Acquire) == 1 {
                    pool.look_at_block();
                }
                pool.unpin(1);
            }
        });
        let epoch = pool.unlink();
        pool.unpin(0);
        pool.reuse_when_ripe(epoch);
        reader.join().unwrap();
        collector.join().unwrap();
    });
}

/// The third epoch, which readers do not need, would hide the mutants.
const TWO_EPOCHS: Code = Code { grace: 2, ..AS_WRITTEN };

/// No thread of [`direct_reader`] defers work. The steps that look for it only lengthen the search
/// for a mutant.
const TWO_EPOCHS_OF_READERS: Code = Code { does_deferred: false, ..TWO_EPOCHS };

model_tests! { direct_reader, TWO_EPOCHS;
    holds fn two_epochs_are_enough_for_readers {}
}

model_tests! { direct_reader, AS_WRITTEN;
    fails fn one_epoch_is_not_enough { grace: 1 }
}

model_tests! { direct_reader, TWO_EPOCHS_OF_READERS;
    fails fn an_announcement_needs_a_full_barrier { announcement_fenced: false }
    fails fn an_advance_needs_its_fence { advance_fenced: false }
    fails fn an_unlinking_needs_its_fence { unlink_fenced: false }
    fails fn unpinning_must_release { unpin: Relaxed }
    fails fn looks_at_slots_must_acquire { look: Relaxed }
}

/// A thread without a pin finds the block linked, reads it, and uses the words if the epoch has not
/// changed. Or it pins after that, and reads.
fn optimistic_reader(code: Code, pins: bool) {
    explore(Some(2), move || {
        let pool = Pool::new(code, 2);
        pool.pin(0);
        let reader = thread::spawn({
            let pool = pool.clone();
            move || {
                let epoch = pool.optimistic_read();
                if pool.link.load(Acquire) == 0 {
                    return;
                }
                if pins {
                    pool.pin(1);
                    if pool.holds(epoch) {
                        pool.look_at_block();
                    }
                    pool.unpin(1);
                } else {
                    let found = pool.word.load(Relaxed);
                    assert!(!pool.holds(epoch) || found == 0, "a word of another block is used");
                }
            }
        });
        let epoch = pool.unlink();
        pool.unpin(0);
        pool.reuse_when_ripe(epoch);
        reader.join().unwrap();
    });
}

model_tests! { |code| optimistic_reader(code, false), AS_WRITTEN;
    holds fn a_valid_optimistic_read_has_seen_the_block {}
    fails fn an_optimistic_read_must_validate_the_epoch { validates: false }
    fails fn an_optimistic_read_validates_after_its_loads { validation_acquires: false }
}

model_tests! { |code| optimistic_reader(code, true), AS_WRITTEN;
    holds fn a_pin_after_a_valid_optimistic_read_is_in_time {}
    fails fn a_pin_after_an_invalid_optimistic_read_is_late { validates: false }
    fails fn a_pin_after_an_optimistic_read_needs_its_full_barrier
        { announcement_fenced: false, grace: 2 }
}

/// A thread that finds the block defers work with it.
fn deferrer(code: Code) {
    explore(Some(2), move || {
        let pool = Pool::new(code, 2);
        pool.pin(0);
        let deferrer = thread::spawn({
            let pool = pool.clone();
            move || {
                pool.pin(1);
                let found = pool.link.load(Acquire) == 1;
                if found && pool.code.leaves_in_time {
                    pool.deferred[1].store(1, Release);
                }
                pool.unpin(1);
                if found && !pool.code.leaves_in_time {
                    pool.deferred[1].store(1, Release);
                }
            }
        });
        let epoch = pool.unlink();
        pool.unpin(0);
        pool.reuse_when_ripe(epoch);
        deferrer.join().unwrap();
    });
}

model_tests! { deferrer, TWO_EPOCHS;
    holds fn deferred_work_is_done_before_the_block_is_reused {}
    fails fn deferred_work_does_not_do_itself { does_deferred: false }
    fails fn work_must_be_deferred_before_unpinning { leaves_in_time: false }
    fails fn deferred_work_is_seen_only_by_an_acquiring_load { look: Relaxed }
}

/// The owner of an operation that names the block ends the operation. Meanwhile another thread has
/// unlinked the block and waits for its epoch, and a helper reaches the block by the operation.
fn helper(code: Code) {
    explore(Some(2), move || {
        let pool = Pool::new(code, 3);
        // The owner is pinned since the first epoch, when the block was linked.
        pool.pin(0);
        pool.operation.store(1, Release);
        let helper = thread::spawn({
            let pool = pool.clone();
            move || {
                pool.pin(1);
                if pool.operation.load(Acquire) == 1 {
                    pool.look_at_block();
                }
                pool.unpin(1);
            }
        });
        let unlinker = thread::spawn({
            let pool = pool.clone();
            move || {
                pool.pin(2);
                let epoch = pool.unlink();
                pool.unpin(2);
                pool.reuse_when_ripe(epoch);
            }
        });
        pool.operation.store(0, Release);
        pool.unpin(0);
        helper.join().unwrap();
        unlinker.join().unwrap();
    });
}

model_tests! { helper, AS_WRITTEN;
    holds fn a_helper_never_looks_at_a_reused_block {}
    fails fn two_epochs_are_not_enough_for_helpers { grace: 2 }
}
