//! Shared parts of the tests that run whole servers.
//!
//! * `wire.rs`: a client of the Redis protocol that keeps every byte of a reply.
//! * `process.rs`: a process that ends with its owner.
//! * `programs.rs`: our server and Debian's Redis, as processes.
//! * `packages.rs`: finds or downloads Debian's programs.
//! * `python.rs`: standard clients in Python.
//! * `mounted.rs`: a small file system.
//! * `random.rs`: reproducible random numbers.
//! * `oracle.rs`: sends the same commands to both servers, and compares the replies.

pub mod mounted;
pub mod oracle;
pub mod packages;
pub mod process;
pub mod programs;
pub mod python;
pub mod random;
pub mod wire;
