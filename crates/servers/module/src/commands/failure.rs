//! Errors of commands, as clients see them.

use crate::layout::{MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_VALUE_BYTES};
use crate::payload::Malformed;
use crate::settings;

/// A command that is refused. Nothing has taken place.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error("ERR syntax error; usage: {0}")]
    Usage(&'static str),
    #[error("ERR a key of {0} bytes; allowed are up to {MAX_KEY_BYTES}")]
    KeyTooLong(usize),
    #[error("ERR a value of {0} bytes; allowed are up to {MAX_VALUE_BYTES}")]
    ValueTooLong(usize),
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    #[error("ERR the value of the key is not an integer, or has leading zeros or spaces")]
    ValueNotAnInteger,
    #[error("ERR increment or decrement would overflow")]
    Overflow,
    #[error("ERR min or max is neither -, + nor a key behind [ or (")]
    Bound,
    #[error("ERR a cursor is 0, or a text that PANDO.SCAN has returned")]
    Cursor,
    #[error("OOM {0}")]
    Full(#[from] settings::Full),
    #[error("OOM {0}")]
    NoRoom(pando::Error),
    #[error("OOM an earlier change of the key is not in the pool yet; {0}")]
    Late(pando::Error),
    #[error("ERR the name of the map has {0} bytes; allowed are up to {MAX_NAME_BYTES}")]
    NameTooLong(usize),
    #[error("ERR {0}")]
    Evicts(#[from] settings::Evicts),
    #[error("ERR a session has 1 to 255 bytes, and a sequence is a positive integer")]
    Session,
    #[error("ERR the session's sequence {0} was used for another batch, or is not kept any more")]
    Sequence(u64),
    #[error("ERR the index of a key is {0}; allowed are 1 to {1}")]
    Index(i64, usize),
    #[error(
        "ERR the first {0} records have more than 16 MiB, and one command removes at most that; ask \
         for fewer"
    )]
    PopTooLong(usize),
    #[error("ERR malformed payload: {0}")]
    Malformed(#[from] Malformed),
    #[error("ERR {0}")]
    Pool(pando::Error),
    #[error("LOADING the module has no pool yet, or has closed it")]
    NotReady,
}

impl From<pando::Error> for Failure {
    fn from(error: pando::Error) -> Self {
        match error {
            pando::Error::PoolFull { .. }
            | pando::Error::FileSystemFull { .. }
            | pando::Error::FileTooLarge { .. } => Self::NoRoom(error),
            error => Self::Pool(error),
        }
    }
}

pub type Result<T> = std::result::Result<T, Failure>;
