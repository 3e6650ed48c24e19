//! Snapshots: the transactional maps of a pool at one moment.

use std::sync::Arc;

use pando_index::KeyRange;

use crate::engine::{AnySnapshot, Stamped};
use crate::report::MapInfo;
use crate::scan::OwnedRecord;
use crate::shared::PoolShared;
use crate::{Error, Map, Pool, Scan};

/// How a snapshot is taken.
#[derive(Default)]
pub struct SnapshotOptions {
    holder: String,
    on_revoke: Option<pando_tc::OnRevoke>,
}

impl SnapshotOptions {
    /// The defaults: no name of a holder, and no callback.
    pub fn new() -> Self {
        Self::default()
    }

    /// The name of the holder, for [`Pool::stat`].
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = holder.into();
        self
    }

    /// Is called once, before the snapshot is revoked, by a thread that writes. That write waits
    /// for it; so it should be short, and must not use the pool. If it lasts long, the snapshot may
    /// be revoked meanwhile. A panic in it is caught.
    pub fn on_revoke(mut self, on_revoke: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_revoke = Some(Box::new(on_revoke));
        self
    }

    /// The same, for the layer below.
    pub(crate) fn of_pool(self, pool: &PoolShared) -> pando_tc::SnapshotOptions {
        let Self { holder, on_revoke } = self;
        pando_tc::SnapshotOptions { limits: pool.snapshot_limits, holder, on_revoke }
    }
}

impl std::fmt::Debug for SnapshotOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SnapshotOptions")
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}

/// The transactional maps of a pool as they were at one moment. Reads see exactly the commits up to
/// [`lsn`](Self::lsn): all of each, or nothing. Any number of threads may read it.
///
/// It waits for no writer, and no writer waits for it, except while a callback runs. There is no
/// copy of the data: a write that replaces a value for the first time since then keeps the old one
/// in process memory. If the key was removed, it stays in the map with 16 bytes. The values are
/// freed when the snapshot is dropped, and such keys by the commits that follow. Each snapshot that
/// lives makes a write take a little longer.
///
/// A write never fails because of a snapshot. Instead a snapshot is *revoked*, and its reads return
/// [`Error::SnapshotRevoked`]. Beyond a limit of
/// [`PoolOptions::snapshot_limits`](crate::PoolOptions::snapshot_limits) it is the oldest one, and
/// in a full pool the oldest one that holds room. A snapshot that a write cannot serve, because of
/// damage, is revoked too.
///
/// A map that was created later is empty in it. It ends with the process. It borrows the pool:
/// share it with scoped threads.
///
/// ```
/// use pando::{MapOptions, Pool, PoolOptions};
///
/// let pool = Pool::volatile(&PoolOptions::new())?;
/// let trees = pool.map_with("trees", &MapOptions::new().transactional(true))?;
/// trees.insert("ash", "1")?;
/// trees.insert("elm", "2")?;
/// let snapshot = pool.snapshot()?;
/// trees.upsert("ash", "3")?;
/// trees.remove("elm")?;
/// assert_eq!(snapshot.get(&trees, "ash")?, Some(b"1".to_vec()));
/// assert_eq!(snapshot.range(&trees, ..).count(), 2);
/// assert_eq!(trees.len()?, 1);
/// # Ok::<(), pando::Error>(())
/// ```
#[must_use = "a snapshot is for reads"]
pub struct Snapshot<'pool> {
    pool: &'pool Arc<PoolShared>,
    /// None if the pool had no transactional map: then all are empty.
    taken: Option<Box<dyn AnySnapshot + 'pool>>,
}

impl Pool {
    /// Takes a snapshot of the transactional maps. It sees each commit that has returned, and none
    /// that begins later.
    ///
    /// # Errors
    ///
    /// [`Error::OpenForSalvage`], [`Error::TooManyThreads`]. It takes commits in flight to their
    /// end; so also [`Error::PoolFull`], [`Error::FileSystemFull`], [`Error::FileTooLarge`] and
    /// [`Error::SnapshotRevoked`] in a full pool.
    pub fn snapshot(&self) -> Result<Snapshot<'_>, Error> {
        self.snapshot_with(SnapshotOptions::new())
    }

    /// As [`snapshot`](Self::snapshot), with options.
    ///
    /// # Errors
    ///
    /// As [`snapshot`](Self::snapshot).
    pub fn snapshot_with(&self, options: SnapshotOptions) -> Result<Snapshot<'_>, Error> {
        self.check_not_salvaged()?;
        let pool = self.shared();
        Ok(Snapshot { pool, taken: pool.engine.snapshot(options.of_pool(pool))? })
    }
}

impl Snapshot<'_> {
    /// The LSN of the newest commit that it sees; 0 if there is none. In a pool with a log, its
    /// records are durable when [`Pool::durable_lsn`] has reached this LSN ([`Pool::sync_to`]).
    pub fn lsn(&self) -> u64 {
        self.taken.as_ref().map_or(0, |taken| taken.lsn())
    }

    /// The map below, which is one of this pool.
    fn at<'map>(&self, map: &'map Map) -> Result<&'map Stamped, Error> {
        let refused = || Error::NotTransactional { name: map.name().to_owned() };
        let stamped = map.stamped().ok_or_else(refused)?;
        match Arc::ptr_eq(map.pool(), self.pool) {
            true => Ok(stamped),
            false => Err(Error::MapOfOtherPool { name: map.name().to_owned() }),
        }
    }

    /// The value that `key` had; `None` if the key was absent.
    ///
    /// # Errors
    ///
    /// [`Error::SnapshotRevoked`], [`Error::NotTransactional`], [`Error::MapOfOtherPool`],
    /// [`Error::KeyTooLong`], [`Error::TooManyThreads`].
    pub fn get(&self, map: &Map, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let number = self.at(map)?.number;
        let Some(taken) = &self.taken else { return Ok(None) };
        let named = |_| map.name().to_owned();
        taken.get(number, key.as_ref()).map_err(|error| Error::of_transaction(error, named))
    }

    /// Whether `key` was present.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn contains_key(&self, map: &Map, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.get(map, key)?.is_some())
    }

    /// The record that had the smallest key; `None` if there was no record.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn first(&self, map: &Map) -> Result<Option<OwnedRecord>, Error> {
        self.range(map, ..).expecting(1).next().transpose()
    }

    /// The record that had the largest key; `None` if there was no record.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn last(&self, map: &Map) -> Result<Option<OwnedRecord>, Error> {
        self.range(map, ..).expecting(1).next_back().transpose()
    }

    /// The records of `range` as they were, from the front or from the back; otherwise as
    /// [`Map::range`].
    ///
    /// # Errors
    ///
    /// The scan returns them in place of a record, and then ends: those of [`get`](Self::get).
    pub fn range(&self, map: &Map, range: impl Into<KeyRange>) -> Scan<'_> {
        let shared = map.shared().clone();
        match self.at(map) {
            Ok(_) => Scan::of_snapshot(shared, self.taken.as_deref(), range.into()),
            Err(error) => Scan::refused(shared, error),
        }
    }

    /// Lends each record of all transactional maps to `visit`, as it was: the name of its map, its
    /// key and its value. Map by map, and in the order of the keys; the number of records. Writers
    /// go on meanwhile, and no copy is made.
    ///
    /// The names are those of now, and a map that was dropped since is left out. Until the end of
    /// the call each map is open, so none of them can be dropped.
    ///
    /// # Errors
    ///
    /// Those of `visit`, which end the dump, and those of [`get`](Self::get). Also
    /// [`Error::Damaged`] if a map, or the list of maps, cannot be read;
    /// [`Error::UnknownIndex`] and [`Error::OpenForSalvage`].
    ///
    /// ```
    /// use pando::{Error, MapOptions, Pool, PoolOptions};
    ///
    /// let pool = Pool::volatile(&PoolOptions::new())?;
    /// let trees = pool.map_with("trees", &MapOptions::new().transactional(true))?;
    /// trees.insert("ash", "1")?;
    /// let snapshot = pool.snapshot()?;
    /// trees.insert("elm", "2")?;
    /// let mut lines = Vec::new();
    /// let records = snapshot.dump(|map, key, value| {
    ///     lines.push(format!("{map} {} {}", key.escape_ascii(), value.escape_ascii()));
    ///     Ok::<(), Error>(())
    /// })?;
    /// assert_eq!((records, lines), (1, vec!["trees ash 1".to_owned()]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn dump<E: From<Error>>(
        &self,
        mut visit: impl FnMut(&str, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut records = 0;
        for map in self.all_maps()? {
            for record in self.range(&map, ..) {
                let (key, value) = record?;
                visit(map.name(), &key, &value)?;
                records += 1;
            }
        }
        Ok(records)
    }

    /// All transactional maps, by name.
    fn all_maps(&self) -> Result<Vec<Map>, Error> {
        let pool = Pool::of_shared(self.pool.clone());
        pool.check_not_salvaged()?;
        // Until all are open, no map is created, renamed or dropped.
        let mut open_maps = self.pool.open_maps();
        let listed = pool.maps()?;
        let of_damaged = |map: &MapInfo| {
            let found = map.damage.as_ref()?;
            Some(format!("the map in slot {} cannot be read: {found}; drop it first", map.slot))
        };
        if let Some(what) = listed.iter().find_map(of_damaged) {
            return Err(Error::Damaged(what.into()));
        }
        // Of a store. A map whose pages are damaged too is not even listed by its number.
        if let Some(damage) = self.pool.engine.map_list_damage()?.first() {
            let what = format!(
                "a part of the list of maps cannot be read, so maps may be missing: {damage}"
            );
            return Err(Error::Damaged(what.into()));
        }
        let listed = listed.iter().filter(|map| map.is_transactional);
        listed.map(|map| pool.open_known_map(&mut open_maps, &map.name)).collect()
    }

    /// The records whose keys begin with `prefix` as they were; see [`range`](Self::range).
    pub fn prefix(&self, map: &Map, prefix: impl AsRef<[u8]>) -> Scan<'_> {
        self.range(map, KeyRange::prefix(prefix.as_ref()))
    }
}

impl std::fmt::Debug for Snapshot<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Snapshot").field("lsn", &self.lsn()).finish_non_exhaustive()
    }
}
