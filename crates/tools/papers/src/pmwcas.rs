//! Easy Lock-Free Indexing in Non-Volatile Memory (Wang, Levandoski, Larson; ICDE 2018): the
//! experiments that can be run today.

use std::time::Duration;

use indicatif::ProgressBar;
use pando_pmem::rtm;

use super::arrays::array::Method;
use super::arrays::{self, Row, report};
use super::bztree::{self, Grid};
use super::error::Error;
use super::experiment::{Paper, Settings, in_threads};
use super::outcome::{Measured, Outcome, Published};
use pando_bench::key_sampler::KeyChoice;
use pando_bench::operation_mix::OperationMix;
use pando_bench::record::Shape;
use pando_bench::spread::Spread;
use pando_bench::units::count;

/// The paper, and what it measured on.
pub const PAPER: Paper = Paper {
    short: "pmwcas",
    title: "Wang, Levandoski, Larson: Easy Lock-Free Indexing in Non-Volatile Memory",
    conditions: "arrays: Xeon E3-1245 v3 3.4 GHz, 4 cores, 8 threads; indexes: 4 x Xeon E5-4620 2.2 GHz, 64 threads; DRAM, CLFLUSH; 3 runs, mean",
};

/// Figure 6b: upserts alone.
const UPSERT: OperationMix =
    bztree::blend("upserts", "upserts of records that are there", [0, 100, 0], 0);
/// Figure 6d: the paper's realistic mix.
const REALISTIC: OperationMix =
    bztree::blend("realistic", "64 % gets, 16 % scans of 10, 20 % upserts", [64, 20, 16], 0);

/// Words that each operation of figure 5 changes.
const FIGURE_5_WORDS: usize = 4;
/// The domain whose operations are hardware transactions where the processor commits them.
const HTM: &str = "process";
/// Attempts of each thread that are counted.
const COUNTED: u64 = 2_000;

/// What the text of section 7.5 says persistence costs, by words of the array.
fn published(array_words: u64) -> Option<Published> {
    match array_words {
        100 => Some(Published::text("25 to 40", "1 to 8 threads, CLFLUSH")),
        1_000_000 => Some(Published::text("7 to 17", "1 to 8 threads, CLFLUSH")),
        10_000_000 => Some(Published::text("6 to 15", "1 to 8 threads, CLFLUSH")),
        _ => None,
    }
}

/// What the text of section 7.4 says of HTM against MwCAS.
fn published_htm(array_words: u64, threads: usize) -> Option<Published> {
    match array_words {
        100 if threads > 1 => Some(Published::text("down to 0.2", "8 threads")),
        1_000_000 | 10_000_000 => Some(Published::text("1.03 to 1.12", "1 to 8 threads")),
        _ => None,
    }
}

/// Figure 5: operations of four words on arrays of all sizes, volatile and persistent, by the
/// paper's algorithm.
///
/// Figure 5a's operations by hardware transactions too, where the processor commits any.
pub fn figure_5(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let durable = if settings.is_emulated() { "slow:rdcss" } else { "adr:rdcss" };
    let mut domains = vec!["process:rdcss", durable];
    domains.extend(rtm::is_available().then_some(HTM));
    let plan = arrays::Plan {
        arrays: settings.records.map_or(vec![100, 10_000, 1_000_000], |words| vec![words]),
        methods: vec![Method::Pmwcas(FIGURE_5_WORDS)],
        threads: settings.threads.clone().unwrap_or_else(|| vec![1, 2, 4]),
        domains,
        rounds: settings.rounds.unwrap_or(5),
        time: settings.time.unwrap_or(Duration::from_millis(200)),
        counted: COUNTED,
        seed: settings.seed,
        build: settings.build.clone(),
    };
    let rows = arrays::run(&plan, progress)?;
    let mut outcome = Outcome {
        conditions: format!(
            "PMwCAS of {FIGURE_5_WORDS} words, {} rounds of {} ms, pools in {}{}",
            plan.rounds,
            plan.time.as_millis(),
            plan.build.pool_dir.display(),
            if rtm::is_available() {
                ""
            } else {
                "; no HTM: this processor commits no transactions"
            },
        ),
        appendix: report::table(&rows),
        ..Outcome::default()
    };
    for row in &rows {
        let what = format!(
            "{} words, {}, {}",
            count(row.array_words),
            in_threads(row.threads),
            row.domain
        );
        let of = |what: &str| what.to_owned();
        let throughput = Measured::exact(row.ops_per_second / 1e6, of(""));
        outcome.push(format!("{what}: throughput"), "M successes/s", None, Some(throughput));
        let success = Measured::exact(row.success_rate * 100.0, of(""));
        outcome.push(format!("{what}: success rate"), "%", None, Some(success));
        if row.domain == HTM {
            let ratio =
                Spread { median: row.ratio_to_first, min: row.ratio_min, max: row.ratio_max };
            let ours = Measured::new(ratio, format!("{} by {}", row.domain, row.base));
            let paper = published_htm(row.array_words, row.threads);
            outcome.push(format!("{what}: HTM by MwCAS"), "x", paper, Some(ours));
        } else if row.domain != row.base {
            let paper = published(row.array_words).filter(|_| row.domain == durable);
            outcome.push(format!("{what}: cost of persistence"), "%", paper, Some(slowdown(row)));
        }
        if let Some(cost) = row.cost.filter(|_| row.domain == durable) {
            for (unit, figure) in
                [("swaps", cost.swaps), ("flushes", cost.flushes), ("fences", cost.fences)]
            {
                let ours = Measured::exact(figure, of("counted"));
                outcome.push(format!("{what}: an attempt"), unit, None, Some(ours));
            }
        }
    }
    Ok(outcome)
}

/// How much slower than the base, in percent.
fn slowdown(row: &Row) -> Measured {
    let percent = |ratio: f64| (1.0 - ratio) * 100.0;
    let spread = Spread {
        median: percent(row.ratio_to_first),
        min: percent(row.ratio_max),
        max: percent(row.ratio_min),
    };
    Measured::new(spread, format!("{} against {}", row.domain, row.base))
}

/// The systems of one half of figure 6, with the primitive that each is built on. What the paper
/// calls -CF is -WB here: it writes back. Its PCAS and PMwCAS do not, and set dirty bits all the
/// same; without write-backs ours set none, and are CAS and MwCAS.
type Half = [(&'static str, &'static str); 4];
/// The upper half.
const BW_TREES: Half = [
    ("bwtree-cas:process", "CAS"),
    ("bwtree:process", "MwCAS"),
    ("bwtree-cas:adr", "PCAS-WB"),
    ("bwtree:adr", "PMwCAS-WB"),
];
/// The lower half.
const SKIP_LISTS: Half = [
    ("pando-skiplist-cas:process", "CAS"),
    ("pando-skiplist:process", "MwCAS"),
    ("pando-skiplist-cas:adr", "PCAS-WB"),
    ("pando-skiplist:adr", "PMwCAS-WB"),
];

/// Figure 6: reads, writes, deletes and a mix, on CAS, MwCAS, PCAS and PMwCAS; the Bw-tree's half,
/// then the skip list's.
pub fn figure_6(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    half(&mut outcome, "Bw-tree", &BW_TREES, "bwtree:slow", settings, progress)?;
    progress.reset();
    half(&mut outcome, "skip list", &SKIP_LISTS, "pando-skiplist:slow", settings, progress)?;
    Ok(outcome)
}

/// What the text says of the costs of a primitive against CAS, in percent, at the most threads.
fn published_cost(index: &str, mix: &str, primitive: &str) -> Option<Published> {
    let text = |value, what| Some(Published::text(value, what));
    match (index, mix, primitive) {
        (_, "read-only", _) => text("about 0", "all variants"),
        ("Bw-tree", "upserts", "PMwCAS-WB") => text("over 30", "Bw-tree, -CF against PMwCAS"),
        ("skip list", "insert" | "delete", "MwCAS") => text("12", "skip list, MwCAS against CAS"),
        _ => None,
    }
}

fn half(
    outcome: &mut Outcome,
    index: &str,
    half: &Half,
    slow: &'static str,
    settings: &Settings,
    progress: &ProgressBar,
) -> Result<(), Error> {
    let mixes = [bztree::READ_ONLY, UPSERT, OperationMix::INSERT, OperationMix::DELETE, REALISTIC];
    let mut variants = half.to_vec();
    if settings.is_emulated() {
        // There is no index on PCAS on the emulated medium, and on another it is nothing to compare
        // with.
        variants.retain(|&(_, primitive)| !primitive.ends_with("-WB"));
        variants.push((slow, "PMwCAS-WB"));
    }
    let systems: Vec<&str> = variants.iter().map(|(system, _)| *system).collect();
    let grid = Grid {
        systems: &systems,
        mixes: &mixes,
        keys: KeyChoice::Uniform,
        shape: Shape::EIGHT,
        records: 200_000,
    };
    let (plan, rows) = bztree::rows(&grid, settings, progress)?;
    outcome.conditions = bztree::conditions(&plan);
    let primitive = |system: &str| {
        variants.iter().find(|(name, _)| *name == system).map_or("", |(_, primitive)| primitive)
    };
    for row in &rows {
        let what = format!(
            "{index}, {}, {}, {} ({})",
            row.operation_mix,
            in_threads(row.threads),
            primitive(&row.system),
            row.system
        );
        outcome.push(what, "M ops/s", None, Some(bztree::throughput(row)));
    }
    for row in rows.iter().filter(|row| row.system != systems[0]) {
        let on = primitive(&row.system);
        let is_most = Some(&row.threads) == plan.threads.iter().max();
        let paper = published_cost(index, &row.operation_mix, on).filter(|_| is_most);
        let percent = |ratio: f64| (1.0 - ratio) * 100.0;
        let spread = Spread {
            median: percent(row.ratio_to_first),
            min: percent(row.ratio_max),
            max: percent(row.ratio_min),
        };
        let ours = Measured::new(spread, format!("{on} against CAS"));
        let of = if on == "MwCAS" { "several words" } else { "durability" };
        let what = format!(
            "{index}, {}, {}, {on}: cost of {of}",
            row.operation_mix,
            in_threads(row.threads)
        );
        outcome.push(what, "%", paper, Some(ours));
    }
    Ok(())
}
