//! What the command line sets off. `pando-bench` and `pando bench` are both thin wrappers of
//! [`run`].

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use pando_pmem::emulated::Delays;

use crate::args::{
    BenchArgs, ChildArgs, Command, CostsArgs, RecoveryArgs, RunArgs, SidesArgs, SpaceArgs,
};
use crate::compare::{self, Entrant, Plan};
use crate::conditions::Conditions;
use crate::error::Error;
use crate::machine;
use crate::mix::Mix;
use crate::page::{self, Section};
use crate::record::Shape;
use crate::recovery::{self, RecoveryPlan};
use crate::replay::parse::Operation;
use crate::report::{self, Spread, duration};
use crate::sides::{self, BuildOptions, SideName};
use crate::{costs, papers, profile, replay, space, traces};

/// Why a command ended before its end.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A comparison that is made when no sides are named.
struct Comparison {
    title: &'static str,
    sides: &'static [&'static str],
    records: u64,
    time_limit: Duration,
}

/// The comparisons that are made when no sides are named: together they take less than three
/// minutes on two cores. To add a peer, add its name.
const DEFAULTS: [Comparison; 2] = [
    Comparison {
        title: "In memory",
        sides: &[
            "bztree",
            "scc",
            "congee",
            "concurrent-map",
            "masstree",
            "bf-tree",
            "skiplist",
            "btreemap",
        ],
        records: 1_000_000,
        time_limit: Duration::from_secs(80),
    },
    Comparison {
        title: "Durable to a process crash",
        sides: &["bztree:process", "redb", "fjall"],
        records: 100_000,
        time_limit: Duration::from_secs(50),
    },
];
/// Seconds of a slice when no sides are named.
const DEFAULT_SECONDS: f64 = 0.15;
/// Where the page goes when no sides are named.
const DEFAULT_PAGE: &str = "pando-bench.html";

/// Runs what `args` ask for. `prefix` is what stands before the arguments of this command when
/// the program runs itself again: `["bench"]` for `pando bench`.
pub fn run(args: &BenchArgs, prefix: &[&str]) -> Result<(), Failure> {
    match &args.command {
        None => compare_sides(&args.run),
        Some(Command::Run(args)) => compare_sides(args),
        Some(Command::Costs(args)) => count_costs(args),
        Some(Command::Recovery(args)) => time_recovery(args, prefix),
        Some(Command::Space(args)) => measure_space(args),
        Some(Command::RecoveryChild(args)) => be_child(args),
        Some(Command::Paper(args)) => Ok(papers::command::paper(args, prefix, &progress())?),
        Some(Command::Pmwcas(args)) => Ok(papers::command::pmwcas(args, &progress())?),
        Some(Command::Trace(args)) => traces::command::trace(args, &progress()),
        Some(Command::Profile(args)) => profile::command::profile(args, prefix),
        Some(Command::ProfileChild(args)) => profile::command::be_child(args),
        Some(Command::Sides(args)) => {
            list(args);
            Ok(())
        }
    }
}

/// A bar on standard error with time spent and time left; it is not drawn where no person looks.
fn progress() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let shape = "{bar:30} {percent:>3} % {elapsed_precise} (about {eta} left) {msg}";
    if let Ok(style) = ProgressStyle::with_template(shape) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

fn entrants(names: &[SideName], shape: Shape, options: &BuildOptions) -> Vec<Entrant> {
    let entrant = |&name: &SideName| Entrant {
        name: name.to_string(),
        build: sides::builder(name, shape, options),
    };
    names.iter().map(entrant).collect()
}

/// The sides in the order of the run: the base comes first.
fn in_order(mut names: Vec<SideName>, base: Option<SideName>) -> Result<Vec<SideName>, Error> {
    let all: Vec<_> = names.iter().map(|name| name.name()).collect();
    if let Some(twice) = (1..all.len()).find(|&at| all[..at].contains(&all[at])) {
        return Err(Error::Usage(format!("the side {} is named twice", all[twice])));
    }
    if let Some(base) = base {
        let Some(at) = names.iter().position(|&name| name == base) else {
            let all = all.join(", ");
            return Err(Error::Usage(format!("the base {base} is not among the sides {all}")));
        };
        names[..=at].rotate_right(1);
    }
    Ok(names)
}

/// Refuses what a side cannot do, before anything is loaded.
fn check_limits(names: &[SideName], shape: Shape, mixes: &[Mix]) -> Result<(), Error> {
    for name in names {
        let entry = name.entry();
        (entry.limits)(shape).map_err(|what| Error::Usage(format!("{name}: {what}")))?;
        let downwards = mixes.iter().find(|mix| mix.is_descending());
        if let Some(mix) = downwards.filter(|_| !entry.can_descend) {
            return Err(Error::Usage(format!("{name} does not scan downwards, as {mix} does")));
        }
    }
    Ok(())
}

fn compare_sides(args: &RunArgs) -> Result<(), Failure> {
    let delays = Delays { write_back_ns: args.write_back_ns, read_line_ns: args.read_line_ns };
    let options = BuildOptions {
        pool_dir: args.pool_dir.clone(),
        huge_pages: args.huge_pages,
        delays,
        ..BuildOptions::default()
    };
    let conditions = Conditions::here(&args.pool_dir).emulating(delays);
    eprintln!("{}", conditions.line());
    let sections = match (&args.replay, &args.sides) {
        (Some(file), named) => {
            let operations = replay::read(file)?;
            let shape = replay::shape_of(&operations);
            let default = || default_sides(&DEFAULTS[0], shape, &[]);
            let names = in_order(named.clone().map_or_else(default, Ok)?, args.base)?;
            check_limits(&names, shape, &[])?;
            vec![replay_file(file, &operations, &names, &options, &conditions)?]
        }
        (None, Some(named)) => {
            let plan = plan_of(args, None, &conditions);
            let names = in_order(named.clone(), args.base)?;
            vec![section("Comparison", &names, &plan, &options)?]
        }
        (None, None) => DEFAULTS
            .iter()
            .map(|default| {
                let plan = plan_of(args, Some(default), &conditions);
                let base = args.base.filter(|base| default.sides.contains(&base.name()));
                let names = default_sides(default, plan.shape, &plan.mixes)?;
                let names = in_order(names, base)?;
                section(default.title, &names, &plan, &options)
            })
            .collect::<Result<Vec<_>, Failure>>()?,
    };
    if let Some(path) = &args.json {
        let rows: Vec<_> = sections.iter().flat_map(|section| section.rows.clone()).collect();
        report::write_json(path, &rows)?;
    }
    let is_plain = args.sides.is_none() && args.replay.is_none();
    let page = args.page.as_deref().or(is_plain.then_some(Path::new(DEFAULT_PAGE)));
    if let Some(path) = page {
        page::write(path, &sections, &conditions)?;
        println!("\nplots: {}", path.display());
    }
    Ok(())
}

/// The sides of a default comparison that are compiled in and can do it; of the others it says why
/// they are left out.
fn default_sides(
    default: &Comparison,
    shape: Shape,
    mixes: &[Mix],
) -> Result<Vec<SideName>, Failure> {
    let mut names = Vec::new();
    for name in default.sides.iter().filter(|name| sides::is_built(name)) {
        let name = name.parse::<SideName>()?;
        match check_limits(&[name], shape, mixes) {
            Ok(()) => names.push(name),
            Err(why) => eprintln!("left out: {why}"),
        }
    }
    Ok(names)
}

/// Compares and prints at once, since the next comparison may take minutes.
fn section(
    title: &str,
    names: &[SideName],
    plan: &Plan,
    options: &BuildOptions,
) -> Result<Section, Failure> {
    check_limits(names, plan.shape, &plan.mixes)?;
    let progress = progress();
    let rows = compare::run(plan, &entrants(names, plan.shape, options), &progress)?;
    progress.finish_and_clear();
    println!("# {title}\n\n{}", report::table(&rows));
    Ok(Section { title: title.to_owned(), rows })
}

fn replay_file(
    path: &Path,
    operations: &[Operation],
    names: &[SideName],
    options: &BuildOptions,
    conditions: &Conditions,
) -> Result<Section, Failure> {
    let shape = replay::shape_of(operations);
    let builders: Vec<_> = names
        .iter()
        .map(|&name| (name.to_string(), sides::builder(name, shape, options)))
        .collect();
    let progress = progress();
    let file = path.display().to_string();
    let rows = replay::run(operations, &file, &builders, conditions, &progress)?;
    progress.finish_and_clear();
    println!(
        "# Replay: {} operations of {file}, every answer alike on all sides\n\n{}",
        operations.len(),
        report::table(&rows)
    );
    Ok(Section { title: format!("Replay of {file}"), rows })
}

fn plan_of(args: &RunArgs, default: Option<&Comparison>, conditions: &Conditions) -> Plan {
    let records = args.records.unwrap_or(default.map_or(10_000_000, |default| default.records));
    let seconds = args.seconds.unwrap_or(default.map_or(1.0, |_| DEFAULT_SECONDS));
    let all_cores = || match machine::cores().len() {
        0 | 1 => vec![1, 2],
        cores => vec![1, cores.min(64)],
    };
    Plan {
        mixes: args.mix.clone(),
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

fn list(args: &SidesArgs) {
    let by_durability: BTreeMap<_, Vec<_>> =
        sides::SIDES.iter().fold(BTreeMap::new(), |mut by, entry| {
            by.entry(entry.durability as u8).or_insert_with(Vec::new).push(entry);
            by
        });
    for entries in by_durability.values() {
        println!("a write survives {}:", entries[0].durability);
        for entry in entries {
            println!("  {:<22} {}", entry.name, entry.what);
            if args.settings {
                println!("  {:<22} {}", "", entry.settings);
            }
        }
    }
    println!("mixes:");
    for mix in Mix::ALL {
        println!("  {:<22} {}", mix.name, mix.what);
    }
}

fn count_costs(args: &CostsArgs) -> Result<(), Failure> {
    let index = sides::bztree::counting(&BuildOptions::default())?;
    let costs = costs::count(&index, args.records, args.samples)?;
    print!("{}", costs::table(&costs));
    Ok(())
}

fn time_recovery(args: &RecoveryArgs, prefix: &[&str]) -> Result<(), Failure> {
    eprintln!("{}", Conditions::here(&args.pool_dir).line());
    for &records in &args.records {
        let plan = RecoveryPlan {
            records,
            cycles: args.cycles,
            executable: std::env::current_exe()?,
            prefix: prefix.iter().map(|&word| word.to_owned()).collect(),
            build: BuildOptions { pool_dir: args.pool_dir.clone(), ..BuildOptions::default() },
            seed: args.seed,
        };
        let progress = progress();
        let all = recovery::measure(&plan, &progress)?;
        progress.finish_and_clear();
        let spread = |ns: fn(&recovery::Reopened) -> u64| {
            let ns: Vec<f64> = all.iter().map(|reopened| ns(reopened) as f64).collect();
            let Spread { median, min, max } = Spread::of(&ns);
            [median, min, max].map(|ns| duration(ns as u64)).join(" / ")
        };
        let in_flight = all.iter().filter(|reopened| reopened.in_flight > 0).count();
        println!(
            "{} records, killed and opened {} times: open {}, to the first get {} (median / min / max); {in_flight} kills cut operations short",
            report::count(records),
            all.len(),
            spread(|reopened| reopened.open_ns),
            spread(|reopened| reopened.total_ns),
        );
    }
    Ok(())
}

fn measure_space(args: &SpaceArgs) -> Result<(), Failure> {
    eprintln!("{}", Conditions::here(&args.pool_dir).line());
    let options = BuildOptions { pool_dir: args.pool_dir.clone(), ..BuildOptions::default() };
    let shape = Shape { key_bytes: args.key_bytes, value_bytes: args.value_bytes };
    check_limits(&args.sides, shape, &[])?;
    let plan = Plan {
        mixes: Vec::new(),
        records: 0,
        threads: Vec::new(),
        keys: None,
        shape,
        rounds: 1,
        time: Duration::ZERO,
        batch: 0,
        sample_every: 16,
        rate_ops_per_second: None,
        seed: 1,
        time_limit: None,
        conditions: Conditions::here(&args.pool_dir),
    };
    let progress = progress();
    let entrants = entrants(&args.sides, shape, &options);
    let table = space::table(&plan, &args.records, &entrants, &progress)?;
    progress.finish_and_clear();
    print!("{table}");
    Ok(())
}

fn be_child(args: &ChildArgs) -> Result<(), Failure> {
    let options = BuildOptions::default();
    match args.part.as_str() {
        "fill" => recovery::fill_and_write(&args.file, args.records, args.seed, &options),
        "open" => recovery::open_and_write(&args.file, args.records, args.seed),
        other => Err(Error::Child { what: format!("has no part {other:?}") }.into()),
    }
}
