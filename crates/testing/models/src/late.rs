//! A helper that stops after the operation has ended (`pando-pmwcas/src/rdcss.rs`). It must not
//! leave a word with a reference that no thread can resolve, because the descriptor continues with
//! its next life.
//!
//! 1. The word does not hold the value that the operation expects. The *owner* finds that and
//!    decides that the operation failed. Its pass of phase 2 over the word finds no reference. It
//!    is done.
//! 2. Meanwhile a *third* thread puts the expected value back.
//! 3. The *helper*, which had seen the expected value before, installs its conditional reference.
//!    It reads the status, replaces the conditional reference accordingly, and stops for ever.
//!
//! Helper and owner each write one word and then read the other's: the helper writes the target and
//! reads the status, the owner writes the status and reads the target. If neither saw the other's
//! write, the helper would leave the reference. So the write, a CAS, and the read must be
//! sequentially consistent on both sides. The owner's read is a failed CAS, the helper's is a load.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use loom::sync::atomic::fence;
use loom::thread;

use crate::atomic::Atomic;
use crate::explore;

const EXPECTED: u64 = 1;
const OTHER: u64 = 2;
const CONDITIONAL: u64 = 3;
const REFERENCE: u64 = 4;

const UNDECIDED: u64 = 0;
const FAILED: u64 = 1;
const FREE: u64 = 2;

/// The accesses that are sequentially consistent. For loom each has a fence before it.
#[derive(Clone, Copy)]
struct Code {
    /// `Word::compare_exchange`, also when it fails.
    swap: bool,
    /// `is_undecided`.
    look: bool,
}

const AS_WRITTEN: Code = Code { swap: true, look: true };

struct Operation {
    code: Code,
    status: Atomic,
    word: Atomic,
}

impl Operation {
    fn cas(&self, word: &Atomic, current: u64, new: u64) -> Result<u64, u64> {
        if self.code.swap {
            fence(SeqCst);
        }
        word.compare_exchange(current, new, AcqRel, Acquire)
    }

    fn is_undecided(&self) -> bool {
        if self.code.look {
            fence(SeqCst);
        }
        self.status.load(Acquire) == UNDECIDED
    }

    /// `replace_conditional`.
    fn replace_conditional(&self) {
        let value = if self.is_undecided() { REFERENCE } else { EXPECTED };
        let _ = self.cas(&self.word, CONDITIONAL, value);
    }

    /// The owner, from its load of the word on: `install`, `decide`, `phase_2`, `finalize`. Returns
    /// whether the operation failed; otherwise the schedule is not the tested case.
    fn own(&self) -> bool {
        if self.word.load(Acquire) != OTHER || !self.is_undecided() {
            return false;
        }
        assert!(self.cas(&self.status, UNDECIDED, FAILED).is_ok());
        while let Err(found) = self.cas(&self.word, REFERENCE, EXPECTED) {
            if found != CONDITIONAL {
                break;
            }
            self.replace_conditional();
        }
        self.status.store(FREE, Release);
        true
    }

    /// The helper, from the installing CAS to the stop.
    fn help(&self) {
        if self.cas(&self.word, EXPECTED, CONDITIONAL).is_ok() {
            self.replace_conditional();
        }
    }
}

fn stopped_helper(code: Code) {
    explore(Some(2), move || {
        let operation =
            Arc::new(Operation { code, status: Atomic::new(UNDECIDED), word: Atomic::new(OTHER) });
        let helper = thread::spawn({
            let operation = operation.clone();
            move || operation.help()
        });
        let third = thread::spawn({
            let operation = operation.clone();
            move || operation.cas(&operation.word, OTHER, EXPECTED)
        });
        let failed = operation.own();
        helper.join().unwrap();
        // The third thread may come too early; that does not matter.
        let _ = third.join().unwrap();
        let left = operation.word.load(Acquire);
        assert!(!failed || left != REFERENCE, "a reference is left that no thread resolves");
    });
}

model_tests! { stopped_helper, AS_WRITTEN;
    holds fn a_stopped_helper_leaves_no_reference {}
    fails fn a_failed_swap_must_be_sequentially_consistent { swap: false }
    fails fn the_look_at_the_status_must_be_sequentially_consistent { look: false }
}
