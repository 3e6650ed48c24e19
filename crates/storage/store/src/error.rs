//! Errors of a store.

/// The result of a call of a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The page store refused an operation.
    #[error(transparent)]
    Pages(#[from] pando_lss::Error),
    /// The directory cannot be used.
    #[error(transparent)]
    Device(#[from] pando_device::Error),
    /// The tree refused an operation.
    #[error(transparent)]
    Index(#[from] pando_index::Error),
    /// The cache cannot be made.
    #[error(transparent)]
    Cache(#[from] pando_pmem::Error),
    /// Another handle, in this process or in another one, has the directory.
    #[error("the store in {path} is in use; close it there, or wait until its process has ended")]
    InUse {
        /// The directory.
        path: String,
    },
    /// An option has a value that is not allowed.
    #[error("{option} is {found}; allowed is {allowed}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        found: u64,
        /// The values that are possible.
        allowed: String,
    },
    /// The store was closed while an operation needed it.
    #[error("the store is closed")]
    Closed,
}
