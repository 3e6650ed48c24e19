//! The counters of memcached's `stats`. There are a few sets of counters, and each connection uses
//! one of them, so event loops do not contend. A reader adds them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

const SETS: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Counter {
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

/// The names of the counters, in their order.
pub(crate) const NAMES: [&str; 22] = [
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

/// Has its own cache lines.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU64; NAMES.len()]);

#[derive(Debug)]
pub(crate) struct Counters {
    sets: [Set; SETS],
    next: AtomicUsize,
    pub(crate) connections: AtomicU64,
    pub(crate) total_connections: AtomicU64,
    pub(crate) begun: Instant,
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
pub(crate) struct Counting(usize);

// Relaxed throughout: counters order nothing.
impl Counters {
    pub(crate) fn connect(&self) -> Counting {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.total_connections.fetch_add(1, Ordering::Relaxed);
        Counting(self.next.fetch_add(1, Ordering::Relaxed) % SETS)
    }

    /// Notes the end of a connection.
    pub(crate) fn disconnect(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts one event.
    #[inline]
    pub(crate) fn count(&self, counting: Counting, counter: Counter) {
        self.add(counting, counter, 1);
    }

    /// Adds `more` to a counter.
    #[inline]
    pub(crate) fn add(&self, Counting(set): Counting, counter: Counter, count: u64) {
        self.sets[set].0[counter as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Sets the counters to zero.
    pub(crate) fn reset(&self) {
        for counter in self.sets.iter().flat_map(|set| &set.0) {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn sum(&self, at: usize) -> u64 {
        self.sets.iter().map(|set| set.0[at].load(Ordering::Relaxed)).sum()
    }
}

/// The counter for the result of incr or decr.
pub(crate) fn counter_of(is_up: bool, is_hit: bool) -> Counter {
    match (is_up, is_hit) {
        (true, true) => Counter::IncrementHits,
        (true, false) => Counter::IncrementMisses,
        (false, true) => Counter::DecrementHits,
        (false, false) => Counter::DecrementMisses,
    }
}
