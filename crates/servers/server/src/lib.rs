//! Serves ordered maps over the Redis and memcached protocols. Acknowledged writes survive the end
//! of the process. The next process has them at once, whatever the size of the pool.
//!
//! Other crates have the protocols (`pando-redis`, `pando-memcached`), the stored data
//! (`pando-keyspace`) and the parts that servers share (`pando-net`). This crate combines them:
//! `run.rs` starts and stops the server, `connection.rs` and `admission.rs` accept clients,
//! `sweep.rs` removes in the background, `panics.rs` ends the server if a thread panics, `site`
//! reports over HTTP.

mod admission;
#[cfg(test)]
#[path = "../../../pando/tests/log/broken_disk.rs"]
mod broken_disk;
mod connection;
#[cfg(test)]
mod log_tests;
mod options;
mod panics;
mod run;
mod serve_error;
mod shared;
mod site;
pub mod status;
#[cfg(test)]
mod store_tests;
mod sweep;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod web_request_tests;

pub use pando_keyspace::{MAP_NAME, SyncMode};
pub use pando_net::tls::TlsOptions;

pub use self::options::Options;
pub use self::serve_error::ServeError;

/// Serves until SIGTERM, SIGINT or a client's SHUTDOWN, then closes the pool. On SIGUSR2 the
/// process executes the program that is then at its path. That program continues with the same
/// sockets, so this function does not return.
///
/// # Errors
///
/// [`ServeError`]: the part that cannot be opened, bound or set, and the reason.
pub fn serve(options: &Options) -> Result<(), ServeError> {
    run::serve(options)
}
