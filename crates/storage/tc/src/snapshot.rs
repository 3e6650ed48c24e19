//! Snapshots: reads of all maps as they were at one moment, while writers go on.
//!
//! # Protocol
//!
//! A snapshot sees exactly the commits up to an LSN, its *cut*. Most keys still have their version
//! of that time. A commit that replaces such a version first keeps it for the snapshot.
//!
//! | step | deciding word | helper | a thread that stops leaves |
//! | --- | --- | --- | --- |
//! | register: the cut is open | the list | none is needed | a snapshot, until a limit revokes it |
//! | fix the cut: the newest LSN | `cut` | each commit that finds it open | the same |
//! | settle: take each commit up to the cut to its end | as for the commit | each commit behind the cut | the same |
//! | use | | | the same |
//! | release | the list | none is needed | the same |
//!
//! A kill leaves nothing: a snapshot is process memory.
//!
//! A commit, once it is appended and before its first write, does for each snapshot with a lower
//! cut, and so does each thread that helps it:
//!
//! 1. It settles the commits up to the cut, unless that is done.
//! 2. It keeps each value that it will replace, if that has a stamp up to the cut.
//!
//! # Why a snapshot shows one moment
//!
//! *A commit that finds no snapshot needs to keep no version.* It looks after it was appended. A
//! snapshot that it does not find fixes its cut later, and so not below its LSN.
//!
//! *No commit behind the cut comes before one that the snapshot sees.* It reads and replaces
//! versions that were decided before it was appended. If it has read what a commit up to the cut
//! replaces, that one has ended before this one validates (step 1), so this one fails. A
//! transaction without writes that reads a version from behind the cut validates later still.
//!
//! *A value that is kept is the key's value at the cut.* The thread looks at the key after step 1:
//! no commit up to the cut will change it any more. If the key has the version that the record
//! says, and its stamp is not behind the cut, then that was the version at the cut. If it has
//! another one, the record's install cannot succeed any more, and nothing is kept.
//!
//! *A value that is needed is kept.* The first write behind the cut to a key, be it an install, an
//! undo, or the replacement of a version that is taken back, comes after step 2 of its thread.
//! Later ones find a stamp that is behind the cut.
//!
//! So a read looks at the key first. A stamp up to the cut is that of the version at the cut. Else
//! the value is among those that are kept, or the key was absent. A key whose value is kept keeps
//! its tombstone too, if it was removed, while the snapshot lives; so a scan of the map finds all
//! keys.
//!
//! # Revoking
//!
//! A snapshot is revoked if it is beyond a limit, if the pool is full, or if a commit behind its
//! cut cannot settle those before: no version is kept for it from then on. A read checks for this
//! last. If it has found a write whose old value was not kept, it sees that too, and returns an
//! error.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use pando_index::{Cursor, KeyRange, Order, RangeIndex, Record};
use pando_pmem::{Domain, Guard, mutant};

use crate::component::{Maps, TransactionComponent};
use crate::error::{Error, Result};
use crate::kept::{Kept, Place, Walk};
use crate::record::Commit;
use crate::snapshots::{Entry, SnapshotOptions, SnapshotStat};
use crate::stamp::Stamp;

/// All maps at one moment. It holds up no one. Dropped, it is released.
pub struct Snapshot<'component, D: Domain, M: Maps> {
    component: &'component TransactionComponent<D, M>,
    entry: Arc<Entry>,
}

impl<D: Domain, M: Maps> TransactionComponent<D, M> {
    /// Takes a snapshot. It sees each commit that has returned, and none that begins later.
    ///
    /// # Errors
    ///
    /// Those of commits in flight that it has to take to their end: [`Error::Log`],
    /// [`Error::Index`] if the pool is full, [`Error::Damaged`]. [`Error::SnapshotRevoked`] if a
    /// full pool has left no room for it meanwhile.
    pub fn snapshot(&self, options: SnapshotOptions) -> Result<Snapshot<'_, D, M>> {
        self.take_snapshot(options, false)
    }

    /// The same. `is_for_writes`: a transaction writes what it has read there.
    pub(crate) fn take_snapshot(
        &self,
        options: SnapshotOptions,
        is_for_writes: bool,
    ) -> Result<Snapshot<'_, D, M>> {
        let snapshot = self.register(options, is_for_writes)?;
        let cut = snapshot.entry.cut(self.log(), &self.pin()?);
        if !mutant!("tc-snapshot-before-settling") {
            self.settle_up_to(cut)?;
        }
        // By a commit that could not settle them.
        snapshot.check_live()?;
        Ok(snapshot)
    }

    fn register(
        &self,
        options: SnapshotOptions,
        is_for_writes: bool,
    ) -> Result<Snapshot<'_, D, M>> {
        let early = mutant!("tc-cut-before-registration").then(|| self.newest_lsn());
        if early.is_some() {
            std::thread::yield_now();
        }
        let entry = self.snapshots.register::<D>(options, is_for_writes);
        early.map_or(Ok(0), |early| early.map(|early| entry.fix(early)))?;
        Ok(Snapshot { component: self, entry })
    }

    /// The figures of the snapshots that live.
    pub fn snapshot_stat(&self) -> SnapshotStat {
        self.snapshots.stat()
    }

    /// Keeps the values that the commit with this stamp will replace, for the snapshots that do not
    /// see the commit.
    pub(crate) fn keep_versions(&self, guard: &Guard<'_, D>, stamp: Stamp, commit: &Commit) {
        let snapshots = self.snapshots.before(self.log(), guard, stamp.lsn());
        if snapshots.is_empty() {
            return;
        }
        for entry in &snapshots {
            let settles = !mutant!("tc-commit-before-settling");
            if settles && self.settle_within(guard, entry.fixed_cut()).is_err() {
                // A write does not fail for a snapshot. Its holder finds it revoked before it can
                // find this write.
                entry.revoke();
            }
        }
        for write in &commit.writes {
            let Some(value) = &write.old.value else { continue };
            let lacks = |entry: &&Arc<Entry>| {
                D::observe_process_memory();
                let is_due = write.old.stamp.lsn() <= entry.fixed_cut();
                is_due && entry.keeps()
            };
            let mut lacking = snapshots.iter().filter(lacks).peekable();
            if lacking.peek().is_none() {
                continue;
            }
            match self.has_version(write.map, &write.key, write.old.stamp) {
                // The commit will fail.
                Err(Error::UnknownMap { .. }) if self.maps().is_gone(write.map) => {}
                Ok(true) => {
                    let kept = Kept::new(Place::new(write.map, &write.key), value);
                    lacking.for_each(|entry| {
                        D::observe_process_memory();
                        entry.keep(&kept);
                    });
                }
                Ok(false) => {}
                Err(_) => lacking.for_each(|entry| entry.revoke()),
            }
        }
    }

    /// Whether the commit `lsn` has nothing to do for snapshots before it replaces a value with the
    /// stamp `replaced`, or none: then [`keep_versions`](Self::keep_versions) would do nothing.
    pub(crate) fn is_free_to_replace(
        &self,
        guard: &Guard<'_, D>,
        lsn: u64,
        replaced: Option<Stamp>,
    ) -> bool {
        let snapshots = self.snapshots.before(self.log(), guard, lsn);
        snapshots.iter().all(|entry| {
            let cut = entry.fixed_cut();
            self.ended_lsn() >= cut && replaced.is_none_or(|stamp| stamp.lsn() > cut)
        })
    }

    /// Whether the version with this stamp still is in the map.
    fn has_version(&self, map: u64, key: &[u8], stamp: Stamp) -> Result<bool> {
        let mut is_there = mutant!("tc-kept-unseen");
        self.index(map)?.read(key, &mut |value| {
            is_there |= Stamp::split(value).is_some_and(|(found, _)| found == stamp);
        })?;
        Ok(is_there && !mutant!("tc-version-not-kept"))
    }
}

/// A value of a key at a cut.
enum At<'value> {
    Value(&'value [u8]),
    Absent,
    /// It was replaced since.
    Replaced,
}

impl<D: Domain, M: Maps> Snapshot<'_, D, M> {
    /// The LSN up to which it sees the commits.
    pub fn lsn(&self) -> u64 {
        self.entry.fixed_cut()
    }

    /// The value of `key`; `None` if the key was absent.
    ///
    /// # Errors
    ///
    /// [`Error::SnapshotRevoked`], [`Error::UnknownMap`] if the map is dropped,
    /// [`Error::NoRoomForStamp`], [`Error::Index`], [`Error::Damaged`].
    pub fn get(&self, map: u64, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let index = self.component.index(map)?;
        let mut value = None;
        let mut found = Ok(true);
        index.read(key, &mut |bytes| {
            found = self.at(map, key, bytes).map(|at| {
                value = match at {
                    At::Value(bytes) => Some(bytes.to_vec()),
                    At::Absent | At::Replaced => None,
                };
                !matches!(at, At::Replaced)
            });
        })?;
        if !found? {
            D::observe_process_memory();
            let mut kept = Vec::new();
            let is_kept = self.entry.versions.read(Place::new(map, key), &mut kept);
            value = is_kept.then_some(kept);
        }
        self.check_live()?;
        Ok(value)
    }

    /// The records of a range, in `order`. `index` is that of the map.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), also while it is read.
    pub fn scan<'index>(
        &'index self,
        map: u64,
        index: &'index dyn RangeIndex,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>> {
        let cursor = index.scan(range, order)?;
        let (key, value) = Default::default();
        Ok(Box::new(Scan { snapshot: self, map, order, cursor, walk: None, key, value }))
    }

    /// The value of the key at the cut, as far as its value in the map tells.
    fn at<'value>(&self, map: u64, key: &[u8], value: &'value [u8]) -> Result<At<'value>> {
        let what = "its value has no stamp";
        let damaged = || Error::Damaged { map, key: key.to_vec(), what };
        let (stamp, value) = Stamp::split(value).ok_or_else(damaged)?;
        // All commits up to the cut have ended, so a stamp up to it is not one that has failed.
        Ok(match stamp.lsn() <= self.lsn() {
            true if stamp.is_removed() => At::Absent,
            true => At::Value(value),
            false => At::Replaced,
        })
    }

    /// Its holder reads no more; see `Entry`.
    ///
    /// # Errors
    ///
    /// [`Error::SnapshotRevoked`].
    pub(crate) fn end_reads(&self) -> Result<()> {
        self.entry.end_reads().then_some(()).ok_or(Error::SnapshotRevoked)
    }

    fn check_live(&self) -> Result<()> {
        D::observe_process_memory();
        // Acquire: with the release of the write that was found just before. A thread that made it
        // without keeping the old value had seen the snapshot revoked. So had a thread that has
        // freed a value that was not found: the lookup orders nothing (model `snapshot::revoked`).
        fence(Ordering::Acquire);
        match self.entry.is_revoked() {
            true => Err(Error::SnapshotRevoked),
            false => Ok(()),
        }
    }
}

impl<D: Domain, M: Maps> Drop for Snapshot<'_, D, M> {
    fn drop(&mut self) {
        self.component.release(&self.entry);
    }
}

impl<D: Domain, M: Maps> std::fmt::Debug for Snapshot<'_, D, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("entry", &self.entry).finish_non_exhaustive()
    }
}

/// A scan of a map at the cut of a snapshot.
struct Scan<'index, D: Domain, M: Maps> {
    snapshot: &'index Snapshot<'index, D, M>,
    map: u64,
    order: Order,
    cursor: Box<dyn Cursor + 'index>,
    /// From the first key on that was replaced.
    walk: Option<Walk<'index>>,
    /// The record that is lent.
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<D: Domain, M: Maps> Cursor for Scan<'_, D, M> {
    fn expect(&mut self, records: usize) {
        self.cursor.expect(records);
    }

    fn next(&mut self) -> pando_index::Result<Option<Record<'_>>> {
        let refused = |error: Error| pando_index::Error::storage(error);
        while let Some((key, value)) = self.cursor.next()? {
            self.value.clear();
            match self.snapshot.at(self.map, key, value).map_err(refused)? {
                At::Value(value) => self.value.extend_from_slice(value),
                At::Absent => continue,
                At::Replaced => {
                    let place = Place::new(self.map, key);
                    let (versions, order) = (&self.snapshot.entry.versions, self.order);
                    D::observe_process_memory();
                    let walk = self.walk.get_or_insert_with(|| versions.walk(place, order));
                    if !walk.read(place, &mut self.value) {
                        continue;
                    }
                }
            }
            self.snapshot.check_live().map_err(refused)?;
            self.key.clear();
            self.key.extend_from_slice(key);
            return Ok(Some((&self.key, &self.value)));
        }
        self.snapshot.check_live().map_err(refused)?;
        Ok(None)
    }
}
