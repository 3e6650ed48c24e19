//! The peer `fjall`: crate fjall 3, a log-structured merge tree with a journal.
//!
//! Settings: the defaults, which the documentation calls those of RocksDB, and a block cache of
//! 1 GiB ("20-25 % of the available memory, or more if the data set fits into memory"). The
//! feature `lz4` is off, so blocks are not compressed: the values of this harness do not compress.
//! With a smaller cache, a memtable has an eighth of its bytes at most.
//!
//! | system | settings | survives |
//! | --- | --- | --- |
//! | `fjall` | the default: a write is in the operating system's buffers when it returns | a process crash |
//! | `fjall:sync` | `persist(PersistMode::SyncData)` after each write | power loss |
//!
//! `insert` replaces, and `remove` does not say whether a record was there. So `insert_new` and
//! `delete` look first. The two steps are not atomic; the threads of this harness insert and delete
//! different keys. With fjall's transactions they would be, at a higher cost.
//!
//! `Keyspace::len` walks all records, so the count is a true one.

use std::path::Path;

use ::fjall::{Database, Guard, Iter, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::entry::BuildError;
use super::folder::visit_range;
use crate::system::{Order, Refusal, Scan, System};

/// The default of fjall.
const MEMTABLE_BYTES: u64 = 64 << 20;

/// A keyspace in a database of its own.
pub struct Tree {
    database: Database,
    records: Keyspace,
    is_synced: bool,
}

impl Tree {
    /// The keyspace in `folder`, created if it does not exist, with so many bytes of cache; with
    /// `is_synced`, each write is synced.
    pub fn open(folder: &Path, cache_bytes: u64, is_synced: bool) -> Result<Self, BuildError> {
        let database = Database::builder(folder.join("fjall")).cache_size(cache_bytes).open()?;
        let memtable_bytes = MEMTABLE_BYTES.min(cache_bytes / 8);
        let options = || KeyspaceCreateOptions::default().max_memtable_size(memtable_bytes);
        let records = database.keyspace("bench", options)?;
        Ok(Self { database, records, is_synced })
    }

    #[inline]
    fn persist(&self) -> Result<(), Refusal> {
        if self.is_synced {
            self.database.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl System for Tree {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        if self.records.contains_key(key)? {
            return Ok(false);
        }
        self.upsert(key, value)?;
        Ok(true)
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.records.insert(key, value)?;
        self.persist()
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        Ok(self.records.get(key)?.map(|value| visit(&value)).is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        if !self.records.contains_key(key)? {
            return Ok(false);
        }
        self.records.remove(key)?;
        self.persist()?;
        Ok(true)
    }

    fn scan(&self, scan: Scan<'_>, visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        let records: Iter = match order {
            Order::Ascending => self.records.range(from..),
            Order::Descending => self.records.range(..=from),
        };
        visit_range(records.map(Guard::into_inner), limit, order, visit)
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.records.len()? as u64)
    }
}
