//! The name of a pool's log.

use std::path::PathBuf;

/// The log of a pool, as its superblock names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogName {
    /// The number of the log, which is not zero.
    pub id: u128,
    /// Its directory, of at most
    /// [`MAX_LOG_PATH_BYTES`](crate::superblock::MAX_LOG_PATH_BYTES).
    pub path: PathBuf,
}
