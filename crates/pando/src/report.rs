//! What a pool tells about itself: its figures and its check.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// What [`Pool::compact`](crate::Pool::compact) has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Compacted {
    /// Bytes that the file took on its file system before.
    pub before_bytes: u64,
    /// Bytes that it takes now.
    pub after_bytes: u64,
    /// The file's length now, in bytes; less is taken where there are holes.
    pub size_bytes: u64,
}

/// A map that the pool holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MapInfo {
    /// Its name; empty if the map is damaged where its name stands.
    pub name: String,
    /// The name of its index; `index N` if this version does not know index number N.
    pub index: String,
    /// Its slot of the catalog, by which [`Pool::salvage_slot`](crate::Pool::salvage_slot) and
    /// [`Pool::drop_slot`](crate::Pool::drop_slot) find it.
    pub slot: u64,
    /// What is damaged, if the map cannot be opened for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// A pool's figures at one moment. While others write, each figure is right by itself and the
/// figures need not agree with each other.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct PoolStat {
    /// The pool's file; none for anonymous memory.
    pub path: Option<PathBuf>,
    /// The persistence domain that the pool runs in, by the name of a
    /// [`DomainChoice`](crate::DomainChoice).
    pub domain: String,
    /// What the pool lies on, as found.
    pub medium: String,
    /// What an operation that has returned survives, in words, on this medium.
    pub guarantee: String,
    /// Present size in bytes.
    pub size_bytes: u64,
    /// Size up to which the pool may grow, in bytes.
    pub max_bytes: u64,
    /// How often the pool has been recovered or opened, as it counts itself.
    pub generation: u64,
    /// What opening the pool took.
    pub recovery: RecoveryStat,
    /// Threads known to the pool.
    pub participants: ParticipantStat,
    /// Blocks allocated and kept.
    pub allocator: AllocatorStat,
    /// The maps, by name.
    pub maps: Vec<MapStat>,
}

/// What a pool lies on, and what that means for what has returned.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Promise {
    /// The persistence domain that the pool runs in, by the name of a
    /// [`DomainChoice`](crate::DomainChoice).
    pub domain: &'static str,
    /// What the pool lies on, as found.
    pub medium: String,
    /// What an operation that has returned survives, in words, on this medium.
    pub guarantee: String,
    /// Whether that is power loss.
    pub survives_power: bool,
}

/// What opening a pool took.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct RecoveryStat {
    /// Whether the pool had been closed cleanly, so that nothing was to be recovered.
    pub was_clean: bool,
    /// Time from the beginning of open to a usable pool, in nanoseconds.
    pub duration_ns: u64,
    /// Operations that a crash cut short and that were completed.
    pub rolled_forward: u64,
    /// Operations that a crash cut short and that were undone.
    pub rolled_back: u64,
}

/// Threads that use a pool.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ParticipantStat {
    /// Slots in the pool's table, which grows when threads are inside calls in all of them.
    pub slots: u64,
    /// Slots of threads that are inside a call, or were and may be again in the same slot.
    pub in_use: u64,
    /// Epochs by which the slowest active participant lags: reclamation waits for it.
    pub slowest_lag_epochs: u64,
}

/// Blocks allocated and kept.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct AllocatorStat {
    /// Bytes in blocks that are allocated.
    pub used_bytes: u64,
    /// Bytes that can be allocated without growing the pool.
    pub free_bytes: u64,
    /// Bytes that wait until no participant can see them any more.
    pub retired_bytes: u64,
    /// Blocks that are allocated.
    pub used_blocks: u64,
}

/// A map's figures.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MapStat {
    /// Its name; empty if the map is damaged where its name stands.
    pub name: String,
    /// Its slot of the catalog.
    pub slot: u64,
    /// The name of its index; `index N` if this version does not know index number N.
    pub index: String,
    /// What is set of it, by name.
    pub options: BTreeMap<&'static str, String>,
    /// What was counted; none if the map cannot be read.
    #[serde(flatten)]
    pub figures: Option<MapFigures>,
    /// Why the map cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed_over: Option<String>,
}

/// What was counted of a map.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MapFigures {
    /// Levels from the root to a leaf, both counted.
    pub height: u32,
    /// Inner nodes.
    pub inner_nodes: u64,
    /// Leaves.
    pub leaves: u64,
    /// Records.
    pub records: u64,
    /// Live bytes in leaves by the bytes of leaves, 0 to 1.
    pub leaf_fill: f64,
    /// Bytes of pool that the map takes, nodes and value blocks counted.
    pub bytes: u64,
    /// [`bytes`](Self::bytes) by record; 0 if there is no record.
    pub bytes_a_record: f64,
}

/// What is wrong with something that [`Pool::check`](crate::Pool::check) looked at, the least
/// grave first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProblemClass {
    /// A block is allocated and nothing reaches it: space is lost, data are not.
    Leaked,
    /// One of the two copies of a map's header is damaged; the other one serves.
    HeaderCopy,
    /// A count that is kept differs from what was counted.
    Count,
    /// A separator does not bound the keys beneath it.
    Separator,
    /// Keys of a node are not in strict order.
    Order,
    /// A block is reached and is not allocated: it may be given to someone else.
    ReachableButFree,
    /// Something cannot be read as what it has to be.
    Unreadable,
}

impl fmt::Display for ProblemClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Leaked => "leaked",
            Self::HeaderCopy => "header copy",
            Self::Count => "count",
            Self::Separator => "separator",
            Self::Order => "order",
            Self::ReachableButFree => "reachable but free",
            Self::Unreadable => "unreadable",
        })
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// What kind of problem it is.
    pub class: ProblemClass,
    /// The map in which it was found, if it belongs to one.
    pub map: Option<String>,
    /// What was found and what was expected.
    pub message: String,
}

/// What a check of a whole pool found.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// Maps that were walked.
    pub maps: u64,
    /// Records that were read.
    pub records: u64,
    /// Nodes that were read.
    pub nodes: u64,
    /// Blocks that are allocated.
    pub used_blocks: u64,
    /// Blocks that were reached from the maps.
    pub reached_blocks: u64,
    /// What is wrong; empty if the pool is sound.
    pub problems: Vec<Problem>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// The gravest class among the problems, or none if the pool is sound.
    pub fn gravest(&self) -> Option<ProblemClass> {
        self.problems.iter().map(|problem| problem.class).max()
    }
}
