//! A PMwCAS of two words by two threads that help each other (`pando-pmwcas/src/rdcss.rs`,
//! `descriptor.rs`, `pmwcas.rs`), in a domain without write-backs, so without dirty bits.
//!
//! Each thread has a descriptor, which its next operation uses again at once. As a helper it has a
//! record of its conditional references. The functions have the names and the steps of the code.

use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::thread;

use crate::descriptor::{
    self, CONTROL_BITS, FAILED, FILLING, FREE, HELPING, Life, Orderings, RDCSS, SUCCEEDED, Target,
    UNDECIDED, sequence_of, state_of, status,
};
use crate::explore;

/// The parts that the mutants change.
#[derive(Clone, Copy)]
struct Code {
    /// A reference is installed by way of a conditional one.
    conditional: bool,
    /// A helper's conditional reference names the helper's record, not the owner's entry.
    own_record: bool,
    /// A read of a status compares the sequence number with the expected one.
    checks_sequence: bool,
    orderings: Orderings,
}

const AS_WRITTEN: Code = Code {
    conditional: true,
    own_record: true,
    checks_sequence: true,
    orderings: Orderings::AS_WRITTEN,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Owner,
    Helper,
}

enum Installed {
    Reference,
    Mismatch,
    Decided,
}

/// Each thread has a record and a descriptor.
type Pmwcas = descriptor::Pmwcas<Code, 4>;

impl Pmwcas {
    fn read(&self, slot: usize, place: usize) -> u64 {
        loop {
            let found = self.words[place].load(Acquire);
            if found & CONTROL_BITS == 0 {
                return found;
            }
            self.settle(slot, place, found);
        }
    }

    fn settle(&self, slot: usize, place: usize, found: u64) {
        if found & RDCSS != 0 {
            self.complete_install(place, found);
        } else {
            self.help(slot, found);
        }
        // Otherwise the code would treat the word as damaged.
        assert_ne!(self.words[place].load(Acquire), found, "settled, and not replaced");
    }

    /// An operation, from its beginning to its end; whether it succeeded.
    fn run(&self, slot: usize, targets: [Target; 2]) -> bool {
        let life = self.publish(slot, targets);
        self.finish(slot, life, targets)
    }

    /// The owner's part from the published descriptor on.
    fn finish(&self, slot: usize, life: Life, targets: [Target; 2]) -> bool {
        let succeeded = self.drive(slot, life, targets, Role::Owner);
        self.descriptors[life.index].status.store(status(FREE, life.sequence), Release);
        succeeded
    }

    /// `claim` of the thread's descriptor, then `publish`.
    fn publish(&self, slot: usize, targets: [Target; 2]) -> Life {
        let index = slot * 2 + 1;
        let descriptor = &self.descriptors[index];
        let found = descriptor.status.load(Acquire);
        let life = Life { index, sequence: sequence_of(found) + 1 };
        let filling = status(FILLING, life.sequence);
        assert_eq!(self.cas(&descriptor.status, found, filling), Ok(found));
        self.publish_entries(life, targets, UNDECIDED);
        life
    }

    fn help(&self, slot: usize, found: u64) {
        let (life, _) = Life::of(found);
        let targets = [0, 1].map(|entry| [0, 1, 2].map(|at| self.entry(life, entry, at)));
        if self.is_live(life) {
            self.drive(slot, life, targets, Role::Helper);
        }
    }

    fn status_of(&self, life: Life) -> Option<u64> {
        let found = self.descriptors[life.index].status.load(Acquire);
        self.is_meant(found, life).then_some(state_of(found))
    }

    fn is_meant(&self, status: u64, life: Life) -> bool {
        sequence_of(status) == life.sequence || !self.code.checks_sequence
    }

    fn is_live(&self, life: Life) -> bool {
        matches!(self.status_of(life), Some(UNDECIDED | SUCCEEDED | FAILED))
    }

    fn is_undecided(&self, life: Life) -> bool {
        let found = self.descriptors[life.index].status.load(SeqCst);
        state_of(found) == UNDECIDED && self.is_meant(found, life)
    }

    fn drive(&self, slot: usize, life: Life, targets: [Target; 2], role: Role) -> bool {
        let decision = self.phase_1(slot, life, targets, role);
        let succeeded = match self.decide(life, decision) {
            Some(SUCCEEDED) => true,
            Some(FAILED) => false,
            _ => return false,
        };
        self.phase_2(life, targets, succeeded);
        succeeded
    }

    fn phase_1(&self, slot: usize, life: Life, targets: [Target; 2], role: Role) -> Option<u64> {
        for (index, target) in targets.into_iter().enumerate() {
            match self.install(slot, life, index, target, role) {
                Installed::Reference => {}
                Installed::Mismatch => return Some(FAILED),
                Installed::Decided => return None,
            }
        }
        Some(SUCCEEDED)
    }

    fn install(
        &self,
        slot: usize,
        life: Life,
        index: usize,
        [place, old, _]: Target,
        role: Role,
    ) -> Installed {
        let place = place as usize;
        let word = &self.words[place];
        let reference = life.reference(index);
        loop {
            let found = word.load(Acquire);
            if found == reference {
                return Installed::Reference;
            }
            if !self.is_undecided(life) {
                return Installed::Decided;
            }
            if found & CONTROL_BITS != 0 {
                self.settle(slot, place, found);
                continue;
            }
            if found != old {
                return Installed::Mismatch;
            }
            if !self.code.conditional {
                let _ = self.cas(word, old, reference);
                continue;
            }
            let conditional = match role {
                Role::Helper if self.code.own_record => self.record_install(slot, reference, old),
                _ => life.conditional(index),
            };
            if self.cas(word, old, conditional).is_ok() {
                self.replace_conditional(place, conditional, reference, old);
            }
        }
    }

    fn record_install(&self, slot: usize, reference: u64, old: u64) -> u64 {
        let record = &self.descriptors[slot * 2];
        let sequence = sequence_of(record.status.load(Relaxed)) + 1;
        record.status.store(status(HELPING, sequence), Release);
        record.entries[0][1].store(old, Release);
        record.entries[0][2].store(reference, Release);
        Life { index: slot * 2, sequence }.conditional(0)
    }

    fn complete_install(&self, place: usize, found: u64) {
        let (record, entry) = Life::of(found);
        let fields = &self.descriptors[record.index].entries[entry];
        let old = fields[1].load(Acquire);
        let named = fields[2].load(Acquire);
        let Some(state) = self.status_of(record) else { return };
        let reference = if state == HELPING { named } else { record.reference(entry) };
        self.replace_conditional(place, found, reference, old);
    }

    fn replace_conditional(&self, place: usize, found: u64, reference: u64, old: u64) {
        let value = if self.is_undecided(Life::of(reference).0) { reference } else { old };
        let _ = self.cas(&self.words[place], found, value);
    }

    fn decide(&self, life: Life, decision: Option<u64>) -> Option<u64> {
        let word = &self.descriptors[life.index].status;
        if let Some(decision) = decision {
            let undecided = status(UNDECIDED, life.sequence);
            let _ = self.cas(word, undecided, status(decision, life.sequence));
        }
        self.status_of(life)
    }

    fn phase_2(&self, life: Life, targets: [Target; 2], succeeded: bool) {
        for (index, [place, old, new]) in targets.into_iter().enumerate() {
            let (place, value) = (place as usize, if succeeded { new } else { old });
            while let Err(found) = self.cas(&self.words[place], life.reference(index), value) {
                if found & RDCSS == 0 {
                    break;
                }
                self.complete_install(place, found);
            }
        }
    }
}

/// The operation of thread 0 has a reference in the first word when thread 1 finds it and helps.
/// Thread 0 finishes the operation and continues with `then`: the helper may be late.
fn help(code: Code, preemptions: usize, then: fn(&Pmwcas)) {
    explore(Some(preemptions), move || {
        let pmwcas = Pmwcas::new(code, code.orderings);
        let targets = [[0, 0, 1], [1, 0, 1]];
        let life = pmwcas.publish(0, targets);
        pmwcas.install(0, life, 0, targets[0], Role::Owner);
        let helper = thread::spawn({
            let pmwcas = pmwcas.clone();
            move || {
                let found = pmwcas.words[0].load(Acquire);
                if found & CONTROL_BITS != 0 {
                    pmwcas.settle(1, 0, found);
                }
            }
        });
        assert!(pmwcas.finish(0, life, targets));
        then(&pmwcas);
        helper.join().unwrap();
        let left = [0, 1, 2].map(|place| pmwcas.words[place].load(Acquire));
        assert!(left.iter().all(|value| value & CONTROL_BITS == 0), "{left:x?}");
    });
}

/// A second operation with the same descriptor puts the old value back into one word, and changes
/// another.
const SECOND: [Target; 2] = [[1, 1, 0], [2, 0, 1]];

fn do_second(pmwcas: &Pmwcas) {
    assert!(pmwcas.run(0, SECOND));
    // The helper may not have ended, and no thread waits for it.
    assert_eq!([0, 1, 2].map(|place| pmwcas.read(0, place)), [1, 0, 1]);
}

model_tests! { |code| help(code, 1, do_second), AS_WRITTEN;
    holds fn a_late_helper_does_no_harm {}
    fails fn references_are_installed_conditionally { conditional: false }
    fails fn a_status_counts_for_its_life_only { checks_sequence: false }
    fails fn a_helper_has_a_record_of_its_own { own_record: false }
}

/// The second operation only publishes its descriptor, whose words differ from the helper's.
fn publish_second(pmwcas: &Pmwcas) {
    pmwcas.publish(0, SECOND);
}

model_tests! { |code| help(code, 1, publish_second), AS_WRITTEN;
    holds fn a_late_helper_keeps_to_the_life_that_it_meant {}
    fails fn entries_are_stored_with_release { orderings: Orderings::FILL_RELAXED }
    fails fn entries_are_loaded_with_acquire { orderings: Orderings::COPY_RELAXED }
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
        assert!(own != other, "one fails, and only because the other succeeds");
        let value = if own { 1 } else { 2 };
        assert_eq!([0, 1].map(|place| pmwcas.words[place].load(Acquire)), [value; 2]);
    });
}

model_tests! { race, AS_WRITTEN;
    holds fn of_two_operations_one_happens_wholly {}
    fails fn references_are_published_with_release { orderings: Orderings::SWAP_RELAXED }
}

/// An operation changes both words. A reader that finds the first one changed must find the second
/// one changed.
fn look(read: fn(&Pmwcas, usize) -> u64) {
    explore(Some(2), move || {
        let pmwcas = Pmwcas::new(AS_WRITTEN, AS_WRITTEN.orderings);
        let writer = thread::spawn({
            let pmwcas = pmwcas.clone();
            move || assert!(pmwcas.run(1, [[0, 0, 1], [1, 0, 1]]))
        });
        let first = read(&pmwcas, 0);
        let second = read(&pmwcas, 1);
        assert!(first <= second, "half of an operation is seen");
        writer.join().unwrap();
        assert_eq!([0, 1].map(|place| read(&pmwcas, place)), [1, 1]);
    });
}

#[test]
fn a_reader_sees_an_operation_wholly_or_not_at_all() {
    look(|pmwcas, place| pmwcas.read(0, place));
}

#[test]
#[should_panic]
fn a_reader_completes_what_it_meets() {
    look(|pmwcas, place| match pmwcas.words[place].load(Acquire) {
        // The old value, which is a possible value of this word.
        found if found & CONTROL_BITS != 0 => 0,
        value => value,
    });
}
