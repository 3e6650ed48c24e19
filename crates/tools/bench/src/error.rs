//! Errors: a wrong answer of a system, and a run that cannot take place.

use std::path::PathBuf;

use crate::system::Refusal;

/// A wrong answer of a system; each names the key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// An expected record was not found.
    #[error("lost key {key:#018x} (record {number}): {operation} did not find it")]
    Lost {
        /// The key.
        key: u64,
        /// The number of its record.
        number: u64,
        /// The operation.
        operation: &'static str,
    },
    /// A record was found that was never inserted, or that was deleted.
    #[error("invented key {key:#018x}: {operation} found it, but it was deleted or never inserted")]
    Invented {
        /// The key.
        key: u64,
        /// The operation.
        operation: &'static str,
    },
    /// A value that no write gave to its key.
    #[error(
        "key {key:#018x}: {operation} found the value {found:#018x}, which was never written to this key"
    )]
    WrongValue {
        /// The key.
        key: u64,
        /// The value that was found.
        found: u64,
        /// The operation.
        operation: &'static str,
    },
    /// A key or a value with a length that the run does not use.
    #[error("key {key:#018x}: {operation} found {found} bytes; expected {due}")]
    Length {
        /// The key; 0 if its own length is wrong.
        key: u64,
        /// Bytes that were found.
        found: usize,
        /// Bytes that were written.
        due: usize,
        /// The operation.
        operation: &'static str,
    },
    /// A key or a value whose last bytes do not match its first bytes.
    #[error("key {key:#018x}: {operation} found bytes whose end is not as it was written")]
    Torn {
        /// The key.
        key: u64,
        /// The operation.
        operation: &'static str,
    },
    /// A scan whose keys are out of order.
    #[error("a scan returned the key {key:#018x} after {previous:#018x}")]
    Disorder {
        /// The key that came first.
        previous: u64,
        /// The key that came after it.
        key: u64,
    },
    /// A scan that ended early.
    #[error("a scan from key {from:#018x} returned {found} records; expected {due}")]
    ShortScan {
        /// The key at which it began.
        from: u64,
        /// Number of records that it returned.
        found: u64,
        /// Expected number of records.
        due: u64,
    },
    /// A wrong number of records.
    #[error("found {found} records; expected {due}")]
    Count {
        /// Number of records that were counted.
        found: u64,
        /// Number of records that the operations so far must have left.
        due: u64,
    },
    /// An error where the operation must succeed.
    #[error("key {key:#018x}: {operation} failed: {source}")]
    Refused {
        /// The key.
        key: u64,
        /// The operation.
        operation: &'static str,
        /// The cause.
        source: Refusal,
    },
    /// The system has a process of its own, and that has failed.
    #[error("{what}")]
    Apart {
        /// Its own message, or how it ended.
        what: String,
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
    /// The answer of the system.
    pub found: String,
    /// The answer of the model.
    pub due: String,
}

/// The error that ended a command.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The error that ended a run without figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system failed a check.
    #[error("{system}, {mix}, {threads} threads: {fault}")]
    Fault {
        /// The system's name.
        system: String,
        /// The operation mix.
        mix: String,
        /// Number of threads.
        threads: usize,
        /// The fault.
        fault: Fault,
    },
    /// A system could not be built.
    #[error("cannot build the system {system}: {source}")]
    Build {
        /// The system's name.
        system: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The deletes of a run would delete all records.
    #[error(
        "{slices} slices of {batch} deletes leave none of {records} records; set a smaller --batch, or add the operation mix insert"
    )]
    TooManyDeletes {
        /// Records that a slice deletes.
        batch: u64,
        /// Slices of deletes in the run.
        slices: u64,
        /// Records that were loaded.
        records: u64,
    },
    /// A file could not be written or read.
    #[error("cannot read or write {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A line of a file that is no valid operation or row.
    #[error("{path}, line {line}: {what}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// The answers of a system and of the model to an operation of a file differ.
    #[error("{system}, {file}, {}: found {}; expected {}",
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
    /// Arguments that do not go together.
    #[error("{0}")]
    Usage(String),
    /// A plot could not be drawn.
    #[error("cannot draw a plot: {0}")]
    Plot(String),
    /// The memory of a process cannot be limited.
    #[error(
        "cannot limit the memory of a process at {path}: {source}; run the command as the \
         superuser, or in a control group that is yours, with the memory controller"
    )]
    Limited {
        /// The group, or the file of it.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A child process failed.
    #[error("the child process of the recovery test {what}")]
    Child {
        /// Its failure.
        what: String,
    },
}
