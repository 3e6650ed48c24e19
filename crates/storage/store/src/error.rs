//! Errors of a store.

use pando_bwtree::PageError;

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
    /// The memory of the cache, or the file `control`, cannot be used.
    #[error(transparent)]
    Memory(#[from] pando_pmem::Error),
    /// The log refused an operation.
    #[error(transparent)]
    Log(#[from] pando_log::Error),
    /// A transaction did not take place.
    #[error(transparent)]
    Transactions(#[from] pando_tc::Error),
    /// There is a map of that name.
    #[error("there is a map {name:?} already; open it, or choose another name")]
    MapExists {
        /// The name.
        name: String,
    },
    /// There is no map of that name.
    #[error("there is no map {name:?}; create it first")]
    MapNotFound {
        /// The name.
        name: String,
    },
    /// A map cannot have this name.
    #[error("a map cannot be called {found:?}; a name has 1 to {max_bytes} bytes")]
    Name {
        /// The name.
        found: String,
        /// Its longest length.
        max_bytes: usize,
    },
    /// A handle of the map is held, so it is not dropped.
    #[error("a handle of map {name:?} is held; drop the handles first")]
    HandleHeld {
        /// The map.
        name: String,
    },
    /// A thread stays inside a call on the map.
    #[error(
        "map {name:?} is dropped, but a thread has been inside a call for a second; its records \
         are removed after the next opening"
    )]
    ThreadInside {
        /// The map.
        name: String,
    },
    /// The log does not go with the pages.
    #[error(
        "the log in {path} is not that of the pages beside it: {what}; restore both from the same \
         backup"
    )]
    OtherLog {
        /// The directory of the log.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// The store is damaged.
    #[error("the store is damaged: {what}; restore it from a backup")]
    Damaged {
        /// What is wrong.
        what: String,
    },
    /// A page could not be read when the log was replayed, so it lacks commits. The log keeps them:
    /// no checkpoint succeeds before an opening that can read the page.
    #[error("page {page} lacks commits of the log, which could not be replayed: {cause}")]
    NotReplayed {
        /// The page.
        page: u32,
        /// Why it could not be read.
        cause: String,
    },
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

/// The damaged page of an operation that needs it. An error of other pages, which could not be
/// evicted meanwhile, is inside another one.
pub(crate) fn damaged_page(error: &pando_index::Error) -> Option<u32> {
    let pando_index::Error::Storage(source) = error else { return None };
    unreadable_page(source.as_ref())
}

/// The same, of the source of an error of the index.
pub fn unreadable_page(source: &(dyn std::error::Error + 'static)) -> Option<u32> {
    match (source.downcast_ref::<Error>(), source.downcast_ref::<PageError>()) {
        (Some(Error::Pages(pando_lss::Error::DamagedPage { pid, .. })), _) => Some(*pid),
        (Some(Error::NotReplayed { page, .. }), _) | (_, Some(PageError::Damaged { page, .. })) => {
            Some(*page)
        }
        _ => None,
    }
}

/// Whether the disk, or the cache, has no room for an operation.
pub fn is_out_of_room(source: &(dyn std::error::Error + 'static)) -> bool {
    matches!(source.downcast_ref(), Some(Error::Pages(pando_lss::Error::Full { .. })))
        || matches!(source.downcast_ref(), Some(PageError::CacheFull { .. }))
}
