//! The snapshots that live, and the versions that are kept for them.
//!
//! All of it is process memory: a snapshot ends with its process. `snapshot.rs` has the protocol.
//!
//! | state of a snapshot | versions are kept, and tombstones of their keys stay |
//! | --- | --- |
//! | live | yes; if a transaction writes what it reads there, all tombstones behind its cut stay |
//! | warned: its holder is being told that it will be revoked | yes |
//! | read: its transaction commits, and reads no more | no; but all tombstones behind its cut stay |
//! | revoked, or released | no |

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use crossbeam_skiplist::SkipMap;
use pando_log::Log;
use pando_pmem::{Domain, Guard, mutant};

use crate::kept::{Kept, Place, Placed, Versions};
use crate::stamp::Stamp;
use crate::tombstones::Tombstone;

/// The cut of a snapshot that no thread has fixed yet.
const OPEN: u64 = u64::MAX;
/// Bytes of a kept version beside its key and its value, with the tombstone of a removed key: a
/// rough figure.
const OVERHEAD_BYTES: u64 = 128;

const LIVE: u8 = 0;
const WARNED: u8 = 1;
const READ: u8 = 2;
const REVOKED: u8 = 3;

/// When a snapshot is revoked, if it is the oldest one. Looked at after each commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Its age is above this.
    pub max_age: Duration,
    /// All snapshots together hold more than these bytes: the versions that are kept, with their
    /// keys, and 128 for each.
    pub max_bytes: u64,
}

impl Default for SnapshotLimits {
    /// One hour and 1 GiB.
    fn default() -> Self {
        Self { max_age: Duration::from_secs(60 * 60), max_bytes: 1 << 30 }
    }
}

/// Called before a snapshot is revoked.
pub type OnRevoke = Box<dyn Fn() + Send + Sync>;

/// How a snapshot is taken.
#[derive(Default)]
pub struct SnapshotOptions {
    /// When it is revoked.
    pub limits: SnapshotLimits,
    /// The name of its holder, for reports.
    pub holder: String,
    /// Called once, before it is revoked, on the thread of a commit, which waits for it. It must
    /// not use the component. A panic is caught.
    pub on_revoke: Option<OnRevoke>,
}

impl std::fmt::Debug for SnapshotOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotOptions").field("holder", &self.holder).finish_non_exhaustive()
    }
}

/// The figures of the snapshots that live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotStat {
    /// How many there are.
    pub count: u64,
    /// Bytes of the versions that are kept for them, as the limit counts them.
    pub kept_bytes: u64,
    /// The holder of the oldest one.
    pub oldest_holder: String,
    /// The age of the oldest one.
    pub oldest_age: Duration,
}

/// A snapshot.
pub(crate) struct Entry {
    cut: AtomicU64,
    state: AtomicU8,
    /// The value that a key had at the cut, if it was replaced since.
    pub versions: Versions,
    /// Tombstones that are removed from their maps only after its release; one for a key. The
    /// values are empty.
    tombstones: SkipMap<Kept, Stamp>,
    bytes: AtomicU64,
    begun: Instant,
    options: SnapshotOptions,
    /// Whether a transaction writes what it has read there. Then each key that was removed since
    /// keeps its tombstone, so that the commit finds it changed.
    is_for_writes: bool,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cut, state, bytes, options, .. } = self;
        let mut entry = f.debug_struct("Entry");
        entry.field("cut", cut).field("state", state).field("bytes", bytes);
        entry.field("holder", &options.holder).finish_non_exhaustive()
    }
}

impl Entry {
    /// The LSN up to which the snapshot sees the commits, which this call fixes if it is open.
    pub fn cut<D: Domain>(&self, log: &Log<D>, guard: &Guard<'_, D>) -> u64 {
        D::observe_process_memory();
        // Acquire: with the CAS of another thread (model `snapshot::cut_of_another`).
        let cut = self.cut.load(Ordering::Acquire);
        if cut != OPEN {
            return cut;
        }
        // With the fence of each commit: one that has not seen the snapshot in the list comes
        // before this fence, so the LSN read here is not below its own (model
        // `snapshot::one_commit`).
        fence(Ordering::SeqCst);
        let newest = log.newest_lsn(guard);
        D::observe_process_memory();
        self.fix(newest)
    }

    /// Fixes the cut, unless another thread has; the cut.
    pub fn fix(&self, newest: u64) -> u64 {
        let fixed = self.cut.compare_exchange(OPEN, newest, Ordering::AcqRel, Ordering::Acquire);
        fixed.err().unwrap_or(newest)
    }

    /// The cut, which is fixed.
    pub fn fixed_cut(&self) -> u64 {
        self.cut.load(Ordering::Acquire)
    }

    fn state(&self) -> u8 {
        // Acquire: with the CAS of the thread that revokes. A commit that keeps no version has seen
        // *revoked* before its first write; a reader that finds that write sees *revoked* too.
        self.state.load(Ordering::Acquire)
    }

    fn changes(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether versions are kept for it.
    pub fn keeps(&self) -> bool {
        self.state() < READ
    }

    pub fn is_revoked(&self) -> bool {
        self.state() == REVOKED
    }

    /// Its holder reads no more; false if it was revoked before.
    pub fn end_reads(&self) -> bool {
        self.changes(LIVE, READ) || self.changes(WARNED, READ)
    }

    /// Keeps a value, unless its key has one.
    pub fn keep(&self, kept: &Kept) {
        if self.versions.add(kept) {
            // Relaxed: a figure.
            self.bytes.fetch_add(kept.bytes() as u64 + OVERHEAD_BYTES, Ordering::Relaxed);
        }
    }

    /// Whether the tombstone of the key at `place` stays, by which the commit `lsn` has removed it.
    pub fn needs_tombstone(&self, lsn: u64, place: Place<'_>) -> bool {
        let is_needed = match self.state() {
            LIVE | WARNED => self.is_for_writes || self.versions.has(place),
            READ => true,
            _ => false,
        };
        is_needed && self.fixed_cut() < lsn && !mutant!("tc-tombstone-under-snapshot")
    }

    /// Holds a tombstone, in the place of an older one of the key.
    pub fn hold(&self, tombstone: &Tombstone) {
        let place = tombstone.place();
        let is_held = || self.tombstones.contains_key::<dyn Placed + '_>(&place);
        if !self.versions.has(place) && !is_held() {
            self.bytes.fetch_add(place.bytes() as u64 + OVERHEAD_BYTES, Ordering::Relaxed);
        }
        let stamp = tombstone.stamp;
        let is_older = |held: &Stamp| held.lsn() < stamp.lsn();
        self.tombstones.compare_insert(Kept::new(place, &[]), stamp, is_older);
    }

    /// Gives up a tombstone that it holds.
    pub fn take_tombstone(&self) -> Option<Tombstone> {
        let taken = self.tombstones.pop_front()?;
        let Place { map, key, .. } = taken.key().place();
        Some(Tombstone { map, key: key.to_vec(), stamp: *taken.value() })
    }

    /// How many tombstones it holds.
    pub fn tombstones(&self) -> usize {
        self.tombstones.len()
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Nobody reads it any more.
    pub fn close(&self) {
        self.state.store(REVOKED, Ordering::Release);
    }

    /// Tells the holder, unless another thread does, and then revokes it.
    pub fn revoke(&self) {
        if self.changes(LIVE, WARNED)
            && let Some(on_revoke) = &self.options.on_revoke
        {
            // The commit on this thread goes on.
            let _ = catch_unwind(AssertUnwindSafe(on_revoke));
        }
        self.changes(WARNED, REVOKED);
    }
}

/// The snapshots of a component.
#[derive(Debug)]
pub(crate) struct Snapshots {
    /// In the order in which they were taken. Those that are revoked or released leave when they
    /// hold nothing.
    list: ArcSwap<Vec<Arc<Entry>>>,
    /// How many there are, and some that are about to come or have just left.
    count: AtomicUsize,
}

impl Snapshots {
    pub fn new() -> Self {
        Self { list: ArcSwap::default(), count: AtomicUsize::new(0) }
    }

    /// Adds a snapshot with an open cut.
    pub fn register<D: Domain>(&self, options: SnapshotOptions, is_for_writes: bool) -> Arc<Entry> {
        let entry = Arc::new(Entry {
            cut: AtomicU64::new(OPEN),
            state: AtomicU8::new(LIVE),
            versions: Versions::default(),
            tombstones: SkipMap::new(),
            bytes: AtomicU64::new(0),
            begun: Instant::now(),
            options,
            is_for_writes,
        });
        D::observe_process_memory();
        // Before the list, and so before the fence in `cut`: see `is_empty` (model
        // `snapshot::released_snapshot`).
        self.count.fetch_add(1, Ordering::Relaxed);
        D::observe_process_memory();
        self.list.rcu(|list| list.iter().cloned().chain([entry.clone()]).collect::<Vec<_>>());
        entry
    }

    /// Takes a snapshot out of the list, if it is there.
    pub fn take_out(&self, entry: &Arc<Entry>) {
        let is_other = |other: &&Arc<Entry>| !Arc::ptr_eq(other, entry);
        let before =
            self.list.rcu(|list| list.iter().filter(is_other).cloned().collect::<Vec<_>>());
        if before.iter().any(|other| Arc::ptr_eq(other, entry)) {
            // Release: with the acquire load in `is_empty`.
            self.count.fetch_sub(1, Ordering::Release);
        }
    }

    /// Whether there seems to be no snapshot.
    pub fn seems_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Whether there is no snapshot, and each later one has a cut that is not below an LSN that was
    /// appended before this call.
    pub fn is_empty(&self) -> bool {
        // With the fence in `Entry::cut` (model `snapshot::one_commit`).
        fence(Ordering::SeqCst);
        // Acquire: with the release in `take_out`. A commit that finds no snapshot because one was
        // revoked writes after that; a reader that finds the write sees *revoked* (model
        // `snapshot::revoked`).
        self.count.load(Ordering::Acquire) == 0
    }

    /// The snapshots that do not see the commit `lsn`, and for which versions are kept, by rising
    /// cuts. The commit was appended before. Each later snapshot sees it.
    pub fn before<D: Domain>(
        &self,
        log: &Log<D>,
        guard: &Guard<'_, D>,
        lsn: u64,
    ) -> Vec<Arc<Entry>> {
        D::observe_process_memory();
        if self.is_empty() {
            return Vec::new();
        }
        D::observe_process_memory();
        let list = self.list.load();
        let kept = list.iter().filter(|entry| entry.keeps());
        let is_due = |entry: &&Arc<Entry>| entry.cut(log, guard) < lsn;
        let mut before: Vec<_> = kept.filter(is_due).cloned().collect();
        before.sort_by_key(|entry| entry.fixed_cut());
        before
    }

    /// All snapshots, with fixed cuts. Each later one has a cut that is not below an LSN that was
    /// appended before this call.
    pub fn all<D: Domain>(&self, log: &Log<D>, guard: &Guard<'_, D>) -> Arc<Vec<Arc<Entry>>> {
        D::observe_process_memory();
        if self.is_empty() {
            return Arc::default();
        }
        D::observe_process_memory();
        let list = self.list.load_full();
        for entry in list.iter() {
            entry.cut(log, guard);
        }
        list
    }

    /// Whether the snapshot is in the list.
    pub fn has(&self, entry: &Arc<Entry>) -> bool {
        self.list.load().iter().any(|other| Arc::ptr_eq(other, entry))
    }

    /// Revokes the oldest snapshot that holds tombstones; whether there was one.
    pub fn revoke_oldest(&self) -> bool {
        let list = self.list.load_full();
        let oldest = list.iter().find(|entry| entry.keeps() && entry.tombstones() > 0);
        oldest.inspect(|oldest| oldest.revoke()).is_some()
    }

    /// Those that are revoked or released.
    pub fn revoked(&self) -> Vec<Arc<Entry>> {
        self.list.load().iter().filter(|entry| entry.is_revoked()).cloned().collect()
    }

    /// Revokes the oldest snapshot while it is beyond a limit.
    pub fn keep_to_limits(&self) {
        let list = self.list.load_full();
        let live: Vec<_> = list.iter().filter(|entry| entry.keeps()).collect();
        let mut bytes: u64 = live.iter().map(|entry| entry.bytes()).sum();
        for oldest in live {
            let SnapshotLimits { max_age, max_bytes } = oldest.options.limits;
            if bytes <= max_bytes && oldest.begun.elapsed() <= max_age {
                break;
            }
            // Else another thread tells its holder. That must not last for ever.
            if oldest.state() == LIVE || bytes > max_bytes.saturating_mul(2) {
                oldest.revoke();
            }
            bytes -= bytes.min(oldest.bytes());
        }
    }

    /// The figures.
    pub fn stat(&self) -> SnapshotStat {
        let list = self.list.load();
        let live = || list.iter().filter(|entry| !entry.is_revoked());
        let oldest = live().next();
        SnapshotStat {
            count: live().count() as u64,
            kept_bytes: live().map(|entry| entry.bytes()).sum(),
            oldest_holder: oldest.map_or_else(String::new, |entry| entry.options.holder.clone()),
            oldest_age: oldest.map_or(Duration::ZERO, |entry| entry.begun.elapsed()),
        }
    }
}
