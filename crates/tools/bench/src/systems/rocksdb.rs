//! The peer RocksDB, through crate rocksdb 0.25 (RocksDB 11.8): a log-structured merge tree.
//!
//! Settings: those of RocksDB's wiki, "Setup Options and Basic Tuning", under "Other General
//! Options" ("will get you reasonable out-of-the-box performance"). They are dynamic level bytes,
//! six background jobs, `bytes_per_sync` of 1 MiB, compaction priority `MinOverlappingRatio`,
//! blocks of 16 KiB and a Bloom filter of 10 bits. Index and filter blocks are in the cache, and
//! those of level 0 are pinned. The block cache has 1 GiB. Built without compression: the values of
//! this harness do not compress.
//!
//! | system | settings | survives |
//! | --- | --- | --- |
//! | `rocksdb` | the default: a write is in the log, in the operating system's buffers, when it returns | a process crash |
//! | `rocksdb:sync` | `WriteOptions::set_sync(true)` | power loss |
//!
//! `put` replaces, and `delete` does not say whether a record was there. So `insert_new` and
//! `delete` look first. The two steps are not atomic; the threads of this harness insert and delete
//! different keys. With RocksDB's transactions they would be, at a higher cost.
//!
//! RocksDB only estimates the number of records: the count is a scan.

use std::path::Path;

use ::rocksdb::{
    BlockBasedOptions, Cache, CompactionPri, DB, DBRawIterator, Options, WriteOptions,
};

use super::entry::BuildError;
use crate::system::{Order, Refusal, Scan, System};

/// Threads for flushes and compactions.
const BACKGROUND_JOBS: i32 = 6;
/// Bytes after which a background write is handed to the device.
const BYTES_PER_SYNC: u64 = 1 << 20;
/// Bytes of a block.
const BLOCK_BYTES: usize = 16 << 10;
/// Bits of the Bloom filter for each key.
const BLOOM_BITS: f64 = 10.0;

/// A database with one column family.
pub struct Tree {
    records: DB,
    write: WriteOptions,
}

impl Tree {
    /// The database in `folder`, created if it does not exist, with so many bytes of cache; with
    /// `is_synced`, each write is synced.
    pub fn open(folder: &Path, cache_bytes: u64, is_synced: bool) -> Result<Self, BuildError> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(cache_bytes as usize));
        blocks.set_block_size(BLOCK_BYTES);
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
        blocks.set_bloom_filter(BLOOM_BITS, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_max_background_jobs(BACKGROUND_JOBS);
        options.set_bytes_per_sync(BYTES_PER_SYNC);
        options.set_compaction_pri(CompactionPri::MinOverlappingRatio);
        options.set_block_based_table_factory(&blocks);
        let mut write = WriteOptions::default();
        write.set_sync(is_synced);
        Ok(Self { records: DB::open(&options, folder.join("rocksdb"))?, write })
    }

    fn is_there(&self, key: &[u8]) -> Result<bool, Refusal> {
        Ok(self.records.get_pinned(key)?.is_some())
    }
}

impl System for Tree {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        if self.is_there(key)? {
            return Ok(false);
        }
        self.upsert(key, value)?;
        Ok(true)
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        Ok(self.records.put_opt(key, value, &self.write)?)
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        Ok(self.records.get_pinned(key)?.map(|value| visit(&value)).is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        if !self.is_there(key)? {
            return Ok(false);
        }
        self.records.delete_opt(key, &self.write)?;
        Ok(true)
    }

    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        let mut records: DBRawIterator<'_> = self.records.raw_iterator();
        match order {
            Order::Ascending => records.seek(from),
            Order::Descending => records.seek_for_prev(from),
        }
        for _ in 0..limit {
            let Some((key, value)) = records.item() else { break };
            visit(key, value);
            match order {
                Order::Ascending => records.next(),
                Order::Descending => records.prev(),
            }
        }
        // An iterator ends where it fails, too.
        Ok(records.status()?)
    }

    fn count(&self) -> Result<u64, Refusal> {
        let mut count = 0;
        self.scan(Scan::upwards(&[]), |_, _| count += 1)?;
        Ok(count)
    }
}
