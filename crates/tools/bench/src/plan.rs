//! What is compared, and how.

use std::time::Duration;

use crate::conditions::Conditions;
use crate::key_sampler::KeyChoice;
use crate::operation_mix::{OperationMix, Work};
use crate::record::{Records, Shape};
use crate::systems::entry::Builder;

/// What is compared, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Mixes of a round.
    pub mixes: Vec<OperationMix>,
    /// Records loaded before the first round.
    pub records: u64,
    /// Numbers of threads, one after the other in each round.
    pub threads: Vec<usize>,
    /// Which records an operation meets; each mix's own choice, or uniform, if it is not said.
    pub keys: Option<KeyChoice>,
    /// Sizes of keys and values.
    pub shape: Shape,
    /// Rounds.
    pub rounds: usize,
    /// How long a slice of reads, upserts or scans takes.
    pub time: Duration,
    /// How many records a slice of inserts or deletes takes.
    pub batch: u64,
    /// One operation in so many is timed, if the loop is closed.
    pub sample_every: u64,
    /// Operations that all threads together begin a second, if the loop is open.
    pub rate_ops_per_second: Option<f64>,
    /// Seed of all operations.
    pub seed: u64,
    /// No round is begun that is not likely to end within this time from the start, the first
    /// excepted.
    pub time_limit: Option<Duration>,
    /// What the figures are taken on.
    pub conditions: Conditions,
}

impl Plan {
    /// Which records `mix` meets.
    pub fn keys_of(&self, mix: &OperationMix) -> KeyChoice {
        self.keys.or(mix.keys).unwrap_or(KeyChoice::Uniform)
    }

    /// The most records that a system can hold at once, if nothing is deleted.
    pub fn most_records(&self) -> u64 {
        let adds = |mix: &&OperationMix| match mix.work {
            Work::Insert => true,
            Work::Blend(blend) => blend.insert_every > 0,
            Work::Load | Work::Delete | Work::Batch => false,
        };
        let slices = self.mixes.iter().filter(adds).count() * self.rounds * self.threads.len();
        // A blend inserts once a thread at least.
        let each = self.batch.max(self.threads.iter().copied().max().unwrap_or(1) as u64);
        self.records.saturating_add(each.saturating_mul(slices as u64))
    }

    /// Which keys the records have.
    pub fn records_of_run(&self) -> Records {
        let is_monotonic = self.keys == Some(KeyChoice::Monotonic);
        Records { shape: self.shape, is_monotonic }
    }
}

/// A system by name, and how to build it.
pub struct NamedSystem {
    /// The name in the reports.
    pub name: String,
    /// Builds it, empty.
    pub build: Builder,
}

/// Bytes a record after the load, all that the system takes included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Space {
    /// Of a pool what it has used, otherwise the heap's growth.
    pub used: Option<f64>,
    /// What the file system has given to the system's files, if it has any.
    pub files: Option<f64>,
    /// The heap's growth, if it is counted.
    pub heap: Option<f64>,
}
