//! Activation and deactivation through a word that the caller names, for indexes that do not
//! publish by PMwCAS.
//!
//! # Protocol
//!
//! The log has three words on one line: kind, block, word. Stores to one line reach the medium in
//! order, so `kind`, written last, covers the other two.
//!
//! *Activate*: the word holds zero, and only the caller writes it.
//! 1. log := (block, word, 1), durable;
//! 2. active bit := 1, durable; word := block, durable;
//! 3. log := 0, durable.
//!
//! *Deactivate*: the word holds the block.
//! 1. log := (block, word, 1), durable;
//! 2. word := 0, durable; active bit := 0, durable;
//! 3. log := 0, durable; then the block waits for its epoch.
//!
//! The deciding word is the caller's: a recovery that finds the log standing keeps the block if
//! the word names it, and deactivates it otherwise. That is idempotent, so recovery may be cut
//! short and run again. The block is free for reuse once the log is gone.

use std::sync::atomic::Ordering;

use super::Reservation;
use super::exchange::EXCHANGE;
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::error::Result;
use crate::layout::CONTROL_OFF;
use crate::pool::Pool;

pub(super) const KIND: u64 = 0;
const BLOCK: u64 = 1;
const WORD: u64 = 2;
const STANDING: u64 = 1;

impl<D: Domain> Reservation<'_, '_, D> {
    /// Makes the block the property of the word at `word_off`, which holds zero and which nobody
    /// else writes meanwhile. On return both are durable. The block's content must be durable.
    ///
    /// # Panics
    ///
    /// If there is no word at `word_off`; then the block is free again.
    pub fn activate(mut self, word_off: u64) {
        let (pool, slot) = (self.guard.pool(), self.guard.slot());
        assert!(pool.is_word(word_off), "offset {word_off:#x} is not that of a word");
        let word = pool.word(word_off);
        pool.write_log(slot, self.off, word_off);
        self.kept = true;
        pool.activate_logged(self.off);
        // The bit first: recovery keeps a block that the word names, whatever the bit says.
        D::fence();
        word.store(self.off, Ordering::Release);
        word.flush();
        D::fence();
        pool.clear_log(slot);
    }
}

impl<D: Domain> Guard<'_, D> {
    /// Frees the block that the word at `word_off` owns and sets the word to zero; nobody else
    /// writes the word meanwhile. On return both are durable; the block is reused once nobody can
    /// look at it.
    pub fn free(&self, word_off: u64) -> Result<()> {
        let pool = self.pool();
        let word = pool.word(word_off);
        let off = word.load(Ordering::Acquire);
        pool.check_active(off)?;
        pool.write_log(self.slot(), off, word_off);
        word.store(0, Ordering::Release);
        word.flush();
        D::fence();
        let deactivated = pool.deactivate(off);
        if deactivated.is_err() {
            // Another word names the block too, and its owner was faster. Nothing is changed; above all
            // the log goes: the block may soon be another's.
            word.store(off, Ordering::Release);
            word.flush();
        }
        D::fence();
        pool.clear_log(self.slot());
        deactivated?;
        self.defer_reuse(off);
        Ok(())
    }
}

impl<D: Domain> Pool<D> {
    fn write_log(&self, slot: usize, block: u64, word_off: u64) {
        self.slot_log(slot, BLOCK).store(block, Ordering::Release);
        self.slot_log(slot, WORD).store(word_off, Ordering::Release);
        self.slot_log(slot, KIND).store(STANDING, Ordering::Release);
        self.slot_log(slot, KIND).flush();
        D::fence();
    }

    fn clear_log(&self, slot: usize) {
        self.slot_log(slot, KIND).store(0, Ordering::Release);
        self.slot_log(slot, KIND).flush();
        D::fence();
    }

    /// Whether a word of the pool is at `off`: a log that rotted may say anything.
    pub(super) fn is_word(&self, off: u64) -> bool {
        off.is_multiple_of(8) && (CONTROL_OFF..self.size_bytes()).contains(&off)
    }

    /// Settles the activations and deactivations that a crash cut short.
    pub(crate) fn recover_activations(&self) {
        for slot in 0..self.participants_high() {
            let kind = self.slot_log(slot, KIND).load(Ordering::Acquire);
            if kind == EXCHANGE {
                let freed = self.recover_exchange(slot);
                D::fence();
                self.clear_log(slot);
                freed.into_iter().filter(|&off| off != 0).for_each(|off| self.recover_reuse(off));
            }
            if kind != STANDING {
                continue;
            }
            let block = self.slot_log(slot, BLOCK).load(Ordering::Acquire);
            let word_off = self.slot_log(slot, WORD).load(Ordering::Acquire);
            let owned =
                self.is_word(word_off) && self.word(word_off).load(Ordering::Acquire) == block;
            if !owned {
                self.recover_deactivate(block);
            }
            D::fence();
            self.clear_log(slot);
            if !owned {
                self.recover_reuse(block);
            }
        }
    }
}
