//! Errors that keep a server from starting.

use std::io;

/// An error that keeps a server from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server cannot listen at an address.
    #[error("cannot listen at {at}: {source}; free the address, or choose another port or address")]
    Listen {
        /// The address or path.
        at: String,
        /// The system's error.
        source: io::Error,
    },
    /// A certificate or a key cannot be used.
    #[error(
        "TLS cannot be used: {0}; check the files of --tls-cert, --tls-key and --tls-client-ca"
    )]
    Tls(String),
    /// A thread or an event loop cannot be started.
    #[error("cannot start an event loop: {0}")]
    Start(#[source] io::Error),
}
