//! A timed slice: several threads run one operation mix on one system.
//!
//! The threads wait at a barrier and start together. If there are enough cores, each thread is
//! pinned to its own. The time of a slice is from the start of the first thread to the end of the
//! last one. Each thread warms up with reads before the barrier, because the previous system has
//! replaced the content of the cache.
//!
//! One operation in [`Slice::sample_every`] is timed, because two readings of the clock for each
//! operation would add a twentieth to a fast one. The loop is closed: each thread waits for its own
//! operation only, so that a long stall is one long sample. With a rate the loop is open: each
//! operation is timed, and a stall lengthens the latency of all operations that wait for it
//! ([`arrival_schedule`](crate::arrival_schedule)).

use std::ops::Range;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::key_sampler::{KeyChoice, KeySampler};
use crate::latency::empty_histogram;
use crate::operation_mix::OperationMix;
use crate::record::Records;

/// A slice.
#[derive(Clone, Debug)]
pub struct Slice<'run> {
    /// The operations.
    pub mix: OperationMix,
    /// Number of threads.
    pub threads: usize,
    /// The keys of the records.
    pub records: Records,
    /// The records at the start of the slice.
    pub live: Range<u64>,
    /// The records that the slice inserts or deletes.
    pub target: Range<u64>,
    /// Time of the slice, if its mix is timed.
    pub time: Duration,
    /// Time for which each thread reads before the start.
    pub warm_up: Duration,
    /// The distribution of keys.
    pub keys: KeyChoice,
    /// The choice of records: that distribution.
    pub sampler: &'run KeySampler,
    /// Seed of the operations; the same on every system.
    pub seed: u64,
    /// In a closed loop, one operation in this many is timed.
    pub sample_every: u64,
    /// In an open loop, operations that all threads together start per second.
    pub rate_ops_per_second: Option<f64>,
}

/// The result of a slice.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Operations of all threads.
    pub operations: u64,
    /// Operations of an open loop that were due but not started at the end of the slice.
    pub due_not_begun: u64,
    /// Time from the first start to the last end.
    pub elapsed: Duration,
    /// Core time of all threads.
    pub on_core: Duration,
    /// Gets that missed a key while another thread replaced its value; see
    /// [`REPLACING_HIDES_KEY`](crate::system::System::REPLACING_HIDES_KEY).
    pub transient_misses: u64,
    /// Latencies in nanoseconds of the timed operations, and the waits of operations that were due
    /// but not started.
    pub latency_ns: Histogram<u64>,
    /// What the process of the system has read from the device and written meanwhile, if it has
    /// one of its own.
    pub traffic: Option<Traffic>,
}

/// Bytes that a process has read from a device and written to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Traffic {
    /// What came after `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
        }
    }
}

impl Outcome {
    /// The result before the first operation.
    pub fn none() -> Self {
        Self {
            operations: 0,
            due_not_begun: 0,
            elapsed: Duration::ZERO,
            on_core: Duration::ZERO,
            transient_misses: 0,
            latency_ns: empty_histogram(),
            traffic: None,
        }
    }

    /// Adds the result of a later slice.
    pub fn append(&mut self, later: &Self) {
        self.operations += later.operations;
        self.due_not_begun += later.due_not_begun;
        self.elapsed += later.elapsed;
        self.on_core += later.on_core;
        self.transient_misses += later.transient_misses;
        self.latency_ns += &later.latency_ns;
        let traffic = self.traffic.into_iter().chain(later.traffic);
        self.traffic = traffic.reduce(Traffic::plus);
    }

    /// Operations per second of core time.
    pub fn ops_per_core_second(&self) -> f64 {
        self.operations as f64 / self.on_core.as_secs_f64().max(1e-9)
    }

    /// Operations per second.
    pub fn ops_per_second(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}
