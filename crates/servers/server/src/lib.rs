//! Serves ordered maps over the Redis and memcached protocols. What is acknowledged survives the
//! death of the process, and the next one has it all at once, whatever its size.
//!
//! The protocols are crates of their own (`pando-redis`, `pando-memcached`), over what is stored
//! (`pando-keyspace`) and what servers share (`pando-net`). This one ties them together: `run.rs`
//! starts and ends it, `connection.rs` and `admission.rs` let clients in, `site` tells of it over
//! HTTP.

mod admission;
mod connection;
mod options;
mod run;
mod serve_error;
mod shared;
mod site;
pub mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod web_request_tests;

pub use pando_keyspace::MAP_NAME;
pub use pando_net::tls::TlsOptions;

pub use self::options::Options;
pub use self::serve_error::ServeError;

/// Serves until it is told to stop by SIGTERM, SIGINT or a client's SHUTDOWN, then closes the pool.
/// On SIGUSR2 the process becomes the program that is at its path by then, which goes on with the
/// same sockets, so this does not return.
///
/// # Errors
///
/// [`ServeError`]: what cannot be opened, listened at or set, and why.
pub fn serve(options: &Options) -> Result<(), ServeError> {
    run::serve(options)
}
