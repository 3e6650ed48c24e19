//! Executes an operation by one of the algorithms, and settles the words that hold references of
//! other operations.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, mutant};

use crate::descriptor::{Entries, Field, WordEntry, is_descriptor, targets};
use crate::direct::Direct;
use crate::pmwcas::{Algorithm, Pmwcas};
use crate::word::{BLOCK_MASK, Life, MAX_WORDS, State, Status};

/// Where the final values of the targets are durable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finals {
    InPlace,
    /// In the descriptor: the targets must be written back before it becomes free.
    InDescriptor,
}

impl<D: Domain> Pmwcas<D> {
    /// Executes the operation with `entries` in any order; returns whether it succeeded. It fails
    /// if the thread has found damage since it was pinned.
    #[inline]
    pub(crate) fn execute(&self, guard: &Guard<'_, D>, life: Life, entries: &Entries) -> bool {
        // The entries may follow from damaged data, so they are not published. The caller learns
        // the reason from the guard.
        if guard.damage().is_some() {
            self.give_up(guard, life, entries);
            return false;
        }
        let is_plain = entries.are_plain();
        if is_plain
            && !D::needs_write_back()
            && let Some(succeeded) = self.execute_at_once(guard, entries.all())
        {
            self.give_up(guard, life, entries);
            return succeeded;
        }
        let entries = &entries.sorted();
        let mut life = life;
        if self.algorithm() != Algorithm::Rdcss {
            if !self.would_match(guard, entries) {
                self.give_up(guard, life, entries);
                return false;
            }
            self.publish(life, entries, State::Installing);
            self.flush_pending(guard);
            // The descriptor is durable before a word refers to it.
            if !mutant!("published-before-durable") {
                D::fence();
            }
            self.replace_pending(guard);
            match self.execute_direct(guard, life, entries, is_plain) {
                Direct::Committed => {
                    self.defer(guard, life, targets(entries));
                    return true;
                }
                Direct::Succeeded => {
                    self.finalize(guard, life, entries, true, Finals::InDescriptor);
                    return true;
                }
                Direct::Mismatch => {
                    self.finalize(guard, life, entries, false, Finals::InPlace);
                    return false;
                }
                Direct::Interrupted => {}
            }
            // Again, so that others help, and no thread can stop this one from making progress. In
            // a new life, since the old one is decided for all threads that know it. The entries
            // stay the same, in the same order: a helper of the old life may read them while the
            // status still says that it failed.
            life = life.next();
        }
        self.settle_pending(guard);
        self.publish(life, entries, State::Undecided);
        D::fence();
        let succeeded = self.execute_rdcss(guard, life, entries);
        self.finalize(guard, life, entries, succeeded, Finals::InPlace);
        succeeded
    }

    /// Executes an operation without its descriptor, if that is possible: by one CAS for one word,
    /// by a hardware transaction for several.
    #[inline]
    fn execute_at_once(&self, guard: &Guard<'_, D>, targets: &[WordEntry]) -> Option<bool> {
        match (self.algorithm(), targets) {
            (Algorithm::Rdcss, _) => None,
            (_, &[WordEntry { off, old, new, .. }]) => {
                Some(self.compare_exchange_undurable(guard, off, old, new).is_ok())
            }
            (Algorithm::Transactional, _) if D::TRANSACTIONS => self.try_transaction(targets),
            _ => None,
        }
    }

    /// Whether all targets hold their expected values now.
    #[inline]
    fn would_match(&self, guard: &Guard<'_, D>, entries: &Entries) -> bool {
        targets(entries).iter().all(|target| self.read(guard, target.off) == target.old)
    }

    /// Ends an operation whose descriptor no other thread has seen.
    #[inline]
    pub(crate) fn give_up(&self, guard: &Guard<'_, D>, life: Life, entries: &Entries) {
        for entry in entries.all() {
            if entry.policy.owns_new() && entry.new != 0 {
                // It was never activated, so only the reservation is undone.
                self.pool().reuse(guard, entry.new & BLOCK_MASK);
            }
        }
        let free = Status::new(State::Free, life.sequence);
        // Release, here and wherever a descriptor becomes free: pairs with the acquire load in
        // `claim`.
        self.status_word(life.index).store(free.encode(), Ordering::Release);
    }

    /// Starts the write-back of the targets' lines.
    #[inline]
    pub(crate) fn flush_targets(&self, targets: &[WordEntry]) {
        self.flush_lines(targets.iter().map(|target| target.off));
    }

    /// Starts the write-back of the lines of the words at `offs`, which are in ascending order.
    #[inline]
    pub(crate) fn flush_lines(&self, offs: impl Iterator<Item = u64>) {
        if !D::needs_write_back() {
            return;
        }
        let mut last = None;
        for off in offs {
            let word = self.pool().word(off);
            if last.is_none_or(|last| !word.same_line(last)) {
                word.flush();
            }
            last = Some(word);
        }
    }

    /// The status of the descriptor, if it is in that life.
    #[inline]
    pub(crate) fn status_of(&self, life: Life) -> Option<Status> {
        // Sequentially consistent, for `is_undecided`; acquire would suffice for the others.
        let word = self.status_word(life.index).load(Ordering::SeqCst);
        Status::decode(word).filter(|status| status.sequence == life.sequence)
    }

    /// Makes a decision durable before this thread acts upon it.
    #[inline]
    pub(crate) fn persist_status(&self, index: u64, status: Status) {
        let word = self.status_word(index);
        if status.dirty && !mutant!("undurable-status-of-another") {
            word.flush();
            D::fence();
            let clean = Status { dirty: false, ..status };
            let _ = word.compare_exchange(status.encode(), clean.encode());
        } else if !mutant!("replaced-by-another-before-known")
            && status.state == State::CommittedPending
        {
            word.flush();
            D::fence();
        }
    }

    /// The life of the descriptor to which a reference refers, its status, and the entry.
    #[inline]
    fn referred(&self, found: u64) -> Option<(Life, Status, usize)> {
        let (life, entry) = Life::of(found);
        if !is_descriptor(self.pool(), life.index) || entry >= MAX_WORDS {
            return None;
        }
        Some((life, self.status_of(life)?, entry))
    }

    /// The value of a word that holds the reference `found`, if it is known without a write. As
    /// long as the operation can still fail, that is the old value. When the operation is
    /// committed, it is the new value, durably.
    #[inline]
    pub(crate) fn value_under(&self, found: u64) -> Option<u64> {
        let (life, _, entry) = self.referred(found)?;
        let field = |field| self.entry_word(life.index, entry, field).load(Ordering::Acquire);
        let (old, new) = (field(Field::Old), field(Field::New));
        // Read after the entry, so that the entry is of that life. If the operation is undecided
        // now, it was undecided when the reference was read. If it is committed now, it was decided
        // then, or between the two reads.
        match self.status_of(life)?.state {
            State::Installing => Some(old),
            _ if mutant!("stale-old-value") => Some(old),
            State::CommittedPending => Some(new),
            _ => None,
        }
    }

    /// Settles the word at `off`, so that it no longer holds the reference `found`.
    pub(crate) fn settle_reference(&self, guard: &Guard<'_, D>, off: u64, found: u64) {
        let Some((life, status, entry)) = self.referred(found) else { return };
        match status.state {
            State::Undecided => self.help(guard, life),
            State::Installing => {
                self.interrupt(life);
                self.complete_word(off, found, life, entry);
            }
            State::Succeeded | State::CommittedPending | State::Failed => {
                self.complete_word(off, found, life, entry);
            }
            State::Free | State::Filling | State::Helping => {}
        }
    }

    /// Replaces the reference `found` of a decided operation by the final value.
    ///
    /// Only the owner must write the value back. It does so before the descriptor can be used
    /// again; until then, a recovery takes the value from the descriptor.
    fn complete_word(&self, off: u64, found: u64, life: Life, entry: usize) {
        let field = |field| self.entry_word(life.index, entry, field).load(Ordering::Acquire);
        let (named, old, new) = (field(Field::Address), field(Field::Old), field(Field::New));
        // Read after the entry, so that the entry is of that life.
        let Some(status) = self.status_of(life).filter(|_| named == off) else { return };
        let value = match status.state {
            State::Succeeded | State::CommittedPending => new,
            State::Failed => old,
            _ => return,
        };
        self.persist_status(life.index, status);
        let _ = self.pool().word(off).compare_exchange(found, value);
    }
}
