//! Epoch-based reclamation: no block is reused while a thread may still read it.
//!
//! The global epoch only rises. A thread announces the epoch that it finds before it reads anything
//! shared (it *pins*), and withdraws the announcement afterwards (it *unpins*). The epoch is raised
//! only when every announced epoch is the current one. So a block that was unlinked in epoch `e`
//! cannot be reached by any thread once the epoch is `e + 2`. It is reused only at `e + 3`.
//!
//! Why two: when the epoch rises from `e` to `e + 1`, threads may be pinned in `e`. All of them
//! unpin before it rises to `e + 2`. A thread may also read `e` and announce it late, when the
//! epoch is higher. Then the epoch can rise only once more, and the thread can reach only blocks
//! that were not unlinked when its announcement became visible.
//!
//! Why three: a thread that is pinned in `e + 1` may help an operation whose owner is pinned in
//! `e`. So it may reach a block that was unlinked in `e`, before the helper pinned. When the owner
//! unpins, the epoch may become `e + 2` while the helper still reads the block. It cannot become
//! `e + 3`. Further helpers find the operation while its owner is pinned, so they are pinned in
//! `e + 1` at most.
//!
//! Orderings:
//!
//! * *Pin*: the announcement is a CAS of the slot's lease (`participant.rs`) and a full barrier, so
//!   it is visible before any later load of this thread. It pairs with the sequentially consistent
//!   fence in [`Pool::try_advance`]. Either the advancing thread sees the announcement, or the
//!   pinning thread sees everything that was unlinked before the advance.
//! * *Unpin*: a release store, paired with the acquire load in `try_advance`. The thread's reads
//!   happened before the advance.
//!
//! *Deferred work*: a thread may unpin and defer work that concerns blocks that it has seen
//! ([`Guard::defer`]). The epoch is raised only when that work is done, by the thread itself or by
//! the thread that raises the epoch. So the work is done before any block is reused that the thread
//! could reach. The word that names the work is written before the unpin. It is read after the
//! epoch, which is loaded acquire.
//!
//! A thread that stalls forever while it is pinned stops reclamation, but not the other threads:
//! they make progress, and the pool grows. Repeated calls of [`Pool::participants`] show which
//! thread it is. Descriptors of `pando-pmwcas` do not wait for an epoch.
//!
//! `crates/testing/models/src/epoch.rs` checks each of these orderings, and that each weaker one
//! fails.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use crate::damage;
use crate::domain::Domain;
use crate::error::Result;
use crate::layout::{CHUNK_BYTES, EPOCH_OFF, EPOCH_RAISED_OFF};
use crate::lease::{PINNED, VERSION, announced, lag};
use crate::mutant;
use crate::pool::Pool;
use crate::slots::{Local, ReserveAccess};
use crate::sys;
use crate::word::Word;

/// How far the epoch must rise after a block was unlinked before the block is reused.
const GRACE_EPOCHS: u64 = 3;
/// A thread collects after it has retired so many blocks, or more.
const COLLECT_EVERY: usize = 32;
/// Blocks that one call gives back at most, which bounds the cost of the call.
const COLLECT_AT_MOST: usize = 64;

/// A pin of the thread. While the guard lives, no block that its thread may have seen is reused.
#[derive(Debug)]
pub struct Guard<'pool, D: Domain> {
    pool: &'pool Pool<D>,
    /// The data of the slot in which this thread is pinned.
    local: &'pool Local,
    lease: Word<'pool, D>,
    not_send: PhantomData<*mut ()>,
}

/// A pin of the thread for one read ([`Pool::pin_for_read`]). It protects as a [`Guard`] does, but
/// keeps no note of damage. So its thread uses nothing that it has read if a check has failed.
#[derive(Debug)]
pub struct ReadPin<'pool, D: Domain> {
    pool: &'pool Pool<D>,
    local: &'pool Local,
    lease: Word<'pool, D>,
    not_send: PhantomData<*mut ()>,
}

/// The state of a participant, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participant {
    /// Its slot in the pool's table.
    pub slot: usize,
    /// How many epochs ago it pinned; `None` if it is not pinned. At most 1, since the epoch does
    /// not rise further until it unpins. So a stalled thread looks like one that will continue.
    pub pinned_for_epochs: Option<u64>,
}

impl<D: Domain> Pool<D> {
    /// Pins the calling thread. It has a slot of the table of participants until all its guards are
    /// dropped; then another thread may take the slot.
    #[inline(always)]
    pub fn pin(&self) -> Result<Guard<'_, D>> {
        self.pin_slot()
    }

    /// The current epoch. It rises by one at a time, and never while a thread is pinned in the
    /// previous epoch.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        // Acquire: a thread that checks whether a block was reused may have seen a store of the
        // thread that reused it. Then it also sees the epoch that allowed the reuse.
        self.word(EPOCH_OFF).load(Ordering::Acquire)
    }

    /// Whether a block that was reachable in `epoch` may have been reused by now. `epoch` is an
    /// earlier result of [`epoch`](Self::epoch).
    #[inline(always)]
    pub fn may_be_reused_since(&self, epoch: u64) -> bool {
        self.epoch() >= epoch + GRACE_EPOCHS
    }

    /// Gives back for reuse the blocks that all threads have unlinked, as far as pinned threads
    /// allow it. For a caller without a guard, after the pool was full.
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

    /// A thread collects whenever it has retired so many blocks more. An advance reads every slot
    /// in use, so this number grows with the table: an advance reads four slots for each block at
    /// most.
    fn collect_every(&self) -> usize {
        COLLECT_EVERY.max(self.participants_high() / 4)
    }

    /// Raises the epoch if every pinned participant has seen the current one; returns the epoch.
    /// The calling thread is pinned, since the deferred work of other threads may read words in
    /// blocks.
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
            Ok(_) => {
                self.note_raise();
                epoch + 1
            }
            Err(other) => other,
        }
    }

    /// Notes that the epoch is raised now. A thread that stalls before this may note a time that is
    /// too early, until the next raise.
    pub(crate) fn note_raise(&self) {
        if self.is_shared() {
            // Relaxed: for reports.
            self.word(EPOCH_RAISED_OFF).store(sys::monotonic_ms(), Ordering::Relaxed);
        }
    }

    /// How long ago the epoch was raised, in a pool that processes share.
    pub fn epoch_age(&self) -> Duration {
        let raised_ms = self.word(EPOCH_RAISED_OFF).load(Ordering::Relaxed);
        Duration::from_millis(sys::monotonic_ms().saturating_sub(raised_ms))
    }

    /// Sets the function that does the work that threads have [deferred](Guard::defer). Only the
    /// first call counts. Any thread may call the function, several times and late, with work that
    /// was deferred in any use of a slot.
    pub fn do_deferred_by(&self, work: fn(&Self, u64)) {
        let _ = self.deferred_work.set(work);
    }

    #[cold]
    pub(crate) fn do_deferred(&self, slot_off: u64, deferred: u64) {
        if let Some(work) = self.deferred_work.get() {
            work(self, deferred);
        }
        // If the thread has deferred other work meanwhile, the next advance does it.
        let _ = self.deferred_at(slot_off).compare_exchange(deferred, 0);
    }

    /// The slots in use, and how many epochs ago the thread in each has pinned.
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
    /// Makes a guard of a thread that is pinned in the slot of `local` by `lease`, and that is
    /// counted there.
    #[inline(always)]
    pub(crate) fn new(pool: &'pool Pool<D>, local: &'pool Local, lease: Word<'pool, D>) -> Self {
        Self { pool, local, lease, not_send: PhantomData }
    }

    /// The data of the slot in process memory.
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

    /// The first offset at which this thread has found damage since it was pinned, if it has. Data
    /// that it has read since then may be wrong, and nothing that depends on that data may be
    /// written.
    #[inline(always)]
    pub fn damage(&self) -> Option<u64> {
        if damage::is_noted() { self.damage_with_note() } else { self.local.damage() }
    }

    /// Moves the note of the thread to this guard.
    #[cold]
    #[inline(never)]
    fn damage_with_note(&self) -> Option<u64> {
        if let Some(off) = self.pool.take_damage() {
            self.local.note_damage(off);
        }
        self.local.damage()
    }

    /// Notes that a damaged offset has led this thread to `off`, or that the data at `off` is
    /// damaged. Only the first note is kept.
    #[inline(always)]
    pub fn note_damage(&self, off: u64) {
        self.pool.note_damage(off);
    }

    /// Forgets the note. For a caller that has checked all data that it has read, and every offset
    /// that it has followed.
    pub fn forget_damage(&self) {
        damage::forget();
        self.local.forget_damage();
    }

    /// Whether this thread's deferred work is not done yet.
    #[inline]
    pub fn has_deferred(&self) -> bool {
        // Relaxed: only this thread sets it. While it is pinned, no block is reused that it could
        // reach when it read the word.
        self.deferred().load(Ordering::Relaxed) != 0
    }

    /// Defers work that must be done before any block is reused that this thread can reach now.
    /// Replaces work that was deferred before. `work` names the work, and never names other work;
    /// the function of [`Pool::do_deferred_by`] does it. Zero defers nothing.
    #[inline]
    pub fn defer(&self, work: u64) {
        self.deferred().store_transient(work);
    }

    /// Gives the block at `off` back for reuse once no thread can read it. The block must be
    /// deactivated, durably, and unreachable.
    pub fn retire(&self, off: u64) {
        self.push_limbo(off);
        let retired = &self.local.retired;
        retired.set(retired.get() + 1);
        // Only large blocks begin at the first byte of a chunk. A few of them can fill a pool.
        if retired.get() >= self.pool.collect_every() || off.is_multiple_of(CHUNK_BYTES) {
            retired.set(0);
            self.collect();
        }
    }

    /// Like [`retire`](Self::retire), but gives no block back now.
    pub(crate) fn push_limbo(&self, off: u64) {
        let epoch = self.unlink_epoch();
        D::observe_process_memory();
        let colour = self.pool.colour();
        self.pool.limbo.push(self.slot(), epoch, colour, off, &self.local.spare);
    }

    /// The epoch of a block that this thread has just unlinked.
    pub fn unlink_epoch(&self) -> u64 {
        // Sequentially consistent, with `try_advance`: the unlinking came before this load.
        fence(Ordering::SeqCst);
        self.pool.word(EPOCH_OFF).load(Ordering::Acquire)
    }

    /// Whether no thread can read blocks any more that were unlinked in `epoch`.
    pub fn is_ripe(&self, epoch: u64) -> bool {
        epoch + GRACE_EPOCHS <= self.pool.try_advance()
    }

    /// Runs `work`, which may not use the reserve of a full pool: that is for
    /// [`with_reserve`](Self::with_reserve). As a part of work by that, or by
    /// [`leaving_room_to_undo`](Self::leaving_room_to_undo), it may use what the whole may use.
    #[inline]
    pub fn without_reserve<R>(&self, work: impl FnOnce() -> R) -> R {
        let access = match self.reserve_access() {
            outer @ (ReserveAccess::With | ReserveAccess::Revocable) => outer,
            ReserveAccess::Any | ReserveAccess::Undo | ReserveAccess::Without => {
                ReserveAccess::Without
            }
        };
        // One call of `work`, so that it is inlined: most writes run in it.
        self.with_reserve_access(access, work)
    }

    /// Runs `work`, which another operation may have to undo. It is refused sooner than that one.
    pub fn leaving_room_to_undo<R>(&self, work: impl FnOnce() -> R) -> R {
        self.with_reserve_access(ReserveAccess::Revocable, work)
    }

    /// Runs `work`, which undoes an operation that has left room for that.
    pub fn undoing<R>(&self, work: impl FnOnce() -> R) -> R {
        self.with_reserve_access(ReserveAccess::Undo, work)
    }

    /// Runs `work`, which gives back more room than it takes. It may use the pool's reserve, so
    /// that deletes make room in a full pool.
    pub fn with_reserve<R>(&self, work: impl FnOnce() -> R) -> R {
        self.with_reserve_access(ReserveAccess::With, work)
    }

    /// Runs `work` with this access to the reserve: that which the thread has in another pool.
    #[inline]
    pub fn with_reserve_access<R>(
        &self,
        reserve_access: ReserveAccess,
        work: impl FnOnce() -> R,
    ) -> R {
        let own = &self.local.reserve_access;
        let _restore = Restore(own, own.replace(reserve_access));
        work()
    }

    /// Runs `work`, whose blocks may be longer than what it reserves by a quarter at most. In a
    /// full pool it is refused sooner. For a cache, which then gives room back: otherwise its
    /// chunks would keep the sizes that they were first used for.
    pub fn fitting<R>(&self, work: impl FnOnce() -> R) -> R {
        let is_fitting = &self.local.is_fitting;
        let _restore = Restore(is_fitting, is_fitting.replace(true));
        work()
    }

    /// Whether the thread's blocks must fit: see [`fitting`](Self::fitting).
    pub(crate) fn is_fitting(&self) -> bool {
        self.local.is_fitting.get()
    }

    /// Whether the thread may use the reserve now.
    pub fn reserve_access(&self) -> ReserveAccess {
        self.local.reserve_access.get()
    }

    /// Gives up to 64 blocks back for reuse that no thread can read any more, whichever thread
    /// unlinked them.
    pub fn collect(&self) {
        self.collect_ripe();
    }

    /// Like [`collect`](Self::collect); returns the number of blocks.
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

    /// The number of blocks that threads have unlinked and that still wait for their epoch.
    pub fn waiting(&self) -> usize {
        self.pool.limbo.waiting()
    }
}

/// Gives a cell its value back, also if a thread unwinds.
struct Restore<'pool, T: Copy>(&'pool Cell<T>, T);

impl<T: Copy> Drop for Restore<'_, T> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Ends one pin of the thread that is pinned in the slot of `local` by `lease`.
#[inline(always)]
fn unpin<D: Domain>(local: &Local, lease: Word<'_, D>) {
    let held = local.pins.get() - 1;
    local.pins.set(held);
    if held == 0 {
        // No other thread changes the lease of a pinned thread.
        lease.store_transient(lease.load_unobserved() & VERSION);
    }
}

impl<D: Domain> Drop for Guard<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        unpin(self.local, self.lease);
    }
}

impl<'pool, D: Domain> ReadPin<'pool, D> {
    /// The pin of a thread that is pinned in the slot of `local` by `lease`, and that is counted
    /// there.
    #[inline(always)]
    pub(crate) fn new(pool: &'pool Pool<D>, local: &'pool Local, lease: Word<'pool, D>) -> Self {
        Self { pool, local, lease, not_send: PhantomData }
    }

    /// The same pin, as a guard that keeps notes of damage from now on.
    #[inline]
    pub fn into_guard(self) -> Guard<'pool, D> {
        let Self { pool, local, lease, .. } = *ManuallyDrop::new(self);
        local.forget_damage();
        damage::forget();
        Guard::new(pool, local, lease)
    }
}

impl<D: Domain> Drop for ReadPin<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        unpin(self.local, self.lease);
    }
}
