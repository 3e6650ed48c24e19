//! BzTree: A High-Performance Latch-Free Range Index for Non-Volatile Memory (Arulraj, Levandoski,
//! Minhas, Larson; VLDB 2018).
//!
//! All of its figures compare with a Bw-tree. Ours take its place: `bwtree-plain`, the Bw-tree as
//! its paper has it, to which ratios are; and `bwtree`, with what we have changed. Beside them what
//! a user would otherwise pick: crossbeam's skip list and a `BTreeMap` under a lock.
//!
//! | file | what |
//! | --- | --- |
//! | [`mod@throughput`] | figures 4 to 7: mixes, keys, durability, scans |
//! | [`sensitivity`] | figure 8: key size and free space |
//! | [`tables`] | tables 1 and 2, figure 9 |

pub mod sensitivity;
pub mod tables;
pub mod throughput;

use std::time::Duration;

use indicatif::ProgressBar;
use pando_bztree::Options;
use pando_tree::maps::IndexOptions;

use super::error::Error;
use super::experiment::{Paper, Settings};
use super::outcome::Measured;
use pando_bench::compare;
use pando_bench::conditions::Conditions;
use pando_bench::key_sampler::KeyChoice;
use pando_bench::operation_mix::{Blend, OperationMix, ScanLengths, Work};
use pando_bench::plan::{NamedSystem, Plan};
use pando_bench::record::Shape;
use pando_bench::report::Row;
use pando_bench::system::Order;
use pando_bench::systems::{BuildOptions, builder};
use pando_bench::units::count;

/// The paper, and what it measured on.
pub const PAPER: Paper = Paper {
    short: "bztree",
    title: "Arulraj, Levandoski, Minhas, Larson: BzTree: A High-Performance Latch-Free Range Index for Non-Volatile Memory",
    conditions: "Xeon E7-8890 2.2 GHz, 24 cores, 48 threads, Windows, DRAM; 1M records of 8-byte keys and values, pages of 1 KB; 3 runs, mean",
};

/// Nodes of the paper's size.
pub const PAGES_OF_1_KIB: Options = Options {
    leaf_bytes: 1024,
    inner_bytes: 1024,
    free_bytes: 256,
    merge_bytes: 384,
    inline_bytes: 512,
    value_mode: pando_bztree::ValueMode::Inline,
    numbers: pando_bztree::Numbers::Sorted,
};

/// Gets, upserts and scans of 10 by chance; `insert_every` as in [`Blend`].
pub const fn blend(
    name: &'static str,
    what: &'static str,
    shares: [u64; 3],
    insert_every: u64,
) -> OperationMix {
    let [reads, updates, scans] = shares;
    let scan = ScanLengths { min_records: 10, max_records: 10, order: Order::Ascending };
    let work =
        Work::Blend(Blend { reads, updates, read_modify_writes: 0, scans, scan, insert_every });
    OperationMix { name, what, work, keys: None }
}

/// The paper's four mixtures.
pub const READ_ONLY: OperationMix = blend("read-only", "gets", [100, 0, 0], 0);
/// See [`READ_ONLY`].
pub const READ_MOSTLY: OperationMix =
    blend("read-mostly", "90 % gets, 10 % upserts", [90, 10, 0], 0);
/// See [`READ_ONLY`].
pub const READ_HEAVY: OperationMix = blend("read-heavy", "75 % gets, 25 % upserts", [75, 25, 0], 0);
/// See [`READ_ONLY`].
pub const BALANCED: OperationMix = blend("balanced", "50 % gets, 50 % upserts", [50, 50, 0], 0);
/// Figure 7: scans in place of gets.
pub const SCAN_MOSTLY: OperationMix =
    blend("scan read-mostly", "90 % scans of 10, 10 % upserts", [0, 10, 90], 0);
/// See [`SCAN_MOSTLY`].
pub const SCAN_BALANCED: OperationMix =
    blend("scan balanced", "50 % scans of 10, 50 % upserts", [0, 50, 50], 0);
/// Figure 5d: every second operation inserts the next key.
pub const GROWING: OperationMix =
    blend("balanced, ascending inserts", "50 % gets, 50 % inserts of the next key", [100, 0, 0], 2);

/// What a run compares, where the settings do not say.
pub struct Grid<'run> {
    /// Names of systems; ratios are to the first.
    pub systems: &'run [&'static str],
    /// The mixes.
    pub mixes: &'run [OperationMix],
    /// The distribution of keys.
    pub keys: KeyChoice,
    /// Sizes of keys and values.
    pub shape: Shape,
    /// Records, where none are asked for.
    pub records: u64,
}

/// How a run of `settings` builds the system `name`, with pages of the paper's size.
fn build_of(name: &str, settings: &Settings) -> BuildOptions {
    let plain = name.starts_with("bwtree-plain");
    let shape =
        if plain { pando_bwtree::Options::plain() } else { pando_bwtree::Options::default() };
    let pages = pando_bwtree::Options { leaf_bytes: 1024, inner_bytes: 1024, ..shape };
    match name.starts_with("bwtree") {
        true => BuildOptions {
            settings: Some(pages.values().expect("options in range")),
            ..settings.build.clone()
        },
        false => build_with(settings, PAGES_OF_1_KIB),
    }
}

/// How a run of `settings` builds trees with `options`.
pub fn build_with(settings: &Settings, options: Options) -> BuildOptions {
    BuildOptions {
        settings: Some(options.values().expect("options in range")),
        ..settings.build.clone()
    }
}

/// A system by name, with room for the records of `plan`.
pub fn system(name: &'static str, plan: &Plan, build: &BuildOptions) -> Result<NamedSystem, Error> {
    let system = name.parse().map_err(|reason: String| Error::Refused {
        what: "naming a system",
        source: reason.into(),
    })?;
    let build = build.clone().for_records(plan.most_records(), plan.shape);
    Ok(NamedSystem { name: name.to_owned(), build: builder(system, plan.shape, &build) })
}

/// The plan of `grid` under `settings`.
pub fn plan(grid: &Grid<'_>, settings: &Settings) -> Plan {
    let records = settings.records.unwrap_or(grid.records);
    Plan {
        mixes: grid.mixes.to_vec(),
        records,
        threads: settings.threads_or_cores(),
        keys: Some(grid.keys),
        shape: grid.shape,
        rounds: settings.rounds.unwrap_or(3),
        time: settings.time.unwrap_or(Duration::from_millis(500)),
        batch: (records / 20).max(1),
        sample_every: 16,
        rate_ops_per_second: None,
        seed: settings.seed,
        time_limit: None,
        conditions: Conditions::here(&settings.build.pool_dir).emulating(settings.build.delays),
    }
}

/// Compares the systems of `grid`.
pub fn rows(
    grid: &Grid<'_>,
    settings: &Settings,
    progress: &ProgressBar,
) -> Result<(Plan, Vec<Row>), Error> {
    let plan = plan(grid, settings);
    let systems = grid.systems.iter().map(|name| system(name, &plan, &build_of(name, settings)));
    let rows = compare::run(&plan, &systems.collect::<Result<Vec<_>, Error>>()?, progress)?;
    Ok((plan, rows))
}

/// A plan's sizes in one line, and those of BzTree's pages.
pub fn conditions(plan: &Plan) -> String {
    let free_bytes = PAGES_OF_1_KIB.free_bytes;
    format!("{}, pages of 1 KiB, default free space of {free_bytes} bytes", sizes(plan))
}

/// A plan's sizes in one line.
pub fn sizes(plan: &Plan) -> String {
    let threads: Vec<_> = plan.threads.iter().map(usize::to_string).collect();
    format!(
        "{} records of {}-byte keys and {}-byte values, {} threads, {} rounds of {} ms",
        count(plan.records),
        plan.shape.key_bytes,
        plan.shape.value_bytes,
        threads.join(", "),
        plan.rounds,
        plan.time.as_millis(),
    )
}

/// The throughput of a row, in millions a second.
pub fn throughput(row: &Row) -> Measured {
    Measured::exact(row.ops_per_second / 1e6, "")
}

/// The ratio of a row to the first system.
pub fn ratio(row: &Row, first: &str) -> Measured {
    Measured::new(row.ratio(), format!("{} / {first}", row.system))
}

/// The row of a system, a mix and a number of threads.
pub fn find<'rows>(
    rows: &'rows [Row],
    system: &str,
    mix: &OperationMix,
    threads: usize,
) -> Option<&'rows Row> {
    rows.iter()
        .find(|row| row.system == system && row.operation_mix == mix.name && row.threads == threads)
}
