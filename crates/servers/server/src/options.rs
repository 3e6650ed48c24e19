//! The options of the server.

use std::net::SocketAddr;
use std::path::PathBuf;

use pando::PoolOptions;
use pando_keyspace::SyncMode;
use pando_net::tls::TlsOptions;

/// The options of the server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The path of the pool, or of the record store; `None` for anonymous memory, which ends with
    /// the server.
    pub pool: Option<PathBuf>,
    /// The memory for the pages of a record store, in bytes; `None` for a pool.
    pub page_bytes: Option<u64>,
    /// The options for opening or creating the pool.
    pub pool_options: PoolOptions,
    /// When a reply to a write is sent, if the pool has a log; `None` for
    /// [`SyncMode::EverySecond`]. An error for a pool without a log. A record store has one.
    pub sync: Option<SyncMode>,
    /// The index of a new pool's keys; `pando indexes` lists them.
    pub index: Option<String>,
    /// Addresses for the Redis protocol.
    pub redis: Vec<SocketAddr>,
    /// Addresses for the memcached protocol. Its clients use database 0 without authentication.
    pub memcached: Vec<SocketAddr>,
    /// The longest value of the memcached protocol, in bytes, with its key and memcached's overhead
    /// of about 60 bytes; `None` for memcached's default of 1 MiB.
    pub memcached_max_item_bytes: Option<u64>,
    /// The path of a socket for the Redis protocol.
    pub unix: Option<PathBuf>,
    /// Addresses for the page, the metrics and the status over HTTP, without authentication.
    pub http: Vec<SocketAddr>,
    /// The path of snapshots; by default the pool's path with `.snapshot` appended.
    pub snapshot: Option<PathBuf>,
    /// A snapshot to load into a new store.
    pub restore: Option<PathBuf>,
    /// Whether to replace a missing, damaged or untrusted pool. The old pool is kept under another
    /// name. The new one is built from the newest complete snapshot, or, without one, from the
    /// readable part of the old pool.
    pub recover: bool,
    /// The number of event loops, each in its own thread; 0 for one for each processor.
    pub threads: usize,
    /// Addresses and certificates for the Redis protocol over TLS.
    pub tls: Option<TlsOptions>,
    /// The names and initial values of config parameters.
    pub config: Vec<(String, String)>,
    /// The file of users, in the format of Redis's `aclfile`.
    pub acl_file: Option<PathBuf>,
}
