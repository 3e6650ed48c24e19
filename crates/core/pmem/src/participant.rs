//! Participants: the threads that are inside operations on a pool, each with a slot of the pool's
//! table (table.rs).
//!
//! ```text
//! byte  0        8        16       24 .. 63   64       72       80       88 .. 127
//! 0     readied  lease    deferred zero       log: kind, and up to four words
//! ```
//!
//! * `readied` is the generation in which the slot was last readied. In any other one the slot is
//!   not in use: its threads are dead.
//! * `lease` says which thread has the slot, and whether it is pinned. Bits 0..46 the *version*,
//!   bit 47 *pinned*, bits 48..63 the epoch that the thread has announced, modulo 2^16; zero while
//!   it is not pinned.
//! * `deferred` is zero, or names work that the thread has deferred to its next operation. It is
//!   done before the epoch is raised ([`Guard::defer`]). The thread writes it, and whoever
//!   raises the epoch clears it. Recovery never reads it.
//! * the log, on a line of its own, belongs to the allocator (alloc/exchange.rs).
//!
//! # Leases
//!
//! A thread takes a slot when it pins and has none, and keeps it in mind. While it is not pinned,
//! another thread may take the slot. So an idle thread holds nothing, and there are as many slots
//! as threads that are inside operations at once. The lease is one word, and each change of it
//! decides alone:
//!
//! | change | from | to | who | ordering |
//! | --- | --- | --- | --- | --- |
//! | pin | version | the same, pinned, epoch | the thread that has that version, by CAS | acquire, full barrier |
//! | unpin | version, pinned, epoch | version | the pinned thread, by a store | release |
//! | take | version | the next one, pinned, epoch | any thread, by CAS | acquire, full barrier |
//!
//! * A pin fails exactly if another thread has taken the slot. Then the thread takes another slot.
//! * A nested pin finds its own version, pinned: nobody else changes the word then, so it need
//!   not be atomic.
//! * Only a pinned thread touches what belongs to the slot: [`Local`], the log, the partition of
//!   descriptors, `deferred`. All of that stays with the slot, and the next thread goes on with it.
//!   An unpin releases it, a pin or take acquires it.
//! * A thread that stops for ever while it is pinned keeps its slot, and holds back the epoch,
//!   until the pool is opened again.
//! * The version wraps at 2^47. A thread that sleeps while its slot is taken exactly so often
//!   would believe that it has the slot: at 10 million takes a second, after 163 days of them.
//! * The epoch is announced modulo 2^16. A thread may stop between its load of the epoch and its
//!   announcement, while the epoch rises 65,535 times: then the announcement seems to be of the
//!   epoch to come, and lets the epoch rise twice. So a thread looks at the epoch again behind its
//!   announcement. If that is far behind, it lets go of the slot, which nobody has seen it use, and
//!   begins again. Of a thread that goes on, whoever sees the announcement knows which epoch it
//!   means, and the epoch rises once more at most after that.
//!
//! # Which slot is taken
//!
//! In this order: one whose thread has ended ([`Slots`] has a bit for it); one that was never used
//! in this generation; any that is not pinned, from a rotating start. If all are pinned, the table
//! grows.
//!
//! A slot that was never used is readied by one thread: `lease` and `deferred` are cleared of what
//! the medium may hold; then `readied` is stored; then the count of slots ever claimed (control
//! page) is raised and durable, since recovery looks at no slot beyond. Only then it is taken. A
//! thread that stops in between holds nothing back, since a slot counts only when it is readied.
//!
//! # Threads that end
//!
//! A thread that ends marks its slots in process memory, and writes nothing to the pool. A guard
//! may outlive that, in another of the thread's destructors; its slot stays pinned until it goes. A
//! guard that is leaked keeps its slot, and its epoch.
//!
//! A child that is forked has the claims of the thread that forked, but not the pool's file: it
//! gives nothing back, and is refused a guard. (Anonymous memory it has as its own.)

use std::sync::atomic::Ordering;

use crate::damage;
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::layout::{EPOCH_OFF, PARTICIPANT_BYTES, PARTICIPANTS_HIGH_OFF};
use crate::lease::{self, Lease, PINNED, VERSION, announced};
use crate::mutant;
use crate::pool::Pool;
use crate::slots::Local;
use crate::sys::Process;
use crate::word::Word;

const LEASE_AT: u64 = 8;
const DEFERRED_AT: u64 = 16;
pub(crate) const LOG_AT: u64 = 64;

const _: () = assert!(PARTICIPANT_BYTES == 128 && LOG_AT == 64);

/// An announcement that is so many epochs late is withdrawn; one that is less late is told from
/// that of any epoch to which the global one can rise meanwhile.
const TOO_LATE: u64 = 1 << 15;

impl<D: Domain> Pool<D> {
    fn slot_readied(&self, slot: usize) -> Word<'_, D> {
        self.word(self.slot_off(slot))
    }

    fn slot_lease(&self, slot: usize) -> Word<'_, D> {
        self.word(self.slot_off(slot) + LEASE_AT)
    }

    /// The word of a slot, by its offset, that names its thread's deferred work.
    #[inline(always)]
    pub(crate) fn deferred_at(&self, slot_off: u64) -> Word<'_, D> {
        self.word(slot_off + DEFERRED_AT)
    }

    /// The lease of a slot, by its offset.
    #[inline(always)]
    pub(crate) fn lease_at(&self, slot_off: u64) -> Word<'_, D> {
        self.word(slot_off + LEASE_AT)
    }

    /// A word of the log of `slot`, which stands while an exchange does.
    pub(crate) fn slot_log(&self, slot: usize, index: u64) -> Word<'_, D> {
        self.word(self.slot_off(slot) + LOG_AT + index * 8)
    }

    /// Whether the slot at that offset was readied in this generation.
    pub(crate) fn is_readied_at(&self, slot_off: u64) -> bool {
        // Acquire: what an earlier generation has left in the lease is gone.
        self.word(slot_off).load(Ordering::Acquire) == u64::from(self.generation())
    }

    /// Pins the calling thread, in a slot of its own.
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

    /// Whether the calling thread has pinned this pool last, so that it may use it.
    #[inline(always)]
    pub(crate) fn is_last_used(&self) -> bool {
        lease::last().uid == self.uid()
    }

    /// Pins by a lease of this pool, unless another thread has taken the slot.
    #[inline(always)]
    fn pin_leased(&self, lease: &Lease) -> Option<Guard<'_, D>> {
        // SAFETY: the lease is one of this pool's, since no other ever has its uid. The word lies
        // in its mapping and is only accessed atomically; the `Local` is one of its `Slots`. Both
        // live as long as the pool.
        let (word, local) = unsafe { (&*lease.word, &*lease.local) };
        // Relaxed, and not observed: what this thread does not know, the CAS tells; what it knows,
        // nobody changes.
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

    /// Pins the calling thread by the lease `word`, which holds `found`, in `version`; none if
    /// another thread has changed the lease.
    #[inline(always)]
    fn announce(&self, word: Word<'_, D>, found: u64, version: u64) -> Option<()> {
        let global = self.word(EPOCH_OFF);
        loop {
            let epoch = global.load(Ordering::Relaxed);
            word.compare_exchange_transient(found, version | announced(epoch)).ok()?;
            // Behind the full barrier: no advance that misses the announcement begins in a later
            // epoch.
            if global.load_unobserved().wrapping_sub(epoch) < TOO_LATE {
                return Some(());
            }
            word.store_transient(found);
        }
    }

    /// The thread's lease of this pool is not that of the pool used last, or it has none, or its
    /// slot was taken.
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
    fn take_any(&self) -> Result<Guard<'_, D>> {
        loop {
            let seen = self.participant_slots();
            let taken =
                self.take_ended().or_else(|| self.take_new(seen)).or_else(|| self.take_idle());
            if let Some(guard) = taken {
                self.slots.ended.clear(guard.slot());
                return Ok(guard);
            }
            // At most once for each segment.
            self.grow_table(seen)?;
        }
    }

    fn take_ended(&self) -> Option<Guard<'_, D>> {
        self.slots.ended.slots(self.participants_high()).find_map(|slot| self.take(slot))
    }

    /// Readies a slot of the first `slots`, and takes it.
    fn take_new(&self, slots: usize) -> Option<Guard<'_, D>> {
        loop {
            // Relaxed: only that each number is drawn once matters.
            let (order, readied) = (Ordering::Relaxed, &self.slots.readied);
            let draw = |slot| (slot < slots).then_some(slot + 1);
            let slot = readied.fetch_update(order, order, draw).ok()?;
            self.slot_lease(slot).store_transient(0);
            self.deferred_at(self.slot_off(slot)).store_transient(0);
            // Release: who sees the slot readied sees nothing of an earlier life.
            self.slot_readied(slot).store(u64::from(self.generation()), Ordering::Release);
            // Before anyone is pinned here: who raises the epoch looks at no slot beyond.
            self.raise_high(slot as u64 + if mutant!("not-counted") { 0 } else { 1 });
            if let Some(guard) = self.take(slot) {
                return Some(guard);
            }
        }
    }

    fn take_idle(&self) -> Option<Guard<'_, D>> {
        let high = self.participants_high();
        // Relaxed: any start will do.
        let start = self.slots.turn.fetch_add(1, Ordering::Relaxed);
        (0..high).find_map(|turn| self.take((start + turn) % high))
    }

    /// Takes `slot`, unless a thread is pinned there.
    fn take(&self, slot: usize) -> Option<Guard<'_, D>> {
        let off = self.slot_off(slot);
        if !self.is_readied_at(off) {
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
            let (pins, damage, reserve_access, retired, spare, slabs) = Default::default();
            Box::new(Local { slot, pins, damage, reserve_access, retired, spare, slabs })
        });
        local.pins.set(1);
        local.forget_damage();
        Some(Guard::new(self, local, word))
    }

    /// Lets go of the slabs from which threads allocated that have ended; whether there were any.
    pub(crate) fn let_go_of_ended_slabs(&self) -> bool {
        let slots = self.slots.with_slabs.slots(self.participants_high());
        slots.filter(|&slot| self.slots.ended.has(slot) && self.let_go_of_slabs(slot)).count() > 0
    }

    #[cold]
    fn let_go_of_slabs(&self, slot: usize) -> bool {
        let Some(guard) = self.take(slot) else { return false };
        self.slots.with_slabs.clear(slot);
        for (class, claim) in guard.local().slabs.take() {
            self.release_current(&guard, claim, class);
        }
        true
    }

    /// How many threads have a slot now: those that are pinned, and those that were and may be
    /// again.
    pub fn participants_claimed(&self) -> usize {
        let is_claimed = |&(slot, off): &(usize, u64)| {
            let is_pinned = self.lease_at(off).load(Ordering::Acquire) & PINNED != 0;
            self.is_readied_at(off) && (is_pinned || !self.slots.ended.has(slot))
        };
        self.used_slots().enumerate().filter(is_claimed).count()
    }

    /// Forgets the slots of earlier generations, once their deferred work is settled, but
    /// not those that threads of this one use. Only while nobody else readies a slot.
    pub fn reset_participants(&self) {
        self.used_slots()
            .filter(|&off| !self.is_readied_at(off))
            .for_each(|off| self.deferred_at(off).store_transient(0));
        let readied = self.slots.readied.load(Ordering::Acquire) as u64;
        // Not flushed: a recovery that looks at more slots finds nothing in them.
        self.word(PARTICIPANTS_HIGH_OFF).store(readied, Ordering::Release);
    }
}
