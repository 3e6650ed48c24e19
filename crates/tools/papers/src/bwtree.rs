//! The Bw-Tree: A B-tree for New Hardware Platforms (Levandoski, Lomet, Sengupta; ICDE 2013): the
//! experiments that can be run today.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use pando_bwtree::{BwTrees, Options, Race};
use pando_index::RangeIndex;
use pando_pmem::Process;
use pando_tree::maps::{IndexOptions, Tree};

use super::bztree::{self, BALANCED, Grid, READ_ONLY, sizes};
use super::error::Error;
use super::experiment::{Paper, Settings, in_threads};
use super::outcome::{Measured, Outcome, Published};
use pando_bench::compare;
use pando_bench::costs;
use pando_bench::key_sampler::KeyChoice;
use pando_bench::keys::{key_of, value_of};
use pando_bench::operation_mix::OperationMix;
use pando_bench::plan::{NamedSystem, Plan};
use pando_bench::record::Shape;
use pando_bench::rng::Rng;
use pando_bench::systems::ours::ours_called;
use pando_bench::systems::stored::{Stored, of_kind};
use pando_bench::systems::{BuildError, BuildOptions, is_built};
use pando_bench::units::count;

/// The paper, and what it measured on.
pub const PAPER: Paper = Paper {
    short: "bwtree",
    title: "Levandoski, Lomet, Sengupta: The Bw-Tree: A B-tree for New Hardware Platforms",
    conditions: "Xeon W3550 3.07 GHz, 4 cores, 8 threads, 24 GB; pages of 8 KB",
};

/// Table 2's synthetic workload: five reads to each write.
const SYNTHETIC: OperationMix =
    bztree::blend("synthetic", "5 gets to 1 upsert of records that are there", [83, 17, 0], 0);

/// The shape of a trace of the paper: its name, its mix, sizes, and what the paper says of it.
struct Trace {
    mix: OperationMix,
    shape: Shape,
    records: u64,
    /// Reads of a hundred operations.
    reads: u64,
    /// By BerkeleyDB (figure 6).
    speedup: Published,
    /// Failed splits, consolidations and updates (table 1).
    failures: [&'static str; 3],
}

/// The game trace has 7.5 reads to a write, the one of chunks 2.2, the synthetic one 5.
const TRACES: [Trace; 3] = [
    Trace {
        mix: bztree::blend("game", "7.5 gets to 1 upsert", [88, 12, 0], 0),
        shape: Shape { key_bytes: 94, value_bytes: 1200 },
        records: 20_000,
        reads: 88,
        speedup: Published::text("18.7", "Bw-tree / BerkeleyDB, 8 threads"),
        failures: ["1.27", "0.22", "0.0171"],
    },
    Trace {
        mix: bztree::blend("deduplication", "2.2 gets to 1 upsert", [69, 31, 0], 0),
        shape: Shape { key_bytes: 20, value_bytes: 44 },
        records: 100_000,
        reads: 69,
        speedup: Published::text("8.6", "Bw-tree / BerkeleyDB, 8 threads"),
        failures: ["0.25", "1.19", "0.0013"],
    },
    Trace {
        mix: SYNTHETIC,
        shape: Shape::EIGHT,
        records: 200_000,
        reads: 83,
        speedup: Published::text("5.8", "Bw-tree / BerkeleyDB, 8 threads"),
        failures: ["8.88", "7.35", "0.0003"],
    },
];

/// Lengths of chains at which a page is consolidated; the paper tries up to 32.
const CHAINS: [u32; 6] = [1, 2, 4, 8, 16, 32];

fn grid<'run>(systems: &'run [&'static str], mixes: &'run [OperationMix]) -> Grid<'run> {
    Grid { systems, mixes, keys: KeyChoice::Uniform, shape: Shape::EIGHT, records: 200_000 }
}

/// Options of the tree, with as much room beside a base as that many deltas of the benchmark's
/// records take.
fn chained(settings: &Settings, chain_deltas: u32) -> BuildOptions {
    let options = Options { chain_deltas, delta_bytes: chain_deltas * 32, ..Options::default() };
    BuildOptions {
        settings: Some(options.values().expect("options in range")),
        ..settings.build.clone()
    }
}

/// Figure 5: throughput by the length of a chain at which its page is consolidated.
pub fn figure_5(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let mixes = [READ_ONLY, SYNTHETIC, BALANCED];
    let plan = bztree::plan(&grid(&[], &mixes), settings);
    let most = plan.threads.iter().copied().max().unwrap_or(1);
    let plan = Plan { threads: vec![most], ..plan };
    let system = |&chain: &u32| {
        let system = bztree::system("bwtree", &plan, &chained(settings, chain))?;
        Ok(NamedSystem { name: format!("{chain} deltas"), ..system })
    };
    let systems = CHAINS.iter().map(system).collect::<Result<Vec<_>, Error>>()?;
    let rows = compare::run(&plan, &systems, progress)?;
    let mut outcome = Outcome { conditions: sizes(&plan), ..Outcome::default() };
    for row in &rows {
        let what = format!("{}, consolidated at {}", row.operation_mix, row.system);
        outcome.push(what, "M ops/s", None, Some(bztree::throughput(row)));
    }
    for mix in &mixes {
        let of_mix = rows.iter().filter(|row| row.operation_mix == mix.name);
        let best = of_mix.max_by(|one, other| one.ops_per_second.total_cmp(&other.ops_per_second));
        let Some(best) = best else { continue };
        let chain = best.system.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let paper = (mix.name != READ_ONLY.name)
            .then(|| Published::text("4 to 8", "where its throughput is highest"));
        let ours = Measured::exact(chain, "the highest of the medians");
        outcome.push(format!("{}: best length", mix.name), "deltas", paper, Some(ours));
    }
    Ok(outcome)
}

/// Table 2: the Bw-tree against a latch-free skip list: a public one, and ours.
pub fn table_2(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    const SYSTEMS: [&str; 5] =
        ["crossbeam-skiplist", "pando-skiplist", "bwtree", "bwtree-plain", "bwtree-cas"];
    let mixes = [SYNTHETIC, READ_ONLY];
    let plan = bztree::plan(&grid(&SYSTEMS, &mixes), settings);
    let plan = Plan { time: settings.time.unwrap_or(Duration::from_millis(500)), ..plan };
    let systems = SYSTEMS.iter().map(|name| bztree::system(name, &plan, &settings.build));
    let rows = compare::run(&plan, &systems.collect::<Result<Vec<_>, Error>>()?, progress)?;
    let mut outcome = Outcome { conditions: sizes(&plan), ..Outcome::default() };
    for row in &rows {
        let what = format!("{}, {}, {}", row.operation_mix, in_threads(row.threads), row.system);
        outcome.push(what, "M ops/s", None, Some(bztree::throughput(row)));
    }
    for row in rows.iter().filter(|row| row.system.starts_with("bwtree")) {
        let is_most = Some(&row.threads) == plan.threads.iter().max();
        let paper = match row.operation_mix.as_str() {
            _ if !is_most || row.system == "bwtree-cas" => None,
            "synthetic" => Some(Published::text("3.7", "Bw-tree / skip list, 8 threads")),
            _ => Some(Published::text("4.4", "Bw-tree / skip list, 8 threads")),
        };
        let ours = bztree::ratio(row, SYSTEMS[0]);
        let what =
            format!("{}, {}, {}: ratio", row.operation_mix, in_threads(row.threads), row.system);
        outcome.push(what, "x", paper, Some(ours));
    }
    Ok(outcome)
}

/// Figure 6: the Bw-tree against a B-tree of the usual architecture.
pub fn figure_6(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let other = if is_built("berkeleydb") { "berkeleydb" } else { "redb" };
    if !is_built(other) {
        return Err(refused(
            "building a B-tree to compare with",
            "neither is in this build".into(),
        ));
    }
    let systems: [&'static str; 3] = [other, "bwtree", "bwtree-plain"];
    let mut outcome = Outcome::default();
    for trace in &TRACES {
        progress.reset();
        let mixes = [trace.mix];
        let keys = KeyChoice::Uniform;
        let Trace { shape, records, .. } = *trace;
        let grid = Grid { systems: &systems, mixes: &mixes, keys, shape, records };
        let plan = bztree::plan(&grid, settings);
        let systems = systems.iter().map(|name| bztree::system(name, &plan, &settings.build));
        let rows = compare::run(&plan, &systems.collect::<Result<Vec<_>, Error>>()?, progress)?;
        if !outcome.conditions.is_empty() {
            outcome.conditions += "; ";
        }
        outcome.conditions += &format!("{}: {}", trace.mix.name, sizes(&plan));
        for row in &rows {
            let what =
                format!("{}, {}, {}", row.operation_mix, in_threads(row.threads), row.system);
            outcome.push(what, "M ops/s", None, Some(bztree::throughput(row)));
        }
        for row in rows.iter().filter(|row| row.system != other) {
            let is_most = Some(&row.threads) == plan.threads.iter().max();
            let what = format!(
                "{}, {}, {}: ratio",
                row.operation_mix,
                in_threads(row.threads),
                row.system
            );
            let paper = is_most.then(|| trace.speedup.clone());
            outcome.push(what, "x", paper, Some(bztree::ratio(row, other)));
        }
    }
    Ok(outcome)
}

fn refused(what: &'static str, source: BuildError) -> Error {
    Error::Refused { what, source }
}

/// Figure 7: what a search reads, and what of it all searches share.
pub fn figure_7(settings: &Settings, _: &ProgressBar) -> Result<Outcome, Error> {
    let records = settings.records.unwrap_or(100_000);
    let samples = records.min(10_000);
    let mut outcome = Outcome {
        conditions: format!(
            "{} records of 8-byte keys and values, 1 thread, {samples} gets counted",
            count(records)
        ),
        ..Outcome::default()
    };
    let build = settings.build.clone().for_records(records, Shape::EIGHT);
    for name in ["bwtree", "bwtree-plain", "pando-skiplist"] {
        let ours = ours_called(name).map_err(|error| refused("naming an index", error.into()))?;
        let index = ours.counting(&build).map_err(|error| refused("building an index", error))?;
        let counted = costs::count(name, &*index, records, samples);
        let counted = counted.map_err(|fault| refused("counting", Box::new(fault)))?;
        for cost in counted.iter().filter(|cost| cost.published.operation == "get") {
            let what = format!("{name}: distinct lines that a get reads");
            let ours = Measured::exact(cost.lines_read.mean, "mean");
            outcome.push(what, "lines", None, Some(ours));
        }
    }
    let stored = Stored::anonymous(&build, of_kind::<BwTrees, Process>)
        .map_err(|error| refused("building a tree", error))?;
    for number in 0..records {
        let key = key_of(number);
        let done = stored.index.insert(&key.to_be_bytes(), &value_of(key, 0).to_le_bytes());
        done.map_err(|error| refused("an insert", Box::new(error)))?;
    }
    let audit = stored.index.audit().map_err(|error| refused("a walk", Box::new(error)))?;
    let (inner, leaves) = (audit.stat.inner_bytes as f64, audit.stat.leaf_bytes as f64);
    outcome.push(
        "bwtree: inner pages, by all pages",
        "%",
        Some(Published::text("1 or less", "index pages, of the occupied memory")),
        Some(Measured::exact(100.0 * inner / (inner + leaves).max(1.0), "bytes")),
    );
    Ok(outcome)
}

/// Table 1: how many splits, consolidations and updates lose a race.
pub fn table_1(settings: &Settings, _: &ProgressBar) -> Result<Outcome, Error> {
    let threads = settings.threads_or_cores().into_iter().max().unwrap_or(1);
    let time = settings.time.unwrap_or(Duration::from_secs(3));
    let mut outcome = Outcome {
        conditions: format!("{threads} threads, {} ms for each trace", time.as_millis()),
        ..Outcome::default()
    };
    for trace in &TRACES {
        let records = settings.records.unwrap_or(trace.records);
        let build = settings.build.clone().for_records(records * 4, trace.shape);
        let stored = Stored::anonymous(&build, of_kind::<BwTrees, Process>)
            .map_err(|error| refused("building a tree", error))?;
        let write = |tree: &dyn RangeIndex, number: u64| {
            let mut key = key_of(number).to_be_bytes().to_vec();
            key.resize(trace.shape.key_bytes, b'k');
            tree.upsert(&key, &vec![number as u8; trace.shape.value_bytes]).map(drop)
        };
        let failed = |error: pando_index::Error| refused("a write", Box::new(error));
        (0..records).try_for_each(|number| write(&stored.index, number)).map_err(failed)?;
        let (tree, races) = stored.index.counting_races();
        let end = Instant::now() + time;
        let work = |thread: u64| {
            let mut rng = Rng::new(settings.seed ^ thread);
            let mut inserted = 0;
            while Instant::now() < end {
                for _ in 0..64 {
                    let number = rng.below(records);
                    if rng.below(100) < trace.reads {
                        let mut key = key_of(number).to_be_bytes().to_vec();
                        key.resize(trace.shape.key_bytes, b'k');
                        tree.read(&key, &mut |_| ())?;
                    } else if rng.below(4) == 0 && inserted < records {
                        inserted += 1;
                        write(&tree, records + inserted * threads as u64 + thread)?;
                    } else {
                        write(&tree, number)?;
                    }
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let running: Vec<_> =
                (0..threads as u64).map(|thread| scope.spawn(move || work(thread))).collect();
            running.into_iter().try_for_each(|running| match running.join() {
                Ok(done) => done.map_err(failed),
                Err(_) => Err(Error::Panicked),
            })
        })?;
        let kinds = [Race::Split, Race::Consolidation, Race::Write];
        let names = ["splits", "consolidations", "updates"];
        for ((race, name), paper) in kinds.into_iter().zip(names).zip(trace.failures) {
            let (attempts, failures) = races.of(race);
            let share = 100.0 * failures as f64 / attempts.max(1) as f64;
            outcome.push(
                format!("{}: failed {name}", trace.mix.name),
                "%",
                Some(Published::text(paper, "8 threads")),
                Some(Measured::exact(share, format!("{failures} of {attempts}"))),
            );
        }
    }
    Ok(outcome)
}

/// The plain design with each of our options alone, and with all of them.
pub fn options(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let plain = Options::plain();
    let ours = Options::default();
    let beside = Options { delta_bytes: ours.delta_bytes, ..plain };
    let variants = [
        ("plain", plain),
        ("deltas beside the base", beside),
        ("and chains as long as by default", Options { chain_deltas: ours.chain_deltas, ..beside }),
        ("consolidation by runs", Options { runs: true, ..plain }),
        ("shortcuts", Options { shortcuts: true, ..plain }),
        ("all", ours),
    ];
    let mixes = [READ_ONLY, bztree::READ_HEAVY, BALANCED, OperationMix::INSERT];
    let plan = bztree::plan(&grid(&[], &mixes), settings);
    let system = |&(name, options): &(&str, Options)| {
        let build = BuildOptions {
            settings: Some(options.values().expect("options in range")),
            ..settings.build.clone()
        };
        Ok(NamedSystem { name: name.to_owned(), ..bztree::system("bwtree", &plan, &build)? })
    };
    let systems = variants.iter().map(system).collect::<Result<Vec<_>, Error>>()?;
    let rows = compare::run(&plan, &systems, progress)?;
    let mut outcome = Outcome { conditions: sizes(&plan), ..Outcome::default() };
    for row in &rows {
        let what = format!("{}, {}, {}", row.operation_mix, in_threads(row.threads), row.system);
        outcome.push(what, "M ops/s", None, Some(bztree::throughput(row)));
    }
    for row in rows.iter().filter(|row| row.system != variants[0].0) {
        let what =
            format!("{}, {}, {}: ratio", row.operation_mix, in_threads(row.threads), row.system);
        outcome.push(what, "x", None, Some(bztree::ratio(row, variants[0].0)));
    }
    Ok(outcome)
}
