//! A named map of byte strings.

use std::sync::Arc;

use pando_index::{ATTEMPTS, Error as IndexError, KeyRange, Limits, RangeIndex, Record, Upserted};

use crate::engine::Stamped;
use crate::scan::Scan;
use crate::shared::{MapShared, PoolShared};
use crate::{Acknowledge, Error};

/// An ordered map from byte strings to byte strings that many threads use at once.
///
/// A `Map` is a handle: clones share the map, and any number of threads may use each of them. At
/// most 8,192 threads may be inside calls at once ([`Pool`](crate::Pool) has the limits). A further
/// call, also a read, returns [`Error::TooManyThreads`]. Keys are ordered bytewise, as unsigned
/// bytes; a proper prefix comes before a longer key. A write that returns `Ok` is durable, as far
/// as the pool's persistence domain goes; for a transactional map of a pool with a log see
/// [`Acknowledge`]. A call that returns `Err` has changed nothing, except for
/// [`Error::AppliedNotDurable`], and for a batch ([`upsert_many`](Self::upsert_many)).
#[derive(Clone)]
pub struct Map {
    shared: Arc<MapShared>,
    acknowledge: Acknowledge,
}

impl Map {
    pub(crate) fn from_shared(shared: Arc<MapShared>) -> Self {
        let acknowledge = match shared.stamped.as_ref() {
            Some(_) => shared.pool.acknowledge,
            None => Acknowledge::Buffered,
        };
        Self { shared, acknowledge }
    }

    /// The same map, whose writes return when `acknowledge` says. Other handles stay as they are.
    ///
    /// # Errors
    ///
    /// For [`Acknowledge::Synced`]: [`Error::NotTransactional`], [`Error::NoLog`].
    ///
    /// ```
    /// use pando::{Acknowledge, MapOptions, Pool, PoolOptions};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let options = PoolOptions::new().log(folder.path().join("grove.log"));
    /// let pool = Pool::create(folder.path().join("grove.pool"), &options)?;
    /// let map = pool.map_with("trees", &MapOptions::new().transactional(true))?;
    /// let synced = map.clone().acknowledge(Acknowledge::Synced)?;
    /// map.insert(b"ash", b"survives the process")?;
    /// synced.insert(b"elm", b"survives a power cut, and the ash does now too")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acknowledge(self, acknowledge: Acknowledge) -> Result<Self, Error> {
        if acknowledge == Acknowledge::Synced {
            if !self.is_transactional() {
                return Err(Error::NotTransactional { name: self.name().to_owned() });
            }
            self.pool().engine.log_progress()?.ok_or(Error::NoLog)?;
        }
        Ok(Self { acknowledge, ..self })
    }

    /// The answer of a write, when it is durable, if the handle waits for that.
    pub(crate) fn acknowledged<T>(&self, answer: Result<T, IndexError>) -> Result<T, Error> {
        let answer = self.naming_map(answer)?;
        if self.acknowledge == Acknowledge::Synced {
            // Also if nothing was changed: the found state is durable then.
            self.pool().engine.sync(None)?;
        }
        Ok(answer)
    }

    /// The same for a batch, of which an error leaves a part done.
    fn acknowledged_batch<T>(&self, answer: Result<T, IndexError>) -> Result<T, Error> {
        let synced = self.acknowledged(Ok(()));
        let answer = self.naming_map(answer)?;
        synced.map(|()| answer)
    }

    pub(crate) fn index(&self) -> &dyn RangeIndex {
        self.shared.index.as_ref()
    }

    /// Its number, if it is transactional.
    pub(crate) fn number(&self) -> Option<u64> {
        self.stamped().map(|stamped| stamped.number)
    }

    /// Its records with their stamps, if it is transactional.
    pub(crate) fn stamped(&self) -> Option<&Stamped> {
        self.shared.stamped.as_ref()
    }

    /// The state that its handles share.
    pub(crate) fn shared(&self) -> &Arc<MapShared> {
        &self.shared
    }

    /// The pool that it belongs to.
    pub(crate) fn pool(&self) -> &Arc<PoolShared> {
        &self.shared.pool
    }

    /// Whether it takes part in transactions.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// assert!(!pool.map("trees")?.is_transactional());
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn is_transactional(&self) -> bool {
        self.shared.stamped.is_some()
    }

    /// The index's answer. An error of damage gets the name of the map.
    pub(crate) fn naming_map<T>(&self, answer: Result<T, IndexError>) -> Result<T, Error> {
        answer.map_err(|error| Error::of_index(&self.shared.name, error))
    }

    /// The map's name in its pool.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// assert_eq!(pool.map("trees")?.name(), "trees");
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The longest key and value that the map allows: 32 KiB and 1 GiB, unless its options set
    /// less.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let limits = pool.map("trees")?.limits();
    /// assert_eq!((limits.max_key_bytes, limits.max_value_bytes), (32 << 10, 1 << 30));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn limits(&self) -> Limits {
        self.index().limits()
    }

    /// Adds a record with a new key.
    ///
    /// # Errors
    ///
    /// [`Error::KeyExists`] if the key is present; [`Error::KeyTooLong`] and
    /// [`Error::ValueTooLong`] beyond the map's [`limits`](Self::limits); [`Error::PoolFull`],
    /// [`Error::FileSystemFull`] or [`Error::FileTooLarge`] if there is no room;
    /// [`Error::TooManyThreads`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert(b"aspen", b"1")?;
    /// assert!(matches!(map.insert(b"aspen", b"2"), Err(pando::Error::KeyExists)));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.acknowledged(self.index().insert(key.as_ref(), value.as_ref()))
    }

    /// Replaces the value of a present key.
    ///
    /// # Errors
    ///
    /// [`Error::KeyNotFound`] if the key is absent; otherwise as [`insert`](Self::insert).
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// assert!(matches!(map.update(b"aspen", b"2"), Err(pando::Error::KeyNotFound)));
    /// map.insert(b"aspen", b"1")?;
    /// map.update(b"aspen", b"2")?;
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn update(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.acknowledged(self.index().update(key.as_ref(), value.as_ref()))
    }

    /// Adds the record, or replaces its value if the key is present. It returns which of the two.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert), except [`Error::KeyExists`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// use pando::Upserted;
    ///
    /// let map = pool.map("trees")?;
    /// assert_eq!(map.upsert(b"aspen", b"1")?, Upserted::Inserted);
    /// assert_eq!(map.upsert(b"aspen", b"2")?, Upserted::Updated);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn upsert(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Upserted, Error> {
        self.acknowledged(self.index().upsert(key.as_ref(), value.as_ref()))
    }

    /// Adds the record, or replaces its value if the key is present, and does not say which. In a
    /// store, a record that is on the disk is not read first, so this is much faster there than
    /// [`upsert`](Self::upsert).
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert), except [`Error::KeyExists`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.put(b"aspen", b"1")?;
    /// map.put(b"aspen", b"2")?;
    /// assert_eq!(map.get(b"aspen")?, Some(b"2".to_vec()));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.acknowledged(self.index().put(key.as_ref(), value.as_ref()))
    }

    /// Gives `key` this value, as [`put`](Self::put), and returns the value that it replaces, or
    /// `None` if the key was absent. Both are one step: a value that was written once is returned
    /// once at most.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert), except [`Error::KeyExists`]. After
    /// [`Error::AppliedNotDurable`] the value is replaced, and the old one is not returned.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// assert_eq!(map.swap("aspen", "1")?, None);
    /// assert_eq!(map.swap("aspen", "2")?, Some(b"1".to_vec()));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn swap(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let value = value.as_ref();
        self.naming_map(self.limits().check_value(value))?;
        let mut old = None;
        self.modify(key, |found, new| {
            old = found.map(<[u8]>::to_vec);
            new.extend_from_slice(value);
            true
        })?;
        Ok(old)
    }

    /// A copy of the value of `key`, or `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`] for a key that the map cannot hold; [`Error::TooManyThreads`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert(b"aspen", b"1")?;
    /// assert_eq!(map.get(b"aspen")?, Some(b"1".to_vec()));
    /// assert_eq!(map.get(b"beech")?, None);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        self.naming_map(self.index().get(key.as_ref()))
    }

    /// Whether the key is present.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert("aspen", "1")?;
    /// assert!(map.contains_key("aspen")? && !map.contains_key("beech")?);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.naming_map(self.index().read(key.as_ref(), &mut |_| ()))
    }

    /// Copies of the values of `keys`, in their order; `None` for each absent key. It is faster
    /// than as many calls of [`get`](Self::get), because the waits for memory overlap. Each key is
    /// read separately: the values need not have been present at one point in time.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), for the first key that has one.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert(b"aspen", b"1")?;
    /// assert_eq!(map.get_many(&[b"aspen", b"beech"])?, [Some(b"1".to_vec()), None]);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let mut values = vec![None; keys.len()];
        self.read_many(keys, |index, value| values[index] = value.map(<[u8]>::to_vec))?;
        Ok(values)
    }

    /// As [`get_many`](Self::get_many), but lends each value to `visit`, with the index of its key.
    /// The pool reclaims no space while `visit` runs, so `visit` should be short.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get). Some of the keys may have been visited before the error.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert(b"aspen", b"Populus tremuloides")?;
    /// let mut bytes = 0;
    /// map.read_many(&[b"aspen", b"beech"], |_, value| bytes += value.map_or(0, <[u8]>::len))?;
    /// assert_eq!(bytes, 19);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn read_many(
        &self,
        keys: &[&[u8]],
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Error> {
        self.naming_map(self.index().read_many(keys, &mut visit))
    }

    /// Lends the value of `key` to `visit`, without a copy, and returns the result of `visit`, or
    /// `None` if the key is absent. The pool reclaims no space while `visit` runs, so `visit`
    /// should be short.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert(b"aspen", b"Populus tremuloides")?;
    /// assert_eq!(map.read(b"aspen", |value| value.len())?, Some(19));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn read<Answer>(
        &self,
        key: impl AsRef<[u8]>,
        visit: impl FnOnce(&[u8]) -> Answer,
    ) -> Result<Option<Answer>, Error> {
        let mut visit = Some(visit);
        let mut answer = None;
        self.naming_map(self.index().read(key.as_ref(), &mut |value| {
            if let Some(visit) = visit.take() {
                answer = Some(visit(value));
            }
        }))?;
        Ok(answer)
    }

    /// Removes a record and returns true, or returns false if the key is absent. It works in a full
    /// pool too, except for an `nbtree`, a `bwtree` or a transactional map, which may need a little
    /// room.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); for an `nbtree` or a `bwtree` also [`Error::PoolFull`],
    /// [`Error::FileSystemFull`] and [`Error::FileTooLarge`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert(b"aspen", b"1")?;
    /// assert!(map.remove(b"aspen")?);
    /// assert!(!map.remove(b"aspen")?);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.acknowledged(self.index().remove(key.as_ref()))
    }

    /// Removes the record of `key`, as [`remove`](Self::remove), and returns its value, or `None`
    /// if the key is absent. Both are one step: a value that was written once is returned once at
    /// most.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove). After [`Error::AppliedNotDurable`] the record is removed, and
    /// its value is not returned.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert("aspen", "1")?;
    /// assert_eq!(map.take("aspen")?, Some(b"1".to_vec()));
    /// assert_eq!(map.take("aspen")?, None);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        self.acknowledged(self.index().take(key.as_ref()))
    }

    /// Upserts `records` in their order: of two records with one key, the later one stays. In a
    /// `bztree` and a `skiplist`, the waits for memory of up to 16 records overlap. That pays off
    /// in a map that is much larger than the caches of the processor; in a small one, single calls
    /// are faster. A `bztree` writes keys that ascend behind all others by whole leaves.
    ///
    /// Each record is an operation of its own, and in a transactional map a commit of its own:
    /// another thread, or a crash, may find the first records written and the others not. A
    /// [`WriteBatch`](crate::WriteBatch) is one commit. A transactional map writes the records one
    /// by one; with [`Acknowledge::Synced`] it waits for the log once.
    ///
    /// When the call returns, all records are as durable as after an upsert of each.
    ///
    /// # Errors
    ///
    /// As [`upsert`](Self::upsert), for the first record that has one. The records before it are
    /// written, as durably as by single calls, and those behind it are not.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.upsert_many(&[(b"aspen", b"1"), (b"beech", b"2"), (b"aspen", b"3")])?;
    /// assert_eq!(map.get_many(&[b"aspen", b"beech"])?, [Some(b"3".to_vec()), Some(b"2".to_vec())]);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn upsert_many(&self, records: &[Record<'_>]) -> Result<(), Error> {
        self.acknowledged_batch(self.index().upsert_many(records))
    }

    /// Removes the records of `keys` in their order, and returns how many of the keys were present.
    /// A key that occurs twice is absent the second time. Each key is an operation of its own;
    /// when that is faster, see [`upsert_many`](Self::upsert_many).
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove), for the first key that has one. The records of the keys before
    /// it are removed, as durably as by single calls, and those behind it are not.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert(b"aspen", b"1")?;
    /// map.insert(b"beech", b"2")?;
    /// assert_eq!(map.remove_many(&[b"aspen", b"cedar", b"aspen"])?, 1);
    /// assert_eq!(map.len()?, 1);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn remove_many(&self, keys: &[&[u8]]) -> Result<u64, Error> {
        self.acknowledged_batch(self.index().remove_many(keys))
    }

    /// Replaces the value of `key` by `new` if it equals `expected`, bytewise, in one step.
    ///
    /// # Errors
    ///
    /// [`Error::KeyNotFound`] if the key is absent. [`Error::ValueMismatch`] if it has another
    /// value, with that value: the key had it at an instant of the call. Otherwise as
    /// [`insert`](Self::insert).
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// use pando::Error;
    ///
    /// let map = pool.map("counters")?;
    /// map.insert("visits", "1")?;
    /// map.compare_exchange("visits", "1", "2")?;
    /// match map.compare_exchange("visits", "1", "2") {
    ///     Err(Error::ValueMismatch { actual }) => assert_eq!(actual, b"2"),
    ///     _ => unreachable!(),
    /// }
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn compare_exchange(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        new: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        let (key, expected, new) = (key.as_ref(), expected.as_ref(), new.as_ref());
        self.compared(key, expected, || self.index().compare_exchange(key, expected, new))
    }

    /// Removes the record of `key` if its value equals `expected`, bytewise, in one step.
    ///
    /// # Errors
    ///
    /// [`Error::KeyNotFound`] and [`Error::ValueMismatch`] as
    /// [`compare_exchange`](Self::compare_exchange); otherwise as [`remove`](Self::remove).
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("leases")?;
    /// map.insert("node-1", "owner 7")?;
    /// let other = map.compare_remove("node-1", "owner 8");
    /// assert!(matches!(other, Err(pando::Error::ValueMismatch { .. })));
    /// map.compare_remove("node-1", "owner 7")?;
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn compare_remove(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        let (key, expected) = (key.as_ref(), expected.as_ref());
        self.compared(key, expected, || self.index().compare_remove(key, expected))
    }

    /// Makes the `attempt` to change the record of `key` if its value is `expected`. If it is not,
    /// reads the actual value: the call takes place at that read.
    fn compared(
        &self,
        key: &[u8],
        expected: &[u8],
        attempt: impl Fn() -> Result<(), IndexError>,
    ) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            match attempt() {
                Err(IndexError::ValueMismatch) => {}
                answer => return self.acknowledged(answer),
            }
            match self.get(key)? {
                None => return Err(Error::KeyNotFound),
                Some(actual) if actual != expected => return Err(Error::ValueMismatch { actual }),
                // It has become the expected one since.
                Some(_) => {}
            }
        }
        self.naming_map(Err(IndexError::contradiction()))
    }

    /// Computes a new value of `key` from the present one and stores it, as one step. It returns
    /// whether the record was inserted or updated, or `None` if `change` returned false.
    ///
    /// `change` gets the value, or `None` if the key is absent, and an empty vector. If it returns
    /// true, the contents of the vector become the value. It may be called more than once, each
    /// time with the present value; the last call counts. The pool reclaims no space while `change`
    /// runs, so `change` should be short, and it must not use the pool.
    ///
    /// # Errors
    ///
    /// As [`upsert`](Self::upsert).
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("visits")?;
    /// let mut visit = |page: &[u8]| {
    ///     map.modify(page, |visits, more| {
    ///         let visits = visits.and_then(|visits| visits.try_into().ok()).map_or(0, u64::from_le_bytes);
    ///         more.extend_from_slice(&(visits + 1).to_le_bytes());
    ///         true
    ///     })
    /// };
    /// visit(b"/index.html")?;
    /// visit(b"/index.html")?;
    /// assert_eq!(map.get(b"/index.html")?, Some(2_u64.to_le_bytes().to_vec()));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn modify(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> bool,
    ) -> Result<Option<Upserted>, Error> {
        self.acknowledged(self.index().modify(key.as_ref(), &mut change))
    }

    /// The records of `range`, from the front or from the back. A range is `"a".."c"`, `.."c"`,
    /// `..`, a pair of bounds, or a [`KeyRange`]. A range whose low end is above its high end is
    /// empty, and not an error.
    ///
    /// A scan is not a snapshot: each record was in the map at some instant of the scan ([`Scan`]
    /// has the guarantees). A scan may be kept for any time. Until it is dropped, it is a handle of
    /// the map.
    ///
    /// # Errors
    ///
    /// The scan returns them in place of a record, and then ends: [`Error::TooManyThreads`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("letters")?;
    /// for key in ["a", "b", "c"] {
    ///     map.insert(key, "")?;
    /// }
    /// let mut keys = Vec::new();
    /// for record in map.range("b"..).rev() {
    ///     keys.push(record?.0);
    /// }
    /// assert_eq!(keys, [b"c", b"b"]);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn range(&self, range: impl Into<KeyRange>) -> Scan<'static> {
        Scan::of_map(self.shared.clone(), range.into())
    }

    /// The records whose keys begin with `prefix`; see [`range`](Self::range).
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("paths")?;
    /// map.insert("/etc/hosts", "")?;
    /// map.insert("/usr/bin", "")?;
    /// assert_eq!(map.prefix("/usr/").count(), 1);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Scan<'static> {
        self.range(KeyRange::prefix(prefix.as_ref()))
    }

    /// The number of records: exact while no thread writes, approximate under concurrent writes.
    /// The cost is linear in the number of leaves.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyThreads`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert(b"aspen", b"1")?;
    /// assert_eq!(map.len()?, 1);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn len(&self) -> Result<u64, Error> {
        self.naming_map(self.index().len())
    }

    /// Whether there is no record.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyThreads`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// assert!(pool.map("trees")?.is_empty()?);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn is_empty(&self) -> Result<bool, Error> {
        self.naming_map(self.index().is_empty())
    }
}

impl std::fmt::Debug for Map {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Map").field("name", &self.name()).finish_non_exhaustive()
    }
}
