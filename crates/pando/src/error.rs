//! The errors of the public API: what was found, what is allowed, what to do next.

use std::path::PathBuf;

use crate::key::KeyError;
use crate::value::ValueError;

/// An error of a layer below the public API.
pub(crate) type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why an operation failed. It has changed nothing, unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no file at the pool's path.
    #[error("there is no pool at {}; create one with Pool::create or check the path", path.display())]
    PoolNotFound {
        /// Where the pool was looked for.
        path: PathBuf,
    },
    /// The folder for the new pool does not exist.
    #[error("the folder {} does not exist; create it first, or choose another path", path.display())]
    FolderNotFound {
        /// The folder.
        path: PathBuf,
    },
    /// A file exists at the path of the new pool.
    #[error("{} exists already; open it with Pool::open or choose another path", path.display())]
    PoolExists {
        /// Where the pool was to be created.
        path: PathBuf,
    },
    /// Another process, or another `Pool` of this process, has the pool open, and not both share
    /// it ([`PoolOptions::shared`](crate::PoolOptions::shared)).
    #[error(
        "{} is open elsewhere; close it there first, or share it in each process that opens it \
         (PoolOptions::shared, `pando --shared`)",
        path.display()
    )]
    PoolBusy {
        /// The pool's path.
        path: PathBuf,
    },
    /// Another process was opening or closing the pool for so long that this one gave up.
    #[error(
        "another process has been opening or closing {} for {waited_ms} ms; if that process is \
         stopped, continue it or end it, then try again",
        path.display()
    )]
    PoolEntering {
        /// The pool's path.
        path: PathBuf,
        /// How long this process has waited, in milliseconds.
        waited_ms: u64,
    },
    /// As many processes share the pool as may.
    #[error(
        "{max} processes share {}, which is the most; close it in one of them first",
        path.display()
    )]
    TooManyProcesses {
        /// The pool's path.
        path: PathBuf,
        /// The most processes.
        max: usize,
    },
    /// No other process with this id is alive and shares the pool, as far as this process can see.
    #[error(
        "no other process {pid} has {} open; {}",
        path.display(),
        list_of_processes(present)
    )]
    ProcessNotFound {
        /// The pool's path.
        path: PathBuf,
        /// The process id that was asked for.
        pid: u32,
        /// The process ids of the others that share the pool.
        present: Vec<u32>,
    },
    /// Several processes cannot share this, or cannot do this at the same time.
    #[error(
        "{what} cannot be shared by several processes: {why}; open the pool by one process at a \
         time, without PoolOptions::shared or `--shared`"
    )]
    NotShareable {
        /// The pool, the map or the call.
        what: String,
        /// Why not.
        why: String,
    },
    /// The process may not write the file. A pool must be writable even to be read.
    #[error(
        "{} may not be written, and a pool must be writable even to be read; give write permission, \
         or copy the file to a place where it may be written",
        path.display()
    )]
    PoolNotWritable {
        /// The pool's path.
        path: PathBuf,
    },
    /// The file is not a pool, and never was.
    #[error("{}", not_a_pool(path, found))]
    NotAPool {
        /// The file.
        path: PathBuf,
        /// Its first bytes; none if the file is empty.
        found: Vec<u8>,
    },
    /// The pool was written by a later version.
    #[error(
        "{} has format version {found}, and this version of Pando reads version {supported}; use \
         a newer one",
        path.display()
    )]
    NewerPool {
        /// The pool's path.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The format version that is read.
        supported: u32,
    },
    /// The pool was written by an earlier version.
    #[error(
        "{0} has format version {found}, and this version of Pando reads version {supported}; it is \
         not damaged. With the Pando that wrote it run `pando --pool {0} dump --map MAP > MAP.tsv` \
         for each map, then with this one `pando --pool NEW load --create --map MAP MAP.tsv`",
        path.display()
    )]
    OlderPool {
        /// The pool's path.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The format version that is read.
        supported: u32,
    },
    /// The pool exists, and its largest size differs from the requested one.
    #[error(
        "{} may grow to {found} bytes, which was fixed when it was created, not to {expected}; leave \
         out max_bytes, or copy its maps into a new pool",
        path.display()
    )]
    PoolSizeDiffers {
        /// The pool's path.
        path: PathBuf,
        /// Its largest size, in bytes.
        found: u64,
        /// The requested largest size, in bytes, in whole units of 64 KiB.
        expected: u64,
    },
    /// The path is not that of a regular file, but of a device or a folder, for example.
    #[error("{} is not a regular file; name the path of a pool, or of a file to be created", .0.display())]
    NotAFile(PathBuf),
    /// The pool was open when the machine went down, and its medium did not keep the order of
    /// writes.
    #[error(
        "{} was open when the machine went down, and its medium ({medium}) keeps no order of writes \
         then; restore a copy, or open it for salvage and copy out the readable records",
        path.display()
    )]
    NotTrusted {
        /// The pool's path.
        path: PathBuf,
        /// Its medium.
        medium: String,
        /// The directory of its log, if it has one.
        log: Option<PathBuf>,
    },
    /// The pool, or a part of it, is damaged or cut off. The text says which part, where, and what
    /// to do.
    #[error(transparent)]
    Damaged(Source),
    /// The map contains bytes that it cannot have written. The operation failed, but it may have
    /// written parts of its change. Do not use the map further; copy out the readable records.
    /// Records carry no checksum, so bytes of keys and values may be damaged without an error.
    #[error(
        "the map {map:?} is damaged: the block at {off:#x} {what}; `pando check` lists all damage, and `pando \
         --salvage dump --map {map}` copies out the readable records"
    )]
    MapDamaged {
        /// The map's name.
        map: String,
        /// Offset in the pool of the block, or of a word in it.
        off: u64,
        /// The damage at that place.
        what: &'static str,
    },
    /// A scan has found a key that is not in order: the map is damaged.
    #[error(
        "the map {map:?} is damaged: the key \"{}\" is out of order; `pando check` lists all damage, and `pando \
         --salvage dump --map {map}` copies out the readable records",
        key.escape_ascii()
    )]
    KeysOutOfOrder {
        /// The map's name.
        map: String,
        /// The key that is out of order.
        key: Vec<u8>,
    },
    /// The pool has its largest size and no room. Removing records still works, and makes room.
    #[error(
        "the pool is full: it may not grow beyond {max_bytes} bytes; remove records, or copy them \
         into a pool with a larger max_bytes"
    )]
    PoolFull {
        /// Its largest size, in bytes.
        max_bytes: u64,
    },
    /// The file system has no room for the pool to grow. Removing records still works.
    #[error(
        "the file system is full: the pool could not grow from {from_bytes} to {to_bytes} bytes \
         ({cause}); make room and try again, or remove records"
    )]
    FileSystemFull {
        /// Size of the pool in bytes.
        from_bytes: u64,
        /// The size that it needs, in bytes.
        to_bytes: u64,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// The pool's file may not become larger: the process (`RLIMIT_FSIZE`) or the file system has a
    /// limit. Removing records still works, and makes room.
    #[error(
        "{}: the pool's file may not grow from {from_bytes} to {to_bytes} bytes ({cause}); raise the \
         process's limit (`ulimit -f`), move the pool to a file system that takes larger files, or \
         remove records",
        path.display()
    )]
    FileTooLarge {
        /// The pool's path.
        path: PathBuf,
        /// Size of the pool in bytes.
        from_bytes: u64,
        /// The size that it needs, in bytes.
        to_bytes: u64,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// The pool's table of participants is full, because too many threads are inside calls, and it
    /// cannot grow: it has its largest size (8,192), or the pool is full. Idle threads do not
    /// count. A [`Pin`](crate::Pin) counts as a thread, and of pins there is a limit too.
    #[error(
        "{threads} threads or pins are inside operations of the pool at once, and its table of participants \
         cannot grow: {why}; try again, or let fewer threads or pins use it at once"
    )]
    TooManyThreads {
        /// Threads that the table has room for.
        threads: usize,
        /// Why the table cannot grow.
        why: String,
    },
    /// The pool was opened before this process was forked.
    #[error(
        "{} was opened before this process was forked, so only the parent may use it; open it again in \
         the child, which it must be shared for (PoolOptions::shared)",
        path.display()
    )]
    Forked {
        /// The pool's path.
        path: PathBuf,
    },
    /// The pool holds as many maps as it can.
    #[error("the pool has {max_maps} maps, the most that it can have; drop one first")]
    TooManyMaps {
        /// How many maps a pool can hold.
        max_maps: usize,
    },
    /// The map has an index that this version, or this build, does not know.
    #[error(
        "the map {name:?} has index number {number}, which this version does not know; use a newer one, or \
         one that was built with that index"
    )]
    UnknownIndex {
        /// The map's name.
        name: String,
        /// The number of its index.
        number: u64,
    },
    /// Handles of the pool are still held, so it was not closed. It closes when the last is
    /// dropped.
    #[error(
        "the pool is not closed: {pools} other Pool handles and {maps} maps are still held; \
         drop them first"
    )]
    PoolInUse {
        /// Other `Pool` handles.
        pools: usize,
        /// Maps of which at least one handle is held.
        maps: usize,
    },
    /// The pool was opened for salvage, so its maps can only be copied out.
    #[error(
        "the pool was opened for salvage, which is for copying records out (Pool::salvage, or \
         `pando --salvage dump`); load the copy into a new pool, or open this one without salvage"
    )]
    OpenForSalvage,
    /// The pool has no map of that name.
    #[error("the pool has no map {name:?}; {}", list_of_maps(present))]
    MapNotFound {
        /// The requested name.
        name: String,
        /// The names of the existing maps.
        present: Vec<String>,
    },
    /// No map is in the slot of the catalog.
    #[error(
        "the catalog's slot {slot} has no map; Pool::maps and `pando stat --json` list the slots"
    )]
    SlotEmpty {
        /// The requested slot.
        slot: u64,
    },
    /// A map of the new name exists, so the map was not renamed.
    #[error("there is a map {name:?} already; choose another name, or drop that map first")]
    MapExists {
        /// The name.
        name: String,
    },
    /// Handles of the map are still held, so it was not dropped or renamed.
    #[error("the map {name:?} is not changed: {handles} of its handles are held; drop them first")]
    MapInUse {
        /// The map's name.
        name: String,
        /// How many handles are held.
        handles: usize,
    },
    /// Another process has handles of the map, so it was not dropped; or it is dropping the map,
    /// and has not got further for five seconds, so the map was not opened.
    #[error(
        "the map {name:?} is open in another process, or being dropped there; drop its handles in all \
         processes that share the pool, or end them, and try again"
    )]
    MapOpenElsewhere {
        /// The map's name.
        name: String,
    },
    /// The map was not dropped: a thread has been inside a call since before, and may still use it
    /// to complete a commit; or a [`Pin`](crate::Pin) lives, which has the same effect.
    #[error(
        "the map {name:?} is not dropped: a thread has been inside a call on the pool for more than a second, and may \
         be completing a commit at this map, or a pin, a guard or a view of values is held; drop the map again when \
         the call has returned, or the pin has ended"
    )]
    ThreadInside {
        /// The map's name.
        name: String,
    },
    /// Another transaction came first. Nothing of this one has taken place.
    #[error(
        "the transaction conflicts with another one at the key \"{}\" of the map {map:?}; run it again, or use \
         Pool::transaction, which does",
        key.escape_ascii()
    )]
    Conflict {
        /// The map's name.
        map: String,
        /// A key at which they conflict; of a range that was scanned, the key where the scan began.
        key: Vec<u8>,
    },
    /// A transaction takes only transactional maps.
    #[error(
        "the map {name:?} is not transactional; create it with MapOptions::transactional, and copy the \
         records into it"
    )]
    NotTransactional {
        /// The map's name.
        name: String,
    },
    /// A transaction, a snapshot or a pin takes maps of its own pool.
    #[error("the map {name:?} belongs to another pool; use a map of the same pool in this call")]
    MapOfOtherPool {
        /// The map's name.
        name: String,
    },
    /// The keys and values of the transaction are too long together; or, in a store, the pages that
    /// it may change.
    #[error(
        "the transaction takes {found_bytes} bytes, of its keys and values or of pages that it may \
         change, and at most {max_bytes} are allowed; split it into several transactions"
    )]
    TransactionTooLong {
        /// Bytes of its record, or of the pages.
        found_bytes: usize,
        /// The most that it may have of them.
        max_bytes: usize,
    },
    /// The directory for the log of a new pool has a log already.
    #[error(
        "{0} has a log already; open its pool with this log, or name another directory for the \
         new one",
        path.display()
    )]
    LogExists {
        /// The directory.
        path: PathBuf,
    },
    /// The directory for a new log, or for a backup, has files of a log, which were left as they
    /// are.
    #[error(
        "{} has files of a log already, such as {found:?}; name another directory, or move these files \
         away",
        path.display()
    )]
    LogNotEmpty {
        /// The directory.
        path: PathBuf,
        /// One of the files.
        found: String,
    },
    /// The pool's file is missing, so a log of it is the only copy, and is not reset.
    #[error(
        "there is no pool at {}, so a log of it may be the only copy, and is not reset; open the pool \
         with its log (PoolOptions::log, or `--log`), which rebuilds it, or restore a backup",
        path.display()
    )]
    LogIsOnlyCopy {
        /// Where the pool was looked for.
        path: PathBuf,
    },
    /// There is no file at the pool's path, and the log is that of a pool that is elsewhere.
    /// Nothing was created.
    #[error(
        "there is no pool at {}, and the log in {} is that of the pool at {}; name this pool, or a log of \
         its own",
        path.display(),
        log.display(),
        other.display()
    )]
    LogOfOtherPool {
        /// Where the pool was looked for.
        path: PathBuf,
        /// The directory of the log.
        log: PathBuf,
        /// The pool of that log.
        other: PathBuf,
    },
    /// The directory of the log does not exist.
    #[error(
        "the log of {} should be in {}, which does not exist; name its directory, if it was moved \
         (PoolOptions::log, or `--log`), or, if it is lost, give the pool a new log \
         (Pool::reset_log, or `pando log reset`)",
        pool.display(),
        path.display()
    )]
    LogNotFound {
        /// The pool's path.
        pool: PathBuf,
        /// The directory of the log.
        path: PathBuf,
    },
    /// Another process, or another `Pool` of this process, uses the log.
    #[error("the log in {} is in use elsewhere; close its pool there first", path.display())]
    LogBusy {
        /// The directory of the log.
        path: PathBuf,
    },
    /// The log belongs to another pool, or to a later state of this one.
    #[error("{cause}")]
    LogForeign {
        /// The directory of the log.
        path: PathBuf,
        /// What differs, and the remedy.
        cause: String,
    },
    /// The log belongs to a [`Store`](crate::Store), and is of no use without the store's pages.
    /// Nothing was changed.
    #[error(
        "the log in {} is that of a store; open this store (Store::open, or `--store`), or name the \
         directory of the pool's log",
        path.display()
    )]
    LogOfStore {
        /// The directory of the log.
        path: PathBuf,
    },
    /// The log, or its part in the pool, is damaged, or all or a part of it is missing.
    #[error("{cause}")]
    LogDamaged {
        /// The damaged file, or the directory of the log.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// The log cannot be used. Most often the disk refuses, as the text says.
    #[error(transparent)]
    Log(Source),
    /// The log's tail, in the pool, is full: the disk of the log is full, stalled, or slower than
    /// the writers.
    #[error(
        "{used_bytes} bytes wait for the disk of the log, and at most {max_bytes} are allowed; make \
         room on the disk, or try again later"
    )]
    LogFull {
        /// Bytes that wait.
        used_bytes: u64,
        /// Most bytes that may wait.
        max_bytes: u64,
    },
    /// A write or a sync of the log has failed, so transactional maps are no longer written.
    #[error(
        "the log in {0} has stopped, since a write or sync of it failed: transactional maps are \
         read-only; check the disk, then open the pool again",
        path.display()
    )]
    LogStopped {
        /// The directory of the log.
        path: PathBuf,
    },
    /// The call has taken place, for all threads and also after the death of the process. But the
    /// log could not be written or synced so far, so a power cut may undo commits, or a change of
    /// the maps.
    #[error("it has taken place, but a power cut may undo it: {cause}")]
    AppliedNotDurable {
        /// The reason, and the remedy.
        cause: String,
    },
    /// A process has ended inside a commit, which has written to a map that cannot be opened now.
    /// So the commit cannot be undone. Reads of all maps see the versions from before it.
    #[error(
        "a process has ended inside a commit, which cannot be undone, since it has written to a map \
         that cannot be opened: transactional maps are read-only. `pando check` names the map; drop \
         it (`pando drop`), or use a version of Pando that has its index"
    )]
    UndoNeedsMap,
    /// The pool has no log, so nothing of it is synced.
    #[error(
        "the pool has no log, so nothing can be synced; create a pool with PoolOptions::log \
         (`--log`), and copy the maps into it"
    )]
    NoLog,
    /// A store cannot do this; a pool can.
    #[error("a store cannot be {what}")]
    NotInAStore {
        /// What was asked of it.
        what: &'static str,
    },
    /// The store is open for reading alone ([`StoreFiles::open`](crate::StoreFiles::open)). Nothing
    /// has taken place.
    #[error("the store is open for reading alone; open it by Store::open, where it can be written")]
    StoreReadOnly,
    /// There is no store at the path.
    #[error("there is no store at {}; create one with Store::open or check the path", path.display())]
    StoreNotFound {
        /// Where the store was looked for.
        path: PathBuf,
    },
    /// Another process, or another handle of this one, has the store.
    #[error("the store in {} is open elsewhere; close it there first", path.display())]
    StoreBusy {
        /// Its directory.
        path: PathBuf,
    },
    /// The map exists and has another index than the requested one.
    #[error("the map {name:?} has the index {found}, not {asked}; open it without naming an index")]
    MapIndexDiffers {
        /// The map's name.
        name: String,
        /// The map's index.
        found: &'static str,
        /// The requested index.
        asked: String,
    },
    /// The map exists and was created with another option than the requested one.
    #[error(
        "the map {name:?} was created with {option} {found}, not {asked}; a map keeps the options \
         it was created with: leave {option} out to open it"
    )]
    MapOptionDiffers {
        /// The map's name.
        name: String,
        /// The option's name.
        option: &'static str,
        /// The map's value.
        found: String,
        /// The requested value.
        asked: String,
    },
    /// A map's name is empty or too long.
    #[error("a map's name has 1 to {max_bytes} bytes; {name:?} has {}", name.len())]
    MapName {
        /// The given name.
        name: String,
        /// Longest name in bytes.
        max_bytes: usize,
    },
    /// An option has a value that is not allowed.
    #[error("{option} is {found}; allowed is {allowed}")]
    Option {
        /// The option's name.
        option: String,
        /// The given value.
        found: String,
        /// The allowed values.
        allowed: String,
    },
    /// An insert found its key.
    #[error("the key is already there; use upsert to replace its value")]
    KeyExists,
    /// An update or a compare-exchange did not find its key.
    #[error("the key is not there; use insert or upsert to add it")]
    KeyNotFound,
    /// A compare-exchange or a compare-remove found another value than the expected one.
    #[error("the value is not the expected one; the error has the actual one")]
    ValueMismatch {
        /// The value that the key had at an instant of the call.
        actual: Vec<u8>,
    },
    /// The key is longer than the map allows.
    #[error("a key of {found_bytes} bytes is longer than the {max_bytes} bytes that keys may have")]
    KeyTooLong {
        /// Length of the key that was given.
        found_bytes: usize,
        /// Longest allowed key.
        max_bytes: usize,
    },
    /// A condition of a [`WriteBatch`](crate::WriteBatch) does not hold. Nothing was written.
    #[error(
        "the key \"{}\" of map {map:?} does not have the value that the batch expects; read it again",
        key.escape_ascii()
    )]
    ConditionFailed {
        /// The name of the map.
        map: String,
        /// The key.
        key: Vec<u8>,
    },
    /// The pool has no session of this number; or the session has ended, or a power cut has undone
    /// its beginning.
    #[error(
        "the pool has no session {id}: it has ended, or a power cut has undone its beginning and all \
         of its batches; begin a new one"
    )]
    UnknownSession {
        /// The number, as text.
        id: String,
    },
    /// The sequence was used for a batch with another digest, or was closed by
    /// [`Session::outcome`](crate::Session::outcome).
    #[error("sequence {sequence} was used for another batch, or is closed; use a higher one")]
    SequenceUsed {
        /// The sequence.
        sequence: u64,
    },
    /// The receipt of the sequence is no longer kept, or the sequence is too far ahead.
    #[error(
        "sequence {sequence} is out of range: the session takes {first} to {last} now; the outcome \
         of an earlier one is no longer known"
    )]
    SequenceOutOfRange {
        /// The sequence.
        sequence: u64,
        /// The first that is allowed.
        first: u64,
        /// The last that is allowed.
        last: u64,
    },
    /// The snapshot was beyond a limit of
    /// [`PoolOptions::snapshot_limits`](crate::PoolOptions::snapshot_limits), or the pool was full
    /// or damaged ([`Snapshot`](crate::Snapshot)).
    #[error(
        "the snapshot is revoked: it was beyond the limit of age or of kept bytes \
         (PoolOptions::snapshot_limits), or the pool was full or damaged; take a new one"
    )]
    SnapshotRevoked,
    /// The value is longer than the map allows.
    #[error(
        "a value of {found_bytes} bytes is longer than the {max_bytes} bytes that values may have"
    )]
    ValueTooLong {
        /// Length of the value that was given.
        found_bytes: usize,
        /// Longest allowed value.
        max_bytes: usize,
    },
    /// The key is shorter than the keys of this map, which all have one length.
    #[error(
        "a key of {found_bytes} bytes is shorter than the {min_bytes} bytes that keys have here"
    )]
    KeyTooShort {
        /// Length of the key that was given.
        found_bytes: usize,
        /// Shortest allowed key.
        min_bytes: usize,
    },
    /// The value is shorter than the values of this map, which all have one length.
    #[error(
        "a value of {found_bytes} bytes is shorter than the {min_bytes} bytes that values have here"
    )]
    ValueTooShort {
        /// Length of the value that was given.
        found_bytes: usize,
        /// Shortest allowed value.
        min_bytes: usize,
    },
    /// A stored key does not have the type that the typed map expects.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A value cannot be stored as the typed map expects, or a stored one does not have that type.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The operating system refused a call.
    // The text contains the cause, so that one log line is enough. So the cause is not a source
    // too.
    #[error("cannot {action}: {}: {cause}", path.display())]
    Io {
        /// The action that failed, such as "create the file" or "map the file".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// A layer below failed for a reason that no other variant has.
    #[error(transparent)]
    Storage(Source),
}

impl Error {
    /// Whether there was no room for the operation: in the pool, in its file system, on the disk of
    /// a [`Store`](crate::Store), or in its memory. Nothing of the operation took place. It may
    /// succeed when other records were removed, or the disk has room again.
    pub fn is_out_of_room(&self) -> bool {
        match self {
            Self::PoolFull { .. } | Self::FileSystemFull { .. } | Self::FileTooLarge { .. } => true,
            Self::Storage(source) => pando_store::is_out_of_room(source.as_ref()),
            _ => false,
        }
    }

    /// The damaged page of a [`Store`](crate::Store) that the operation needs. Other pages can be
    /// read.
    pub fn damaged_page(&self) -> Option<u32> {
        match self {
            Self::Storage(source) => pando_store::unreadable_page(source.as_ref()),
            _ => None,
        }
    }
}

/// Most names that a message lists.
const LISTED_MAPS: usize = 10;

fn list_of_maps(present: &[String]) -> String {
    if present.is_empty() {
        return "it has no maps".to_owned();
    }
    let listed = &present[..present.len().min(LISTED_MAPS)];
    let names: Vec<_> = listed.iter().map(|name| format!("{name:?}")).collect();
    match present.len() - listed.len() {
        0 => format!("it has {}", names.join(", ")),
        more => format!("it has {} and {more} more", names.join(", ")),
    }
}

fn list_of_processes(present: &[u32]) -> String {
    match present {
        [] => "no other process here has".to_owned(),
        _ => {
            let ids: Vec<_> = present.iter().map(u32::to_string).collect();
            format!("process ids here that have: {}", ids.join(", "))
        }
    }
}

fn not_a_pool(path: &std::path::Path, found: &[u8]) -> String {
    let path = path.display();
    if found.is_empty() {
        return format!(
            "{path} is empty, and not a pool; remove it and create the pool, or choose another path"
        );
    }
    format!("{path} is not a pool: it begins with \"{}\"; check the path", found.escape_ascii())
}
