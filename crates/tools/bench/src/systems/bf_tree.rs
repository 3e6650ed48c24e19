//! The peer `bf-tree`: crate bf-tree 0.5 of Microsoft, a B+-tree whose leaves have buffers of hot
//! records ("mini-pages") in front of them.
//!
//! Settings: the defaults, because "Bf-tree is designed to work well on various workloads that you
//! don't have to change the default configuration" (the documentation of `Config`). Exceptions are
//! the longest key and record, and leaves of 16 KiB instead of 4 KiB if a record is longer than 1
//! KiB. The leaves are in memory (`StorageBackend::Memory`, the default).
//!
//! | system | settings | survives |
//! | --- | --- | --- |
//! | `bf-tree` | no log | nothing |
//! | `bf-tree:log` | a write-ahead log, written each 50 µs (the default is 1 ms) in segments of 16 KiB (the default is 1 GiB; 64 KiB for long records) | a process crash |
//!
//! A write waits until a background thread has written its segment, so the interval is nearly the
//! latency. The whole segment is written each time, so it is small. The log's file is never synced,
//! so no system here survives power loss. After a crash the user must read the log and repeat its
//! writes; this adapter does so when it opens a folder with a log, one write after the other.
//!
//! `insert` replaces, and `delete` does not say whether a record was there. So `insert_new` and
//! `delete` read first. The two steps are not atomic; the threads of this harness insert and delete
//! different keys. Scans go upwards only. There is no number of records: the count is a scan.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::bf_tree::{
    BfTree, Config, LeafInsertResult, LeafReadResult, ScanReturnField, WalConfig, WalReader,
};

use super::entry::BuildError;
use crate::record::Shape;
use crate::system::{Order, Refusal, Scan, System};

/// The log in the system's folder.
const LOG: &str = "bench.log";
/// The log of an earlier system while it is read.
const OLD_LOG: &str = "old.log";
/// Longest record, key and value together, that 4 KiB leaves are left at.
const SMALL_RECORD_BYTES: usize = 1024;
/// Bytes of a leaf for longer records.
const LARGE_LEAF_BYTES: usize = 16 << 10;
/// Bytes of a log segment for records that are small, and for longer ones.
const SEGMENT_BYTES: [usize; 2] = [16 << 10, 64 << 10];
/// How often the log is written.
const LOG_INTERVAL: Duration = Duration::from_micros(50);
/// Bytes of a buffer on the stack; longer records are read into one that a thread keeps.
const STACK_BYTES: usize = 64;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A tree, with a log or without.
pub struct Tree {
    tree: BfTree,
    record_bytes: usize,
}

fn config(shape: Shape) -> Config {
    let record_bytes = shape.key_bytes + shape.value_bytes;
    let mut config = Config::default();
    config.cb_max_key_len(shape.key_bytes).max_fence_len(2 * shape.key_bytes);
    if record_bytes > SMALL_RECORD_BYTES {
        config.leaf_page_size(LARGE_LEAF_BYTES).cb_max_record_size(record_bytes);
    }
    config
}

fn failed(what: &str, reason: impl std::fmt::Debug) -> BuildError {
    format!("bf-tree refuses {what}: {reason:?}").into()
}

impl Tree {
    /// An empty tree without a log.
    pub fn in_memory(shape: Shape) -> Result<Self, BuildError> {
        Self::new(shape, config(shape))
    }

    /// A tree with a log in `folder`; what the log of an earlier tree there says is done again.
    pub fn with_log(folder: &Path, shape: Shape) -> Result<Self, BuildError> {
        let is_large = shape.key_bytes + shape.value_bytes > SMALL_RECORD_BYTES;
        let segment_bytes = SEGMENT_BYTES[usize::from(is_large)];
        let (log, old_log) = (folder.join(LOG), folder.join(OLD_LOG));
        if log.exists() {
            std::fs::rename(&log, &old_log)?;
        }
        let mut log_config = WalConfig::new(&log);
        log_config.flush_interval(LOG_INTERVAL).segment_size(segment_bytes);
        let mut config = config(shape);
        config.enable_write_ahead_log(Arc::new(log_config));
        let system = Self::new(shape, config)?;
        if old_log.exists() {
            system.replay(&old_log, segment_bytes)?;
            std::fs::remove_file(&old_log)?;
        }
        Ok(system)
    }

    fn new(shape: Shape, config: Config) -> Result<Self, BuildError> {
        let tree = BfTree::with_config(config, None)
            .map_err(|reason| failed(&format!("records of {shape:?}"), reason))?;
        Ok(Self { tree, record_bytes: shape.key_bytes + shape.value_bytes })
    }

    /// Does the writes of a log. An entry is the lengths of key and value as 2-byte little-endian
    /// numbers, the kind of write (0 inserts, 1 deletes), the key and the value.
    fn replay(&self, log: &Path, segment_bytes: usize) -> Result<(), BuildError> {
        for segment in WalReader::new(log, segment_bytes).segment_iter() {
            for (_, entry) in segment.entry_iter() {
                let malformed = || failed("its own log", entry);
                let ([key_low, key_high, _, _, kind], rest) =
                    entry.split_first_chunk().ok_or_else(malformed)?;
                let key_bytes = usize::from(u16::from_le_bytes([*key_low, *key_high]));
                let (key, value) = rest.split_at_checked(key_bytes).ok_or_else(malformed)?;
                match kind {
                    0 => self.upsert(key, value)?,
                    1 => self.tree.delete(key),
                    _ => return Err(malformed()),
                }
            }
        }
        Ok(())
    }

    /// Calls `work` with a buffer for one record.
    #[inline]
    fn with_buffer<Answer>(&self, work: impl FnOnce(&mut [u8]) -> Answer) -> Answer {
        if self.record_bytes <= STACK_BYTES {
            return work(&mut [0; STACK_BYTES]);
        }
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < self.record_bytes {
                buffer.resize(self.record_bytes, 0);
            }
            work(buffer)
        })
    }
}

impl System for Tree {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        if self.get(key, |_| ())? {
            return Ok(false);
        }
        self.upsert(key, value)?;
        Ok(true)
    }

    #[inline]
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        match self.tree.insert(key, value) {
            LeafInsertResult::Success => Ok(()),
            LeafInsertResult::InvalidKV(reason) => Err(reason.into()),
        }
    }

    #[inline]
    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        self.with_buffer(|buffer| match self.tree.read(key, buffer) {
            LeafReadResult::Found(bytes) => {
                visit(&buffer[..bytes as usize]);
                Ok(true)
            }
            LeafReadResult::NotFound | LeafReadResult::Deleted => Ok(false),
            LeafReadResult::InvalidKey => {
                Err(format!("bf-tree refuses a key of {} bytes", key.len()).into())
            }
        })
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        if !self.get(key, |_| ())? {
            return Ok(false);
        }
        self.tree.delete(key);
        Ok(true)
    }

    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        if order == Order::Descending {
            return Err("bf-tree scans upwards only".into());
        }
        if limit == 0 {
            return Ok(());
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut records = self
            .tree
            .scan_with_count(from, limit, ScanReturnField::KeyAndValue)
            .map_err(|reason| failed("a scan", reason))?;
        self.with_buffer(|buffer| {
            while let Some((key_bytes, value_bytes)) = records.next(buffer) {
                let (key, rest) = buffer.split_at(key_bytes);
                visit(key, &rest[..value_bytes]);
            }
        });
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        let mut count = 0;
        // The least key that bf-tree takes has a byte.
        self.scan(Scan::upwards(&[0]), |_, _| count += 1)?;
        Ok(count)
    }
}
