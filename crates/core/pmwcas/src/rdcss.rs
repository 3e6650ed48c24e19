//! The paper's execution (Algorithms 2 and 3): any thread completes an operation that is undecided,
//! so references are installed by RDCSS. The crate's page has the protocol.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, mutant};

use crate::descriptor::{
    DESCRIPTORS_PER_PARTITION, Entries, Field, WordEntry, is_descriptor, targets,
};
use crate::pmwcas::Pmwcas;
use crate::word::{CONTROL_BITS, DIRTY, Life, MAX_WORDS, RDCSS, State, Status};

/// Whether a thread executes its own operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Owner,
    Helper,
}

/// The result of an attempt to put a reference into a target.
enum Installed {
    /// The target holds the reference.
    Reference,
    /// The target does not hold the expected value.
    Mismatch,
    /// The operation is decided already.
    Decided,
}

impl<D: Domain> Pmwcas<D> {
    /// Executes the operation, whose descriptor is durable and *undecided*; returns whether it
    /// succeeded. On return, all targets hold final values, durably.
    #[inline]
    pub(crate) fn execute_rdcss(
        &self,
        guard: &Guard<'_, D>,
        life: Life,
        entries: &Entries,
    ) -> bool {
        if self.activate_blocks(entries) && !mutant!("activated-late") {
            // Now, and not with the fence of phase 1: a helper may decide the operation before
            // this thread reaches that fence.
            D::fence();
        }
        self.drive(guard, life, entries, Role::Owner)
    }

    /// Completes the undecided operation `life` of another thread.
    #[inline(never)]
    pub(crate) fn help(&self, guard: &Guard<'_, D>, life: Life) {
        let Some(entries) = self.entries(life.index) else { return };
        let are_valid = targets(&entries).iter().all(|target| self.pool().is_word(target.off));
        // Read after the copy: if the descriptor still is in that life, the copy is of that life.
        if are_valid && self.status_of(life).is_some_and(|status| status.state.is_executing()) {
            self.drive(guard, life, &entries, Role::Helper);
        }
    }

    /// Sequentially consistent: a thread that has put a conditional reference into a word, and then
    /// reads here that the operation is undecided, knows that phase 2 reads that word later
    /// (`crates/testing/models/src/late.rs`).
    #[inline]
    fn is_undecided(&self, life: Life) -> bool {
        self.status_word(life.index).load(Ordering::SeqCst)
            == Status::new(State::Undecided, life.sequence).encode()
    }

    /// Executes all phases of an operation; returns whether it succeeded.
    fn drive(&self, guard: &Guard<'_, D>, life: Life, entries: &Entries, role: Role) -> bool {
        let targets = targets(entries);
        let decision = self.phase_1(guard, life, targets, role);
        let succeeded = match self.decide(life, decision) {
            Some(State::Succeeded) => true,
            Some(State::Failed) => false,
            // The operation has ended, and its descriptor is in another life: nothing is left to
            // do.
            _ => return false,
        };
        self.phase_2(life, targets, succeeded);
        succeeded
    }

    /// Puts references into all targets, in order of address; returns the decision to be made.
    #[inline]
    fn phase_1(
        &self,
        guard: &Guard<'_, D>,
        life: Life,
        targets: &[WordEntry],
        role: Role,
    ) -> Option<State> {
        for (index, target) in targets.iter().enumerate() {
            match self.install(guard, life, index, target, role) {
                Installed::Reference => {}
                Installed::Mismatch => return Some(State::Failed),
                Installed::Decided => return None,
            }
        }
        // A success may be decided only when no reference can be lost any more.
        self.flush_targets(targets);
        D::fence();
        Some(State::Succeeded)
    }

    #[inline]
    fn install(
        &self,
        guard: &Guard<'_, D>,
        life: Life,
        index: usize,
        target: &WordEntry,
        role: Role,
    ) -> Installed {
        let word = self.pool().word(target.off);
        let reference = life.reference(index);
        loop {
            let found = word.load(Ordering::Acquire);
            if found == reference {
                return Installed::Reference;
            }
            // The status is read before `found` is compared: otherwise a value that was stored
            // after the operation's end would count.
            if !mutant!("missing-recheck") && !self.is_undecided(life) {
                return Installed::Decided;
            }
            if found & CONTROL_BITS != 0 {
                if self.settle(guard, target.off, found) {
                    continue;
                }
                return Installed::Mismatch;
            }
            if found != target.old {
                if mutant!("success-before-install") {
                    return Installed::Reference;
                }
                // The operation was undecided after `found` was read, so also when it was read: the
                // word held another value while the operation could still fail.
                return Installed::Mismatch;
            }
            let conditional = match role {
                Role::Owner => life.conditional(index),
                Role::Helper => self.record_install(guard, reference, target),
            };
            let is_installed = word.compare_exchange(target.old, conditional).is_ok();
            if is_installed {
                self.replace_conditional(target.off, conditional, reference, target.old);
            }
            if role == Role::Helper {
                if !mutant!("record-reused-early") && is_installed {
                    // The record is used again for the next install. Before that, this install
                    // must be gone from the medium.
                    word.flush();
                    D::fence();
                }
                self.close_record(guard);
            }
        }
    }

    /// Writes the helper's record of one install, durably; returns the conditional reference that
    /// names it.
    fn record_install(&self, guard: &Guard<'_, D>, reference: u64, target: &WordEntry) -> u64 {
        let index = guard.slot() as u64 * DESCRIPTORS_PER_PARTITION;
        let status = self.status_word(index);
        let last = Status::decode(status.load(Ordering::Relaxed)).map_or(0, |last| last.sequence);
        let next = Status::new(State::Helping, last.wrapping_add(1));
        // The status first: a thread that reads the record's old life sees that it has ended.
        // Release, with an acquire load of the reader, as in `publish`.
        status.store(next.encode(), Ordering::Release);
        self.entry_word(index, 0, Field::Address).store(target.off, Ordering::Release);
        self.entry_word(index, 0, Field::Old).store(target.old, Ordering::Release);
        self.entry_word(index, 0, Field::New).store(reference, Ordering::Release);
        status.flush();
        D::fence();
        Life { index, sequence: next.sequence }.conditional(0)
    }

    /// Clears the address of the helper's record, durably. The word that it named may later hold
    /// a user's bytes, which recovery must not mistake for this install.
    fn close_record(&self, guard: &Guard<'_, D>) {
        let index = guard.slot() as u64 * DESCRIPTORS_PER_PARTITION;
        let off = self.entry_word(index, 0, Field::Address);
        off.store(0, Ordering::Release);
        off.flush();
        D::fence();
    }

    /// Replaces the conditional reference `found` in the word at `off`: by the reference if its
    /// operation is undecided, by the old value otherwise (`complete_install`; the paper's listing
    /// leaves its variables undefined, so this is Harris's RDCSS).
    pub(crate) fn complete_install(&self, off: u64, found: u64) {
        let (record, entry) = Life::of(found);
        if !is_descriptor(self.pool(), record.index) || entry >= MAX_WORDS {
            return;
        }
        let old = self.entry_word(record.index, entry, Field::Old).load(Ordering::Acquire);
        let named = self.entry_word(record.index, entry, Field::New).load(Ordering::Acquire);
        // Read after the entry: if the record still is in that life, the entry is of that life. If
        // not, its installer has seen the word without this conditional reference.
        let Some(status) = self.status_of(record) else { return };
        let is_helpers = status.state == State::Helping;
        let reference = if is_helpers { named } else { record.reference(entry) };
        if !is_descriptor(self.pool(), Life::of(reference).0.index) {
            return;
        }
        self.replace_conditional(off, found, reference, old);
    }

    /// The second half of an RDCSS. `found` is a conditional reference that has replaced `old` in
    /// the word at `off`. Replaces it by `reference` if the operation of `reference` is undecided,
    /// otherwise by `old`.
    ///
    /// The caller need not make the old value durable. As long as the record that installed `found`
    /// stays, recovery replaces `found` by the old value. The installer writes the line back before
    /// it reuses the record: an owner in phase 2, a helper in `install`.
    #[inline]
    fn replace_conditional(&self, off: u64, found: u64, reference: u64, old: u64) {
        let is_undecided =
            mutant!("reference-after-decision") || self.is_undecided(Life::of(reference).0);
        let value = if is_undecided { reference } else { old };
        let _ = self.pool().word(off).compare_exchange(found, value);
    }

    /// Decides the operation, unless another thread has, and makes the decision durable. Returns
    /// the decision, or `None` if the operation has ended.
    #[inline]
    fn decide(&self, life: Life, decision: Option<State>) -> Option<State> {
        let word = self.status_word(life.index);
        if let Some(decision) = decision {
            let undecided = Status::new(State::Undecided, life.sequence);
            let decided = Status { state: decision, dirty: D::needs_write_back(), ..undecided };
            let _ = word.compare_exchange(undecided.encode(), decided.encode());
        }
        let status = self.status_of(life)?;
        self.persist_status(life.index, status);
        Some(status.state)
    }

    /// Replaces the references by final values, durably.
    #[inline]
    pub(crate) fn phase_2(&self, life: Life, targets: &[WordEntry], succeeded: bool) {
        let dirty = if D::needs_write_back() { DIRTY } else { 0 };
        for (index, target) in targets.iter().enumerate() {
            let reference = life.reference(index);
            let word = self.pool().word(target.off);
            let value = if succeeded { target.new } else { target.old };
            loop {
                match word.compare_exchange(reference, value | dirty) {
                    Ok(_) => break,
                    // It may be a conditional reference of this operation. Completed after the
                    // decision, it becomes the old value, never the reference.
                    Err(found) if found & RDCSS != 0 => {
                        self.complete_install(target.off, found);
                        if word.load(Ordering::Acquire) == found {
                            // It belongs to no operation: the word is damaged.
                            break;
                        }
                    }
                    Err(_) => break,
                }
            }
        }
        if D::needs_write_back() {
            self.flush_targets(targets);
            D::fence();
            for target in targets {
                let value = if succeeded { target.new } else { target.old };
                let _ = self.pool().word(target.off).compare_exchange(value | DIRTY, value);
            }
        }
    }
}
