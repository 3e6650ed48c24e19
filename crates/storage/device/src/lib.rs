//! Files of one directory, and the rules that decide which of their bytes survive a power cut.
//!
//! The log and the record store are written against two traits: [`Directory`] and [`File`]. There
//! are three implementations. [`Disk`] is a directory of a file system. [`Overlay`] is another
//! directory with changes that are in memory alone. `Simulated` (feature `simulated`) is a
//! directory in memory, which a test may cut off at any point in time, in every way that the rules
//! below allow.
//!
//! # What survives a power cut
//!
//! | change | survives for certain after | before that |
//! | --- | --- | --- |
//! | bytes written into a file, and its size | [`File::sync`] | any subset of the written sectors of 512 bytes, in any order |
//! | a file created, renamed or removed | [`Directory::sync`] | any subset of these changes, each whole |
//!
//! A file's bytes and its name are independent: a synced file whose directory was not synced may
//! have no name, and a name may lead to a file whose bytes are not there.
//!
//! A [`File::sync`] that fails says that some bytes written before it may be lost for ever. The
//! kernel may have dropped the pages, so a second sync may succeed and prove nothing. The caller
//! must not call it again for the same bytes. Linux reports a failure once for each open handle of
//! the file. So a thread relies only on a handle that it opened before it wrote, and that no other
//! thread syncs.

mod disk;
mod memory_copy;
mod overlay;
#[cfg(feature = "simulated")]
pub mod simulated;

use std::fmt;
use std::io;

pub use disk::{DirectoryLock, Disk};
pub use memory_copy::copy_into_memory;
pub use overlay::Overlay;
use rustix::io::Errno;

/// Bytes that a device writes as a whole: a power cut leaves a sector's old bytes or its new ones.
pub const SECTOR_BYTES: usize = 512;

/// Which operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Opening the directory itself.
    OpenDirectory,
    /// Listing the names of a directory.
    List,
    /// Opening a file.
    Open,
    /// Creating a file.
    Create,
    /// Giving a file another name.
    Rename,
    /// Removing a file.
    Remove,
    /// Making names durable.
    SyncDirectory,
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Allocating room for a file.
    Allocate,
    /// Making bytes durable.
    Sync,
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::OpenDirectory => "opening the directory",
            Self::List => "listing the directory",
            Self::Open => "opening",
            Self::Create => "creating",
            Self::Rename => "renaming",
            Self::Remove => "removing",
            Self::SyncDirectory => "syncing the directory",
            Self::Read => "reading",
            Self::Write => "writing",
            Self::Allocate => "allocating room for",
            Self::Sync => "syncing",
        })
    }
}

/// An operation that the device, or its file system, refused.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {path} failed: {source}")]
pub struct Error {
    /// Which operation.
    pub operation: Operation,
    /// The file, or the directory.
    pub path: String,
    /// The answer of the system.
    pub source: io::Error,
}

impl Error {
    /// Whether the operation failed only because there is no room: it may succeed once there is.
    pub fn is_full(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
    }

    /// Whether the system lacked descriptors or memory for the moment, or the call was interrupted,
    /// and nothing is in doubt: the operation may succeed later. Never of a write or a sync.
    pub fn is_transient(&self) -> bool {
        let is_lacking = matches!(
            self.source.raw_os_error().map(Errno::from_raw_os_error),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR)
        );
        let is_in_doubt =
            matches!(self.operation, Operation::Write | Operation::Sync | Operation::SyncDirectory);
        is_lacking && !is_in_doubt
    }

    /// Whether a file, or the directory, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Whether the file system has no such operation.
    pub fn is_unsupported(&self) -> bool {
        self.source.kind() == io::ErrorKind::Unsupported
    }

    /// Whether a file has the name already.
    pub fn is_taken(&self) -> bool {
        self.source.kind() == io::ErrorKind::AlreadyExists
    }
}

/// The result of an operation of a device.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The files of one directory, by name.
///
/// Any number of threads may use one directory at once.
pub trait Directory: fmt::Debug + Send + Sync {
    /// Where it is, for messages.
    fn path(&self) -> String;

    /// The names of its files, in no order.
    ///
    /// # Errors
    ///
    /// What the system answers.
    fn names(&self) -> Result<Vec<String>>;

    /// Opens the file `name`, to be read and written.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] if no file has that name; else what the system answers.
    fn open(&self, name: &str) -> Result<Box<dyn File>>;

    /// Opens the file `name`, to be read alone: also on a file system that cannot be written.
    /// Writes to it are refused.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    fn open_read_only(&self, name: &str) -> Result<Box<dyn File>>;

    /// Creates the empty file `name`. The name is durable after [`sync`](Self::sync).
    ///
    /// # Errors
    ///
    /// [`Error::is_taken`] if a file has that name; else what the system answers.
    fn create(&self, name: &str) -> Result<Box<dyn File>>;

    /// Gives the file `from` the name `to`, which no file has, in one step. Of several threads that
    /// ask for one name, one succeeds. Durable after [`sync`](Self::sync). Open files stay open.
    ///
    /// # Errors
    ///
    /// [`Error::is_taken`] if a file is called `to`, [`Error::is_not_found`] if none is called
    /// `from`, [`Error::is_unsupported`] if the file system cannot refuse a name that is taken;
    /// else what the system answers.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// As [`rename`](Self::rename), but a file that is called `to` is removed by the same step.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] if no file is called `from`; else what the system answers.
    fn replace(&self, from: &str, to: &str) -> Result<()>;

    /// Removes the file `name`. Durable after [`sync`](Self::sync). Open files stay open.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] if no file has that name; else what the system answers.
    fn remove(&self, name: &str) -> Result<()>;

    /// Makes all earlier changes of names durable.
    ///
    /// # Errors
    ///
    /// What the system answers. If the operation of the error is [`Operation::SyncDirectory`], a
    /// second call proves nothing, as after a failed [`File::sync`]. If it is another one, no sync
    /// has begun, and the call may be repeated.
    fn sync(&self) -> Result<()>;
}

/// An open file. Any number of threads may use it at once.
pub trait File: fmt::Debug + Send + Sync {
    /// Its size in bytes.
    ///
    /// # Errors
    ///
    /// What the system answers.
    fn size_bytes(&self) -> Result<u64>;

    /// Fills `bytes` with those from byte `at` on.
    ///
    /// # Errors
    ///
    /// If the file ends before that ([`io::ErrorKind::UnexpectedEof`]); else what the system
    /// answers.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<()>;

    /// Writes `bytes` from byte `at` on. The file grows if it must. Durable after
    /// [`sync`](Self::sync); a power cut before that may keep any sectors of it.
    ///
    /// # Errors
    ///
    /// What the system answers; some of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()>;

    /// Makes the file `bytes` bytes long, if it is shorter, with zeros that are written and not
    /// only promised. Later writes then find their blocks in place: a sync of such a write costs
    /// no metadata.
    ///
    /// # Errors
    ///
    /// [`Error::is_full`] if the file system has no room; else what the system answers.
    fn allocate(&self, bytes: u64) -> Result<()>;

    /// Makes all bytes durable that were written before the call, and the size.
    ///
    /// # Errors
    ///
    /// What the system answers. Bytes written before the call may then be lost; see [the
    /// module](crate).
    fn sync(&self) -> Result<()>;
}
