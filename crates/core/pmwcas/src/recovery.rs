//! Recovery (section 4.4). It scans the descriptors of the participants that have claimed a slot
//! since the last recovery, and nothing else.
//!
//! | step | what is written | a crash leaves |
//! | --- | --- | --- |
//! | 0 | nothing; the statuses of all descriptors, and the target words of operations, are written back; **fence** | what the crash before has left |
//! | 1 | each plain operation that is *installing*, and whose targets all hold references, becomes *committed, pending*; **fence** | the same operations, some of them with the new status |
//! | 2 | every word that holds a reference or a conditional reference of a descriptor in use gets its final value; **fence** | some references, some final values; the statuses tell which |
//! | 3 | blocks are freed by policy; **fence** | blocks that recovery frees again, which changes nothing |
//! | 4 | the descriptor becomes *free*; **fence** | a free descriptor |
//!
//! Step 1 comes first, since step 2 replaces the references that prove a commit.
//!
//! Step 0 is for a kill. The processor's caches still have stores that a dead thread has not
//! written back: a reference, a status, a final value. Suppose that recovery took them for durable,
//! and the power is cut later. A success would be decided whose references are lost, or an
//! operation would be forgotten whose final values are lost.
//!
//! The final value in step 2 is the new value if the descriptor has succeeded and the word holds
//! the reference; otherwise it is the old value. A conditional reference never becomes the new
//! value: a success is decided only when all targets hold references, durably, so the conditional
//! reference came too late.
//!
//! Recovery can be interrupted at any point and run again: after step 2 no word holds a reference,
//! step 3 is idempotent, and nothing is reused before the pool is open.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Pool, mutant};

use crate::committed_pending::settle_deferred;
use crate::descriptor::{DESCRIPTORS_PER_PARTITION, Entries, Field, WordEntry, targets};
use crate::error::{Error, Result};
use crate::pmwcas::{Pmwcas, Recovered};
use crate::word::{DIRTY, Life, State, Status};

impl<D: Domain> Pmwcas<D> {
    /// Recovers the operations that a crash interrupted, and prepares the pool for new ones.
    ///
    /// Call this before anything is allocated in the pool: recovery frees blocks of interrupted
    /// operations, and may not find them reused. Call it once after each opening of the pool. A
    /// second call is an error, since a second recovery would undo operations that are running. In
    /// a pool that other processes have open, it recovers nothing (`dead_process.rs` does that).
    pub fn open(pool: Arc<Pool<D>>) -> Result<Self> {
        if !pool.begin_recovery() {
            return Err(Error::BegunBefore);
        }
        let mut pmwcas = Self::new(pool);
        if pmwcas.pool().has_joined() {
            pmwcas.pool().do_deferred_by(settle_deferred);
        } else {
            pmwcas.recovered = pmwcas.recover();
            pmwcas.pool().do_deferred_by(settle_deferred);
            pmwcas.pool().reset_participants();
        }
        pmwcas.pool().admit_others()?;
        Ok(pmwcas)
    }

    fn recover(&self) -> Recovered {
        let participants = self.pool().participants_high() as u64;
        let mut recovered = Recovered { participants, ..Recovered::default() };
        let indexes = 0..participants * DESCRIPTORS_PER_PARTITION;
        if D::needs_write_back() {
            for index in indexes.clone() {
                self.write_back_again(index);
            }
            D::fence();
        }
        // All decisions first, durably: the next step replaces the references that prove them.
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

    /// Step 0, for one descriptor.
    fn write_back_again(&self, index: u64) {
        // Also if it is *free*: a power cut may put it back in use, and no later recovery looks
        // at it.
        if !mutant!("recovery-believes-statuses") {
            self.status_word(index).flush();
        }
        let Some(status) = self.status(index) else { return };
        let flush = |off: u64| {
            if self.pool().is_word(off) {
                self.pool().word(off).flush();
            }
        };
        if status.state == State::Helping {
            flush(self.entry_word(index, 0, Field::Address).load(Ordering::Acquire));
        }
        if !status.state.is_executing() {
            return;
        }
        if let Some(entries) = self.entries(index).filter(|_| !mutant!("recovery-believes-words")) {
            entries.all().iter().for_each(|entry| flush(entry.off));
        }
    }

    /// Step 1: marks an operation as committed if all its targets hold references to it.
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

    /// Step 2, for the words of one descriptor.
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

    /// Steps 3 and 4: frees the operation's blocks and its descriptor. Returns whether the
    /// operation had succeeded; `None` if there was no operation.
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
