//! The reference index: a `BTreeMap` under a lock, which is correct by inspection. Not latch-free,
//! not durable.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{Cursor, Error, Intent, KeyRange, Limits, Order, RangeIndex, Record, Upserted};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// A [`RangeIndex`] in memory behind a lock: the model for comparisons.
///
/// Its cursor searches each record again, as if every leaf held one record.
pub struct Reference {
    records: RwLock<Records>,
    limits: Limits,
}

impl Default for Reference {
    fn default() -> Self {
        Self::with_limits(Limits { max_key_bytes: 65_535, max_value_bytes: 1 << 30 })
    }
}

impl Reference {
    /// An empty index with keys and values up to `limits`.
    pub fn with_limits(limits: Limits) -> Self {
        Self { records: RwLock::default(), limits }
    }

    // No operation panics while it holds the lock, so the map behind a poisoned lock is consistent.
    fn records(&self) -> RwLockReadGuard<'_, Records> {
        self.records.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn records_mut(&self) -> RwLockWriteGuard<'_, Records> {
        self.records.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_key(&self, key: &[u8]) -> Result<(), Error> {
        let (found_bytes, max_bytes) = (key.len(), self.limits.max_key_bytes);
        if found_bytes > max_bytes {
            return Err(Error::KeyTooLong { found_bytes, max_bytes });
        }
        Ok(())
    }

    fn check_record(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.check_key(key)?;
        let (found_bytes, max_bytes) = (value.len(), self.limits.max_value_bytes);
        if found_bytes > max_bytes {
            return Err(Error::ValueTooLong { found_bytes, max_bytes });
        }
        Ok(())
    }
}

impl RangeIndex for Reference {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn write(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted, Error> {
        self.check_record(key, value)?;
        let mut records = self.records_mut();
        intent.check(records.get(key).map(Vec::as_slice))?;
        Ok(match records.insert(key.to_vec(), value.to_vec()) {
            Some(_) => Upserted::Updated,
            None => Upserted::Inserted,
        })
    }

    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
        self.check_key(key)?;
        // Copied, so that a visitor that panics or calls back does not hold the lock.
        let value = self.records().get(key).cloned();
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        self.check_key(key)?;
        Ok(self.records_mut().remove(key).is_some())
    }

    fn compare_remove(&self, key: &[u8], expected: &[u8]) -> Result<(), Error> {
        self.check_key(key)?;
        let mut records = self.records_mut();
        Intent::Exchange { expected }.check(records.get(key).map(Vec::as_slice))?;
        records.remove(key);
        Ok(())
    }

    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>, Error> {
        Ok(Box::new(ReferenceCursor {
            index: self,
            rest: range,
            order,
            record: Default::default(),
        }))
    }

    fn len(&self) -> Result<u64, Error> {
        Ok(self.records().len() as u64)
    }
}

struct ReferenceCursor<'index> {
    index: &'index Reference,
    /// The rest of the range.
    rest: KeyRange,
    order: Order,
    record: (Vec<u8>, Vec<u8>),
}

impl Cursor for ReferenceCursor<'_> {
    fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        if holds_nothing(&self.rest) {
            return Ok(None);
        }
        let records = self.index.records();
        let bounds = (self.rest.low.as_ref(), self.rest.high.as_ref());
        let mut rest = records.range::<Vec<u8>, _>(bounds);
        let found = match self.order {
            Order::Ascending => rest.next(),
            Order::Descending => rest.next_back(),
        };
        let Some((key, value)) = found else { return Ok(None) };
        self.record = (key.clone(), value.clone());
        let passed = Bound::Excluded(key.clone());
        match self.order {
            Order::Ascending => self.rest.low = passed,
            Order::Descending => self.rest.high = passed,
        }
        Ok(Some((&self.record.0, &self.record.1)))
    }
}

/// Whether no key can lie in `range`: the ranges that `BTreeMap::range` panics on, among others.
fn holds_nothing(range: &KeyRange) -> bool {
    match (&range.low, &range.high) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (
            Bound::Included(low) | Bound::Excluded(low),
            Bound::Included(high) | Bound::Excluded(high),
        ) => low >= high,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_as_the_contract_says() {
        let index = Reference::default();
        assert!(index.is_empty().unwrap());
        index.insert(b"b", b"1").unwrap();
        assert!(matches!(index.insert(b"b", b"2"), Err(Error::KeyExists)));
        assert!(matches!(index.update(b"a", b"2"), Err(Error::KeyNotFound)));
        assert_eq!(index.upsert(b"a", b"3").unwrap(), Upserted::Inserted);
        assert_eq!(index.upsert(b"a", b"4").unwrap(), Upserted::Updated);
        assert!(matches!(index.compare_exchange(b"a", b"3", b"5"), Err(Error::ValueMismatch)));
        assert!(matches!(index.compare_exchange(b"c", b"3", b"5"), Err(Error::KeyNotFound)));
        index.compare_exchange(b"a", b"4", b"5").unwrap();
        assert_eq!(index.get(b"a").unwrap(), Some(b"5".to_vec()));
        assert_eq!(index.len().unwrap(), 2);
        let mut cursor = index.scan(KeyRange::from(b"a"..), Order::Descending).unwrap();
        assert_eq!(cursor.next().unwrap(), Some((b"b".as_slice(), b"1".as_slice())));
        assert_eq!(cursor.next().unwrap(), Some((b"a".as_slice(), b"5".as_slice())));
        assert_eq!(cursor.next().unwrap(), None);
        drop(cursor);
        assert!(index.remove(b"a").unwrap());
        assert!(!index.remove(b"a").unwrap());
        assert_eq!(index.get(b"a").unwrap(), None);
    }
}
