//! The index of a map while the log is replayed: writes of a page that is damaged are left out.
//!
//! | step | afterwards |
//! | --- | --- |
//! | a write needs a page, and the page is damaged | the page is noted; from then on its loads fail with the same error |
//! | the replay has ended | the records that memory has of the page are forgotten, because later ones are lacking |
//!
//! So no read finds a version that a commit has replaced. No checkpoint succeeds, and the log keeps
//! all commits: the next opening does the same, or replays them, if it can read the page.

use std::sync::Arc;

use pando_index::{Cursor, Intent, KeyRange, Limits, Order, RangeIndex, Result, Upserted};
use pando_pmem::Domain;

use crate::cache::Cache;
use crate::error::damaged_page;
use crate::maps::{MapIndex, Prefix};

/// See [the module](self).
#[derive(Debug)]
pub(crate) struct Skipping<D: Domain>(MapIndex<Arc<Cache<D>>>);

impl<D: Domain> Skipping<D> {
    pub fn new(cache: Arc<Cache<D>>, number: u64) -> Self {
        Self(MapIndex { cache, prefix: Prefix::of(number) })
    }

    /// The answer of a write; `None` if it is left out.
    fn answer<T>(&self, written: Result<T>) -> Result<Option<T>> {
        let error = match written {
            Ok(written) => return Ok(Some(written)),
            Err(error) => error,
        };
        match damaged_page(&error) {
            Some(page) => {
                self.0.cache.note_not_replayed(page, &error.to_string());
                Ok(None)
            }
            None => Err(error),
        }
    }
}

impl<D: Domain> RangeIndex for Skipping<D> {
    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn write(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted> {
        self.0.write(key, value, intent)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.answer(self.0.put(key, value)).map(drop)
    }

    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.0.read(key, visit)
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        Ok(self.answer(self.0.remove(key))?.unwrap_or(false))
    }

    fn compare_remove(&self, key: &[u8], expected: &[u8]) -> Result<()> {
        self.0.compare_remove(key, expected)
    }

    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>> {
        self.0.scan(range, order)
    }

    fn len(&self) -> Result<u64> {
        self.0.len()
    }
}
