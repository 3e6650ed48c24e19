//! Errors as exceptions of `pando._errors`.

use pando::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString};

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// An error before it is an exception, which needs the interpreter's lock.
pub enum Failure {
    Pando(Error),
    /// The object, or its pool, is closed.
    Closed(&'static str),
    /// The transaction was committed or aborted.
    Over,
    InUse(&'static str),
    Forked,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Pando(error)
    }
}

pub type Outcome<T> = Result<T, Failure>;

/// An exception of the class `name`.
pub fn exception(py: Python<'_>, name: &str, message: String) -> PyErr {
    made(py, name, PyString::new(py, &message).as_any())
}

/// The exception of a key that is absent.
pub fn missing(key: &Bound<'_, PyAny>) -> PyErr {
    made(key.py(), "KeyNotFoundError", key)
}

fn made(py: Python<'_>, name: &str, argument: &Bound<'_, PyAny>) -> PyErr {
    let class = CLASSES
        .get_or_try_init(py, || PyModule::import(py, "pando._errors").map(Bound::unbind))
        .and_then(|module| module.bind(py).getattr(name));
    let made = class.and_then(|class| class.call1((argument,)));
    made.map_or_else(|error| error, PyErr::from_value)
}

impl Failure {
    pub fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Pando(error) => raise(py, error),
            Self::Closed(what) => {
                exception(py, "ClosedError", format!("the {what} is closed; open it again"))
            }
            Self::Over => {
                let message = "the transaction is over: it was committed or aborted; begin another";
                exception(py, "ClosedError", message.to_owned())
            }
            Self::InUse(what) => exception(
                py,
                "BusyError",
                format!("the {what} is in use by another thread; use it by one thread at a time"),
            ),
            Self::Forked => exception(
                py,
                "ForkError",
                "the pool was opened before this process was forked; open it again in the child, \
                 with shared=True in each process"
                    .to_owned(),
            ),
        }
    }
}

/// The name of the class of an error.
fn class_of(error: &Error) -> &'static str {
    match error {
        // Of a store: its pages have no room on the disk or in memory, or one of them is damaged.
        Error::Storage(_) if error.is_out_of_room() => "FullError",
        Error::Storage(_) if error.damaged_page().is_some() => "DamagedError",
        Error::StoreReadOnly => "ReadOnlyError",
        Error::PoolNotFound { .. }
        | Error::StoreNotFound { .. }
        | Error::FolderNotFound { .. }
        | Error::LogNotFound { .. }
        | Error::LogOfOtherPool { .. }
        | Error::LogOfStore { .. } => "PoolNotFoundError",
        Error::PoolExists { .. } | Error::LogExists { .. } | Error::LogNotEmpty { .. } => {
            "PoolExistsError"
        }
        Error::PoolBusy { .. }
        | Error::PoolEntering { .. }
        | Error::StoreBusy { .. }
        | Error::LogBusy { .. }
        | Error::TooManyProcesses { .. } => "BusyError",
        Error::PoolInUse { .. }
        | Error::MapInUse { .. }
        | Error::MapOpenElsewhere { .. }
        | Error::ThreadInside { .. } => "HandlesHeldError",
        Error::NotAPool { .. }
        | Error::NewerPool { .. }
        | Error::OlderPool { .. }
        | Error::NotAFile(_)
        | Error::UnknownIndex { .. } => "NotAPoolError",
        Error::NotTrusted { .. }
        | Error::Damaged(_)
        | Error::MapDamaged { .. }
        | Error::KeysOutOfOrder { .. }
        | Error::UndoNeedsMap
        | Error::LogDamaged { .. }
        | Error::LogForeign { .. }
        | Error::LogIsOnlyCopy { .. } => "DamagedError",
        Error::PoolFull { .. }
        | Error::FileSystemFull { .. }
        | Error::FileTooLarge { .. }
        | Error::TooManyMaps { .. }
        | Error::LogFull { .. } => "FullError",
        Error::TooManyThreads { .. } => "TooManyThreadsError",
        Error::Forked { .. } => "ForkError",
        Error::MapNotFound { .. } | Error::SlotEmpty { .. } => "MapNotFoundError",
        Error::MapIndexDiffers { .. }
        | Error::MapOptionDiffers { .. }
        | Error::PoolSizeDiffers { .. } => "MapDiffersError",
        Error::NotTransactional { .. } | Error::MapOfOtherPool { .. } => "NotTransactionalError",
        Error::NotShareable { .. } => "NotShareableError",
        Error::NoLog => "NoLogError",
        Error::Option { .. } | Error::MapName { .. } => "OptionError",
        Error::Key(_) => "KeyTypeError",
        Error::KeyExists => "KeyExistsError",
        Error::KeyNotFound => "KeyNotFoundError",
        Error::ValueMismatch { .. } => "ValueMismatchError",
        Error::KeyTooLong { .. }
        | Error::KeyTooShort { .. }
        | Error::ValueTooLong { .. }
        | Error::ValueTooShort { .. }
        | Error::TransactionTooLong { .. } => "LengthError",
        Error::Conflict { .. } => "ConflictError",
        Error::ConditionFailed { .. } => "ConditionFailedError",
        Error::AppliedNotDurable { .. } => "AppliedNotDurableError",
        Error::SnapshotRevoked => "SnapshotRevokedError",
        Error::UnknownSession { .. }
        | Error::SequenceUsed { .. }
        | Error::SequenceOutOfRange { .. } => "SessionError",
        Error::Io { .. }
        | Error::PoolNotWritable { .. }
        | Error::Log(_)
        | Error::LogStopped { .. } => "IoError",
        _ => "Error",
    }
}

pub fn raise(py: Python<'_>, error: Error) -> PyErr {
    let raised = exception(py, class_of(&error), error.to_string());
    let added = match error {
        Error::ValueMismatch { actual } => {
            raised.value(py).setattr("actual", PyBytes::new(py, &actual))
        }
        Error::ConditionFailed { key, .. } => {
            raised.value(py).setattr("key", PyBytes::new(py, &key))
        }
        _ => Ok(()),
    };
    added.err().unwrap_or(raised)
}
