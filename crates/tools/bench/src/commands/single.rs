//! The commands `costs`, `recovery`, `space`, `transactions` and `processes`: figures that are no
//! comparison of systems.

use std::time::Duration;

use super::named::{check_limits, named_systems};
use crate::arg_values::{FilesArgs, RoundsArgs};
use crate::args::{CostsArgs, ProcessesArgs, RecoveryArgs, SpaceArgs, TransactionsArgs};
use crate::conditions::Conditions;
use crate::error::Failure;
use crate::figures::Figures;
use crate::page::{self, Section};
use crate::plan::Plan;
use crate::program::Program;
use crate::progress::progress;
use crate::record::{Shape, WORD_BYTES};
use crate::recovery::{self, RecoveryPlan, Summary};
use crate::systems::entry::BuildOptions;
use crate::{costs, measure, processes, report, space, transactions};

/// Prints `figures`, and writes the files of `files`; `lines` are the rows as JSON.
fn show(
    figures: Figures,
    lines: &str,
    files: &FilesArgs,
    conditions: &Conditions,
) -> Result<(), Failure> {
    print!("{}", figures.text());
    if let Some(path) = &files.json {
        report::write(path, lines)?;
    }
    if let Some(path) = &files.page {
        page::write(path, &[Section::Figures(figures)], conditions)?;
        println!("\nplots: {}", path.display());
    }
    Ok(())
}

/// Counts the costs of operations.
pub fn count_costs(args: &CostsArgs) -> Result<(), Failure> {
    let all = args.records.saturating_add(args.samples);
    let options = BuildOptions::default().for_records(all, Shape::EIGHT);
    let conditions = Conditions::here(&options.pool_dir);
    let mut costs = Vec::new();
    for ours in &args.ours {
        let index = ours.counting(&options)?;
        costs.extend(costs::count(ours.name, &*index, args.records, args.samples)?);
    }
    show(costs::figures(&costs), &conditions.json_lines(&costs), &args.files, &conditions)
}

/// Times openings after kills.
pub fn time_recovery(args: &RecoveryArgs, prefix: &[&str]) -> Result<(), Failure> {
    let conditions = Conditions::here(&args.pool_dir);
    eprintln!("{}", conditions.line());
    let show_rows = |rows: &[Summary]| {
        show(recovery::figures(rows), &conditions.json_lines(rows), &args.files, &conditions)
    };
    let mut rows = Vec::new();
    let pools =
        args.ours.iter().flat_map(|&ours| args.records.iter().map(move |&size| (ours, size)));
    for (ours, records) in pools {
        let plan = RecoveryPlan {
            ours,
            records,
            cycles: args.cycles,
            program: Program::this(prefix)?,
            build: BuildOptions { pool_dir: args.pool_dir.clone(), ..BuildOptions::default() },
            seed: args.seed,
        };
        let progress = progress();
        let measured = recovery::measure(&plan, &progress);
        progress.finish_and_clear();
        match measured {
            Ok(all) => rows.push(Summary::of(&plan, &all)),
            // Show the earlier measurements before the error.
            Err(error) => {
                if !rows.is_empty() {
                    show_rows(&rows)?;
                }
                return Err(error.into());
            }
        }
        if rows.len() < args.ours.len() * args.records.len() {
            eprint!("{}", recovery::figures(&rows[rows.len() - 1..]).text());
        }
    }
    show_rows(&rows)
}

/// Fills systems and prints the bytes per record.
pub fn measure_space(args: &SpaceArgs) -> Result<(), Failure> {
    let conditions = Conditions::here(&args.pool_dir);
    eprintln!("{}", conditions.line());
    let options = BuildOptions { pool_dir: args.pool_dir.clone(), ..BuildOptions::default() };
    let shape = Shape { key_bytes: args.key_bytes, value_bytes: args.value_bytes };
    check_limits(&args.systems, shape, &[])?;
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
        conditions: conditions.clone(),
    };
    let progress = progress();
    let most = args.records.iter().copied().max().unwrap_or(0);
    let systems = named_systems(&args.systems, most, shape, &options, None);
    let rows = space::measure(&plan, &args.records, &systems, &progress)?;
    progress.finish_and_clear();
    show(space::figures(&rows), &conditions.json_lines(&rows), &args.files, &conditions)
}

/// The plan of measures of maps whose keys are words.
fn measure_plan(
    records: u64,
    value_bytes: usize,
    rounds: &RoundsArgs,
    build: BuildOptions,
    seed: u64,
) -> measure::Plan {
    let shape = Shape { key_bytes: WORD_BYTES, value_bytes };
    measure::Plan {
        records,
        shape,
        rounds: rounds.rounds,
        time: Duration::from_secs_f64(rounds.seconds),
        build: build.for_records(records, shape),
        seed,
    }
}

/// Measures commits, snapshots and rebuilds.
pub fn measure_transactions(args: &TransactionsArgs) -> Result<(), Failure> {
    let build = BuildOptions {
        pool_dir: args.pool_dir.clone(),
        log_dir: args.log_dir.clone(),
        ..BuildOptions::default()
    };
    let conditions = Conditions::here(&build.pool_dir).with_logs_in(build.log_dir());
    eprintln!("{}", conditions.line());
    let plan = measure_plan(args.records, args.value_bytes, &args.rounds, build, args.seed);
    let rows = transactions::measure(&plan)?;
    show(
        measure::figures("Transactions", &rows),
        &conditions.json_lines(&rows),
        &args.files,
        &conditions,
    )
}

/// Measures processes that share a map.
pub fn measure_processes(args: &ProcessesArgs, prefix: &[&str]) -> Result<(), Failure> {
    let build = BuildOptions { pool_dir: args.pool_dir.clone(), ..BuildOptions::default() };
    let conditions = Conditions::here(&build.pool_dir);
    eprintln!("{}", conditions.line());
    let plan = measure_plan(args.records, args.value_bytes, &args.rounds, build, args.seed);
    let rows = processes::measure(&plan, &Program::this(prefix)?, cfg!(feature = "lmdb"))?;
    show(
        measure::figures("Processes", &rows),
        &conditions.json_lines(&rows),
        &args.files,
        &conditions,
    )
}
