//! A bare commit, a helper that takes it to its end, and another writer of its key
//! (`pando-tc/src/bare.rs`, `one_key.rs`, `component.rs`). The install decides: a failed commit has
//! never been installed, and a committed one has.
//!
//! 1. The *owner* finds a version, appends its record, installs over the version, and decides.
//! 2. The *helper* finds the record undecided. It reads the key, and takes the version back that
//!    the owner may still replace; then it decides too.
//! 3. The *writer* finds the owner's version, decides that the commit is committed, and replaces
//!    the version.
//!
//! Owner, helper and writer change the key's value by a CAS that acquires and releases, from the
//! very version that they have read. No version comes twice.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use loom::thread;

use crate::atomic::Atomic;
use crate::explore;

const FIRST: u64 = 1;
const OWN: u64 = 2;
/// The first value, under the owner's stamp.
const UNDONE: u64 = 3;
const OF_WRITER: u64 = 4;

const UNDECIDED: u64 = 0;
const COMMITTED: u64 = 1;
const FAILED: u64 = 2;

/// The parts that the mutants change.
#[derive(Clone, Copy)]
struct Code {
    /// `takes_back`: the helper replaces the version before it lets the commit fail.
    takes_back: bool,
    /// `decide_found`: who finds the owner's version decides before it replaces that.
    decides_found: bool,
    /// The writer replaces a version by a CAS from what it has found.
    installs_from_found: bool,
}

const AS_WRITTEN: Code = Code { takes_back: true, decides_found: true, installs_from_found: true };

struct Commit {
    code: Code,
    newest: Atomic,
    status: Atomic,
    key: Atomic,
}

impl Commit {
    fn exchange(&self, found: u64, new: u64) -> bool {
        self.key.compare_exchange(found, new, AcqRel, Acquire).is_ok()
    }

    /// `decide`; the status.
    fn decide(&self, status: u64) -> u64 {
        self.status.compare_exchange(UNDECIDED, status, AcqRel, Acquire).err().unwrap_or(status)
    }

    /// `replace`, `end_bare`: whether it has installed.
    fn own(&self) -> bool {
        let found = self.key.load(Acquire);
        self.newest.store(1, Release);
        let is_written = found == FIRST && self.exchange(found, OWN);
        let status = self.decide(if is_written { COMMITTED } else { FAILED });
        assert_eq!(status == COMMITTED, is_written, "the owner and the status disagree");
        is_written
    }

    /// `complete_bare`, `is_there_for_good`, `takes_back`.
    fn help(&self) {
        if self.newest.load(Acquire) == 0 || self.status.load(Acquire) != UNDECIDED {
            return;
        }
        let status = loop {
            match self.key.load(Acquire) {
                OWN => break COMMITTED,
                FIRST if self.code.takes_back && !self.exchange(FIRST, UNDONE) => {}
                _ => break FAILED,
            }
        };
        self.decide(status);
    }

    /// `in_flight`, `begin`: a commit of another thread at the key.
    fn write(&self) {
        loop {
            let found = self.key.load(Acquire);
            if found == OWN && self.code.decides_found {
                self.decide(COMMITTED);
            }
            if self.exchange(found, OF_WRITER) {
                return;
            }
            if !self.code.installs_from_found {
                self.key.store(OF_WRITER, Release);
                return;
            }
        }
    }
}

fn one_commit(code: Code) {
    explore(Some(3), move || {
        let commit = Arc::new(Commit {
            code,
            newest: Atomic::new(0),
            status: Atomic::new(UNDECIDED),
            key: Atomic::new(FIRST),
        });
        let helper = thread::spawn({
            let commit = commit.clone();
            move || commit.help()
        });
        let writer = thread::spawn({
            let commit = commit.clone();
            move || commit.write()
        });
        let is_written = commit.own();
        helper.join().unwrap();
        writer.join().unwrap();
        assert_eq!(commit.status.load(Acquire) == COMMITTED, is_written);
    });
}

model_tests! { one_commit, AS_WRITTEN;
    holds fn the_install_decides {}
    fails fn a_helper_must_take_the_version_back { takes_back: false }
    fails fn who_finds_the_version_must_decide { decides_found: false }
    fails fn a_version_must_be_replaced_from_what_was_found { installs_from_found: false }
}
