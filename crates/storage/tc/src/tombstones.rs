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
//! Each slot of the pool's participants has a list, which only the thread in the slot uses, at its
//! commits. So no thread waits for another. A crash loses the lists. A scan that passes a settled
//! tombstone notes it again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, TryLockError};

use pando_pmem::{Domain, Guard, PerSlot, Pool, mutant};

use crate::kept::Place;
use crate::stamp::Stamp;

/// A scan adds no tombstone to a list that has so many.
pub(crate) const MOST_OF_SCANS: usize = 1 << 10;
/// Tombstones that one commit removes at most, unless the list is long.
const REMOVED_AT_ONCE: usize = 64;
/// A thread raises the epoch itself if its list is longer.
const LONG_LIST: usize = 64;

/// A tombstone.
#[derive(Debug)]
pub(crate) struct Tombstone {
    pub map: u64,
    pub key: Vec<u8>,
    pub stamp: Stamp,
    /// The epoch in which it was noted.
    pub epoch: u64,
}

impl Tombstone {
    pub fn place(&self) -> Place<'_> {
        Place::new(self.map, &self.key)
    }
}

/// The lists of all slots.
#[derive(Debug)]
pub(crate) struct Tombstones {
    lists: PerSlot<Mutex<VecDeque<Tombstone>>>,
    /// In all lists.
    count: AtomicUsize,
}

impl Tombstones {
    pub fn new<D: Domain>(pool: &Pool<D>) -> Self {
        Self { lists: pool.per_slot(), count: AtomicUsize::new(0) }
    }

    /// Changes the list of the thread's slot. No other thread does, so it is never locked.
    fn change<R: Default>(
        &self,
        slot: usize,
        change: impl FnOnce(&mut VecDeque<Tombstone>) -> R,
    ) -> R {
        let mut list = match self.lists.get(slot).try_lock() {
            Ok(list) => list,
            // Each change of the list is whole.
            Err(TryLockError::Poisoned(list)) => list.into_inner(),
            Err(TryLockError::WouldBlock) => return R::default(),
        };
        let before = list.len();
        let changed = change(&mut list);
        // Relaxed: a thread always sees what it has added itself.
        self.count.fetch_add(list.len().wrapping_sub(before), Ordering::Relaxed);
        changed
    }

    /// Notes a tombstone that the thread has written, or a settled one that a scan has passed. The
    /// list of a scan has a limit.
    pub fn note<D: Domain>(
        &self,
        guard: &Guard<'_, D>,
        (map, key): (u64, &[u8]),
        stamp: Stamp,
        most: usize,
    ) {
        let (stamp, epoch) = (stamp.removed_if(true), guard.unlink_epoch());
        self.change(guard.slot(), |list| {
            if list.len() < most {
                list.push_back(Tombstone { map, key: key.to_vec(), stamp, epoch });
            }
        });
    }

    /// Notes again a tombstone that could not be removed.
    pub fn give_back<D: Domain>(&self, guard: &Guard<'_, D>, tombstone: Tombstone) {
        self.change(guard.slot(), |list| list.push_back(tombstone));
    }

    /// Whether no slot has any.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Some tombstones of the thread's slot that may be removed from their indexes: their removals
    /// have an LSN up to `last_lsn`.
    pub fn take_ripe<D: Domain>(&self, guard: &Guard<'_, D>, last_lsn: u64) -> Vec<Tombstone> {
        self.change(guard.slot(), |list| {
            if list.len() > LONG_LIST
                && let Some(oldest) = list.front()
            {
                // Raises the epoch.
                guard.is_ripe(oldest.epoch);
            }
            let is_ripe = |&&Tombstone { epoch, stamp, .. }: &&Tombstone| {
                let has_left = guard.pool().may_be_reused_since(epoch)
                    || mutant!("tc-tombstone-without-grace");
                let is_durable =
                    stamp.lsn() <= last_lsn || mutant!("tc-tombstone-removed-undurable");
                has_left && is_durable
            };
            let most = REMOVED_AT_ONCE.max(list.len() / 8);
            let ripe = list.iter().take(most).take_while(is_ripe).count();
            list.drain(..ripe).collect()
        })
    }
}
