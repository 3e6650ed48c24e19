//! The kinds of errors, and the errors of Pando as such.

use std::any::Any;

use pando::Error;

/// The kind of an error. Later versions may have more.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum pando_code {
    /// No error: the code of NULL.
    None = 0,
    /// An error that has no code of its own; the message says which.
    Other = 1,
    /// A pointer or a handle is NULL where it must not be.
    Null = 2,
    /// The handle was freed before.
    FreedHandle = 3,
    /// The handle is that of another type.
    WrongHandle = 4,
    /// Another thread, or a callback around this call, uses the handle.
    InUse = 5,
    /// A bug in Pando. The pool stays usable; please report the message.
    Panic = 6,
    /// The pool was opened before this process was forked.
    Forked = 7,
    /// An option or an argument has a value that is not allowed.
    Option = 8,
    /// There is no pool, no store, no log or no folder at the path.
    PoolNotFound = 9,
    /// There is a pool or a file at the path already.
    PoolExists = 10,
    /// The pool or store is open elsewhere.
    PoolBusy = 11,
    /// Handles are still held.
    HandlesHeld = 12,
    /// The file is no pool, or one of another version.
    NotAPool = 13,
    /// The pool, the map or the log is damaged, or a power cut may have damaged it.
    Damaged = 14,
    /// There is no room: in the pool, on the file system, or for the log.
    Full = 15,
    /// Too many threads are inside calls at once.
    TooManyThreads = 16,
    /// The pool has no map of that name.
    MapNotFound = 17,
    /// The map was created with other options.
    MapDiffers = 18,
    /// The call needs a transactional map, or one of this pool.
    NotTransactional = 19,
    /// The call needs a pool with a log.
    NoLog = 20,
    /// An insert found its key.
    KeyExists = 21,
    /// An update found no such key.
    KeyNotFound = 22,
    /// The value is another one; pando_error_bytes lends it.
    ValueMismatch = 23,
    /// A key or value is longer or shorter than the map allows.
    Length = 24,
    /// The transaction conflicts with another one; run it again. pando_error_bytes lends a key.
    Conflict = 25,
    /// A condition of a batch does not hold; pando_error_bytes lends its key.
    ConditionFailed = 26,
    /// The write has taken place, but a power cut may undo it.
    AppliedNotDurable = 27,
    /// The snapshot is revoked.
    SnapshotRevoked = 28,
    /// The session does not exist, or its sequence cannot be used.
    Session = 29,
    /// The operating system refused a call.
    Io = 30,
    /// Several processes cannot share this, or cannot do it at once.
    NotShareable = 31,
    /// The store is open for reading alone.
    ReadOnly = 32,
}

use pando_code as Code;

/// An error before it has a handle.
#[derive(Debug)]
pub(crate) struct Failure {
    pub code: Code,
    pub message: String,
    pub bytes: Vec<u8>,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), bytes: Vec::new() }
    }

    pub fn null(what: &str) -> Self {
        Self::new(Code::Null, format!("{what} is NULL, and must not be"))
    }

    pub fn forked() -> Self {
        let message = "the pool was opened before this process was forked, so only the parent may \
                       use it; open it in the child";
        Self::new(Code::Forked, message)
    }

    pub fn option(option: &str, found: impl std::fmt::Display, allowed: &str) -> Self {
        Self::new(Code::Option, format!("{option} is {found}; allowed is {allowed}"))
    }

    pub fn in_use(name: &str) -> Self {
        let message = format!(
            "the {name} is in use by another thread, or by the call that this callback belongs to; \
             use it by one call at a time"
        );
        Self::new(Code::InUse, message)
    }

    pub fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("no text");
        Self::new(Code::Panic, format!("a bug in Pando: {text}; please report it"))
    }
}

fn code_of(error: &Error) -> Code {
    match error {
        // Of a store: its pages have no room on the disk or in memory, or one of them is damaged.
        Error::Storage(_) if error.is_out_of_room() => Code::Full,
        Error::Storage(_) if error.damaged_page().is_some() => Code::Damaged,
        Error::StoreReadOnly => Code::ReadOnly,
        Error::PoolNotFound { .. }
        | Error::StoreNotFound { .. }
        | Error::FolderNotFound { .. }
        | Error::LogNotFound { .. }
        | Error::LogOfOtherPool { .. }
        | Error::LogOfStore { .. } => Code::PoolNotFound,
        Error::PoolExists { .. } | Error::LogExists { .. } | Error::LogNotEmpty { .. } => {
            Code::PoolExists
        }
        Error::PoolBusy { .. }
        | Error::PoolEntering { .. }
        | Error::StoreBusy { .. }
        | Error::LogBusy { .. }
        | Error::TooManyProcesses { .. } => Code::PoolBusy,
        Error::PoolInUse { .. }
        | Error::MapInUse { .. }
        | Error::MapOpenElsewhere { .. }
        | Error::ThreadInside { .. } => Code::HandlesHeld,
        Error::NotAPool { .. }
        | Error::NewerPool { .. }
        | Error::OlderPool { .. }
        | Error::NotAFile(_)
        | Error::UnknownIndex { .. } => Code::NotAPool,
        Error::NotTrusted { .. }
        | Error::Damaged(_)
        | Error::MapDamaged { .. }
        | Error::KeysOutOfOrder { .. }
        | Error::UndoNeedsMap
        | Error::LogDamaged { .. }
        | Error::LogForeign { .. }
        | Error::LogIsOnlyCopy { .. } => Code::Damaged,
        Error::PoolFull { .. }
        | Error::FileSystemFull { .. }
        | Error::FileTooLarge { .. }
        | Error::TooManyMaps { .. }
        | Error::LogFull { .. } => Code::Full,
        Error::TooManyThreads { .. } => Code::TooManyThreads,
        Error::Forked { .. } => Code::Forked,
        Error::MapNotFound { .. } | Error::SlotEmpty { .. } => Code::MapNotFound,
        Error::MapIndexDiffers { .. }
        | Error::MapOptionDiffers { .. }
        | Error::PoolSizeDiffers { .. } => Code::MapDiffers,
        Error::NotTransactional { .. } | Error::MapOfOtherPool { .. } => Code::NotTransactional,
        Error::NotShareable { .. } => Code::NotShareable,
        Error::NoLog => Code::NoLog,
        Error::Option { .. } | Error::MapName { .. } => Code::Option,
        Error::KeyExists => Code::KeyExists,
        Error::KeyNotFound => Code::KeyNotFound,
        Error::ValueMismatch { .. } => Code::ValueMismatch,
        Error::KeyTooLong { .. }
        | Error::KeyTooShort { .. }
        | Error::ValueTooLong { .. }
        | Error::ValueTooShort { .. }
        | Error::TransactionTooLong { .. } => Code::Length,
        Error::Conflict { .. } => Code::Conflict,
        Error::ConditionFailed { .. } => Code::ConditionFailed,
        Error::AppliedNotDurable { .. } => Code::AppliedNotDurable,
        Error::SnapshotRevoked => Code::SnapshotRevoked,
        Error::UnknownSession { .. }
        | Error::SequenceUsed { .. }
        | Error::SequenceOutOfRange { .. } => Code::Session,
        Error::Io { .. }
        | Error::PoolNotWritable { .. }
        | Error::Log(_)
        | Error::LogStopped { .. } => Code::Io,
        _ => Code::Other,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (code, message) = (code_of(&error), error.to_string());
        let bytes = match error {
            Error::ValueMismatch { actual } => actual,
            Error::Conflict { key, .. }
            | Error::ConditionFailed { key, .. }
            | Error::KeysOutOfOrder { key, .. } => key,
            _ => Vec::new(),
        };
        Self { code, message, bytes }
    }
}
