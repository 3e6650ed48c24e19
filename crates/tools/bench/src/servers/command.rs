//! `bench servers`: throughput, latency and processor time, or restarts.

use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;

use super::load::Load;
use super::restart;
use super::system::{Running, Server};
use crate::arg_values::{FilesArgs, count};
use crate::conditions::Conditions;
use crate::error::Error;
use crate::error::Failure;
use crate::figures::Figures;
use crate::spread::Spread;
use crate::systems::entry::memory_folder;
use crate::units::{self, duration};
use crate::{page, report};

/// Arguments of `servers`.
#[derive(Args, Debug)]
pub struct ServersArgs {
    /// Servers to compare; ratios refer to the first
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "redis,pando,redis-everysec",
        default_value_if(
            "restarts",
            clap::builder::ArgPredicate::IsPresent,
            "redis-everysec,redis-dump,memcached,pando"
        )
    )]
    pub servers: Vec<Server>,
    /// Requests to measure, by the names of redis-benchmark
    #[arg(long, value_delimiter = ',', default_value = "get,set,incr,sadd,hset,zadd")]
    pub tests: Vec<String>,
    /// Numbers of requests that each client sends before it waits for the answers
    #[arg(long, value_delimiter = ',', default_value = "1,16,100")]
    pub pipelines: Vec<u32>,
    /// Numbers of concurrent clients
    #[arg(long, value_delimiter = ',', default_value = "50,500")]
    pub clients: Vec<u32>,
    /// Requests of a run; with a pipeline of 1, a tenth of these
    #[arg(long, value_parser = count, default_value = "2M")]
    pub requests: u64,
    /// Number of keys, which exist from the beginning
    #[arg(long, value_parser = count, default_value = "1M")]
    pub keys: u64,
    /// Number of rounds; each measures all servers in turn
    #[arg(long, default_value = "3")]
    pub rounds: usize,
    /// Measure this many restarts after a kill instead of requests
    #[arg(long, value_name = "CYCLES", value_parser = count)]
    pub restarts: Option<u64>,
    /// Number of keys in a server that is restarted
    #[arg(long, value_parser = count, default_value = "10M", requires = "restarts")]
    pub records: u64,
    /// Path of the command `pando` [default: this program, if it is `pando`]
    #[arg(long, value_name = "PROGRAM")]
    pub pando: Option<PathBuf>,
    /// Folder for pools, logs and sockets
    #[arg(long, default_value_os_t = memory_folder())]
    pub folder: PathBuf,
    /// Where the figures go.
    #[command(flatten)]
    pub files: FilesArgs,
}

/// One server under one load, or restarted; one line of JSON.
#[derive(Clone, Debug, Serialize)]
struct Row {
    server: String,
    load: String,
    /// Requests a second.
    per_second: Spread,
    /// By the first server's of the same round.
    ratio: Spread,
    p50_ms: Spread,
    p99_ms: Spread,
    /// Processor time of the server, in nanoseconds a request.
    processor_ns: Spread,
    processor_ratio: Spread,
}

/// Runs what `args` ask for.
pub fn servers(args: &ServersArgs, prefix: &[&str], progress: &ProgressBar) -> Result<(), Failure> {
    let program = match &args.pando {
        Some(program) => program.clone(),
        // `pando bench` is the command itself; `pando-bench` has to be told.
        None if prefix == ["bench"] => std::env::current_exe()?,
        None => return Err(Error::Usage("name the `pando` command by --pando".into()).into()),
    };
    let ours = [program.to_string_lossy().into_owned()];
    let conditions = Conditions::here(&args.folder);
    eprintln!("{}", conditions.line());
    let (figures, lines) = match args.restarts {
        Some(cycles) => restarts(args, &ours, cycles, progress, &conditions)?,
        None => loads(args, &ours, progress, &conditions)?,
    };
    progress.finish_and_clear();
    print!("{}", figures.text());
    if let Some(path) = &args.files.json {
        report::write(path, &lines)?;
    }
    if let Some(path) = &args.files.page {
        page::write(path, &[page::Section::Figures(figures)], &conditions)?;
        println!("\nplots: {}", path.display());
    }
    Ok(())
}

fn restarts(
    args: &ServersArgs,
    ours: &[String],
    cycles: u64,
    progress: &ProgressBar,
    conditions: &Conditions,
) -> Result<(Figures, String), Failure> {
    if args.servers.contains(&Server::Redis) {
        let why =
            "redis without persistence has no keys after a kill; name redis-everysec or redis-dump";
        return Err(Error::Usage(why.into()).into());
    }
    let (mut rows, mut bars, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for &system in &args.servers {
        let folder = tempfile::tempdir_in(&args.folder)?;
        let plan = (args.records, cycles);
        let all = restart::measure(system, ours, folder.path(), plan, progress)?;
        let ns: Vec<f64> = all.iter().map(|took| took.as_nanos() as f64).collect();
        let spread = Spread::of(&ns);
        let cell = |ns: f64| duration(ns as u64);
        rows.push(vec![system.name(), cell(spread.median), cell(spread.min), cell(spread.max)]);
        let in_ms = |ns: f64| ns / 1e6;
        bars.push((
            system.name(),
            Spread { median: in_ms(spread.median), min: in_ms(spread.min), max: in_ms(spread.max) },
        ));
        #[derive(Clone, Debug, Serialize)]
        struct Restarted {
            server: String,
            records: u64,
            restart_ns: Spread,
        }
        let records = args.records;
        lines.push(Restarted { server: system.name(), records, restart_ns: spread });
    }
    let about = format!(
        "{} keys, {cycles} kills; from the start of the process to the answer to a GET",
        units::count(args.records)
    );
    let columns = ["server", "median", "least", "most"];
    let figures = Figures::new("Restarts", about, &columns, &rows, Vec::clone).with_plot(
        "To the first GET",
        "ms",
        bars,
    );
    Ok((figures, conditions.json_lines(&lines)))
}

fn loads(
    args: &ServersArgs,
    ours: &[String],
    progress: &ProgressBar,
    conditions: &Conditions,
) -> Result<(Figures, String), Failure> {
    let mut all_loads = Vec::new();
    for test in &args.tests {
        for &pipeline in &args.pipelines {
            for &clients in &args.clients {
                let requests = if pipeline == 1 { args.requests / 10 } else { args.requests };
                let (test, keys) = (test.clone(), args.keys);
                all_loads.push(Load { test, pipeline, clients, requests, keys });
            }
        }
    }
    // Each server stands while all loads run, as servers do; they take turns load by load.
    let mut standing = Vec::new();
    for &system in &args.servers {
        let folder = tempfile::tempdir_in(&args.folder)?;
        let (running, _) = Running::start(system, ours, folder.path(), &system.greeting())?;
        progress.set_message(format!("{}: filling", system.name()));
        running.fill(args.keys, progress)?;
        standing.push((system, running, folder));
    }
    progress.set_length((all_loads.len() * args.rounds * args.servers.len()) as u64);
    progress.set_position(0);
    let mut rows: Vec<Row> = Vec::new();
    for load in &all_loads {
        let what = format!("{} P{} c{}", load.test, load.pipeline, load.clients);
        let mut samples = vec![Vec::new(); standing.len()];
        for _ in 0..args.rounds {
            for (place, (system, running, _)) in standing.iter().enumerate() {
                progress.set_message(format!("{}: {what}", system.name()));
                let before = running.processor_seconds();
                let measured = running.measure(load)?;
                let seconds = running.processor_seconds() - before;
                samples[place].push((measured, seconds * 1e9 / load.requests as f64));
                progress.inc(1);
            }
        }
        for (place, (system, ..)) in standing.iter().enumerate() {
            let spread = |figure: &dyn Fn(usize) -> f64| {
                Spread::of(&(0..args.rounds).map(figure).collect::<Vec<_>>())
            };
            let of = |round: usize| samples[place][round];
            let first = |round: usize| samples[0][round];
            rows.push(Row {
                server: system.name(),
                load: what.clone(),
                per_second: spread(&|round| of(round).0.per_second),
                ratio: spread(&|round| of(round).0.per_second / first(round).0.per_second),
                p50_ms: spread(&|round| of(round).0.p50_ms),
                p99_ms: spread(&|round| of(round).0.p99_ms),
                processor_ns: spread(&|round| of(round).1),
                processor_ratio: spread(&|round| of(round).1 / first(round).1),
            });
        }
    }
    let line = |row: &Row| {
        vec![
            format!("{} {}", row.load, row.server),
            format!("{:.0}", row.per_second.median),
            row.ratio.to_string(),
            format!("{:.2}", row.p50_ms.median),
            format!("{:.2}", row.p99_ms.median),
            format!("{:.0}", row.processor_ns.median),
            row.processor_ratio.to_string(),
        ]
    };
    let columns =
        ["load", "requests/s", "ratio", "p50 ms", "p99 ms", "cpu ns/request", "cpu ratio"];
    let about = "redis-benchmark (memcached's protocol: a client of our own), medians over rounds; ratios to the first server in the same round, with their spread; cpu: of the server alone";
    let figures = Figures::new("Servers", about, &columns, &rows, line).with_plot(
        "Throughput by the first server's",
        "times",
        rows.iter().map(|row| (format!("{} {}", row.load, row.server), row.ratio)),
    );
    Ok((figures, conditions.json_lines(&rows)))
}
