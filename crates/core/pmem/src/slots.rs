//! The slots of participants in process memory: caches, which threads leave to each other.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::alloc::SlabCache;
use crate::layout::MAX_PARTICIPANTS;
use crate::limbo::SpareNodes;
use crate::per_slot::PerSlot;
use crate::sys::{Mapping, Process};

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
    pub damage: Cell<Option<u64>>,
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

/// The slots of a pool as the end of a thread needs them. Apart from the pool: a thread that just
/// ends holds no handle of it, so whoever closes it with the last handle does close it.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Keeps the words of the leases mapped.
    _mapping: Mapping,
    pub locals: PerSlot<OnceLock<Box<Local>>>,
    /// The process that has opened the pool, if a child that is forked from it has no pool of its
    /// own.
    pub process: Option<Process>,
    /// Its thread has ended.
    pub ended: Bits,
    /// It may keep slabs to allocate from.
    pub with_slabs: Bits,
    /// Slots that were readied in this generation, or are about to be: all below.
    pub readied: AtomicUsize,
    /// Where the next search for a slot that is not pinned begins.
    pub turn: AtomicUsize,
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
            turn: AtomicUsize::new(0),
        }
    }

    /// Whether the calling process has opened the pool.
    pub fn is_ours(&self) -> bool {
        self.process.is_none_or(Process::is_this)
    }
}
