//! The seam between the public API and what stands below it.
//!
//! An [`Engine`] is one open pool of some persistence domain. The public API checks options and
//! names, hands out handles and knows which maps are in use; an engine finds, creates, opens and
//! drops maps and reports on them. Records go through [`RangeIndex`] alone.

mod audit;
mod kinds;
mod pooled;
mod resumed;

use std::sync::Arc;

use pando_index::RangeIndex;
use pando_tree::maps::OptionValues;

use crate::report::{CheckReport, Compacted, MapInfo, PoolStat, Promise};
use crate::{Error, MapOptions};

/// One open pool. Calls that create, open or drop maps come from one thread at a time.
pub(crate) trait Engine: Send + Sync {
    /// Longest name of a map in bytes.
    fn max_map_name_bytes(&self) -> usize;

    /// The kind of the map `name` and what it was created with, or none if there is no such map.
    fn map_options(&self, name: &str) -> Result<Option<(&'static str, OptionValues)>, Error>;

    /// Creates the map `name`, which is not there; what `options` leaves out takes its default.
    fn create_map(&self, name: &str, options: &MapOptions) -> Result<(), Error>;

    /// Opens the map `name`, which is there. Called again only when the former index is gone.
    fn open_map(&self, name: &str) -> Result<Arc<dyn RangeIndex>, Error>;

    /// The maps, in any order.
    fn maps(&self) -> Result<Vec<MapInfo>, Error>;

    /// Takes the map `name` out of the catalog, which is there and of which no index is open.
    fn unlist_map(&self, name: &str) -> Result<(), Error>;

    /// Frees what is left of maps that are out of the catalog; whether there were any. Any number
    /// of threads may call it.
    fn free_dropped(&self) -> Result<bool, Error>;

    /// What the pool lies on and promises, without its figures.
    fn promise(&self) -> Promise;

    /// The pool's figures.
    fn stat(&self) -> Result<PoolStat, Error>;

    /// Bytes in blocks that are allocated, nearly.
    fn used_bytes(&self) -> u64;

    /// Present size in bytes, and up to which the pool may grow.
    fn size_and_max_bytes(&self) -> (u64, u64);

    /// Bytes that the pool takes of its file system, or of memory.
    fn occupied_bytes(&self) -> Result<u64, Error>;

    /// Returns at most so much room that is not used to the system; how many bytes.
    fn release_unused(&self, max_bytes: u64) -> Result<u64, Error>;

    /// Walks all maps against the allocator.
    fn check(&self) -> Result<CheckReport, Error>;

    /// Walks the map `name`, which is there, and lends the records of what is sound of it.
    fn salvage(
        &self,
        name: &str,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<CheckReport, Error>;

    /// The name of the map in the catalog's slot `slot`; none if that is no longer known.
    fn name_in_slot(&self, slot: u64) -> Result<Option<String>, Error>;

    /// Takes the map in the slot `slot` out of the catalog, of which no index is open; a damaged
    /// one is taken for what `options` say. A slot that leads to no map is emptied.
    fn unlist_slot(&self, slot: u64, options: &MapOptions) -> Result<(), Error>;

    /// As [`salvage`](Self::salvage), of the map in the catalog's slot `slot`; a damaged one is
    /// taken for what `options` say.
    fn salvage_slot(
        &self,
        slot: u64,
        options: &MapOptions,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<CheckReport, Error>;

    /// Returns all room that is not used, cuts the file, and closes cleanly.
    fn compact(self: Box<Self>) -> Result<Compacted, Error>;

    /// Closes cleanly. Dropping an engine closes it too, without a word about what went wrong.
    fn close(self: Box<Self>) -> Result<(), Error>;
}

pub(crate) use kinds::described as described_kinds;
pub(crate) use pooled::{create, open, volatile};
