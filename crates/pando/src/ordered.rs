//! The ends of a map, and the removal of many records.

use std::borrow::Cow;

use pando_index::{ATTEMPTS, Error as IndexError, KeyRange, Order};

use crate::scan::OwnedRecord;
use crate::{Error, Map};

/// Keys that [`Map::clear`] removes by one call.
const CLEARED_AT_ONCE: usize = 64;

impl Map {
    /// The record with the smallest key, or `None` if there is no record. While other threads
    /// write: the record was in the map at an instant of the call. No key that was present during
    /// the whole call is smaller.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyThreads`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert("beech", "2")?;
    /// map.insert("aspen", "1")?;
    /// assert_eq!(map.first()?, Some((b"aspen".to_vec(), b"1".to_vec())));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn first(&self) -> Result<Option<OwnedRecord>, Error> {
        self.naming_map(self.at_edge(Order::Ascending))
    }

    /// The record with the largest key; otherwise as [`first`](Self::first).
    ///
    /// # Errors
    ///
    /// As [`first`](Self::first).
    pub fn last(&self) -> Result<Option<OwnedRecord>, Error> {
        self.naming_map(self.at_edge(Order::Descending))
    }

    /// Removes the record with the smallest key and returns it, or returns `None` if there is no
    /// record. While other threads write: the removal is one step with the value that is returned,
    /// so each record is returned to one caller. The choice of the key is a step before: no key
    /// that was present during the whole call is smaller, but one that another thread has inserted
    /// meanwhile may be. In a transaction
    /// ([`Transaction::pop_first`](crate::Transaction::pop_first)) both are one step.
    ///
    /// # Errors
    ///
    /// As [`first`](Self::first) and [`remove`](Self::remove). After [`Error::AppliedNotDurable`]
    /// the record is removed, and not returned.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let queue = pool.map("queue")?;
    /// queue.insert("1", "first")?;
    /// queue.insert("2", "second")?;
    /// assert_eq!(queue.pop_first()?, Some((b"1".to_vec(), b"first".to_vec())));
    /// assert_eq!(queue.pop_last()?, Some((b"2".to_vec(), b"second".to_vec())));
    /// assert_eq!(queue.pop_first()?, None);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn pop_first(&self) -> Result<Option<OwnedRecord>, Error> {
        self.pop(Order::Ascending, |_, _| Ok(()))
    }

    /// Removes the record with the largest key and returns it; otherwise as
    /// [`pop_first`](Self::pop_first).
    ///
    /// # Errors
    ///
    /// As [`pop_first`](Self::pop_first).
    pub fn pop_last(&self) -> Result<Option<OwnedRecord>, Error> {
        self.pop(Order::Descending, |_, _| Ok(()))
    }

    /// Removes each record for which `keep` returns false, and returns how many. While other
    /// threads write: each record is a step of its own, and is removed only with a value for which
    /// `keep` has returned false. If another thread replaces the value meanwhile, `keep` is called
    /// again, with the new one. Each record that is present during the whole call is visited; one
    /// that is inserted meanwhile may be. Keys ascend. `keep` may use the map.
    ///
    /// On return all removals are as durable as those of single calls. With
    /// [`Acknowledge::Synced`](crate::Acknowledge::Synced) the call waits for the log once.
    ///
    /// # Errors
    ///
    /// As [`first`](Self::first) and [`remove`](Self::remove). The records before the error are
    /// removed, if they were to be.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert("aspen", "1")?;
    /// map.insert("beech", "2")?;
    /// assert_eq!(map.retain(|key, _| key > b"b")?, 1);
    /// assert!(!map.contains_key("aspen")?);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) -> Result<u64, Error> {
        self.try_retain(|key, value| Ok(keep(key, value)))
    }

    /// Removes the records, and returns how many. While other threads write: each record is a step
    /// of its own. A record that is present during the whole call is removed, with the value that
    /// it has then. One that is inserted meanwhile may be. To get rid of a large map,
    /// [`Pool::drop_map`](crate::Pool::drop_map) is faster.
    ///
    /// On return all removals are as durable as those of single calls. With
    /// [`Acknowledge::Synced`](crate::Acknowledge::Synced) the call waits for the log once.
    ///
    /// # Errors
    ///
    /// As [`first`](Self::first) and [`remove`](Self::remove). Some records may be removed before
    /// the error.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("trees")?;
    /// map.insert("aspen", "1")?;
    /// assert_eq!(map.clear()?, 1);
    /// assert!(map.is_empty()?);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn clear(&self) -> Result<u64, Error> {
        self.removing(|removed| {
            let (mut scan, mut keys) = (self.range(..), Vec::new());
            loop {
                while keys.len() < CLEARED_AT_ONCE
                    && let Some((key, _)) = scan.next_record()?
                {
                    keys.push(key.to_vec());
                }
                if keys.is_empty() {
                    return Ok(());
                }
                let borrowed: Vec<_> = keys.iter().map(Vec::as_slice).collect();
                *removed += self.naming_map(self.index().remove_many(&borrowed))?;
                keys.clear();
            }
        })
    }

    /// The first record in `order`.
    fn at_edge(&self, order: Order) -> Result<Option<OwnedRecord>, IndexError> {
        let mut cursor = self.index().scan(KeyRange::all(), order)?;
        cursor.expect(1);
        Ok(cursor.next()?.map(|(key, value)| (key.to_vec(), value.to_vec())))
    }

    /// Removes the first record in `order` and returns it. An error of `check` leaves it.
    pub(crate) fn pop(
        &self,
        order: Order,
        check: impl Fn(&[u8], &[u8]) -> Result<(), Error>,
    ) -> Result<Option<OwnedRecord>, Error> {
        for _ in 0..ATTEMPTS {
            let Some((key, value)) = self.naming_map(self.at_edge(order))? else {
                return self.acknowledged(Ok(None));
            };
            check(&key, &value)?;
            match self.index().compare_remove(&key, &value) {
                // Another thread was first.
                Err(IndexError::KeyNotFound | IndexError::ValueMismatch) => {}
                answer => return self.acknowledged(answer.map(|()| Some((key, value)))),
            }
        }
        self.naming_map(Err(IndexError::contradiction()))
    }

    /// As [`retain`](Self::retain). An error of `keep` ends it.
    pub(crate) fn try_retain(
        &self,
        mut keep: impl FnMut(&[u8], &[u8]) -> Result<bool, Error>,
    ) -> Result<u64, Error> {
        self.removing(|removed| {
            let mut scan = self.range(..);
            while let Some((key, value)) = scan.next_record()? {
                *removed += u64::from(self.remove_unless(key, value, &mut keep)?);
            }
            Ok(())
        })
    }

    /// Removes the record unless `keep` returns true for its value, which was `value` just before.
    /// Returns whether it was removed.
    fn remove_unless(
        &self,
        key: &[u8],
        value: &[u8],
        keep: &mut impl FnMut(&[u8], &[u8]) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let mut value = Cow::Borrowed(value);
        for _ in 0..ATTEMPTS {
            if keep(key, &value)? {
                return Ok(false);
            }
            match self.index().compare_remove(key, &value) {
                Ok(()) => return Ok(true),
                Err(IndexError::KeyNotFound) => return Ok(false),
                Err(IndexError::ValueMismatch) => {}
                Err(error) => return self.naming_map(Err(error)),
            }
            match self.get(key)? {
                Some(changed) => value = changed.into(),
                None => return Ok(false),
            }
        }
        self.naming_map(Err(IndexError::contradiction()))
    }

    /// Calls `remove`, which counts the records that it removes; returns the count when they are
    /// durable, if the handle waits for that.
    fn removing(&self, remove: impl FnOnce(&mut u64) -> Result<(), Error>) -> Result<u64, Error> {
        let mut removed = 0;
        let done = remove(&mut removed);
        // Also after an error: some records are removed.
        let synced = self.acknowledged(Ok(()));
        done.and(synced).map(|()| removed)
    }
}
