//! NBTree: A Lock-Free PM-Friendly Persistent B+-Tree for eADR-Enabled PM Systems (Zhang, Zheng,
//! Cai, Wang; VLDB 2022). The trees that it compares with are not ours; BzTree stands for them.

use indicatif::ProgressBar;

use super::bztree::{Grid, plan, ratio, rows, system, throughput};
use super::error::Error;
use super::experiment::{Paper, Settings, in_threads};
use super::outcome::{Measured, Outcome, Published};
use pando_bench::compare;
use pando_bench::costs::{self, Figure};
use pando_bench::key_sampler::KeyChoice;
use pando_bench::operation_mix::OperationMix;
use pando_bench::plan::Plan;
use pando_bench::record::Shape;
use pando_bench::systems::ours::ours_called;
use pando_bench::units::count;

/// The paper, and what it measured on.
pub const PAPER: Paper = Paper {
    short: "nbtree",
    title: "Zhang, Zheng, Cai, Wang: NBTree: A Lock-Free PM-Friendly Persistent B+-Tree for eADR",
    conditions: "2 x Xeon Gold 6348, 56 cores, 8 x 256 GB Optane of the second generation, one NUMA node; 16M records, nodes of 1 KB",
};

/// Table 1: flushes and lines written by an operation. Ours are the rows of BzTree and NBTree.
pub fn table_1(settings: &Settings, _progress: &ProgressBar) -> Result<Outcome, Error> {
    let records = settings.records.unwrap_or(100_000);
    let samples = records.min(100_000);
    let mut outcome = Outcome {
        conditions: format!(
            "{records} records of 8-byte keys and values, {samples} operations of each kind, 1 thread, counted"
        ),
        ..Outcome::default()
    };
    for (tree, flushes, lines) in costs::NBTREE_TABLE_1 {
        for (unit, figures) in [("flushes", flushes), ("lines written", lines)] {
            let what = format!("{tree}: insert/delete/update");
            outcome.push(what, unit, Some(Published::text(figures, "")), None);
        }
    }
    for tree in ["bztree-sorted", "nbtree"] {
        count_rows(&mut outcome, tree, records, samples, settings)?;
    }
    Ok(outcome)
}

/// The counted operations of one index of ours.
fn count_rows(
    outcome: &mut Outcome,
    tree: &'static str,
    records: u64,
    samples: u64,
    settings: &Settings,
) -> Result<(), Error> {
    let refused = |source| Error::Refused { what: "building the counted index", source };
    let build = settings.build.clone().for_records(records.saturating_add(samples), Shape::EIGHT);
    let ours = ours_called(tree).map_err(|what| refused(what.into()))?;
    let index = ours.counting(&build).map_err(refused)?;
    let costs = costs::count(ours.name, &*index, records, samples).map_err(|fault| {
        let (system, mix) = (tree.to_owned(), "counted operations".to_owned());
        pando_bench::error::Error::Fault { system, mix, threads: 1, fault }
    })?;
    for cost in &costs {
        let operation = cost.published.operation;
        let mut add = |unit, paper: Option<&'static str>, figure: Figure| {
            let of = format!("mean {:.2}, with its share of splits and merges", figure.mean);
            let paper = paper.map(|figure| Published::text(figure, ""));
            let what = format!("ours, {tree}: {operation}");
            outcome.push(what, unit, paper, Some(Measured::exact(figure.median, of)));
        };
        let known = costs::published_figures(ours.name, operation);
        add("flushes", known.map(|(flushes, _)| flushes), cost.flushes);
        add("lines written", known.map(|(_, lines)| lines), cost.lines_written);
        add("lines read", None, cost.lines_read);
    }
    Ok(())
}

/// The paper's base operations; updates are upserts of records that are there.
const BASE: &[OperationMix] =
    &[OperationMix::INSERT, OperationMix::UPDATE, OperationMix::DELETE, OperationMix::READ];

/// What a run compares.
struct Compared<'run> {
    /// Names; ratios are to the first.
    names: &'run [&'static str],
    /// The distribution of keys.
    keys: KeyChoice,
    mixes: &'run [OperationMix],
    shape: Shape,
}

impl<'run> Compared<'run> {
    /// BzTree and NBTree, with keys and values of 8 bytes.
    const fn of_eight(keys: KeyChoice, mixes: &'run [OperationMix]) -> Self {
        Self {
            names: &["bztree-sorted:process", "nbtree:process"],
            keys,
            mixes,
            shape: Shape::EIGHT,
        }
    }
}

/// A line for each system's throughput and 99th percentile, then a ratio to the first system for
/// each other one, beside what the paper says of the mix at its most threads.
fn compared(
    outcome: &mut Outcome,
    label: &str,
    systems: &Compared<'_>,
    settings: &Settings,
    says: fn(&OperationMix) -> Option<Published>,
    progress: &ProgressBar,
) -> Result<(), Error> {
    let Compared { names, keys, mixes, shape } = *systems;
    let grid = Grid { systems: names, mixes, keys, shape, records: 200_000 };
    let plan = plan(&grid, settings);
    let systems = names.iter().map(|name| system(name, &plan, &settings.build));
    let rows = compare::run(&plan, &systems.collect::<Result<Vec<_>, Error>>()?, progress)?;
    let threads: Vec<_> = plan.threads.iter().map(usize::to_string).collect();
    outcome.conditions = format!(
        "{} records of {}-byte keys and {}-byte values, {} threads, {} rounds of {} ms, default leaves",
        count(plan.records),
        shape.key_bytes,
        shape.value_bytes,
        threads.join(", "),
        plan.rounds,
        plan.time.as_millis(),
    );
    for row in &rows {
        let what =
            format!("{label}{}, {}, {}", row.operation_mix, in_threads(row.threads), row.system);
        outcome.push(what.clone(), "M ops/s", None, Some(throughput(row)));
        outcome.push(what, "us, p99", None, Some(Measured::exact(row.p99_ns as f64 / 1e3, "")));
    }
    for row in rows.iter().filter(|row| row.system != names[0]) {
        let mix = mixes.iter().find(|mix| mix.name == row.operation_mix);
        let paper = mix.and_then(says).filter(|_| Some(&row.threads) == plan.threads.iter().max());
        let what = format!("{label}{}, {}, ratio", row.operation_mix, in_threads(row.threads));
        outcome.push(what, "x", paper, Some(ratio(row, names[0])));
    }
    Ok(())
}

/// Figure 5: latency of base operations, one thread, uniform keys.
pub fn figure_5(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let settings = Settings { threads: Some(vec![1]), ..settings.clone() };
    let names = &["bztree-sorted:process", "nbtree:process"];
    let grid = Grid {
        systems: names,
        mixes: BASE,
        keys: KeyChoice::Uniform,
        shape: Shape::EIGHT,
        records: 200_000,
    };
    let (plan, rows) = rows(&grid, &settings, progress)?;
    let mut outcome = Outcome {
        conditions: format!(
            "{} records of 8-byte keys and values, 1 thread, no write-backs (eADR), {} rounds of {} ms",
            count(plan.records),
            plan.rounds,
            plan.time.as_millis(),
        ),
        ..Outcome::default()
    };
    for row in &rows {
        let what = format!("{}, {}", row.operation_mix, row.system);
        let mean = Measured::exact(1e3 / throughput(row).median, "1 / the median throughput");
        let lowest =
            Published::text("the lowest", "NBTree's, of all trees; the text has no figure");
        let paper = (row.system == "nbtree:process").then_some(lowest);
        outcome.push(what.clone(), "ns, mean", paper, Some(mean));
        outcome.push(what, "ns, median", None, Some(Measured::exact(row.p50_ns as f64, "")));
    }
    Ok(outcome)
}

/// Figure 7: bytes in the pool and in process memory, after a fill and after as many inserts more.
pub fn figure_7(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let names = &["bztree-sorted:process", "nbtree:process"];
    let keys = KeyChoice::Uniform;
    let grid = Grid { systems: names, mixes: BASE, keys, shape: Shape::EIGHT, records: 200_000 };
    let once = plan(&grid, settings);
    let mut outcome = Outcome {
        conditions: format!(
            "{} and {} records of 8-byte keys and values, bytes a record",
            count(once.records),
            count(2 * once.records)
        ),
        ..Outcome::default()
    };
    for records in [once.records, 2 * once.records] {
        let plan = Plan { records, ..once.clone() };
        for name in names {
            progress.reset();
            let system = system(name, &plan, &settings.build)?;
            let space = compare::bytes_per_record(&plan, &system, progress)?;
            let mut add = |what: &str, unit, paper, figure: Option<f64>| {
                let what = format!("{name}, {} records: {what}", count(records));
                outcome.push(what, unit, paper, figure.map(|figure| Measured::exact(figure, "")));
            };
            add("pool", "bytes a record", None, space.used);
            add("process memory", "bytes a record", None, space.heap);
            let share = space.used.zip(space.heap).map(|(pool, heap)| pool / heap);
            let is_ours = *name == "nbtree:process";
            let paper = is_ours.then(|| Published::text("7", "NBTree"));
            add("pool / process memory", "x", paper, share);
        }
    }
    Ok(outcome)
}

/// Figure 6: throughput of base operations, uniform keys.
pub fn figure_6(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let says = |mix: &OperationMix| {
        const OF: &str = "NBTree / the other trees, 56 threads";
        Some(match mix.name {
            "insert" => Published::text("1.6 to 7.5", OF),
            "update" => Published::text("1.5 to 5.0", OF),
            "delete" => Published::text("2.0 to 4.9", OF),
            _ => Published::text("1.6 to 5.1", OF),
        })
    };
    let systems = Compared::of_eight(KeyChoice::Uniform, BASE);
    let mut outcome = Outcome::default();
    compared(&mut outcome, "", &systems, settings, says, progress)?;
    Ok(outcome)
}

/// Figure 8: half reads, half updates, zipfian keys.
pub fn figure_8(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let says =
        |_: &OperationMix| Some(Published::text("6.0", "NBTree / the other trees, 56 threads"));
    let systems = Compared::of_eight(KeyChoice::Zipfian { theta: 0.99 }, &[OperationMix::HALF]);
    let mut outcome = Outcome::default();
    compared(&mut outcome, "", &systems, settings, says, progress)?;
    Ok(outcome)
}

/// Figure 9: by the share of writes, and by skew.
pub fn figure_9(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let says = |mix: &OperationMix| {
        let is_write_only = mix.name == OperationMix::UPDATE.name;
        is_write_only.then(|| Published::text("11", "NBTree / the other trees, 56 threads"))
    };
    let mut outcome = Outcome::default();
    for (theta, mixes) in [
        (0.5, &[OperationMix::HALF][..]),
        (0.8, &[OperationMix::HALF]),
        (0.99, &[OperationMix::READ, OperationMix::HALF, OperationMix::UPDATE]),
    ] {
        progress.reset();
        let systems = Compared::of_eight(KeyChoice::Zipfian { theta }, mixes);
        compared(&mut outcome, &format!("skew {theta}: "), &systems, settings, says, progress)?;
    }
    Ok(outcome)
}

/// Figure 10: half reads, half updates, by the sizes of keys and values.
pub fn figure_10(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    let mut conditions = Vec::new();
    for theta in [0.5, 0.99] {
        for (key_bytes, value_bytes) in [(8, 64), (16, 128), (32, 256), (64, 512)] {
            progress.reset();
            let shape = Shape { key_bytes, value_bytes };
            let keys = KeyChoice::Zipfian { theta };
            let systems = Compared { shape, ..Compared::of_eight(keys, &[OperationMix::HALF]) };
            let label = format!("{key_bytes} and {value_bytes} bytes, skew {theta}: ");
            let says = |_: &OperationMix| {
                Some(Published::text("higher", "NBTree's, of all trees; no figure"))
            };
            compared(&mut outcome, &label, &systems, settings, says, progress)?;
            conditions = vec![std::mem::take(&mut outcome.conditions)];
        }
    }
    outcome.conditions = format!("sizes as each line says, the last: {}", conditions.concat());
    Ok(outcome)
}

/// Figure 11: base operations where lines are written back, and where caches survive a loss of
/// power.
pub fn figure_11(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let settings = Settings { threads: Some(vec![1]), ..settings.clone() };
    let says =
        |_: &OperationMix| Some(Published::text("above 1", "eADR / ADR, all trees; no figure"));
    by_domain(BASE, KeyChoice::Uniform, says, &settings, progress)
}

/// Figure 12: half reads, half updates, in both modes.
pub fn figure_12(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let keys = KeyChoice::Zipfian { theta: 0.99 };
    let says = |_: &OperationMix| {
        Some(Published::text("above 1", "eADR / ADR, most for NBTree; no figure"))
    };
    by_domain(&[OperationMix::HALF], keys, says, settings, progress)
}

/// Each tree in `adr` and in `process`, as on eADR, by the former.
fn by_domain(
    mixes: &[OperationMix],
    keys: KeyChoice,
    says: fn(&OperationMix) -> Option<Published>,
    settings: &Settings,
    progress: &ProgressBar,
) -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    for (tree, names) in [
        ("bztree", ["bztree-sorted:adr", "bztree-sorted:process"]),
        ("nbtree", ["nbtree:adr", "nbtree:process"]),
    ] {
        progress.reset();
        let systems = Compared { names: &names, keys, mixes, shape: Shape::EIGHT };
        compared(&mut outcome, &format!("{tree}: "), &systems, settings, says, progress)?;
    }
    Ok(outcome)
}

/// Figure 13: base operations without persistent memory.
pub fn figure_13(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let says = |mix: &OperationMix| match mix.name {
        "insert" => Some(Published::text("1.8", "on DRAM / on persistent memory, 1 tree")),
        "read" => Some(Published::text("1.7", "on DRAM / on persistent memory, 1 tree")),
        _ => None,
    };
    let durable = if settings.is_emulated() { "nbtree:slow" } else { "nbtree:adr" };
    let names = &[durable, "nbtree"];
    let mixes = &[OperationMix::INSERT, OperationMix::READ];
    let systems = Compared { names, keys: KeyChoice::Uniform, mixes, shape: Shape::EIGHT };
    let mut outcome = Outcome::default();
    compared(&mut outcome, "cost of durability: ", &systems, settings, says, progress)?;
    Ok(outcome)
}
