//! A commit that fails, and whose key is in a store alone (`pando-tc/src/commit.rs`, `one_key.rs`;
//! `pando-bwtree/src/blind.rs`): a late thread of the commit must not install its write.
//!
//! 1. A *late* thread of the commit waits for the key's page.
//! 2. Another one cannot read the page. It decides that the commit has failed, finds that the page
//!    is absent, and leaves it so. The commit is settled then.
//! 3. The page is loaded, by the late thread or by a *third* one. The late thread finds the version
//!    that it is to replace. It looks whether the commit is still undecided, and installs.
//!
//! One thread writes the status and then reads the page's word; the other reads the word that was
//! written by the load, and then the status. So both need a sequentially consistent fence in
//! between. If the page was not absent, the undo replaces the version; that is not modelled.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use loom::sync::atomic::fence;
use loom::thread;

use crate::atomic::Atomic;
use crate::explore;

const ABSENT: u64 = 1;
const OLD: u64 = 2;
const NEW: u64 = 3;

const UNDECIDED: u64 = 0;
const FAILED: u64 = 1;

/// The parts that the mutants change.
#[derive(Clone, Copy)]
struct Code {
    /// `undo`: its fence.
    undo_fenced: bool,
    /// `is_undecided_behind`: its fence, and whether an install calls it.
    look_fenced: bool,
    looks: bool,
}

const AS_WRITTEN: Code = Code { undo_fenced: true, look_fenced: true, looks: true };

struct Commit {
    code: Code,
    status: Atomic,
    /// Of the key's page.
    word: Atomic,
}

impl Commit {
    fn cas(word: &Atomic, current: u64, new: u64) -> Result<u64, u64> {
        word.compare_exchange(current, new, AcqRel, Acquire)
    }

    /// `load`, `install` of `load.rs`.
    fn load(&self) {
        let _ = Self::cas(&self.word, ABSENT, OLD);
    }

    /// `decide`, `undo`, `lacks_now`: whether nothing is to be undone.
    fn fail(&self) -> bool {
        let _ = Self::cas(&self.status, UNDECIDED, FAILED);
        if self.code.undo_fenced {
            fence(SeqCst);
        }
        self.word.load(Acquire) == ABSENT
    }

    fn is_undecided_behind(&self) -> bool {
        if self.code.look_fenced {
            fence(SeqCst);
        }
        self.status.load(Acquire) == UNDECIDED
    }

    /// `install`, `is_again`.
    fn install(&self) {
        self.load();
        if self.word.load(Acquire) == OLD && (!self.code.looks || self.is_undecided_behind()) {
            let _ = Self::cas(&self.word, OLD, NEW);
        }
    }
}

fn late_thread(code: Code) {
    explore(Some(3), move || {
        let commit =
            Arc::new(Commit { code, status: Atomic::new(UNDECIDED), word: Atomic::new(ABSENT) });
        let late = thread::spawn({
            let commit = commit.clone();
            move || commit.install()
        });
        let third = thread::spawn({
            let commit = commit.clone();
            move || commit.load()
        });
        let is_settled = commit.fail();
        late.join().unwrap();
        third.join().unwrap();
        if is_settled {
            assert_eq!(commit.word.load(Acquire), OLD, "a failed commit has installed its write");
        }
    });
}

model_tests! { late_thread, AS_WRITTEN;
    holds fn a_late_thread_installs_nothing {}
    fails fn the_undo_needs_a_fence { undo_fenced: false }
    fails fn the_look_needs_a_fence { look_fenced: false }
    fails fn an_install_must_look { looks: false }
}
