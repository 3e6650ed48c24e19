//! The errors of a log.

/// Why an operation of a log did not take place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The tail is full: the disk is slower than the writers, stalled, or full. Nothing was
    /// appended.
    #[error(
        "the log's tail has {used_bytes} of at most {max_bytes} bytes that are not yet on disk; \
         try again when the disk has caught up, or make room on it"
    )]
    Full {
        /// Bytes of the tail that are not durable.
        used_bytes: u64,
        /// Most bytes of the tail.
        max_bytes: u64,
    },
    /// A record has more bytes than the log takes. Nothing was appended.
    #[error(
        "a record of {found_bytes} bytes is longer than the {max_bytes} bytes that the log takes"
    )]
    RecordTooLong {
        /// Bytes of the payload.
        found_bytes: usize,
        /// Most bytes of a payload.
        max_bytes: usize,
    },
    /// A write or a sync of the log has failed, so nothing further becomes durable.
    #[error(
        "the log in {path} has stopped, since a write or sync of it failed; what was not synced by then may be lost at \
         a power cut. Check the disk, then open the pool again"
    )]
    Failed {
        /// The log's directory.
        path: String,
    },
    /// The directory has no log.
    #[error("{path} has no log: the file `manifest` is missing")]
    NotALog {
        /// The directory.
        path: String,
    },
    /// The directory has no log, but the proposal of one: a reset of a pool's log has not ended.
    #[error(
        "{path} has no log, but the file `proposal` of a reset that did not end (log {log_id:032x} of \
         pool {pool_id:032x}): open this pool without naming a log, or, if its file is lost, with its \
         former log; remove the files in {path} if this pool's log is elsewhere"
    )]
    Proposed {
        /// The directory.
        path: String,
        /// The proposed log.
        log_id: u128,
        /// The pool whose log it would be.
        pool_id: u128,
    },
    /// The directory has a log already, so no other one is created there.
    #[error(
        "{path} has files of a log already, such as {name:?}; name another directory, or move these files away"
    )]
    NotEmpty {
        /// The directory.
        path: String,
        /// One of its files.
        name: String,
    },
    /// The log belongs to another pool, or was restored or recovered since.
    #[error(
        "the log in {path} belongs to another pool: {field} is {found:032x}, expected {expected:032x}; \
         a lost pool may have been rebuilt from it under another name: use that pool; or name the \
         directory of this pool's log, or give this pool a new log (`pando log reset --log DIR`)"
    )]
    Foreign {
        /// The log's directory.
        path: String,
        /// What differs.
        field: &'static str,
        /// What the log has.
        found: u128,
        /// What the pool has.
        expected: u128,
    },
    /// The log belongs to a store, and not to a pool.
    #[error(
        "the log in {path} is that of a store; open this store (`--store`), or name the directory of \
         the pool's log"
    )]
    OfStore {
        /// The log's directory.
        path: String,
    },
    /// The log goes on behind the newest record of the pool.
    #[error(
        "the pool ends at LSN {lsn}, and its log in {path} continues: the pool's file is an older \
         copy; move it away, and open the pool with its log, which rebuilds it"
    )]
    OlderPool {
        /// The log's directory.
        path: String,
        /// The LSN of the newest record in the pool.
        lsn: u64,
    },
    /// A file of the log, or the log's part of the pool, is damaged.
    #[error("{path} is damaged: {what}")]
    Damaged {
        /// The file, or the log's directory.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// The log begins behind the LSN from which it was to be read.
    #[error("the log in {path} has no records from LSN {from} on: {what}")]
    Missing {
        /// The log's directory.
        path: String,
        /// The LSN.
        from: u64,
        /// What it has.
        what: String,
    },
    /// A record of the tail cannot be decided now, so neither it nor what follows can be written.
    #[error("a record of the log's tail cannot be decided: {0}")]
    Unsettled(Box<dyn std::error::Error + Send + Sync>),
    /// The disk has not answered for long: as many threads as there can be write to the log, and
    /// none has come to an end. Whether the records become durable is open.
    #[error(
        "the disk under the log in {path} does not answer: {writers} threads wait for it; check the disk"
    )]
    Stalled {
        /// The log's directory.
        path: String,
        /// How many threads.
        writers: u64,
    },
    /// An option has a value that it cannot have.
    #[error("{option} is {found}; allowed is {allowed}")]
    Option {
        /// Which option.
        option: &'static str,
        /// Its value.
        found: u64,
        /// What is allowed.
        allowed: String,
    },
    /// The device refused an operation.
    #[error(transparent)]
    Device(#[from] pando_device::Error),
    /// The pool refused an operation.
    #[error(transparent)]
    Pool(#[from] pando_pmem::Error),
}

/// The result of an operation of a log.
pub type Result<T, E = Error> = std::result::Result<T, E>;
