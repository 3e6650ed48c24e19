//! The comparison of systems, and the replay of a file on them.

use std::path::Path;
use std::time::Duration;

use super::named::{check_limits, named_systems};
use crate::apart::Limits;
use crate::args::RunArgs;
use crate::compare;
use crate::conditions::Conditions;
use crate::error::{Error, Failure};
use crate::machine;
use crate::operation_mix::OperationMix;
use crate::page::{self, Section};
use crate::plan::Plan;
use crate::program::Program;
use crate::progress::progress;
use crate::record::Shape;
use crate::replay::{self, parse::Operation};
use crate::report;
use crate::systems::entry::BuildOptions;
use crate::systems::{self, SystemName};

/// A default comparison, for a command line without --systems.
struct Comparison {
    title: &'static str,
    systems: &'static [&'static str],
    records: u64,
    time_limit: Duration,
}

/// The default comparisons, which together take less than three minutes on two cores. To add a
/// peer, add its name.
const DEFAULTS: [Comparison; 2] = [
    Comparison {
        title: "In memory",
        systems: &[
            "bztree",
            "scc",
            "congee",
            "concurrent-map",
            "masstree",
            "bf-tree",
            "crossbeam-skiplist",
            "btreemap",
        ],
        records: 1_000_000,
        time_limit: Duration::from_secs(80),
    },
    Comparison {
        title: "Durable to a process crash",
        systems: &["bztree:process", "redb", "fjall"],
        records: 100_000,
        time_limit: Duration::from_secs(50),
    },
];
/// Seconds of a slice of a default comparison.
const DEFAULT_SECONDS: f64 = 0.15;
/// The page of a default comparison.
const DEFAULT_PAGE: &str = "pando-bench.html";

/// Runs the comparison of `args`, prints its table, and writes the files of `args`.
/// `prefix` is the arguments before those of this command when the program runs itself again.
pub fn compare_systems(args: &RunArgs, prefix: &[&str]) -> Result<(), Failure> {
    let limits = args.process_memory.map(|memory_bytes| -> std::io::Result<_> {
        Ok(Limits { memory_bytes, program: Program::this(prefix)? })
    });
    let limits = limits.transpose()?;
    let limits = limits.as_ref();
    let options = BuildOptions {
        pool_dir: args.pool_dir.clone(),
        log_dir: args.log_dir.clone(),
        ..BuildOptions::default()
    };
    let conditions = Conditions::here(&args.pool_dir).with_logs_in(options.log_dir());
    #[cfg(feature = "papers")]
    let (options, conditions) = {
        let delays = args.delays.of_systems(args.systems.iter().flatten())?;
        (BuildOptions { delays, ..options }, conditions.emulating(delays))
    };
    let conditions = Conditions { memory_bytes: args.process_memory, ..conditions };
    eprintln!("{}", conditions.line());
    let sections = match (&args.replay, &args.systems) {
        (Some(file), named) => {
            let operations = replay::read(file)?;
            let shape = replay::shape_of(&operations);
            let default = || default_systems(&DEFAULTS[0], shape, &[]);
            let names = in_order(named.clone().map_or_else(default, Ok)?, args.base)?;
            check_limits(&names, shape, &[])?;
            vec![replay_file(file, &operations, &names, &options, &conditions)?]
        }
        (None, Some(named)) => {
            let plan = plan_of(args, None, &conditions);
            let names = in_order(named.clone(), args.base)?;
            vec![section("Comparison", &names, &plan, &options, limits)?]
        }
        (None, None) => DEFAULTS
            .iter()
            .map(|default| {
                let plan = plan_of(args, Some(default), &conditions);
                let base = args.base.filter(|base| default.systems.contains(&base.name()));
                let names = default_systems(default, plan.shape, &plan.mixes)?;
                let names = in_order(names, base)?;
                section(default.title, &names, &plan, &options, limits)
            })
            .collect::<Result<Vec<_>, Failure>>()?,
    };
    if let Some(path) = &args.json {
        let lines = sections.iter().map(|section| report::json_lines(section.rows()));
        report::write(path, &lines.collect::<String>())?;
    }
    let is_plain = args.systems.is_none() && args.replay.is_none();
    let page = args.page.as_deref().or(is_plain.then_some(Path::new(DEFAULT_PAGE)));
    if let Some(path) = page {
        page::write(path, &sections, &conditions)?;
        println!("\nplots: {}", path.display());
    }
    Ok(())
}

/// The systems of a default comparison that are in this build and can run it. Prints the reason for
/// each other system.
fn default_systems(
    default: &Comparison,
    shape: Shape,
    mixes: &[OperationMix],
) -> Result<Vec<SystemName>, Failure> {
    let mut names = Vec::new();
    for name in default.systems.iter().filter(|name| systems::is_built(name)) {
        let name = name.parse::<SystemName>()?;
        match check_limits(&[name], shape, mixes) {
            Ok(()) => names.push(name),
            Err(why) => eprintln!("left out: {why}"),
        }
    }
    Ok(names)
}

/// Runs a comparison and prints it immediately, because the next one may take minutes.
fn section(
    title: &str,
    names: &[SystemName],
    plan: &Plan,
    options: &BuildOptions,
    limits: Option<&Limits>,
) -> Result<Section, Failure> {
    check_limits(names, plan.shape, &plan.mixes)?;
    let progress = progress();
    let systems = named_systems(names, plan.most_records(), plan.shape, options, limits);
    let rows = compare::run(plan, &systems, &progress)?;
    progress.finish_and_clear();
    println!("# {title}\n\n{}", report::table(&rows));
    Ok(Section::Comparison { title: title.to_owned(), rows })
}

fn replay_file(
    path: &Path,
    operations: &[Operation],
    names: &[SystemName],
    options: &BuildOptions,
    conditions: &Conditions,
) -> Result<Section, Failure> {
    let shape = replay::shape_of(operations);
    let options = options.clone().for_records(operations.len() as u64, shape);
    let builders: Vec<_> = names
        .iter()
        .map(|&name| (name.to_string(), systems::builder(name, shape, &options)))
        .collect();
    let progress = progress();
    let file = path.display().to_string();
    let rows = replay::run(operations, &file, &builders, conditions, &progress)?;
    progress.finish_and_clear();
    println!(
        "# Replay: {} operations of {file}, every answer alike on all systems\n\n{}",
        operations.len(),
        report::table(&rows)
    );
    Ok(Section::Comparison { title: format!("Replay of {file}"), rows })
}

fn plan_of(args: &RunArgs, default: Option<&Comparison>, conditions: &Conditions) -> Plan {
    let records = args.records.unwrap_or(default.map_or(10_000_000, |default| default.records));
    let seconds = args.seconds.unwrap_or(default.map_or(1.0, |_| DEFAULT_SECONDS));
    let all_cores = || match machine::cores().len() {
        0 | 1 => vec![1, 2],
        cores => vec![1, cores.min(64)],
    };
    Plan {
        mixes: args.operation_mix.clone(),
        records,
        threads: args.threads.clone().unwrap_or_else(all_cores),
        keys: args.keys,
        shape: Shape { key_bytes: args.key_bytes, value_bytes: args.value_bytes },
        rounds: args.rounds,
        time: Duration::from_secs_f64(seconds),
        batch: args.batch.unwrap_or(records / 20).max(1),
        sample_every: args.sample_every,
        rate_ops_per_second: args.rate,
        seed: args.seed,
        time_limit: args
            .time_limit
            .map(Duration::from_secs_f64)
            .or(default.map(|default| default.time_limit)),
        conditions: conditions.clone(),
    }
}

/// The systems in the order of the run: the base comes first.
fn in_order(
    mut names: Vec<SystemName>,
    base: Option<SystemName>,
) -> Result<Vec<SystemName>, Error> {
    let all: Vec<_> = names.iter().map(|name| name.name()).collect();
    if let Some(twice) = (1..all.len()).find(|&at| all[..at].contains(&all[at])) {
        return Err(Error::Usage(format!("the system {} is named twice", all[twice])));
    }
    if let Some(base) = base {
        let Some(at) = names.iter().position(|&name| name == base) else {
            let all = all.join(", ");
            return Err(Error::Usage(format!("the base {base} is not among the systems {all}")));
        };
        names[..=at].rotate_right(1);
    }
    Ok(names)
}
