//! `load`: records from a file or from standard input, written by several threads.
//!
//! One thread reads and parses the lines, and distributes records by their key: the lines of one
//! key go to one writer, in order. So the last of several lines with the same key counts.
//!
//! A writer of a transactional map commits the records of a batch at once: a commit costs much more
//! than a record of it. If a batch cannot be committed, its records are written one by one: in a
//! full pool some of them may fit, and the error names the line of the first that does not.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use indicatif::HumanCount;
use pando::{Map, Pool, Transaction, Upserted};

use crate::arguments::{LoadArguments, OnError, PoolArguments};
use crate::failure::Failure;
use crate::format::lines::Lines;
use crate::format::{Format, Record};
use crate::output::{Output, rate_text, time_text};
use crate::pool_access::open_or_create_map;
use crate::progress::Progress;
use crate::quantity::counted;
use crate::workers;

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
    let Input { reader, name, total_bytes } = Input::open(&arguments.file)?;
    let format = format_of(arguments)?;
    let map_name = arguments.map.checked_name()?;
    let pool = pool.open_or_create(&arguments.create)?;
    let (map, is_new) = open_or_create_map(&pool, map_name, &arguments.create)?;
    let mut maps = pool.maps()?.into_iter();
    let is_transactional = maps.any(|map| map.name == map_name && map.is_transactional);
    let progress = Progress::new("loaded", total_bytes);
    let transactions = is_transactional.then_some(&pool);
    let load = Load::new(&map, transactions, arguments, name, &progress);
    let outcome = load.run(Lines::new(reader, arguments.max_line_bytes), format);
    let elapsed = progress.elapsed();
    let (inserted, updated) = (load.inserted.into_inner(), load.updated.into_inner());
    let skipped = load.skipped.into_inner();
    if skipped > REPORTED_LINES {
        progress.note(&format!("pando: and {} more", counted(skipped - REPORTED_LINES, "line")));
    }
    drop(progress);
    drop(map);
    if is_new && outcome.is_err() && inserted + updated == 0 {
        // A load that failed before its first record leaves no map behind.
        pool.drop_map(map_name)?;
    }
    if arguments.sync {
        pool.sync()?;
    }
    pool.close()?;
    let mut output = Output::new();
    output.line(format_args!(
        "loaded {} ({} new, {} replaced) in {}, {} records/s; {} skipped",
        counted(inserted + updated, "record"),
        HumanCount(inserted),
        HumanCount(updated),
        time_text(elapsed),
        rate_text(inserted + updated, elapsed),
        counted(skipped, "line"),
    ))?;
    output.flush()?;
    outcome
}

/// The input of a load.
struct Input {
    reader: Box<dyn Read>,
    /// Its name in messages.
    name: String,
    /// Its size, if that is known.
    total_bytes: Option<u64>,
}

impl Input {
    fn open(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            let reader = Box::new(std::io::stdin().lock());
            return Ok(Self { reader, name: "standard input".to_owned(), total_bytes: None });
        }
        let file = File::open(path).map_err(Failure::file("open", path))?;
        let metadata = file.metadata().map_err(Failure::file("look at", path))?;
        if metadata.is_dir() {
            return Err(Failure::Input(format!("{} is a folder; name a file", path.display())));
        }
        let total_bytes = metadata.is_file().then_some(metadata.len());
        Ok(Self { reader: Box::new(file), name: path.display().to_string(), total_bytes })
    }
}

fn format_of(arguments: &LoadArguments) -> Result<Format, Failure> {
    let is_standard_input = arguments.file == Path::new("-");
    arguments
        .format
        .or(is_standard_input.then_some(Format::Tsv))
        .or_else(|| Format::of_extension(&arguments.file))
        .ok_or_else(|| {
            let file = arguments.file.display();
            Failure::Input(if arguments.file.extension().is_some_and(|end| end == "csv") {
                format!(
                    "CSV is not read; turn {file} into TSV or JSON lines (or, if it is one of them, \
                     name the format by --format)"
                )
            } else {
                format!(
                    "the name of {file} does not tell its format; known are .tsv, .json, .jsonl \
                     and .ndjson: name the format by --format"
                )
            })
        })
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

/// The state that reader and writers of one load share. The counters are read when all have ended,
/// so relaxed operations are enough.
struct Load<'load> {
    map: &'load Map,
    /// The pool, if the map is transactional.
    transactions: Option<&'load Pool>,
    arguments: &'load LoadArguments,
    name: String,
    progress: &'load Progress,
    inserted: AtomicU64,
    updated: AtomicU64,
    skipped: AtomicU64,
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
    ) -> Self {
        Self {
            map,
            transactions,
            arguments,
            name,
            progress,
            inserted: AtomicU64::new(0),
            updated: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            stop_line: AtomicU64::new(u64::MAX),
            failure: Mutex::new(None),
        }
    }

    fn run(&self, lines: Lines<impl Read>, format: Format) -> Result<(), Failure> {
        std::thread::scope(|scope| {
            let mut batches = Vec::new();
            for _ in 0..self.arguments.writers {
                let (writer, received) = sync_channel(BATCHES_IN_FLIGHT);
                workers::start(scope, move || self.write(&received))?;
                batches.push(Batch { lines: Vec::new(), size_bytes: 0, writer });
            }
            self.read(lines, format, &mut batches)
        })?;
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(Ok(()), |(_, failure)| Err(failure))
    }

    fn read(
        &self,
        mut lines: Lines<impl Read>,
        format: Format,
        batches: &mut [Batch],
    ) -> Result<(), Failure> {
        let hasher = RandomState::new();
        while self.stop_line.load(Ordering::Relaxed) == u64::MAX {
            if lines.may_wait() && !batches.iter_mut().all(Batch::send) {
                break;
            }
            let read = lines
                .next_line()
                .map_err(Failure::system(format!("cannot read {}", self.name)))?
                .map(|line| line.and_then(|line| format.parse(line)));
            let number = lines.number();
            match read {
                None => break,
                Some(Ok(None)) => continue,
                Some(Err(error)) => {
                    self.refuse(number, &error.to_string());
                    continue;
                }
                Some(Ok(Some(record))) => {
                    let writer = hasher.hash_one(&record.0) % batches.len() as u64;
                    let batch = &mut batches[writer as usize];
                    batch.size_bytes += record.0.len() + record.1.len();
                    batch.lines.push(Line { number, record });
                    let is_full =
                        batch.lines.len() >= BATCH_RECORDS || batch.size_bytes >= BATCH_BYTES;
                    if is_full && !batch.send() {
                        break;
                    }
                }
            }
            self.progress.update(lines.position_bytes(), self.loaded());
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
                None => self.write_each(&lines),
            };
            if !goes_on {
                break;
            }
        }
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
    fn commit(&self, pool: &Pool, mut lines: &[Line]) -> bool {
        while let Some(first) = lines.first() {
            if self.is_ended_before(first.number) {
                return false;
            }
            let Ok(taken) = pool.transaction(|transaction| self.take(transaction, lines)) else {
                return self.write_each(lines);
            };
            self.count(taken.inserted, taken.updated);
            taken.refused.iter().for_each(|(number, reason)| self.refuse(*number, reason));
            lines = &lines[taken.lines..];
        }
        true
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
        self.inserted.fetch_add(inserted, Ordering::Relaxed);
        self.updated.fetch_add(updated, Ordering::Relaxed);
    }

    /// Handles a line that cannot be loaded: stops or continues, as the option says.
    fn refuse(&self, number: u64, reason: &str) {
        let message = format!("{}:{number}: {reason}", self.name);
        if self.arguments.on_error == OnError::Stop {
            self.stop(number, Failure::Input(message + " (--on-error skip goes on)"));
        } else if self.skipped.fetch_add(1, Ordering::Relaxed) < REPORTED_LINES {
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

    fn loaded(&self) -> u64 {
        self.inserted.load(Ordering::Relaxed) + self.updated.load(Ordering::Relaxed)
    }
}
