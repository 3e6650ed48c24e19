//! A key of a typed map, and the step that gives it a value.

use std::marker::PhantomData;

use crate::value::{AsValue, Value, ValueError};
use crate::{Error, Map};

/// One atomic step on a key of a [`TypedMap`](crate::TypedMap), as [`Entry`](crate::Entry) is on a
/// key of a [`Map`]: it changes the value of a present key, or inserts one for an absent key.
///
/// A stored value that is not a `V` stays, and the step returns [`Error::Value`].
///
/// ```
/// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
/// let counts = pool.map("letters")?.typed::<String>().with_values::<u64>();
/// for letter in ["a", "b", "a"] {
///     counts.entry(letter)?.and_modify(|count| *count += 1).or_insert(1)?;
/// }
/// assert_eq!(counts.get("a")?, Some(2));
/// # Ok::<(), pando::Error>(())
/// ```
#[must_use = "an entry does nothing until `or_insert`, `or_insert_with` or `or_absent` is called"]
pub struct TypedEntry<'map, V: Value, F = fn(&mut <V as Value>::Owned)> {
    map: &'map Map,
    key: Vec<u8>,
    /// Changes the value of a present key.
    change: Option<F>,
    value: PhantomData<fn() -> V>,
}

impl<'map, V: Value> TypedEntry<'map, V> {
    pub(crate) fn new(map: &'map Map, key: Vec<u8>) -> Self {
        Self { map, key, change: None, value: PhantomData }
    }
}

impl<'map, V: Value, F: FnMut(&mut V::Owned)> TypedEntry<'map, V, F> {
    /// The encoded key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// As [`Entry::and_modify`](crate::Entry::and_modify).
    pub fn and_modify(
        self,
        mut change: impl FnMut(&mut V::Owned),
    ) -> TypedEntry<'map, V, impl FnMut(&mut V::Owned)> {
        let Self { map, key, change: mut first, value } = self;
        let both = move |value: &mut V::Owned| {
            first.iter_mut().for_each(|first| first(value));
            change(value);
        };
        TypedEntry { map, key, change: Some(both), value }
    }

    /// As [`Entry::or_insert`](crate::Entry::or_insert).
    ///
    /// # Errors
    ///
    /// As [`Map::upsert`]; [`Error::Value`].
    pub fn or_insert(self, value: impl AsValue<V>) -> Result<V::Owned, Error> {
        self.or_insert_with(|| value)
    }

    /// As [`Entry::or_insert_with`](crate::Entry::or_insert_with).
    ///
    /// # Errors
    ///
    /// As [`or_insert`](Self::or_insert).
    pub fn or_insert_with<W: AsValue<V>>(
        self,
        value: impl FnOnce() -> W,
    ) -> Result<V::Owned, Error> {
        let (map, mut value, mut inserted) = (self.map, Some(value), None);
        let absent = |new: &mut Vec<u8>| {
            inserted = inserted.take().or_else(|| value.take().map(|value| value()));
            if let Some(value) = &inserted {
                new.extend_from_slice(&value.value_bytes()?);
            }
            Ok(true)
        };
        let left = self.take_step(absent)?;
        // The key is present then.
        left.ok_or_else(|| Error::of_index(map.name(), pando_index::Error::contradiction()))
    }

    /// As [`Entry::or_absent`](crate::Entry::or_absent).
    ///
    /// # Errors
    ///
    /// As [`or_insert`](Self::or_insert).
    pub fn or_absent(self) -> Result<Option<V::Owned>, Error> {
        self.take_step(|_| Ok(false))
    }

    /// Takes the step, and returns the value that the key has then. `absent` puts the value of an
    /// absent key into the vector, if it is to be inserted.
    fn take_step(
        self,
        mut absent: impl FnMut(&mut Vec<u8>) -> Result<bool, ValueError>,
    ) -> Result<Option<V::Owned>, Error> {
        let Self { map, key, mut change, .. } = self;
        let mut left = Ok(None);
        map.modify(key, |found, new| {
            let mut step = || -> Result<_, ValueError> {
                let Some(found) = found else {
                    let is_inserted = absent(new)?;
                    let value = is_inserted.then(|| V::decode(new.clone())).transpose()?;
                    return Ok((value, is_inserted));
                };
                let mut value = V::decode(found.to_vec())?;
                let Some(change) = &mut change else { return Ok((Some(value), false)) };
                change(&mut value);
                new.extend_from_slice(&value.value_bytes()?);
                Ok((Some(value), true))
            };
            let (value, is_changed) = match step() {
                Ok((value, is_changed)) => (Ok(value), is_changed),
                Err(error) => (Err(error), false),
            };
            left = value;
            is_changed
        })?;
        Ok(left?)
    }
}

impl<V: Value, F> std::fmt::Debug for TypedEntry<'_, V, F> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (map, key) = (self.map.name(), self.key.escape_ascii().to_string());
        formatter.debug_struct("TypedEntry").field("map", &map).field("key", &key).finish()
    }
}
