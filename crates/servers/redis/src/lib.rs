//! The Redis protocol over a keyspace. Replies and errors are those of Redis 7.0.15.
//!
//! A request's way: `connection.rs` reads it, `resp` parses it, `dispatch.rs` finds the command,
//! locks its keys and runs it, `commands` does what it says in a transaction of the store, the
//! transaction commits, and only then does `connection.rs` send the reply.
//!
//! * `acl`: users and their rules.
//! * `config.rs`: config parameters. `server.rs`: what connections share.
//! * `clients.rs`: the clients that are connected. `session.rs`: what is kept of one.
//! * `slow_log.rs`: commands that took long.
//! * `decimal.rs`, `long_double.rs`: numbers as Redis reads them.

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

/// A server of `store` with `loops` event loops; its config parameters have their defaults.
#[must_use]
pub fn server(store: Store, loops: usize) -> Server {
    Server::new(store, loops, &commands::CATALOG)
}
