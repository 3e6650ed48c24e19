//! The errors of the verbs.

/// A failed trial, or a trial that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A trial found a fault.
    #[error("{what}\nreplay it: {replay}")]
    Found {
        /// The found and the expected state.
        what: String,
        /// The command that shows it again.
        replay: String,
    },
    /// The machine lacks something that the trial needs.
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
