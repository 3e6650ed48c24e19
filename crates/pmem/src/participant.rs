//! Participants: the threads that use a pool, each with a slot of the pool's table.
//!
//! ```text
//! byte  0        8        16       24 .. 63   64       72       80       88 .. 127
//! 0     state    epoch    left     zero       log: kind, and up to four words
//! ```
//!
//! * `state` is zero, or the incarnation in which the slot was last held (upper half) and how: 0 given
//!   back, 1 a thread's, 2 being readied, or emptied, by a thread. A slot held in an earlier incarnation
//!   is free: its thread is dead. Whoever wants a free slot claims it by CAS.
//! * `epoch` is zero outside of an epoch (see epoch.rs). Only the slot's thread writes it.
//! * `left` is zero, or names work that the thread has left to its next operation, and that is to be
//!   done before the epoch is raised ([`Guard::leave`](crate::Guard::leave)). The thread writes it, and
//!   whoever raises the epoch clears it. Recovery never reads it.
//! * the log, on a line of its own, belongs to the allocator (alloc/activate.rs, alloc/exchange.rs).
//!
//! A slot is claimed by one CAS of `state`, to 2; then `epoch` and `left` are cleared if what they hold
//! may be an earlier incarnation's, and `state` becomes 1. An epoch counts only in a slot that is a
//! thread's, so one that stops in between holds nothing back. Before the first use of anything that
//! belongs to the slot, the count of slots ever claimed (control page) is raised and durable, since
//! recovery looks at no slot beyond.
//!
//! A thread claims a slot at its first use of a pool and gives it back when it ends ([`Slots`]). If a
//! guard outlives that, in another of the thread's destructors, the slot goes back with the guard: until
//! then what the guard shows may be looked at. A guard that is leaked keeps its slot, and its epoch.
//!
//! What a slot's thread keeps in process memory ([`Local`]) stays with the slot when it goes back: the
//! next holder goes on with it, or else whoever finds no room takes it over
//! ([`Pool::take_over`]).
//!
//! A child that is forked has the claims of the thread that forked, but not the pool's file: it gives
//! nothing back, and is refused a guard. (Anonymous memory it has as its own.)

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::alloc::SlabCache;
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::layout::{
    PARTICIPANT_BYTES, PARTICIPANT_COUNT, PARTICIPANTS_HIGH_OFF, PARTICIPANTS_OFF,
};
use crate::pool::Pool;
use crate::sys::{Mapping, Process};
use crate::word::Word;

const CLAIMED: u64 = 1;
const HELD_BRIEFLY: u64 = 2;
const EPOCH_AT: u64 = 8;
const LEFT_AT: u64 = 16;
pub(crate) const LOG_AT: u64 = 64;

const _: () = assert!(PARTICIPANT_BYTES == 128 && LOG_AT == 64);

/// In [`Local::pins`], above the count: the thread has ended and its guards have not.
pub(crate) const ENDED: u64 = 1 << 63;

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
    /// How many guards the thread holds, and [`ENDED`].
    pub pins: Cell<u64>,
    /// What the thread may take of the last chunks.
    pub thrift: Cell<Thrift>,
    /// Blocks that the thread has retired since it collected.
    pub retired: Cell<usize>,
    /// The slabs that the thread allocates from.
    pub slabs: SlabCache,
}

// SAFETY: a `Local` is only reached through a slot, and a slot is held by one thread at a time;
// the slot's state word orders the hand-over (release on giving back, acquire on claiming).
unsafe impl Sync for Local {}

pub(crate) type Locals = Arc<[OnceLock<Box<Local>>]>;

/// The slots of a pool as the end of a thread needs them. Apart from the pool: a thread that just ends
/// holds no handle of it, so whoever closes it with the last handle does close it. The thread may then
/// give its slot back late, in a file that is open again: it does so by a CAS of what only this
/// incarnation writes.
#[derive(Debug)]
pub(crate) struct Slots<D> {
    mapping: Mapping,
    locals: Locals,
    incarnation: u32,
    /// The process that has opened the pool, if a child that is forked from it has no pool of its own.
    process: Option<Process>,
    /// One bit a slot: it was given back, and what its thread kept is there. A bit may stand too long.
    kept: [AtomicU64; PARTICIPANT_COUNT / 64],
    domain: PhantomData<D>,
}

impl<D: Domain> Slots<D> {
    pub fn new(mapping: Mapping, incarnation: u32, is_file: bool) -> Self {
        Self {
            mapping,
            locals: (0..PARTICIPANT_COUNT).map(|_| OnceLock::new()).collect(),
            incarnation,
            process: is_file.then(Process::this),
            kept: [const { AtomicU64::new(0) }; PARTICIPANT_COUNT / 64],
            domain: PhantomData,
        }
    }

    pub fn locals(&self) -> Locals {
        Arc::clone(&self.locals)
    }

    /// Whether the calling process has opened the pool.
    pub fn is_ours(&self) -> bool {
        self.process.is_none_or(Process::is_this)
    }

    fn state(&self, slot: usize) -> Word<'_, D> {
        let off = Pool::<D>::slot_off(slot) as usize;
        // SAFETY: the table of participants lies in the mapping of every pool, which lives as long as
        // this object; words are aligned, and only accessed atomically.
        Word::new(unsafe { AtomicU64::from_ptr(self.mapping.base().add(off).cast()) })
    }

    fn state_word(&self, mark: u64) -> u64 {
        u64::from(self.incarnation) << 32 | mark
    }

    /// Whether `state` is that of a slot that someone holds.
    fn is_held(&self, state: u64) -> bool {
        state >> 32 == u64::from(self.incarnation) && state as u32 != 0
    }

    fn kept(&self, slot: usize) -> (&AtomicU64, u64) {
        (&self.kept[slot / 64], 1 << (slot % 64))
    }

    /// Gives a slot back whose thread has ended, and all of its guards.
    pub fn give_back(&self, slot: usize) {
        let local = self.locals[slot].get_or_init(Box::default);
        local.pins.set(0);
        local.thrift.set(Thrift::None);
        if local.slabs.is_any_current() {
            let (kept, bit) = self.kept(slot);
            // Release: who sees the bit finds the slot claimed, or what is kept.
            kept.fetch_or(bit, Ordering::Release);
        }
        // The success releases: the next claimer sees what this thread left in its `Local`. A failure
        // says that the pool was closed and opened again meanwhile.
        let _ = self.state(slot).compare_exchange(self.state_word(CLAIMED), self.state_word(0));
    }
}

trait EndOfThread {
    fn thread_ends(&self, slot: usize);
}

impl<D: Domain> EndOfThread for Slots<D> {
    fn thread_ends(&self, slot: usize) {
        // A forked child has a copy of the claim, but the slot is its parent's.
        if !self.is_ours() {
            return;
        }
        let pins = &self.locals[slot].get_or_init(Box::default).pins;
        match pins.get() {
            0 => self.give_back(slot),
            held => pins.set(held | ENDED),
        }
    }
}

struct Claim {
    uid: u64,
    slot: usize,
    slots: Weak<dyn EndOfThread>,
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
            if let Some(slots) = claim.slots.upgrade() {
                slots.thread_ends(claim.slot);
            }
        }
    }
}

thread_local! {
    static CLAIMS: Claims = Claims::default();
}

/// Lets a child that was just forked look, at its next use of a pool, whose it is.
pub(crate) fn forget_forked() {
    // A thread that ends uses no pool any more.
    let _ = CLAIMS.try_with(|claims| claims.last.set((0, 0)));
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

    /// Whether a thread of this incarnation holds `slot`.
    pub(crate) fn is_claimed(&self, slot: usize) -> bool {
        self.slot_state(slot).load(Ordering::Acquire) == self.slots.state_word(CLAIMED)
    }

    /// The slot of the calling thread, claimed now if need be.
    #[inline(always)]
    pub(crate) fn own_slot(&self) -> Result<usize> {
        let slot = CLAIMS.try_with(|claims| {
            let (uid, slot) = claims.last.get();
            if uid == self.uid() { Ok(slot) } else { self.find_or_claim(claims) }
        });
        // Not `unwrap_or`, which makes an error, and drops it, each time.
        match slot {
            Ok(slot) => slot,
            Err(_) => Err(Error::ThreadEnds),
        }
    }

    #[cold]
    fn find_or_claim(&self, claims: &Claims) -> Result<usize> {
        if self.slots.process.is_some_and(Process::has_forked) {
            return Err(Error::Forked(self.path().to_path_buf()));
        }
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
                all.retain(|claim| claim.slots.strong_count() > 0);
                let slots: Weak<Slots<D>> = Arc::downgrade(&self.slots);
                all.push(Claim { uid: self.uid(), slot, slots });
                slot
            }
        };
        claims.last.set((self.uid(), slot));
        Ok(slot)
    }

    fn claim_slot(&self) -> Result<usize> {
        for slot in 0..PARTICIPANT_COUNT {
            let Some(found) = self.hold_briefly(slot) else { continue };
            if found >> 32 != u64::from(self.incarnation()) {
                // Of a slot beyond the count, recovery has cleared nothing, and the medium may have
                // kept anything. (What a thread of this incarnation has left is still to be done.)
                self.slot_epoch(slot).store_transient(0);
                self.slot_left(slot).store_transient(0);
            }
            let (kept, bit) = self.slots.kept(slot);
            kept.fetch_and(!bit, Ordering::Relaxed);
            // Release: who sees the slot claimed and then its epoch sees none of an earlier life.
            self.slot_state(slot).store(self.slots.state_word(CLAIMED), Ordering::Release);
            self.raise_high(slot as u64 + 1);
            return Ok(slot);
        }
        Err(Error::NoParticipantSlot)
    }

    /// Claims `slot` if nobody holds it, and says what its state was.
    fn hold_briefly(&self, slot: usize) -> Option<u64> {
        let state = self.slot_state(slot);
        let found = state.load(Ordering::Acquire);
        let held = self.slots.state_word(HELD_BRIEFLY);
        let claimed = !self.slots.is_held(found) && state.compare_exchange(found, held).is_ok();
        claimed.then_some(found)
    }

    /// Takes over the slabs that threads that have ended kept, which are anyone's then. Whether there were any.
    ///
    /// A thread that stops for ever in between takes one slot, and what was kept there, with it.
    pub(crate) fn take_over(&self, guard: &Guard<'_, D>) -> bool {
        // Relaxed: a hint; the claim orders what is kept.
        let bits = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let any = self.slots.kept.iter().any(|word| bits(word) != 0);
        any && (0..PARTICIPANT_COUNT)
            .filter(|&slot| {
                let (kept, bit) = self.slots.kept(slot);
                bits(kept) & bit != 0 && self.take_over_slot(guard, slot)
            })
            .count()
            > 0
    }

    #[cold]
    fn take_over_slot(&self, guard: &Guard<'_, D>, slot: usize) -> bool {
        if self.hold_briefly(slot).is_none() {
            return false;
        }
        let (kept, bit) = self.slots.kept(slot);
        kept.fetch_and(!bit, Ordering::Relaxed);
        let local = self.local(slot);
        let slabs = local.slabs.take();
        // Release: as in `Slots::give_back`.
        self.slot_state(slot).store(self.slots.state_word(0), Ordering::Release);
        for (class, claim) in slabs {
            self.retire_current(guard, claim, class);
        }
        true
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
        (0..self.participants_high()).filter(|&slot| self.is_claimed(slot)).count()
    }

    /// Forgets the slots of earlier incarnations, once everything that they left is settled, but
    /// not those that threads of this one hold. Only while nobody else claims a slot.
    pub fn reset_participants(&self) {
        let mut held = 0;
        for slot in 0..self.participants_high() {
            if self.is_claimed(slot) {
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
