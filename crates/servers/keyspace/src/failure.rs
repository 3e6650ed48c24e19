//! Errors of commands.

use std::borrow::Cow;

/// The error of a command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An error reply in Redis's form: its code first.
    #[error("{0}")]
    Reply(Cow<'static, str>),
    /// An error of the pool.
    #[error("{code} {0}", code = code_of(.0))]
    Store(#[from] pando::Error),
    /// A record of a key is damaged.
    #[error(
        "ERR the record of a key is damaged; stop the server and run `pando check` on its pool"
    )]
    Damaged,
}

impl Failure {
    /// Whether the cause is a lack of memory or room.
    pub fn is_no_memory(&self) -> bool {
        match self {
            Self::Reply(words) => words.starts_with("OOM "),
            Self::Store(error) => error.is_out_of_room(),
            Self::Damaged => false,
        }
    }

    /// Whether a page of a record store cannot be read. Others can.
    pub(crate) fn is_of_damaged_page(&self) -> bool {
        matches!(self, Self::Store(error) if error.damaged_page().is_some())
    }
}

/// The code of the error reply for an error of the pool. MISCONF is Redis's code for a server that
/// cannot write its log.
fn code_of(error: &pando::Error) -> &'static str {
    use pando::Error::{AppliedNotDurable, Log, LogDamaged, LogForeign, LogFull, LogStopped};
    match error {
        Log(_)
        | LogDamaged { .. }
        | LogForeign { .. }
        | LogFull { .. }
        | LogStopped { .. }
        | AppliedNotDurable { .. } => "MISCONF",
        _ => "ERR",
    }
}

/// An error reply of constant text.
pub const fn fail(words: &'static str) -> Failure {
    Failure::Reply(Cow::Borrowed(words))
}

/// An error reply of formatted text.
pub fn fail_with(words: String) -> Failure {
    Failure::Reply(Cow::Owned(words))
}

/// A key holds another kind of value.
pub const WRONG_TYPE: Failure =
    fail("WRONGTYPE Operation against a key holding the wrong kind of value");
/// The memory limit is reached.
pub const NO_MEMORY: Failure = fail("OOM command not allowed when used memory > 'maxmemory'.");

/// The result of a command.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use pando::LogFiles;

    use super::*;

    #[test]
    fn an_error_of_the_log_has_the_code_misconf() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = LogFiles::at(folder.path()).verify().expect_err("it has no log");
        assert!(matches!(error, pando::Error::LogDamaged { .. }), "{error:?}");
        let said = Failure::from(error).to_string();
        assert!(said.starts_with("MISCONF "), "{said}");
    }
}
