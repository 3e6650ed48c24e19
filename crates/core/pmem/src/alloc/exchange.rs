//! Blocks that are activated and freed together with a word that names them beside other bits. For
//! indexes that change such words by their own CAS.
//!
//! A *name* is a word whose lower 48 bits are a block's offset; zero names no block. The word that
//! holds the name may have other bits that change (the caller says which bits are *stable*).
//!
//! # Protocol
//!
//! The participant's log has five words on one line: kind, new name, word, old name, stable bits.
//! Stores to one line reach the medium in order, so `kind`, written last, covers the others.
//!
//! | step | a crash leaves | recovery |
//! | --- | --- | --- |
//! | log := (new, word, old, stable, 2), durable | the word as it was | checks both names: new stays free, old stays active |
//! | active bit of the new block, durable | the same | new: inactive |
//! | the caller changes the word from old to new, durable | either | a block that the word does not name: inactive |
//! | active bit of the old block cleared, durable | new | the same |
//! | log := 0, durable; then the old block waits for its epoch | new | |
//!
//! The caller's word decides: recovery deactivates each of the two blocks that the word does not
//! name by its stable bits. That is idempotent. If another thread's exchange has changed the word
//! meanwhile, it names neither block; then both belong to that thread, or to none. The block that
//! holds the word is not reused while the log stands, since the thread that writes the log holds a
//! guard. So that block may be unlinked meanwhile, as long as the word keeps its last name.

use std::sync::atomic::Ordering;

use super::Reservation;
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::mutant;
use crate::pool::Pool;

const KIND: u64 = 0;
const NEW: u64 = 1;
const WORD: u64 = 2;
const OLD: u64 = 3;
const STABLE: u64 = 4;
/// The log's first word, while the log describes an exchange.
const EXCHANGE: u64 = 2;

/// The bits of a name that are the block's offset.
const BLOCK_MASK: u64 = (1 << 48) - 1;

/// An exchange that is recorded in the log. It ends by [`succeeded`](Self::succeeded) or
/// [`failed`](Self::failed). A thread has one at a time.
#[derive(Debug)]
#[must_use = "an exchange stays in the log until it is ended"]
pub struct Exchange<'guard, 'pool, D: Domain> {
    guard: &'guard Guard<'pool, D>,
    new: u64,
    old: u64,
}

impl<'pool, D: Domain> Guard<'pool, D> {
    /// Records that the word at `word_off` will change from the name `old` (zero for no block) to a
    /// name of the block in `new`, and activates that block, durably. The block's content must be
    /// flushed. The second part of `new` is the bits of the name beside the offset. The bits in
    /// `stable` of the word's later content decide whether it names a block.
    pub fn begin_exchange(
        &self,
        word_off: u64,
        stable: u64,
        old: u64,
        new: Option<(Reservation<'_, 'pool, D>, u64)>,
    ) -> Exchange<'_, 'pool, D> {
        let new = new.map_or(0, |(block, tag)| block.into_logged() | tag);
        let (pool, slot) = (self.pool(), self.slot());
        pool.slot_log(slot, NEW).store(new, Ordering::Release);
        pool.slot_log(slot, WORD).store(word_off, Ordering::Release);
        pool.slot_log(slot, OLD).store(old, Ordering::Release);
        pool.slot_log(slot, STABLE).store(stable, Ordering::Release);
        if !mutant!("activation-without-log") {
            pool.slot_log(slot, KIND).store(EXCHANGE, Ordering::Release);
        }
        if !mutant!("exchange-not-on-record") {
            pool.slot_log(slot, KIND).flush();
        }
        D::fence();
        if new != 0 {
            pool.activate_logged(new & BLOCK_MASK);
            D::fence();
        }
        Exchange { guard: self, new, old }
    }
}

impl<D: Domain> Exchange<'_, '_, D> {
    /// The name of the new block; zero if there is none.
    pub fn new_name(&self) -> u64 {
        self.new
    }

    /// Ends the exchange after the word was changed, and its line flushed. On return, the change is
    /// durable, and the old block is free, durably; it is reused when no thread can read it. False
    /// if no block was freed: there is no old block, or another thread has freed it through another
    /// word that named it.
    pub fn succeeded(self) -> bool {
        D::fence();
        let freed = self.old != 0 && self.end(self.old);
        if freed {
            self.guard.retire(self.old & BLOCK_MASK);
        } else if self.old == 0 {
            self.clear();
        }
        freed
    }

    /// Ends the exchange if the word was not changed, and no other thread has seen the new block.
    /// On return, the new block is free.
    pub fn failed(self) {
        let freed = self.new != 0 && self.end(self.new);
        if freed {
            self.guard.pool().reuse(self.guard, self.new & BLOCK_MASK);
        } else if self.new == 0 {
            self.clear();
        }
    }

    /// Frees the block of `name` and clears the log; returns whether the block was allocated.
    fn end(&self, name: u64) -> bool {
        let freed = self.guard.pool().deactivate(name & BLOCK_MASK).is_ok();
        D::fence();
        self.clear();
        freed
    }

    fn clear(&self) {
        self.guard.pool().clear_log(self.guard.slot());
    }
}

impl<D: Domain> Pool<D> {
    fn clear_log(&self, slot: usize) {
        let kind = self.slot_log(slot, KIND);
        kind.store(0, Ordering::Release);
        kind.flush();
        D::fence();
    }

    /// Settles the exchanges that a crash interrupted.
    pub(crate) fn recover_exchanges(&self) {
        for slot in 0..self.participants_high() {
            let kind = self.slot_log(slot, KIND);
            if kind.load(Ordering::Acquire) != EXCHANGE {
                // A killed thread may have ended an exchange without a write-back. A power cut
                // would bring it back, and a later recovery would free a block in use.
                if !mutant!("recovery-believes-an-end") {
                    kind.flush();
                }
                continue;
            }
            let freed = self.recover_exchange(slot);
            D::fence();
            self.clear_log(slot);
            freed.into_iter().filter(|&off| off != 0).for_each(|off| self.recover_reuse(off));
        }
        // Before any thread allocates.
        D::fence();
    }

    /// Settles the exchange of `slot`; returns the blocks that are free now.
    fn recover_exchange(&self, slot: usize) -> [u64; 2] {
        let field = |field| self.slot_log(slot, field).load(Ordering::Acquire);
        let (word_off, stable) = (field(WORD), field(STABLE));
        let mut held = 0;
        if self.is_word(word_off) {
            let word = self.word(word_off);
            held = word.load(Ordering::Acquire);
            // A killed thread may have changed it without a write-back. A later power cut would
            // bring back the name of a block that is freed here.
            if !mutant!("recovery-believes-an-exchange") {
                word.flush();
                D::fence();
            }
        }
        [field(NEW), field(OLD)].map(|name| {
            if name == 0 || held & stable == name & stable {
                return 0;
            }
            if !mutant!("log-not-settled") {
                self.recover_deactivate(name & BLOCK_MASK);
            }
            name & BLOCK_MASK
        })
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::pool::CreateOptions;
    use crate::testing::{CutShort, written_back};

    type Tested = CutShort<true>;
    const TAG: u64 = 1 << 50;

    fn block<'guard, 'pool>(
        guard: &'guard Guard<'pool, Tested>,
    ) -> Reservation<'guard, 'pool, Tested> {
        let mut block = guard.reserve(64).expect("room");
        block.write_u64(0, 7);
        block.flush(0, 64);
        block
    }

    /// If a log stayed after its exchange had ended, a recovery could free the old block, which may
    /// be reused by then. So the last line that reaches the medium must say that there is none.
    #[test]
    fn an_exchange_that_has_ended_is_off_the_record_on_the_medium() {
        let pool = Pool::<Tested>::anonymous(&CreateOptions::default()).expect("memory");
        let guard = pool.pin().expect("a slot");
        // Any unused word.
        let place = block(&guard);
        let word = pool.word(place.off());
        word.store(0, Ordering::Release);
        let kind_at = pool.slot_log(guard.slot(), KIND).address();
        for (is_new, succeeds) in [(true, true), (true, true), (true, false), (false, true)] {
            let old = word.load(Ordering::Acquire);
            let ((), lines) = written_back(|| {
                let new = is_new.then(|| (block(&guard), TAG));
                let exchange = guard.begin_exchange(place.off(), !0, old, new);
                if succeeds {
                    word.store(exchange.new_name(), Ordering::Release);
                    word.flush();
                    exchange.succeeded();
                } else {
                    exchange.failed();
                }
            });
            let last = lines[&(kind_at / 64 * 64)][kind_at % 64 / 8];
            assert_eq!(last, 0, "new {is_new}, succeeds {succeeds}");
        }
    }
}
