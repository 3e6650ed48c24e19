//! The figures of a run by cells, and the rows of these cells.
//!
//! A cell is one operation mix with one number of threads on one system. The ratio of two cells is
//! taken in each round; the result is the median of the rounds. So a disturbance of the machine in
//! a round affects both cells.

use crate::conditions::Conditions;
use crate::plan::{NamedSystem, Plan, Space};
use crate::record::Shape;
use crate::report::{ROW_VERSION, Row};
use crate::slice::{Outcome, Traffic};
use crate::spread::Spread;
use crate::systems;

/// Points of a latency curve for each nine of its percentiles.
const POINTS_PER_NINE: u32 = 10;
/// Maximum number of nines of a latency curve: 99.999 %.
const NINES: u32 = 5;

/// The figures of one system in one mix with one number of threads: of each round, and of all.
pub struct Cell {
    ops_per_second: Vec<f64>,
    ops_per_core_second: Vec<f64>,
    all: Outcome,
    space: Space,
}

impl Cell {
    /// A cell before its first round.
    pub fn empty() -> Self {
        Self {
            ops_per_second: Vec::new(),
            ops_per_core_second: Vec::new(),
            all: Outcome::none(),
            space: Space::default(),
        }
    }

    /// Adds the next round.
    pub fn add(&mut self, outcome: &Outcome, space: Space) {
        self.ops_per_second.push(outcome.ops_per_second());
        self.ops_per_core_second.push(outcome.ops_per_core_second());
        self.all.append(outcome);
        self.space = space;
    }
}

/// The spread of `own` divided by `other`, round by round.
fn divided(own: &[f64], other: &[f64]) -> Spread {
    Spread::of(&own.iter().zip(other).map(|(own, other)| own / other).collect::<Vec<_>>())
}

/// The cells of a run: by mix, then number of threads, then system.
pub struct Table<'run> {
    plan: &'run Plan,
    systems: &'run [NamedSystem],
    cells: Vec<Cell>,
}

impl<'run> Table<'run> {
    /// Empty cells for `plan` and `systems`; the first system is the base.
    pub fn new(plan: &'run Plan, systems: &'run [NamedSystem]) -> Self {
        let cells = plan.mixes.len() * plan.threads.len() * systems.len();
        Self { plan, systems, cells: (0..cells).map(|_| Cell::empty()).collect() }
    }

    fn at(&self, mix: usize, threads: usize, system: usize) -> usize {
        (mix * self.plan.threads.len() + threads) * self.systems.len() + system
    }

    /// The cell of a mix, a number of threads and a system, each by its position in the plan.
    pub fn cell(&mut self, mix: usize, threads: usize, system: usize) -> &mut Cell {
        let at = self.at(mix, threads, system);
        &mut self.cells[at]
    }

    /// A row for each cell.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::with_capacity(self.cells.len());
        for mix in 0..self.plan.mixes.len() {
            for threads in 0..self.plan.threads.len() {
                for system in 0..self.systems.len() {
                    rows.push(self.row(mix, threads, system));
                }
            }
        }
        rows
    }

    fn row(&self, mix: usize, threads_index: usize, system: usize) -> Row {
        let plan = self.plan;
        let cell = &self.cells[self.at(mix, threads_index, system)];
        let base = &self.cells[self.at(mix, threads_index, 0)];
        let fewer =
            threads_index.checked_sub(1).map(|before| &self.cells[self.at(mix, before, system)]);
        let context = RowContext {
            system: &self.systems[system].name,
            mix: plan.mixes[mix].name,
            keys: plan.keys_of(&plan.mixes[mix]).to_string(),
            records: plan.records,
            shape: plan.shape,
            threads: plan.threads[threads_index],
            base: &self.systems[0].name,
            rate_ops_per_second: plan.rate_ops_per_second,
            conditions: &plan.conditions,
            seed: plan.seed,
        };
        row(&context, cell, base, fewer)
    }
}

/// The parts of a row that are no figures.
pub struct RowContext<'run> {
    /// The system's name.
    pub system: &'run str,
    /// The mix's name.
    pub mix: &'run str,
    /// The distribution of keys.
    pub keys: String,
    /// Records that were loaded.
    pub records: u64,
    /// Lengths of keys and values.
    pub shape: Shape,
    /// Number of threads.
    pub threads: usize,
    /// The system to which the ratios refer.
    pub base: &'run str,
    /// The rate of an open loop.
    pub rate_ops_per_second: Option<f64>,
    /// Machine and build.
    pub conditions: &'run Conditions,
    /// Seed of the operations.
    pub seed: u64,
}

/// The row of `cell`. Ratios refer to `base`; `fewer` is the cell of the same system with the
/// previous number of threads.
pub fn row(context: &RowContext<'_>, cell: &Cell, base: &Cell, fewer: Option<&Cell>) -> Row {
    let ratio = divided(&cell.ops_per_second, &base.ops_per_second);
    let on_core = divided(&cell.ops_per_core_second, &base.ops_per_core_second);
    let scaling = fewer.map(|fewer| divided(&cell.ops_per_second, &fewer.ops_per_second));
    let quantile = |share| cell.all.latency_ns.value_at_quantile(share);
    let cores = context.conditions.cores.max(1);
    let due = cell.all.elapsed.as_secs_f64() * context.threads.min(cores) as f64;
    let by_operation = |bytes: fn(Traffic) -> u64| {
        let traffic = cell.all.traffic?;
        Some(bytes(traffic) as f64 / cell.all.operations.max(1) as f64)
    };
    let entry = systems::SYSTEMS.iter().find(|entry| entry.name == context.system);
    Row {
        version: ROW_VERSION,
        system: context.system.to_owned(),
        operation_mix: context.mix.to_owned(),
        keys: context.keys.clone(),
        records: context.records,
        key_bytes: context.shape.key_bytes,
        value_bytes: context.shape.value_bytes,
        threads: context.threads,
        ops_per_second: Spread::of(&cell.ops_per_second).median,
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
        p999_ns: quantile(0.999),
        max_ns: cell.all.latency_ns.max(),
        bytes_per_record: cell.space.used,
        file_bytes_per_record: cell.space.files,
        read_bytes_per_op: by_operation(|traffic| traffic.read_bytes),
        written_bytes_per_op: by_operation(|traffic| traffic.written_bytes),
        base: context.base.to_owned(),
        ratio_to_first: ratio.median,
        ratio_min: ratio.min,
        ratio_max: ratio.max,
        on_core_ratio: on_core.median,
        on_core_ratio_min: on_core.min,
        on_core_ratio_max: on_core.max,
        scaling: scaling.map(|spread| spread.median),
        scaling_min: scaling.map(|spread| spread.min),
        scaling_max: scaling.map(|spread| spread.max),
        on_core_share: cell.all.on_core.as_secs_f64() / due.max(1e-9),
        rounds: cell.ops_per_second.len(),
        operations: cell.all.operations,
        due_not_begun: cell.all.due_not_begun,
        transient_misses: cell.all.transient_misses,
        latency_samples: cell.all.latency_ns.len(),
        rate_ops_per_second: context.rate_ops_per_second,
        durability: entry.map(|entry| entry.durability),
        conditions: context.conditions.clone(),
        seed: context.seed,
        latency_curve: curve(&cell.all),
    }
}

/// Latencies by nines, up to the percentile that the number of samples supports.
fn curve(outcome: &Outcome) -> Vec<(f64, u64)> {
    let nines = |point: u32| f64::from(point) / f64::from(POINTS_PER_NINE);
    let told = (outcome.latency_ns.len().max(1) as f64).log10();
    (0..=NINES * POINTS_PER_NINE)
        .map(nines)
        .take_while(|&nines| nines <= told)
        .map(|nines| {
            let share = 1.0 - 10_f64.powf(-nines);
            (nines, outcome.latency_ns.value_at_quantile(share))
        })
        .collect()
}
