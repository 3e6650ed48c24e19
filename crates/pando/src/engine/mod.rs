//! The interface between the public API and the layers below it.
//!
//! An [`Engine`] is one open pool of some persistence domain. The public API checks options and
//! names, returns handles, and knows which maps are in use. An engine finds, creates, opens and
//! drops maps, and reports on them. Records are read and written only through [`RangeIndex`].

mod audit;
pub mod compiled;
mod keeper;
mod kinds;
mod log_directory;
mod map_list;
mod opening;
mod pooled;
mod rebuild;
#[cfg(test)]
mod rebuild_kill;
#[cfg(test)]
mod receipt_crash;
mod reset;
#[cfg(test)]
mod reset_kill;
mod resumed;
mod sharing;
mod stored;
mod superblock;
mod transactional;

use std::path::PathBuf;
use std::sync::Arc;

use pando_index::RangeIndex;
use pando_tc::SnapshotOptions;

use crate::options::Created;
use crate::report::{
    CheckReport, Compacted, LogProgress, LogStat, MapInfo, PoolStat, ProcessStat, Promise,
};
use crate::{Error, MapOptions};

/// One open pool. Calls that create, open or drop maps come from one thread at a time.
pub(crate) trait Engine: Send + Sync {
    /// Longest name of a map in bytes.
    fn max_map_name_bytes(&self) -> usize;

    /// How the map `name` was created, or none if there is no such map.
    fn created(&self, name: &str) -> Result<Option<Created>, Error>;

    /// Creates the map `name`, which does not exist. Options that are not set take their defaults.
    fn create_map(&self, name: &str, options: &MapOptions) -> Result<(), Error>;

    /// Opens the map `name`, which exists. Called again only after the former one was dropped.
    fn open_map(&self, name: &str) -> Result<OpenedMap, Error>;

    /// Begins a transaction, over a snapshot if there are options of one; `None` if the pool has no
    /// transactional map.
    fn begin(
        &self,
        snapshot: Option<SnapshotOptions>,
    ) -> Result<Option<Box<dyn AnyTransaction + '_>>, Error>;

    /// Takes a snapshot; `None` if the pool has no transactional map.
    fn snapshot(
        &self,
        options: SnapshotOptions,
    ) -> Result<Option<Box<dyn AnySnapshot + '_>>, Error>;

    /// Keeps the memory of values that are read from now on.
    fn hold(&self) -> Result<Arc<dyn Held>, Error>;

    /// Waits until all commits up to `lsn` survive a power cut, or all so far. Returns that LSN.
    fn sync(&self, lsn: Option<u64>) -> Result<u64, Error>;

    /// How far the log is durable; `None` if the pool has no log.
    fn log_progress(&self) -> Result<Option<LogProgress>, Error>;

    /// The figures of the log; `None` if there is none.
    fn log_stat(&self) -> Result<Option<LogStat>, Error>;

    /// The directory of the log, for a backup that is a copy of its files.
    fn log_to_copy(&self) -> Result<PathBuf, Error>;

    /// Writes an image of the transactional maps into the directory of the log, and releases the
    /// part of the log that is not needed any more.
    fn write_image(&self) -> Result<(), Error>;

    /// Whether other processes may have the pool open too.
    fn is_shared(&self) -> bool;

    /// The processes that share the pool; none if it is not shared.
    fn processes(&self) -> Result<Vec<ProcessStat>, Error>;

    /// Kills a process that shares the pool, and recovers it.
    fn evict(&self, pid: u32) -> Result<(), Error>;

    /// The maps, in any order.
    fn maps(&self) -> Result<Vec<MapInfo>, Error>;

    /// The damage of the list of maps, by which [`maps`](Self::maps) may lack one. None in a pool,
    /// where each map has its own place in the list.
    fn map_list_damage(&self) -> Result<Vec<String>, Error>;

    /// Gives the map `from`, which exists, the name `to`, which no map has.
    fn rename_map(&self, from: &str, to: &str) -> Result<(), Error>;

    /// Takes the map `name` out of the catalog. It exists, and no index of it is open.
    fn unlist_map(&self, name: &str) -> Result<(), Error>;

    /// Frees the blocks of maps that are out of the catalog, or has a thread do it; whether this
    /// call has freed any. Any number of threads may call it.
    fn free_dropped(&self) -> Result<bool, Error>;

    /// Frees the room of all maps that were dropped before the call.
    fn clear_dropped(&self) -> Result<(), Error>;

    /// The medium and its guarantee, without figures.
    fn promise(&self) -> Promise;

    /// The pool's figures.
    fn stat(&self) -> Result<PoolStat, Error>;

    /// Bytes in blocks that are allocated, nearly.
    fn used_bytes(&self) -> u64;

    /// The present size and the largest size, in bytes.
    fn size_and_max_bytes(&self) -> (u64, u64);

    /// Bytes that the pool takes on its file system, or in memory.
    fn occupied_bytes(&self) -> Result<u64, Error>;

    /// Returns at most `max_bytes` of unused room to the system; how many bytes.
    fn release_unused(&self, max_bytes: u64) -> Result<u64, Error>;

    /// Walks all maps against the allocator.
    fn check(&self) -> Result<CheckReport, Error>;

    /// Walks the map `name`, which exists, and lends the records of its undamaged parts.
    fn salvage(
        &self,
        name: &str,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<CheckReport, Error>;

    /// The name of the map in the catalog's slot `slot`; none if it is no longer known.
    fn name_in_slot(&self, slot: u64) -> Result<Option<String>, Error>;

    /// Takes the map in the slot `slot` out of the catalog. No index of it is open. For a damaged
    /// map `options` give its index and options. A slot that points to no map is emptied.
    fn unlist_slot(&self, slot: u64, options: &MapOptions) -> Result<(), Error>;

    /// As [`salvage`](Self::salvage), for the map in the catalog's slot `slot`. For a damaged map
    /// `options` give its index and options.
    fn salvage_slot(
        &self,
        slot: u64,
        options: &MapOptions,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<CheckReport, Error>;

    /// Returns all unused room, cuts the file, and closes cleanly.
    fn compact(self: Box<Self>) -> Result<Compacted, Error>;

    /// Closes cleanly. Dropping an engine closes it too, but reports no errors.
    fn close(self: Box<Self>) -> Result<(), Error>;
}

pub(crate) use kinds::described as described_kinds;
pub(crate) use log_directory::has_log;
pub(crate) use opening::{create, open, reset_log, restore, volatile};
pub(crate) use stored::{open_store, open_store_unchanged};
pub(crate) use superblock::read_superblock;
pub(crate) use transactional::{AnyRange, AnySnapshot, AnyTransaction};

/// While it lives, the pool does not reuse the memory of values that are read meanwhile.
pub(crate) trait Held: Send + Sync {
    /// Whether a value that was read lies in that memory.
    fn covers(&self, value: &[u8]) -> bool;
}

/// A map that is open.
pub(crate) struct OpenedMap {
    pub index: Arc<dyn RangeIndex>,
    pub stamped: Option<Stamped>,
    /// In a shared pool: while it lives, no process drops the map.
    pub in_use: Option<Box<dyn Send + Sync>>,
}

/// A transactional map as the transaction component has it.
pub(crate) struct Stamped {
    pub number: u64,
    /// Its records, with the stamps of their values.
    pub index: Arc<dyn RangeIndex>,
}
