//! The census of lost blocks, beside a live thread (`pando-pmem/src/alloc/census.rs`, `slab.rs`).
//!
//! A census frees a block that is taken and not active, if its word has no stamp of the census. A
//! live thread has such blocks too: it reserves a block before it activates it, and it retires a
//! block after it has deactivated it. Here one thread does either, while a census is taken. The
//! epoch may have risen before, and the thread that takes the census may not have seen that.
//!
//! The thread that takes the census belongs to the same process. So it also gives the answer of
//! that process.
//!
//! The census decides by a CAS of the taken word. Loom runs these in one order that all threads
//! see, so no weaker ordering of the active bit or of the answer fails here. Their mutants change
//! the order of the steps instead.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::fence;
use loom::thread;

use crate::atomic::Atomic;
use crate::explore;

/// The parts that the mutants change.
#[derive(Clone, Copy)]
struct Code {
    /// `begin_census`: a fence between the number of the census and the load of the epoch.
    fenced: bool,
    /// `GRACE_EPOCHS`.
    grace: u64,
    /// `clear_active` stamps the word first.
    stamps_first: bool,
    /// `answer_census` waits for the blocks that were retired early.
    answers_in_time: bool,
    /// `free_lost` comes after all answers.
    awaits_answers: bool,
    /// `colour_of`: a block that is retired at the beginning of a census is an early one.
    begins_early: bool,
}

const AS_WRITTEN: Code = Code {
    fenced: true,
    grace: 3,
    stamps_first: true,
    answers_in_time: true,
    awaits_answers: true,
    begins_early: true,
};

/// A lease that is not pinned.
const VERSION: u64 = 1;
const EPOCH_SHIFT: u32 = 8;

/// The word of the census: its number, shifted, and its phase.
const NUMBER: u64 = 4;
const BEGUN: u64 = 0;
const STAMPED: u64 = 1;

/// The stamp in the taken word, behind the bit of the only block.
const TAKEN: u64 = 1;
const STAMP: u64 = 2;

struct Pool {
    code: Code,
    epoch: Atomic,
    lease: Atomic,
    census: Atomic,
    taken: Atomic,
    active: Atomic,
    /// Blocks that wait: those that were retired early, and the others.
    waiting: [Atomic; 2],
    answer: Atomic,
}

impl Pool {
    fn new(code: Code, taken: u64) -> Arc<Self> {
        Arc::new(Self {
            code,
            epoch: Atomic::new(1),
            lease: Atomic::new(VERSION),
            census: Atomic::new(0),
            taken: Atomic::new(taken),
            active: Atomic::new(taken),
            waiting: Default::default(),
            answer: Atomic::new(0),
        })
    }

    /// As in the model `epoch`.
    fn pin(&self) {
        let pinned = self.epoch.load(Relaxed) << EPOCH_SHIFT | VERSION;
        assert!(self.lease.compare_exchange(VERSION, pinned, AcqRel, Relaxed).is_ok());
        fence(SeqCst);
    }

    fn unpin(&self) {
        self.lease.store(VERSION, Release);
    }

    /// As in the model `epoch`.
    fn try_advance(&self) -> u64 {
        let epoch = self.epoch.load(Acquire);
        fence(SeqCst);
        let lease = self.lease.load(Acquire);
        if lease != VERSION && lease >> EPOCH_SHIFT != epoch {
            return epoch;
        }
        match self.epoch.compare_exchange(epoch, epoch + 1, SeqCst, SeqCst) {
            Ok(_) => epoch + 1,
            Err(other) => other,
        }
    }

    /// `stamp`.
    fn stamp(&self) -> u64 {
        self.census.load(Acquire) / NUMBER
    }

    /// `tagged`.
    fn tagged(&self, bit: u64) -> u64 {
        (self.stamp() * STAMP) | bit
    }

    /// `take_block`.
    fn take(&self) {
        let mut found = self.taken.load(Acquire);
        while let Err(other) =
            self.taken.compare_exchange(found, self.tagged(TAKEN), SeqCst, Acquire)
        {
            found = other;
        }
        assert_eq!(found & TAKEN, 0);
    }

    /// `set_active`.
    fn set_active(&self) {
        assert_eq!(self.active.compare_exchange(0, 1, SeqCst, Acquire), Ok(0));
    }

    /// `clear_active`.
    fn clear_active(&self) {
        if self.code.stamps_first {
            self.stamp_word();
        }
        assert_eq!(self.active.compare_exchange(1, 0, SeqCst, Acquire), Ok(1));
        if !self.code.stamps_first {
            self.stamp_word();
        }
    }

    fn stamp_word(&self) {
        let mut found = self.taken.load(Acquire);
        while found / STAMP != self.stamp() {
            match self.taken.compare_exchange(found, self.tagged(found & TAKEN), SeqCst, Acquire) {
                Ok(_) => return,
                Err(other) => found = other,
            }
        }
    }

    /// `push_limbo`; the colour of the block.
    fn retire(&self) -> usize {
        let word = self.census.load(Acquire);
        let is_late = word % NUMBER != BEGUN || !self.code.begins_early;
        // Blocks that are retired while no census was ever begun are early.
        let colour = usize::from(word >= NUMBER && is_late);
        self.waiting[colour].fetch_add(1, Relaxed);
        colour
    }

    /// `collect`, with `release_in_slab`.
    fn release(&self, colour: usize) {
        let mut found = self.taken.load(Acquire);
        loop {
            assert_eq!(found & TAKEN, TAKEN, "the census has freed the block of a live thread");
            match self.taken.compare_exchange(found, self.tagged(0), SeqCst, Acquire) {
                Ok(_) => break,
                Err(other) => found = other,
            }
        }
        self.waiting[colour].fetch_add(u64::MAX, Release);
    }

    /// `begin_census`, `await_stamps`, `answer_census`, `is_answered`, `free_lost_in_slab`, as far
    /// as they go without waiting. Whether the census has freed the block.
    fn take_census(&self) -> bool {
        self.census.store(NUMBER | BEGUN, Release);
        if self.code.fenced {
            fence(SeqCst);
        }
        let from_epoch = self.epoch.load(Acquire);
        if (0..=self.code.grace).all(|_| self.try_advance() < from_epoch + self.code.grace) {
            return false;
        }
        self.census.store(NUMBER | STAMPED, Release);
        if self.waiting[0].load(Acquire) == 0 || !self.code.answers_in_time {
            self.answer.store(1, Release);
        }
        if self.answer.load(Acquire) != 1 && self.code.awaits_answers {
            return false;
        }
        let found = self.taken.load(Acquire);
        let is_lost = found & TAKEN != 0 && self.active.load(Acquire) == 0;
        let freed = self.tagged(0);
        is_lost
            && found / STAMP != 1
            && self.taken.compare_exchange(found, freed, SeqCst, Acquire).is_ok()
    }
}

/// Raises the epoch as far as the census waits, which the thread that takes it may not see.
fn raise(pool: &Pool) {
    (0..3).for_each(|_| {
        pool.try_advance();
    });
}

/// A thread reserves a block and activates it.
fn reserved(code: Code) {
    explore(Some(2), move || {
        let pool = Pool::new(code, 0);
        let thread = thread::spawn({
            let pool = pool.clone();
            move || {
                raise(&pool);
                pool.pin();
                pool.take();
                pool.set_active();
                pool.unpin();
            }
        });
        let is_freed = pool.take_census();
        thread.join().unwrap();
        assert!(!is_freed, "the census has freed the block of a live thread");
    });
}

model_tests! { reserved, AS_WRITTEN;
    holds fn a_reserved_block_is_not_lost {}
    fails fn a_census_reads_the_epoch_behind_a_full_barrier { fenced: false }
    fails fn a_census_without_grace_frees_reserved_blocks { grace: 0 }
}

/// A thread deactivates a block, retires it, and gives it back.
fn retired(code: Code) {
    explore(Some(3), move || {
        let pool = Pool::new(code, TAKEN);
        let census = thread::spawn({
            let pool = pool.clone();
            move || pool.take_census()
        });
        pool.pin();
        pool.clear_active();
        let colour = pool.retire();
        pool.unpin();
        pool.release(colour);
        let is_freed = census.join().unwrap();
        assert!(!is_freed, "the census has freed the block of a live thread");
    });
}

model_tests! { retired, AS_WRITTEN;
    holds fn a_retired_block_is_not_lost {}
    fails fn a_block_is_stamped_before_it_is_deactivated { stamps_first: false }
    fails fn a_process_answers_after_its_last_early_block { answers_in_time: false }
    fails fn a_census_awaits_the_answers { answers_in_time: false, awaits_answers: false }
    fails fn a_block_that_is_retired_at_the_beginning_is_an_early_one { begins_early: false }
}
