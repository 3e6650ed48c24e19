//! The transaction component: its log, its maps, and the versions of keys.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pando_index::{Limits, RangeIndex};
use pando_log::{Log, Record, Status};
use pando_pmem::{Domain, Guard, mutant};

use crate::error::{Error, Result};
use crate::record::{Commit, RECORD_BYTES_OF_WRITE, is_bare};
use crate::snapshots::Snapshots;
use crate::stamp::{LEAST_VALUE_BYTES, STAMP_BYTES, Stamp, Version};
use crate::tombstones::{Tombstone, Tombstones};

/// How often [`TransactionComponent::have_left`] looks whether threads have left.
const LOOKS: u32 = 1_000;
/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The maps of a transaction component.
pub trait Maps: Send + Sync {
    /// An index, lent for an operation.
    type Lent<'maps>: Deref<Target = dyn RangeIndex + 'maps>
    where
        Self: 'maps;

    /// Whether a record may be in a store alone ([`RangeIndex::is_only_stored`]).
    const MAY_BE_STORED: bool = false;

    /// The index of the map with this number; `None` if there is none. Numbers are never reused.
    /// Nothing but the transaction component writes to it. No call waits for another thread.
    fn map(&self, number: u64) -> Option<Self::Lent<'_>>;

    /// Whether the map was dropped, so that what a commit has written there need not be undone. A
    /// map that only cannot be opened is not.
    fn is_gone(&self, number: u64) -> bool {
        let _ = number;
        false
    }

    /// Refuses a commit that writes so many records with so many bytes of keys and values, if it
    /// might not be undone for lack of room.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyWrites`].
    fn check_size(&self, writes: usize, bytes: usize) -> Result<()> {
        let _ = (writes, bytes);
        Ok(())
    }

    /// Before a commit is appended, those before it are made durable if they have more bytes in the
    /// log's tail than this.
    fn most_tail_bytes(&self) -> u64 {
        u64::MAX
    }
}

/// Transactions over maps; see [the crate](crate). Any number of threads may use it at once.
#[derive(Debug)]
pub struct TransactionComponent<D: Domain, M> {
    log: Log<D>,
    maps: M,
    /// Whether a thread settles the tail. Only a hint: a thread that stops may leave it set.
    pub(crate) is_settling: AtomicBool,
    pub(crate) tombstones: Tombstones,
    pub(crate) snapshots: Snapshots,
    /// An LSN up to which each commit has ended, for a snapshot; perhaps above the sealed one.
    pub(crate) ended_lsn: AtomicU64,
    /// Whether a full pool has left something to undo. Only a hint.
    pub(crate) is_undo_due: AtomicBool,
    /// Whether no record is appended any more.
    is_read_only: AtomicBool,
}

/// The version of a key, as a thread has found it.
pub(crate) enum Found<'pool, D: Domain> {
    /// It is committed.
    Settled(Version),
    /// It belongs to a commit that is undecided, or has failed and is not undone yet; no bare one.
    InFlight(Unsettled<'pool, D>),
}

/// A commit that is undecided, or has failed, and whose version of a key was found.
pub(crate) struct Unsettled<'pool, D: Domain> {
    pub record: Record<'pool, D>,
    pub stamp: Stamp,
    pub status: Status,
    /// The index of the key's write.
    pub index: usize,
    /// The committed version, which the commit replaces.
    pub replaced: Version,
}

impl<D: Domain, M: Maps> TransactionComponent<D, M> {
    /// The component over `log` and `maps`, whose commits may not be settled yet.
    pub(crate) fn new(log: Log<D>, maps: M) -> Self {
        let tombstones = Tombstones::new(log.pool());
        let [is_settling, is_undo_due, is_read_only] = [false; 3].map(AtomicBool::new);
        let (snapshots, ended_lsn) = (Snapshots::new(), AtomicU64::new(0));
        Self { log, maps, is_settling, tombstones, snapshots, ended_lsn, is_undo_due, is_read_only }
    }

    /// From now on each commit that writes is refused with [`Error::ReadOnly`]. To be called before
    /// other threads have the component.
    pub fn refuse_writes(&self) {
        // Relaxed: the threads get the component later.
        self.is_read_only.store(true, Ordering::Relaxed);
    }

    /// Whether [`refuse_writes`](Self::refuse_writes) was called.
    pub fn is_read_only(&self) -> bool {
        // Relaxed: as above.
        self.is_read_only.load(Ordering::Relaxed)
    }

    /// The log of the commits.
    pub fn log(&self) -> &Log<D> {
        &self.log
    }

    /// The maps.
    pub fn maps(&self) -> &M {
        &self.maps
    }

    /// The value of `key`, which is committed; `None` if the key is absent. Waits for no thread.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownMap`], [`Error::NoRoomForStamp`], [`Error::Index`], [`Error::Damaged`].
    pub fn get(&self, map: u64, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let index = self.index(map)?;
        let mut value = None;
        self.read(&*index, map, key, &mut |found| value = Some(found.to_vec()))?;
        Ok(value)
    }

    /// The longest key and value of a map. A value has 16 bytes less than its index allows, for the
    /// stamp, and so few that a record of the log takes it twice, with its key.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownMap`], [`Error::NoRoomForStamp`].
    pub fn limits(&self, map: u64) -> Result<Limits> {
        let limits = self.index(map)?.limits();
        let of_record = (self.log.max_record_bytes() - RECORD_BYTES_OF_WRITE) / 2;
        let max_key_bytes = limits.max_key_bytes.min(of_record / 2);
        let of_record = of_record - max_key_bytes;
        let max_value_bytes = of_record.min(limits.max_value_bytes - STAMP_BYTES);
        Ok(Limits { max_key_bytes, max_value_bytes })
    }

    pub(crate) fn pin(&self) -> Result<Guard<'_, D>> {
        Ok(self.log.pool().pin().map_err(pando_log::Error::from)?)
    }

    /// The index of a map.
    pub(crate) fn index(&self, map: u64) -> Result<M::Lent<'_>> {
        let index = self.maps.map(map).ok_or(Error::UnknownMap { map })?;
        let max_value_bytes = index.limits().max_value_bytes;
        match max_value_bytes >= LEAST_VALUE_BYTES {
            true => Ok(index),
            false => Err(Error::NoRoomForStamp { map, max_value_bytes }),
        }
    }

    /// Whether the opening may have left a commit to undo ([`open`](Self::open)).
    pub fn is_undo_due(&self) -> bool {
        // Relaxed: a hint.
        self.is_undo_due.load(Ordering::Relaxed)
    }

    /// Waits a while for the threads that are inside a call of the component; whether all have left
    /// it. The caller holds no guard.
    ///
    /// # Errors
    ///
    /// [`Error::Log`].
    pub fn have_left(&self) -> Result<bool> {
        let epoch = self.pin()?.unlink_epoch();
        for _ in 0..LOOKS {
            if self.pin()?.is_ripe(epoch) {
                return Ok(true);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(false)
    }

    /// The LSN of the newest commit.
    ///
    /// # Errors
    ///
    /// [`Error::Log`].
    pub fn newest_lsn(&self) -> Result<u64> {
        Ok(self.log.newest_lsn(&self.pin()?))
    }

    /// The LSN up to which all commits are settled.
    pub(crate) fn settled_lsn(&self) -> Result<u64> {
        Ok(self.log.sealed_lsn(&self.pin()?))
    }

    /// The committed version of a key.
    pub(crate) fn version(&self, map: u64, key: &[u8]) -> Result<Version> {
        Ok(match self.find(&self.pin()?, map, key)? {
            Found::Settled(version) => version,
            Found::InFlight(unsettled) => unsettled.replaced,
        })
    }

    /// The committed version of a key whose value a scan has copied. `settled` is from before the
    /// scan, so no failed version counts as settled.
    pub(crate) fn version_of_copy(
        &self,
        map: u64,
        (key, value): (&[u8], &[u8]),
        settled: u64,
    ) -> Result<Version> {
        let what = "its value has no stamp";
        let damaged = || Error::Damaged { map, key: key.to_vec(), what };
        let (stamp, value) = Stamp::split(value).ok_or_else(damaged)?;
        // A snapshot may hold it, and notes it again when it is released.
        let is_due = stamp.lsn() <= settled
            && stamp.is_removed()
            && self.snapshots.seems_empty()
            && self.tombstones.may_share_passed();
        if is_due {
            self.tombstones.share(&self.pin()?, Tombstone::new((map, key), stamp));
        }
        match stamp.lsn() <= settled {
            true => Ok(Version { stamp, value: (!stamp.is_removed()).then(|| value.to_vec()) }),
            false => self.version(map, key),
        }
    }

    /// Lends the committed value of a key of the map, which is in `index`, to `visit`; whether
    /// there is one.
    pub(crate) fn read(
        &self,
        index: &dyn RangeIndex,
        map: u64,
        key: &[u8],
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        let guard = self.pin()?;
        // As in `find`.
        let settled = self.log.sealed_lsn(&guard);
        // Whether it has a value, if it is committed.
        let mut found = Some(false);
        index.read(key, &mut |value| {
            let split = Stamp::split(value);
            let committed =
                split.filter(|(stamp, _)| self.in_flight(&guard, *stamp, settled).is_none());
            found = committed.map(|(stamp, value)| {
                if !stamp.is_removed() {
                    visit(value);
                }
                !stamp.is_removed()
            });
        })?;
        match found {
            Some(is_present) => Ok(is_present),
            None => Ok(self.version(map, key)?.value.map(|value| visit(&value)).is_some()),
        }
    }

    /// The record and the status of the commit that has written a version with this stamp; `None`
    /// if the version is committed. `settled` is from before the version was read.
    pub(crate) fn in_flight<'pool>(
        &self,
        guard: &Guard<'pool, D>,
        stamp: Stamp,
        settled: u64,
    ) -> Option<(Record<'pool, D>, Status)> {
        let settled = match mutant!("tc-settled-read-late") {
            true => self.log.sealed_lsn(guard),
            false => settled,
        };
        if stamp.is_undone() || stamp.lsn() <= settled {
            return None;
        }
        let record = self.log.record(guard, stamp.record_off());
        let status = match mutant!("tc-undurable-decision") {
            true => record.status(),
            false => record.durable_status(),
        };
        let status = decide_found(record, status);
        (status != Status::Committed).then_some((record, status))
    }

    /// Finds the version of a key.
    pub(crate) fn find<'pool>(
        &self,
        guard: &Guard<'pool, D>,
        map: u64,
        key: &[u8],
    ) -> Result<Found<'pool, D>> {
        let damaged = |what| Error::Damaged { map, key: key.to_vec(), what };
        // Before the value: what was settled by now has no failed version any more.
        let settled = self.log.sealed_lsn(guard);
        let mut found = None;
        self.index(map)?.read(key, &mut |value| {
            let split = Stamp::split(value);
            found = Some(split.map(|(stamp, value)| (stamp, value.to_vec())));
        })?;
        let Some(found) = found else { return Ok(Found::Settled(Version::ABSENT)) };
        let (stamp, value) = found.ok_or_else(|| damaged("its value has no stamp"))?;
        let version = Version { stamp, value: (!stamp.is_removed()).then_some(value) };
        match self.in_flight(guard, stamp, settled) {
            None => Ok(Found::Settled(version)),
            Some(found) => Ok(Found::InFlight(self.unsettled((map, key), stamp, found)?)),
        }
    }

    /// The version of a key with this stamp; a commit with this record and status has written it.
    pub(crate) fn unsettled<'pool>(
        &self,
        (map, key): (u64, &[u8]),
        stamp: Stamp,
        (record, status): (Record<'pool, D>, Status),
    ) -> Result<Unsettled<'pool, D>> {
        let damaged = |what| Error::Damaged { map, key: key.to_vec(), what };
        let commit =
            Commit::decode(&record.payload()).ok_or_else(|| damaged("its commit is unreadable"))?;
        let index = commit.write_of(map, key);
        let index = index.ok_or_else(|| damaged("its commit has not written it"))?;
        let replaced = commit.writes[index].old.clone();
        if replaced.stamp == Stamp::UNRECORDED {
            return Err(damaged("its commit has failed, and has not recorded what it replaced"));
        }
        Ok(Unsettled { record, stamp, status, index, replaced })
    }
}

/// The commit of `record`, whose version was found, is committed if it is bare. Returns the status
/// of the record.
fn decide_found<D: Domain>(record: Record<'_, D>, status: Status) -> Status {
    if status != Status::Undecided || mutant!("tc-blind-left-undecided") {
        return status;
    }
    match is_bare(record) {
        true => record.decide(Status::Committed),
        false => status,
    }
}
