//! What tests of the server's outside share. Each test program uses a part of it.
//!
//! * `wire.rs`: a client of the Redis protocol that keeps every byte of a reply.
//! * `process.rs`: a process that ends with its owner.
//! * `programs.rs`: our server and Debian's, each a process of its own.
//! * `packages.rs`: where Debian's programs come from.
//! * `python.rs`: stock clients in Python.
//! * `mounted.rs`: a file system of a small size.
//! * `random.rs`: numbers that a seed repeats.
//! * `oracle.rs`: the same commands to both, and what must be equal.

#![allow(dead_code, reason = "each test program uses a part")]

pub mod mounted;
pub mod oracle;
pub mod packages;
pub mod process;
pub mod programs;
pub mod python;
pub mod random;
pub mod wire;
