//! The command `trace`: makes a trace, replays it on systems, or writes it as text.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;

use super::dedup::{self, Source};
use super::game::{self, Game};
use super::runner::{self, Plan, Row};
use super::{Trace, text};
use pando_bench::arg_values::count;
use pando_bench::conditions::Conditions;
use pando_bench::delays::DelayArgs;
use pando_bench::plan::NamedSystem;
use pando_bench::record::Shape;
use pando_bench::spread::Spread;
use pando_bench::systems::{BuildError, BuildOptions, SystemName, builder, memory_folder};
use pando_bench::units::count as short;

/// Arguments of `trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// Trace: dedup (chunks of real files) or game (94-byte keys, 1,200-byte values)
    #[arg(value_parser = ["dedup", "game"])]
    pub trace: String,
    /// dedup: folders and files that are divided into chunks
    #[arg(long, value_delimiter = ',', default_value = "/usr/lib")]
    pub files: Vec<PathBuf>,
    /// dedup: maximum MiB of files that are read
    #[arg(long, default_value = "256")]
    pub max_mib: u64,
    /// dedup: mean length of a chunk in bytes
    #[arg(long, default_value = "4096")]
    pub chunk_bytes: u32,
    /// game: number of players; each is a record
    #[arg(long, value_parser = count, default_value = "100k")]
    pub players: u64,
    /// game: number of gets and updates
    #[arg(long, value_parser = count, default_value = "1M")]
    pub operations: u64,
    /// Systems to compare; ratios refer to the first
    #[arg(long, value_delimiter = ',', default_value = "crossbeam-skiplist,btreemap,bztree")]
    pub systems: Vec<SystemName>,
    /// Number of threads, which divide the steps by key
    #[arg(long, default_value = "2")]
    pub threads: usize,
    /// Number of parts of the trace; the systems take turns after each part
    #[arg(long, default_value = "10")]
    pub parts: usize,
    /// Seed of the game
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// Folder for the pools of durable systems
    #[arg(long, default_value_os_t = memory_folder())]
    pub pool_dir: PathBuf,
    /// How slow the systems are whose medium is emulated.
    #[command(flatten)]
    pub delays: DelayArgs,
    /// Write the trace to this file, one line per operation, and do not replay it
    #[arg(long)]
    pub write: Option<PathBuf>,
    /// Write the rows to this file, one JSON object per line
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// Makes the trace and does with it what is asked.
pub fn trace(args: &TraceArgs, progress: &ProgressBar) -> Result<(), BuildError> {
    let delays = args.delays.of_systems(args.systems.iter())?;
    let trace = made(args)?;
    if let Some(path) = &args.write {
        let failed = |error| format!("{}: {error}", path.display());
        let mut out = BufWriter::new(File::create(path).map_err(failed)?);
        text::write(&trace, &mut out).and_then(|()| out.flush()).map_err(failed)?;
        return Ok(());
    }
    let build = BuildOptions { pool_dir: args.pool_dir.clone(), delays, ..BuildOptions::default() };
    let shape = Shape { key_bytes: trace.key_bytes(), value_bytes: trace.value_bytes() };
    let system = |&system: &SystemName| NamedSystem {
        name: system.to_string(),
        build: builder(system, shape, &build),
    };
    let systems: Vec<_> = args.systems.iter().map(system).collect();
    let plan = Plan { threads: args.threads.clamp(1, 1024), parts: args.parts.clamp(1, 1000) };
    let conditions = Conditions::here(&args.pool_dir).emulating(delays);
    eprintln!("{}", conditions.line());
    let rows = runner::run(&trace, &systems, &plan, progress)?;
    progress.finish_and_clear();
    print!("{}", table(&rows));
    if let Some(path) = &args.json {
        pando_bench::report::write(path, &conditions.json_lines(&rows))?;
    }
    Ok(())
}

fn made(args: &TraceArgs) -> Result<Trace, BuildError> {
    if args.trace == "game" {
        let Ok(Some(_)) = u32::try_from(args.players).map(|players| players.checked_mul(2)) else {
            return Err(format!("{} players; allowed is 1 to 2147483647", args.players).into());
        };
        let (players, operations) = (args.players, args.operations);
        return Ok(game::trace(&Game { players, operations, seed: args.seed }));
    }
    let source = Source {
        paths: args.files.clone(),
        max_bytes: args.max_mib.saturating_mul(1 << 20),
        chunk_bytes: args.chunk_bytes,
    };
    let (trace, found) = dedup::trace(&source)?;
    eprintln!(
        "{} files, {} MiB: {} chunks, {} of them distinct; {} files or folders could not be read",
        found.files,
        found.bytes >> 20,
        found.chunks,
        found.unique,
        found.unreadable
    );
    Ok(trace)
}

/// The rows for people.
pub fn table(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut out = format!(
        "{}: {} operations on keys of {} and values of {} bytes after {} inserts, {:.2} reads a write, {} threads, {} parts\n",
        first.trace,
        short(first.operations),
        first.key_bytes,
        first.value_bytes,
        short(first.records),
        first.reads_a_write,
        first.threads,
        first.parts,
    );
    out += &format!("  {:<20} {:>8} {:>20}\n", "system", "Mops/s", format!("x {}", first.system));
    for row in rows {
        let ratio = Spread { median: row.ratio_to_first, min: row.ratio_min, max: row.ratio_max };
        out += &format!(
            "  {:<20} {:>8.3} {:>20}\n",
            row.system,
            row.ops_per_second / 1e6,
            ratio.to_string()
        );
    }
    out
}
