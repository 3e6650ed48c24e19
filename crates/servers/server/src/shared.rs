//! The state that the event loops share.

use std::sync::Arc;

use pando_memcached::State;
use pando_redis::Server;
use tokio_rustls::TlsAcceptor;

/// The state that the event loops share.
pub(crate) struct Shared {
    /// The store, and the state that connections of Redis's protocol share.
    pub redis: Arc<Server>,
    /// The state that connections of memcached's protocol share.
    pub memcached: State,
    /// The acceptor of TLS, if it is enabled.
    pub tls: Option<TlsAcceptor>,
}

impl Shared {
    /// The parts that a connection of memcached's protocol uses.
    pub(crate) fn memcached(&self) -> pando_memcached::Server<'_> {
        pando_memcached::Server {
            store: &self.redis.store,
            stats: &self.redis.stats,
            web_request_alarm: &self.redis.web_request_alarm,
            state: &self.memcached,
        }
    }
}
