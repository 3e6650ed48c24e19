//! Servers side by side: ours and the ones that it would otherwise be, driven by stock clients.
//!
//! | file | what |
//! | --- | --- |
//! | [`command`] | the command line, and what it prints |
//! | [`system`] | the servers: how each is started, killed, and what its processor time is |
//! | [`load`] | requests: Debian's `redis-benchmark`, and a loader of our own that fills a server |
//! | [`memcached`] | requests of memcached's protocol, of which Debian has no such client |
//! | [`restart`] | from the start of a process, after a kill, to the first answer |
//!
//! Every round runs each system once, one after the other, and ratios are of the same round; so
//! what else the machine does meets all alike.

pub mod command;
pub mod load;
pub mod memcached;
pub mod restart;
pub mod system;
