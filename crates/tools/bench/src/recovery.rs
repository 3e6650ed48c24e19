//! Recovery time after kill -9: from the opening of a pool to the first successful get, in a new
//! process.
//!
//! The parent starts a child that fills a pool and continues to write, and kills it. Then it
//! repeats `cycles` times: a new child opens the pool, gets one record, prints the times, checks
//! more records, and writes until it is killed. So each opening after the first one finds a pool
//! that was recovered before.
//!
//! A child prints a line on standard output: `filled`, or `opened OPEN_NS TOTAL_NS IN_FLIGHT`. The
//! kernel kills it when its parent ends.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use pando_index::RangeIndex;
use serde::Serialize;

use crate::error::Error;
use crate::figures::Figures;
use crate::keys::{belongs, key_of, value_of};
use crate::machine;
use crate::program::Program;
use crate::record::Shape;
use crate::rng::Rng;
use crate::spread::Spread;
use crate::systems::entry::{BuildError, BuildOptions};
use crate::systems::ours::{self, Ours};
use crate::units::{count, duration};

/// Number of threads that write until the kill.
const WRITERS: u64 = 2;
/// Records that each writer inserts and deletes, in addition to those of the fill.
const CHURN_RECORDS: u64 = 10_000;
/// Number of gets after the timed one.
const CHECKED_GETS: u64 = 1_000;

/// The plan of a measurement.
#[derive(Clone, Debug)]
pub struct RecoveryPlan {
    /// The index.
    pub ours: &'static Ours,
    /// Records in the pool.
    pub records: u64,
    /// Number of kills and openings.
    pub cycles: u64,
    /// This program, which runs itself as the child.
    pub program: Program,
    /// Folder and size of the pool.
    pub build: BuildOptions,
    /// Seed of the keys and of the times of the kills.
    pub seed: u64,
}

/// The times of an opening.
#[derive(Clone, Copy, Debug)]
pub struct Reopened {
    /// Nanoseconds until the index was open.
    pub open_ns: u64,
    /// Nanoseconds until the answer of the first get.
    pub total_ns: u64,
    /// Operations that were in progress at the kill.
    pub in_flight: u64,
}

/// All openings of one pool; one line of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The index.
    pub index: &'static str,
    /// Records in the pool.
    pub records: u64,
    /// Number of kills and openings.
    pub cycles: u64,
    /// Nanoseconds until the index was open.
    pub open_ns: Spread,
    /// Nanoseconds until the answer of the first get.
    pub first_get_ns: Spread,
    /// Kills that found operations in progress.
    pub kills_in_flight: u64,
    /// Seed of the keys and of the times of the kills.
    pub seed: u64,
}

impl Summary {
    /// The summary of `all` openings of the pool of `plan`.
    pub fn of(plan: &RecoveryPlan, all: &[Reopened]) -> Self {
        let spread = |ns: fn(&Reopened) -> u64| {
            Spread::of(&all.iter().map(|reopened| ns(reopened) as f64).collect::<Vec<_>>())
        };
        Self {
            index: plan.ours.name,
            records: plan.records,
            cycles: all.len() as u64,
            open_ns: spread(|reopened| reopened.open_ns),
            first_get_ns: spread(|reopened| reopened.total_ns),
            kills_in_flight: all.iter().filter(|reopened| reopened.in_flight > 0).count() as u64,
            seed: plan.seed,
        }
    }
}

/// The table of the summaries.
pub fn figures(rows: &[Summary]) -> Figures {
    let spread = |Spread { median, min, max }: Spread| {
        [median, min, max].map(|ns| duration(ns as u64)).join(" / ")
    };
    let line = |row: &Summary| {
        let (records, cycles) = (count(row.records), row.cycles.to_string());
        let index = row.index.to_owned();
        let (open, first) = (spread(row.open_ns), spread(row.first_get_ns));
        vec![index, records, cycles, open, first, row.kills_in_flight.to_string()]
    };
    let in_us = |Spread { median, min, max }: Spread| Spread {
        median: median / 1e3,
        min: min / 1e3,
        max: max / 1e3,
    };
    let bar = |row: &Summary| {
        (format!("{}, {} records", row.index, count(row.records)), in_us(row.first_get_ns))
    };
    let columns = ["index", "records", "kills", "open", "to the first get", "cut short"];
    let about = "from opening a pool after kill -9, median / min / max; cut short: kills that found operations in progress";
    Figures::new("Recovery", about, &columns, rows, line).with_plot(
        "To the first get",
        "µs",
        rows.iter().map(bar),
    )
}

/// A child process, killed when it is dropped.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        // Errors are ignored: the process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the cycles of `plan`.
pub fn measure(plan: &RecoveryPlan, progress: &ProgressBar) -> Result<Vec<Reopened>, Error> {
    let folder = tempfile::tempdir_in(&plan.build.pool_dir)
        .map_err(|source| Error::File { path: plan.build.pool_dir.clone(), source })?;
    let pool = folder.path().join("recovery.pando");
    let mut rng = Rng::new(plan.seed);
    progress.set_length(plan.cycles + 1);
    progress.set_message("fill");
    let (child, line) = start(plan, &pool, "fill", 0)?;
    if line != "filled" {
        return Err(said(&line));
    }
    kill(child, &mut rng)?;
    progress.inc(1);
    progress.set_message("kill and open");
    (1..=plan.cycles)
        .map(|cycle| {
            let (child, line) = start(plan, &pool, "open", cycle)?;
            let reopened = parse(&line).ok_or_else(|| said(&line))?;
            kill(child, &mut rng)?;
            progress.inc(1);
            Ok(reopened)
        })
        .collect()
}

fn said(line: &str) -> Error {
    Error::Child { what: format!("said {line:?} and ended; its own message is above") }
}

fn failed(source: std::io::Error) -> Error {
    Error::Child { what: format!("could not be run: {source}") }
}

/// Starts a child and waits for its line.
fn start(
    plan: &RecoveryPlan,
    pool: &Path,
    part: &str,
    cycle: u64,
) -> Result<(Child, String), Error> {
    let mut child = Command::new(&plan.program.executable)
        .args(&plan.program.prefix)
        .args(["recovery-child", part, "--index", plan.ours.name])
        .args(["--records", &plan.records.to_string()])
        .args(["--seed", &plan.seed.wrapping_add(cycle).to_string()])
        .arg("--file")
        .arg(pool)
        .stdout(Stdio::piped())
        .spawn()
        .map(Child)
        .map_err(failed)?;
    let mut line = String::new();
    if let Some(out) = child.0.stdout.as_mut() {
        BufReader::new(out).read_line(&mut line).map_err(failed)?;
    }
    Ok((child, line.trim_end().to_owned()))
}

/// Kills the child with SIGKILL after it has written for 5 to 50 milliseconds.
fn kill(mut child: Child, rng: &mut Rng) -> Result<(), Error> {
    std::thread::sleep(Duration::from_micros(5_000 + rng.below(45_000)));
    if let Some(status) = child.0.try_wait().map_err(failed)? {
        return Err(Error::Child { what: format!("ended by itself: {status}") });
    }
    child.0.kill().map_err(failed)?;
    child.0.wait().map(|_| ()).map_err(failed)
}

fn parse(line: &str) -> Option<Reopened> {
    let mut figures = line.strip_prefix("opened ")?.split(' ').map(|figure| figure.parse().ok());
    let mut next = || figures.next().flatten();
    Some(Reopened { open_ns: next()?, total_ns: next()?, in_flight: next()? })
}

/// The options with which the child builds a pool of `records` records.
pub fn build_options(records: u64) -> BuildOptions {
    let churned = WRITERS * CHURN_RECORDS;
    BuildOptions::default().for_records(records.saturating_add(churned), Shape::EIGHT)
}

/// The child that fills a new pool and then writes until it is killed.
pub fn fill_and_write(
    ours: &Ours,
    pool: &Path,
    records: u64,
    seed: u64,
    options: &BuildOptions,
) -> Result<(), BuildError> {
    machine::die_with_parent();
    let index = ours.create(pool, options)?;
    for number in 0..records {
        let key = key_of(number);
        index.insert(&key.to_be_bytes(), &value_of(key, 0).to_le_bytes())?;
    }
    say("filled")?;
    write_for_ever(&*index, records, seed)
}

/// The child that opens the pool, prints the times, and then writes until it is killed.
pub fn open_and_write(ours: &Ours, pool: &Path, records: u64, seed: u64) -> Result<(), BuildError> {
    machine::die_with_parent();
    let mut rng = Rng::new(seed);
    let first_key = key_of(rng.below(records));
    let start = Instant::now();
    let ours::Reopened { index, was_clean, recovered } = ours.open(pool)?;
    let open = start.elapsed();
    let first_is_right = is_right(&*index, first_key)?;
    let total = start.elapsed();
    if was_clean {
        return Err(
            "the pool was closed before the kill, so that there was nothing to recover".into()
        );
    }
    let lost = |key| Err(format!("key {key:#018x} is lost or has a wrong value").into());
    if !first_is_right {
        return lost(first_key);
    }
    for _ in 0..CHECKED_GETS {
        let key = key_of(rng.below(records));
        if !is_right(&*index, key)? {
            return lost(key);
        }
    }
    let in_flight = recovered.rolled_forward + recovered.rolled_back;
    say(&format!("opened {} {} {in_flight}", open.as_nanos(), total.as_nanos()))?;
    write_for_ever(&*index, records, seed)
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn is_right(index: &dyn RangeIndex, key: u64) -> Result<bool, pando_index::Error> {
    let mut is_own = false;
    index.read(&key.to_be_bytes(), &mut |bytes| {
        is_own = bytes.try_into().map(u64::from_le_bytes).is_ok_and(|value| belongs(key, value));
    })?;
    Ok(is_own)
}

/// Upserts records of the fill, and inserts and deletes other records, with several threads, until
/// the process is killed.
fn write_for_ever(index: &dyn RangeIndex, records: u64, seed: u64) -> Result<(), BuildError> {
    let write = |writer: u64| -> Result<(), pando_index::Error> {
        let mut rng = Rng::new(seed ^ writer << 32);
        loop {
            let version = rng.bits();
            let key = key_of(rng.below(records));
            index.upsert(&key.to_be_bytes(), &value_of(key, version).to_le_bytes())?;
            let key = key_of(records + writer * CHURN_RECORDS + rng.below(CHURN_RECORDS));
            if version & 1 == 0 {
                index.upsert(&key.to_be_bytes(), &value_of(key, version).to_le_bytes())?;
            } else {
                index.remove(&key.to_be_bytes())?;
            }
        }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        for writer in writers {
            writer.join().map_err(|_| "a writer panicked")??;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_line_is_understood() {
        let reopened = parse("opened 100 250 1").unwrap();
        assert_eq!((reopened.open_ns, reopened.total_ns, reopened.in_flight), (100, 250, 1));
        assert!(
            parse("opened 100 250").is_none() && parse("filled").is_none() && parse("").is_none()
        );
    }
}
