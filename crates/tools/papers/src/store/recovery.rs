//! `bwtree:recovery`: from the opening after a kill to the first get, by the log since the
//! checkpoint.
//!
//! # Question
//!
//! A commit is durable when its record is in the log; its page is written later (section V.A). So
//! an opening after a crash replays the log from the redo LSN of the last checkpoint (the paper's
//! redo-scan-start-point). How long is that, by the length of the log? Does it depend on the size
//! of the store?
//!
//! # Method
//!
//! Two stores are filled, with `--records` records with keys of 8 and values of 100 bytes, and with
//! four times as many. A child process opens a store, makes a checkpoint, puts random records that
//! are there, as many as the greatest of `--threads` threads can, and says when it is done. Then it
//! is killed (SIGKILL). This process opens the store and gets one random record. In each round,
//! each store is killed after 0, 1/4, 1/2, 1 and 2 updates for each of the `--records`, as many in
//! the large store as in the small one.
//!
//! Each opening must replay all commits since the checkpoint, and the record must have a value that
//! was written to it. The work is counted, so `--seconds` has no effect. At the end all records are
//! checked.
//!
//! # Units
//!
//! | line | unit | what it is |
//! | --- | --- | --- |
//! | log | MiB | bytes of the log from the redo LSN to its end |
//! | until open | ms | from the call that opens the store to its return: the checkpoint is read, the blocks of pages behind it, and the log, which is replayed |
//! | to the first get | ms | from the same call to the answer of the get, which reads pages of the disk |
//! | replayed | k commits/s | commits by the time until the store is open |
//!
//! # Limits of memory
//!
//! The cache has a quarter of the small store's data on disk, or 16 MiB, the least memory of a
//! store. It is the same for both. The replay does not read the pages that it writes, and evicts
//! pages when the cache is full. The system's cache of files has what was written: see [`super`]. A
//! power cut, which leaves neither that nor the tail of the log, is not measured.
//!
//! # What the paper shows
//!
//! No figure. Section V.A: the cache manager writes pages so that the redo-scan-start-point can
//! advance, and no page waits for the log.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use indicatif::ProgressBar;
use pando_store::{MIN_MEMORY_BYTES, StoreOptions};

use super::opened::{
    FILL_TICKS, NO_CHECKPOINTS, Opened, Updates, folder, most_threads, refused, roomy,
};
use super::rounds::Rounds;
use crate::error::Error;
use crate::experiment::{Settings, in_threads, this_program};
use crate::outcome::Outcome;
use pando_bench::key_sampler::KeySampler;
use pando_bench::machine;
use pando_bench::rng::Rng;
use pando_bench::systems::BuildError;
use pando_bench::units::count;

/// Records of the small store, where none are asked for.
const RECORDS: u64 = 250_000;
/// The large store has so many times as many.
const LARGE: u64 = 4;
/// Updates since the checkpoint, for four records of the small store.
const UPDATES_PER_FOUR_RECORDS: [u64; 5] = [0, 1, 2, 4, 8];
/// Memory for one part of the data.
const MEMORY_PART: u64 = 4;
/// The child's line when its updates are done.
const WRITTEN: &str = "written";

fn options(memory_bytes: u64) -> StoreOptions {
    StoreOptions { memory_bytes, checkpoint_log_bytes: NO_CHECKPOINTS, ..StoreOptions::default() }
}

/// Arguments of the process that is killed.
#[derive(Clone, Debug, clap::Args)]
pub struct StoreChildArgs {
    /// The store
    #[arg(long)]
    pub path: PathBuf,
    /// Bytes of memory for its pages
    #[arg(long)]
    pub memory_bytes: u64,
    /// Records that it has
    #[arg(long)]
    pub records: u64,
    /// Updates after the checkpoint
    #[arg(long)]
    pub updates: u64,
    /// Number of threads
    #[arg(long)]
    pub threads: usize,
    /// Seed of the updates
    #[arg(long)]
    pub seed: u64,
}

impl StoreChildArgs {
    /// Starts it, and kills it when it has made its updates.
    fn run_and_kill(&self, program: &Path, prefix: &[String]) -> Result<(), Error> {
        const WHAT: &str = "the process that is killed";
        let mut child = Command::new(program)
            .args(prefix)
            .arg("store-child")
            .arg("--path")
            .arg(&self.path)
            .args(["--memory-bytes", &self.memory_bytes.to_string()])
            .args(["--records", &self.records.to_string()])
            .args(["--updates", &self.updates.to_string()])
            .args(["--threads", &self.threads.to_string()])
            .args(["--seed", &self.seed.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(refused(WHAT))?;
        let said = read_line(&mut child);
        // It may have ended by itself; then it has said nothing.
        let _ = child.kill();
        child.wait().map_err(refused(WHAT))?;
        match said.map_err(refused(WHAT))?.trim_end() {
            WRITTEN => Ok(()),
            other => {
                let why = format!("it said {other:?} and ended; its own message is above");
                Err(refused(WHAT)(why))
            }
        }
    }
}

fn read_line(child: &mut Child) -> std::io::Result<String> {
    let mut line = String::new();
    if let Some(out) = child.stdout.as_mut() {
        BufReader::new(out).read_line(&mut line)?;
    }
    Ok(line)
}

/// Does the part of the process that is killed: makes its updates, says so, and waits.
pub fn be_child(args: &StoreChildArgs) -> Result<(), BuildError> {
    machine::die_with_parent();
    let opened = Opened::open(&args.path, &options(args.memory_bytes))?;
    opened.checkpoint()?;
    opened.update(&Updates {
        keys: &KeySampler::Uniform,
        records: args.records,
        count: args.updates,
        threads: args.threads,
        seed: args.seed,
    })?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{WRITTEN}")?;
    out.flush()?;
    // Its parent holds the other end, and kills it.
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Opens the store and gets the record; adds the figures to the lines of `what`.
fn reopen(args: &StoreChildArgs, number: u64, what: &str, lines: &mut Rounds) -> Result<(), Error> {
    let begin = Instant::now();
    let opened = Opened::open(&args.path, &options(args.memory_bytes))?;
    let open = begin.elapsed();
    opened.read(number)?;
    let first_get = begin.elapsed();
    let recovery = opened.store.stat().map_err(refused("the numbers of a store"))?.recovery;
    if recovery.commits != args.updates {
        let why = format!("replayed {} commits of {}", recovery.commits, args.updates);
        return Err(refused("an opening after a kill")(why));
    }
    let log_bytes = recovery.end_lsn - recovery.from_lsn;
    let mut add = |of: &str, unit, figure| lines.add(&format!("{what}: {of}"), unit, figure);
    add("log", "MiB", log_bytes as f64 / f64::from(1 << 20));
    add("until open", "ms", open.as_secs_f64() * 1e3);
    add("to the first get", "ms", first_get.as_secs_f64() * 1e3);
    if recovery.commits > 0 {
        let rate = recovery.commits as f64 / open.as_secs_f64();
        add("replayed", "k commits/s", rate / 1e3);
    }
    Ok(())
}

/// Runs the experiment.
pub fn run(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let records = settings.records.unwrap_or(RECORDS);
    let rounds = settings.rounds.unwrap_or(3);
    let threads = most_threads(settings);
    let program = this_program()?;
    let folder = folder(settings)?;
    let stores = [1, LARGE].map(|times| records * times);
    let path = |records: u64| folder.path().join(count(records));

    let work = (rounds * UPDATES_PER_FOUR_RECORDS.len() + 1) * stores.len();
    progress.set_length(stores.len() as u64 * FILL_TICKS + work as u64);
    let mut memory_bytes = MIN_MEMORY_BYTES;
    for (at, &records) in stores.iter().enumerate() {
        progress.set_message(format!("fill {} records", count(records)));
        let opened = Opened::open(&path(records), &roomy(records))?;
        opened.fill(records, threads, progress)?;
        if at == 0 {
            let live_bytes = opened.stat()?.pages.live_bytes;
            memory_bytes = (live_bytes / MEMORY_PART).max(MIN_MEMORY_BYTES);
        }
    }
    let mut lines = Rounds::default();
    let mut rng = Rng::new(settings.seed);
    for round in 0..rounds {
        for times in UPDATES_PER_FOUR_RECORDS {
            for turn in 0..stores.len() {
                let of_store = stores[(round + turn) % stores.len()];
                let updates = records * times / 4;
                let what = format!("{} records, {} updates", count(of_store), count(updates));
                progress.set_message(format!("{what}, round {} of {rounds}", round + 1));
                let args = StoreChildArgs {
                    path: path(of_store),
                    memory_bytes,
                    records: of_store,
                    updates,
                    threads,
                    seed: rng.bits(),
                };
                args.run_and_kill(&program, &settings.prefix)?;
                reopen(&args, rng.below(of_store), &what, &mut lines)?;
                progress.inc(1);
            }
        }
    }
    progress.set_message("check");
    for &records in &stores {
        Opened::open(&path(records), &roomy(records))?.verify_all(records)?;
        progress.inc(1);
    }
    let mut outcome = Outcome {
        conditions: format!(
            "records of 8-byte keys and 100-byte values, {} MiB of memory, {}, {rounds} rounds",
            memory_bytes >> 20,
            in_threads(threads),
        ),
        ..Outcome::default()
    };
    lines.push_to(&mut outcome);
    Ok(outcome)
}
