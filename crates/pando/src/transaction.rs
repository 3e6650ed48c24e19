//! Transactions over several keys and maps of a pool.

use std::sync::Arc;

use pando_index::{KeyRange, Order};
use pando_tc::until_committed;

use crate::engine::{AnyRange, AnyTransaction};
use crate::scan::OwnedRecord;
use crate::shared::PoolShared;
use crate::snapshot::SnapshotOptions;
use crate::{Acknowledge, Error, Map, Pool};

/// The isolation of a transaction: which writes of others it sees, and with which it conflicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Such transactions, if they have committed, are as if each had taken place alone, one after
    /// the other. One conflicts with another one that changes what it has read.
    #[default]
    Serializable,
    /// The transaction reads a [`Snapshot`](crate::Snapshot) of its beginning; in a pool without
    /// transactional maps, of its first read or write. So its reads are of one moment, and never
    /// conflict. It conflicts with a transaction that wrote one of the same keys after the
    /// snapshot, or has tried to. Write skew is possible: it and another transaction may each read
    /// keys that the other writes. So use it where no rule spans keys that different transactions
    /// write.
    Snapshot,
}

/// The result of a transaction that has committed ([`Pool::transaction_with_lsn`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed<R> {
    /// The result of the body, in the run that has committed.
    pub value: R,
    /// The log sequence number (LSN), as [`Transaction::commit`] returns it.
    pub lsn: u64,
}

/// A transaction: reads and writes of several keys, in one or several transactional maps of a pool
/// ([`MapOptions::transactional`](crate::MapOptions::transactional)). All of its writes take place
/// at one instant, or none does: for other threads, and after the death of the process.
///
/// No one else sees a write before [`commit`](Self::commit). A read sees what is committed at that
/// time, and the transaction's own writes. So two reads may be of different instants; then the
/// commit fails. Transactions that have committed are serializable: they are as if each had taken
/// place alone, one after the other ([`Isolation`] has the other choice). A write of one key by
/// [`Map`] counts as a transaction, and a read too.
///
/// A transaction that is dropped has done nothing. It holds up no other one, however long it lasts.
///
/// # Limits
///
/// What it has read and written is in process memory until the commit. Then it is one record of at
/// most 16 MiB: each key that was written, with its old and its new value; each key that was read;
/// 16 bytes for each record that was scanned.
#[must_use = "a transaction does nothing until it is committed"]
pub struct Transaction<'pool> {
    pool: &'pool Arc<PoolShared>,
    isolation: Isolation,
    /// None before it reads or writes anything, unless it reads a snapshot.
    begun: Option<Box<dyn AnyTransaction + 'pool>>,
    /// The maps that it has used, which are not dropped meanwhile.
    maps: Vec<Map>,
    acknowledge: Acknowledge,
}

impl Pool {
    /// Runs `body` in a transaction, commits it, and returns the result of `body`. If it conflicts
    /// with another transaction, `body` runs again, up to 1,024 times: it should do nothing else
    /// that counts. If `body` returns an error, nothing has taken place.
    /// [`transaction_with_lsn`](Self::transaction_with_lsn) also returns the LSN of the commit.
    ///
    /// On return the writes are as durable as after [`Transaction::commit`].
    ///
    /// # Errors
    ///
    /// Those of `body`; [`Error::Conflict`] after the last time; otherwise as
    /// [`Transaction::commit`].
    ///
    /// ```
    /// use pando::{Error, MapOptions, Pool, PoolOptions};
    ///
    /// let pool = Pool::volatile(&PoolOptions::new())?;
    /// let accounts = pool.map_with("accounts", &MapOptions::new().transactional(true))?;
    /// accounts.insert(b"ash", &[70])?;
    /// accounts.insert(b"elm", &[5])?;
    /// let left = pool.transaction(|tx| {
    ///     let ash = tx.get(&accounts, b"ash")?.map_or(0, |value| value[0]);
    ///     let elm = tx.get(&accounts, b"elm")?.map_or(0, |value| value[0]);
    ///     tx.put(&accounts, b"ash", &[ash - 10])?;
    ///     tx.put(&accounts, b"elm", &[elm + 10])?;
    ///     Ok::<_, Error>(ash - 10)
    /// })?;
    /// assert_eq!(left, 60);
    /// assert_eq!(accounts.get(b"elm")?, Some(vec![15]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn transaction<R, E: From<Error>>(
        &self,
        body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.transaction_with(Isolation::Serializable, body)
    }

    /// As [`transaction`](Self::transaction), with an isolation.
    ///
    /// # Errors
    ///
    /// As [`transaction`](Self::transaction); with [`Isolation::Snapshot`] also
    /// [`Error::SnapshotRevoked`], after which `body` does not run again.
    pub fn transaction_with<R, E: From<Error>>(
        &self,
        isolation: Isolation,
        body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.transaction_with_lsn(isolation, body).map(|committed| committed.value)
    }

    /// As [`transaction_with`](Self::transaction_with); also returns the LSN of the commit, as
    /// [`Transaction::commit`] does. So a program may go on with buffered commits, and reply to its
    /// clients when [`durable_lsn`](Self::durable_lsn) has reached the LSN, or after
    /// [`sync_to`](Self::sync_to).
    ///
    /// On return the writes are as durable as those of [`transaction`](Self::transaction): of a
    /// buffered commit a power cut may still undo them.
    ///
    /// # Errors
    ///
    /// As [`transaction_with`](Self::transaction_with).
    ///
    /// ```
    /// use pando::{Committed, Error, Isolation, MapOptions, Pool, PoolOptions};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = |name| folder.path().join(name);
    /// let options = PoolOptions::new().log(path("grove.log"));
    /// let pool = Pool::create(path("grove.pool"), &options)?;
    /// let visits = pool.map_with("visits", &MapOptions::new().transactional(true))?;
    /// let count = |tx: &mut pando::Transaction<'_>| {
    ///     let count = tx.get(&visits, "ash")?.map_or(0, |value| value[0]) + 1;
    ///     tx.put(&visits, "ash", [count])?;
    ///     Ok::<_, Error>(count)
    /// };
    /// let Committed { value, lsn } = pool.transaction_with_lsn(Isolation::Serializable, count)?;
    /// assert_eq!(value, 1);
    /// pool.sync_to(lsn)?;
    /// assert!(pool.durable_lsn()? >= lsn); // From here on a power cut does not undo it.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transaction_with_lsn<R, E: From<Error>>(
        &self,
        isolation: Isolation,
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<Committed<R>, E> {
        until_committed(|| {
            let mut transaction = self.begin_with(isolation)?;
            let value = body(&mut transaction)?;
            match transaction.commit() {
                Ok(lsn) => Ok(Ok(Committed { value, lsn })),
                Err(conflict @ Error::Conflict { .. }) => Ok(Err(conflict)),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Begins a transaction, for a caller that runs it again by itself after a conflict; otherwise
    /// [`transaction`](Self::transaction) is simpler.
    ///
    /// # Errors
    ///
    /// [`Error::OpenForSalvage`].
    ///
    /// ```
    /// use pando::{Error, MapOptions, Pool, PoolOptions};
    ///
    /// let pool = Pool::volatile(&PoolOptions::new())?;
    /// let map = pool.map_with("trees", &MapOptions::new().transactional(true))?;
    /// let mut transaction = pool.begin()?;
    /// assert_eq!(transaction.get(&map, b"ash")?, None);
    /// transaction.put(&map, b"elm", b"1")?;
    /// map.insert(b"ash", b"2")?;
    /// match transaction.commit() {
    ///     Err(Error::Conflict { map, key }) => assert_eq!((map.as_str(), &*key), ("trees", &b"ash"[..])),
    ///     _ => unreachable!(),
    /// }
    /// assert_eq!(map.get(b"elm")?, None);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn begin(&self) -> Result<Transaction<'_>, Error> {
        self.begin_with(Isolation::Serializable)
    }

    /// As [`begin`](Self::begin), with an isolation.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin), and with [`Isolation::Snapshot`] as [`snapshot`](Self::snapshot).
    ///
    /// ```
    /// use pando::{Isolation, MapOptions, Pool, PoolOptions};
    ///
    /// let pool = Pool::volatile(&PoolOptions::new())?;
    /// let map = pool.map_with("trees", &MapOptions::new().transactional(true))?;
    /// let mut transaction = pool.begin_with(Isolation::Snapshot)?;
    /// map.insert(b"ash", b"1")?;
    /// assert_eq!(transaction.get(&map, b"ash")?, None);
    /// transaction.put(&map, b"elm", b"2")?;
    /// transaction.commit()?;
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn begin_with(&self, isolation: Isolation) -> Result<Transaction<'_>, Error> {
        self.check_not_salvaged()?;
        let pool = self.shared();
        let begun = match isolation {
            Isolation::Serializable => None,
            Isolation::Snapshot => pool.engine.begin(Some(of_transaction(pool)))?,
        };
        let (maps, acknowledge) = (Vec::new(), pool.acknowledge);
        Ok(Transaction { pool, isolation, begun, maps, acknowledge })
    }
}

impl Transaction<'_> {
    /// The transaction below, and the number of `map`.
    fn at(&mut self, map: &Map) -> Result<(&mut (dyn AnyTransaction + '_), u64), Error> {
        let refused = || Error::NotTransactional { name: map.name().to_owned() };
        let number = map.number().ok_or_else(refused)?;
        if !Arc::ptr_eq(map.pool(), self.pool) {
            return Err(Error::MapOfOtherPool { name: map.name().to_owned() });
        }
        if !self.maps.iter().any(|other| other.number() == Some(number)) {
            self.maps.push(map.clone());
        }
        if self.begun.is_none() {
            // The pool has a transactional map: this one. If it had none at the beginning, a
            // snapshot is taken now, of the first commits.
            let is_over_snapshot = self.isolation == Isolation::Snapshot;
            let snapshot = is_over_snapshot.then(|| of_transaction(self.pool));
            self.begun = self.pool.engine.begin(snapshot)?;
        }
        let begun = self.begun.as_deref_mut().ok_or_else(refused)?;
        Ok((begun, number))
    }

    fn named<T>(&self, result: pando_tc::Result<T>) -> Result<T, Error> {
        result.map_err(|error| named(error, &self.maps))
    }

    /// The value of `key`, as the transaction sees it; `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// [`Error::NotTransactional`], [`Error::MapOfOtherPool`], [`Error::TooManyThreads`]; with
    /// [`Isolation::Snapshot`] also [`Error::SnapshotRevoked`].
    pub fn get(&mut self, map: &Map, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let (begun, number) = self.at(map)?;
        let got = begun.get(number, key.as_ref());
        self.named(got)
    }

    /// Gives `key` this value.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`] and [`Error::ValueTooLong`] beyond the map's
    /// [`limits`](Map::limits); otherwise as [`get`](Self::get).
    pub fn put(
        &mut self,
        map: &Map,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        let (begun, number) = self.at(map)?;
        let put = begun.put(number, key.as_ref(), value.as_ref());
        self.named(put)
    }

    /// Removes `key`, if it is present.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`]; otherwise as [`get`](Self::get).
    pub fn remove(&mut self, map: &Map, key: impl AsRef<[u8]>) -> Result<(), Error> {
        let (begun, number) = self.at(map)?;
        let removed = begun.remove(number, key.as_ref());
        self.named(removed)
    }

    /// Whether `key` is present, as the transaction sees it.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn contains_key(&mut self, map: &Map, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.get(map, key)?.is_some())
    }

    /// Gives `key` this value, and returns the value that it replaces, or `None` if the key was
    /// absent.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn swap(
        &mut self,
        map: &Map,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let old = self.get(map, key.as_ref())?;
        self.put(map, key, value)?;
        Ok(old)
    }

    /// Removes `key` and returns its value, or `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub fn take(&mut self, map: &Map, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let old = self.get(map, key.as_ref())?;
        if old.is_some() {
            self.remove(map, key)?;
        }
        Ok(old)
    }

    /// The record with the smallest key, as the transaction sees it; `None` if there is no record.
    /// A serializable transaction conflicts with others that insert a smaller key, or change this
    /// record.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn first(&mut self, map: &Map) -> Result<Option<OwnedRecord>, Error> {
        self.range(map, ..).expecting(1).next().transpose()
    }

    /// The record with the largest key; otherwise as [`first`](Self::first).
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn last(&mut self, map: &Map) -> Result<Option<OwnedRecord>, Error> {
        self.range(map, ..).expecting(1).next_back().transpose()
    }

    /// Removes the record with the smallest key and returns it, or returns `None` if there is no
    /// record. If the transaction commits, no other record was first at that instant: unlike
    /// [`Map::pop_first`], the choice and the removal are one step. With
    /// [`Isolation::Snapshot`] the record is the first one of the snapshot.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    ///
    /// ```
    /// use pando::{MapOptions, Pool, PoolOptions};
    ///
    /// let pool = Pool::volatile(&PoolOptions::new())?;
    /// let queue = pool.map_with("queue", &MapOptions::new().transactional(true))?;
    /// queue.insert("1", "first")?;
    /// queue.insert("2", "second")?;
    /// let first = pool.transaction(|tx| tx.pop_first(&queue))?;
    /// assert_eq!(first, Some((b"1".to_vec(), b"first".to_vec())));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn pop_first(&mut self, map: &Map) -> Result<Option<OwnedRecord>, Error> {
        let first = self.first(map)?;
        first.iter().try_for_each(|(key, _)| self.remove(map, key))?;
        Ok(first)
    }

    /// Removes the record with the largest key and returns it; otherwise as
    /// [`pop_first`](Self::pop_first).
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn pop_last(&mut self, map: &Map) -> Result<Option<OwnedRecord>, Error> {
        let last = self.last(map)?;
        last.iter().try_for_each(|(key, _)| self.remove(map, key))?;
        Ok(last)
    }

    /// The records of `range`, as the transaction sees them, from the front or from the back;
    /// otherwise as [`Map::range`]. A serializable transaction conflicts with others that change
    /// the part that the scan has returned, or insert into it.
    ///
    /// The scan borrows the transaction: to write the keys that it returns, collect them first.
    ///
    /// # Errors
    ///
    /// The scan returns them in place of a record, and then ends: those of [`get`](Self::get).
    ///
    /// ```
    /// use pando::{Error, MapOptions, Pool, PoolOptions};
    ///
    /// let pool = Pool::volatile(&PoolOptions::new())?;
    /// let map = pool.map_with("queue", &MapOptions::new().transactional(true))?;
    /// for key in ["1", "2", "3"] {
    ///     map.insert(key, "")?;
    /// }
    /// pool.transaction(|tx| {
    ///     let last: Vec<_> = tx.range(&map, "1"..).rev().take(2).collect::<Result<_, Error>>()?;
    ///     last.iter().try_for_each(|(key, _)| tx.remove(&map, key))
    /// })?;
    /// assert_eq!(map.len()?, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn range(&mut self, map: &Map, range: impl Into<KeyRange>) -> TransactionScan<'_> {
        let name = map.name().to_owned();
        let scan = self.at(map).map(|(begun, number)| begun.range(number, range.into()));
        TransactionScan { scan: Some(scan), name }
    }

    /// The records whose keys begin with `prefix`; see [`range`](Self::range).
    pub fn prefix(&mut self, map: &Map, prefix: impl AsRef<[u8]>) -> TransactionScan<'_> {
        self.range(map, KeyRange::prefix(prefix.as_ref()))
    }

    /// Sets when [`commit`](Self::commit) returns, in the place of
    /// [`PoolOptions::acknowledge`](crate::PoolOptions::acknowledge). For a pool with a log.
    pub fn acknowledge(&mut self, acknowledge: Acknowledge) {
        self.acknowledge = acknowledge;
    }

    /// Commits the transaction. Returns its log sequence number (LSN). A later commit of a key has
    /// the higher LSN, also after a recovery. A transaction without writes returns the LSN of a
    /// commit at least as new as all of its reads; an empty one returns 0, or that of its snapshot.
    /// [`Pool::sync_to`] makes the commits up to an LSN durable.
    ///
    /// On return the writes are as durable as a write of a map. With [`Acknowledge::Synced`] its
    /// writes and its reads survive a power cut.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if another transaction came first;
    /// [`Error::TransactionTooLong`]; [`Error::PoolFull`], [`Error::FileSystemFull`] or
    /// [`Error::FileTooLarge`] if there is no room; [`Error::LogFull`], [`Error::LogStopped`];
    /// [`Error::SnapshotRevoked`]. Nothing has taken place. With [`Acknowledge::Synced`] also
    /// [`Error::NoLog`], and [`Error::AppliedNotDurable`]: only then the commit has taken place.
    pub fn commit(self) -> Result<u64, Error> {
        let Self { pool, begun, maps, acknowledge, .. } = self;
        let is_synced = acknowledge == Acknowledge::Synced;
        if is_synced && pool.engine.log_progress()?.is_none() {
            return Err(Error::NoLog);
        }
        let Some(begun) = begun else { return Ok(0) };
        let lsn = begun.commit().map_err(|error| named(error, &maps))?;
        if is_synced {
            pool.engine.sync(Some(lsn))?;
        }
        Ok(lsn)
    }

    /// Ends the transaction without its writes, as a drop does.
    pub fn abort(self) {}
}

/// The records of a range, as a transaction sees them, from the front, from the back, or from both
/// ends ([`Transaction::range`]). Keys from the front strictly ascend, keys from the back strictly
/// descend, and the scan ends when both meet.
#[must_use = "a scan reads nothing until it is asked for a record"]
pub struct TransactionScan<'tx> {
    /// None at the end.
    scan: Option<Result<Box<dyn AnyRange + 'tx>, Error>>,
    /// Of the map.
    name: String,
}

impl TransactionScan<'_> {
    /// As [`Scan::expecting`](crate::Scan::expecting).
    pub fn expecting(mut self, records: usize) -> Self {
        if let Some(Ok(scan)) = &mut self.scan {
            scan.expect(records);
        }
        self
    }

    fn step(&mut self, order: Order) -> Option<Result<OwnedRecord, Error>> {
        let mut scan = match self.scan.take()? {
            Ok(scan) => scan,
            Err(error) => return Some(Err(error)),
        };
        let record = scan.next(order).transpose()?;
        if record.is_ok() {
            self.scan = Some(Ok(scan));
        }
        let named = |error| Error::of_transaction(error, |_| self.name.clone());
        Some(record.map_err(named))
    }
}

impl Iterator for TransactionScan<'_> {
    type Item = Result<OwnedRecord, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Order::Ascending)
    }
}

impl DoubleEndedIterator for TransactionScan<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Order::Descending)
    }
}

impl std::iter::FusedIterator for TransactionScan<'_> {}

impl std::fmt::Debug for TransactionScan<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TransactionScan").field("map", &self.name).finish_non_exhaustive()
    }
}

/// The options of the snapshot that a transaction reads.
fn of_transaction(pool: &PoolShared) -> pando_tc::SnapshotOptions {
    SnapshotOptions::new().holder("a transaction").of_pool(pool)
}

/// The public form of an error, with the name of its map.
fn named(error: pando_tc::Error, maps: &[Map]) -> Error {
    Error::of_transaction(error, |number| {
        let found = maps.iter().find(|map| map.number() == Some(number));
        found.map_or_else(String::new, |map| map.name().to_owned())
    })
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let maps: Vec<_> = self.maps.iter().map(Map::name).collect();
        formatter.debug_struct("Transaction").field("maps", &maps).finish_non_exhaustive()
    }
}
