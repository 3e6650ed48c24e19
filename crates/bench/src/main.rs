//! `pando-bench`: parses, calls, prints. What it measures and how stands in the library.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use pando_bench::args::{ChildArgs, Cli, Command, CostsArgs, RecoveryArgs, RunArgs, SpaceArgs};
use pando_bench::compare::{self, Entrant, Plan};
use pando_bench::error::Error;
use pando_bench::record::Shape;
use pando_bench::recovery::{self, RecoveryPlan};
use pando_bench::report::{self, Spread, duration};
use pando_bench::sides::{self, BuildOptions, SideName};
use pando_bench::{costs, space};

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Costs(args) => count_costs(&args),
        Command::Recovery(args) => time_recovery(&args),
        Command::Space(args) => measure_space(&args),
        Command::RecoveryChild(args) => be_child(&args),
        Command::Sides => {
            for entry in sides::SIDES {
                println!("{:<20} {}", entry.name, entry.what);
            }
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pando-bench: {error}");
            ExitCode::FAILURE
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

fn run(args: &RunArgs) -> Outcome {
    let options = BuildOptions {
        pool_dir: args.pool_dir.clone(),
        huge_pages: args.huge_pages,
        ..BuildOptions::default()
    };
    let plan = Plan {
        base: args.base.map(|base| base.to_string()),
        mixes: args.mix.clone(),
        records: args.records,
        threads: args.threads.clone(),
        keys: args.keys,
        shape: Shape { key_bytes: args.key_bytes, value_bytes: args.value_bytes },
        rounds: args.rounds,
        time: Duration::from_secs_f64(args.seconds),
        batch: args.batch.unwrap_or(args.records / 20).max(1),
        sample_every: args.sample_every,
        rate_ops_per_second: args.rate,
        seed: args.seed,
    };
    let progress = progress();
    let rows = compare::run(&plan, &entrants(&args.sides, plan.shape, &options), &progress)?;
    progress.finish_and_clear();
    print!("{}", report::table(&rows));
    if let Some(path) = &args.json {
        report::write_json(path, &rows)?;
    }
    Ok(())
}

fn count_costs(args: &CostsArgs) -> Outcome {
    let index = sides::bztree::counting(&BuildOptions::default())?;
    let costs = costs::count(&index, args.records, args.samples)?;
    print!("{}", costs::table(&costs));
    Ok(())
}

fn time_recovery(args: &RecoveryArgs) -> Outcome {
    for &records in &args.records {
        let plan = RecoveryPlan {
            records,
            cycles: args.cycles,
            executable: std::env::current_exe()?,
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

fn measure_space(args: &SpaceArgs) -> Outcome {
    let options = BuildOptions { pool_dir: args.pool_dir.clone(), ..BuildOptions::default() };
    let plan = Plan {
        base: None,
        mixes: Vec::new(),
        records: 0,
        threads: Vec::new(),
        keys: None,
        shape: Shape::EIGHT,
        rounds: 1,
        time: Duration::ZERO,
        batch: 0,
        sample_every: 16,
        rate_ops_per_second: None,
        seed: 1,
    };
    let progress = progress();
    let table = space::table(
        &plan,
        &args.records,
        &entrants(&args.sides, plan.shape, &options),
        &progress,
    )?;
    progress.finish_and_clear();
    print!("{table}");
    Ok(())
}

fn be_child(args: &ChildArgs) -> Outcome {
    match args.part.as_str() {
        "fill" => {
            recovery::fill_and_write(&args.pool, args.records, args.seed, &BuildOptions::default())
        }
        "open" => recovery::open_and_write(&args.pool, args.records, args.seed),
        other => Err(Error::Child { what: format!("has no part {other:?}") }.into()),
    }
}
