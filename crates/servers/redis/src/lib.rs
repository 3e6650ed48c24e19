//! The Redis protocol over a keyspace. Replies and errors are those of Redis 7.0.15.
//!
//! `connection.rs` reads a request, and `resp` parses it. `dispatch.rs` finds the command, locks
//! its keys and runs it. `commands` executes it in a transaction of the store. The transaction
//! commits. Only then does `connection.rs` send the reply.
//!
//! * `acl`: users and their rules.
//! * `config.rs`: config parameters. `server.rs`: the state that connections share.
//! * `clients.rs`: the connected clients. `session.rs`: the state of one client.
//! * `slow_log.rs`: commands that took long.
//! * `decimal.rs`, `long_double.rs`: numbers in Redis's forms.

mod acl;
mod catalog;
mod categories;
pub mod clients;
mod commands;
pub mod config;
mod connection;
mod decimal;
mod dispatch;
mod errors;
mod long_double;
mod resp;
mod server;
mod session;
mod slow_log;
mod spec;
#[cfg(test)]
mod tests;

pub use self::connection::converse;
#[cfg(any(test, feature = "testing"))]
pub use self::connection::converse_without_socket;
pub use self::server::Server;

use pando_keyspace::Store;

/// A server of `store` with `loops` event loops. Its config parameters have their defaults.
#[must_use]
pub fn server(store: Store, loops: usize) -> Server {
    Server::new(store, loops, &commands::CATALOG)
}
