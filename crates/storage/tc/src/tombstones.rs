//! Tombstones: versions without a value, of keys that were removed, and their removal.
//!
//! A removed key keeps its stamp in the map: a helper that comes late must not find the key absent,
//! or it could install the first version of the key once more. When no such helper is left, the
//! record is removed from the index.
//!
//! | step | what is written | a crash leaves |
//! | --- | --- | --- |
//! | a thread that has committed, undone or taken back a removal notes its tombstone, and the epoch | process memory | the tombstone |
//! | three epochs later: the record is removed, if it still is that tombstone | the index, by `compare_remove` | the record, or none |
//!
//! When the tombstone is noted, each earlier commit of the key is decided, or its thread is inside
//! a call, and so is each of its helpers. Three epochs later they have left. A helper that comes
//! later finds an earlier commit decided, and installs nothing of it. If that one has failed and is
//! not undone everywhere, the helper makes another tombstone. So does one that takes back a bare
//! commit (`bare.rs`) whose key is absent. (A thread that panics inside a commit
//! leaves it undecided. Then a late install takes place, as if the commit had come last, unless the
//! commit is bare.)
//!
//! If the log has files, the removal must be durable too. Else a page that is written to a store
//! meanwhile would lack the version that a power cut brings back (`durable.rs`).
//!
//! A later commit that expects the tombstone finds the key absent, and fails: its transaction runs
//! again. One that expects the key absent may have read it before its first version; it is absent
//! again, so what was read is still right.
//!
//! A scan of a snapshot must find the keys that had a value at its cut. So a tombstone of such a
//! key, of a removal that the snapshot does not see, is handed to the snapshot. When that is
//! released, its tombstones are noted again.
//!
//! Each slot of the pool's participants has a list of the removals that the thread in the slot has
//! committed. Only that thread uses it, at its commits, so no thread waits for another. All other
//! tombstones are in one shared list, in the order of epochs, from which each commit removes some:
//! whoever has settled, taken back or scanned may never commit. A crash loses the lists, and a
//! thread that commits no more leaves its own. A scan that passes a settled tombstone notes it
//! again, unless there is a snapshot, which may hold it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, TryLockError};

use crossbeam_skiplist::SkipMap;
use pando_pmem::{Domain, Guard, PerSlot, Pool, mutant};

use crate::kept::Place;
use crate::stamp::Stamp;

/// A scan adds no tombstone to a list that has so many.
const MOST_OF_SCANS: usize = 1 << 10;
/// Tombstones that one commit removes at most, unless the list is long.
const REMOVED_AT_ONCE: usize = 64;
/// A commit raises the epoch itself if a list is longer.
const LONG_LIST: usize = 64;

/// A tombstone.
#[derive(Debug, Clone)]
pub(crate) struct Tombstone {
    pub map: u64,
    pub key: Vec<u8>,
    pub stamp: Stamp,
}

impl Tombstone {
    pub fn new((map, key): (u64, &[u8]), stamp: Stamp) -> Self {
        Self { map, key: key.to_vec(), stamp: stamp.removed_if(true) }
    }

    pub fn place(&self) -> Place<'_> {
        Place::new(self.map, &self.key)
    }
}

/// The lists of all slots, and the shared one.
#[derive(Debug)]
pub(crate) struct Tombstones {
    /// With the epoch in which each was noted.
    own: PerSlot<Mutex<VecDeque<(u64, Tombstone)>>>,
    /// In the lists of all slots.
    own_count: AtomicUsize,
    /// By the epoch in which each was noted, and a number.
    shared: SkipMap<(u64, u64), Tombstone>,
    shared_so_far: AtomicU64,
}

impl Tombstones {
    pub fn new<D: Domain>(pool: &Pool<D>) -> Self {
        Self {
            own: pool.per_slot(),
            own_count: AtomicUsize::new(0),
            shared: SkipMap::new(),
            shared_so_far: AtomicU64::new(0),
        }
    }

    /// Changes the list of the thread's slot. No other thread does, so it is never locked.
    fn change<R: Default>(
        &self,
        slot: usize,
        change: impl FnOnce(&mut VecDeque<(u64, Tombstone)>) -> R,
    ) -> R {
        let mut list = match self.own.get(slot).try_lock() {
            Ok(list) => list,
            // Each change of the list is whole.
            Err(TryLockError::Poisoned(list)) => list.into_inner(),
            Err(TryLockError::WouldBlock) => return R::default(),
        };
        let before = list.len();
        let changed = change(&mut list);
        if list.len() != before {
            // Relaxed: a thread always sees what it has added itself.
            self.own_count.fetch_add(list.len().wrapping_sub(before), Ordering::Relaxed);
        }
        changed
    }

    /// Notes the tombstone of a removal that the thread has committed.
    pub fn note<D: Domain>(&self, guard: &Guard<'_, D>, tombstone: Tombstone) {
        let epoch = guard.unlink_epoch();
        self.change(guard.slot(), |list| list.push_back((epoch, tombstone)));
    }

    /// Notes a tombstone for whichever thread commits next.
    pub fn share<D: Domain>(&self, guard: &Guard<'_, D>, tombstone: Tombstone) {
        let epoch = guard.unlink_epoch();
        // Relaxed: it only tells those of one epoch apart.
        let number = self.shared_so_far.fetch_add(1, Ordering::Relaxed);
        D::observe_process_memory();
        self.shared.insert((epoch, number), tombstone);
    }

    /// Whether a scan may share the tombstones that it passes: there are not many.
    pub fn may_share_passed(&self) -> bool {
        self.shared.len() < MOST_OF_SCANS
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.own_count.load(Ordering::Relaxed) == 0 && self.shared.is_empty()
    }

    /// Some tombstones of the thread's slot and of the shared list that may be removed from their
    /// indexes: their removals have an LSN up to `last_lsn`.
    pub fn take_ripe<D: Domain>(&self, guard: &Guard<'_, D>, last_lsn: u64) -> Vec<Tombstone> {
        let is_ripe = |epoch: u64, tombstone: &Tombstone| {
            let has_left =
                guard.pool().may_be_reused_since(epoch) || mutant!("tc-tombstone-without-grace");
            let is_durable =
                tombstone.stamp.lsn() <= last_lsn || mutant!("tc-tombstone-removed-undurable");
            has_left && is_durable
        };
        let mut ripe = self.change(guard.slot(), |list| {
            let (len, oldest) = (list.len(), list.front().map(|&(epoch, _)| epoch));
            let most = may_take(guard, len, oldest);
            let ripe = list.iter().take(most).take_while(|(epoch, noted)| is_ripe(*epoch, noted));
            let count = ripe.count();
            list.drain(..count).map(|(_, tombstone)| tombstone).collect::<Vec<_>>()
        });
        if !self.shared.is_empty() {
            let oldest = self.shared.front().map(|oldest| oldest.key().0);
            let take = || {
                D::observe_process_memory();
                let oldest = self.shared.front()?;
                // If another thread takes it, it takes those behind it too.
                let is_taken = is_ripe(oldest.key().0, oldest.value()) && oldest.remove();
                is_taken.then(|| oldest.value().clone())
            };
            let most = may_take(guard, self.shared.len(), oldest);
            ripe.extend(std::iter::from_fn(take).take(most));
        }
        ripe
    }
}

/// How many tombstones a commit may take of a list with so many. Raises the epoch, if it is long.
fn may_take<D: Domain>(guard: &Guard<'_, D>, len: usize, oldest: Option<u64>) -> usize {
    let is_early = |&epoch: &u64| len > LONG_LIST && !guard.pool().may_be_reused_since(epoch);
    if let Some(epoch) = oldest.filter(is_early) {
        guard.is_ripe(epoch);
    }
    REMOVED_AT_ONCE.max(len / 8)
}
