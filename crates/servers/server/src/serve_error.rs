//! The errors of the server.

use pando_keyspace::failure::Failure;

/// The reason why the server does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The store cannot be opened or closed.
    #[error("{0}")]
    Store(String),
    /// The pool has no log, so its writes cannot be synced.
    #[error(
        "--sync needs a pool with a log, and this pool has none; leave out --sync, or create a pool with a log \
         by --log DIR, and load a snapshot into it by --restore; that fails if a field or member has more than \
         about 8 MiB"
    )]
    SyncWithoutLog,
    /// A socket, TLS or a thread cannot be set up.
    #[error(transparent)]
    Net(#[from] pando_net::Error),
    /// A value of a config parameter is not allowed.
    #[error("{name} cannot be {value}: {reason}")]
    Config {
        /// Its name.
        name: String,
        /// The refused value in quotes; words in its place if it is a password.
        value: String,
        /// The reason.
        reason: String,
    },
    /// A thread of the server has panicked, which has ended the server.
    #[error(
        "the thread '{thread}' has panicked: {reason}; what was acknowledged is kept. Start the server again, and \
         report this as an error of Pando, with the server's log"
    )]
    Panicked {
        /// The name of the thread.
        thread: String,
        /// The words of the panic.
        reason: String,
    },
    /// The file of users cannot be read.
    #[error("the file of users {path} cannot be loaded: {reason}")]
    Users {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
}

impl From<Failure> for ServeError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Store(error) => Self::Store(error.to_string()),
            // Without the code of a reply to a client.
            other => {
                let text = other.to_string();
                Self::Store(text.strip_prefix("ERR ").unwrap_or(&text).to_owned())
            }
        }
    }
}
