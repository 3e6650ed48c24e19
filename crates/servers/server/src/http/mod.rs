//! The server seen from outside, over HTTP: `/` a live page, `/status.json` what it shows,
//! `/metrics` for Prometheus, `/healthz`; `POST /shape` asks for a walk over the tree.
//!
//! It has a thread and an event loop of its own, reads figures and no data, and what it keeps for
//! its clients is bounded: so many connections, each with so many bytes of request and so many
//! seconds. It asks nobody who he is; where it listens is who may look.
//!
//! * `answers.rs`: what each path answers.
//! * `observer.rs`: the figures, second by second.
//! * `survey.rs`: the walk over the tree, in a thread of its own.
//! * `metrics.rs`: the text that Prometheus reads.
//! * `page.html`: the page, whole in one file.

mod answers;
mod metrics;
mod observer;
mod survey;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::LocalSet;

use self::observer::Observer;
use crate::net::ServeError;
use crate::server::Server;

/// Connections that are served at once; others wait to be accepted.
const MAX_CONNECTIONS: usize = 32;
/// Longest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Most lines in it.
const MAX_HEAD_LINES: usize = 64;
/// A request's head comes within that time; so long may a client be silent, too.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// A connection lasts no longer, so that nobody keeps others out by not reading.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(60);

/// Listens, and answers in a thread of its own until told to stop; none if there is nowhere to
/// listen.
pub(crate) fn start(
    addresses: &[SocketAddr],
    server: &Arc<Server>,
    stopped: &watch::Receiver<bool>,
) -> Result<Option<JoinHandle<()>>, ServeError> {
    if addresses.is_empty() {
        return Ok(None);
    }
    let mut listeners = Vec::new();
    for &address in addresses {
        let at = |source| ServeError::Listen { at: format!("http://{address}"), source };
        let listener = std::net::TcpListener::bind(address).map_err(at)?;
        listener.set_nonblocking(true).map_err(at)?;
        tracing::info!(%address, "listening for HTTP");
        listeners.push(listener);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(ServeError::Start)?;
    let observer = Observer::new(Arc::clone(server));
    let mut stopped = stopped.clone();
    let answer = move || {
        LocalSet::new().block_on(&runtime, async move {
            tokio::select! {
                served = serve(listeners, observer) => if let Err(error) = served {
                    tracing::error!(%error, "HTTP is not served any more");
                },
                _ = stopped.changed() => {}
            }
        });
    };
    let thread = std::thread::Builder::new().name("http".to_owned()).spawn(answer);
    thread.map(Some).map_err(ServeError::Start)
}

async fn serve(listeners: Vec<std::net::TcpListener>, observer: Observer) -> io::Result<()> {
    let observer = Arc::new(observer);
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    for listener in listeners {
        let listener = TcpListener::from_std(listener)?;
        let (observer, room) = (Arc::clone(&observer), Arc::clone(&room));
        tokio::task::spawn_local(accept(listener, observer, room));
    }
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        observer.note_second();
    }
}

async fn accept(listener: TcpListener, observer: Arc<Observer>, room: Arc<Semaphore>) {
    // Somebody's browser may be led here under a name of another's choice (DNS rebinding). Who
    // listens for this machine alone is called by no name but its own.
    let is_private = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let observer = Arc::clone(&observer);
                tokio::task::spawn_local(async move {
                    converse(stream, observer, is_private).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "an HTTP connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, observer: Arc<Observer>, is_private: bool) {
    let service = service_fn(move |request| {
        let answer = answers::answer(&observer, is_private, &request);
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
        tracing::debug!(%error, "an HTTP connection broke");
    }
}
