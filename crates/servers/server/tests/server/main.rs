//! Tests of whole servers: in threads of this process, or as processes of their own.
//!
//! They are one program, because many of them wait: for an expiry, for a timeout, for a process.
//! Meanwhile others run.

#[path = "../common/mod.rs"]
mod common;
mod connection;
mod http;
mod keyspace;
mod memcached;
mod oracle;
