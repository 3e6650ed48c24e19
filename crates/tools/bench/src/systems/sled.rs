//! The peer `sled`: crate sled 0.34, a Bw-tree-like map over a log; 1.0 is an alpha that its author
//! advises against.
//!
//! Settings: `Mode::HighThroughput` and a page cache of 1 GiB (the default). A write stands in a
//! buffer of the log until the buffer is full, `flush` is called or, by default, half a second has
//! gone by.
//!
//! | system | settings | survives |
//! | --- | --- | --- |
//! | `sled` | `flush` after each write | a process crash |
//! | `sled:lazy` | a flush each 500 ms, the default | nothing that is younger than that |
//!
//! There is no `sled:sync`. The documentation of `flush` promises an `fsync`, but on Linux 0.34.7
//! writes and then calls `sync_file_range` (`pagecache/iobuf.rs`, `write_to_log`). By its manual
//! page that call writes no metadata of the file, and does not empty the device's cache. So `flush`
//! waits for the device, and a write is only said to survive a process crash.
//!
//! `Tree::len` walks all records, so the count is a true one.

use std::path::Path;

use ::sled::{Config, Db, Mode};

use super::entry::BuildError;
use super::folder::visit_range;
use crate::system::{Order, Refusal, Scan, System};

/// The default tree of a database.
pub struct Tree {
    records: Db,
    is_flushed: bool,
}

impl Tree {
    /// The tree in `folder`, created if it does not exist, with so many bytes of cache; with
    /// `is_flushed`, each write is flushed.
    pub fn open(folder: &Path, cache_bytes: u64, is_flushed: bool) -> Result<Self, BuildError> {
        let records = Config::new()
            .path(folder.join("sled"))
            .mode(Mode::HighThroughput)
            .cache_capacity(cache_bytes)
            .open()?;
        Ok(Self { records, is_flushed })
    }

    #[inline]
    fn flush(&self) -> Result<(), Refusal> {
        if self.is_flushed {
            self.records.flush()?;
        }
        Ok(())
    }
}

impl System for Tree {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        let is_new = self.records.compare_and_swap(key, None::<&[u8]>, Some(value))?.is_ok();
        self.flush()?;
        Ok(is_new)
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.records.insert(key, value)?;
        self.flush()
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        Ok(self.records.get(key)?.map(|value| visit(&value)).is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        let is_removed = self.records.remove(key)?.is_some();
        self.flush()?;
        Ok(is_removed)
    }

    fn scan(&self, scan: Scan<'_>, visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        let records = match order {
            Order::Ascending => self.records.range(from..),
            Order::Descending => self.records.range(..=from),
        };
        visit_range(records, limit, order, visit)
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.records.len() as u64)
    }
}
