//! The connections of all protocols, from accept on.

use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use pando_net::tls;
use pando_redis::clients::{self, Address};
use tokio::net::{TcpStream, UnixStream};

use crate::shared::Shared;

/// An accepted connection that is not on an event loop yet.
pub(crate) struct Client {
    stream: Stream,
    dialect: Dialect,
    address: Address,
}

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Redis's protocol.
    Redis,
    /// Redis's protocol over TLS.
    RedisOverTls,
    /// Memcached's text protocol.
    Memcached,
}

enum Stream {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Client {
    pub(crate) fn tcp(stream: std::net::TcpStream, peer: SocketAddr, dialect: Dialect) -> Self {
        let address = Address {
            peer: peer.to_string(),
            local: stream.local_addr().map_or_else(|_| String::new(), |local| local.to_string()),
            descriptor: stream.as_raw_fd(),
            is_unix: false,
            is_here: peer.ip().to_canonical().is_loopback(),
            is_timed: dialect != Dialect::Memcached,
        };
        Self { stream: Stream::Tcp(stream), dialect, address }
    }

    pub(crate) fn unix(stream: std::os::unix::net::UnixStream) -> Self {
        let local = stream.local_addr().ok();
        let path = local.as_ref().and_then(|local| local.as_pathname());
        let shown = format!("{}:0", path.unwrap_or(Path::new("")).display());
        let address = Address {
            peer: shown.clone(),
            local: shown,
            descriptor: stream.as_raw_fd(),
            is_unix: true,
            is_here: true,
            is_timed: true,
        };
        Self { stream: Stream::Unix(stream), dialect: Dialect::Redis, address }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends an error, if this needs no wait and the client would understand it.
    pub(crate) fn refuse(&self, words: &[u8]) {
        if self.dialect != Dialect::Redis {
            return;
        }
        // The connection is closed in both cases.
        let _ = match &self.stream {
            Stream::Tcp(stream) => (&*stream).write(words),
            Stream::Unix(stream) => (&*stream).write(words),
        };
    }
}

/// Serves a client until the client or the server ends the connection.
pub(crate) async fn serve(shared: &Shared, entry: &Arc<clients::Client>, client: Client) {
    let redis = &shared.redis;
    let served = match client.stream {
        Stream::Tcp(stream) => match TcpStream::from_std(stream) {
            Ok(stream) => match (client.dialect, &shared.tls) {
                (Dialect::Memcached, _) => {
                    pando_memcached::converse(shared.memcached(), client.address.peer, stream).await
                }
                (Dialect::RedisOverTls, Some(acceptor)) => {
                    match tls::accept(acceptor, stream).await {
                        Ok(stream) => pando_redis::converse(redis, entry, stream).await,
                        Err(error) => Err(error),
                    }
                }
                _ => pando_redis::converse(redis, entry, stream).await,
            },
            Err(error) => Err(error),
        },
        Stream::Unix(stream) => match UnixStream::from_std(stream) {
            Ok(stream) => pando_redis::converse(redis, entry, stream).await,
            Err(error) => Err(error),
        },
    };
    if let Err(error) = served {
        tracing::debug!(%error, client = entry.id, "a connection failed");
    }
}
