//! The peer LMDB, through crate heed 0.22: a copy-on-write B+-tree in a mapped file, one writer at
//! a time, readers that never wait.
//!
//! Each write is a transaction of its own, as a map that returns durable writes must have it, and
//! each read a read-only one. Settings: read transactions that are not bound to threads
//! (`MDB_NOTLS`), which heed recommends for many threads; no read-ahead (`MDB_NORDAHEAD`), which
//! `lmdb.h` recommends for random reads; and
//!
//! | system | settings | survives |
//! | --- | --- | --- |
//! | `lmdb` | `MDB_WRITEMAP` and `MDB_NOSYNC`: "the fastest", writes go straight to the mapped file and nothing is synced | a process crash |
//! | `lmdb:sync` | the default: two syncs a commit | power loss |
//!
//! (`lmdb.h`: with `MDB_NOSYNC` "a system crash can corrupt the database". That concerns power
//! loss.) In heed 0.23 the type of a table has the lifetime of its environment, so one value cannot
//! hold both. So this is 0.22, over the same LMDB 0.9.
//!
//! The file is mapped at the size that a pool may grow to; it takes what is written. The number of
//! records is LMDB's own, which is a true one.

use std::ops::Bound::{Included, Unbounded};
use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, PutFlags, WithoutTls};

use super::entry::{BuildError, BuildOptions};
use crate::system::{Order, Refusal, Scan, System};

/// Threads that may read at once; the harness has at most this many.
const MAX_READERS: u32 = 1024;

/// The one table of an environment.
pub struct Table {
    environment: Env<WithoutTls>,
    records: Database<Bytes, Bytes>,
}

impl Table {
    /// The table in `folder`, created if it does not exist; with `is_synced`, each write is synced.
    pub fn open(
        folder: &Path,
        options: &BuildOptions,
        is_synced: bool,
    ) -> Result<Self, BuildError> {
        let mut flags = EnvFlags::NO_READ_AHEAD;
        if !is_synced {
            flags |= EnvFlags::WRITE_MAP | EnvFlags::NO_SYNC;
        }
        let mut open = EnvOpenOptions::new().read_txn_without_tls();
        // Whole pages, of any system.
        let map_bytes = usize::try_from(options.max_pool_bytes)?.next_multiple_of(1 << 20);
        open.map_size(map_bytes).max_readers(MAX_READERS);
        // SAFETY: the flags demand that a crash of the system may damage the file, which goes with
        // the system, and that nothing writes through a stray pointer into the map, which safe code
        // cannot. The file lies in a folder of this system alone, so no other process writes it.
        let environment = unsafe {
            open.flags(flags);
            open.open(folder)?
        };
        let mut transaction = environment.write_txn()?;
        let records = environment.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Self { environment, records })
    }
}

impl System for Table {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        let mut transaction = self.environment.write_txn()?;
        let put = self.records.put_with_flags(&mut transaction, PutFlags::NO_OVERWRITE, key, value);
        match put {
            Ok(()) => {
                transaction.commit()?;
                Ok(true)
            }
            Err(heed::Error::Mdb(heed::MdbError::KeyExist)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let mut transaction = self.environment.write_txn()?;
        self.records.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        let transaction = self.environment.read_txn()?;
        Ok(self.records.get(&transaction, key)?.map(visit).is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        let mut transaction = self.environment.write_txn()?;
        let is_removed = self.records.delete(&mut transaction, key)?;
        transaction.commit()?;
        Ok(is_removed)
    }

    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        let transaction = self.environment.read_txn()?;
        match order {
            Order::Ascending => {
                let mut records = self.records.range(&transaction, &(Included(from), Unbounded))?;
                for _ in 0..limit {
                    let Some((key, value)) = records.next().transpose()? else { break };
                    visit(key, value);
                }
            }
            Order::Descending => {
                let mut records =
                    self.records.rev_range(&transaction, &(Unbounded, Included(from)))?;
                for _ in 0..limit {
                    let Some((key, value)) = records.next().transpose()? else { break };
                    visit(key, value);
                }
            }
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        let transaction = self.environment.read_txn()?;
        Ok(self.records.len(&transaction)?)
    }

    /// The pages ever used, free ones included: LMDB keeps nothing on the heap.
    fn footprint_bytes(&self) -> Option<u64> {
        let transaction = self.environment.read_txn().ok()?;
        let page_bytes = u64::from(self.records.stat(&transaction).ok()?.page_size);
        Some((self.environment.info().last_page_number as u64 + 1) * page_bytes)
    }
}
