//! The plan of a run, and the counts of a trial.

use std::time::Instant;

use crate::lab::recorder::Site;

/// How many crashes of a run are checked.
#[derive(Clone, Copy, Debug)]
pub struct Crashes {
    /// Number of random cuts; all cuts if there is no number.
    pub cuts: Option<usize>,
    /// Most images of one cut.
    pub images: usize,
    /// No cut is checked later.
    pub until: Option<Instant>,
}

/// The plan of one run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed of all random numbers of the run.
    pub seed: u64,
    /// The crashes that are checked.
    pub crashes: Crashes,
    /// The recovery of one image in this number is cut too.
    pub recovery_every: u64,
}

/// The counts of a trial.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Runs: schedules that were executed.
    pub runs: u64,
    /// Steps of all runs.
    pub steps: u64,
    /// Points at which runs were cut.
    pub cuts: u64,
    /// Crash images that were checked.
    pub images: u64,
    /// Images that had been checked before in the same run.
    pub repeated: u64,
    /// The images of a crash during recovery, among them.
    pub of_recovery: u64,
}

impl Tally {
    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.cuts += other.cuts;
        self.images += other.images;
        self.repeated += other.repeated;
        self.of_recovery += other.of_recovery;
    }
}

/// A trial of any subject.
pub trait Trial {
    /// `subject/scenario/domain`.
    fn name(&self) -> String;

    /// The bound of preemptions for the exhaustive schedules.
    fn preemptions(&self) -> u32;

    /// Runs once, with the director's schedule; only within
    /// [`direct`](crate::lab::director::direct).
    fn run(&mut self, plan: &Plan, tally: &mut Tally) -> Result<(), String>;

    /// Runs once, and plays the run back without each `wanted` write-back or fence. Returns each
    /// such place, with the fault if its absence was seen.
    fn run_without(
        &mut self,
        plan: &Plan,
        wanted: &dyn Fn(Site) -> bool,
    ) -> Result<Vec<(Site, Option<String>)>, String>;
}
