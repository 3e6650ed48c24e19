//! A map whose keys have a Rust type.

use std::marker::PhantomData;

use pando_index::{KeyRange, Limits, Order, Upserted};

use crate::key::{AsKey, AsKeyPrefix, AsKeyRange, Key, encoded};
use crate::scan::{OwnedRecord, Scan};
use crate::{Acknowledge, Entry, Error, KeyError, Map};

/// A [`Map`] whose keys have the type `K`, in an encoding that keeps the order of `K`.
///
/// It has the methods of `Map`, with the same guarantees and errors. Each also takes a borrowed
/// form of a key ([`AsKey`]): a `&str` for a `String`, a tuple of such forms for a tuple, or a
/// reference to one of these. Each method also has the error [`Error::Key`]: for a key that is NaN,
/// and, if it returns keys, for a stored key that is not a `K`.
///
/// Transactions and snapshots take the map of bytes ([`as_bytes`](Self::as_bytes)) and the bytes of
/// a key ([`key_bytes`](Self::key_bytes)).
///
/// ```
/// use pando::{Pool, PoolOptions};
///
/// let pool = Pool::volatile(&PoolOptions::new())?;
/// let cities = pool.map("cities")?.typed::<(String, u32)>();
/// cities.insert(("de", 10115), "Berlin")?;
/// cities.insert(("de", 1067), "Dresden")?;
/// cities.insert(("ch", 8001), "Zurich")?;
///
/// assert_eq!(cities.get(("de", 10115))?, Some(b"Berlin".to_vec()));
/// assert_eq!(cities.first()?, Some((("ch".to_owned(), 8001), b"Zurich".to_vec())));
/// assert_eq!(cities.prefix(("de",)).count(), 2);
/// assert_eq!(cities.range(("de", 2000)..).count(), 1);
/// # Ok::<(), pando::Error>(())
/// ```
pub struct TypedMap<K> {
    map: Map,
    key: PhantomData<fn() -> K>,
}

impl Map {
    /// The same map with keys of type `K`. The program must know the type of a map's keys: the pool
    /// stores only bytes. A scan returns an error for a stored key that is not a `K`.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let squares = pool.map("squares")?.typed::<i64>();
    /// squares.insert(-3, "9")?;
    /// assert_eq!(squares.get(-3)?, Some(b"9".to_vec()));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn typed<K: Key>(self) -> TypedMap<K> {
        TypedMap { map: self, key: PhantomData }
    }
}

impl<K: Key> TypedMap<K> {
    /// The underlying map of bytes.
    pub fn as_bytes(&self) -> &Map {
        &self.map
    }

    /// The bytes of a key in the underlying map.
    ///
    /// # Errors
    ///
    /// [`Error::Key`] for a float that is NaN.
    pub fn key_bytes(&self, key: impl AsKey<K>) -> Result<Vec<u8>, Error> {
        Ok(encoded(&key)?)
    }

    /// See [`Map::acknowledge`].
    ///
    /// # Errors
    ///
    /// As [`Map::acknowledge`].
    pub fn acknowledge(self, acknowledge: Acknowledge) -> Result<Self, Error> {
        Ok(self.map.acknowledge(acknowledge)?.typed())
    }

    /// See [`Map::is_transactional`].
    pub fn is_transactional(&self) -> bool {
        self.map.is_transactional()
    }

    /// See [`Map::name`].
    pub fn name(&self) -> &str {
        self.map.name()
    }

    /// The longest encoded key, and the longest value; see [`Map::limits`].
    pub fn limits(&self) -> Limits {
        self.map.limits()
    }

    /// Adds a record with a new key; see [`Map::insert`].
    pub fn insert(&self, key: impl AsKey<K>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.map.insert(encoded(&key)?, value)
    }

    /// Replaces the value of a present key; see [`Map::update`].
    pub fn update(&self, key: impl AsKey<K>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.map.update(encoded(&key)?, value)
    }

    /// Adds the record, or replaces its value; see [`Map::upsert`].
    pub fn upsert(&self, key: impl AsKey<K>, value: impl AsRef<[u8]>) -> Result<Upserted, Error> {
        self.map.upsert(encoded(&key)?, value)
    }

    /// Adds the record, or replaces its value, and does not say which; see [`Map::put`].
    pub fn put(&self, key: impl AsKey<K>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.map.put(encoded(&key)?, value)
    }

    /// Gives `key` this value, and returns the value that it replaces; see [`Map::swap`].
    pub fn swap(
        &self,
        key: impl AsKey<K>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        self.map.swap(encoded(&key)?, value)
    }

    /// A copy of the value of `key`; see [`Map::get`].
    pub fn get(&self, key: impl AsKey<K>) -> Result<Option<Vec<u8>>, Error> {
        self.map.get(encoded(&key)?)
    }

    /// Whether the key is present; see [`Map::contains_key`].
    pub fn contains_key(&self, key: impl AsKey<K>) -> Result<bool, Error> {
        self.map.contains_key(encoded(&key)?)
    }

    /// Copies of the values of `keys`, in their order; see [`Map::get_many`].
    pub fn get_many(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        with_encoded(keys, |keys| self.map.get_many(keys))
    }

    /// Lends the value of each key to `visit`; see [`Map::read_many`].
    pub fn read_many(
        &self,
        keys: &[impl AsKey<K>],
        visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Error> {
        with_encoded(keys, |keys| self.map.read_many(keys, visit))
    }

    /// Lends the value of `key` to `visit`; see [`Map::read`].
    pub fn read<Answer>(
        &self,
        key: impl AsKey<K>,
        visit: impl FnOnce(&[u8]) -> Answer,
    ) -> Result<Option<Answer>, Error> {
        self.map.read(encoded(&key)?, visit)
    }

    /// Removes a record, and returns whether it was present; see [`Map::remove`].
    pub fn remove(&self, key: impl AsKey<K>) -> Result<bool, Error> {
        self.map.remove(encoded(&key)?)
    }

    /// Removes a record, and returns its value; see [`Map::take`].
    pub fn take(&self, key: impl AsKey<K>) -> Result<Option<Vec<u8>>, Error> {
        self.map.take(encoded(&key)?)
    }

    /// Upserts `records` in their order; see [`Map::upsert_many`].
    pub fn upsert_many(&self, records: &[(impl AsKey<K>, impl AsRef<[u8]>)]) -> Result<(), Error> {
        let keys = records.iter().map(|(key, value)| Ok((encoded(key)?, value)));
        let owned = keys.collect::<Result<Vec<_>, Error>>()?;
        let borrowed = owned.iter().map(|(key, value)| (key.as_slice(), value.as_ref()));
        self.map.upsert_many(&borrowed.collect::<Vec<_>>())
    }

    /// Removes the records of `keys` in their order, and returns how many were present; see
    /// [`Map::remove_many`].
    pub fn remove_many(&self, keys: &[impl AsKey<K>]) -> Result<u64, Error> {
        with_encoded(keys, |keys| self.map.remove_many(keys))
    }

    /// Replaces the value of `key` by `new` if it equals `expected`; see [`Map::compare_exchange`].
    pub fn compare_exchange(
        &self,
        key: impl AsKey<K>,
        expected: impl AsRef<[u8]>,
        new: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        self.map.compare_exchange(encoded(&key)?, expected, new)
    }

    /// Removes the record of `key` if its value equals `expected`; see [`Map::compare_remove`].
    pub fn compare_remove(
        &self,
        key: impl AsKey<K>,
        expected: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        self.map.compare_remove(encoded(&key)?, expected)
    }

    /// Computes a new value of `key` from the present one and stores it, as one step; see
    /// [`Map::modify`].
    pub fn modify(
        &self,
        key: impl AsKey<K>,
        change: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> bool,
    ) -> Result<Option<Upserted>, Error> {
        self.map.modify(encoded(&key)?, change)
    }

    /// The key, for one atomic step that reads and writes its value; see [`Map::entry`]. The key of
    /// the entry is the encoded one.
    pub fn entry(&self, key: impl AsKey<K>) -> Result<Entry<'_, Vec<u8>>, Error> {
        Ok(self.map.entry(encoded(&key)?))
    }

    /// The record with the smallest key; see [`Map::first`].
    pub fn first(&self) -> Result<Option<(K, Vec<u8>)>, Error> {
        self.map.first()?.map(decoded).transpose()
    }

    /// The record with the largest key; see [`Map::last`].
    pub fn last(&self) -> Result<Option<(K, Vec<u8>)>, Error> {
        self.map.last()?.map(decoded).transpose()
    }

    /// Removes the record with the smallest key and returns it; see [`Map::pop_first`]. If its key
    /// is not a `K`, it stays.
    pub fn pop_first(&self) -> Result<Option<(K, Vec<u8>)>, Error> {
        self.pop(Order::Ascending)
    }

    /// Removes the record with the largest key and returns it; see [`Map::pop_last`]. If its key is
    /// not a `K`, it stays.
    pub fn pop_last(&self) -> Result<Option<(K, Vec<u8>)>, Error> {
        self.pop(Order::Descending)
    }

    fn pop(&self, order: Order) -> Result<Option<(K, Vec<u8>)>, Error> {
        let popped = self.map.pop(order, |key| Ok(K::decode(key).map(drop)?))?;
        popped.map(decoded).transpose()
    }

    /// Removes each record for which `keep` returns false, and returns how many; see
    /// [`Map::retain`]. A key that is not a `K` ends it with an error.
    pub fn retain(&self, mut keep: impl FnMut(&K, &[u8]) -> bool) -> Result<u64, Error> {
        self.map.try_retain(|key, value| Ok(keep(&K::decode(key)?, value)))
    }

    /// Removes the records, and returns how many; see [`Map::clear`].
    pub fn clear(&self) -> Result<u64, Error> {
        self.map.clear()
    }

    /// The records whose keys lie in `range`; see [`Map::range`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("temperatures")?.typed::<f64>();
    /// for degrees in [-40.0, 0.5, 36.6] {
    ///     map.insert(degrees, "")?;
    /// }
    /// assert_eq!(map.range(-1.0..).count(), 2);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn range(&self, range: impl AsKeyRange<K>) -> TypedScan<'static, K> {
        self.scan(range.encode_range())
    }

    /// The records whose keys begin with these elements of a tuple, or with this text or these
    /// bytes; see [`Map::prefix`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let paths = pool.map("paths")?.typed::<String>();
    /// paths.insert("/usr/bin", "")?;
    /// paths.insert("/etc/hosts", "")?;
    /// assert_eq!(paths.prefix("/usr/").count(), 1);
    ///
    /// let visits = pool.map("visits")?.typed::<(String, u32, u64)>();
    /// visits.insert(("/", 2026, 1), "")?;
    /// visits.insert(("/", 2027, 1), "")?;
    /// visits.insert(("/about", 2026, 1), "")?;
    /// assert_eq!(visits.prefix(("/",)).count(), 2);
    /// assert_eq!(visits.prefix(("/", 2027)).count(), 1);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn prefix(&self, prefix: impl AsKeyPrefix<K>) -> TypedScan<'static, K> {
        let mut bytes = Vec::new();
        let encoded = prefix.encode_prefix(&mut bytes);
        self.scan(encoded.map(|()| KeyRange::prefix(&bytes)))
    }

    /// The records of the range, or a scan that returns its error.
    fn scan(&self, range: Result<KeyRange, KeyError>) -> TypedScan<'static, K> {
        let scan = match range {
            Ok(range) => self.map.range(range),
            Err(error) => Scan::refused(self.map.shared().clone(), error.into()),
        };
        TypedScan { scan, key: PhantomData }
    }

    /// The number of records; see [`Map::len`].
    pub fn len(&self) -> Result<u64, Error> {
        self.map.len()
    }

    /// Whether there is no record; see [`Map::is_empty`].
    pub fn is_empty(&self) -> Result<bool, Error> {
        self.map.is_empty()
    }
}

impl<K> Clone for TypedMap<K> {
    fn clone(&self) -> Self {
        Self { map: self.map.clone(), key: PhantomData }
    }
}

impl<K> std::fmt::Debug for TypedMap<K> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TypedMap").field("map", &self.map).finish()
    }
}

/// The records of a range of a [`TypedMap`], as those of a [`Scan`]. For a stored key that is not a
/// `K` it yields an error, and then continues with the next key.
#[must_use = "a scan reads nothing until it is asked for a record"]
pub struct TypedScan<'snapshot, K> {
    scan: Scan<'snapshot>,
    key: PhantomData<fn() -> K>,
}

impl<K> TypedScan<'_, K> {
    /// As [`Scan::expecting`].
    pub fn expecting(self, records: usize) -> Self {
        Self { scan: self.scan.expecting(records), key: PhantomData }
    }
}

impl<K: Key> Iterator for TypedScan<'_, K> {
    type Item = Result<(K, Vec<u8>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.scan.next()?.and_then(decoded))
    }
}

impl<K: Key> DoubleEndedIterator for TypedScan<'_, K> {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.scan.next_back()?.and_then(decoded))
    }
}

impl<K: Key> std::iter::FusedIterator for TypedScan<'_, K> {}

impl<K> std::fmt::Debug for TypedScan<'_, K> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TypedScan").field("scan", &self.scan).finish()
    }
}

fn decoded<K: Key>((key, value): OwnedRecord) -> Result<(K, Vec<u8>), Error> {
    Ok((K::decode(&key)?, value))
}

/// Calls `work` with the encoded keys.
fn with_encoded<K, R>(
    keys: &[impl AsKey<K>],
    work: impl FnOnce(&[&[u8]]) -> Result<R, Error>,
) -> Result<R, Error> {
    let owned = keys.iter().map(encoded).collect::<Result<Vec<_>, _>>()?;
    work(&owned.iter().map(Vec::as_slice).collect::<Vec<_>>())
}
