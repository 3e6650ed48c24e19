//! What is to be done in a run, and what was tried.

use std::time::Instant;

use crate::lab::recorder::Site;

/// How many crashes of a run are judged.
#[derive(Clone, Copy, Debug)]
pub struct Crashes {
    /// Cuts, drawn by chance; each one if there is no number.
    pub cuts: Option<usize>,
    /// Images of one cut at most.
    pub images: usize,
    /// No further cut from then on.
    pub until: Option<Instant>,
}

/// What is to be done in one run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Everything that is drawn in the run is drawn from this.
    pub seed: u64,
    /// Which crashes are judged.
    pub crashes: Crashes,
    /// One image in so many has its recovery cut too.
    pub recovery_every: u64,
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Runs: schedules that were tried.
    pub runs: u64,
    /// Steps of all runs.
    pub steps: u64,
    /// Points at which runs were cut.
    pub cuts: u64,
    /// Crash images judged.
    pub images: u64,
    /// Images that had been judged already in the same run.
    pub repeated: u64,
    /// Among the images, those of a crash in a recovery.
    pub of_recovery: u64,
}

impl Tally {
    /// Adds what another tried.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.cuts += other.cuts;
        self.images += other.images;
        self.repeated += other.repeated;
        self.of_recovery += other.of_recovery;
    }
}

/// A trial, whatever its subject.
pub trait Trial {
    /// `subject/scenario/domain`.
    fn name(&self) -> String;

    /// How many preemptions are few enough to try all schedules.
    fn preemptions(&self) -> u32;

    /// Runs once, as the director says; only within [`direct`](crate::lab::director::direct).
    fn run(&mut self, plan: &Plan, tally: &mut Tally) -> Result<(), String>;

    /// Runs once, and plays the run back without each of the places that wrote back or fenced in
    /// it and that `wanted` still wants: those whose absence was seen, and as what.
    fn run_without(
        &mut self,
        plan: &Plan,
        wanted: &dyn Fn(Site) -> bool,
    ) -> Result<Vec<(Site, Option<String>)>, String>;
}
