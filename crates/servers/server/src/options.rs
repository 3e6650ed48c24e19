//! How the server is run.

use std::net::SocketAddr;
use std::path::PathBuf;

use pando::PoolOptions;
use pando_net::tls::TlsOptions;

/// How the server is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The pool's file; none for anonymous memory, which ends with the server.
    pub pool: Option<PathBuf>,
    /// How the pool is opened or created.
    pub pool_options: PoolOptions,
    /// The index of a new store; `pando indexes` lists them.
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
    /// Config parameters, as CONFIG SET names them, with what they are at first.
    pub config: Vec<(String, String)>,
    /// The file of the users, in the format of Redis's `aclfile`.
    pub acl_file: Option<PathBuf>,
}
