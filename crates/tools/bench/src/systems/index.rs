//! Any [`RangeIndex`] of Pando as a system: keys and values are handed on as they are.
//!
//! It goes through the public contract and nothing else, so what is measured is what a user of
//! byte-string keys gets.

use std::ops::Bound;

use pando_index::{Cursor, Error, KeyRange, RangeIndex};

use crate::system::{Order, Refusal, Scan, System};

/// An index on the heap.
pub struct Indexed<I>(I);

impl<I: RangeIndex> Indexed<I> {
    /// `index` as a system.
    pub fn new(index: I) -> Self {
        Self(index)
    }
}

/// Every key from `from`, included, in the direction of `order`.
pub fn range_from(from: &[u8], order: Order) -> KeyRange {
    match order {
        Order::Ascending => KeyRange::from(from),
        Order::Descending => {
            KeyRange { low: Bound::Unbounded, high: Bound::Included(from.to_vec()) }
        }
    }
}

/// Hands the first `limit` records of `cursor` to `visit`.
pub fn visit_from(
    mut cursor: Box<dyn Cursor + '_>,
    limit: u64,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<(), Refusal> {
    for _ in 0..limit {
        let Some((key, value)) = cursor.next()? else { break };
        visit(key, value);
    }
    Ok(())
}

/// Whether an insert found its key absent.
pub fn is_new(inserted: Result<(), Error>) -> Result<bool, Refusal> {
    match inserted {
        Ok(()) => Ok(true),
        Err(Error::KeyExists) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl<I: RangeIndex> System for Indexed<I> {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        is_new(self.0.insert(key, value))
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.0.upsert(key, value)?;
        Ok(())
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        let mut visit = Some(visit);
        let found = self.0.read(key, &mut |value| {
            if let Some(visit) = visit.take() {
                visit(value);
            }
        });
        Ok(found?)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        Ok(self.0.remove(key)?)
    }

    fn scan(&self, scan: Scan<'_>, visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        visit_from(self.0.scan(range_from(from, order), order)?, limit, visit)
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.0.len()?)
    }
}
