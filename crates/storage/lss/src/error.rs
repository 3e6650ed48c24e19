//! Errors of a page store.

use crate::part::MAX_PARTS;

/// The result of a call of a page store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device refused an operation. Nothing was changed, apart from files that the next
    /// opening finds.
    #[error(transparent)]
    Device(#[from] pando_device::Error),
    /// There is no room for more segments: the limit of the store is reached, the file system is
    /// full, or the process has no file descriptor left for one more. Reads go on.
    #[error(
        "{path} has no room: {segments} segments of {segment_bytes} bytes hold {live_bytes} bytes \
         of pages; make room on the file system, remove records, raise the process's limit of open \
         files, or raise the limit of the store, if the program has set one"
    )]
    Full {
        /// The directory of the store.
        path: String,
        /// Segments that the store has.
        segments: usize,
        /// Bytes of each.
        segment_bytes: u64,
        /// Bytes of the parts that pages consist of.
        live_bytes: u64,
    },
    /// A write or a sync has failed, so what the device holds is not known. Reads go on; open the
    /// store again to write.
    #[error("{path} takes no more writes: {cause}; repair the device and open the store again")]
    Failed {
        /// The directory of the store.
        path: String,
        /// The first failure.
        cause: String,
    },
    /// The bytes of a page are not as they were written. Other pages can be read.
    #[error("page {pid} is damaged, in {path}, byte {at}: {what}; restore it from a backup")]
    DamagedPage {
        /// The page.
        pid: u32,
        /// The file.
        path: String,
        /// The byte at which the damaged part begins.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The store cannot be opened, because bytes that were durable are not as they were written.
    #[error("{path} is damaged: {what}; restore the store from a backup")]
    Damaged {
        /// The file, or the directory.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// The directory holds no page store.
    #[error("{path} holds no page store: it has no superblock; create one, or name another folder")]
    NotAStore {
        /// The directory.
        path: String,
    },
    /// The directory holds something else, or a store.
    #[error("{path} is not empty: it has {name}; name an empty folder")]
    NotEmpty {
        /// The directory.
        path: String,
        /// A file in it.
        name: String,
    },
    /// A value is outside of its limits.
    #[error("{what} is {found}; allowed is {allowed}")]
    Limit {
        /// The value.
        what: &'static str,
        /// The value that was given.
        found: u64,
        /// The values that are possible.
        allowed: String,
    },
    /// The group was not written, because one of its deltas has no place. Write the whole page.
    #[error("page {pid} takes no delta: {why}")]
    NeedsBase {
        /// The page.
        pid: u32,
        /// The reason.
        why: NoDelta,
    },
}

/// Why a page takes no delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDelta {
    /// The page does not exist.
    #[error("it does not exist")]
    NoPage,
    /// The page has as many parts as it may have.
    #[error("it has {MAX_PARTS} parts")]
    Parts,
    /// The page would have too many bytes.
    #[error("it would be longer than a page may be")]
    Bytes,
}
