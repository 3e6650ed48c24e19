//! Participants: the threads that are inside operations on a pool, each with a slot of the pool's
//! table (`table.rs`).
//!
//! ```text
//! byte  0        8        16       24       32 .. 63   64       72       80       88 .. 127
//! 0     readied  lease    deferred owner    zero       log: kind, and up to four words
//! ```
//!
//! * `readied` is the generation in which the slot was last prepared for use. In any other
//!   generation the slot is not in use: its threads are dead.
//! * `lease` says which thread has the slot, and whether it is pinned. Bits 0..46 are the
//!   *version*, bit 47 is *pinned*, bits 48..63 are the epoch that the thread has announced, modulo
//!   2^16 (zero while it is not pinned).
//! * `deferred` is zero, or names work that the thread has deferred to its next operation. The work
//!   is done before the epoch is raised ([`Guard::defer`]). The thread writes the word, and a
//!   thread that raises the epoch clears it. Recovery never reads it.
//! * `owner` says which process has the slot, and in which generation (`processes.rs`). A process
//!   takes a slot that no process has by a CAS of this word, prepares it, and keeps it until it
//!   leaves the pool. Only its threads take leases of the slot.
//! * the log, on a line of its own, belongs to the allocator (`alloc/exchange.rs`).
//!
//! # Leases
//!
//! A thread takes a slot when it pins and has none, and remembers the slot. While the thread is not
//! pinned, another thread may take the slot. So an idle thread holds nothing, and the table needs
//! as many slots as threads are inside operations at once. The lease is one word, and each change
//! of it takes effect at once:
//!
//! | change | from | to | thread | ordering |
//! | --- | --- | --- | --- | --- |
//! | pin | version | the same, pinned, epoch | the thread that has that version, by CAS | acquire, full barrier |
//! | unpin | version, pinned, epoch | version | the pinned thread, by a store | release |
//! | take | version | the next version, pinned, epoch | any thread, by CAS | acquire, full barrier |
//!
//! * A pin fails exactly if another thread has taken the slot. Then the thread takes another slot.
//! * A nested pin finds its own version, pinned. No other thread changes the word then, so the pin
//!   need not be atomic.
//! * Only a pinned thread uses the data of the slot: `Local`, the log, the partition of
//!   descriptors, `deferred`. The data stays with the slot, and the next thread continues with it.
//!   An unpin releases it; a pin or take acquires it.
//! * A thread that stalls forever while it is pinned keeps its slot, and stops the epoch, until the
//!   pool is opened again.
//! * The version wraps at 2^47. If a thread sleeps while its slot is taken exactly so often, it
//!   takes the slot for its own: after 163 days at 10 million takes a second.
//! * The epoch is announced modulo 2^16. A thread may stall between its load of the epoch and its
//!   announcement, while the epoch rises 65,535 times. Then the announcement looks like one of the
//!   next epoch, and lets the epoch rise twice. So a thread loads the epoch again after its
//!   announcement. If the announcement is far behind, the thread withdraws it, before it has used
//!   the slot, and starts again. If it is not far behind, other threads know which epoch it means,
//!   and the epoch rises once more at most.
//!
//! # Which slot is taken
//!
//! A thread first tries a slot whose thread has ended (`Slots` has a bit for it), then one that was
//! never used in this generation. Next it tries any slot of its process that is not pinned, from a
//! rotating start, and last a slot that another process has left. If there is none, the table
//! grows. In a shared pool a process that has 128 slots takes one that is not pinned before a new
//! one.
//!
//! One thread prepares a slot that no process has:
//!
//! | step | what is written | a crash leaves |
//! | --- | --- | --- |
//! | 0 | `owner`, by CAS | a slot of a process that is dead |
//! | 1 | `lease` and `deferred` := 0, over what the medium may hold | a slot that is not in use |
//! | 2 | `readied` := this generation | the same: the next generation is another one |
//! | 3 | the count of claimed slots (control page) rises above the slot, durable | a count that makes recovery read the slot too |
//!
//! Only then the thread takes the slot, since recovery reads no slot beyond the count. A thread
//! that stalls in between delays no other thread, since a slot counts only when `readied` is
//! written. Another thread may take the slot once the count is above it, and makes the count
//! durable itself before it writes there.
//!
//! # Threads that end
//!
//! A thread that ends marks its slots in process memory, and writes nothing to the pool. A guard
//! may outlive that, in another destructor of the thread; its slot stays pinned until the guard is
//! dropped. A guard that is leaked keeps its slot, and its epoch.
//!
//! A forked child has the leases of the thread that forked, but not the pool's file: it frees
//! nothing, and it gets no guard. (It has its own copy of anonymous memory.)

use std::sync::atomic::{AtomicU64, Ordering};

use crate::damage;
use crate::domain::Domain;
use crate::epoch::{Guard, ReadPin};
use crate::error::{Error, Result};
use crate::layout::{EPOCH_OFF, FIRST_PARTICIPANTS, PARTICIPANT_BYTES, PARTICIPANTS_HIGH_OFF};
use crate::lease::{self, Lease, PINNED, VERSION, announced};
use crate::mutant;
use crate::pool::Pool;
use crate::slots::Local;
use crate::sys::Process;
use crate::word::Word;

const LEASE_AT: u64 = 8;
const DEFERRED_AT: u64 = 16;
const OWNER_AT: u64 = 24;
pub(crate) const LOG_AT: u64 = 64;

const _: () = assert!(PARTICIPANT_BYTES == 128 && LOG_AT == 64);

/// An announcement that is so many epochs late is withdrawn. If it is less late, it differs from an
/// announcement of any epoch to which the global epoch can rise meanwhile.
const TOO_LATE: u64 = 1 << 15;

/// A process with so many slots of a shared pool takes an idle one before a new one. With fewer,
/// its threads would take slots from each other although there are others.
const ENOUGH_SLOTS: usize = FIRST_PARTICIPANTS;

/// A slot, and its owner's word, for other processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotSeen {
    pub number: usize,
    pub off: u64,
    pub owner: u64,
    lease: u64,
}

impl SlotSeen {
    /// How many epochs ago the slot was pinned, in `epoch`; `None` if it is not pinned.
    pub fn lag(&self, epoch: u64) -> Option<u64> {
        lease::lag(self.lease, epoch)
    }
}

impl<D: Domain> Pool<D> {
    fn slot_owner(&self, slot_off: u64) -> Word<'_, D> {
        self.word(slot_off + OWNER_AT)
    }

    /// The slots that processes of this generation have.
    pub(crate) fn slot_owners(&self) -> Vec<SlotSeen> {
        let seen = |(number, off)| {
            // Acquire: pairs with the CAS of the process that took the slot.
            let owner = self.slot_owner(off).load(Ordering::Acquire);
            let lease = self.lease_at(off).load(Ordering::Acquire);
            let lease = if self.is_readied_at(off) { lease } else { 0 };
            SlotSeen { number, off, owner, lease }
        };
        // Also slots above the high mark: a process may have died before it raised the mark.
        let all = (0..self.participant_slots()).map(|slot| seen((slot, self.slot_off(slot))));
        all.filter(|slot| self.is_owner(slot.owner)).collect()
    }

    /// Whether this process has `slot`.
    pub fn is_own_slot(&self, slot: usize) -> bool {
        // Acquire: pairs with the CAS of the thread of this process that has taken the slot, so
        // that its former preparation is not seen after this.
        self.slot_owner(self.slot_off(slot)).load(Ordering::Acquire) == self.own_owner()
    }

    /// Ends the lease of a dead process's slot, and does its deferred work.
    pub(crate) fn end_lease(&self, slot_off: u64) {
        let deferred = self.deferred_at(slot_off).load(Ordering::Acquire);
        if deferred != 0 {
            self.do_deferred(slot_off, deferred);
        }
        let lease = self.lease_at(slot_off);
        let next = lease.load(Ordering::Acquire).wrapping_add(1) & VERSION;
        lease.store_transient(next);
    }

    /// Gives a slot of a dead process back.
    pub(crate) fn free_slot(&self, slot_off: u64) {
        if !mutant!("slot-taken-before-it-is-prepared") {
            // Before its next owner has prepared it, it is not in use: no thread of that process
            // takes it meanwhile.
            self.word(slot_off).store_transient(0);
        }
        self.slot_owner(slot_off).store_transient(0);
    }

    fn slot_readied(&self, slot: usize) -> Word<'_, D> {
        self.word(self.slot_off(slot))
    }

    fn slot_lease(&self, slot: usize) -> Word<'_, D> {
        self.word(self.slot_off(slot) + LEASE_AT)
    }

    /// The word that names the deferred work of the slot at `slot_off`.
    #[inline(always)]
    pub(crate) fn deferred_at(&self, slot_off: u64) -> Word<'_, D> {
        self.word(slot_off + DEFERRED_AT)
    }

    /// The lease of the slot at `slot_off`.
    #[inline(always)]
    pub(crate) fn lease_at(&self, slot_off: u64) -> Word<'_, D> {
        self.word(slot_off + LEASE_AT)
    }

    /// A word of the log of `slot`, which is in use during an exchange.
    pub(crate) fn slot_log(&self, slot: usize, index: u64) -> Word<'_, D> {
        self.word(self.slot_off(slot) + LOG_AT + index * 8)
    }

    /// Whether the slot at `slot_off` was prepared in this generation.
    pub(crate) fn is_readied_at(&self, slot_off: u64) -> bool {
        // Acquire: the lease no longer has the content of an earlier generation.
        self.word(slot_off).load(Ordering::Acquire) == u64::from(self.generation())
    }

    /// Pins the calling thread, in a slot that no other thread has.
    #[inline(always)]
    pub(crate) fn pin_slot(&self) -> Result<Guard<'_, D>> {
        let lease = lease::last();
        if lease.uid == self.uid()
            && let Some(guard) = self.pin_leased(&lease)
        {
            return Ok(guard);
        }
        self.pin_anew()
    }

    /// Whether this is the pool that the calling thread has pinned last: then it may use the pool.
    #[inline(always)]
    pub(crate) fn is_last_used(&self) -> bool {
        lease::last().uid == self.uid()
    }

    /// Pins by a lease of this pool, unless another thread has taken the slot.
    #[inline(always)]
    fn pin_leased(&self, lease: &Lease) -> Option<Guard<'_, D>> {
        let (word, local) = self.leased(lease);
        // Relaxed, and not observed: if the value is old, the CAS fails; if this thread is pinned,
        // no other thread changes it.
        let found = word.load(Ordering::Relaxed);
        let word = Word::new(word);
        if found == lease.version {
            self.announce(word, found, found)?;
            local.pins.set(1);
            local.forget_damage();
            damage::forget();
        } else if found & VERSION == lease.version {
            local.pins.set(local.pins.get() + 1);
        } else {
            return None;
        }
        Some(Guard::new(self, local, word))
    }

    /// Pins the calling thread for a read that finds no damage, or drops what it has read. `None`
    /// where [`pin`](Self::pin) takes more than one step: the thread is pinned already, or has used
    /// another pool last, or has no slot.
    #[inline(always)]
    pub fn pin_for_read(&self) -> Option<ReadPin<'_, D>> {
        let lease = lease::last();
        if lease.uid != self.uid() {
            return None;
        }
        let (word, local) = self.leased(&lease);
        // Relaxed, and not observed: as in `pin_leased`.
        if word.load(Ordering::Relaxed) != lease.version {
            return None;
        }
        let word = Word::new(word);
        self.announce(word, lease.version, lease.version)?;
        local.pins.set(1);
        Some(ReadPin::new(self, local, word))
    }

    /// The lease word and the data of the slot of a lease of this pool.
    #[inline(always)]
    fn leased(&self, lease: &Lease) -> (&AtomicU64, &Local) {
        // SAFETY: the lease is of this pool, since no other pool ever has its uid. The word lies in
        // the pool's mapping and is only accessed atomically; the `Local` belongs to the pool's
        // `Slots`. Both live as long as the pool.
        unsafe { (&*lease.word, &*lease.local) }
    }

    /// Pins the calling thread in `version`, by the lease `word`, which held `found`. None if
    /// another thread has changed the lease.
    #[inline(always)]
    fn announce(&self, word: Word<'_, D>, found: u64, version: u64) -> Option<()> {
        let global = self.word(EPOCH_OFF);
        loop {
            let epoch = global.load(Ordering::Relaxed);
            word.compare_exchange_transient(found, version | announced(epoch)).ok()?;
            // After the full barrier: an advance that misses the announcement began in the epoch
            // that is loaded here, or before.
            if global.load_unobserved().wrapping_sub(epoch) < TOO_LATE {
                return Some(());
            }
            word.store_transient(found);
        }
    }

    /// Pins a thread that has used another pool last, or has no lease of this pool, or whose slot
    /// was taken.
    #[cold]
    #[inline(never)]
    fn pin_anew(&self) -> Result<Guard<'_, D>> {
        if self.slots.process.is_some_and(Process::has_forked) {
            return Err(Error::Forked(self.path().to_path_buf()));
        }
        if let Some(lease) = lease::known(self.uid())?
            && let Some(guard) = self.pin_leased(&lease)
        {
            lease::set_last(lease);
            return Ok(guard);
        }
        let guard = self.take_any()?;
        damage::forget();
        let lease = Lease {
            uid: self.uid(),
            version: guard.lease().load_unobserved() & VERSION,
            word: guard.lease().as_ptr(),
            local: guard.local(),
            slot: guard.slot(),
        };
        lease::keep(lease, &self.slots);
        Ok(guard)
    }

    /// Takes a slot in which no thread is pinned.
    pub(crate) fn take_any(&self) -> Result<Guard<'_, D>> {
        loop {
            let seen = self.participant_slots();
            let taken = self
                .take_ended()
                .or_else(|| if self.has_enough_slots() { self.take_idle() } else { None })
                .or_else(|| self.take_new(seen))
                .or_else(|| self.take_idle())
                .or_else(|| self.take_left());
            if let Some(guard) = taken {
                self.slots.ended.clear(guard.slot());
                return Ok(guard);
            }
            // The loop ends: the table grows at most once for each segment.
            self.grow_table(seen)?;
        }
    }

    /// Whether this process has so many slots of a shared pool that it leaves the others to other
    /// processes while it has an idle one. Else the idle threads of some processes could take all
    /// slots.
    fn has_enough_slots(&self) -> bool {
        // Relaxed: it is a count for a choice.
        self.is_shared() && self.slots.prepared.load(Ordering::Relaxed) >= ENOUGH_SLOTS
    }

    fn take_ended(&self) -> Option<Guard<'_, D>> {
        self.slots.ended.slots(self.participants_high()).find_map(|slot| self.take_prepared(slot))
    }

    /// Prepares a slot of the first `slots` that no process has, and takes it.
    fn take_new(&self, slots: usize) -> Option<Guard<'_, D>> {
        loop {
            // Relaxed: it only matters that each number is drawn once.
            let (order, readied) = (Ordering::Relaxed, &self.slots.readied);
            let draw = |slot| (slot < slots).then_some(slot + 1);
            let slot = readied.fetch_update(order, order, draw).ok()?;
            if let Some(guard) = self.prepare_slot(slot) {
                return Some(guard);
            }
        }
    }

    /// Prepares a slot that another process has left, and takes it.
    fn take_left(&self) -> Option<Guard<'_, D>> {
        let high = if self.is_shared() { self.participants_high() } else { 0 };
        (0..high).find_map(|slot| self.prepare_slot(slot))
    }

    /// Takes `slot` for this process, unless a process has it, and for this thread.
    fn prepare_slot(&self, slot: usize) -> Option<Guard<'_, D>> {
        let off = self.slot_off(slot);
        let owner = self.slot_owner(off);
        let found = owner.load(Ordering::Acquire);
        if self.is_owner(found) && !mutant!("slot-of-another-process") {
            return None;
        }
        // A full barrier: what the former owner's recovery has written is seen below.
        owner.compare_exchange_transient(found, self.own_owner()).ok()?;
        self.slots.prepared.fetch_add(1, Ordering::Relaxed);
        self.slot_lease(slot).store_transient(0);
        self.deferred_at(off).store_transient(0);
        // Release: a thread that sees this sees no content of an earlier generation.
        self.slot_readied(slot).store(u64::from(self.generation()), Ordering::Release);
        // Before a thread is pinned here: a thread that raises the epoch reads no slot beyond.
        self.raise_high(slot as u64 + if mutant!("not-counted") { 0 } else { 1 });
        self.take(slot)
    }

    fn take_idle(&self) -> Option<Guard<'_, D>> {
        let high = self.participants_high();
        // Relaxed: any start is good.
        let start = self.slots.turn.fetch_add(1, Ordering::Relaxed);
        (0..high).find_map(|turn| self.take_prepared((start + turn) % high))
    }

    /// Takes `slot`, which another thread has prepared, unless a thread is pinned there.
    fn take_prepared(&self, slot: usize) -> Option<Guard<'_, D>> {
        let guard = self.take(slot)?;
        if !mutant!("slot-taken-uncounted") {
            self.secure_participants_high();
        }
        Some(guard)
    }

    /// Takes `slot`, unless a thread is pinned there. The caller makes the count durable.
    fn take(&self, slot: usize) -> Option<Guard<'_, D>> {
        let off = self.slot_off(slot);
        // The owner first. Else the slot may have been a dead process's when it was found prepared,
        // and may be given to this process, whose thread has not prepared it yet.
        let was_readied = mutant!("owner-of-a-slot-read-last") && self.is_readied_at(off);
        if self.is_shared() && !self.is_own_slot(slot) || !was_readied && !self.is_readied_at(off) {
            return None;
        }
        let word = self.lease_at(off);
        let found = word.load(Ordering::Relaxed);
        if !mutant!("taken-although-pinned") && found & PINNED != 0 {
            return None;
        }
        let next = found.wrapping_add(1) & VERSION;
        self.announce(word, found, next)?;
        let local = self.slots.locals.get(slot).get_or_init(|| {
            let (pins, damage, reserve_access, is_fitting, retired, spare, slabs) =
                Default::default();
            Box::new(Local {
                slot,
                pins,
                damage,
                reserve_access,
                is_fitting,
                retired,
                spare,
                slabs,
            })
        });
        local.pins.set(1);
        local.forget_damage();
        Some(Guard::new(self, local, word))
    }

    /// Releases the slabs of threads that have ended; returns whether there were any.
    pub(crate) fn release_ended_slabs(&self) -> bool {
        let slots = self.slots.with_slabs.slots(self.participants_high());
        slots.filter(|&slot| self.slots.ended.has(slot) && self.release_slabs_of(slot)).count() > 0
    }

    #[cold]
    fn release_slabs_of(&self, slot: usize) -> bool {
        let Some(guard) = self.take_prepared(slot) else { return false };
        self.slots.with_slabs.clear(slot);
        for (class, claim) in guard.local().slabs.take() {
            self.release_current(&guard, claim, class);
        }
        true
    }

    /// How many threads have a slot now: threads that are pinned, and threads that were pinned and
    /// have not ended.
    pub fn participants_claimed(&self) -> usize {
        let is_claimed = |&(slot, off): &(usize, u64)| {
            let is_pinned = self.lease_at(off).load(Ordering::Acquire) & PINNED != 0;
            self.is_readied_at(off) && (is_pinned || !self.slots.ended.has(slot))
        };
        self.used_slots().enumerate().filter(is_claimed).count()
    }

    /// Forgets the slots of earlier generations, after their deferred work is settled, and keeps
    /// the slots that threads of this generation use. No other thread may prepare a slot meanwhile.
    pub fn reset_participants(&self) {
        self.used_slots()
            .filter(|&off| !self.is_readied_at(off))
            .for_each(|off| self.deferred_at(off).store_transient(0));
        let readied = self.slots.readied.load(Ordering::Acquire) as u64;
        // Not flushed: a recovery that reads more slots finds nothing in them.
        self.word(PARTICIPANTS_HIGH_OFF).store(readied, Ordering::Release);
    }
}
