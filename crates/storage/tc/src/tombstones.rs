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
//! All threads share one list, in the order of epochs. A commit removes those at its front, whoever
//! has noted them: a thread that only scans, settles or takes back would never come to them. A crash
//! loses the list. A scan that passes a settled tombstone notes it again.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_skiplist::SkipMap;
use pando_pmem::{Domain, Guard, mutant};

use crate::kept::Place;
use crate::stamp::Stamp;

/// A scan adds no tombstone to a list that has so many.
const MOST_OF_SCANS: usize = 1 << 10;
/// Tombstones that one commit removes at most, unless the list is long.
const REMOVED_AT_ONCE: usize = 64;
/// A commit raises the epoch itself if the list is longer.
const LONG_LIST: usize = 64;

/// A tombstone.
#[derive(Debug, Clone)]
pub(crate) struct Tombstone {
    pub map: u64,
    pub key: Vec<u8>,
    pub stamp: Stamp,
}

impl Tombstone {
    pub fn place(&self) -> Place<'_> {
        Place::new(self.map, &self.key)
    }
}

/// The list of all threads.
#[derive(Debug)]
pub(crate) struct Tombstones {
    /// By the epoch in which they were noted, and a number.
    list: SkipMap<(u64, u64), Tombstone>,
    noted: AtomicU64,
}

impl Tombstones {
    pub fn new() -> Self {
        Self { list: SkipMap::new(), noted: AtomicU64::new(0) }
    }

    /// Notes a tombstone that the thread has written.
    pub fn note<D: Domain>(&self, guard: &Guard<'_, D>, (map, key): (u64, &[u8]), stamp: Stamp) {
        let stamp = stamp.removed_if(true);
        self.give_back(guard, Tombstone { map, key: key.to_vec(), stamp });
    }

    /// Notes a settled tombstone that a scan has passed, unless there are many.
    pub fn note_passed<D: Domain>(&self, guard: &Guard<'_, D>, place: (u64, &[u8]), stamp: Stamp) {
        if self.list.len() < MOST_OF_SCANS {
            self.note(guard, place, stamp);
        }
    }

    /// Notes a tombstone that could not be removed.
    pub fn give_back<D: Domain>(&self, guard: &Guard<'_, D>, tombstone: Tombstone) {
        let epoch = guard.unlink_epoch();
        // Relaxed: it only tells those of one epoch apart.
        let number = self.noted.fetch_add(1, Ordering::Relaxed);
        D::observe_process_memory();
        self.list.insert((epoch, number), tombstone);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes some tombstones that may be removed from their indexes: their removals have an LSN up
    /// to `last_lsn`.
    pub fn take_ripe<D: Domain>(&self, guard: &Guard<'_, D>, last_lsn: u64) -> Vec<Tombstone> {
        let len = self.list.len();
        let take = |is_first: bool| {
            D::observe_process_memory();
            let oldest = self.list.front()?;
            let (epoch, _) = *oldest.key();
            if is_first && len > LONG_LIST {
                // Raises the epoch.
                guard.is_ripe(epoch);
            }
            let has_left =
                guard.pool().may_be_reused_since(epoch) || mutant!("tc-tombstone-without-grace");
            let is_durable =
                oldest.value().stamp.lsn() <= last_lsn || mutant!("tc-tombstone-removed-undurable");
            // Else another thread has taken it, and takes those behind it too.
            let is_taken = has_left && is_durable && oldest.remove();
            is_taken.then(|| oldest.value().clone())
        };
        let most = REMOVED_AT_ONCE.max(len / 8);
        (0..most).map_while(|number| take(number == 0)).collect()
    }
}
