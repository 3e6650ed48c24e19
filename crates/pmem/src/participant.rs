//! Participants: the threads that use a pool, each with a slot of the pool's table.
//!
//! ```text
//! byte  0        8        16       24 .. 63   64       72       80       88 .. 127
//! 0     state    epoch    left     zero       log kind log block log word zero
//! ```
//!
//! * `state` is zero, or the incarnation in which the slot was claimed (upper half) and the claim
//!   mark 1. A slot claimed in an earlier incarnation is free: its thread is dead.
//! * `epoch` is zero outside of an epoch (see epoch.rs). The line is written by its own thread.
//! * `left` is zero, or names work that the thread has left to its next operation, and that is to be
//!   done before the epoch is raised ([`Guard::leave`](crate::Guard::leave)). Recovery never reads it.
//! * the log, on a line of its own, belongs to the allocator's activation (alloc/activate.rs).
//!
//! A slot is claimed by one CAS of `state`; before the first use of anything that belongs to it,
//! the count of slots ever claimed (control page) is raised and durable, since recovery looks at
//! no slot beyond. A thread claims a slot at its first use of a pool and gives it back when it
//! ends. What a slot's thread caches in process memory ([`Local`]) stays with the slot.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Weak;
use std::sync::atomic::Ordering;

use crate::alloc::SlabCache;
use crate::domain::Domain;
use crate::epoch::Limbo;
use crate::error::{Error, Result};
use crate::layout::{
    PARTICIPANT_BYTES, PARTICIPANT_COUNT, PARTICIPANTS_HIGH_OFF, PARTICIPANTS_OFF,
};
use crate::pool::Pool;
use crate::word::Word;

const CLAIMED: u64 = 1;
const EPOCH_AT: u64 = 8;
const LEFT_AT: u64 = 16;
pub(crate) const LOG_AT: u64 = 64;

const _: () = assert!(PARTICIPANT_BYTES == 128 && LOG_AT == 64);

/// How a thread treats the last chunks of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Thrift {
    /// It takes what there is.
    #[default]
    None,
    /// It leaves the chunks that are kept for giving room back.
    Frugal,
    /// It is giving room back, and may use the chunks kept for that.
    Relief,
}

/// What a participant keeps in process memory: caches, rebuilt at will. Only the thread that
/// holds the slot touches it.
#[derive(Debug, Default)]
pub(crate) struct Local {
    /// How many guards the thread holds.
    pub pins: Cell<u32>,
    /// What the thread may take of the last chunks.
    pub thrift: Cell<Thrift>,
    /// Blocks that wait until no one can see them.
    pub limbo: RefCell<VecDeque<Limbo>>,
    /// The slabs that the thread allocates from.
    pub slabs: SlabCache,
}

// SAFETY: a `Local` is only reached through a slot, and a slot is held by one thread at a time;
// the slot's state word orders the hand-over (release on giving back, acquire on claiming).
unsafe impl Sync for Local {}

trait GiveBack {
    fn give_back(&self, slot: usize);
}

struct Claim {
    uid: u64,
    slot: usize,
    pool: Weak<dyn GiveBack>,
}

#[derive(Default)]
struct Claims {
    /// The pool used last and the slot there; nearly always the one wanted.
    last: Cell<(u64, usize)>,
    all: RefCell<Vec<Claim>>,
}

impl Drop for Claims {
    fn drop(&mut self) {
        for claim in self.all.get_mut() {
            if let Some(pool) = claim.pool.upgrade() {
                pool.give_back(claim.slot);
            }
        }
    }
}

thread_local! {
    static CLAIMS: Claims = Claims::default();
}

/// The participants that a thread is in its pools, apart from the thread: tests run several
/// logical threads on one thread of the system, and let each find its own when it goes on.
#[cfg(feature = "testing")]
#[derive(Default)]
pub struct LogicalThread(Claims);

#[cfg(feature = "testing")]
impl LogicalThread {
    /// Exchanges these participants for those of the calling thread.
    pub fn swap(&self) {
        CLAIMS.with(|claims| {
            claims.last.swap(&self.0.last);
            claims.all.swap(&self.0.all);
        });
    }
}

impl<D: Domain> Pool<D> {
    fn slot_off(slot: usize) -> u64 {
        PARTICIPANTS_OFF + slot as u64 * PARTICIPANT_BYTES
    }

    fn slot_state(&self, slot: usize) -> Word<'_, D> {
        self.word(Self::slot_off(slot))
    }

    /// The epoch word of `slot`.
    #[inline(always)]
    pub(crate) fn slot_epoch(&self, slot: usize) -> Word<'_, D> {
        self.word(Self::slot_off(slot) + EPOCH_AT)
    }

    /// The word of `slot` that names what its thread has left to be done.
    #[inline(always)]
    pub(crate) fn slot_left(&self, slot: usize) -> Word<'_, D> {
        self.word(Self::slot_off(slot) + LEFT_AT)
    }

    /// A word of the activation log of `slot`.
    pub(crate) fn slot_log(&self, slot: usize, index: u64) -> Word<'_, D> {
        self.word(Self::slot_off(slot) + LOG_AT + index * 8)
    }

    fn claimed_mark(&self) -> u64 {
        u64::from(self.incarnation()) << 32 | CLAIMED
    }

    /// The slot of the calling thread, claimed now if need be.
    #[inline(always)]
    pub(crate) fn own_slot(&self) -> Result<usize> {
        let slot = CLAIMS.try_with(|claims| {
            let (uid, slot) = claims.last.get();
            if uid == self.uid() { Ok(slot) } else { self.find_or_claim(claims) }
        });
        slot.unwrap_or(Err(Error::NoParticipantSlot))
    }

    #[cold]
    fn find_or_claim(&self, claims: &Claims) -> Result<usize> {
        let found = claims
            .all
            .borrow()
            .iter()
            .find(|claim| claim.uid == self.uid())
            .map(|claim| claim.slot);
        let slot = match found {
            Some(slot) => slot,
            None => {
                let slot = self.claim_slot()?;
                let mut all = claims.all.borrow_mut();
                all.retain(|claim| claim.pool.strong_count() > 0);
                all.push(Claim { uid: self.uid(), slot, pool: self.weak() });
                slot
            }
        };
        claims.last.set((self.uid(), slot));
        Ok(slot)
    }

    fn claim_slot(&self) -> Result<usize> {
        for slot in 0..PARTICIPANT_COUNT {
            let state = self.slot_state(slot);
            let found = state.load(Ordering::Acquire);
            if found == self.claimed_mark() {
                continue;
            }
            if state.compare_exchange(found, self.claimed_mark()).is_ok() {
                self.raise_high(slot as u64 + 1);
                return Ok(slot);
            }
        }
        Err(Error::NoParticipantSlot)
    }

    fn raise_high(&self, to: u64) {
        let high = self.word(PARTICIPANTS_HIGH_OFF);
        let mut found = high.load(Ordering::Acquire);
        while found < to {
            match high.compare_exchange(found, to) {
                Ok(_) => break,
                Err(other) => found = other,
            }
        }
        self.secure_participants_high();
    }

    /// Makes [`participants_high`](Self::participants_high) durable, so that a recovery looks at
    /// every slot below it. Due before the first word that is written in a participant's part of
    /// the pool: by whoever claims the slot, and by a thread that is about to write in the part of
    /// another, which may have stopped in between.
    pub fn secure_participants_high(&self) {
        self.word(PARTICIPANTS_HIGH_OFF).flush();
        D::fence();
    }

    /// How many slots, from the first, may have been used since the last recovery.
    pub fn participants_high(&self) -> usize {
        let high = self.word(PARTICIPANTS_HIGH_OFF).load(Ordering::Acquire);
        (high as usize).min(PARTICIPANT_COUNT)
    }

    /// How many slots are held by threads now.
    pub fn participants_claimed(&self) -> usize {
        (0..self.participants_high())
            .filter(|&slot| self.slot_state(slot).load(Ordering::Acquire) == self.claimed_mark())
            .count()
    }

    /// Forgets the slots of earlier incarnations, once everything that they left is settled, but
    /// not those that threads of this one hold. Only while nobody else claims a slot.
    pub fn reset_participants(&self) {
        let mut held = 0;
        for slot in 0..self.participants_high() {
            if self.slot_state(slot).load(Ordering::Acquire) == self.claimed_mark() {
                held = slot as u64 + 1;
            } else {
                self.slot_epoch(slot).store(0, Ordering::Release);
                self.slot_left(slot).store_transient(0);
            }
        }
        // Not flushed: a recovery that looks at more slots finds nothing in them.
        self.word(PARTICIPANTS_HIGH_OFF).store(held, Ordering::Release);
    }
}

impl<D: Domain> GiveBack for Pool<D> {
    fn give_back(&self, slot: usize) {
        self.slot_epoch(slot).store_transient(0);
        self.local(slot).pins.set(0);
        // Release: the next claimer sees what this thread left in its `Local`.
        self.slot_state(slot).store(0, Ordering::Release);
    }
}
