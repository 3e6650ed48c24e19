//! A map whose keys and values have Rust types.

use std::marker::PhantomData;

use pando_index::{KeyRange, Limits, Order, Upserted};

use crate::key::{AsKey, AsKeyPrefix, AsKeyRange, Key, encoded};
use crate::scan::Scan;
use crate::typed_entry::TypedEntry;
use crate::typed_scan::{TypedScan, decoded};
use crate::value::{AsValue, Value, ValueError};
use crate::{Acknowledge, Error, KeyError, Map};

/// A [`Map`] whose keys have the type `K`, in an encoding that keeps the order of `K`, and whose
/// values have the type `V`. Values are bytes unless [`with_values`](Self::with_values) gives them
/// a type.
///
/// It has the methods of `Map`, with the same guarantees and errors. Each also takes a borrowed
/// form of a key ([`AsKey`]): a `&str` for a `String`, a tuple of such forms for a tuple, or a
/// reference to one of these. Each method also has the error [`Error::Key`]: for a key that is NaN,
/// and, if it returns keys, for a stored key that is not a `K`. Values may be borrowed forms too
/// ([`AsValue`]). If `V` is not bytes, each method also has the error [`Error::Value`]: for a value
/// that cannot be stored, and, if it returns or lends values, for stored bytes that are not a `V`.
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
pub struct TypedMap<K, V = Vec<u8>> {
    map: Map,
    record: PhantomData<fn() -> (K, V)>,
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
        TypedMap { map: self, record: PhantomData }
    }
}

impl<K: Key, V: Value> TypedMap<K, V> {
    /// The same map with values of type `W`: `String`, `u64` and the other types of [`Value`], or
    /// any type of serde by `Json`. The program must know the type of a map's values: the pool
    /// stores only bytes.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let heights = pool.map("heights")?.typed::<String>().with_values::<f64>();
    /// heights.put("fir", 60.5)?;
    /// assert_eq!(heights.get("fir")?, Some(60.5));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn with_values<W: Value>(self) -> TypedMap<K, W> {
        TypedMap { map: self.map, record: PhantomData }
    }

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
        Ok(Self { map: self.map.acknowledge(acknowledge)?, record: PhantomData })
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
    pub fn insert(&self, key: impl AsKey<K>, value: impl AsValue<V>) -> Result<(), Error> {
        self.map.insert(encoded(&key)?, value.value_bytes()?)
    }

    /// Replaces the value of a present key; see [`Map::update`].
    pub fn update(&self, key: impl AsKey<K>, value: impl AsValue<V>) -> Result<(), Error> {
        self.map.update(encoded(&key)?, value.value_bytes()?)
    }

    /// Adds the record, or replaces its value; see [`Map::upsert`].
    pub fn upsert(&self, key: impl AsKey<K>, value: impl AsValue<V>) -> Result<Upserted, Error> {
        self.map.upsert(encoded(&key)?, value.value_bytes()?)
    }

    /// Adds the record, or replaces its value, and does not say which; see [`Map::put`].
    pub fn put(&self, key: impl AsKey<K>, value: impl AsValue<V>) -> Result<(), Error> {
        self.map.put(encoded(&key)?, value.value_bytes()?)
    }

    /// Gives `key` this value, and returns the value that it replaces; see [`Map::swap`]. If that
    /// is not a `V`, it is replaced all the same, and the error has its bytes.
    pub fn swap(
        &self,
        key: impl AsKey<K>,
        value: impl AsValue<V>,
    ) -> Result<Option<V::Owned>, Error> {
        self.owned(self.map.swap(encoded(&key)?, value.value_bytes()?)?)
    }

    fn owned(&self, value: Option<Vec<u8>>) -> Result<Option<V::Owned>, Error> {
        Ok(value.map(V::decode).transpose()?)
    }

    /// A copy of the value of `key`; see [`Map::get`].
    pub fn get(&self, key: impl AsKey<K>) -> Result<Option<V::Owned>, Error> {
        self.owned(self.map.get(encoded(&key)?)?)
    }

    /// Whether the key is present; see [`Map::contains_key`].
    pub fn contains_key(&self, key: impl AsKey<K>) -> Result<bool, Error> {
        self.map.contains_key(encoded(&key)?)
    }

    /// Copies of the values of `keys`, in their order; see [`Map::get_many`].
    pub fn get_many(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<V::Owned>>, Error> {
        let found = with_encoded(keys, |keys| self.map.get_many(keys))?;
        found.into_iter().map(|value| self.owned(value)).collect()
    }

    /// Lends the value of each key to `visit`; see [`Map::read_many`]. A value that is not a `V` is
    /// an error; `visit` is not called for it and for those behind it.
    pub fn read_many(
        &self,
        keys: &[impl AsKey<K>],
        mut visit: impl FnMut(usize, Option<V::Lent<'_>>),
    ) -> Result<(), Error> {
        let mut lent = Ok(());
        with_encoded(keys, |keys| {
            self.map.read_many(keys, |place, value| {
                if lent.is_ok() {
                    lent = value.map(V::lend).transpose().map(|value| visit(place, value));
                }
            })
        })?;
        Ok(lent?)
    }

    /// Lends the value of `key` to `visit`; see [`Map::read`].
    pub fn read<Answer>(
        &self,
        key: impl AsKey<K>,
        visit: impl FnOnce(V::Lent<'_>) -> Answer,
    ) -> Result<Option<Answer>, Error> {
        let answer = self.map.read(encoded(&key)?, |value| V::lend(value).map(visit))?;
        Ok(answer.transpose()?)
    }

    /// Removes a record, and returns whether it was present; see [`Map::remove`].
    pub fn remove(&self, key: impl AsKey<K>) -> Result<bool, Error> {
        self.map.remove(encoded(&key)?)
    }

    /// Removes a record, and returns its value; see [`Map::take`]. If that is not a `V`, it is
    /// removed all the same, and the error has its bytes.
    pub fn take(&self, key: impl AsKey<K>) -> Result<Option<V::Owned>, Error> {
        self.owned(self.map.take(encoded(&key)?)?)
    }

    /// Upserts `records` in their order; see [`Map::upsert_many`].
    pub fn upsert_many(&self, records: &[(impl AsKey<K>, impl AsValue<V>)]) -> Result<(), Error> {
        let keys = records.iter().map(|(key, value)| Ok((encoded(key)?, value.value_bytes()?)));
        let owned = keys.collect::<Result<Vec<_>, Error>>()?;
        let borrowed = owned.iter().map(|(key, value)| (key.as_slice(), &value[..]));
        self.map.upsert_many(&borrowed.collect::<Vec<_>>())
    }

    /// Removes the records of `keys` in their order, and returns how many were present; see
    /// [`Map::remove_many`].
    pub fn remove_many(&self, keys: &[impl AsKey<K>]) -> Result<u64, Error> {
        with_encoded(keys, |keys| self.map.remove_many(keys))
    }

    /// Replaces the value of `key` by `new` if it equals `expected`; see [`Map::compare_exchange`].
    /// The bytes are compared: [`value_of`](Self::value_of) decodes those in the error.
    pub fn compare_exchange(
        &self,
        key: impl AsKey<K>,
        expected: impl AsValue<V>,
        new: impl AsValue<V>,
    ) -> Result<(), Error> {
        let (expected, new) = (expected.value_bytes()?, new.value_bytes()?);
        self.map.compare_exchange(encoded(&key)?, expected, new)
    }

    /// Removes the record of `key` if its value equals `expected`; see [`Map::compare_remove`]. The
    /// bytes are compared.
    pub fn compare_remove(
        &self,
        key: impl AsKey<K>,
        expected: impl AsValue<V>,
    ) -> Result<(), Error> {
        self.map.compare_remove(encoded(&key)?, expected.value_bytes()?)
    }

    /// The value that has these bytes, such as those of [`Error::ValueMismatch`].
    ///
    /// # Errors
    ///
    /// [`Error::Value`] if no `V` has these bytes.
    ///
    /// ```
    /// # use pando::Error;
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let counts = pool.map("counts")?.typed::<String>().with_values::<u64>();
    /// counts.put("oak", 3)?;
    /// let Err(Error::ValueMismatch { actual }) = counts.compare_exchange("oak", 2, 4) else {
    ///     panic!("it is 3");
    /// };
    /// assert_eq!(counts.value_of(actual)?, 3);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn value_of(&self, bytes: Vec<u8>) -> Result<V::Owned, Error> {
        Ok(V::decode(bytes)?)
    }

    /// Computes a new value of `key` from the present one and stores it, as one step; see
    /// [`Map::modify`]. `change` returns the new value, or `None` to leave the key as it is. A
    /// stored value that is not a `V` stays.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let counts = pool.map("counts")?.typed::<String>().with_values::<u64>();
    /// for _ in 0..2 {
    ///     counts.modify("oak", |count| Some(count.unwrap_or(0) + 1))?;
    /// }
    /// assert_eq!(counts.get("oak")?, Some(2));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn modify(
        &self,
        key: impl AsKey<K>,
        mut change: impl FnMut(Option<V::Lent<'_>>) -> Option<V::Owned>,
    ) -> Result<Option<Upserted>, Error> {
        let mut step = Ok(());
        let modified = self.map.modify(encoded(&key)?, |found, new| {
            let mut changed = || -> Result<bool, ValueError> {
                let Some(value) = change(found.map(V::lend).transpose()?) else { return Ok(false) };
                new.extend_from_slice(&value.value_bytes()?);
                Ok(true)
            };
            let (is_changed, done) = match changed() {
                Ok(is_changed) => (is_changed, Ok(())),
                Err(error) => (false, Err(error)),
            };
            step = done;
            is_changed
        })?;
        step?;
        Ok(modified)
    }

    /// The key, for one atomic step that reads and writes its value; see [`Map::entry`].
    pub fn entry(&self, key: impl AsKey<K>) -> Result<TypedEntry<'_, V>, Error> {
        Ok(TypedEntry::new(&self.map, encoded(&key)?))
    }

    /// The record with the smallest key; see [`Map::first`].
    pub fn first(&self) -> Result<Option<(K, V::Owned)>, Error> {
        self.map.first()?.map(decoded::<K, V>).transpose()
    }

    /// The record with the largest key; see [`Map::last`].
    pub fn last(&self) -> Result<Option<(K, V::Owned)>, Error> {
        self.map.last()?.map(decoded::<K, V>).transpose()
    }

    /// Removes the record with the smallest key and returns it; see [`Map::pop_first`]. If its key
    /// is not a `K`, or its value not a `V`, it stays.
    pub fn pop_first(&self) -> Result<Option<(K, V::Owned)>, Error> {
        self.pop(Order::Ascending)
    }

    /// Removes the record with the largest key and returns it; see [`Map::pop_last`]. If its key is
    /// not a `K`, or its value not a `V`, it stays.
    pub fn pop_last(&self) -> Result<Option<(K, V::Owned)>, Error> {
        self.pop(Order::Descending)
    }

    fn pop(&self, order: Order) -> Result<Option<(K, V::Owned)>, Error> {
        let popped = self.map.pop(order, |key, value| {
            K::decode(key)?;
            V::lend(value)?;
            Ok(())
        })?;
        popped.map(decoded::<K, V>).transpose()
    }

    /// Removes each record for which `keep` returns false, and returns how many; see
    /// [`Map::retain`]. A key that is not a `K`, or a value that is not a `V`, ends it with an
    /// error.
    pub fn retain(&self, mut keep: impl FnMut(&K, V::Lent<'_>) -> bool) -> Result<u64, Error> {
        self.map.try_retain(|key, value| Ok(keep(&K::decode(key)?, V::lend(value)?)))
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
    pub fn range(&self, range: impl AsKeyRange<K>) -> TypedScan<'static, K, V> {
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
    pub fn prefix(&self, prefix: impl AsKeyPrefix<K>) -> TypedScan<'static, K, V> {
        let mut bytes = Vec::new();
        let encoded = prefix.encode_prefix(&mut bytes);
        self.scan(encoded.map(|()| KeyRange::prefix(&bytes)))
    }

    /// The records of the range, or a scan that returns its error.
    fn scan(&self, range: Result<KeyRange, KeyError>) -> TypedScan<'static, K, V> {
        TypedScan::new(match range {
            Ok(range) => self.map.range(range),
            Err(error) => Scan::refused(self.map.shared().clone(), error.into()),
        })
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

impl<K, V> Clone for TypedMap<K, V> {
    fn clone(&self) -> Self {
        Self { map: self.map.clone(), record: PhantomData }
    }
}

impl<K, V> std::fmt::Debug for TypedMap<K, V> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TypedMap").field("map", &self.map).finish()
    }
}

/// Calls `work` with the encoded keys.
fn with_encoded<K, R>(
    keys: &[impl AsKey<K>],
    work: impl FnOnce(&[&[u8]]) -> Result<R, Error>,
) -> Result<R, Error> {
    let owned = keys.iter().map(encoded).collect::<Result<Vec<_>, _>>()?;
    work(&owned.iter().map(Vec::as_slice).collect::<Vec<_>>())
}
