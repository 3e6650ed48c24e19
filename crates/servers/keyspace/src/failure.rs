//! Why a command failed, as clients are told.

use std::borrow::Cow;

/// What a command answers with instead of a result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An error in Redis's words, with its code first.
    #[error("{0}")]
    Reply(Cow<'static, str>),
    /// The store refused.
    #[error("ERR {0}")]
    Store(#[from] pando::Error),
    /// A record cannot be read.
    #[error(
        "ERR the record of a key is damaged; stop the server and run `pando check` on its pool"
    )]
    Damaged,
}

impl Failure {
    /// Whether it is that there is no more memory.
    pub fn is_no_memory(&self) -> bool {
        use pando::Error::{FileSystemFull, FileTooLarge, PoolFull};
        match self {
            Self::Reply(words) => words.starts_with("OOM "),
            Self::Store(error) => {
                matches!(error, PoolFull { .. } | FileSystemFull { .. } | FileTooLarge { .. })
            }
            Self::Damaged => false,
        }
    }
}

/// An error in fixed words.
pub const fn fail(words: &'static str) -> Failure {
    Failure::Reply(Cow::Borrowed(words))
}

/// An error in words made up for it.
pub fn fail_with(words: String) -> Failure {
    Failure::Reply(Cow::Owned(words))
}

/// A key holds another kind of value.
pub const WRONG_TYPE: Failure =
    fail("WRONGTYPE Operation against a key holding the wrong kind of value");
/// The limit on memory is reached.
pub const NO_MEMORY: Failure = fail("OOM command not allowed when used memory > 'maxmemory'.");

/// What a command may end with.
pub type Result<T, E = Failure> = std::result::Result<T, E>;
