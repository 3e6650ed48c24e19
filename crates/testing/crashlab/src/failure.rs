//! What a verb ends with when it does not end well.

/// A failed trial, or a trial that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Something that must hold did not.
    #[error("{what}\nreplay it: {replay}")]
    Found {
        /// What was seen, and what should have been.
        what: String,
        /// The command that shows it again.
        replay: String,
    },
    /// The machine lacks what the trial needs.
    #[error("cannot run: {0}")]
    Missing(String),
    /// The trial itself could not be run.
    #[error("{0}")]
    Trouble(String),
}

impl Failure {
    /// The trial could not be run, because `action` failed with `cause`.
    pub fn trouble(action: &str, cause: impl std::fmt::Display) -> Self {
        Self::Trouble(format!("could not {action}: {cause}"))
    }
}
