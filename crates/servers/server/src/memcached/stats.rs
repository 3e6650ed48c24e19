//! What memcached's clients are told by `stats`, and the counters behind it.
//!
//! Only what means something here is told: there are no slabs, no recency list and no eviction of
//! memcached's kind. Each connection counts into one of a few sets of counters, so that event loops
//! do not wait for each other's; a reader adds them up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use pando_keyspace::clock::system_ms;
use pando_keyspace::failure::Result;

use super::State;
use crate::server::Server;
use crate::stats::Count;

const SETS: usize = 16;

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Counter {
    Get,
    Set,
    Flush,
    Touch,
    Meta,
    GetHits,
    GetMisses,
    DeleteMisses,
    DeleteHits,
    IncrementMisses,
    IncrementHits,
    DecrementMisses,
    DecrementHits,
    CompareMisses,
    CompareHits,
    CompareBad,
    TouchHits,
    TouchMisses,
    TooLarge,
    BytesRead,
    BytesWritten,
    TotalItems,
}

/// Names of the counters, in their order.
const NAMES: [&str; 22] = [
    "cmd_get",
    "cmd_set",
    "cmd_flush",
    "cmd_touch",
    "cmd_meta",
    "get_hits",
    "get_misses",
    "delete_misses",
    "delete_hits",
    "incr_misses",
    "incr_hits",
    "decr_misses",
    "decr_hits",
    "cas_misses",
    "cas_hits",
    "cas_badval",
    "touch_hits",
    "touch_misses",
    "store_too_large",
    "bytes_read",
    "bytes_written",
    "total_items",
];

/// On lines of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU64; NAMES.len()]);

/// All counters.
#[derive(Debug)]
pub(super) struct Counters {
    sets: [Set; SETS],
    next: AtomicUsize,
    connections: AtomicU64,
    total_connections: AtomicU64,
    begun: Instant,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            sets: Default::default(),
            next: AtomicUsize::new(0),
            connections: AtomicU64::new(0),
            total_connections: AtomicU64::new(0),
            begun: Instant::now(),
        }
    }
}

/// The counters of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counting(usize);

// Relaxed throughout: counters say how many, and order nothing.
impl Counters {
    /// Notes a new connection.
    pub(super) fn connect(&self) -> Counting {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.total_connections.fetch_add(1, Ordering::Relaxed);
        Counting(self.next.fetch_add(1, Ordering::Relaxed) % SETS)
    }

    /// Notes the end of one.
    pub(super) fn disconnect(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts one.
    #[inline]
    pub(super) fn count(&self, counting: Counting, counter: Counter) {
        self.add(counting, counter, 1);
    }

    /// Counts so many.
    #[inline]
    pub(super) fn add(&self, Counting(set): Counting, counter: Counter, count: u64) {
        self.sets[set].0[counter as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Begins anew.
    pub(super) fn reset(&self) {
        for counter in self.sets.iter().flat_map(|set| &set.0) {
            counter.store(0, Ordering::Relaxed);
        }
    }

    fn sum(&self, at: usize) -> u64 {
        self.sets.iter().map(|set| set.0[at].load(Ordering::Relaxed)).sum()
    }
}

/// Tells in `reply` what `stats` with this word, or without one, tells; `false` if nobody knows the
/// word.
pub(super) fn tell(server: &Server, about: Option<&[u8]>, reply: &mut Vec<u8>) -> Result<bool> {
    let state = &server.memcached;
    let mut tell = |name: &str, value: &str| {
        reply.extend_from_slice(format!("STAT {name} {value}\r\n").as_bytes());
    };
    match about {
        None => general(server, &mut tell)?,
        Some(b"settings") => settings(state, &mut tell),
        // There are none; this is what memcached tells before it has any.
        Some(b"items") => {}
        Some(b"slabs") => {
            tell("active_slabs", "0");
            tell("total_malloced", "0");
        }
        Some(b"sizes") => tell("sizes_status", "disabled"),
        Some(_) => return Ok(false),
    }
    reply.extend_from_slice(b"END\r\n");
    Ok(true)
}

fn general(server: &Server, tell: &mut impl FnMut(&str, &str)) -> Result<()> {
    let counters = &server.memcached.counters;
    // Relaxed: as above.
    let connections = counters.connections.load(Ordering::Relaxed);
    let total_connections = counters.total_connections.load(Ordering::Relaxed);
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    for (name, value) in [
        ("pid", std::process::id().to_string()),
        ("uptime", counters.begun.elapsed().as_secs().to_string()),
        ("time", (system_ms() / 1000).to_string()),
        ("version", super::VERSION.to_owned()),
        ("pando_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("pointer_size", usize::BITS.to_string()),
        ("rusage_total", format!("{}.{:06}", usage.tv_sec, usage.tv_nsec / 1000)),
        ("curr_connections", connections.to_string()),
        ("total_connections", total_connections.to_string()),
    ] {
        tell(name, &value);
    }
    for (at, name) in NAMES.iter().enumerate() {
        tell(name, &counters.sum(at).to_string());
    }
    tell("bytes", &server.store.pool().used_bytes().to_string());
    tell("curr_items", &server.store.count(super::item::DATABASE)?.to_string());
    tell("evictions", &server.stats.since_reset().get(Count::Evicted).to_string());
    Ok(())
}

fn settings(state: &State, tell: &mut impl FnMut(&str, &str)) {
    for (name, value) in [
        ("evictions", "off".to_owned()),
        ("cas_enabled", "yes".to_owned()),
        ("flush_enabled", "yes".to_owned()),
        ("shutdown_command", "no".to_owned()),
        ("detail_enabled", "no".to_owned()),
        ("auth_enabled_sasl", "no".to_owned()),
        ("auth_enabled_ascii", "no".to_owned()),
        ("binding_protocol", "ascii".to_owned()),
        ("item_size_max", state.max_item_bytes.to_string()),
    ] {
        tell(name, &value);
    }
}
