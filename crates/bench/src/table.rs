//! The figures of a run, cell by cell, and the rows that are made of them.
//!
//! A cell is one mix with one number of threads on one side. Ratios are taken between cells of the
//! same round, then the median over the rounds: what slowed the machine down in a round slowed
//! both.

use crate::compare::{Entrant, Plan};
use crate::machine;
use crate::report::{Row, Spread};
use crate::slice::Outcome;

/// What one side did in one mix with one number of threads: by round, and all rounds together.
pub struct Cell {
    ops_per_second: Vec<f64>,
    ops_per_core_second: Vec<f64>,
    all: Outcome,
    bytes_per_record: Option<f64>,
}

impl Cell {
    fn empty() -> Self {
        Self {
            ops_per_second: Vec::new(),
            ops_per_core_second: Vec::new(),
            all: Outcome::none(),
            bytes_per_record: None,
        }
    }

    /// Adds the next round.
    pub fn add(&mut self, outcome: &Outcome, bytes_per_record: Option<f64>) {
        self.ops_per_second.push(outcome.ops_per_second());
        self.ops_per_core_second.push(outcome.ops_per_core_second());
        self.all.append(outcome);
        self.bytes_per_record = bytes_per_record;
    }
}

/// The spread of `own` divided by `other`, round by round.
fn divided(own: &[f64], other: &[f64]) -> Spread {
    Spread::of(&own.iter().zip(other).map(|(own, other)| own / other).collect::<Vec<_>>())
}

/// The cells of a run: by mix, then number of threads, then side.
pub struct Table<'run> {
    plan: &'run Plan,
    entrants: &'run [Entrant],
    base: usize,
    cells: Vec<Cell>,
}

impl<'run> Table<'run> {
    /// Empty cells for `plan` and `entrants`, of which the one at `base` is what others are
    /// divided by.
    pub fn new(plan: &'run Plan, entrants: &'run [Entrant], base: usize) -> Self {
        let cells = plan.mixes.len() * plan.threads.len() * entrants.len();
        Self { plan, entrants, base, cells: (0..cells).map(|_| Cell::empty()).collect() }
    }

    fn at(&self, mix: usize, threads: usize, side: usize) -> usize {
        (mix * self.plan.threads.len() + threads) * self.entrants.len() + side
    }

    /// The cell of a mix, a number of threads and a side, each by its place in the plan.
    pub fn cell(&mut self, mix: usize, threads: usize, side: usize) -> &mut Cell {
        let at = self.at(mix, threads, side);
        &mut self.cells[at]
    }

    /// A row for each cell.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::with_capacity(self.cells.len());
        for mix in 0..self.plan.mixes.len() {
            for threads in 0..self.plan.threads.len() {
                for side in 0..self.entrants.len() {
                    rows.push(self.row(mix, threads, side));
                }
            }
        }
        rows
    }

    fn row(&self, mix: usize, threads_index: usize, side: usize) -> Row {
        let plan = self.plan;
        let cell = &self.cells[self.at(mix, threads_index, side)];
        let base = &self.cells[self.at(mix, threads_index, self.base)];
        let ratio = divided(&cell.ops_per_second, &base.ops_per_second);
        let on_core = divided(&cell.ops_per_core_second, &base.ops_per_core_second);
        let scaling = threads_index.checked_sub(1).map(|before| {
            let before = &self.cells[self.at(mix, before, side)];
            divided(&cell.ops_per_second, &before.ops_per_second)
        });
        let quantile = |share| cell.all.latency_ns.value_at_quantile(share);
        let threads = plan.threads[threads_index];
        let cores = machine::cores().len();
        let due = cell.all.elapsed.as_secs_f64() * threads.min(cores.max(1)) as f64;
        Row {
            side: self.entrants[side].name.clone(),
            mix: plan.mixes[mix].name,
            keys: plan.keys_of(&plan.mixes[mix]).to_string(),
            records: plan.records,
            threads,
            ops_per_second: Spread::of(&cell.ops_per_second).median,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: cell.all.latency_ns.max(),
            bytes_per_record: cell.bytes_per_record,
            base: self.entrants[self.base].name.clone(),
            ratio_to_base: ratio.median,
            ratio_min: ratio.min,
            ratio_max: ratio.max,
            on_core_ratio: on_core.median,
            on_core_ratio_min: on_core.min,
            on_core_ratio_max: on_core.max,
            scaling: scaling.map(|spread| spread.median),
            scaling_min: scaling.map(|spread| spread.min),
            scaling_max: scaling.map(|spread| spread.max),
            on_core_share: cell.all.on_core.as_secs_f64() / due.max(1e-9),
            rounds: plan.rounds,
            operations: cell.all.operations,
            transient_misses: cell.all.transient_misses,
            latency_samples: cell.all.latency_ns.len(),
            cores,
            seed: plan.seed,
        }
    }
}
