//! What the servers of all protocols share. It knows no protocol but HTTP, and no stored data.
//!
//! * `access/`: users, passwords and rights. `glob.rs`: patterns of keys.
//! * `listeners.rs`: listening sockets, and their hand-over to the next process.
//! * `tls.rs`: TLS.
//! * `http.rs`: the HTTP server. `web_request.rs`: HTTP requests at the ports of other protocols.
//! * `stats.rs`: counters of requests and their latencies (`histogram.rs`).
//! * `buffers.rs`: buffers of connections. `descriptors.rs`: the limit on file descriptors.
//! * `threads.rs`: the end of threads.

pub mod access;
pub mod buffers;
pub mod descriptors;
mod error;
pub mod glob;
pub mod histogram;
pub mod http;
pub mod listeners;
pub mod stats;
pub mod threads;
pub mod tls;
pub mod web_request;

pub use self::error::Error;
