//! Why a command failed, as clients are told.

use std::borrow::Cow;

/// What a command answers with instead of a result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An error in Redis's words, with its code first.
    #[error("{0}")]
    Said(Cow<'static, str>),
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
    pub(crate) fn is_no_memory(&self) -> bool {
        use pando::Error::{FileSystemFull, FileTooLarge, PoolFull};
        match self {
            Self::Said(words) => words.starts_with("OOM "),
            Self::Store(error) => {
                matches!(error, PoolFull { .. } | FileSystemFull { .. } | FileTooLarge { .. })
            }
            Self::Damaged => false,
        }
    }
}

/// An error in fixed words.
pub(crate) const fn said(words: &'static str) -> Failure {
    Failure::Said(Cow::Borrowed(words))
}

/// An error in words made up for it.
pub(crate) fn told(words: String) -> Failure {
    Failure::Said(Cow::Owned(words))
}

pub(crate) const WRONG_TYPE: Failure =
    said("WRONGTYPE Operation against a key holding the wrong kind of value");
pub(crate) const SYNTAX: Failure = said("ERR syntax error");
pub(crate) const NOT_AN_INTEGER: Failure = said("ERR value is not an integer or out of range");
pub(crate) const NOT_A_FLOAT: Failure = said("ERR value is not a valid float");
pub(crate) const OUT_OF_RANGE: Failure = said("ERR increment or decrement would overflow");
pub(crate) const NO_MEMORY: Failure =
    said("OOM command not allowed when used memory > 'maxmemory'.");
pub(crate) const NO_SUCH_KEY: Failure = said("ERR no such key");

/// What a command may end with.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;
