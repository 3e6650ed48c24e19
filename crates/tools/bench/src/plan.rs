//! The plan of a comparison.

use std::time::Duration;

use crate::conditions::Conditions;
use crate::key_sampler::KeyChoice;
use crate::operation_mix::{OperationMix, Work};
use crate::record::{Records, Shape};
use crate::systems::entry::Builder;

/// The plan of a comparison.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Operation mixes of a round.
    pub mixes: Vec<OperationMix>,
    /// Records loaded before the first round.
    pub records: u64,
    /// Numbers of threads, in the order of each round.
    pub threads: Vec<usize>,
    /// The distribution of keys; if it is not set, that of each mix, otherwise uniform.
    pub keys: Option<KeyChoice>,
    /// Lengths of keys and values.
    pub shape: Shape,
    /// Number of rounds.
    pub rounds: usize,
    /// Time of a slice of reads, upserts or scans.
    pub time: Duration,
    /// Records of a slice of inserts or deletes.
    pub batch: u64,
    /// In a closed loop, one operation in this many is timed.
    pub sample_every: u64,
    /// In an open loop, operations that all threads together start per second.
    pub rate_ops_per_second: Option<f64>,
    /// Seed of all operations.
    pub seed: u64,
    /// After the first round, a round starts only if it is likely to end within this time from the
    /// start of the run.
    pub time_limit: Option<Duration>,
    /// Machine and build.
    pub conditions: Conditions,
}

impl Plan {
    /// The distribution of keys of `mix`.
    pub fn keys_of(&self, mix: &OperationMix) -> KeyChoice {
        self.keys.or(mix.keys).unwrap_or(KeyChoice::Uniform)
    }

    /// The greatest number of records of a system, if no record is deleted.
    pub fn most_records(&self) -> u64 {
        let adds = |mix: &&OperationMix| match mix.work {
            Work::Insert => true,
            Work::Blend(blend) => blend.insert_every > 0,
            Work::Load | Work::Delete | Work::ReadBatch | Work::UpdateBatch => false,
        };
        let slices = self.mixes.iter().filter(adds).count() * self.rounds * self.threads.len();
        // In a blend, each thread inserts at least once.
        let each = self.batch.max(self.threads.iter().copied().max().unwrap_or(1) as u64);
        self.records.saturating_add(each.saturating_mul(slices as u64))
    }

    /// The keys of the records.
    pub fn records_of_run(&self) -> Records {
        let is_monotonic = self.keys == Some(KeyChoice::Monotonic);
        Records { shape: self.shape, is_monotonic }
    }
}

/// A system: its name and its builder.
pub struct NamedSystem {
    /// Its name in reports.
    pub name: String,
    /// Builds it without records.
    pub build: Builder,
}

/// Bytes per record after the load, with all overhead of the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Space {
    /// Used bytes of a pool, otherwise the growth of the heap.
    pub used: Option<f64>,
    /// Bytes that the file system has allocated for the system's files, if it has any.
    pub files: Option<f64>,
    /// The growth of the heap, if it is known.
    pub heap: Option<f64>,
}
