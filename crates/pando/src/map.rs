//! A named map of byte strings.

use std::sync::Arc;

use pando_index::{KeyRange, Limits, Order, RangeIndex, Upserted};

use crate::Error;
use crate::scan::Scan;
use crate::shared::MapShared;

/// An ordered map from byte strings to byte strings that many threads use at once.
///
/// A `Map` is a handle: clones share the map, and any number of threads may use any of them. Up to
/// 8,192 may be inside calls at once ([`Pool`](crate::Pool) has the limits); beyond, a call, reads
/// too, is [`Error::TooManyThreads`]. Keys are ordered bytewise, as unsigned bytes, a proper prefix
/// before what extends it. What returns `Ok` is durable, as far as the pool's persistence domain
/// goes, when it returns; what returns `Err` has changed nothing.
#[derive(Clone)]
pub struct Map {
    shared: Arc<MapShared>,
}

impl Map {
    pub(crate) fn from_shared(shared: Arc<MapShared>) -> Self {
        Self { shared }
    }

    fn index(&self) -> &dyn RangeIndex {
        self.shared.index.as_ref()
    }

    /// The index's answer; an error of damage names the map.
    fn told<T>(&self, answer: Result<T, pando_index::Error>) -> Result<T, Error> {
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

    /// The longest key and value that the map takes: 32 KiB and 1 GiB, unless its options say
    /// otherwise.
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

    /// Adds a record whose key is not there yet.
    ///
    /// # Errors
    ///
    /// [`Error::KeyExists`] if the key is there; [`Error::KeyTooLong`] and [`Error::ValueTooLong`]
    /// past the map's [`limits`](Self::limits); [`Error::PoolFull`] and [`Error::FileSystemFull`]
    /// or [`Error::FileTooLarge`] if there is no room; [`Error::TooManyThreads`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert(b"aspen", b"1")?;
    /// assert!(matches!(map.insert(b"aspen", b"2"), Err(pando::Error::KeyExists)));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.told(self.index().insert(key, value))
    }

    /// Replaces the value of a key that is there.
    ///
    /// # Errors
    ///
    /// [`Error::KeyNotFound`] if the key is not there; otherwise as [`insert`](Self::insert).
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// assert!(matches!(map.update(b"aspen", b"2"), Err(pando::Error::KeyNotFound)));
    /// map.insert(b"aspen", b"1")?;
    /// map.update(b"aspen", b"2")?;
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.told(self.index().update(key, value))
    }

    /// Adds the record, or replaces its value if the key is there, and says which of the two.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert), but for [`Error::KeyExists`].
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
    pub fn upsert(&self, key: &[u8], value: &[u8]) -> Result<Upserted, Error> {
        self.told(self.index().upsert(key, value))
    }

    /// The value of `key`, copied, or `None` if the key is not there.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`] for a key that the map could not hold; [`Error::TooManyThreads`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert(b"aspen", b"1")?;
    /// assert_eq!(map.get(b"aspen")?, Some(b"1".to_vec()));
    /// assert_eq!(map.get(b"beech")?, None);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.told(self.index().get(key))
    }

    /// The values of `keys`, copied, in their order; `None` for each that is not there. Faster than
    /// as many calls of [`get`](Self::get), since their waits for memory overlap; each key is read
    /// for itself, not all at one moment.
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
    /// Space is not reclaimed in the pool while `visit` runs, so it should be short.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); any number of the keys may have been visited before.
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
        self.told(self.index().read_many(keys, &mut visit))
    }

    /// Lends the value of `key` to `visit`, without a copy, and returns what `visit` returns, or
    /// `None` if the key is not there. Space is not reclaimed in the pool while `visit` runs, so
    /// it should be short.
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
        key: &[u8],
        visit: impl FnOnce(&[u8]) -> Answer,
    ) -> Result<Option<Answer>, Error> {
        let mut visit = Some(visit);
        let mut answer = None;
        self.told(self.index().read(key, &mut |value| {
            if let Some(visit) = visit.take() {
                answer = Some(visit(value));
            }
        }))?;
        Ok(answer)
    }

    /// Removes a record and returns true, or returns false if the key is not there. Works in a full
    /// pool too, but for an `nbtree`, which may need a little room.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); for an `nbtree` also [`Error::PoolFull`], [`Error::FileSystemFull`]
    /// and [`Error::FileTooLarge`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert(b"aspen", b"1")?;
    /// assert!(map.remove(b"aspen")?);
    /// assert!(!map.remove(b"aspen")?);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        self.told(self.index().remove(key))
    }

    /// Replaces the value of `key` by `new` if it is `expected`, bytewise, in one step.
    ///
    /// # Errors
    ///
    /// [`Error::KeyNotFound`] if the key is not there, [`Error::ValueMismatch`] if its value is
    /// another one; otherwise as [`insert`](Self::insert).
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("counters")?;
    /// map.insert(b"visits", b"1")?;
    /// map.compare_exchange(b"visits", b"1", b"2")?;
    /// let late = map.compare_exchange(b"visits", b"1", b"2");
    /// assert!(matches!(late, Err(pando::Error::ValueMismatch)));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn compare_exchange(&self, key: &[u8], expected: &[u8], new: &[u8]) -> Result<(), Error> {
        self.told(self.index().compare_exchange(key, expected, new))
    }

    /// Reads the value of `key` and puts in its place what `change` makes of it, as one step; says
    /// which of the two that was, or `None` if `change` would have all stay.
    ///
    /// `change` gets the value, or `None` if the key is not there, and an empty vector; what it
    /// puts there becomes the value if it returns true. It may be called more than once, with what
    /// is there then; the last call counts. Space is not reclaimed in the pool while it runs, so it
    /// should be short, and it must not use the pool.
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
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> bool,
    ) -> Result<Option<Upserted>, Error> {
        self.told(self.index().modify(key, &mut change))
    }

    /// The records of `range` in `order`. Beside writers the scan is no snapshot: each record is
    /// one of some instant of the scan ([`Scan`] says what is promised). It may be kept for any
    /// time. A range whose ends lie the wrong way round is empty, and no error.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyThreads`]; also in the place of a record, after which the scan has ended.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// use pando::{KeyRange, Order};
    ///
    /// let map = pool.map("letters")?;
    /// for key in [b"a", b"b", b"c"] {
    ///     map.insert(key, b"")?;
    /// }
    /// let mut keys = Vec::new();
    /// for record in map.scan(KeyRange::from(b"b"), Order::Descending)? {
    ///     keys.push(record?.0);
    /// }
    /// assert_eq!(keys, [b"c", b"b"]);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn scan(&self, range: KeyRange, order: Order) -> Result<Scan<'_>, Error> {
        let cursor = self.told(self.index().scan(range, order))?;
        Ok(Scan::new(&self.shared.name, cursor, order))
    }

    /// The records whose keys begin with `prefix`, in `order`.
    ///
    /// # Errors
    ///
    /// As [`scan`](Self::scan).
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("paths")?;
    /// map.insert(b"/etc/hosts", b"")?;
    /// map.insert(b"/usr/bin", b"")?;
    /// assert_eq!(map.prefix(b"/usr/", pando::Order::Ascending)?.count(), 1);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn prefix(&self, prefix: &[u8], order: Order) -> Result<Scan<'_>, Error> {
        self.scan(KeyRange::prefix(prefix), order)
    }

    /// The number of records: exact while nobody writes, approximate under concurrent writes.
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
        self.told(self.index().len())
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
        self.told(self.index().is_empty())
    }
}

impl std::fmt::Debug for Map {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Map").field("name", &self.name()).finish_non_exhaustive()
    }
}
