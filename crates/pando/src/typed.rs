//! A map whose keys have a Rust type.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use pando_index::{KeyRange, Order, Upserted};

use crate::key::{AsKey, Key};
use crate::scan::Scan;
use crate::{Error, Map};

/// A [`Map`] whose keys have the type `K`, in an encoding that keeps the order of `K`.
///
/// Each method also takes a borrowed form of a key ([`AsKey`]): a `&str` for a `String`, a tuple of
/// such forms for a tuple, or a reference to one of these.
///
/// ```
/// use pando::{Order, Pool, PoolOptions};
///
/// let pool = Pool::volatile(&PoolOptions::new())?;
/// let cities = pool.map("cities")?.typed::<(String, u32)>();
/// cities.insert(("de", 10115), b"Berlin")?;
/// cities.insert(("de", 1067), b"Dresden")?;
/// cities.insert(("ch", 8001), b"Zurich")?;
///
/// assert_eq!(cities.get(("de", 10115))?, Some(b"Berlin".to_vec()));
/// let first = cities.scan(.., Order::Ascending)?.next().transpose()?;
/// assert_eq!(first, Some((("ch".to_owned(), 8001), b"Zurich".to_vec())));
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
    /// squares.insert(-3, b"9")?;
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

    /// Adds a record with a new key; see [`Map::insert`].
    pub fn insert(&self, key: impl AsKey<K>, value: &[u8]) -> Result<(), Error> {
        self.map.insert(&encoded(&key), value)
    }

    /// Replaces the value of a present key; see [`Map::update`].
    pub fn update(&self, key: impl AsKey<K>, value: &[u8]) -> Result<(), Error> {
        self.map.update(&encoded(&key), value)
    }

    /// Adds the record, or replaces its value; see [`Map::upsert`].
    pub fn upsert(&self, key: impl AsKey<K>, value: &[u8]) -> Result<Upserted, Error> {
        self.map.upsert(&encoded(&key), value)
    }

    /// Adds the record, or replaces its value, and does not say which; see [`Map::put`].
    pub fn put(&self, key: impl AsKey<K>, value: &[u8]) -> Result<(), Error> {
        self.map.put(&encoded(&key), value)
    }

    /// A copy of the value of `key`; see [`Map::get`].
    pub fn get(&self, key: impl AsKey<K>) -> Result<Option<Vec<u8>>, Error> {
        self.map.get(&encoded(&key))
    }

    /// Lends the value of `key` to `visit`; see [`Map::read`].
    pub fn read<Answer>(
        &self,
        key: impl AsKey<K>,
        visit: impl FnOnce(&[u8]) -> Answer,
    ) -> Result<Option<Answer>, Error> {
        self.map.read(&encoded(&key), visit)
    }

    /// Removes a record, and returns whether it was present; see [`Map::remove`].
    pub fn remove(&self, key: impl AsKey<K>) -> Result<bool, Error> {
        self.map.remove(&encoded(&key))
    }

    /// Replaces the value of `key` by `new` if it equals `expected`; see [`Map::compare_exchange`].
    pub fn compare_exchange(
        &self,
        key: impl AsKey<K>,
        expected: &[u8],
        new: &[u8],
    ) -> Result<(), Error> {
        self.map.compare_exchange(&encoded(&key), expected, new)
    }

    /// Computes a new value of `key` from the present one and stores it, as one step; see
    /// [`Map::modify`].
    pub fn modify(
        &self,
        key: impl AsKey<K>,
        change: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> bool,
    ) -> Result<Option<Upserted>, Error> {
        self.map.modify(&encoded(&key), change)
    }

    /// The records whose keys lie in `range`, in `order`; see [`Map::scan`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("temperatures")?.typed::<f64>();
    /// for degrees in [-40.0, 0.5, 36.6] {
    ///     map.insert(degrees, b"")?;
    /// }
    /// assert_eq!(map.scan(-1.0.., pando::Order::Ascending)?.count(), 2);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn scan(
        &self,
        range: impl RangeBounds<K>,
        order: Order,
    ) -> Result<TypedScan<'_, K>, Error> {
        let range = KeyRange {
            low: encoded_bound(range.start_bound()),
            high: encoded_bound(range.end_bound()),
        };
        Ok(TypedScan { scan: self.map.scan(range, order)?, key: PhantomData })
    }

    /// The number of records; see [`Map::len`].
    pub fn len(&self) -> Result<u64, Error> {
        self.map.len()
    }

    /// Whether there is no record.
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

/// The records of a range of a [`TypedMap`]. For a stored key that is not a `K` it yields an error,
/// and then continues with the next key.
pub struct TypedScan<'map, K> {
    scan: Scan<'map>,
    key: PhantomData<fn() -> K>,
}

impl<K> TypedScan<'_, K> {
    /// As [`Scan::expecting`].
    #[must_use]
    pub fn expecting(self, records: usize) -> Self {
        Self { scan: self.scan.expecting(records), key: PhantomData }
    }
}

impl<K: Key> Iterator for TypedScan<'_, K> {
    type Item = Result<(K, Vec<u8>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.scan.next()?.and_then(|(key, value)| Ok((K::decode(&key)?, value))))
    }
}

fn encoded<K>(key: &impl AsKey<K>) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

fn encoded_bound<K: Key>(bound: Bound<&K>) -> Bound<Vec<u8>> {
    bound.map(|key| encoded::<K>(key))
}
