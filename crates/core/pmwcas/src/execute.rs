//! Executing an operation by one algorithm or the other, and what a thread does that meets the
//! reference of another's.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, mutant};

use crate::descriptor::{Entries, Field, WordEntry, is_descriptor, targets};
use crate::direct::Direct;
use crate::pmwcas::{Algorithm, Pmwcas};
use crate::word::{BLOCK_MASK, Life, MAX_WORDS, State, Status};

/// Where the targets' final values are durable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finals {
    InPlace,
    /// As long as the descriptor stands: the targets are to be written back before it is free.
    InDescriptor,
}

impl<D: Domain> Pmwcas<D> {
    /// Executes the operation with `entries` in any order; whether it succeeded. It fails if the
    /// thread has met damage since it was pinned.
    #[inline]
    pub(crate) fn execute(&self, guard: &Guard<'_, D>, life: Life, entries: &Entries) -> bool {
        // Nothing is published that follows from what damage has led to; the caller asks the guard
        // why.
        if guard.damage().is_some() {
            self.give_up(guard, life, entries);
            return false;
        }
        let is_plain = entries.are_plain();
        if is_plain
            && !D::WRITE_BACK
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
            // The descriptor is durable before anything refers to it.
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
            // Once more, so that nobody can keep this thread from its end. In another life, since
            // this one is over for all who know it. Its entries are those of this one, in the same
            // order: a helper of this one may read them while the status still says that it failed.
            life = life.next();
        }
        self.settle_pending(guard);
        self.publish(life, entries, State::Undecided);
        D::fence();
        let succeeded = self.execute_rdcss(guard, life, entries);
        self.finalize(guard, life, entries, succeeded, Finals::InPlace);
        succeeded
    }

    /// Executes an operation without its descriptor, if that can be: one word takes one CAS,
    /// several a hardware transaction.
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

    /// Whether all targets hold what is expected, now.
    #[inline]
    fn would_match(&self, guard: &Guard<'_, D>, entries: &Entries) -> bool {
        targets(entries).iter().all(|target| self.read(guard, target.off) == target.old)
    }

    /// Ends an operation whose descriptor nobody has seen.
    #[inline]
    pub(crate) fn give_up(&self, guard: &Guard<'_, D>, life: Life, entries: &Entries) {
        for entry in entries.all() {
            if entry.policy.owns_new() && entry.new != 0 {
                // Never activated: only the reservation is to be undone.
                self.pool().reuse(guard, entry.new & BLOCK_MASK);
            }
        }
        let free = Status::new(State::Free, life.sequence);
        // Release, here and wherever a descriptor becomes free: with the acquire load in `claim`.
        self.status_word(life.index).store(free.encode(), Ordering::Release);
    }

    /// Starts the write-back of the targets' lines.
    #[inline]
    pub(crate) fn flush_targets(&self, targets: &[WordEntry]) {
        self.flush_lines(targets.iter().map(|target| target.off));
    }

    /// Starts the write-back of the lines of the words at `offs`, which come in order.
    #[inline]
    pub(crate) fn flush_lines(&self, offs: impl Iterator<Item = u64>) {
        if !D::WRITE_BACK {
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
        // Sequentially consistent, for `is_undecided`; acquire would do for the others.
        let word = self.status_word(life.index).load(Ordering::SeqCst);
        Status::decode(word).filter(|status| status.sequence == life.sequence)
    }

    /// Makes a decision durable before anyone acts upon it.
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

    /// The descriptor's life to which a reference refers, its status, and the entry.
    #[inline]
    fn referred(&self, found: u64) -> Option<(Life, Status, usize)> {
        let (life, entry) = Life::of(found);
        if !is_descriptor(self.pool(), life.index) || entry >= MAX_WORDS {
            return None;
        }
        Some((life, self.status_of(life)?, entry))
    }

    /// The value of a word that holds the reference `found`, if nothing need be done to know it: as
    /// long as the operation can still fail, the word holds its old value; when it is committed,
    /// its new one, durably.
    #[inline]
    pub(crate) fn value_under(&self, found: u64) -> Option<u64> {
        let (life, _, entry) = self.referred(found)?;
        let field = |field| self.entry_word(life.index, entry, field).load(Ordering::Acquire);
        let (old, new) = (field(Field::Old), field(Field::New));
        // Asked after the entry was read, so that this is of that life. Undecided now, it was when
        // the reference was seen; committed now, it was decided then or has been since.
        match self.status_of(life)?.state {
            State::Installing => Some(old),
            _ if mutant!("stale-old-value") => Some(old),
            State::CommittedPending => Some(new),
            _ => None,
        }
    }

    /// Sees to it that the word at `off` no longer holds the reference `found`.
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
    /// Nobody need write that back but the owner, who does so before the descriptor may be used
    /// again; until then a recovery knows it from there.
    fn complete_word(&self, off: u64, found: u64, life: Life, entry: usize) {
        let field = |field| self.entry_word(life.index, entry, field).load(Ordering::Acquire);
        let (named, old, new) = (field(Field::Address), field(Field::Old), field(Field::New));
        // After the entry was read, so that it is of that life.
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
