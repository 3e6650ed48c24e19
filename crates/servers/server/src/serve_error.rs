//! Why the server does not run.

use pando_keyspace::failure::Failure;

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The pool cannot be opened, or closed.
    #[error("{0}")]
    Store(String),
    /// Nobody can be listened to, or served.
    #[error(transparent)]
    Net(#[from] pando_net::Error),
    /// A config parameter cannot be what it is to be.
    #[error("{name} cannot be '{value}': {reason}")]
    Config {
        /// Its name.
        name: String,
        /// What it was to be.
        value: String,
        /// Why not.
        reason: String,
    },
    /// The users' file cannot be read.
    #[error("the users cannot be loaded from {path}: {reason}")]
    Users {
        /// The file.
        path: String,
        /// Why not.
        reason: String,
    },
}

impl From<Failure> for ServeError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Store(error) => Self::Store(error.to_string()),
            other => Self::Store(other.to_string()),
        }
    }
}
