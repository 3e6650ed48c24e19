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

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::alloc::SlabCache;
use crate::damage;
use crate::domain::Domain;
use crate::epoch::Guard;
use crate::error::{Error, Result};
use crate::layout::{EPOCH_OFF, MAX_PARTICIPANTS, PARTICIPANT_BYTES, PARTICIPANTS_HIGH_OFF};
use crate::limbo::SpareNodes;
use crate::mutant;
use crate::per_slot::PerSlot;
use crate::pool::Pool;
use crate::sys::{Mapping, Process};
use crate::word::Word;

const LEASE_AT: u64 = 8;
const DEFERRED_AT: u64 = 16;
pub(crate) const LOG_AT: u64 = 64;

const _: () = assert!(PARTICIPANT_BYTES == 128 && LOG_AT == 64);

/// Bits of a lease that are the version.
pub(crate) const VERSION: u64 = PINNED - 1;
/// The bit of a lease that says that the thread is pinned.
pub(crate) const PINNED: u64 = 1 << 47;
const EPOCH_SHIFT: u32 = 48;

/// An announcement that is so many epochs late is withdrawn; one that is less late is told from
/// that of any epoch to which the global one can rise meanwhile.
const TOO_LATE: u64 = 1 << 15;

/// The part of a lease by which a thread that is pinned announces `epoch`.
#[inline(always)]
pub(crate) fn announced(epoch: u64) -> u64 {
    epoch << EPOCH_SHIFT | PINNED
}

/// By how many epochs a lease lags behind `epoch`, if its thread is pinned.
pub(crate) fn lag(lease: u64, epoch: u64) -> Option<u64> {
    let lag = epoch.wrapping_sub(lease >> EPOCH_SHIFT) & (u64::MAX >> EPOCH_SHIFT);
    (lease & PINNED != 0).then_some(lag)
}

/// What a thread may take of the reserve: the last chunks of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReserveAccess {
    /// It takes what there is.
    #[default]
    Any,
    /// It leaves the reserve to those who give room back.
    Without,
    /// It is giving room back, and may use the reserve for that.
    With,
}

/// What belongs to a slot in process memory: caches, rebuilt at will. Only the thread that is
/// pinned in the slot touches it.
#[derive(Debug)]
pub(crate) struct Local {
    /// Which slot that is.
    pub slot: usize,
    /// How many guards the thread holds.
    pub pins: Cell<u64>,
    /// Where damage has led the thread since it was pinned.
    damage: Cell<Option<u64>>,
    /// What the thread may take of the last chunks.
    pub reserve_access: Cell<ReserveAccess>,
    /// Blocks that were retired by way of this slot since the last collection.
    pub retired: Cell<usize>,
    /// What their nodes in limbo are made from.
    pub spare: SpareNodes,
    /// The slabs that the thread allocates from.
    pub slabs: SlabCache,
}

impl Local {
    /// Keeps the first that was found: what follows may follow from it.
    pub fn note_damage(&self, off: u64) {
        self.damage.set(self.damage.get().or(Some(off)));
    }

    #[inline(always)]
    pub fn damage(&self) -> Option<u64> {
        self.damage.get()
    }

    #[inline(always)]
    pub fn forget_damage(&self) {
        self.damage.set(None);
    }
}

// SAFETY: a `Local` is only reached through a lease of its slot by the thread that is pinned by
// that lease; the lease's word orders the hand-over (release on unpinning, acquire on pinning).
unsafe impl Sync for Local {}

/// A bit for each slot; hints, which may stand too long or be missing.
#[derive(Debug)]
pub(crate) struct Bits([AtomicU64; MAX_PARTICIPANTS / 64]);

impl Bits {
    fn new() -> Self {
        Self([const { AtomicU64::new(0) }; MAX_PARTICIPANTS / 64])
    }

    /// Relaxed, here and below: the lease orders what belongs to the slot.
    pub fn has(&self, slot: usize) -> bool {
        self.0[slot / 64].load(Ordering::Relaxed) & 1 << (slot % 64) != 0
    }

    pub fn set(&self, slot: usize) {
        if !self.has(slot) {
            self.0[slot / 64].fetch_or(1 << (slot % 64), Ordering::Relaxed);
        }
    }

    fn clear(&self, slot: usize) {
        if self.has(slot) {
            self.0[slot / 64].fetch_and(!(1 << (slot % 64)), Ordering::Relaxed);
        }
    }

    /// The slots below `high` whose bits are set.
    fn slots(&self, high: usize) -> impl Iterator<Item = usize> {
        self.0[..high.div_ceil(64)].iter().enumerate().flat_map(move |(index, word)| {
            let mut bits = word.load(Ordering::Relaxed);
            std::iter::from_fn(move || {
                let slot = index * 64 + bits.trailing_zeros() as usize;
                bits &= bits.checked_sub(1)?;
                (slot < high).then_some(slot)
            })
        })
    }
}

/// The slots of a pool as the end of a thread needs them. Apart from the pool: a thread that just
/// ends holds no handle of it, so whoever closes it with the last handle does close it.
#[derive(Debug)]
pub(crate) struct Slots<D> {
    /// Keeps the words of the leases mapped.
    _mapping: Mapping,
    locals: PerSlot<OnceLock<Box<Local>>>,
    /// The process that has opened the pool, if a child that is forked from it has no pool of its
    /// own.
    process: Option<Process>,
    /// Its thread has ended.
    ended: Bits,
    /// It may keep slabs to allocate from.
    pub with_slabs: Bits,
    /// Slots that were readied in this generation, or are about to be: all below.
    readied: AtomicUsize,
    /// Where the next search for a slot that is not pinned begins.
    turn: AtomicUsize,
    domain: PhantomData<D>,
}

impl<D: Domain> Slots<D> {
    pub fn new(mapping: Mapping, first_slots: usize, is_file: bool) -> Self {
        Self {
            _mapping: mapping,
            locals: PerSlot::new(first_slots),
            process: is_file.then(Process::this),
            ended: Bits::new(),
            with_slabs: Bits::new(),
            readied: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            domain: PhantomData,
        }
    }

    /// Whether the calling process has opened the pool.
    pub fn is_ours(&self) -> bool {
        self.process.is_none_or(Process::is_this)
    }
}

trait EndOfThread {
    fn thread_ends(&self, lease: &Lease);
}

impl<D: Domain> EndOfThread for Slots<D> {
    fn thread_ends(&self, lease: &Lease) {
        // A forked child has a copy of the claim, but the slot is its parent's.
        if self.is_ours() && lease.version() == lease.version {
            self.ended.set(lease.slot);
        }
    }
}

/// A slot that a thread has taken and keeps in mind; another may have taken it since.
#[derive(Clone, Copy, Debug)]
struct Lease {
    /// The pool's; zero names no pool, and then nothing else counts.
    uid: u64,
    version: u64,
    word: *const AtomicU64,
    local: *const Local,
    slot: usize,
}

impl Lease {
    const NONE: Self = Self { uid: 0, version: 0, word: ptr::null(), local: ptr::null(), slot: 0 };

    /// The version that the slot has now; only while the pool, or its [`Slots`], is there.
    fn version(&self) -> u64 {
        // SAFETY: the word lies in the mapping, which lives as long as either; it is only accessed
        // atomically.
        unsafe { &*self.word }.load(Ordering::Relaxed) & VERSION
    }
}

struct Claim {
    lease: Lease,
    slots: Weak<dyn EndOfThread>,
}

/// The slots that a thread keeps in mind, one for each pool.
#[derive(Default)]
struct Claims(RefCell<Vec<Claim>>);

impl Drop for Claims {
    fn drop(&mut self) {
        for claim in self.0.get_mut() {
            if LAST.get().uid == claim.lease.uid {
                LAST.set(Lease::NONE);
            }
            if let Some(slots) = claim.slots.upgrade() {
                slots.thread_ends(&claim.lease);
            }
        }
    }
}

thread_local! {
    /// That of the pool used last; nearly always the one wanted.
    static LAST: Cell<Lease> = const { Cell::new(Lease::NONE) };
    static CLAIMS: Claims = Claims::default();
}

/// Lets a child that was just forked look, at its next use of a pool, whose it is.
pub(crate) fn forget_forked() {
    LAST.set(Lease::NONE);
}

/// The participants that a thread is in its pools, apart from the thread: tests run several
/// logical threads on one thread of the system, and let each find its own when it goes on.
#[cfg(feature = "testing")]
pub struct LogicalThread {
    last: Cell<Lease>,
    claims: Claims,
}

#[cfg(feature = "testing")]
impl Default for LogicalThread {
    fn default() -> Self {
        Self { last: Cell::new(Lease::NONE), claims: Claims::default() }
    }
}

#[cfg(feature = "testing")]
impl LogicalThread {
    /// Exchanges these participants for those of the calling thread.
    pub fn swap(&self) {
        LAST.with(|last| last.swap(&self.last));
        CLAIMS.with(|claims| claims.0.swap(&self.claims.0));
    }
}

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
        let lease = LAST.get();
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
        LAST.get().uid == self.uid()
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
        let known = CLAIMS.try_with(|claims| {
            let claims = claims.0.borrow();
            claims.iter().map(|claim| claim.lease).find(|lease| lease.uid == self.uid())
        });
        let Ok(known) = known else { return Err(Error::ThreadEnds) };
        if let Some(lease) = known
            && let Some(guard) = self.pin_leased(&lease)
        {
            LAST.set(lease);
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
        CLAIMS.with(|claims| {
            let mut claims = claims.0.borrow_mut();
            claims.retain(|claim| claim.lease.uid != self.uid() && claim.slots.strong_count() > 0);
            let slots: Weak<Slots<D>> = Arc::downgrade(&self.slots);
            claims.push(Claim { lease, slots });
        });
        LAST.set(lease);
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
