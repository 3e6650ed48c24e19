//! What the server tells of itself as `/status.json`: the page and `pando top` show nothing else.
//!
//! Fields may be added in later versions, and none changes its meaning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The server at some moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// The server's version.
    pub version: String,
    /// The number of its process.
    pub process_id: u32,
    /// How long it has run, in seconds.
    pub uptime_seconds: u64,
    /// How often its store has been opened, this time included.
    pub starts: u64,
    /// What is durable when a reply goes out.
    pub durability: Durability,
    /// The pool's memory.
    pub memory: Memory,
    /// Keys of all databases, expired ones that were not removed yet among them; none until they
    /// were counted.
    pub keys: Option<u64>,
    /// Clients that are connected.
    pub connected_clients: u64,
    /// What was counted since the server started, by name: `commands`, `hits`, `misses`, ...
    pub totals: BTreeMap<String, u64>,
    /// The last seconds, at most [`SECONDS`], the latest last.
    pub seconds: Vec<Second>,
    /// The commands that took most time since the server started, at most [`COMMANDS`], the most
    /// first.
    pub commands: Vec<CommandStatus>,
    /// What was found when the tree was last walked.
    pub shape: Shape,
}

/// Seconds that are kept.
pub const SECONDS: usize = 120;
/// Commands that are told about.
pub const COMMANDS: usize = 16;

/// What a reply promises.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Durability {
    /// What the pool lies on.
    pub medium: String,
    /// The persistence domain.
    pub domain: String,
    /// What an acknowledged write survives, in words.
    pub guarantee: String,
}

/// The pool's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Memory {
    /// Bytes in blocks that are allocated, nearly.
    pub used_bytes: u64,
    /// The pool's present size in bytes.
    pub pool_bytes: u64,
    /// Bytes that the pool takes of its file system, or of memory.
    #[serde(default)]
    pub occupied_bytes: u64,
    /// How far the pool may grow, in bytes.
    pub max_bytes: u64,
}

/// What happened within a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Second {
    /// How long it really was, in seconds. All other figures are for so long, not by the second.
    pub seconds: f64,
    /// Commands that were carried out, or failed trying.
    pub commands: u64,
    /// Replies that were errors.
    pub errors: u64,
    /// Keys that reading commands found.
    pub hits: u64,
    /// Keys that they did not find.
    pub misses: u64,
    /// Keys removed since their time had come.
    pub expired: u64,
    /// Keys removed to make room.
    pub evicted: u64,
    /// Bytes that came from clients.
    pub bytes_in: u64,
    /// Bytes that went to clients.
    pub bytes_out: u64,
    /// What commands took.
    pub all: Times,
    /// What commands took that read.
    pub reads: Times,
    /// What commands took that write.
    pub writes: Times,
    /// Bytes in blocks that are allocated, nearly, at its end.
    pub used_bytes: u64,
    /// Clients at its end.
    pub connected_clients: u64,
}

impl Second {
    /// Commands by the second.
    pub fn throughput(&self) -> f64 {
        if self.seconds > 0.0 { self.commands as f64 / self.seconds } else { 0.0 }
    }

    /// The share of keys that were found, 0 to 1; `None` without lookups.
    pub fn hit_rate(&self) -> Option<f64> {
        let lookups = self.hits + self.misses;
        (lookups > 0).then(|| self.hits as f64 / lookups as f64)
    }
}

/// How long commands took in the server, from the request's being read to the reply's being written
/// down, in nanoseconds; at most an eighth too much. None if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Half took no longer.
    pub p50_ns: Option<u64>,
    /// Of a hundred 99 took no longer.
    pub p99_ns: Option<u64>,
    /// Of a thousand 999 took no longer.
    pub p999_ns: Option<u64>,
}

/// A command's share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CommandStatus {
    /// Its name, a subcommand's as `config|get`.
    pub name: String,
    /// How often it was carried out, or failed trying.
    pub calls: u64,
    /// How often it answered with an error.
    pub failed: u64,
    /// What all of it took, in nanoseconds.
    pub nanoseconds: u64,
}

/// What a walk over the pool's maps found. It is made when somebody asks for it, at most once a
/// minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Shape {
    /// Whether one is being made.
    pub is_walking: bool,
    /// How many seconds ago the last one ended; none if none did.
    pub age_seconds: Option<u64>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// Why it could not be made.
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
    /// Levels from the root to a leaf, both counted.
    pub height: u32,
    /// Inner nodes.
    pub inner_nodes: u64,
    /// Leaves.
    pub leaves: u64,
    /// Records: keys, elements of collections and what the server keeps for itself.
    pub records: u64,
    /// Live bytes in leaves by the bytes of leaves, 0 to 1.
    pub leaf_fill: f64,
    /// Bytes of the pool by record.
    pub bytes_a_record: f64,
}
