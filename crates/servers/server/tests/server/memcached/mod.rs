//! Tests of the memcached protocol on whole servers.
//!
//! * `oracle.rs`: sends the same requests to our server and to Debian's memcached, and compares the
//!   replies.
//! * `generate.rs`: generates requests from a seed.
//! * `reply.rs`: removes necessary differences from replies.
//! * `hostile.rs`: input that no client sends.
//! * `memory.rs`: the memory limit.
//! * `client.rs`: a standard client.
//! * `servers.rs`: both servers.

mod client;
mod generate;
mod hostile;
mod memory;
mod oracle;
mod reply;
mod servers;
