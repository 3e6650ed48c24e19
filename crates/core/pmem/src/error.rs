//! The errors of a pool: each says what was found and what to do next.

use std::path::{Path, PathBuf};

use crate::log_name::LogName;

/// Why a pool was not created or opened, or refused a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The pool's file.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file exists already.
    #[error("{}: the file exists; open it, or choose another name for a new pool", .0.display())]
    Exists(PathBuf),
    /// The file is not writable.
    #[error("{}: the file is not writable; give write permission, which reading a pool needs too", .0.display())]
    ReadOnly(PathBuf),
    /// The pool is open in another place, and not shared by both.
    #[error("{}: the pool is open elsewhere; close it there first, or share it, in each process that opens it", .0.display())]
    AlreadyOpen(PathBuf),
    /// Another process was opening or closing the pool all the time.
    #[error("{}: another process has been opening or closing the pool for {waited_ms} ms; if that process is stopped, continue it or end it, then try again", path.display())]
    Entering {
        /// The pool's file.
        path: PathBuf,
        /// How long this process has waited, in milliseconds.
        waited_ms: u64,
    },
    /// As many processes share the pool as may.
    #[error("{}: {max} processes share the pool, which is the most; close it in one of them first", path.display())]
    TooManyProcesses {
        /// The pool's file.
        path: PathBuf,
        /// The most processes.
        max: usize,
    },
    /// The pool cannot be shared by several processes.
    #[error("{}: the pool cannot be shared: {why}; open it by one process at a time", path.display())]
    NotShareable {
        /// The pool's file.
        path: PathBuf,
        /// Why not.
        why: &'static str,
    },
    /// The path does not name a regular file.
    #[error("{}: not a regular file, which a pool is; check the path", .0.display())]
    NotAFile(PathBuf),
    /// The file is not a pool.
    #[error("{}: not a Pando pool: it begins with {found:02x?}, a pool with {expected:02x?}; check the path", path.display())]
    NotAPool {
        /// The file.
        path: PathBuf,
        /// Its first eight bytes; fewer if it is shorter.
        found: Vec<u8>,
        /// The first eight bytes of a pool.
        expected: [u8; 8],
    },
    /// The pool was written by a later version of the format.
    #[error("{}: the pool has format version {found}, and this library reads version {supported}; use a newer Pando", path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version that is read.
        supported: u32,
    },
    /// The pool was written by an earlier version of the format.
    #[error("{}: the pool has format version {found}, and this library reads version {supported}; copy its maps with the Pando that wrote it (`pando dump`) into a new pool (`pando load`)", path.display())]
    OlderVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version that is read.
        supported: u32,
    },
    /// A part of the superblock does not match its checksum.
    #[error("{}: the superblock is damaged: {part} has checksum {found:#x}, but its content has {computed:#x}; restore the pool from a copy", path.display())]
    DamagedSuperblock {
        /// The file.
        path: PathBuf,
        /// The part of the superblock.
        part: &'static str,
        /// The checksum found.
        found: u64,
        /// The checksum of the content.
        computed: u64,
    },
    /// A field of the superblock holds a value that this library never writes.
    #[error("{}: the superblock holds {found} for {field}, allowed is {allowed}; restore the pool from a copy", path.display())]
    BadField {
        /// The file.
        path: PathBuf,
        /// The field's name.
        field: &'static str,
        /// Its value.
        found: u64,
        /// The allowed values.
        allowed: String,
    },
    /// The limit of the pool's size is not the requested one.
    #[error("{}: the pool may grow to {found} bytes, not to {expected}, since its limit was fixed when it was created; open it without a size", path.display())]
    SizeDiffers {
        /// The file.
        path: PathBuf,
        /// The limit of the pool's size, in bytes.
        found: u64,
        /// The requested limit, in whole chunks.
        expected: u64,
    },
    /// The file is shorter than its pool.
    #[error("{}: the file is truncated: it has {found_bytes} bytes, and its pool has {expected_bytes}; restore it from a copy", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length.
        found_bytes: u64,
        /// Length of the pool.
        expected_bytes: u64,
    },
    /// The machine went down, or may have, while the pool was open in a way that survives only the
    /// death of a process.
    #[error("{}: the pool was open when the machine went down, and its medium ({medium}) does not keep the order of writes then; restore a copy, or open it for salvage", path.display())]
    NotTrusted {
        /// The file.
        path: PathBuf,
        /// The current medium of the file.
        medium: String,
        /// The log of the pool, from which it can be recovered; none if it has no log.
        log: Option<Box<LogName>>,
    },
    /// An option is out of its range.
    #[error("the option {option} is {found}; allowed is {allowed}")]
    BadOption {
        /// The option's name.
        option: &'static str,
        /// Its value.
        found: u64,
        /// The allowed values.
        allowed: String,
    },
    /// The pool is full, and has reached its limit.
    #[error(
        "the pool is full: it has no room for {requested_bytes} bytes more, and may not grow beyond {max_bytes} bytes; remove records, or create a pool with a larger limit"
    )]
    PoolFull {
        /// The requested bytes.
        requested_bytes: u64,
        /// The limit of the pool's size, in bytes.
        max_bytes: u64,
    },
    /// The file system is full.
    #[error(
        "the file system is full: the pool could not grow from {from_bytes} to {to_bytes} bytes: {source}; make room and try again"
    )]
    FileSystemFull {
        /// Size of the pool.
        from_bytes: u64,
        /// The size that it needs.
        to_bytes: u64,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file may not become larger: the process (`RLIMIT_FSIZE`) or the file system has a limit.
    #[error(
        "{}: the pool's file may not grow from {from_bytes} to {to_bytes} bytes ({source}); raise the \
         limit of the process (`ulimit -f`), or move the pool to a file system with larger files",
        path.display()
    )]
    FileTooLarge {
        /// The pool's file.
        path: PathBuf,
        /// Size of the pool.
        from_bytes: u64,
        /// The size that it needs.
        to_bytes: u64,
        /// The system's error.
        source: std::io::Error,
    },
    /// More threads are inside operations at once than the table of participants has slots, and the
    /// table cannot grow.
    #[error(
        "{threads} threads are inside operations at once, and the pool's table of participants cannot grow: {why}; try again with fewer threads"
    )]
    NoParticipantSlot {
        /// Slots of the table.
        threads: usize,
        /// Why it cannot grow.
        why: String,
    },
    /// A thread used a pool after it had given its participant slots back, at its end.
    #[error("the thread is ending and has given its participant slots back; use the pool earlier")]
    ThreadEnds,
    /// A forked child used a pool of its parent.
    #[error("{}: the pool was opened before this process was forked, so only the parent may use it; close it there and open it here", .0.display())]
    Forked(PathBuf),
    /// The pool was not closed, since another handle of it exists.
    #[error("{}: the pool is not closed yet, since another handle of it exists; drop the last handle", .0.display())]
    HandleHeld(PathBuf),
    /// An offset was freed that is not that of an allocated block.
    #[error("offset {off:#x} was freed, but {reason}; nothing was changed")]
    BadFree {
        /// The offset that was given.
        off: u64,
        /// Why it cannot be freed.
        reason: &'static str,
    },
    /// A block was requested that is larger than any block of a pool.
    #[error("a block of {requested_bytes} bytes was requested; the largest has {max_bytes} bytes")]
    BlockTooLarge {
        /// The requested bytes.
        requested_bytes: u64,
        /// Bytes of the largest block.
        max_bytes: u64,
    },
}

/// The result of a call on a pool.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a system call on the pool's file.
pub(crate) fn io_error(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::Io { path, action, source }
}
