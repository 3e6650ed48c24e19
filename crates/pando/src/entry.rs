//! A key of a map, and the step that gives it a value.

use crate::{Error, Map};

/// One atomic step on a key of a [`Map`]: changes the value of a present key, or inserts one for an
/// absent key. Nothing happens before [`or_insert`](Self::or_insert),
/// [`or_insert_with`](Self::or_insert_with) or [`or_absent`](Self::or_absent), which take the step.
/// No other thread sees the key between the two parts, or changes it there.
///
/// Unlike an entry of the standard library, it has read nothing yet and locks nothing, and cannot
/// say whether the key is present.
///
/// ```
/// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
/// let map = pool.map("letters")?;
/// for letter in ["a", "b", "a"] {
///     map.entry(letter).and_modify(|count| count[0] += 1).or_insert([1])?;
/// }
/// assert_eq!(map.get("a")?, Some(vec![2]));
/// # Ok::<(), pando::Error>(())
/// ```
#[must_use = "an entry does nothing until `or_insert`, `or_insert_with` or `or_absent` is called"]
pub struct Entry<'map, K, F = fn(&mut Vec<u8>)> {
    map: &'map Map,
    key: K,
    /// Changes the value of a present key.
    change: Option<F>,
}

impl Map {
    /// The key, for one atomic step that reads and writes its value ([`Entry`]).
    pub fn entry<K: AsRef<[u8]>>(&self, key: K) -> Entry<'_, K> {
        Entry { map: self, key, change: None }
    }
}

impl<'map, K: AsRef<[u8]>, F: FnMut(&mut Vec<u8>)> Entry<'map, K, F> {
    /// The key.
    pub fn key(&self) -> &[u8] {
        self.key.as_ref()
    }

    /// Changes the value of a present key, after the changes that were given before. `change` may
    /// be called more than once, each time with the present value; the last call counts. The pool
    /// reclaims no space while it runs, so it should be short, and it must not use the pool.
    pub fn and_modify(
        self,
        mut change: impl FnMut(&mut Vec<u8>),
    ) -> Entry<'map, K, impl FnMut(&mut Vec<u8>)> {
        let Self { map, key, change: mut first } = self;
        let both = move |value: &mut Vec<u8>| {
            first.iter_mut().for_each(|first| first(value));
            change(value);
        };
        Entry { map, key, change: Some(both) }
    }

    /// Changes the value of a present key, or inserts this one for an absent key. Returns the value
    /// that the key has then.
    ///
    /// # Errors
    ///
    /// As [`Map::upsert`].
    pub fn or_insert(self, value: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        self.or_insert_with(|| value)
    }

    /// As [`or_insert`](Self::or_insert); `value` is called at most once, and only if the key was
    /// found absent. It must not use the pool.
    ///
    /// # Errors
    ///
    /// As [`Map::upsert`].
    pub fn or_insert_with<V: AsRef<[u8]>>(
        self,
        value: impl FnOnce() -> V,
    ) -> Result<Vec<u8>, Error> {
        let (mut value, mut inserted) = (Some(value), None);
        let absent = |new: &mut Vec<u8>| {
            inserted = inserted.take().or_else(|| value.take().map(|value| value()));
            inserted.iter().for_each(|value| new.extend_from_slice(value.as_ref()));
            true
        };
        // The key is present then.
        self.take_step(absent).map(Option::unwrap_or_default)
    }

    /// Changes the value of a present key, and leaves an absent key absent. Returns the value that
    /// the key has then, or `None` if it is absent.
    ///
    /// # Errors
    ///
    /// As [`Map::upsert`].
    pub fn or_absent(self) -> Result<Option<Vec<u8>>, Error> {
        self.take_step(|_| false)
    }

    /// Takes the step. `absent` puts the value of an absent key into the vector, if it is to be
    /// inserted.
    fn take_step(
        self,
        mut absent: impl FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Self { map, key, mut change } = self;
        let mut left = None;
        map.modify(key, |found, new| {
            let (is_there, is_changed) = match (found, &mut change) {
                (None, _) => {
                    let is_inserted = absent(new);
                    (is_inserted, is_inserted)
                }
                (Some(found), None) => {
                    new.extend_from_slice(found);
                    (true, false)
                }
                (Some(found), Some(change)) => {
                    new.extend_from_slice(found);
                    change(new);
                    (true, true)
                }
            };
            left = is_there.then(|| new.clone());
            is_changed
        })?;
        Ok(left)
    }
}

impl<K: AsRef<[u8]>, F> std::fmt::Debug for Entry<'_, K, F> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (map, key) = (self.map.name(), self.key.as_ref().escape_ascii().to_string());
        formatter.debug_struct("Entry").field("map", &map).field("key", &key).finish()
    }
}
