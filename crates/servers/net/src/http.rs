//! An HTTP server for any [`Site`].
//!
//! It has a thread and an event loop of its own. The number of connections, the bytes of a request
//! and the duration of a connection are bounded, and so is its memory.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::LocalSet;

use crate::error::Error;

/// Connections that are served at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 32;
/// Longest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Most header lines of a request.
const MAX_HEAD_LINES: usize = 64;
/// A client must send the head of a request within this time.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// The longest duration of a connection. Without this limit a client that does not read would
/// occupy a connection without end.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(60);

/// The content of an HTTP server.
pub trait Site: Send + Sync + 'static {
    /// Answers a request. On a loopback address (`is_private`) the site serves only requests to
    /// this machine's own names.
    fn answer(&self, is_private: bool, request: &Request<Incoming>) -> Response<Full<Bytes>>;

    /// Called once per second.
    fn note_second(&self);
}

/// Starts the server in a thread of its own, which runs until `stopped`; `None` without addresses.
///
/// # Errors
///
/// [`Error`]: the server cannot listen at an address, or cannot start a thread.
pub fn start(
    addresses: &[SocketAddr],
    site: impl Site,
    stopped: &watch::Receiver<bool>,
) -> Result<Option<JoinHandle<()>>, Error> {
    if addresses.is_empty() {
        return Ok(None);
    }
    let mut listeners = Vec::new();
    for &address in addresses {
        let at = |source| Error::Listen { at: format!("http://{address}"), source };
        let listener = std::net::TcpListener::bind(address).map_err(at)?;
        listener.set_nonblocking(true).map_err(at)?;
        tracing::info!(%address, "listening for HTTP");
        listeners.push(listener);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Error::Start)?;
    let mut stopped = stopped.clone();
    let answer = move || {
        LocalSet::new().block_on(&runtime, async move {
            tokio::select! {
                served = serve(listeners, site) => if let Err(error) = served {
                    tracing::error!(%error, "the HTTP server has stopped");
                },
                _ = stopped.changed() => {}
            }
        });
    };
    let thread = std::thread::Builder::new().name("http".to_owned()).spawn(answer);
    thread.map(Some).map_err(Error::Start)
}

async fn serve(listeners: Vec<std::net::TcpListener>, site: impl Site) -> io::Result<()> {
    let site = Arc::new(site);
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    for listener in listeners {
        let listener = TcpListener::from_std(listener)?;
        let (site, room) = (Arc::clone(&site), Arc::clone(&room));
        tokio::task::spawn_local(accept(listener, site, room));
    }
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        site.note_second();
    }
}

async fn accept(listener: TcpListener, site: Arc<impl Site>, room: Arc<Semaphore>) {
    // A web page may use a foreign name that resolves to this address (DNS rebinding). A loopback
    // address is served under this machine's own names only.
    let is_private = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let site = Arc::clone(&site);
                tokio::task::spawn_local(async move {
                    converse(stream, site, is_private).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, site: Arc<impl Site>, is_private: bool) {
    let service = service_fn(move |request| {
        let answer = site.answer(is_private, &request);
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEAD_LINES)
        .serve_connection(TokioIo::new(stream), service);
    let ended = tokio::time::timeout(CONNECTION_PATIENCE, connection).await;
    if let Ok(Err(error)) = ended {
        tracing::debug!(%error, "an HTTP connection failed");
    }
}
