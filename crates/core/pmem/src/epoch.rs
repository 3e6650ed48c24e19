//! Epoch-based reclamation: no block is reused while a thread may still look at it.
//!
//! The global epoch only rises. A thread announces the epoch that it found before it reads
//! anything shared (*pins*), and withdraws when done. The epoch is raised only when every
//! announced epoch is the current one; so a block made unreachable in epoch `e` is reached by
//! nobody once the epoch is `e + 2`. It is reused only at `e + 3`.
//!
//! Why two: when the epoch goes from `e` to `e + 1`, threads may be pinned in `e`; all of them
//! have withdrawn before it can go to `e + 2`. A thread that read `e` and announces it late, when
//! the epoch is higher already, holds the epoch back from rising more than once more, and what it
//! can reach was not unlinked when its announcement became visible.
//!
//! Why three: a thread pinned in `e + 1` may help an operation whose owner is pinned in `e`, and
//! so come to a block that was unlinked in `e`, before the helper pinned. When the owner is done
//! the epoch may become `e + 2` while the helper still looks. It cannot become `e + 3`. Further
//! helpers find the operation while its owner is pinned, so they are no later than `e + 1` too.
//!
//! Orderings. *Pin*: the announcement is a CAS of the slot's lease (participant.rs) and a full
//! barrier, so it is visible before any later load of this thread; it pairs with the sequentially
//! consistent fence in
//! [`Pool::try_advance`]: either the advancing thread sees the announcement, or the pinning
//! thread sees everything that was unlinked before the advance. *Unpin*: a release store, paired
//! with the acquire load in `try_advance`: what the thread read happened before the advance.
//!
//! *Deferred work*: a thread may withdraw and defer work that concerns blocks that it has seen
//! ([`Guard::defer`]). The epoch is raised only when that is done, by the thread itself or by the
//! thread that raises the epoch. So it is done before any block is reused that was reachable to the
//! thread. The word is written before the unpin, and read after the epoch, which is loaded acquire.
//!
//! A thread that stops for ever while it is pinned holds back reclamation, not the other threads:
//! they go on, the pool grows, and [`Pool::participants`], asked again and again, shows who holds
//! it back. Descriptors of pando-pmwcas do not wait for an epoch.
//!
//! `crates/testing/models/src/epoch.rs` tries each of these orderings, and each weaker one.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{Ordering, fence};

use crate::damage;
use crate::domain::Domain;
use crate::error::Result;
use crate::layout::{CHUNK_BYTES, EPOCH_OFF};
use crate::lease::{PINNED, VERSION, announced, lag};
use crate::mutant;
use crate::pool::Pool;
use crate::slots::{Local, ReserveAccess};
use crate::word::Word;

/// How far the epoch must have risen since a block was unlinked before it is reused.
const GRACE_EPOCHS: u64 = 3;
/// Blocks that a thread retires before it collects, at least.
const COLLECT_EVERY: usize = 32;
/// How many blocks one call gives back at most, so that no call bears the cost of all.
const COLLECT_AT_MOST: usize = 64;

/// While it lives, no block that its thread may have seen is reused.
#[derive(Debug)]
pub struct Guard<'pool, D: Domain> {
    pool: &'pool Pool<D>,
    /// Of the slot, in which this thread is pinned.
    local: &'pool Local,
    lease: Word<'pool, D>,
    not_send: PhantomData<*mut ()>,
}

/// What a participant does, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participant {
    /// Its slot in the pool's table.
    pub slot: usize,
    /// How many epochs ago it pinned; `None` if it is not pinned. At most 1, since the epoch does
    /// not rise further until it unpins: one that has stopped for ever looks as one that is about
    /// to go on.
    pub pinned_for_epochs: Option<u64>,
}

impl<D: Domain> Pool<D> {
    /// Pins the calling thread. It has a slot of the table of participants until all its guards are
    /// dropped; then another thread may take the slot.
    #[inline(always)]
    pub fn pin(&self) -> Result<Guard<'_, D>> {
        self.pin_slot()
    }

    /// The epoch now. It rises by one at a time, and never while someone is pinned in the one
    /// before.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        // Acquire: who asks whether something was reused has seen what the one wrote that reused
        // it, and so the epoch in which that was allowed.
        self.word(EPOCH_OFF).load(Ordering::Acquire)
    }

    /// Whether a block that was reachable in `epoch`, as [`epoch`](Self::epoch) said then, may have
    /// been reused by now.
    #[inline(always)]
    pub fn may_be_reused_since(&self, epoch: u64) -> bool {
        self.epoch() >= epoch + GRACE_EPOCHS
    }

    /// Gives back for reuse what all threads have unlinked, as far as no pinned thread holds it
    /// back; for a caller without a guard, who was told that the pool is full.
    pub fn reclaim(&self) -> Result<()> {
        let most_loads = self.limbo.waiting() / COLLECT_AT_MOST;
        let (mut passes, mut loads) = (0, 0);
        while passes <= GRACE_EPOCHS && loads <= most_loads {
            match self.pin()?.collect_ripe() {
                COLLECT_AT_MOST => loads += 1,
                _ => passes += 1,
            }
        }
        Ok(())
    }

    /// A thread collects whenever it has retired so many blocks more. An advance looks at every
    /// slot in use, so this grows with the table: at most four slots for each block.
    fn collect_every(&self) -> usize {
        COLLECT_EVERY.max(self.participants_high() / 4)
    }

    /// Raises the epoch if every pinned participant has seen the current one; the epoch then. The
    /// calling thread is pinned: it may come to words in blocks, by work that others have deferred.
    pub(crate) fn try_advance(&self) -> u64 {
        let global = self.word(EPOCH_OFF);
        let epoch = global.load(Ordering::Acquire);
        fence(Ordering::SeqCst);
        let current = announced(epoch);
        for slot_off in self.used_slots() {
            let lease = self.lease_at(slot_off).load(Ordering::Acquire);
            let is_behind = lease & PINNED != 0 && lease & !VERSION != current;
            if !mutant!("advance-past-the-pinned") && is_behind && self.is_readied_at(slot_off) {
                return epoch;
            }
            let deferred = self.deferred_at(slot_off).load(Ordering::Acquire);
            if !mutant!("deferred-undone") && deferred != 0 {
                self.do_deferred(slot_off, deferred);
            }
        }
        match global.compare_exchange(epoch, epoch + 1) {
            Ok(_) => epoch + 1,
            Err(other) => other,
        }
    }

    /// Names the function that does the work that threads have [deferred](Guard::defer): the first
    /// that is named stays. It may be called by any thread, several times and late, with work that
    /// was deferred in any life of a participant.
    pub fn do_deferred_by(&self, work: fn(&Self, u64)) {
        let _ = self.deferred_work.set(work);
    }

    #[cold]
    fn do_deferred(&self, slot_off: u64, deferred: u64) {
        if let Some(work) = self.deferred_work.get() {
            work(self, deferred);
        }
        // If the thread has deferred something else meanwhile, that is for the next advance.
        let _ = self.deferred_at(slot_off).compare_exchange(deferred, 0);
    }

    /// The slots in use, and how long the thread in each has been in its epoch.
    pub fn participants(&self) -> Vec<Participant> {
        let epoch = self.word(EPOCH_OFF).load(Ordering::Acquire);
        self.used_slots()
            .enumerate()
            .map(|(slot, off)| {
                let lease = self.lease_at(off).load(Ordering::Acquire);
                let is_readied = self.is_readied_at(off);
                let pinned_for_epochs = lag(lease, epoch).filter(|_| is_readied);
                Participant { slot, pinned_for_epochs }
            })
            .collect()
    }
}

impl<'pool, D: Domain> Guard<'pool, D> {
    /// The thread is pinned in the slot of `local` by `lease`, and was counted there.
    #[inline(always)]
    pub(crate) fn new(pool: &'pool Pool<D>, local: &'pool Local, lease: Word<'pool, D>) -> Self {
        Self { pool, local, lease, not_send: PhantomData }
    }

    /// What belongs to the slot in process memory.
    #[inline(always)]
    pub(crate) fn local(&self) -> &'pool Local {
        self.local
    }

    /// The word by which the thread is pinned.
    pub(crate) fn lease(&self) -> Word<'pool, D> {
        self.lease
    }

    /// The word that names the thread's deferred work.
    #[inline(always)]
    fn deferred(&self) -> Word<'pool, D> {
        self.pool.deferred_at(self.pool.slot_off(self.slot()))
    }

    /// The pool in which the thread is pinned.
    #[inline(always)]
    pub fn pool(&self) -> &'pool Pool<D> {
        self.pool
    }

    /// The participant slot of the thread.
    #[inline(always)]
    pub fn slot(&self) -> usize {
        self.local.slot
    }

    /// Where damage has led this thread since it was pinned, if it has: the first offset at which
    /// nothing lies that it could have been led to. What it has read since then is not to be
    /// believed, and nothing that follows from it to be written.
    #[inline(always)]
    pub fn damage(&self) -> Option<u64> {
        if damage::is_noted() { self.damage_with_note() } else { self.local.damage() }
    }

    /// Makes the thread's note one of this guard.
    #[cold]
    #[inline(never)]
    fn damage_with_note(&self) -> Option<u64> {
        if let Some(off) = self.pool.take_damage() {
            self.local.note_damage(off);
        }
        self.local.damage()
    }

    /// Notes that damage has led this thread to `off`, or that what lies there is damaged. The
    /// first note stays.
    #[inline(always)]
    pub fn note_damage(&self, off: u64) {
        self.pool.note_damage(off);
    }

    /// Forgets the note: for who has believed no byte of what it has read, and followed no offset
    /// unchecked.
    pub fn forget_damage(&self) {
        damage::forget();
        self.local.forget_damage();
    }

    /// Whether this thread's deferred work is still to be done.
    #[inline]
    pub fn has_deferred(&self) -> bool {
        // Relaxed: only this thread sets it, and while it is pinned nothing that it could reach
        // when it looked is reused.
        self.deferred().load(Ordering::Relaxed) != 0
    }

    /// Defers work that must be done before any block is reused that this thread can reach now. It
    /// replaces work that was deferred before. `work` names it, and nothing else ever; it is done
    /// by the function of [`Pool::do_deferred_by`]. Zero defers nothing.
    #[inline]
    pub fn defer(&self, work: u64) {
        self.deferred().store_transient(work);
    }

    /// Gives the block at `off` back for reuse once nobody can look at it. The block must have
    /// been deactivated, durably, and be unreachable.
    pub fn retire(&self, off: u64) {
        self.push_limbo(off);
        let retired = &self.local.retired;
        retired.set(retired.get() + 1);
        // Large blocks begin where chunks do, and no others: a few of them are a pool full.
        if retired.get() >= self.pool.collect_every() || off.is_multiple_of(CHUNK_BYTES) {
            retired.set(0);
            self.collect();
        }
    }

    /// As [`retire`](Self::retire), without giving anything back now.
    pub(crate) fn push_limbo(&self, off: u64) {
        let epoch = self.unlink_epoch();
        D::observe_process_memory();
        self.pool.limbo.push(self.slot(), epoch, off, &self.local.spare);
    }

    /// The epoch in which what this thread has just unlinked counts as unlinked.
    pub fn unlink_epoch(&self) -> u64 {
        // Sequentially consistent against `try_advance`: the unlinking came before this load.
        fence(Ordering::SeqCst);
        self.pool.word(EPOCH_OFF).load(Ordering::Acquire)
    }

    /// Whether nobody can look any more at what was unlinked in `epoch`.
    pub fn is_ripe(&self, epoch: u64) -> bool {
        epoch + GRACE_EPOCHS <= self.pool.try_advance()
    }

    /// Runs `work`, which leaves the reserve to [`with_reserve`](Self::with_reserve) when the pool
    /// is full.
    #[inline]
    pub fn without_reserve<R>(&self, work: impl FnOnce() -> R) -> R {
        self.with_reserve_access(ReserveAccess::Without, work)
    }

    /// Runs `work`, which in the end gives back more room than it takes. It may use the
    /// pool's reserve, so that deletes in a full pool make room again.
    pub fn with_reserve<R>(&self, work: impl FnOnce() -> R) -> R {
        self.with_reserve_access(ReserveAccess::With, work)
    }

    #[inline]
    pub(crate) fn with_reserve_access<R>(
        &self,
        reserve_access: ReserveAccess,
        work: impl FnOnce() -> R,
    ) -> R {
        /// Gives the thread back what it had, also if `work` unwinds.
        struct Restore<'pool>(&'pool Cell<ReserveAccess>, ReserveAccess);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }
        let own = &self.local.reserve_access;
        let _restore = Restore(own, own.replace(reserve_access));
        work()
    }

    pub(crate) fn reserve_access(&self) -> ReserveAccess {
        self.local.reserve_access.get()
    }

    /// Gives back for reuse what nobody can look at any more, whichever thread unlinked it: up to
    /// 64 blocks.
    pub fn collect(&self) {
        self.collect_ripe();
    }

    /// As [`collect`](Self::collect); how many blocks that were.
    fn collect_ripe(&self) -> usize {
        let epoch = self.pool.try_advance();
        let grace = if mutant!("no-grace") { 0 } else { GRACE_EPOCHS };
        let Some(newest) = epoch.checked_sub(grace) else { return 0 };
        let reuse = |off| {
            D::observe_process_memory();
            self.pool.reuse(self, off);
        };
        self.pool.limbo.collect(self.slot(), newest, COLLECT_AT_MOST, &self.local.spare, reuse)
    }

    /// Blocks that threads have unlinked and that still wait for their epoch.
    pub fn waiting(&self) -> usize {
        self.pool.limbo.waiting()
    }
}

impl<D: Domain> Drop for Guard<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        let pins = &self.local.pins;
        let held = pins.get() - 1;
        pins.set(held);
        if held == 0 {
            // Nobody else changes the lease of a pinned thread.
            self.lease.store_transient(self.lease.load_unobserved() & VERSION);
        }
    }
}
