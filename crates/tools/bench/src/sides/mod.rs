//! The sides by name, and the one place that builds them.
//!
//! A side of ours is a line in [`ours::OURS`]. A peer stands
//! behind a cargo feature and in the table of [`peers`]; without the feature, its entry is in the
//! table all the same, and building it gives what [`missing`] says.

#[cfg(feature = "berkeleydb")]
pub mod berkeleydb;
#[cfg(feature = "bf-tree")]
pub mod bf_tree;
pub mod btreemap;
#[cfg(feature = "concurrent-map")]
pub mod concurrent_map;
#[cfg(feature = "congee")]
pub mod congee;
#[cfg(feature = "fjall")]
pub mod fjall;
pub mod folder;
pub mod index;
#[cfg(feature = "lmdb")]
pub mod lmdb;
#[cfg(feature = "masstree")]
pub mod masstree;
pub mod ours;
pub mod peers;
#[cfg(feature = "redb")]
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
#[cfg(feature = "scc")]
pub mod scc_tree;
pub mod skiplist;
#[cfg(feature = "sled")]
pub mod sled;
pub mod slots;
pub mod stored;
pub mod words;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::LazyLock;

use pando_pmem::emulated::Delays;
use pando_tree::maps::OptionValues;
use serde::Serialize;

use crate::side::{Shape, Side, Subject};
use btreemap::{LockedBytes, LockedIntegers};
use ours::{BY_CAS, OURS};
use peers::PEERS;
use skiplist::{PlainBytes, PlainIntegers, Tuned};
use words::only_words;

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

/// Builds an empty side for records of a shape that it takes.
pub type Build = fn(Shape, &BuildOptions) -> Result<Box<dyn Subject>, BuildError>;

/// A side that can be asked for.
#[derive(Clone, Copy)]
pub struct SideEntry {
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

/// The limits of a side that takes every shape that the harness knows.
pub fn any_shape(_: Shape) -> Result<(), String> {
    Ok(())
}

/// What the builder of a side says whose cargo feature is off.
pub fn missing(side: &str, feature: &str) -> BuildError {
    format!("{side} is not compiled in; build with --features {feature}").into()
}

fn boxed(side: impl Side + 'static) -> Result<Box<dyn Subject>, BuildError> {
    Ok(Box::new(side))
}

/// Every side: ours, the two peers that are always built, then those of [`peers::PEERS`].
pub static SIDES: LazyLock<Vec<SideEntry>> = LazyLock::new(|| {
    let ours = OURS.iter().flat_map(|ours| ours.sides);
    ours.chain(BY_CAS.as_flattened()).chain(ALWAYS_BUILT).chain(&PEERS).copied().collect()
});

/// The peers that are always built.
const ALWAYS_BUILT: &[SideEntry] = &[
    SideEntry {
        name: "skiplist",
        what: "crossbeam-skiplist: SkipMap<u64, u64>, or of boxed bytes",
        durability: Durability::None,
        settings: "as its documentation shows it",
        limits: any_shape,
        can_descend: true,
        build: |shape, _| match shape.is_eight() {
            true => boxed(PlainIntegers::default()),
            false => boxed(PlainBytes::default()),
        },
    },
    SideEntry {
        name: "skiplist:tuned",
        what: "crossbeam-skiplist: the base list of integers",
        durability: Durability::None,
        settings: "one epoch guard an operation, values replaced in place",
        limits: only_words,
        can_descend: true,
        build: |_, _| boxed(Tuned::default()),
    },
    SideEntry {
        name: "btreemap",
        what: "std BTreeMap under a RwLock, of integers or of boxed bytes",
        durability: Durability::None,
        settings: "none to set",
        limits: any_shape,
        can_descend: true,
        build: |shape, _| match shape.is_eight() {
            true => boxed(LockedIntegers::default()),
            false => boxed(LockedBytes::default()),
        },
    },
];

/// Whether the side `name` is in this build: a peer whose cargo feature is off is not.
pub fn is_built(name: &str) -> bool {
    PEERS.iter().all(|peer| peer.name != name) || peers::is_built(name)
}

/// The name of a side that can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideName(&'static str);

impl SideName {
    /// The name as the command line gives it.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Its entry in the table.
    pub fn entry(self) -> &'static SideEntry {
        let entry = SIDES.iter().find(|entry| entry.name == self.0);
        entry.expect("a name is made of an entry of the table only")
    }
}

impl fmt::Display for SideName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

impl FromStr for SideName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match SIDES.iter().find(|entry| entry.name == text) {
            Some(entry) => Ok(Self(entry.name)),
            None => {
                let names: Vec<_> = SIDES.iter().map(|entry| entry.name).collect();
                Err(format!("expected one of {}", names.join(", ")))
            }
        }
    }
}

/// A pool is reserved for so many times the bytes of its records: leaves are half empty at times,
/// copies of them wait to be freed, and blocks have a few sizes only.
const POOL_HEADROOM: u64 = 8;
/// Bytes of a record beside its key and its value, and then some.
const RECORD_OVERHEAD_BYTES: u64 = 48;
/// What a pool is reserved for at least: no run of few records is to end for want of room.
const LEAST_POOL_BYTES: u64 = 4 << 30;
/// And at most.
const MOST_POOL_BYTES: u64 = 64 << 30;

/// Where and how sides are built.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// The folder for the pools of durable sides.
    pub pool_dir: PathBuf,
    /// How far a pool may grow: address space that is reserved, no memory that is taken. See
    /// [`for_records`](Self::for_records).
    pub max_pool_bytes: u64,
    /// Ask for huge pages behind a pool.
    pub huge_pages: bool,
    /// What is set of our index, which is then of one kind; its defaults if nothing is.
    pub settings: Option<OptionValues>,
    /// How slow the medium of the sides on an emulated one is; the delays are those of the whole
    /// process.
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
            max_pool_bytes: MOST_POOL_BYTES,
            huge_pages: false,
            settings: None,
            delays: Delays::default(),
        }
    }
}

impl BuildOptions {
    /// The same, with pools that have ample room for `records` records of `shape` at once, and not
    /// for much more: tools such as valgrind have little address space to give.
    pub fn for_records(self, records: u64, shape: Shape) -> Self {
        let record_bytes =
            shape.key_bytes as u64 + shape.value_bytes as u64 + RECORD_OVERHEAD_BYTES;
        let due = records.saturating_mul(record_bytes).saturating_mul(POOL_HEADROOM);
        Self { max_pool_bytes: due.clamp(LEAST_POOL_BYTES, MOST_POOL_BYTES), ..self }
    }
}

/// Why a side could not be built.
pub type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// Builds an empty side each time it is called.
pub type Builder = Box<dyn Fn() -> Result<Box<dyn Subject>, BuildError>>;

/// The builder of the side `name` for records of `shape`; it refuses a shape that the side does
/// not take.
pub fn builder(name: SideName, shape: Shape, options: &BuildOptions) -> Builder {
    let (entry, options) = (name.entry(), options.clone());
    Box::new(move || {
        (entry.limits)(shape)?;
        (entry.build)(shape, &options)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_in_the_table_can_be_built() {
        let options = BuildOptions::default();
        let wide = Shape { key_bytes: 20, value_bytes: 44 };
        for entry in SIDES.iter() {
            if !is_built(entry.name) {
                continue;
            }
            let name = entry.name.parse().unwrap();
            builder(name, Shape::EIGHT, &options)().unwrap();
            let is_built = builder(name, wide, &options)().is_ok();
            assert_eq!(is_built, (entry.limits)(wide).is_ok(), "{name}");
        }
    }

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

    #[test]
    fn a_name_that_is_none_is_refused_with_the_list() {
        assert!("treeskip".parse::<SideName>().unwrap_err().contains("btreemap"));
    }
}
