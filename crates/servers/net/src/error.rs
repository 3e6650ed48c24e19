//! Why nothing can be served.

use std::io;

/// Why nothing can be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody can be listened to at an address.
    #[error("cannot listen at {at}: {source}; free it, or name another")]
    Listen {
        /// The address or path.
        at: String,
        /// Why.
        source: io::Error,
    },
    /// A certificate or a key cannot be used.
    #[error("TLS cannot be spoken: {0}")]
    Tls(String),
    /// A thread or an event loop cannot be started.
    #[error("cannot start an event loop: {0}")]
    Start(#[source] io::Error),
}
