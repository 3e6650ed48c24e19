//! The command line of the experiments, and the calls that it stands for. `pando-papers` and
//! `pando paper` are both thin wrappers of [`run`].

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use pando_bench::arg_values::{count, number_to_1024, seconds};
use pando_bench::conditions::Conditions;
use pando_bench::delays::DelayArgs;
use pando_bench::error::Failure;
use pando_bench::profile::command::{ProfileChildArgs, be_child};
use pando_bench::progress::progress;
use pando_bench::systems::{BuildOptions, memory_folder};

use super::arrays::array::Method;
use super::arrays::{
    self,
    plan::{DOMAINS, SLOW},
};
use super::error::Error;
use super::experiment::Settings;
use super::store::recovery::{self, StoreChildArgs};
use super::traces::command::{TraceArgs, trace};
use super::{catalogue, report};

/// Arguments of the experiments: their names, or another command.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PapersArgs {
    /// What to do instead of an experiment.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The experiments.
    #[command(flatten)]
    pub run: PaperArgs,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure PMwCAS alone, on arrays of words
    Pmwcas(PmwcasArgs),
    /// Replay a trace on systems: deduplication of real files, or a game
    Trace(TraceArgs),
    /// The process that an experiment samples
    #[command(hide = true)]
    ProfileChild(ProfileChildArgs),
    /// The process that an experiment kills
    #[command(hide = true)]
    StoreChild(StoreChildArgs),
}

/// Arguments of experiments.
#[derive(Args, Debug)]
pub struct PaperArgs {
    /// Experiments, such as bztree:fig4; without a name, all are listed
    pub names: Vec<String>,
    /// Number of records, such as 500k or 10M; for pmwcas:fig5, words of an array [default: that of
    /// the experiment]
    #[arg(long, value_parser = count)]
    pub records: Option<u64>,
    /// Numbers of threads [default: 1, 2, 4 and so on, up to the
    /// number of cores]
    #[arg(long, value_delimiter = ',', value_parser = number_to_1024)]
    pub threads: Option<Vec<usize>>,
    /// Seconds of a slice [default: those of the experiment]
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Number of rounds [default: that of the experiment]
    #[arg(long, value_parser = number_to_1024)]
    pub rounds: Option<usize>,
    /// Seed of all operations
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// How slow the medium is that stands in for that of the durable system.
    #[command(flatten)]
    pub delays: DelayArgs,
    /// Folder for pools in files
    #[arg(long, default_value_os_t = memory_folder())]
    pub pool_dir: PathBuf,
    /// Write the rows to this file, one JSON object per line
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// Arguments of `pmwcas`.
#[derive(Args, Debug)]
pub struct PmwcasArgs {
    /// Sizes of the arrays in words; in a smaller array, threads conflict more often
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "100,10k,1M")]
    pub arrays: Vec<u64>,
    /// Numbers of words that an operation changes; cas is the single-word persistent CAS
    #[arg(long, value_delimiter = ',', default_value = "cas,1,2,3,4")]
    pub words: Vec<Method>,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', value_parser = number_to_1024, default_value = "1,2,4")]
    pub threads: Vec<usize>,
    /// Domains: process, adr or slow; ratios refer to the first; append :rdcss for the algorithm of
    /// the PMwCAS paper, process:direct for runs without hardware transactions
    #[arg(long, value_delimiter = ',', value_parser = domain, default_value = "process,adr")]
    pub domains: Vec<&'static str>,
    /// Number of rounds
    #[arg(long, value_parser = number_to_1024, default_value = "5")]
    pub rounds: usize,
    /// Seconds of a slice
    #[arg(long, value_parser = seconds, default_value = "0.1")]
    pub seconds: f64,
    /// Attempts of each thread whose steps are counted
    #[arg(long, default_value = "2000")]
    pub counted: u64,
    /// How slow the domain slow is.
    #[command(flatten)]
    pub delays: DelayArgs,
    /// Seed of all operations
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// Folder for the pools
    #[arg(long, default_value_os_t = memory_folder())]
    pub pool_dir: PathBuf,
    /// Write the rows to this file, one JSON object per line
    #[arg(long)]
    pub json: Option<PathBuf>,
}

fn domain(text: &str) -> Result<&'static str, String> {
    let known = DOMAINS.into_iter().find(|&domain| domain == text);
    known.ok_or_else(|| format!("expected one of {}", DOMAINS.join(", ")))
}

/// Runs what `args` ask for. `prefix` is what stands before the arguments of this command when
/// the program runs itself again: `["paper"]` for `pando paper`.
pub fn run(args: &PapersArgs, prefix: &[&str]) -> Result<(), Failure> {
    match &args.command {
        None => Ok(paper(&args.run, prefix, &progress())?),
        Some(Command::Pmwcas(args)) => Ok(pmwcas(args, &progress())?),
        Some(Command::Trace(args)) => trace(args, &progress()),
        Some(Command::ProfileChild(args)) => be_child(args),
        Some(Command::StoreChild(args)) => recovery::be_child(args),
    }
}

/// Runs the experiments that are named, and prints each when it is done; the list if none is.
pub fn paper(args: &PaperArgs, prefix: &[&str], progress: &ProgressBar) -> Result<(), Error> {
    if args.names.is_empty() {
        print!("{}", catalogue::list());
        return Ok(());
    }
    let delays = args.delays.delays(true, "")?;
    let settings = Settings {
        records: args.records,
        threads: args.threads.clone(),
        time: args.seconds.map(Duration::from_secs_f64),
        rounds: args.rounds,
        seed: args.seed,
        build: BuildOptions { pool_dir: args.pool_dir.clone(), delays, ..BuildOptions::default() },
        prefix: prefix.iter().map(|&word| word.to_owned()).collect(),
    };
    // All names first: a wrong one at the end must not cost the minutes before it.
    for name in &args.names {
        catalogue::runner(catalogue::find(name)?, &settings)?;
    }
    let conditions = Conditions::here(&args.pool_dir).emulating(delays);
    let mut json = String::new();
    for name in &args.names {
        progress.reset();
        let (experiment, mut outcome) = catalogue::run(name, &settings, progress)?;
        outcome.conditions += &format!("; {}", conditions.line());
        progress.suspend(|| println!("{}", report::text(experiment, &outcome)));
        report::json(experiment, &outcome, &mut json);
        if let Some(path) = &args.json {
            pando_bench::report::write(path, &json)?;
        }
    }
    progress.finish_and_clear();
    Ok(())
}

/// Runs PMwCAS alone on arrays of words, and prints the table.
pub fn pmwcas(args: &PmwcasArgs, progress: &ProgressBar) -> Result<(), Error> {
    let is_slow = args.domains.iter().any(|domain| domain.starts_with(SLOW));
    let delays = args.delays.delays(is_slow, "the domain slow")?;
    let plan = arrays::Plan {
        arrays: args.arrays.clone(),
        methods: args.words.clone(),
        threads: args.threads.clone(),
        domains: args.domains.clone(),
        rounds: args.rounds,
        time: Duration::from_secs_f64(args.seconds),
        counted: args.counted,
        seed: args.seed,
        build: BuildOptions { pool_dir: args.pool_dir.clone(), delays, ..BuildOptions::default() },
    };
    let conditions = Conditions::here(&args.pool_dir).emulating(delays);
    eprintln!("{}", conditions.line());
    let rows = arrays::run(&plan, progress)?;
    progress.finish_and_clear();
    print!("{}", arrays::report::table(&rows));
    if let Some(path) = &args.json {
        pando_bench::report::write(path, &conditions.json_lines(&rows))?;
    }
    Ok(())
}
