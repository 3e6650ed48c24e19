//! Any [`RangeIndex`] of Pando as a system: keys and values are handed on as they are.
//!
//! It calls the contract of `pando-index` and nothing else, as the public API does. So a figure is
//! what a user of byte-string keys gets, a virtual call an operation included, and the harness is
//! compiled once for all indexes of ours.

use std::sync::Arc;

use pando_index::{Error, RangeIndex};

use crate::system::{Refusal, Scan, System};

/// The room that a system takes, if it knows; what each is stands with [`System`].
pub trait Footprint: Send + Sync {
    /// See [`System::footprint_bytes`].
    fn footprint_bytes(&self) -> Option<u64> {
        None
    }

    /// See [`System::file_bytes`].
    fn file_bytes(&self) -> Option<u64> {
        None
    }
}

/// An index, and the pool that it lies in, if it does. With `PUTS`, an upsert is a put, which does
/// not say whether the key was present.
pub struct Indexed<const PUTS: bool = false> {
    // Dropped first: the pool is closed after its last index.
    index: Arc<dyn RangeIndex>,
    pool: Option<Box<dyn Footprint>>,
}

impl Indexed {
    /// An index on the heap.
    pub fn new(index: impl RangeIndex + 'static) -> Self {
        Self { index: Arc::new(index), pool: None }
    }

    /// An index in `pool`.
    pub fn in_pool(index: Arc<dyn RangeIndex>, pool: impl Footprint + 'static) -> Self {
        Self { index, pool: Some(Box::new(pool)) }
    }
}

impl Indexed<true> {
    /// An index whose records are put.
    pub fn with_puts(index: Arc<dyn RangeIndex>) -> Self {
        Self { index, pool: None }
    }
}

impl<const PUTS: bool> System for Indexed<PUTS> {
    #[inline]
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        match self.index.insert(key, value) {
            Ok(()) => Ok(true),
            Err(Error::KeyExists) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    #[inline]
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        match PUTS {
            true => self.index.put(key, value)?,
            false => drop(self.index.upsert(key, value)?),
        }
        Ok(())
    }

    #[inline]
    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        let mut visit = Some(visit);
        let found = self.index.read(key, &mut |value| {
            if let Some(visit) = visit.take() {
                visit(value);
            }
        });
        Ok(found?)
    }

    #[inline]
    fn get_many(&self, keys: &[&[u8]], mut visit: impl FnMut(usize, &[u8])) -> Result<(), Refusal> {
        self.index.read_many(keys, &mut |index, value| {
            if let Some(value) = value {
                visit(index, value);
            }
        })?;
        Ok(())
    }

    #[inline]
    fn upsert_many(&self, records: &[(&[u8], &[u8])]) -> Result<(), Refusal> {
        Ok(self.index.upsert_many(records)?)
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        Ok(self.index.remove(key)?)
    }

    #[inline]
    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let mut cursor = self.index.scan(scan.range(), scan.order)?;
        cursor.expect(scan.limit as usize);
        for _ in 0..scan.limit {
            let Some((key, value)) = cursor.next()? else { break };
            visit(key, value);
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.index.len()?)
    }

    fn footprint_bytes(&self) -> Option<u64> {
        self.pool.as_ref()?.footprint_bytes()
    }

    fn file_bytes(&self) -> Option<u64> {
        self.pool.as_ref()?.file_bytes()
    }
}
