//! The status of the server as `/status.json` has it. The page and `pando top` show only this.
//!
//! Later versions may add fields. No field changes its meaning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The status of the server at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// The version of the server.
    pub version: String,
    /// The ID of its process.
    pub process_id: u32,
    /// The time since its start, in seconds.
    pub uptime_seconds: u64,
    /// The number of times that its store was opened, including this one.
    pub starts: u64,
    /// The durability of acknowledged writes.
    pub durability: Durability,
    /// The memory of the pool.
    pub memory: Memory,
    /// The number of keys in all databases, including expired ones that are not removed yet; `None`
    /// before the first count.
    pub keys: Option<u64>,
    /// The number of connected clients.
    pub connected_clients: u64,
    /// Counters since the server's start, by name: `commands`, `hits`, `misses`, ...
    pub totals: BTreeMap<String, u64>,
    /// The last seconds, at most [`SECONDS`], in order of time.
    pub seconds: Vec<Second>,
    /// The commands with the largest total time since the server's start, at most [`COMMANDS`], in
    /// descending order.
    pub commands: Vec<CommandStatus>,
    /// The result of the last walk over the tree.
    pub shape: Shape,
}

/// The number of seconds that are kept.
pub const SECONDS: usize = 120;
/// The number of commands in the status.
pub const COMMANDS: usize = 16;

/// The durability of acknowledged writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Durability {
    /// The medium of the pool.
    pub medium: String,
    /// The persistence domain.
    pub domain: String,
    /// The failures that an acknowledged write survives, in words.
    pub guarantee: String,
}

/// The memory of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Memory {
    /// The approximate number of allocated bytes; of a store, those of its pages on disk.
    pub used_bytes: u64,
    /// The current size of the pool, or of the files of a store's pages, in bytes.
    pub pool_bytes: u64,
    /// The bytes of the file system, or of memory, that the pool occupies.
    #[serde(default)]
    pub occupied_bytes: u64,
    /// The largest size of the pool, in bytes; zero for a store.
    pub max_bytes: u64,
}

/// The events of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Second {
    /// The exact length, in seconds. All other figures are totals for this time.
    pub seconds: f64,
    /// The number of executed commands, including failed ones.
    pub commands: u64,
    /// The number of error replies.
    pub errors: u64,
    /// The number of keys that reading commands found.
    pub hits: u64,
    /// The number of keys that they did not find.
    pub misses: u64,
    /// The number of keys that were removed after their expiry.
    pub expired: u64,
    /// The number of evicted keys.
    pub evicted: u64,
    /// Bytes received from clients.
    pub bytes_in: u64,
    /// Bytes sent to clients.
    pub bytes_out: u64,
    /// The times of all commands.
    pub all: Times,
    /// The times of commands that read.
    pub reads: Times,
    /// The times of commands that write.
    pub writes: Times,
    /// The approximate number of allocated bytes at its end.
    pub used_bytes: u64,
    /// The number of clients at its end.
    pub connected_clients: u64,
}

impl Second {
    /// Commands per second.
    pub fn throughput(&self) -> f64 {
        if self.seconds > 0.0 { self.commands as f64 / self.seconds } else { 0.0 }
    }

    /// The share of keys that were found, 0 to 1; `None` without lookups.
    pub fn hit_rate(&self) -> Option<f64> {
        let lookups = self.hits + self.misses;
        (lookups > 0).then(|| self.hits as f64 / lookups as f64)
    }
}

/// The times of commands in nanoseconds, from the end of parsing the request to the end of writing
/// the reply to its buffer. They are at most an eighth too large; `None` without commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Times {
    /// The number of commands.
    pub count: u64,
    /// The 50th percentile.
    pub p50_ns: Option<u64>,
    /// The 99th percentile.
    pub p99_ns: Option<u64>,
    /// The 99.9th percentile.
    pub p999_ns: Option<u64>,
}

/// The figures of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CommandStatus {
    /// Its name; `config|get` for a subcommand.
    pub name: String,
    /// The number of calls, including failed ones.
    pub calls: u64,
    /// The number of error replies.
    pub failed: u64,
    /// The total time, in nanoseconds.
    pub nanoseconds: u64,
}

/// The result of a walk over the pool's maps. A walk is made on request, at most once a minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Shape {
    /// Whether a walk is running.
    pub is_walking: bool,
    /// The seconds since the end of the last walk; `None` before the first one.
    pub age_seconds: Option<u64>,
    /// The duration of the last walk, in milliseconds.
    pub took_ms: u64,
    /// The error of the last walk.
    pub error: Option<String>,
    /// The maps, by name.
    pub maps: Vec<MapShape>,
}

/// A map's shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MapShape {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: String,
    /// The number of levels, including the root and the leaves.
    pub height: u32,
    /// The number of inner nodes.
    pub inner_nodes: u64,
    /// The number of leaves.
    pub leaves: u64,
    /// The number of records: keys, elements of collections, and the server's own data.
    pub records: u64,
    /// The live bytes in leaves, divided by the bytes of leaves: 0 to 1.
    pub leaf_fill: f64,
    /// Bytes of the pool per record.
    pub bytes_a_record: f64,
}
