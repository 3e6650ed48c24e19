//! What a system says of itself, and where and how it is built.

use std::fmt;
use std::path::{Path, PathBuf};

#[cfg(feature = "papers")]
use pando_pmem::emulated::Delays;
use pando_tree::maps::OptionValues;
use serde::Serialize;

use crate::record::Shape;
use crate::subject::Subject;
use crate::system::System;

/// What a write that has returned survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Nothing: it lies in the memory of the process.
    None,
    /// The death of the process at any moment, not that of the machine.
    ProcessCrash,
    /// A power cut, if the medium keeps its promise.
    PowerLoss,
}

impl fmt::Display for Durability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::None => "nothing",
            Self::ProcessCrash => "process crash",
            Self::PowerLoss => "power loss",
        })
    }
}

/// Builds the empty system of a name for records of a shape that it takes.
pub type Build = fn(&str, Shape, &BuildOptions) -> Result<Box<dyn Subject>, BuildError>;

/// A system that can be asked for.
#[derive(Clone, Copy)]
pub struct SystemEntry {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// What it is, in a line.
    pub what: &'static str,
    /// What a write that has returned survives, at these settings.
    pub durability: Durability,
    /// The documented best settings that the adapter uses, in a line.
    pub settings: &'static str,
    /// Which records it takes; an error says which it does.
    pub limits: fn(Shape) -> Result<(), String>,
    /// Whether it scans downwards too.
    pub can_descend: bool,
    /// Builds it, empty.
    pub build: Build,
}

/// The limits of a system that takes every shape that the harness knows.
pub fn any_shape(_: Shape) -> Result<(), String> {
    Ok(())
}

/// What the builder of a system says whose cargo feature is off.
pub fn missing(system: &str, feature: &str) -> BuildError {
    format!("{system} is not compiled in; build with --features {feature}").into()
}

/// `system` with its type forgotten.
pub fn boxed(system: impl System + 'static) -> Result<Box<dyn Subject>, BuildError> {
    Ok(Box::new(system))
}

/// Bytes of cache that each durable peer may fill unless that is set. It is the default of redb and
/// sled, and holds ten million small records.
const CACHE_BYTES: u64 = 1 << 30;
/// A pool is reserved for so many times the bytes of its records: leaves are half empty at times,
/// copies of them wait to be freed, and blocks have a few sizes only.
const POOL_HEADROOM: u64 = 8;
/// Bytes of a record beside its key and its value, and then some.
const RECORD_OVERHEAD_BYTES: u64 = 48;
/// The least size for which a pool is reserved, so that no run of few records ends with a full
/// pool.
const LEAST_POOL_BYTES: u64 = 4 << 30;
/// And at most.
const MOST_POOL_BYTES: u64 = 64 << 30;

/// Where and how systems are built.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// The folder for the pools of durable systems.
    pub pool_dir: PathBuf,
    /// The folder for logs of pools, and for the files of durable peers; that for pools if it is
    /// not set.
    pub log_dir: Option<PathBuf>,
    /// Bytes of cache that each durable peer, and a store, may fill.
    pub cache_bytes: u64,
    /// How far a pool may grow: address space that is reserved, no memory that is taken. See
    /// [`for_records`](Self::for_records).
    pub max_pool_bytes: u64,
    /// What is set of our index, which is then of one kind; its defaults if nothing is.
    pub settings: Option<OptionValues>,
    /// How slow the medium of the systems on an emulated one is; the delays are those of the whole
    /// process.
    #[cfg(feature = "papers")]
    pub delays: Delays,
}

/// The folder for pools if none is named: in memory, where the system has that.
pub fn memory_folder() -> PathBuf {
    let memory_files = PathBuf::from("/dev/shm");
    if memory_files.is_dir() { memory_files } else { std::env::temp_dir() }
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            pool_dir: memory_folder(),
            log_dir: None,
            cache_bytes: CACHE_BYTES,
            max_pool_bytes: MOST_POOL_BYTES,
            settings: None,
            #[cfg(feature = "papers")]
            delays: Delays::default(),
        }
    }
}

impl BuildOptions {
    /// The folder for logs of pools, and for the files of durable peers.
    pub fn log_dir(&self) -> &Path {
        self.log_dir.as_deref().unwrap_or(&self.pool_dir)
    }

    /// The same, with pools that have ample room for `records` records of `shape` at once, and not
    /// for much more: tools such as valgrind have little address space to give.
    pub fn for_records(self, records: u64, shape: Shape) -> Self {
        let record_bytes =
            shape.key_bytes as u64 + shape.value_bytes as u64 + RECORD_OVERHEAD_BYTES;
        let due = records.saturating_mul(record_bytes).saturating_mul(POOL_HEADROOM);
        Self { max_pool_bytes: due.clamp(LEAST_POOL_BYTES, MOST_POOL_BYTES), ..self }
    }
}

/// Why a system could not be built.
pub type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// Builds an empty system each time it is called.
pub type Builder = Box<dyn Fn() -> Result<Box<dyn Subject>, BuildError>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_room_for_its_records_several_times() {
        let reserved =
            |records, shape| BuildOptions::default().for_records(records, shape).max_pool_bytes;
        let largest = Shape { key_bytes: 128, value_bytes: 4096 };
        assert_eq!(reserved(1_000, Shape::EIGHT), LEAST_POOL_BYTES);
        assert_eq!(reserved(10_000_000, Shape::EIGHT), 10_000_000 * 64 * 8);
        assert_eq!(reserved(1_000_000, largest), 1_000_000 * 4272 * 8);
        assert_eq!(reserved(u64::MAX, largest), MOST_POOL_BYTES);
    }
}
