//! One timed slice: some threads do one mix on one system.
//!
//! Threads meet at a barrier and start together; each is kept on a core of its own when there
//! are enough. A slice's time runs from the first thread's start to the last one's end. Before
//! the barrier each thread warms up with reads, because the system before it has had the cache.
//!
//! Latency is taken of one operation in [`Slice::sample_every`]: two readings of the clock for
//! each would add a twentieth to a fast operation. The loop is closed, each thread waiting for
//! its own operation only, so a long stall is one long sample; with a rate it is open, every
//! operation is timed, and a stall is charged to all that had to wait for it
//! ([`arrival_schedule`](crate::arrival_schedule)).

use std::ops::Range;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::key_sampler::KeySampler;
use crate::latency::empty_histogram;
use crate::operation_mix::OperationMix;
use crate::record::Records;

/// What to run.
#[derive(Clone, Debug)]
pub struct Slice<'run> {
    /// The operations.
    pub mix: OperationMix,
    /// Threads that run them.
    pub threads: usize,
    /// Which keys the records have.
    pub records: Records,
    /// Records that are there when the slice begins.
    pub live: Range<u64>,
    /// Records to be inserted or deleted, for the mixes that do.
    pub target: Range<u64>,
    /// How long the other mixes run.
    pub time: Duration,
    /// How long each thread reads before the start.
    pub warm_up: Duration,
    /// Which records are met.
    pub sampler: &'run KeySampler,
    /// Seed of the operations; the same on every system.
    pub seed: u64,
    /// One operation in so many is timed, if the loop is closed.
    pub sample_every: u64,
    /// How many operations all threads together begin a second, if the loop is open.
    pub rate_ops_per_second: Option<f64>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Operations done by all threads.
    pub operations: u64,
    /// Operations that were due in an open loop when the slice ended, and had not begun.
    pub due_not_begun: u64,
    /// From the first start to the last end.
    pub elapsed: Duration,
    /// Time that the threads had a core, together.
    pub on_core: Duration,
    /// Gets that missed a key which another thread was replacing; see
    /// [`REPLACING_HIDES_KEY`](crate::system::System::REPLACING_HIDES_KEY).
    pub transient_misses: u64,
    /// Latencies in nanoseconds of the operations that were timed, and how long those have waited
    /// that were due and not begun.
    pub latency_ns: Histogram<u64>,
}

impl Outcome {
    /// Nothing done yet.
    pub fn none() -> Self {
        Self {
            operations: 0,
            due_not_begun: 0,
            elapsed: Duration::ZERO,
            on_core: Duration::ZERO,
            transient_misses: 0,
            latency_ns: empty_histogram(),
        }
    }

    /// Adds a slice that came after this one.
    pub fn append(&mut self, later: &Self) {
        self.operations += later.operations;
        self.due_not_begun += later.due_not_begun;
        self.elapsed += later.elapsed;
        self.on_core += later.on_core;
        self.transient_misses += later.transient_misses;
        self.latency_ns += &later.latency_ns;
    }

    /// Operations for each second that a thread had a core.
    pub fn ops_per_core_second(&self) -> f64 {
        self.operations as f64 / self.on_core.as_secs_f64().max(1e-9)
    }

    /// Operations a second.
    pub fn ops_per_second(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}
