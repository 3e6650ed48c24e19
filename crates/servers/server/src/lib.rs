//! Serves ordered maps over the Redis and memcached protocols. What is acknowledged survives the
//! death of the process, and the next one has it all at once, whatever its size.
//!
//! It stands on `pando`, the public API, alone. A request's way: `net` reads it, `resp` or
//! `memcached` parses it, [`dispatch`] finds the command, locks its keys and runs it, [`commands`]
//! does what it says in a transaction of the [`store`], the transaction commits, and only then does
//! `net` send the reply.

mod acl;
mod clients;
mod commands;
mod config;
mod dispatch;
mod errors;
mod glob;
mod http;
mod long_double;
mod memcached;
mod net;
mod number;
mod resp;
mod server;
mod session;
mod slow_log;
mod stats;
pub mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod web_request;

use std::net::SocketAddr;
use std::path::PathBuf;

use pando::PoolOptions;

pub use net::ServeError;
pub use net::tls::TlsOptions;
pub use pando_keyspace::MAP_NAME;

/// How the server is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The pool's file; none for anonymous memory, which ends with the server.
    pub pool: Option<PathBuf>,
    /// How the pool is opened or created.
    pub pool_options: PoolOptions,
    /// The kind of index of a new store; `pando kinds` lists them.
    pub index: Option<String>,
    /// Where clients of the Redis protocol connect.
    pub redis: Vec<SocketAddr>,
    /// Where clients of the memcached protocol connect: they read and write database 0, and none is
    /// asked who it is.
    pub memcached: Vec<SocketAddr>,
    /// How long a value may be that a client of the memcached protocol sends, in bytes, with its
    /// key and the 60 bytes or so that memcached counts besides; none for memcached's 1 MiB.
    pub memcached_max_item_bytes: Option<u64>,
    /// A socket in the file system for the Redis protocol.
    pub unix: Option<PathBuf>,
    /// Where the page, the metrics and the status are served over HTTP, to whoever comes.
    pub http: Vec<SocketAddr>,
    /// Where SAVE and BGSAVE write; the pool's name with `.snapshot` behind it, unless it is said.
    pub snapshot: Option<PathBuf>,
    /// A snapshot that a new store begins with.
    pub restore: Option<PathBuf>,
    /// Whether a pool that cannot be trusted, or is damaged, is put aside under another name and a
    /// new one begun from the newest snapshot that is whole; without one, from what can be read of
    /// the old pool.
    pub recover: bool,
    /// Event loops, a thread each; 0 for one a processor.
    pub threads: usize,
    /// Where and how clients of the Redis protocol connect over TLS.
    pub tls: Option<TlsOptions>,
    /// Settings, as CONFIG SET names them, with what they are at first.
    pub settings: Vec<(String, String)>,
    /// The file of the users, in the format of Redis's `aclfile`.
    pub acl_file: Option<PathBuf>,
}

/// Serves until it is told to stop by SIGTERM, SIGINT or a client's SHUTDOWN, then closes the pool.
/// On SIGUSR2 the process becomes the program that is at its path by then, which goes on with the
/// same sockets, so this does not return.
///
/// # Errors
///
/// [`ServeError`]: what cannot be opened, listened at or set, and why.
pub fn serve(options: &Options) -> Result<(), ServeError> {
    net::serve(options)
}
