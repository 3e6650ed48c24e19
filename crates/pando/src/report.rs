//! Reports about a pool: its figures and the result of its check.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// The result of [`Pool::compact`](crate::Pool::compact).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Compacted {
    /// Bytes that the file took on its file system before.
    pub before_bytes: u64,
    /// Bytes that it takes now.
    pub after_bytes: u64,
    /// The file's length now, in bytes. A file with holes takes less than its length.
    pub size_bytes: u64,
}

/// A map that the pool holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MapInfo {
    /// Its name; empty if the header, with the name, is damaged.
    pub name: String,
    /// The name of its index; `index N` if this version does not know index number N.
    pub index: String,
    /// Whether it takes part in transactions.
    pub is_transactional: bool,
    /// Its slot of the catalog, by which [`Pool::salvage_slot`](crate::Pool::salvage_slot) and
    /// [`Pool::drop_slot`](crate::Pool::drop_slot) find it; in a store its number.
    pub slot: u64,
    /// The damage, if it prevents opening the map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// A pool's figures. While other threads write, each figure is right for some point in time, and
/// the figures need not agree with each other.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct PoolStat {
    /// The pool's file; none for anonymous memory.
    pub path: Option<PathBuf>,
    /// The persistence domain that the pool runs in, by the name of a
    /// [`DomainChoice`](crate::DomainChoice).
    pub domain: String,
    /// The medium, as found.
    pub medium: String,
    /// Which failures a write that has returned survives on this medium, in words.
    pub guarantee: String,
    /// The memory of the pool that this process uses; none if the system does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStat>,
    /// Present size in bytes.
    pub size_bytes: u64,
    /// The pool's largest size in bytes.
    pub max_bytes: u64,
    /// How often the pool has been opened, by its own count.
    pub generation: u64,
    /// What the opening of the pool did.
    pub recovery: RecoveryStat,
    /// Threads that use the pool.
    pub participants: ParticipantStat,
    /// Allocated and free blocks.
    pub allocator: AllocatorStat,
    /// The log, if the pool has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<LogStat>,
    /// Memory and disk of a [`Store`](crate::Store); none of a pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreStat>,
    /// Transactions and snapshots, if the pool has a transactional map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<TransactionStat>,
    /// The processes that share the pool, this one included; empty if it is not shared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessStat>,
    /// The maps, by name.
    pub maps: Vec<MapStat>,
}

/// A process that shares a pool ([`PoolOptions::shared`](crate::PoolOptions::shared)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProcessStat {
    /// Its process id, in its own namespace of process ids.
    pub pid: u32,
    /// The name of the process with that id, as this process sees it; empty if there is none.
    pub name: String,
    /// Whether it is alive, perhaps stopped. A dead process is recovered soon, by any other.
    pub is_alive: bool,
    /// Threads that have used the pool at once.
    pub threads: u64,
    /// Threads that are inside a call now.
    pub threads_inside: u64,
    /// For how long at least, in milliseconds, one of them has been inside a call, so that no block
    /// that is removed meanwhile can be reused ([`AllocatorStat::retired_bytes`]); none if this is
    /// not so. If the time grows, the process may be stopped: continue it, or end it
    /// ([`Pool::evict`](crate::Pool::evict)).
    pub holds_space_back_ms: Option<u64>,
}

/// The pages of a pool that this process has read or written since it opened the pool. A get waits
/// less for memory on huge pages (2 MiB), because the processor translates their addresses faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemoryStat {
    /// All of it, in bytes.
    pub resident_bytes: u64,
    /// The part on huge pages, in bytes.
    pub huge_bytes: u64,
}

/// The memory and the disk of a store. Numbers of pages and bytes that were read or written are
/// those since the opening.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StoreStat {
    /// Bytes of memory that pages may take.
    pub memory_bytes: u64,
    /// Bytes of memory that they take, nearly.
    pub cache_bytes: u64,
    /// Pages in memory.
    pub cached_pages: u64,
    /// Those of them that the disk does not have in this state.
    pub changed_pages: u64,
    /// How often operations have used a leaf: a page with records.
    pub visits: u64,
    /// Pages that were read from the disk. `loads / visits` is about the share of visits that
    /// needed the disk: inner pages are few.
    pub loads: u64,
    /// Reads of the disk, for loads and for cleaning: one for each part of a page.
    pub part_reads: u64,
    /// Those of them that cleaning has made.
    pub moved_part_reads: u64,
    /// Pages that were given up for others.
    pub evictions: u64,
    /// All pages.
    pub pages: u64,
    /// Pages of one part on disk, of two, and so on: an image and the deltas behind it.
    pub pages_by_parts: Vec<u64>,
    /// Bytes of the parts on disk that pages consist of.
    pub live_bytes: u64,
    /// Bytes of the segments on disk. [`live_bytes`](Self::live_bytes) is the part that is in use.
    pub segment_bytes: u64,
    /// Bytes of pages that were written.
    pub appended_bytes: u64,
    /// Bytes that were written for that: with heads, moved pages and checkpoints, without the log.
    pub written_bytes: u64,
    /// Bytes of pages that cleaning has moved.
    pub moved_bytes: u64,
    /// Bytes of the commits that an opening would replay, with old values. The log's files have
    /// fewer.
    pub log_since_checkpoint_bytes: u64,
    /// Dropped maps whose records are not all removed yet. A thread of the store removes them. If
    /// the number stays above zero, a page of such a map is damaged, or a thread stays inside a
    /// call: [`Pool::clear_dropped`](crate::Pool::clear_dropped) returns the error.
    pub dropped_maps: u64,
    /// The damage of pages that have names of maps; empty if there is none. A map whose name is
    /// there has only its number ([`MapInfo::slot`]).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub map_list_damage: Vec<String>,
}

/// Transactions that commit, and snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TransactionStat {
    /// Commits that are not decided yet.
    pub undecided: u64,
    /// Snapshots that live, also those of transactions.
    pub snapshots: u64,
    /// Bytes of process memory with the values that are kept for snapshots.
    pub kept_bytes: u64,
    /// The holder of the oldest snapshot; empty if there is none.
    pub oldest_holder: String,
    /// The age of the oldest snapshot in nanoseconds; zero if there is none.
    pub oldest_age_ns: u64,
}

/// How far the log of a pool is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LogProgress {
    /// The LSN of the newest commit ([`LogStat`]).
    pub newest_lsn: u64,
    /// The LSN up to which all commits survive a power cut.
    pub durable_lsn: u64,
    /// Whether a write or sync of the log has failed, so that transactional maps are read only.
    pub has_stopped: bool,
    /// If so many bytes of records wait for the disk, commits wait for it too.
    pub tail_bytes: u64,
}

impl LogProgress {
    /// Bytes of records that do not survive a power cut yet.
    pub fn waiting_bytes(self) -> u64 {
        self.newest_lsn.saturating_sub(self.durable_lsn)
    }
}

/// The log of a pool. A log sequence number (LSN) is the number of bytes of all records up to the
/// end of a commit's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LogStat {
    /// Its directory.
    pub path: PathBuf,
    /// The LSN of the newest commit.
    pub newest_lsn: u64,
    /// The LSN up to which all commits survive a power cut.
    pub durable_lsn: u64,
    /// The LSN behind which the log is replayed over the newest image; zero if there is none.
    pub image_lsn: u64,
    /// Bytes of the newest image; zero if there is none.
    pub image_bytes: u64,
    /// Whether a write or sync of it has failed, so that transactional maps are read only.
    pub has_stopped: bool,
    /// Why the newest attempt of this process to write an image failed. While images fail, the log
    /// grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_error: Option<String>,
}

/// The medium of a pool, and which failures a write that has returned survives there.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Promise {
    /// The persistence domain that the pool runs in, by the name of a
    /// [`DomainChoice`](crate::DomainChoice).
    pub domain: &'static str,
    /// The medium, as found.
    pub medium: String,
    /// Which failures a write that has returned survives on this medium, in words.
    pub guarantee: String,
    /// Whether it survives power loss.
    pub survives_power: bool,
}

/// What the opening of a pool did.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct RecoveryStat {
    /// Whether nothing needed recovery: the pool had been closed cleanly, or other processes had it
    /// open.
    pub was_clean: bool,
    /// Whether other processes had the pool open.
    pub joined: bool,
    /// Time from the beginning of open to a usable pool, in nanoseconds.
    pub duration_ns: u64,
    /// Operations that a crash interrupted and that were completed.
    pub rolled_forward: u64,
    /// Operations that a crash interrupted and that were undone.
    pub rolled_back: u64,
    /// Whether the pool was lost, and was rebuilt from its log.
    pub from_log: bool,
    /// Records that were loaded from an image, if the pool was rebuilt.
    pub image_records: u64,
    /// Commits that were replayed from the log, if the pool was rebuilt.
    pub commits: u64,
    /// The part of [`duration_ns`](Self::duration_ns) in which interrupted commits were undone, and
    /// the tail of the log was written to its files, in nanoseconds; zero if the pool was rebuilt.
    pub log_tail_ns: u64,
    /// The part in which the image was loaded, if the pool was rebuilt.
    pub image_ns: u64,
    /// The part in which the log was replayed, if the pool was rebuilt.
    pub log_ns: u64,
    /// Maps that are empty because they are not transactional, if the pool was rebuilt.
    pub emptied_maps: Vec<String>,
    /// Damaged pages of a store over which the log could not be replayed. Reads of their keys are
    /// errors, and the log is kept and grows. [`Pool::check`](crate::Pool::check) names them.
    pub damaged_pages: u64,
}

/// Threads that use a pool.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ParticipantStat {
    /// Slots in the pool's table. The table grows when each slot has a thread inside a call.
    pub slots: u64,
    /// Slots whose threads are inside a call, or were and may use the same slot again.
    pub in_use: u64,
    /// Epochs by which the slowest active participant lags. Reclamation waits for it.
    pub slowest_lag_epochs: u64,
}

/// Allocated and free blocks.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct AllocatorStat {
    /// Bytes in blocks that are allocated.
    pub used_bytes: u64,
    /// Bytes that can be allocated without growing the pool.
    pub free_bytes: u64,
    /// Bytes in blocks that can be reused when no participant can see them any more, and in blocks
    /// that are being filled.
    pub retired_bytes: u64,
    /// Blocks that are allocated.
    pub used_blocks: u64,
}

/// A map's figures.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MapStat {
    /// Its name; empty if the header, with the name, is damaged.
    pub name: String,
    /// Its slot of the catalog.
    pub slot: u64,
    /// The name of its index; `index N` if this version does not know index number N.
    pub index: String,
    /// Whether it takes part in transactions. Then each record has 16 bytes more, and so has each
    /// key that was removed; [`MapFigures::records`] does not count these.
    pub is_transactional: bool,
    /// Its options, by name.
    pub options: BTreeMap<&'static str, String>,
    /// Its figures; none if the map cannot be read.
    #[serde(flatten)]
    pub figures: Option<MapFigures>,
    /// Why the map cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed_over: Option<String>,
}

/// The counts of a map.
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
    /// Live bytes in leaves divided by the bytes of leaves, 0 to 1.
    pub leaf_fill: f64,
    /// Bytes of the pool that the map takes: its nodes and value blocks.
    pub bytes: u64,
    /// [`bytes`](Self::bytes) per record; 0 if there is no record.
    pub bytes_a_record: f64,
}

/// The classes of problems that [`Pool::check`](crate::Pool::check) finds, the least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProblemClass {
    /// A block is allocated and not reached from any map: space is lost, data are not.
    Leaked,
    /// One of the two copies of a map's header is damaged; the other one is used.
    HeaderCopy,
    /// A stored count differs from the counted value.
    Count,
    /// A separator does not bound the keys beneath it, or a get misses a key that a scan finds.
    Separator,
    /// Keys of a node are not in strict order.
    Order,
    /// A reachable block is not allocated: it may be allocated again while it is in use.
    ReachableButFree,
    /// A node, a header or a catalog slot cannot be read.
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

/// One problem.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// The class of the problem.
    pub class: ProblemClass,
    /// The map of the problem, if it belongs to one.
    pub map: Option<String>,
    /// The found and the expected state.
    pub message: String,
}

/// The result of a check of a whole pool. A check beside other threads
/// ([`Pool::check_online`](crate::Pool::check_online)) counts no nodes and no blocks.
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
    /// The problems; empty if the pool is consistent.
    pub problems: Vec<Problem>,
}

impl CheckReport {
    /// Whether the check found no problem.
    pub fn is_consistent(&self) -> bool {
        self.problems.is_empty()
    }

    /// The most severe class among the problems; none if the pool is consistent.
    pub fn gravest(&self) -> Option<ProblemClass> {
        self.problems.iter().map(|problem| problem.class).max()
    }
}
