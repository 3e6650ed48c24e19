//! The slots of participants in process memory: the caches of each slot. A thread that takes a slot
//! takes over its caches.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::alloc::SlabCache;
use crate::layout::MAX_PARTICIPANTS;
use crate::limbo::SpareNodes;
use crate::per_slot::PerSlot;
use crate::sys::{Mapping, Process};

/// Whether a thread may use the reserve: the last chunks of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReserveAccess {
    /// It may use it.
    #[default]
    Any,
    /// The same, in an operation that undoes another one. The cache of a store tells it from a
    /// read, whose pages may leave no room to undo.
    Undo,
    /// It may not use it: the reserve is for operations that give room back.
    Without,
    /// It may not use it, and leaves further chunks to the operations that may have to undo its
    /// work.
    Revocable,
    /// It gives room back, and may use the reserve for that.
    With,
}

/// The data of a slot in process memory: caches, which can be rebuilt. Only the thread that is
/// pinned in the slot uses it.
#[derive(Debug)]
pub(crate) struct Local {
    /// The number of the slot.
    pub slot: usize,
    /// How many guards the thread holds.
    pub pins: Cell<u64>,
    /// The first offset at which the thread has found damage since it was pinned.
    pub damage: Cell<Option<u64>>,
    /// Whether the thread may use the last chunks.
    pub reserve_access: Cell<ReserveAccess>,
    /// Whether the thread's blocks may not be much longer than what it reserves.
    pub is_fitting: Cell<bool>,
    /// Blocks that were retired in this slot since the last collection.
    pub retired: Cell<usize>,
    /// Nodes of limbo that are used again.
    pub spare: SpareNodes,
    /// The slabs that the thread allocates from.
    pub slabs: SlabCache,
}

impl Local {
    /// Keeps the first offset that was found: later ones may follow from it.
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

// SAFETY: only the thread that is pinned by the lease of a slot reaches its `Local`. The lease's
// word orders the hand-over (release on unpinning, acquire on pinning).
unsafe impl Sync for Local {}

/// A bit for each slot. The bits are hints: one may be set too long, or be missing.
#[derive(Debug)]
pub(crate) struct Bits([AtomicU64; MAX_PARTICIPANTS / 64]);

impl Bits {
    fn new() -> Self {
        Self([const { AtomicU64::new(0) }; MAX_PARTICIPANTS / 64])
    }

    /// Relaxed, here and below: the lease orders accesses to the data of a slot.
    pub fn has(&self, slot: usize) -> bool {
        self.0[slot / 64].load(Ordering::Relaxed) & 1 << (slot % 64) != 0
    }

    pub fn set(&self, slot: usize) {
        if !self.has(slot) {
            self.0[slot / 64].fetch_or(1 << (slot % 64), Ordering::Relaxed);
        }
    }

    pub fn clear(&self, slot: usize) {
        if self.has(slot) {
            self.0[slot / 64].fetch_and(!(1 << (slot % 64)), Ordering::Relaxed);
        }
    }

    /// The slots below `high` whose bits are set.
    pub fn slots(&self, high: usize) -> impl Iterator<Item = usize> {
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

/// The slots of a pool, for the end of a thread. Separate from the pool: a thread that ends holds
/// no handle of the pool, so the drop of the last handle does close the pool.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Keeps the words of the leases mapped.
    _mapping: Mapping,
    pub locals: PerSlot<OnceLock<Box<Local>>>,
    /// The process that has opened the pool; none if a forked child has its own copy of the pool.
    pub process: Option<Process>,
    /// Slots whose thread has ended.
    pub ended: Bits,
    /// Slots that may have slabs to allocate from.
    pub with_slabs: Bits,
    /// All slots below this number were prepared in this generation, or will be soon.
    pub readied: AtomicUsize,
    /// Slots that this process has prepared.
    pub prepared: AtomicUsize,
    /// Where the next search for a slot that is not pinned begins.
    pub turn: AtomicUsize,
    /// Holds of this process (`hold.rs`).
    pub holds: AtomicUsize,
}

impl Slots {
    pub fn new(mapping: Mapping, first_slots: usize, is_file: bool) -> Self {
        Self {
            _mapping: mapping,
            locals: PerSlot::new(first_slots),
            process: is_file.then(Process::this),
            ended: Bits::new(),
            with_slabs: Bits::new(),
            readied: AtomicUsize::new(0),
            prepared: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            holds: AtomicUsize::new(0),
        }
    }

    /// Whether the calling process has opened the pool.
    pub fn is_ours(&self) -> bool {
        self.process.is_none_or(Process::is_this)
    }
}
