//! `tour`: real text, several writers, a `kill -9` midway, and a check of the result.
//!
//! The tour writes its data set into a file and starts the command again as `tour-writer`
//! ([`writer`]), which inserts the records and acknowledges each over a pipe after the insert has
//! returned. [`child`] counts the acknowledgements and kills that process midway, at an
//! unpredictable instant. Then the pool is compared with the data set ([`verify`]). Every
//! acknowledged record is present with its exact value, and every present record is one whole
//! record of the data set. For each writer at most one present record was not acknowledged.

mod child;
mod data_set;
mod debian;
mod place;
#[cfg(test)]
mod tests;
mod text_file;
mod verify;
mod words;
pub mod writer;

use std::time::{Duration, Instant};

use indicatif::{BinaryBytes, HumanCount};
use pando::{Map, Order, Pool};

use crate::arguments::{PoolArguments, TourArguments};
use crate::commands::check::problem_text;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{Output, rate_text, time_text};
use crate::random;
use crate::workers;
use child::{Killed, Running};
use data_set::{DataSet, MAP};
use place::Place;
use verify::Left;

/// Fewer records are loaded too fast to be killed midway.
const MIN_RECORDS: usize = 10_000;
/// How often a child that ended before the kill is replaced by a new one.
const KILL_ATTEMPTS: u32 = 5;

/// The data of a tour.
struct Tour<'tour> {
    pool: &'tour PoolArguments,
    writers: u16,
    seed: u64,
    place: Place,
    running: Running,
    data: DataSet,
    output: Output,
}

/// Does all steps.
pub fn run(pool: &PoolArguments, arguments: &TourArguments) -> Result<(), Failure> {
    if let Some(store) = &pool.store {
        return Err(Failure::Input(format!(
            "the tour is of a pool; leave out --store {}",
            store.display()
        )));
    }
    let mut output = Output::new();
    let (data, told) = match &arguments.file {
        Some(file) => text_file::collect(file)?,
        None => debian::collect(std::path::Path::new("/"), arguments.records)?,
    };
    if data.len() < MIN_RECORDS {
        return Err(Failure::Input(format!(
            "the data set has {} records; with fewer than {MIN_RECORDS} the load is over before \
             it can be killed midway: choose a larger one",
            data.len()
        )));
    }
    step(&mut output, "data set", format_args!("{}", data_text(&data)))?;
    for line in told {
        step(&mut output, "", line)?;
    }
    let (path, log) = (pool.path.as_deref(), pool.log.as_deref());
    let place = Place::choose(path, log, data.size_bytes(), arguments.keep)?;
    let running = Running::default();
    interrupt::before_the_end(place.last_words(running.clone()))?;
    data.write_to(&place.data_path())?;
    let seed = arguments.seed.unwrap_or_else(random::unpredictable);
    let writers = arguments.writers;
    let outcome = Tour { pool, writers, seed, place, running: running.clone(), data, output }.go();
    running.wait_for_signal();
    outcome
}

impl Tour<'_> {
    fn go(&mut self) -> Result<(), Failure> {
        let begin = Instant::now();
        let killed = self.load_and_kill()?;
        let (pool, map, recovery) = self.open_after_the_kill(&killed)?;
        let left = self.verify_what_is_left(&map, &killed)?;
        self.finish_the_load(&map, &left)?;
        self.scan_both_ways(&map)?;
        self.delete_half(&pool, &map)?;
        drop(map);
        self.check(&pool)?;
        self.close_and_open(pool)?;
        self.place.remove()?;
        let summary = format!(
            "{} records loaded, killed at {} acknowledged, none of them lost, nothing half \
             there, no leak; open again after {} ({} in all)",
            HumanCount(self.data.len() as u64),
            HumanCount(killed.acknowledged_count),
            time_text(recovery),
            time_text(begin.elapsed()),
        );
        self.tell("summary", summary)?;
        for path in self.place.kept_paths() {
            step(&mut self.output, "kept", path.display())?;
        }
        Ok(())
    }

    fn tell(&mut self, name: &str, text: impl std::fmt::Display) -> Result<(), Failure> {
        step(&mut self.output, name, text)
    }

    /// Creates the pool and loads it in a child process, which is killed midway.
    fn load_and_kill(&mut self) -> Result<Killed, Failure> {
        for attempt in 1..=KILL_ATTEMPTS {
            let create = || Ok(Pool::create(self.place.pool_path(), &self.pool.options())?);
            let pool = self.place.create(create)?;
            drop(pool.map(MAP)?);
            let stat = pool.stat()?;
            pool.close()?;
            if attempt == 1 {
                self.tell("pool", self.place.pool_path().display().to_string())?;
                self.tell("", format!("domain {}, medium {}", stat.domain, stat.medium))?;
                self.tell("", stat.guarantee)?;
                let order = format!("in the order of seed {}", self.seed);
                self.tell("load", format!("by {} writers in a child, {order}", self.writers))?;
            }
            if let Some(killed) = self.child().load_and_kill(self.data.len())? {
                let count = HumanCount(killed.acknowledged_count);
                let (elapsed, pid) = (time_text(killed.elapsed), killed.process_id);
                let text = format!(
                    "SIGKILL to process {pid} after {elapsed}; {count} records acknowledged"
                );
                self.tell("kill", text)?;
                return Ok(killed);
            }
            self.tell("kill", "the child was done before the kill; once more from the start")?;
            self.place.remove_pool()?;
        }
        Err(Failure::Violation(format!(
            "the child could be killed midway; it was done before in {KILL_ATTEMPTS} attempts \
             (a larger data set, or fewer writers, takes longer)"
        )))
    }

    fn child(&self) -> child::Loader<'_> {
        child::Loader {
            pool: self.pool,
            pool_path: self.place.pool_path(),
            data_path: self.place.data_path(),
            writers: self.writers,
            seed: self.seed,
            running: &self.running,
        }
    }

    /// Opens the pool and times it up to the first successful get.
    fn open_after_the_kill(&mut self, killed: &Killed) -> Result<(Pool, Map, Duration), Failure> {
        let first = killed.is_acknowledged.iter().position(|&acknowledged| acknowledged);
        let first = first.ok_or_else(|| {
            Failure::Violation("a record was acknowledged before the kill".to_owned())
        })?;
        let (key, value) = self.data.record(first);
        let begin = Instant::now();
        let pool = Pool::open(self.place.pool_path(), &self.pool.options())?;
        let map = pool.open_map(MAP)?;
        let found = map.read(key, |found| found == value)?;
        let recovery = begin.elapsed();
        if found != Some(true) {
            return Err(verify::violated_value(key, value, map.get(key)?.as_deref()));
        }
        let recovery_stat = pool.stat()?.recovery;
        if recovery_stat.was_clean {
            return Err(Failure::Violation(
                "the pool tells that it was not closed; it says that it was".to_owned(),
            ));
        }
        let text = format!(
            "{:.1} µs from the beginning of open to the first successful get, {:.1} µs of them \
             to open the pool and settle what was in flight ({} operations completed, {} undone)",
            recovery.as_secs_f64() * 1e6,
            recovery_stat.duration_ns as f64 / 1e3,
            recovery_stat.rolled_forward,
            recovery_stat.rolled_back
        );
        self.tell("open", text)?;
        Ok((pool, map, recovery))
    }

    fn verify_what_is_left(&mut self, map: &Map, killed: &Killed) -> Result<Left, Failure> {
        verify::acknowledged_are_there(map, &self.data, &killed.is_acknowledged)?;
        let count = HumanCount(killed.acknowledged_count);
        self.tell(
            "verified",
            format!("all {count} acknowledged records are there, value by value"),
        )?;
        let left = verify::whole_records_only(map, &self.data)?;
        let unacknowledged = left.present_count - killed.acknowledged_count;
        if unacknowledged > u64::from(self.writers) {
            return Err(Failure::Violation(format!(
                "at most one record a writer is there without an acknowledgement; found are \
                 {unacknowledged}, with {} writers",
                self.writers
            )));
        }
        let text = format!(
            "all {} records there are whole records of the data set, in strict order; \
             {unacknowledged} of them were written and not yet acknowledged",
            HumanCount(left.present_count)
        );
        self.tell("verified", text)?;
        Ok(left)
    }

    /// Loads the records that the child did not load.
    fn finish_the_load(&mut self, map: &Map, left: &Left) -> Result<(), Failure> {
        let begin = Instant::now();
        let missing = &left.missing;
        workers::each(missing.len(), self.writers, |number| {
            let (key, value) = self.data.record(missing[number]);
            Ok(map.insert(key, value)?)
        })?;
        let (count, elapsed) = (missing.len() as u64, begin.elapsed());
        verify::length_is(map, self.data.len() as u64)?;
        let text = format!(
            "the other {} records in {}, {} records/s",
            HumanCount(count),
            time_text(elapsed),
            rate_text(count, elapsed)
        );
        self.tell("finish", text)
    }

    fn scan_both_ways(&mut self, map: &Map) -> Result<(), Failure> {
        for (order, name) in [(Order::Ascending, "forwards"), (Order::Descending, "backwards")] {
            let begin = Instant::now();
            verify::scan_is(map, &self.data, order, |_| true)?;
            let (count, elapsed) = (self.data.len() as u64, begin.elapsed());
            let text = format!(
                "{name}: all {} records, in strict order, {} records/s",
                HumanCount(count),
                rate_text(count, elapsed)
            );
            self.tell("scan", text)?;
        }
        Ok(())
    }

    /// Deletes every second record and verifies that exactly the others remain.
    fn delete_half(&mut self, pool: &Pool, map: &Map) -> Result<(), Failure> {
        let used_before_bytes = pool.stat()?.allocator.used_bytes;
        let begin = Instant::now();
        let half = self.data.len() / 2;
        workers::each(half, self.writers, |number| {
            let (key, _) = self.data.record(2 * number + 1);
            if map.remove(key)? { Ok(()) } else { Err(verify::violated_presence(key)) }
        })?;
        let (count, elapsed) = (half as u64, begin.elapsed());
        let is_kept = |index: usize| index.is_multiple_of(2);
        verify::scan_is(map, &self.data, Order::Ascending, is_kept)?;
        verify::scan_is(map, &self.data, Order::Descending, is_kept)?;
        verify::length_is(map, (self.data.len() - half) as u64)?;
        let used_after_bytes = pool.stat()?.allocator.used_bytes;
        let text = format!(
            "every second record, {} in {}; exactly the others are left; {} in use before, {} after",
            HumanCount(count),
            time_text(elapsed),
            BinaryBytes(used_before_bytes),
            BinaryBytes(used_after_bytes)
        );
        self.tell("delete", text)
    }

    fn check(&mut self, pool: &Pool) -> Result<(), Failure> {
        let report = pool.check()?;
        if let (Some(class), Some(first)) = (report.gravest(), report.problems.first()) {
            self.tell("check", problem_text(first))?;
            return Err(Failure::Problems(class));
        }
        let text = format!(
            "{} blocks allocated, {} reached: no leak, nothing out of order",
            HumanCount(report.used_blocks),
            HumanCount(report.reached_blocks)
        );
        self.tell("check", text)
    }

    /// Closes the pool cleanly and opens it once more.
    fn close_and_open(&mut self, pool: Pool) -> Result<(), Failure> {
        pool.close()?;
        let pool = Pool::open(self.place.pool_path(), &self.pool.options())?;
        let map = pool.open_map(MAP)?;
        verify::length_is(&map, self.data.len().div_ceil(2) as u64)?;
        drop(map);
        pool.close()?;
        self.tell("reopen", "closed and opened again: as many records as before")
    }
}

fn step(output: &mut Output, name: &str, text: impl std::fmt::Display) -> Result<(), Failure> {
    output.line_now(format_args!("{name:<10}{text}"))
}

fn data_text(data: &DataSet) -> String {
    let (count, size) = (HumanCount(data.len() as u64), BinaryBytes(data.size_bytes()));
    format!("{count} records, {size} of keys and values")
}
