//! `load`: records from a file or from standard input, written by several threads.
//!
//! One thread reads and parses the lines, and distributes records by their key: the lines of one
//! key go to one writer, in order. So the last of several lines with the same key counts.
//!
//! A writer of a transactional map commits the records of a batch at once: a commit costs much more
//! than a record of it. If a batch is too long for one commit, it is committed in halves, as far as
//! that takes. If it cannot be committed for another reason, its records are written one by one: in
//! a full pool some of them may fit, and the error names the line of the first that does not.
//!
//! With `--sorted` there is one writer. It writes each batch as a run of records, for which an
//! index may build whole leaves.

mod input;

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::HumanCount;
use pando::{Map, Pool, Transaction, Upserted};

use crate::arguments::PoolArguments;
use crate::arguments::records::{LoadArguments, OnError};
use crate::commits::in_parts;
use crate::failure::Failure;
use crate::format::Record;
use crate::format::reader::Records;
use crate::format::record::LineError;
use crate::interrupt;
use crate::output::{Output, rate_text, time_text};
use crate::pool_access::{open_or_create_map, report_new_map};
use crate::progress::Progress;
use crate::quantity::counted;
use crate::workers;
use input::{Input, columns, format_of, reading_failed};

/// A batch has so many records, or a little more than so many bytes.
const BATCH_RECORDS: usize = 128;
const BATCH_BYTES: usize = 1 << 20;
/// Most bytes of keys, new values and replaced values of a commit, unless it has one record. A
/// record of the log takes four times as many.
const COMMIT_BYTES: usize = 4 << 20;
const BATCHES_IN_FLIGHT: usize = 4;
const REPORTED_LINES: u64 = 20;

/// Loads the file.
pub fn run(pool: &PoolArguments, arguments: &LoadArguments) -> Result<(), Failure> {
    let input = Input::open(arguments)?;
    let format = format_of(arguments)?;
    let columns = columns(arguments, format)?;
    let Input { reader, name, total_bytes, position } = input;
    // Reads the header of a CSV, before anything is created.
    let records = Records::new(reader, format, &columns, arguments.max_line_bytes);
    let records = records.map_err(reading_failed(&name))?;
    let records = records.map_err(|error| Failure::Input(format!("{name}:1: {error}")))?;
    let map_name = arguments.map.checked_name()?;
    if arguments.sync {
        pool.refuse_sync_of_new(map_name, &arguments.create)?;
    }
    let arguments_of_pool = pool;
    let pool = pool.open_or_create(&arguments.create)?;
    if arguments.sync {
        let create = Some(&arguments.create);
        arguments_of_pool.refuse_sync_without_log(&pool, map_name, create)?;
    }
    let (map, is_new) = open_or_create_map(&pool, map_name, &arguments.create)?;
    let progress = Arc::new(Progress::new("loaded", total_bytes));
    let counts = Arc::new(Counts::default());
    interrupt::before_the_end(last_words(&progress, &counts, arguments))?;
    let transactions = map.is_transactional().then_some(&pool);
    let load = Load::new(&map, transactions, arguments, name, &progress, &counts);
    let outcome = load.run(records, &position);
    let elapsed = progress.elapsed();
    let [inserted, updated, skipped] = [&counts.inserted, &counts.updated, &counts.skipped]
        .map(|count| count.load(Ordering::Relaxed));
    let all = counts.loaded();
    if skipped > REPORTED_LINES {
        progress.note(&format!("pando: and {} more", counted(skipped - REPORTED_LINES, "line")));
    }
    drop(progress);
    drop(map);
    if is_new && !pool.is_shared() && outcome.is_err() && all == 0 {
        // A load that failed before its first record leaves no map behind.
        pool.drop_map(map_name)?;
    } else if is_new {
        report_new_map(map_name, &arguments.create);
    }
    let synced = if arguments.sync { pool.sync().map(drop) } else { Ok(()) };
    let closed = synced.and(pool.close());
    let mut output = Output::new();
    // A run of sorted records is written at once, without a look at each.
    let kinds = match arguments.sorted {
        true => String::new(),
        false => format!(" ({} new, {} replaced)", HumanCount(inserted), HumanCount(updated)),
    };
    output.line(format_args!(
        "loaded {}{kinds} in {}, {} records/s; {} skipped",
        counted(all, "record"),
        time_text(elapsed),
        rate_text(all, elapsed),
        counted(skipped, "line"),
    ))?;
    output.flush()?;
    outcome.and(closed.map_err(Failure::Pool))
}

/// A record and the line it stands in.
struct Line {
    number: u64,
    record: Record,
}

/// Records for one writer, to be sent together.
struct Batch {
    lines: Vec<Line>,
    size_bytes: usize,
    writer: SyncSender<Vec<Line>>,
}

impl Batch {
    /// Sends what is there; false if the writer has ended.
    fn send(&mut self) -> bool {
        self.size_bytes = 0;
        self.lines.is_empty() || self.writer.send(std::mem::take(&mut self.lines)).is_ok()
    }
}

/// The part of a batch that a transaction takes.
#[derive(Default)]
struct Taken {
    /// Lines, with the refused ones.
    lines: usize,
    inserted: u64,
    updated: u64,
    /// Lines that cannot be loaded, and why.
    refused: Vec<(u64, String)>,
}

/// The reason why a record cannot be loaded; `None` for an error that ends the load.
fn refusal(error: &pando::Error) -> Option<String> {
    use pando::Error::{KeyExists, KeyTooLong, KeyTooShort, ValueTooLong, ValueTooShort};
    match error {
        KeyExists => {
            Some("the key is already there; leave out --insert to replace its value".to_owned())
        }
        KeyTooLong { .. } | KeyTooShort { .. } | ValueTooLong { .. } | ValueTooShort { .. } => {
            Some(error.to_string())
        }
        _ => None,
    }
}

/// The records and lines of a load. Relaxed operations are enough: the exact counts are read when
/// all writers have ended, and the last words after a signal may miss the newest records.
#[derive(Default)]
struct Counts {
    inserted: AtomicU64,
    updated: AtomicU64,
    /// Records that were written as a run: some are new.
    written: AtomicU64,
    skipped: AtomicU64,
}

impl Counts {
    fn loaded(&self) -> u64 {
        [&self.inserted, &self.updated, &self.written]
            .map(|count| count.load(Ordering::Relaxed))
            .iter()
            .sum()
    }
}

/// For a load that a signal ends: says how far it came, and how to complete it. After the load it
/// says nothing.
fn last_words(
    progress: &Arc<Progress>,
    counts: &Arc<Counts>,
    arguments: &LoadArguments,
) -> impl FnOnce() -> Option<String> + Send + 'static {
    let (progress, counts) = (Arc::downgrade(progress), counts.clone());
    let skip = if arguments.insert { " with --on-error skip" } else { "" };
    move || {
        let elapsed = progress.upgrade()?.elapsed();
        let loaded = counted(counts.loaded(), "record");
        let elapsed = time_text(elapsed);
        Some(format!(
            " after {elapsed}: loaded {loaded}; load the input again{skip} to complete it"
        ))
    }
}

/// The state that reader and writers of one load share.
struct Load<'load> {
    map: &'load Map,
    /// The pool, if the map is transactional.
    transactions: Option<&'load Pool>,
    arguments: &'load LoadArguments,
    name: String,
    progress: &'load Progress,
    counts: &'load Counts,
    /// The first line that ends the load; `u64::MAX` if there is none. The lines before it are
    /// loaded; some behind it may be loaded too.
    stop_line: AtomicU64,
    /// The failure of that line.
    failure: Mutex<Option<(u64, Failure)>>,
}

impl<'load> Load<'load> {
    fn new(
        map: &'load Map,
        transactions: Option<&'load Pool>,
        arguments: &'load LoadArguments,
        name: String,
        progress: &'load Progress,
        counts: &'load Counts,
    ) -> Self {
        Self {
            map,
            transactions,
            arguments,
            name,
            progress,
            counts,
            stop_line: AtomicU64::new(u64::MAX),
            failure: Mutex::new(None),
        }
    }

    fn run(&self, records: Records<impl Read>, position: &Cell<u64>) -> Result<(), Failure> {
        // Runs of one thread stay in order.
        let writers = if self.arguments.sorted { 1 } else { self.arguments.writers };
        std::thread::scope(|scope| {
            let mut batches = Vec::new();
            for _ in 0..writers {
                let (writer, received) = sync_channel(BATCHES_IN_FLIGHT);
                workers::start(scope, move || self.write(&received))?;
                batches.push(Batch { lines: Vec::new(), size_bytes: 0, writer });
            }
            self.read(records, position, &mut batches)
        })?;
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(Ok(()), |(_, failure)| Err(failure))
    }

    fn read(
        &self,
        mut records: Records<impl Read>,
        position: &Cell<u64>,
        batches: &mut [Batch],
    ) -> Result<(), Failure> {
        let hasher = RandomState::new();
        let mut former = None;
        while self.stop_line.load(Ordering::Relaxed) == u64::MAX {
            if records.may_wait() && !batches.iter_mut().all(Batch::send) {
                break;
            }
            let read = records.next_record().map_err(reading_failed(&self.name))?;
            let number = records.number();
            let record = match read {
                None => break,
                Some(Ok(None)) => continue,
                Some(Ok(Some(record))) => record,
                // Records that may be the rest of the file: to skip them would lose them silently.
                Some(Err(LineError::OpenQuote)) => {
                    let message = format!("{}:{number}: {}", self.name, LineError::OpenQuote);
                    self.stop(number, Failure::Input(message));
                    break;
                }
                Some(Err(error)) => {
                    self.refuse(number, &error.to_string());
                    continue;
                }
            };
            if self.arguments.sorted {
                if former.as_ref().is_some_and(|former| *former >= record.0) {
                    self.refuse(
                        number,
                        "the key is not above the one before it; leave out --sorted, or sort the \
                         file by its keys, bytewise (LC_ALL=C sort)",
                    );
                    continue;
                }
                former = Some(record.0.clone());
            }
            let writer = hasher.hash_one(&record.0) % batches.len() as u64;
            let batch = &mut batches[writer as usize];
            batch.size_bytes += record.0.len() + record.1.len();
            batch.lines.push(Line { number, record });
            let is_full = batch.lines.len() >= BATCH_RECORDS || batch.size_bytes >= BATCH_BYTES;
            if is_full && !batch.send() {
                break;
            }
            self.progress.update(position.get(), self.counts.loaded());
        }
        batches.iter_mut().for_each(|batch| {
            batch.send();
        });
        Ok(())
    }

    fn write(&self, received: &Receiver<Vec<Line>>) {
        for lines in received {
            let goes_on = match self.transactions {
                Some(pool) => self.commit(pool, &lines),
                None if self.arguments.sorted => self.write_run(&lines),
                None => self.write_each(&lines),
            };
            if !goes_on {
                break;
            }
        }
    }

    /// Writes records whose keys ascend; false if the load ends.
    fn write_run(&self, lines: &[Line]) -> bool {
        let records: Vec<(&[u8], &[u8])> = lines
            .iter()
            .take_while(|line| !self.is_ended_before(line.number))
            .map(|Line { record: (key, value), .. }| (key.as_slice(), value.as_slice()))
            .collect();
        // One by one, the error names its line, and what was written is written again.
        if self.map.upsert_many(&records).is_err() {
            return self.write_each(lines);
        }
        self.counts.written.fetch_add(records.len() as u64, Ordering::Relaxed);
        records.len() == lines.len()
    }

    /// Writes records one by one; false if the load ends.
    fn write_each(&self, lines: &[Line]) -> bool {
        for Line { number, record: (key, value) } in lines {
            if self.is_ended_before(*number) {
                return false;
            }
            let outcome = if self.arguments.insert {
                self.map.insert(key, value).map(|()| Upserted::Inserted)
            } else {
                self.map.upsert(key, value)
            };
            match outcome {
                Ok(Upserted::Inserted) => self.count(1, 0),
                Ok(Upserted::Updated) => self.count(0, 1),
                Err(error) => match refusal(&error) {
                    Some(reason) => self.refuse(*number, &reason),
                    None => {
                        let place = format!("{}:{number}", self.name);
                        self.stop(*number, Failure::At { place, source: error });
                        return false;
                    }
                },
            }
        }
        true
    }

    /// Commits the records of a batch, in as few commits as take them; false if the load ends.
    fn commit(&self, pool: &Pool, lines: &[Line]) -> bool {
        let mut is_ended = false;
        let committed = in_parts(lines, |lines| {
            is_ended = lines.first().is_some_and(|first| self.is_ended_before(first.number));
            if is_ended {
                return Ok(0);
            }
            let taken = pool.transaction(|transaction| self.take(transaction, lines))?;
            self.count(taken.inserted, taken.updated);
            taken.refused.iter().for_each(|(number, reason)| self.refuse(*number, reason));
            is_ended = taken.lines == 0;
            Ok(taken.lines)
        });
        match committed {
            Ok(()) => !is_ended,
            Err((rest, _)) => self.write_each(rest),
        }
    }

    /// Puts the first of the records into a transaction: as many as one commit takes, and none
    /// behind a line that ends the load.
    fn take(
        &self,
        transaction: &mut Transaction<'_>,
        lines: &[Line],
    ) -> Result<Taken, pando::Error> {
        let (mut taken, mut bytes) = (Taken::default(), 0);
        for Line { number, record: (key, value) } in lines {
            let former = transaction.get(self.map, key)?;
            bytes += key.len() + value.len() + former.as_ref().map_or(0, Vec::len);
            let is_full = bytes > COMMIT_BYTES && taken.lines > 0;
            if is_full || self.is_ended_before(*number) {
                break;
            }
            taken.lines += 1;
            let put = match former {
                Some(_) if self.arguments.insert => Err(pando::Error::KeyExists),
                _ => transaction.put(self.map, key, value),
            };
            match put {
                Ok(()) if former.is_some() => taken.updated += 1,
                Ok(()) => taken.inserted += 1,
                Err(error) => {
                    taken.refused.push((*number, refusal(&error).ok_or(error)?));
                    if self.arguments.on_error == OnError::Stop {
                        break;
                    }
                }
            }
        }
        Ok(taken)
    }

    fn is_ended_before(&self, number: u64) -> bool {
        number > self.stop_line.load(Ordering::Relaxed)
    }

    fn count(&self, inserted: u64, updated: u64) {
        self.counts.inserted.fetch_add(inserted, Ordering::Relaxed);
        self.counts.updated.fetch_add(updated, Ordering::Relaxed);
    }

    /// Handles a line that cannot be loaded: stops or continues, as the option says.
    fn refuse(&self, number: u64, reason: &str) {
        let message = format!("{}:{number}: {reason}", self.name);
        if self.arguments.on_error == OnError::Stop {
            self.stop(number, Failure::Input(message + " (--on-error skip goes on)"));
        } else if self.counts.skipped.fetch_add(1, Ordering::Relaxed) < REPORTED_LINES {
            self.progress.note(&format!("pando: skipped {message}"));
        }
    }

    fn stop(&self, number: u64, failure: Failure) {
        let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|(first, _)| number < *first) {
            *first = Some((number, failure));
        }
        self.stop_line.fetch_min(number, Ordering::Relaxed);
    }
}
