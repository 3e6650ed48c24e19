//! The commands `paper` and `pmwcas`: words and numbers, and the calls that they stand for.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;

use super::arrays::array::Method;
use super::arrays::{
    self,
    plan::{DOMAINS, SLOW},
    report,
};
use super::experiment::Settings;
use super::{Error, catalogue};
use crate::args::{DelayArgs, count};
use crate::conditions::Conditions;
use crate::sides::{BuildOptions, memory_folder};

/// Arguments of `paper`.
#[derive(Args, Debug)]
pub struct PaperArgs {
    /// The experiments, as in bztree:fig4; none lists them all
    pub names: Vec<String>,
    /// Records, as in 500k or 10M; words of an array for pmwcas:fig5 [default: the experiment's
    /// own]
    #[arg(long, value_parser = count)]
    pub records: Option<u64>,
    /// Numbers of threads [default: 1, 2 and so on up to the cores]
    #[arg(long, value_delimiter = ',', value_parser = threads)]
    pub threads: Option<Vec<usize>>,
    /// Seconds that a slice takes [default: the experiment's own]
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Rounds [default: the experiment's own]
    #[arg(long, value_parser = threads)]
    pub rounds: Option<usize>,
    /// Seed of all operations
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// How slow the medium is that stands in for that of the durable side.
    #[command(flatten)]
    pub delays: DelayArgs,
    /// Folder for pools in files
    #[arg(long, default_value_os_t = memory_folder())]
    pub pool_dir: PathBuf,
    /// Write one JSON object a line to this file
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// Arguments of `pmwcas`.
#[derive(Args, Debug)]
pub struct PmwcasArgs {
    /// Sizes of the arrays in words; the smaller, the more threads meet
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "100,10k,1M")]
    pub arrays: Vec<u64>,
    /// Words an operation changes, or cas for the single-word persistent CAS
    #[arg(long, value_delimiter = ',', default_value = "cas,1,2,3,4")]
    pub words: Vec<Method>,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', value_parser = threads, default_value = "1,2,4")]
    pub threads: Vec<usize>,
    /// Domains; ratios are to the first: volatile, process, eadr, adr, slow; by the algorithm of
    /// the PMwCAS paper with :rdcss behind them, without hardware transactions with :direct
    #[arg(long, value_delimiter = ',', value_parser = domain, default_value = "volatile,process,adr")]
    pub domains: Vec<&'static str>,
    /// Rounds
    #[arg(long, value_parser = threads, default_value = "5")]
    pub rounds: usize,
    /// Seconds that a slice takes
    #[arg(long, value_parser = seconds, default_value = "0.1")]
    pub seconds: f64,
    /// Attempts of each thread that are counted in the counting domain
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
    /// Write one JSON object a line to this file
    #[arg(long)]
    pub json: Option<PathBuf>,
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=1024).contains(&number) => Ok(number),
        _ => Err("expected a number from 1 to 1024".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0.001 to 3600".to_owned()),
    }
}

fn domain(text: &str) -> Result<&'static str, String> {
    let known = DOMAINS.into_iter().find(|&domain| domain == text);
    known.ok_or_else(|| format!("expected one of {}", DOMAINS.join(", ")))
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
        catalogue::find(name)?.runner(&settings)?;
    }
    let conditions = Conditions::here(&args.pool_dir).emulating(delays);
    let mut json = String::new();
    for name in &args.names {
        progress.reset();
        let (experiment, mut outcome) = super::run(name, &settings, progress)?;
        outcome.conditions += &format!("; {}", conditions.line());
        progress.suspend(|| println!("{}", outcome.text(experiment)));
        outcome.json(experiment, &mut json);
        if let Some(path) = &args.json {
            crate::report::write(path, &json)?;
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
    print!("{}", report::table(&rows));
    if let Some(path) = &args.json {
        crate::report::write(path, &conditions.json_lines(&rows))?;
    }
    Ok(())
}
