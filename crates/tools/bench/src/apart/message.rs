//! The lines between the process of a comparison and that of a system: requests and replies, one
//! object of JSON each.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::key_sampler::{KeyChoice, KeySampler};
use crate::latency::empty_histogram;
use crate::operation_mix::OperationMix;
use crate::record::{Records, Shape};
use crate::slice::{Outcome, Slice, Traffic};

/// A request.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Runs a slice.
    Run(Part),
    /// Compares the number of records, or all of them.
    Verify {
        /// Lengths of keys and values, and whether number keys are the record numbers.
        records: (usize, usize, bool),
        /// The records that must be there.
        live: Range<u64>,
        /// All are read.
        is_whole: bool,
    },
    /// The bytes that the system takes.
    Bytes,
}

/// A reply.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The system is built.
    Built,
    /// The result of a slice.
    Ran(Figures),
    /// All is as it must be.
    Verified,
    /// Bytes in memory and in files.
    Bytes(Option<u64>, Option<u64>),
    /// It failed; the process ends.
    Failed(String),
}

/// A slice.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    mix: String,
    threads: usize,
    records: (usize, usize, bool),
    live: Range<u64>,
    target: Range<u64>,
    time: Duration,
    warm_up: Duration,
    keys: String,
    seed: u64,
    sample_every: u64,
    rate_ops_per_second: Option<f64>,
}

/// The records of a message.
pub fn records_of((key_bytes, value_bytes, is_monotonic): (usize, usize, bool)) -> Records {
    Records { shape: Shape { key_bytes, value_bytes }, is_monotonic }
}

/// The same, for a message.
pub fn told(records: Records) -> (usize, usize, bool) {
    let Records { shape: Shape { key_bytes, value_bytes }, is_monotonic } = records;
    (key_bytes, value_bytes, is_monotonic)
}

impl Part {
    /// The slice as a request has it.
    pub fn of(slice: &Slice<'_>) -> Self {
        Self {
            mix: slice.mix.name.to_owned(),
            threads: slice.threads,
            records: told(slice.records),
            live: slice.live.clone(),
            target: slice.target.clone(),
            time: slice.time,
            warm_up: slice.warm_up,
            keys: slice.keys.to_string(),
            seed: slice.seed,
            sample_every: slice.sample_every,
            rate_ops_per_second: slice.rate_ops_per_second,
        }
    }

    /// The distribution of its keys.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn keys(&self) -> Result<KeyChoice, String> {
        self.keys.parse()
    }

    /// The slice.
    ///
    /// # Errors
    ///
    /// A mix or a distribution that is none.
    pub fn slice<'run>(&self, sampler: &'run KeySampler) -> Result<Slice<'run>, String> {
        Ok(Slice {
            mix: self.mix.parse::<OperationMix>()?,
            threads: self.threads,
            records: records_of(self.records),
            live: self.live.clone(),
            target: self.target.clone(),
            time: self.time,
            warm_up: self.warm_up,
            keys: self.keys()?,
            sampler,
            seed: self.seed,
            sample_every: self.sample_every,
            rate_ops_per_second: self.rate_ops_per_second,
        })
    }
}

/// The result of a slice.
#[derive(Debug, Serialize, Deserialize)]
pub struct Figures {
    operations: u64,
    due_not_begun: u64,
    elapsed: Duration,
    on_core: Duration,
    transient_misses: u64,
    /// Latencies in nanoseconds, each with its number of operations.
    latencies: Vec<(u64, u64)>,
    read_bytes: u64,
    written_bytes: u64,
}

impl Figures {
    /// The outcome as a reply has it.
    pub fn of(outcome: &Outcome, Traffic { read_bytes, written_bytes }: Traffic) -> Self {
        let latencies = outcome.latency_ns.iter_recorded();
        let latencies = latencies.map(|found| (found.value_iterated_to(), found.count_at_value()));
        Self {
            operations: outcome.operations,
            due_not_begun: outcome.due_not_begun,
            elapsed: outcome.elapsed,
            on_core: outcome.on_core,
            transient_misses: outcome.transient_misses,
            latencies: latencies.collect(),
            read_bytes,
            written_bytes,
        }
    }

    /// The outcome.
    pub fn outcome(self) -> Outcome {
        let mut latency_ns = empty_histogram();
        for (ns, count) in self.latencies {
            latency_ns.saturating_record_n(ns, count);
        }
        let Self { read_bytes, written_bytes, .. } = self;
        Outcome {
            operations: self.operations,
            due_not_begun: self.due_not_begun,
            elapsed: self.elapsed,
            on_core: self.on_core,
            transient_misses: self.transient_misses,
            latency_ns,
            traffic: Some(Traffic { read_bytes, written_bytes }),
        }
    }
}
