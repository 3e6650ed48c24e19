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
//! In `absent_key`, the first version is none, so what the helper leaves is a tombstone. A fourth
//! thread removes it when the owner has left (`tombstones.rs`). Then the key is absent once more.
//!
//! In `two_commits`, both commits of the key are bare, in either order, and the helper takes both
//! to their ends.
//!
//! Owner, helper and writer change the key's value by a CAS that acquires and releases, from the
//! very version that they have read. Only an absent key comes twice.

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
    /// The tombstone stays until the owner has left.
    has_grace: bool,
}

const AS_WRITTEN: Code =
    Code { takes_back: true, decides_found: true, installs_from_found: true, has_grace: true };

struct Commit {
    code: Code,
    newest: Atomic,
    status: Atomic,
    key: Atomic,
}

fn exchange(key: &Atomic, found: u64, new: u64) -> bool {
    key.compare_exchange(found, new, AcqRel, Acquire).is_ok()
}

/// `decide`; the status.
fn decide(word: &Atomic, status: u64) -> u64 {
    word.compare_exchange(UNDECIDED, status, AcqRel, Acquire).err().unwrap_or(status)
}

impl Commit {
    fn new(code: Code) -> Self {
        let [newest, status, key] = [0, UNDECIDED, FIRST].map(Atomic::new);
        Self { code, newest, status, key }
    }

    fn exchange(&self, found: u64, new: u64) -> bool {
        exchange(&self.key, found, new)
    }

    fn decide(&self, status: u64) -> u64 {
        decide(&self.status, status)
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
        let commit = Arc::new(Commit::new(code));
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

/// `FIRST` is an absent key here.
fn absent_key(code: Code) {
    explore(Some(3), move || {
        let commit = Arc::new(Commit::new(code));
        let has_left = Arc::new(Atomic::new(0));
        let helper = thread::spawn({
            let commit = commit.clone();
            move || commit.help()
        });
        let remover = thread::spawn({
            let (commit, has_left) = (commit.clone(), has_left.clone());
            move || {
                if has_left.load(Acquire) == 1 || !commit.code.has_grace {
                    commit.exchange(UNDONE, FIRST);
                }
            }
        });
        let is_written = commit.own();
        has_left.store(1, Release);
        helper.join().unwrap();
        remover.join().unwrap();
        assert_eq!(commit.status.load(Acquire) == COMMITTED, is_written);
    });
}

/// Two bare commits, 1 and 2 in the order of their records, of a key that has the version 0.
struct Two {
    code: Code,
    newest: Atomic,
    /// Of the commits 0 to 2.
    status: [Atomic; 3],
    /// Twice the number of the commit whose version it is; one more if the version is undone.
    key: Atomic,
}

impl Two {
    fn status(&self, number: u64) -> &Atomic {
        &self.status[number as usize]
    }

    fn decide(&self, number: u64, status: u64) -> u64 {
        decide(self.status(number), status)
    }

    /// `in_flight`: the number of the undecided commit whose version is found.
    fn in_flight(&self, found: u64) -> Option<u64> {
        let is_undecided =
            found.is_multiple_of(2) && self.status(found / 2).load(Acquire) == UNDECIDED;
        is_undecided.then_some(found / 2)
    }

    fn exchange(&self, found: u64, new: u64) -> bool {
        exchange(&self.key, found, new)
    }

    /// `append`: the number of the commit.
    fn append(&self) -> u64 {
        self.newest.fetch_add(1, AcqRel) + 1
    }

    /// `replace`, `end_bare`: makes a commit, which may fail.
    fn own(&self) {
        let found = self.key.load(Acquire);
        if let Some(met) = self.in_flight(found).filter(|_| self.code.decides_found) {
            self.decide(met, COMMITTED);
        }
        let own = self.append();
        let is_written = self.exchange(found, 2 * own);
        let status = self.decide(own, if is_written { COMMITTED } else { FAILED });
        assert_eq!(status == COMMITTED, is_written, "the owner and the status disagree");
    }

    /// `complete_bare` of each commit, in the order of the log.
    fn help(&self) {
        for number in 1..=self.newest.load(Acquire) {
            if self.status(number).load(Acquire) != UNDECIDED {
                continue;
            }
            let status = loop {
                let found = self.key.load(Acquire);
                match found {
                    _ if found == 2 * number => break COMMITTED,
                    _ if self.in_flight(found).is_some() || found / 2 >= number => break FAILED,
                    _ if !self.code.takes_back => break FAILED,
                    _ if self.exchange(found, 2 * number + 1) => break FAILED,
                    _ => {}
                }
            };
            self.decide(number, status);
        }
    }
}

fn two_commits(code: Code) {
    explore(Some(3), move || {
        let two = Arc::new(Two {
            code,
            newest: Atomic::new(0),
            status: [COMMITTED, UNDECIDED, UNDECIDED].map(Atomic::new),
            key: Atomic::new(0),
        });
        let threads = [Two::own, Two::help].map(|work| {
            let two = two.clone();
            thread::spawn(move || work(&two))
        });
        two.own();
        for thread in threads {
            thread.join().unwrap();
        }
        let last = two.key.load(Acquire);
        let is_committed = two.status(last / 2).load(Acquire) == COMMITTED;
        assert_eq!(is_committed, last.is_multiple_of(2), "a failed commit is installed");
    });
}

model_tests! { absent_key, AS_WRITTEN;
    holds fn the_tombstone_of_a_commit_that_was_taken_back_is_removed_late {}
    fails fn a_tombstone_must_stay_until_the_owner_has_left { has_grace: false }
}

model_tests! { two_commits, AS_WRITTEN;
    holds fn the_installs_of_two_decide {}
    fails fn a_helper_must_take_back_what_either_may_replace { takes_back: false }
    fails fn the_later_one_must_decide_the_version_that_it_finds { decides_found: false }
}

model_tests! { one_commit, AS_WRITTEN;
    holds fn the_install_decides {}
    fails fn a_helper_must_take_the_version_back { takes_back: false }
    fails fn who_finds_the_version_must_decide { decides_found: false }
    fails fn a_version_must_be_replaced_from_what_was_found { installs_from_found: false }
}
