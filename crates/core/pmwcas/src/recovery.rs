//! Recovery (section 4.4): a scan of the descriptors of those participants that ever claimed a
//! slot since the last recovery, and of nothing else.
//!
//! 0. Each plain operation whose targets all hold references is committed. Its status says so,
//!    durably, before any of these references goes.
//! 1. Every word that holds a reference, or a conditional reference, of a descriptor found in
//!    use, gets its final value, durable: the new one if the descriptor succeeded and the word
//!    held the reference; the old one otherwise. A conditional reference never stands for the
//!    new value: a success is decided only when all targets hold references, durably, so it can
//!    only be a late one.
//! 2. Blocks are freed by policy.
//! 3. The descriptors become free, durable.
//!
//! Cut short at any point it can be run again: after 1 no word holds a reference, 2 is
//! idempotent, and nothing is reused before the pool is open.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Pool, mutant};

use crate::committed_pending::settle_deferred;
use crate::descriptor::{DESCRIPTORS_PER_PARTITION, Entries, Field, WordEntry, targets};
use crate::error::{Error, Result};
use crate::pmwcas::{Pmwcas, Recovered};
use crate::word::{DIRTY, Life, State, Status};

impl<D: Domain> Pmwcas<D> {
    /// Recovers the operations that a crash cut short, and readies the pool for new ones.
    ///
    /// Before that, nothing may be allocated in the pool: recovery takes back what operations had
    /// begun to give away. And it is done once in each opening of a pool, or it is an error: a
    /// second recovery would undo what is under way.
    pub fn open(pool: Arc<Pool<D>>) -> Result<Self> {
        if !pool.begin_recovery() {
            return Err(Error::BegunBefore);
        }
        let mut pmwcas = Self::new(pool);
        pmwcas.recovered = pmwcas.recover();
        pmwcas.pool().do_deferred_by(settle_deferred);
        pmwcas.pool().reset_participants();
        Ok(pmwcas)
    }

    fn recover(&self) -> Recovered {
        let participants = self.pool().participants_high() as u64;
        let mut recovered = Recovered { participants, ..Recovered::default() };
        let indexes = 0..participants * DESCRIPTORS_PER_PARTITION;
        // All decisions first, durably: they are known by references that are about to go.
        for index in indexes.clone() {
            self.decide_committed(index);
        }
        D::fence();
        for index in indexes.clone() {
            self.restore_words(index);
        }
        D::fence();
        for index in indexes {
            match self.finish(index) {
                Some(true) => recovered.rolled_forward += 1,
                Some(false) => recovered.rolled_back += 1,
                None => {}
            }
        }
        recovered
    }

    /// Marks an operation as committed if all its targets hold references to it.
    fn decide_committed(&self, index: u64) {
        let Some(status) = self.status(index).filter(|status| status.state == State::Installing)
        else {
            return;
        };
        let life = Life { index, sequence: status.sequence };
        let refers = |(at, target): (usize, &WordEntry)| {
            self.pool().is_word(target.off)
                && self.pool().word(target.off).load(Ordering::Acquire) == life.reference(at)
        };
        let may_be_pending =
            |entries: &Entries| mutant!("pending-with-blocks") || entries.may_be_pending();
        let Some(entries) = self.entries(index).filter(may_be_pending) else { return };
        let mut targets = targets(&entries).iter().enumerate();
        let is_committed =
            if mutant!("pending-by-half") { targets.any(refers) } else { targets.all(refers) };
        if is_committed {
            let word = self.status_word(index);
            let committed = Status { state: State::CommittedPending, ..status };
            word.store(committed.encode(), Ordering::Release);
            if !mutant!("recovery-decides-undurably") {
                word.flush();
            }
        }
    }

    fn restore_words(&self, index: u64) {
        let Some(status) = self.status(index) else { return };
        let life = Life { index, sequence: status.sequence };
        if !mutant!("recovery-forgets-helpers") && status.state == State::Helping {
            let field = |field| self.entry_word(index, 0, field).load(Ordering::Acquire);
            self.restore_word(field(Field::Address), life.conditional(0), field(Field::Old));
            return;
        }
        if !status.state.is_executing() {
            return;
        }
        let Some(entries) = self.entries(index) else { return };
        for (at, entry) in entries.all().iter().enumerate() {
            let WordEntry { off, old, new, .. } = *entry;
            let is_new = status.state.has_succeeded() && !mutant!("recovery-rolls-back-success");
            let value = if is_new { new } else { old };
            self.restore_word(off, life.reference(at), value);
            if !mutant!("recovery-forgets-conditionals") {
                self.restore_word(off, life.conditional(at), old);
            }
        }
    }

    fn restore_word(&self, off: u64, held: u64, value: u64) {
        if !self.pool().is_word(off) {
            return;
        }
        let word = self.pool().word(off);
        if word.load(Ordering::Acquire) & !DIRTY == held {
            word.store(value, Ordering::Release);
            word.flush();
        }
    }

    /// Frees what the operation owned, and the descriptor. Whether it had succeeded; `None` if
    /// there was no operation.
    fn finish(&self, index: u64) -> Option<bool> {
        let status = self.status(index)?;
        match status.state {
            State::Free => None,
            State::Filling | State::Helping => {
                self.set_free(index, status);
                None
            }
            State::Undecided
            | State::Installing
            | State::Succeeded
            | State::CommittedPending
            | State::Failed => {
                let succeeded = status.state.has_succeeded();
                match self.entries(index) {
                    Some(entries) => self.finish_again(index, status, &entries, succeeded),
                    None => self.set_free(index, status),
                }
                Some(succeeded)
            }
        }
    }

    pub(crate) fn set_free(&self, index: u64, status: Status) {
        let word = self.status_word(index);
        word.store(Status::new(State::Free, status.sequence).encode(), Ordering::Release);
        word.flush();
        D::fence();
    }

    fn status(&self, index: u64) -> Option<Status> {
        Status::decode(self.status_word(index).load(Ordering::Acquire))
    }
}
