//! What servers of any protocol share. It knows no protocol but HTTP, and nothing of what is
//! stored.
//!
//! * `access/`: users, passwords, what they may do. `glob.rs`: patterns of keys.
//! * `listeners.rs`: listening sockets, and how they are handed over to the next process.
//! * `tls.rs`: TLS.
//! * `http.rs`: serves a site over HTTP. `web_request.rs`: HTTP requests at other protocols' ports.
//! * `stats.rs`: counters of requests and their latencies (`histogram.rs`).
//! * `buffers.rs`: what a connection keeps. `descriptors.rs`: the limit of descriptors.

pub mod access;
pub mod buffers;
pub mod descriptors;
mod error;
pub mod glob;
pub mod histogram;
pub mod http;
pub mod listeners;
pub mod stats;
pub mod tls;
pub mod web_request;

pub use self::error::Error;
