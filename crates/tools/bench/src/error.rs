//! What can go wrong: a system that breaks its word, and a run that cannot take place.

use std::path::PathBuf;

use crate::system::Refusal;

/// A system did something that it must not do; each names the key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A record that is due was not found.
    #[error("lost key {key:#018x} (record {number}): {operation} did not find it")]
    Lost {
        /// The key.
        key: u64,
        /// The number of its record.
        number: u64,
        /// What looked for it.
        operation: &'static str,
    },
    /// A record was found that nobody inserted, or that was deleted.
    #[error("invented key {key:#018x}: {operation} found it, but it must not be there")]
    Invented {
        /// The key.
        key: u64,
        /// What found it.
        operation: &'static str,
    },
    /// A value that no write has given to its key.
    #[error(
        "key {key:#018x}: {operation} found the value {found:#018x}, which is not one of its own"
    )]
    WrongValue {
        /// The key.
        key: u64,
        /// The value that was found.
        found: u64,
        /// What found it.
        operation: &'static str,
    },
    /// A key or a value of another length than those of the run.
    #[error("key {key:#018x}: {operation} found {found} bytes; {due} are due")]
    Length {
        /// The key; 0 if its own length is wrong.
        key: u64,
        /// Bytes that were found.
        found: usize,
        /// Bytes that were written.
        due: usize,
        /// What found them.
        operation: &'static str,
    },
    /// A key or a value that begins as one and does not end as it.
    #[error("key {key:#018x}: {operation} found bytes that do not end as they were written")]
    Torn {
        /// The key.
        key: u64,
        /// What found it.
        operation: &'static str,
    },
    /// A scan that does not go its way.
    #[error("a scan gave key {key:#018x} after {previous:#018x}")]
    Disorder {
        /// The key that came first.
        previous: u64,
        /// The key that came after it.
        key: u64,
    },
    /// A scan that ended early.
    #[error("a scan from key {from:#018x} gave {found} records; {due} were due")]
    ShortScan {
        /// Where it began.
        from: u64,
        /// Records that it gave.
        found: u64,
        /// Records that it owed.
        due: u64,
    },
    /// A number of records other than what is due.
    #[error("{found} records are there; {due} are due")]
    Count {
        /// What was counted.
        found: u64,
        /// What the operations so far amount to.
        due: u64,
    },
    /// An error value where none is due.
    #[error("key {key:#018x}: {operation} was refused: {source}")]
    Refused {
        /// The key.
        key: u64,
        /// What was refused.
        operation: &'static str,
        /// The reason given.
        source: Refusal,
    },
    /// A thread of the slice panicked.
    #[error("a thread panicked")]
    Panicked,
}

/// An answer of a replay that differs from the model's.
#[derive(Debug)]
pub struct Difference {
    /// The line of the operation; `None` for the comparison at the end.
    pub line: Option<usize>,
    /// What the system answered.
    pub found: String,
    /// What the model answered.
    pub due: String,
}

/// Why a command ended before its end.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Why a run gave no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system failed a check.
    #[error("{system}, {mix}, {threads} threads: {fault}")]
    Fault {
        /// The system's name.
        system: String,
        /// What was running.
        mix: String,
        /// Threads that ran it.
        threads: usize,
        /// What was found.
        fault: Fault,
    },
    /// A system could not be built.
    #[error("cannot build the system {system}: {source}")]
    Build {
        /// The system's name.
        system: String,
        /// The reason given.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// More records are to be deleted than are there.
    #[error(
        "deletes of {batch} records a round for {slices} slices leave none of {records}; ask for a smaller --batch, or for inserts too"
    )]
    TooManyDeletes {
        /// Records deleted a slice.
        batch: u64,
        /// Slices of deletes in the run.
        slices: u64,
        /// Records loaded.
        records: u64,
    },
    /// A file could not be written or read.
    #[error("cannot read or write {path}: {source}")]
    File {
        /// Which file.
        path: PathBuf,
        /// The reason given.
        source: std::io::Error,
    },
    /// A line of a file is not what it should be: an operation, a row.
    #[error("{path}, line {line}: {what}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A system answered an operation of a file otherwise than the model.
    #[error("{system}, {file}, {}: {} was found; {} was due",
        .difference.line.map_or("at the end".to_owned(), |line| format!("line {line}")),
        .difference.found, .difference.due)]
    ReplayDiffers {
        /// The system's name.
        system: String,
        /// The file's name.
        file: String,
        /// What differs, and where.
        difference: Difference,
    },
    /// Words of the command line that cannot go together.
    #[error("{0}")]
    Usage(String),
    /// A plot could not be drawn.
    #[error("cannot draw a plot: {0}")]
    Plot(String),
    /// A child process did not do its part.
    #[error("the child process of the recovery test {what}")]
    Child {
        /// What it did instead.
        what: String,
    },
}
