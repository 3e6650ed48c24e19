//! The memcached protocol, seen from outside.
//!
//! * `oracle.rs`: the same requests to our server and to Debian's memcached, and what must be
//!   equal.
//! * `generate.rs`: requests that a seed makes.
//! * `reply.rs`: replies with what differs by nature taken out.
//! * `hostile.rs`: input that no client sends.
//! * `memory.rs`: the memory limit.
//! * `client.rs`: a stock client.
//! * `servers.rs`: both servers.

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../common/packages.rs"]
mod packages;
#[path = "../common/process.rs"]
mod process;
#[path = "../common/python.rs"]
mod python;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../common/random.rs"]
mod random;

mod client;
mod generate;
mod hostile;
mod memory;
mod oracle;
mod reply;
mod servers;
