//! Figures 4 to 7: throughput by mix, distribution of keys, durability, and with scans.

use indicatif::ProgressBar;

use super::{
    BALANCED, GROWING, Grid, READ_HEAVY, READ_MOSTLY, READ_ONLY, SCAN_BALANCED, SCAN_MOSTLY,
    conditions, find, ratio, rows, throughput,
};
use crate::error::Error;
use crate::experiment::{Settings, in_threads};
use crate::outcome::{Measured, Outcome, Published};
use pando_bench::key_sampler::KeyChoice;
use pando_bench::operation_mix::OperationMix;
use pando_bench::record::Shape;
use pando_bench::report::Row;
use pando_bench::spread::Spread;

/// The Bw-tree as its paper has it comes first: ratios are to it. The skip list is the one that
/// replaces values in place: in the plain one a scan may miss a record that is being replaced.
const SYSTEMS: &[&str] =
    &["bwtree-plain", "bwtree", "crossbeam-skiplist:tuned", "btreemap", "bztree"];
const OURS: &str = "bztree";
const TO_BW_TREE: &str = "BzTree / Bw-tree, 48 threads";

/// What the paper says of a mix: the ratio, if it does.
type Says = fn(&OperationMix) -> Option<Published>;

/// A line for each system's throughput, then the ratio of BzTree to the first system for each mix,
/// beside what the paper says of it, at the most threads.
fn compared(
    outcome: &mut Outcome,
    label: &str,
    grid: &Grid<'_>,
    settings: &Settings,
    says: Says,
    progress: &ProgressBar,
) -> Result<Vec<Row>, Error> {
    let (plan, rows) = rows(grid, settings, progress)?;
    outcome.conditions = conditions(&plan);
    for mix in grid.mixes {
        for row in rows.iter().filter(|row| row.operation_mix == mix.name) {
            let what = format!("{label}{}, {}, {}", mix.name, in_threads(row.threads), row.system);
            outcome.push(what, "M ops/s", None, Some(throughput(row)));
        }
    }
    for mix in grid.mixes {
        for &threads in &plan.threads {
            let Some(row) = find(&rows, OURS, mix, threads) else { continue };
            let paper = says(mix).filter(|_| Some(&threads) == plan.threads.iter().max());
            let what = format!("{label}{}, {}, ratio", mix.name, in_threads(threads));
            outcome.push(what, "x", paper, Some(ratio(row, grid.systems[0])));
        }
    }
    Ok(rows)
}

fn grid<'run>(mixes: &'run [OperationMix], keys: KeyChoice) -> Grid<'run> {
    Grid { systems: SYSTEMS, mixes, keys, shape: Shape::EIGHT, records: 200_000 }
}

/// Figure 4: uniform keys, four mixes.
pub fn figure_4(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let says: Says = |mix| match mix.name {
        "read-only" => Some(Published::text("1.28", TO_BW_TREE)),
        "read-heavy" => Some(Published::text("1.7", TO_BW_TREE)),
        "balanced" => Some(Published::text("2.4", TO_BW_TREE)),
        _ => None,
    };
    let mut outcome = Outcome::default();
    let mixes = [READ_ONLY, READ_MOSTLY, READ_HEAVY, BALANCED];
    compared(&mut outcome, "", &grid(&mixes, KeyChoice::Uniform), settings, says, progress)?;
    Ok(outcome)
}

/// Figure 5: zipfian and monotonic keys, read-only and balanced.
pub fn figure_5(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    let says: Says = |mix| match mix.name {
        "read-only" => Some(Published::text("1.33", TO_BW_TREE)),
        "balanced" => Some(Published::text("4.3", TO_BW_TREE)),
        _ => None,
    };
    let zipfian = KeyChoice::Zipfian { theta: 0.99 };
    let mixes = [READ_ONLY, BALANCED];
    compared(&mut outcome, "zipfian: ", &grid(&mixes, zipfian), settings, says, progress)?;
    let says: Says = |mix| match mix.name {
        "balanced, ascending inserts" => {
            Some(Published::derived("1.62", "34M / 21M ops/s, 48 threads"))
        }
        _ => None,
    };
    progress.reset();
    let mixes = [READ_ONLY, GROWING];
    let monotonic = grid(&mixes, KeyChoice::Monotonic);
    compared(&mut outcome, "monotonic: ", &monotonic, settings, says, progress)?;
    outcome.conditions += "; zipfian with a skew of 0.99, which the paper does not state";
    Ok(outcome)
}

/// Figure 6: what durability costs.
pub fn figure_6(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let mixes = [READ_MOSTLY, BALANCED];
    let durable = settings.durable_system();
    let systems = &["bztree:process", durable];
    let grid = Grid { systems, ..grid(&mixes, KeyChoice::Uniform) };
    let (plan, rows) = rows(&grid, settings, progress)?;
    let mut outcome = Outcome { conditions: conditions(&plan), ..Outcome::default() };
    for row in &rows {
        let what = format!("{}, {}, {}", row.operation_mix, in_threads(row.threads), row.system);
        outcome.push(what, "M ops/s", None, Some(throughput(row)));
    }
    for row in rows.iter().filter(|row| row.system != grid.systems[0]) {
        let paper = match (row.system.as_str(), row.operation_mix.as_str()) {
            _ if Some(&row.threads) != plan.threads.iter().max() => None,
            (system, "read-mostly") if system == durable => {
                Some(Published::text("5", "CLFLUSH, 48 threads"))
            }
            (system, "balanced") if system == durable => {
                Some(Published::text("12", "CLFLUSH, 48 threads"))
            }
            _ => None,
        };
        let cost = |ratio: f64| (1.0 - ratio) * 100.0;
        let spread = Spread {
            median: cost(row.ratio_to_first),
            min: cost(row.ratio_max),
            max: cost(row.ratio_min),
        };
        let ours = Measured::new(spread, format!("{} against {}", row.system, grid.systems[0]));
        let what =
            format!("{}, {}, cost of durability", row.operation_mix, in_threads(row.threads));
        outcome.push(what, "%", paper, Some(ours));
    }
    Ok(outcome)
}

/// Figure 7: mixes with scans of 10.
pub fn figure_7(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let says: Says = |mix| match mix.name {
        "scan read-mostly" => Some(Published::text("1.8", TO_BW_TREE)),
        "scan balanced" => Some(Published::text("2.7", TO_BW_TREE)),
        _ => None,
    };
    let mut outcome = Outcome::default();
    let mixes = [SCAN_MOSTLY, SCAN_BALANCED];
    let grid = grid(&mixes, KeyChoice::Uniform);
    let rows = compared(&mut outcome, "", &grid, settings, says, progress)?;
    let at = |system: &str, mix: &OperationMix, threads: Option<usize>| {
        threads.and_then(|threads| find(&rows, system, mix, threads)).map(|row| row.ops_per_second)
    };
    let threads = || rows.iter().map(|row| row.threads);
    let (least, most) = (threads().min(), threads().max());
    for (system, paper) in [
        (OURS, Some(Published::text("28.5", "BzTree, 48 threads / 1"))),
        (SYSTEMS[0], Some(Published::text("16.4", "Bw-tree, 48 threads / 1"))),
    ] {
        if let (Some(few), Some(many)) =
            (at(system, &SCAN_MOSTLY, least), at(system, &SCAN_MOSTLY, most))
        {
            let of = format!("{system}, {} threads / {}", most.unwrap_or(1), least.unwrap_or(1));
            let ours = Measured::exact(many / few.max(1e-9), of);
            outcome.push("scan read-mostly, scaling", "x", paper, Some(ours));
        }
    }
    if let (Some(mostly), Some(balanced)) =
        (at(OURS, &SCAN_MOSTLY, most), at(OURS, &SCAN_BALANCED, most))
    {
        let paper = Some(Published::text("2.1", "BzTree, 48 threads"));
        let ours = Measured::exact(balanced / mostly.max(1e-9), "bztree, medians");
        outcome.push("scan balanced / scan read-mostly", "x", paper, Some(ours));
    }
    Ok(outcome)
}
