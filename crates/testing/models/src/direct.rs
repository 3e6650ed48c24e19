//! A PMwCAS of two words by direct installation (`pando-pmwcas/src/direct.rs`, `execute.rs`,
//! `descriptor.rs`), in a domain without write-backs: an owner, threads that interrupt it, readers.
//!
//! The functions have the names and the steps of the code. After an interruption the owner executes
//! the operation with helpers, which `pmwcas` models.

use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::thread;

use crate::descriptor::{
    self, FAILED, FREE, INSTALLING, Life, MWCAS, Orderings, SUCCEEDED, Target, sequence_of,
    state_of, status,
};
use crate::explore;

/// The parts that the mutants change.
#[derive(Clone, Copy)]
struct Code {
    /// The owner decides by a CAS, which fails if it was interrupted.
    decides_by_swap: bool,
    /// An interrupted owner takes its references back.
    undoes: bool,
    /// A reader reads the status again after it has read the entry.
    asks_again: bool,
    orderings: Orderings,
}

const AS_WRITTEN: Code = Code {
    decides_by_swap: true,
    undoes: true,
    asks_again: true,
    orderings: Orderings::AS_WRITTEN,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direct {
    Succeeded,
    Mismatch,
    Interrupted,
}

/// Each thread has one descriptor.
type Pmwcas = descriptor::Pmwcas<Code, 2>;

impl Pmwcas {
    fn status_of(&self, life: Life) -> Option<u64> {
        let found = self.descriptors[life.index].status.load(SeqCst);
        (sequence_of(found) == life.sequence).then(|| state_of(found))
    }

    fn publish(&self, index: usize, targets: [Target; 2]) -> Life {
        let sequence = sequence_of(self.descriptors[index].status.load(Acquire)) + 1;
        let life = Life { index, sequence };
        self.publish_entries(life, targets, INSTALLING);
        life
    }

    /// An operation, from its beginning to its end.
    fn run(&self, index: usize, targets: [Target; 2]) -> Direct {
        let life = self.publish(index, targets);
        let ended = self.execute_direct(life, targets);
        self.descriptors[index].status.store(status(FREE, life.sequence), Release);
        ended
    }

    fn execute_direct(&self, life: Life, targets: [Target; 2]) -> Direct {
        let word = &self.descriptors[life.index].status;
        let installing = status(INSTALLING, life.sequence);
        let installed = self.install_all(life, targets);
        if installed < targets.len() {
            let _ = self.cas(word, installing, status(FAILED, life.sequence));
            self.replace_references(life, &targets[..installed], false);
            return Direct::Mismatch;
        }
        let succeeded = status(SUCCEEDED, life.sequence);
        if !self.code.decides_by_swap {
            word.store(succeeded, Release);
        } else if self.cas(word, installing, succeeded).is_err() {
            if self.code.undoes {
                self.replace_references(life, &targets, false);
            }
            return Direct::Interrupted;
        }
        self.replace_references(life, &targets, true);
        Direct::Succeeded
    }

    fn install_all(&self, life: Life, targets: [Target; 2]) -> usize {
        for (index, [place, old, _]) in targets.into_iter().enumerate() {
            let word = &self.words[place as usize];
            while let Err(found) = self.cas(word, old, life.reference(index)) {
                if found & MWCAS == 0 {
                    return index;
                }
                self.settle_reference(place as usize, found);
            }
        }
        targets.len()
    }

    fn replace_references(&self, life: Life, targets: &[Target], succeeded: bool) {
        for (index, [place, old, new]) in targets.iter().enumerate() {
            let value = if succeeded { *new } else { *old };
            let _ = self.cas(&self.words[*place as usize], life.reference(index), value);
        }
    }

    fn settle_reference(&self, place: usize, found: u64) {
        let (life, entry) = Life::of(found);
        if self.status_of(life) == Some(INSTALLING) {
            let word = &self.descriptors[life.index].status;
            let installing = status(INSTALLING, life.sequence);
            let _ = self.cas(word, installing, status(FAILED, life.sequence));
        }
        self.complete_word(place, found, life, entry);
    }

    fn complete_word(&self, place: usize, found: u64, life: Life, entry: usize) {
        let (old, new) = (self.entry(life, entry, 1), self.entry(life, entry, 2));
        let value = match self.status_of(life) {
            Some(SUCCEEDED) => new,
            Some(FAILED) => old,
            _ => return,
        };
        let _ = self.cas(&self.words[place], found, value);
    }

    fn value_under(&self, found: u64) -> Option<u64> {
        let (life, entry) = Life::of(found);
        let first = self.status_of(life)?;
        let old = self.entry(life, entry, 1);
        let state = if self.code.asks_again { self.status_of(life)? } else { first };
        (state == INSTALLING).then_some(old)
    }

    fn read(&self, place: usize) -> u64 {
        loop {
            let found = self.words[place].load(Acquire);
            if found & MWCAS == 0 {
                return found;
            }
            if let Some(value) = self.value_under(found) {
                return value;
            }
            self.settle_reference(place, found);
        }
    }

    fn assert_settled(&self) {
        let left = [0, 1, 2].map(|place| self.words[place].load(Acquire));
        assert!(left.iter().all(|value| value & MWCAS == 0), "{left:x?}");
    }
}

/// Two operations change the same two words from the same values to different ones.
fn race(code: Code) {
    explore(Some(2), move || {
        let pmwcas = Pmwcas::new(code, code.orderings);
        let other = thread::spawn({
            let pmwcas = pmwcas.clone();
            move || pmwcas.run(1, [[0, 0, 2], [1, 0, 2]])
        });
        let own = pmwcas.run(0, [[0, 0, 1], [1, 0, 1]]);
        let other = other.join().unwrap();
        let value = match (own, other) {
            (Direct::Succeeded, _) => 1,
            (_, Direct::Succeeded) => 2,
            // One found the other's reference, and was itself interrupted.
            _ => 0,
        };
        assert!((own, other) != (Direct::Mismatch, Direct::Mismatch), "neither has changed it");
        assert!((own, other) != (Direct::Succeeded, Direct::Succeeded));
        pmwcas.assert_settled();
        assert_eq!([0, 1].map(|place| pmwcas.words[place].load(Acquire)), [value; 2]);
    });
}

model_tests! { race, AS_WRITTEN;
    holds fn of_two_operations_at_most_one_happens_and_wholly {}
    fails fn an_owner_looks_whether_it_was_interrupted { decides_by_swap: false }
    fails fn an_interrupted_owner_takes_its_references_back { undoes: false }
    fails fn references_are_published_with_release { orderings: Orderings::SWAP_RELAXED }
}

/// A reader of two words. At the same time one operation changes both, and then an operation with
/// the same descriptor changes one of them and a third word.
fn look(code: Code) {
    explore(Some(2), move || {
        let pmwcas = Pmwcas::new(code, code.orderings);
        pmwcas.words[2].store(9, Relaxed);
        let writer = thread::spawn({
            let pmwcas = pmwcas.clone();
            move || {
                assert_eq!(pmwcas.run(1, [[0, 0, 1], [1, 0, 1]]), Direct::Succeeded);
                assert_eq!(pmwcas.run(1, [[1, 1, 5], [2, 9, 7]]), Direct::Succeeded);
            }
        });
        let first = pmwcas.read(0);
        let second = pmwcas.read(1);
        assert!(first <= 1 && [0, 1, 5].contains(&second), "no word held {first}, {second}");
        assert!(first <= second, "half of an operation is seen");
        writer.join().unwrap();
        pmwcas.assert_settled();
        assert_eq!([0, 1, 2].map(|place| pmwcas.read(place)), [1, 5, 7]);
    });
}

model_tests! { look, AS_WRITTEN;
    holds fn a_reader_sees_an_operation_wholly_or_not_at_all_and_interrupts_none {}
    fails fn a_reader_asks_again_after_it_has_read_the_old_value { asks_again: false }
    fails fn entries_are_stored_with_release { orderings: Orderings::FILL_RELAXED }
    fails fn entries_are_loaded_with_acquire { orderings: Orderings::COPY_RELAXED }
}
