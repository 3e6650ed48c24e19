//! What the event loops of a server share.

use std::sync::Arc;

use pando_memcached::State;
use pando_redis::Server;
use tokio_rustls::TlsAcceptor;

/// What the event loops share.
pub(crate) struct Shared {
    /// The store, and what connections of Redis's protocol share.
    pub redis: Arc<Server>,
    /// What connections of memcached's protocol share.
    pub memcached: State,
    /// Who speaks TLS to clients, if anybody does.
    pub tls: Option<TlsAcceptor>,
}

impl Shared {
    /// What a connection of memcached's protocol works with.
    pub(crate) fn memcached(&self) -> pando_memcached::Server<'_> {
        pando_memcached::Server {
            store: &self.redis.store,
            stats: &self.redis.stats,
            web_request_alarm: &self.redis.web_request_alarm,
            state: &self.memcached,
        }
    }
}
