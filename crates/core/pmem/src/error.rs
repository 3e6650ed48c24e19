//! What can go wrong with a pool, each with what was found and what to do.

use std::path::PathBuf;

/// Why a pool could not be created, opened, or could not serve a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The pool's file.
        path: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file exists already.
    #[error("{}: the file exists; open it, or choose another name for a new pool", .0.display())]
    Exists(PathBuf),
    /// The file may not be written.
    #[error("{}: the file is not writable; a pool needs write permission even to be read", .0.display())]
    ReadOnly(PathBuf),
    /// Another opener holds the pool.
    #[error("{}: the pool is open elsewhere, and one process uses a pool at a time; close it there first", .0.display())]
    AlreadyOpen(PathBuf),
    /// The path names something else than a regular file.
    #[error("{}: not a regular file; a pool is one", .0.display())]
    NotAFile(PathBuf),
    /// The file is not a pool.
    #[error("{}: not a Pando pool: it begins with {found:02x?}, a pool with {expected:02x?}", path.display())]
    NotAPool {
        /// The file.
        path: PathBuf,
        /// Its first eight bytes, as far as there are any.
        found: Vec<u8>,
        /// A pool's first eight bytes.
        expected: [u8; 8],
    },
    /// The pool was written by a later version of the format.
    #[error("{}: the pool has format version {found}, this library reads version {supported}; use a newer Pando", path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version that is read.
        supported: u32,
    },
    /// The pool was written by an earlier version of the format.
    #[error("{}: the pool has format version {found}, this library reads version {supported}; copy its maps with the Pando that wrote it (`pando dump`) into a new pool (`pando load`)", path.display())]
    OlderVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version that is read.
        supported: u32,
    },
    /// A part of the superblock does not match its checksum.
    #[error("{}: the superblock is damaged: {part} has checksum {found:#x}, its content {computed:#x}; restore the pool from a copy", path.display())]
    DamagedSuperblock {
        /// The file.
        path: PathBuf,
        /// Which part of the superblock.
        part: &'static str,
        /// The checksum found.
        found: u64,
        /// The checksum of what was found.
        computed: u64,
    },
    /// A field of the superblock holds a value that this library cannot have written.
    #[error("{}: the superblock holds {found} for {field}, allowed is {allowed}", path.display())]
    BadField {
        /// The file.
        path: PathBuf,
        /// The field's name.
        field: &'static str,
        /// What it holds.
        found: u64,
        /// What it may hold.
        allowed: String,
    },
    /// The pool may grow to another size than the one that was asked for.
    #[error("{}: the pool may grow to {found} bytes, which was fixed when it was created, not to {expected}; open it without a size", path.display())]
    SizeDiffers {
        /// The file.
        path: PathBuf,
        /// How far the pool may grow.
        found: u64,
        /// How far it was to be able to grow, in whole chunks.
        expected: u64,
    },
    /// The file ends before the pool does.
    #[error("{}: the file is truncated: it has {found_bytes} bytes, the pool {expected_bytes}; restore it from a copy", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length.
        found_bytes: u64,
        /// Length of the pool.
        expected_bytes: u64,
    },
    /// The machine went down, or may have, for all that the system tells of its boots, while the
    /// pool was open in a way that only survives the death of a process.
    #[error("{}: the pool was open when the machine went down, and what was written ({medium}) kept no order across that; restore a copy, or open it for salvage", path.display())]
    NotTrusted {
        /// The file.
        path: PathBuf,
        /// The medium on which it lies now.
        medium: String,
    },
    /// An option is out of its range.
    #[error("the option {option} is {found}; allowed is {allowed}")]
    BadOption {
        /// The option's name.
        option: &'static str,
        /// Its value.
        found: u64,
        /// What is allowed.
        allowed: String,
    },
    /// The pool has grown as far as it may.
    #[error(
        "the pool is full: {requested_bytes} bytes were asked for, and it may not grow beyond {max_bytes}; remove something, or create a pool with a larger maximum"
    )]
    PoolFull {
        /// Bytes that were asked for.
        requested_bytes: u64,
        /// How far the pool may grow.
        max_bytes: u64,
    },
    /// The file system is full.
    #[error(
        "the file system is full: the pool could not grow from {from_bytes} to {to_bytes} bytes: {source}; make room, then go on"
    )]
    FileSystemFull {
        /// Size of the pool.
        from_bytes: u64,
        /// Size it was to have.
        to_bytes: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file may not become larger: the process has a limit (`RLIMIT_FSIZE`), or the file system
    /// has one.
    #[error(
        "{}: the pool's file may not grow from {from_bytes} to {to_bytes} bytes ({source}); raise the \
         process's limit (`ulimit -f`), or move the pool to a file system that takes larger files",
        path.display()
    )]
    FileTooLarge {
        /// The pool's file.
        path: PathBuf,
        /// Size of the pool.
        from_bytes: u64,
        /// Size it was to have.
        to_bytes: u64,
        /// The system's error.
        source: std::io::Error,
    },
    /// More threads are inside operations at once than the table of participants has slots, and it
    /// cannot grow.
    #[error(
        "{threads} threads are inside operations at once, and the pool's table of participants cannot grow: {why}; try again with fewer threads"
    )]
    NoParticipantSlot {
        /// Slots of the table.
        threads: usize,
        /// Why it cannot grow.
        why: String,
    },
    /// A thread that ends, and has given its participant slots back, used a pool.
    #[error("the thread is ending and has given its participant slots back; use the pool earlier")]
    ThreadEnds,
    /// A child that was forked used the pool of its parent.
    #[error("{}: the pool was opened before this process was forked; it stays its parent's, so close it there and open it here", .0.display())]
    Forked(PathBuf),
    /// The pool was to be closed while another handle of it is held.
    #[error("{}: the pool is not closed yet: another handle of it is held; it closes with the last", .0.display())]
    HandleHeld(PathBuf),
    /// A block was freed that is not allocated now, or never was.
    #[error("offset {off:#x} was freed, but {reason}; nothing was changed")]
    BadFree {
        /// The offset that was given.
        off: u64,
        /// What stands there.
        reason: &'static str,
    },
    /// A block larger than any pool can hold was asked for.
    #[error("a block of {requested_bytes} bytes was asked for; the largest is {max_bytes}")]
    BlockTooLarge {
        /// Bytes asked for.
        requested_bytes: u64,
        /// The largest block.
        max_bytes: u64,
    },
}

/// The result of a call on a pool.
pub type Result<T, E = Error> = std::result::Result<T, E>;
