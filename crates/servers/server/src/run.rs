//! The start, the main loop and the end of the server.
//!
//! Each event loop has its own thread. The first one accepts connections, and gives each to the
//! loop with the fewest connections. The connection stays there, and its requests are executed on
//! that thread in order. A request waits for other loops only in the store. Another thread sweeps.

use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pando::{Error, LogFiles, RecoveryProgress};
use pando_keyspace::failure::Failure;
use pando_keyspace::recover::{self, Recovered, Source};
use pando_keyspace::{Store, StoreOptions};
use pando_memcached::State;
use pando_net::listeners::{self, Listeners};
use pando_net::{descriptors, http, threads, tls};
use pando_redis::{Server, config};
use parking_lot::Mutex;
use sd_notify::NotifyState;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use crate::admission::{self, Admitted};
use crate::connection::{self, Client, Dialect};
use crate::options::Options;
use crate::panics::{Panic, Panics};
use crate::serve_error::ServeError;
use crate::shared::Shared;
use crate::site::Observer;
use crate::sweep;

/// The time between two looks at clients and at the log.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The time between two reports of a recovery.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// A loop that serves connections.
struct Loop {
    clients: mpsc::UnboundedSender<Client>,
    connections: Arc<AtomicUsize>,
}

/// The most event loops.
const MAX_THREADS: usize = 1024;

/// The reason for the end of the server.
enum End {
    /// A signal or a command.
    Stopped,
    /// Another program takes over.
    HandOver,
}

/// See [`crate::serve`].
pub(crate) fn serve(options: &Options) -> Result<(), ServeError> {
    let mut listeners = Listeners::inherited();
    // The next program continues with the existing data.
    let mut restore = options.restore.as_deref().filter(|_| !listeners::is_successor());
    while let End::HandOver = run(options, &mut listeners, restore.take())? {
        let error = listeners.hand_over();
        tracing::error!(%error, "no new program took over; this one continues");
    }
    if let Some(path) = options.unix.as_deref().filter(|_| listeners.owns_unix()) {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Opens the store, loads a snapshot if the options have one, serves, and closes the store.
fn run(
    options: &Options,
    listeners: &mut Listeners,
    restore: Option<&Path>,
) -> Result<End, ServeError> {
    let store_options = StoreOptions {
        pool: options.pool_options.clone().on_recovery(report_recovery()),
        index: options.index.clone(),
        sync: options.sync.unwrap_or_default(),
        page_bytes: options.page_bytes,
    };
    let snapshot = snapshot_path(options);
    check(options)?;
    // Before a pool is created. A client that connects meanwhile waits.
    for &address in addresses(options).map(|(address, _)| address) {
        listeners.tcp(address).map_err(cannot_listen(address))?;
    }
    let store = open(options, &store_options, &snapshot)?;
    if options.sync.is_some() && store.log().is_none() {
        return Err(ServeError::SyncWithoutLog);
    }
    if let Some(path) = restore {
        let keys = store.restore(path)?;
        tracing::info!(keys, path = %path.display(), "restored");
    }
    let promise = store.pool().promise();
    tracing::info!(
        pool = %options.pool.as_deref().unwrap_or(Path::new("anonymous memory")).display(),
        medium = promise.medium,
        domain = promise.domain,
        guarantee = promise.guarantee,
        sync = store.log().map(|log| log.mode().name()),
        starts = store.starts(),
        "pool opened"
    );
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = match options.threads {
        0 => processors.min(MAX_THREADS),
        threads => threads,
    };
    let mut redis = pando_redis::server(store, threads);
    redis.snapshot = snapshot;
    configure(&redis, options)?;
    descriptors::raise_limit();
    let shared = Arc::new(Shared {
        redis: redis.shared_by_all(),
        memcached: State::new(options.memcached_max_item_bytes),
        tls: options.tls.as_ref().map(tls::acceptor).transpose()?,
    });
    shared.redis.limit_memory();
    let (stop, stopped) = watch::channel(false);
    let observer = Observer::new(Arc::clone(&shared.redis));
    let http = http::start(&options.http, observer, &stopped)?;
    let panics = Arc::new(Panics::default());
    let mut loops = Vec::new();
    let mut handles = Vec::new();
    for number in 0..threads {
        let (sender, receiver) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        loops.push(Loop { clients: sender, connections: Arc::clone(&connections) });
        let (shared, stopped) = (Arc::clone(&shared), stopped.clone());
        let panics = Arc::clone(&panics);
        let runtime = runtime()?;
        let handle = std::thread::Builder::new()
            .name(format!("loop {number}"))
            .spawn(move || {
                let redis = Arc::clone(&shared.redis);
                panics.watch(&redis.stop, || {
                    redis.stats.enter_loop(number);
                    let local = LocalSet::new();
                    let work = serve_clients(shared, receiver, connections, stopped);
                    local.block_on(&runtime, work);
                });
            })
            .map_err(pando_net::Error::Start)?;
        handles.push(handle);
    }
    let runtime = runtime()?;
    let sweeper = {
        let (shared, stopped) = (Arc::clone(&shared), stopped.clone());
        let panics = Arc::clone(&panics);
        let thread = std::thread::Builder::new().name("sweep".to_owned());
        thread.spawn(move || {
            panics.watch(&shared.redis.stop, || sweep::until_stopped(&shared, &stopped));
        })
    };
    handles.push(sweeper.map_err(pando_net::Error::Start)?);
    let served =
        runtime.block_on(accept_until_stopped(options, listeners, &shared, (&loops, &panics)));
    // No more connections are accepted. Each loop ends when its connections have ended.
    let _ = stop.send(true);
    drop(loops);
    handles.iter().for_each(|handle| handle.thread().unpark());
    // A count on an event loop, a snapshot and a sweep end at once.
    shared.redis.store.end_long_work();
    handles.into_iter().chain(http).for_each(threads::join);
    drop(runtime);
    shared.redis.end_tasks();
    let end = served?;
    match Arc::into_inner(shared).and_then(|shared| Arc::into_inner(shared.redis)) {
        Some(server) => {
            match (server.store.close(), &end) {
                (Ok(()), _) => tracing::info!("the pool is closed"),
                // The next program opens the pool, and tells if it cannot.
                (Err(error), End::HandOver) => {
                    tracing::warn!(%error, "the pool is not closed properly; the new program opens it");
                }
                (Err(error), End::Stopped) => return Err(error.into()),
            }
        }
        None => tracing::error!("a thread still uses the pool, so the pool is not closed"),
    }
    match panics.first().cloned() {
        Some(Panic { thread, reason }) => Err(ServeError::Panicked { thread, reason }),
        None => Ok(end),
    }
}

/// Logs how far the recovery of a lost pool has come, at most once a second.
fn report_recovery() -> impl Fn(RecoveryProgress) + Send + Sync {
    let reported_at = Mutex::new(None::<Instant>);
    move |RecoveryProgress { image_records, commits, .. }| {
        let mut reported_at = reported_at.lock();
        if reported_at.is_none() {
            tracing::warn!("the pool is lost; it is rebuilt from its log");
        }
        if reported_at.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
            tracing::info!(image_records, commits, "rebuilding the pool");
            *reported_at = Some(Instant::now());
        }
    }
}

/// Checks what can be wrong in the options, before a pool is created.
fn check(options: &Options) -> Result<(), ServeError> {
    let config = config::Config::default();
    for (name, value) in &options.config {
        config.set_at_start(name, value).map_err(|reason| refused(name, value, reason))?;
        let is_of_memory = ["maxmemory", "maxmemory-policy"].contains(&&*name.to_lowercase());
        if is_of_memory && options.page_bytes.is_some() {
            return Err(refused(name, value, config::MEMORY_OF_STORE.to_owned()));
        }
    }
    let paths = [("snapshot", &options.snapshot), ("unix", &options.unix)];
    for (name, path) in paths.into_iter().filter_map(|(name, path)| Some((name, path.as_deref()?)))
    {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let reason = format!("there is no folder {}; create it first", folder.display());
            return Err(refused(name, &path.to_string_lossy(), reason));
        }
    }
    Ok(())
}

fn refused(name: &str, value: &str, reason: String) -> ServeError {
    let name = name.to_owned();
    let value = match name.eq_ignore_ascii_case("requirepass") {
        true => "the value that it has".to_owned(),
        false => format!("'{value}'"),
    };
    ServeError::Config { name, value, reason }
}

/// The addresses of TCP, with the dialect that is spoken there.
fn addresses(options: &Options) -> impl Iterator<Item = (&SocketAddr, Dialect)> {
    let redis = options.redis.iter().map(|address| (address, Dialect::Redis));
    let memcached = options.memcached.iter().map(|address| (address, Dialect::Memcached));
    let secured = options.tls.iter().flat_map(|tls| &tls.addresses);
    let secured = secured.map(|address| (address, Dialect::RedisOverTls));
    redis.chain(memcached).chain(secured)
}

fn cannot_listen(at: impl ToString) -> impl FnOnce(io::Error) -> pando_net::Error {
    move |source| pando_net::Error::Listen { at: at.to_string(), source }
}

/// Opens the store. With `--recover`, a store that cannot be trusted is recovered first.
pub(crate) fn open(
    options: &Options,
    store_options: &StoreOptions,
    snapshot: &Path,
) -> Result<Store, ServeError> {
    if let (Some(_), Some(directory)) = (options.page_bytes, options.pool.as_deref()) {
        return open_record_store(options, store_options, (directory, snapshot));
    }
    let named = options.pool_options.log_directory();
    let missing = options.pool.as_deref().filter(|_| options.restore.is_none());
    if let (Some(pool), Some(log)) = (missing, named)
        && let Some(advice) = recover::advice_if_log_is_missing(pool, log, snapshot)
    {
        return Err(ServeError::Store(advice));
    }
    let missing = missing.filter(|_| named.is_none());
    let missing = missing.and_then(|pool| recover::advice_if_missing(pool, snapshot));
    let (failure, advice) = match (missing, options.pool.as_deref()) {
        (Some(advice), _) => ("it is missing".to_owned(), advice),
        (None, path) => match (Store::open(path, store_options), path) {
            (Ok(store), _) => return Ok(store),
            (Err(failure), Some(pool)) if recover::can_help(&failure) => {
                // The log that is named may be elsewhere than the pool says. A damaged superblock
                // says nothing.
                let of_pool = LogFiles::of_pool(pool).ok();
                if let Some(log) = named.or(of_pool.as_ref().map(LogFiles::path)) {
                    let advice = recover::advice_with_log(&failure, pool, log);
                    return Err(ServeError::Store(advice));
                }
                (failure.to_string(), recover::advice(&failure, pool, snapshot))
            }
            (Err(failure), path) => {
                let advice =
                    path.and_then(|pool| recover::advice_if_no_pool(&failure, pool, snapshot));
                return Err(advice.map_or_else(|| failure.into(), ServeError::Store));
            }
        },
    };
    let Some(pool) = options.pool.as_deref().filter(|_| options.recover) else {
        return Err(ServeError::Store(advice));
    };
    tracing::warn!(error = %failure, "the pool cannot be used; it is recovered");
    let Recovered { source, keys, kept } = recover::recover(pool, snapshot, store_options)?;
    let kept = kept.map_or_else(|| "none".to_owned(), |path| path.display().to_string());
    match source {
        Source::Snapshot(path, time_ms) => tracing::warn!(
            keys,
            snapshot = %path.display(),
            time = %recover::date(time_ms / 1000),
            %kept,
            "recovered from a snapshot. Writes after its time are lost. The old pool is kept, if there was one"
        ),
        Source::Salvage(problems) => tracing::warn!(
            keys,
            problems,
            %kept,
            "recovered from the readable part of the old pool, because there was no snapshot. Keys may be missing or \
             have older values, and commands that were running may be incomplete. The old pool is kept"
        ),
    }
    Ok(Store::open(Some(pool), store_options)?)
}

/// The same for a record store, which has its own log and needs no recovery.
fn open_record_store(
    options: &Options,
    store_options: &StoreOptions,
    (directory, snapshot): (&Path, &Path),
) -> Result<Store, ServeError> {
    let advice = recover::advice_if_record_store_is_missing(directory, snapshot);
    match advice.filter(|_| options.restore.is_none()) {
        Some(advice) => Err(ServeError::Store(advice)),
        None => Store::open(Some(directory), store_options).map_err(|failure| match failure {
            Failure::Store(Error::Option { option, found, allowed })
                if ["max_bytes", "memory_bytes"].contains(&&*option) =>
            {
                refused("memory", &found, format!("allowed is {allowed}"))
            }
            failure => failure.into(),
        }),
    }
}

/// By default the path is beside the pool. In memory there is no such place, so it is in the
/// current directory.
fn snapshot_path(options: &Options) -> PathBuf {
    match (&options.snapshot, &options.pool) {
        (Some(path), _) => path.clone(),
        (None, Some(pool)) => {
            let mut name = pool.as_os_str().to_owned();
            name.push(".snapshot");
            PathBuf::from(name)
        }
        (None, None) => PathBuf::from("pando.snapshot"),
    }
}

/// Sets the config parameters and users that the options contain.
fn configure(server: &Server, options: &Options) -> Result<(), ServeError> {
    let set_at_start = |name: &str, value: &str| {
        server.config.set_at_start(name, value).map_err(|reason| refused(name, value, reason))
    };
    let set = |name: &str, value: &str| {
        server.config.set_by_option(name, value).map_err(|reason| refused(name, value, reason))
    };
    let port = |addresses: &[SocketAddr]| addresses.first().map_or(0, |at| at.port());
    set("port", &port(&options.redis).to_string())?;
    let secured = options.tls.as_ref().map_or(0, |tls| port(&tls.addresses));
    set("tls-port", &secured.to_string())?;
    let bind: Vec<_> = options.redis.iter().map(|address| address.ip().to_string()).collect();
    set("bind", &bind.join(" "))?;
    if let Some(path) = &options.unix {
        set("unixsocket", &path.to_string_lossy())?;
    }
    // Without a log, an acknowledged write is as durable as the medium allows. Redis's value `no`
    // means that a failure of the machine may lose it.
    let medium = || if server.promise.survives_power { "always" } else { "no" };
    let log = server.store.log();
    set("appendfsync", log.map_or_else(medium, |log| log.mode().name()))?;
    set("appendonly", if log.is_some() { "yes" } else { "no" })?;
    if let Some(bytes) = server.store.page_bytes() {
        set("maxmemory", &bytes.to_string())?;
    }
    for (name, value) in &options.config {
        set_at_start(name, value)?;
    }
    server.set_default_password(server.config.text(config::REQUIRE_PASS).as_bytes());
    if let Some(path) = &options.acl_file {
        let failed = |reason| ServeError::Users { path: path.display().to_string(), reason };
        set("aclfile", &path.to_string_lossy())?;
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        server.load_users(&text).map_err(failed)?;
    }
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime, pando_net::Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(pando_net::Error::Start)
}

/// Accepts connections until a signal ends the server.
async fn accept_until_stopped(
    options: &Options,
    listeners: &mut Listeners,
    shared: &Shared,
    (loops, panics): (&[Loop], &Panics),
) -> Result<End, ServeError> {
    let server = &shared.redis;
    let mut tcp = Vec::new();
    for (&address, dialect) in addresses(options) {
        let listener = listeners.tcp(address).and_then(TcpListener::from_std);
        let listener = listener.map_err(cannot_listen(address))?;
        tracing::info!(%address, ?dialect, "listening");
        tcp.push((listener, dialect));
    }
    let unix = match &options.unix {
        Some(path) => {
            let listener = listeners.unix(path).and_then(UnixListener::from_std);
            Some(listener.map_err(cannot_listen(path.display()))?)
        }
        None => None,
    };
    let mut hand_over_signal = signal(tokio::signal::unix::SignalKind::user_defined2())?;
    let mut terminate = signal(tokio::signal::unix::SignalKind::terminate())?;
    let mut interrupt = signal(tokio::signal::unix::SignalKind::interrupt())?;
    let mut hangup = signal(tokio::signal::unix::SignalKind::hangup())?;
    tracing::info!("ready");
    tell_manager(NotifyState::Ready);
    let ending = |why: &str| {
        tell_manager(NotifyState::Stopping);
        tracing::info!(why, "the server stops: connections are closed, then the pool");
        Ok(End::Stopped)
    };
    let mut tick = tokio::time::interval(LOOK_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let keepalive = server.config.size(config::TCP_KEEPALIVE) as u64;
        tokio::select! {
            client = accept_any(keepalive, &tcp, unix.as_ref()) => match client {
                Ok(client) => hand_over(client, loops),
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    // The likely reason is a lack of descriptors. Other connections may end
                    // meanwhile.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            },
            _ = tick.tick() => {
                server.store.log().inspect(|log| log.judge_stall());
                server.count_if_wanted();
                server.clients.tick(server.config.size(config::TIMEOUT) as u64);
            }
            _ = server.stop.notified() => {
                return ending(panics.first().map_or("SHUTDOWN", |panic| &panic.reason));
            }
            _ = terminate.recv() => return ending("SIGTERM"),
            _ = interrupt.recv() => return ending("SIGINT"),
            _ = hangup.recv() => tracing::info!("SIGHUP is ignored"),
            _ = hand_over_signal.recv() => match listeners::can_hand_over() {
                Ok(()) => return Ok(End::HandOver),
                Err(error) => tracing::error!(%error, "the new program cannot be executed; this one continues"),
            },
        }
    }
}

fn signal(
    kind: tokio::signal::unix::SignalKind,
) -> Result<tokio::signal::unix::Signal, pando_net::Error> {
    tokio::signal::unix::signal(kind).map_err(pando_net::Error::Start)
}

/// Tells systemd, or another manager of services, if one started the server and wants to know.
fn tell_manager(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the manager of services cannot be told");
    }
}

/// Enables TCP keepalive, with a probe of a silent client each `every_s` seconds.
fn keep_alive(stream: &tokio::net::TcpStream, every_s: u64) -> io::Result<()> {
    if every_s == 0 {
        return Ok(());
    }
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(every_s));
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

async fn accept_any(
    keepalive: u64,
    tcp: &[(TcpListener, Dialect)],
    unix: Option<&UnixListener>,
) -> io::Result<Client> {
    std::future::poll_fn(|context| {
        for (listener, dialect) in tcp {
            if let std::task::Poll::Ready(accepted) = listener.poll_accept(context) {
                return std::task::Poll::Ready(accepted.and_then(|(stream, address)| {
                    stream.set_nodelay(true)?;
                    keep_alive(&stream, keepalive)?;
                    Ok(Client::tcp(stream.into_std()?, address, *dialect))
                }));
            }
        }
        if let Some(listener) = unix
            && let std::task::Poll::Ready(accepted) = listener.poll_accept(context)
        {
            return std::task::Poll::Ready(
                accepted.and_then(|(stream, _)| Ok(Client::unix(stream.into_std()?))),
            );
        }
        std::task::Poll::Pending
    })
    .await
}

fn hand_over(client: Client, loops: &[Loop]) {
    // Relaxed: a stale count only costs some balance.
    let least = loops.iter().min_by_key(|one| one.connections.load(Ordering::Relaxed));
    if let Some(least) = least {
        least.connections.fetch_add(1, Ordering::Relaxed);
        let _ = least.clients.send(client);
    }
}

/// Serves new connections of this loop until it is stopped.
async fn serve_clients(
    shared: Arc<Shared>,
    mut clients: mpsc::UnboundedReceiver<Client>,
    connections: Arc<AtomicUsize>,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            client = clients.recv() => {
                let Some(client) = client else { return };
                let Some(entry) = admission::admit(&shared.redis, &client) else {
                    connections.fetch_sub(1, Ordering::Relaxed);
                    continue;
                };
                let (shared, connections) = (Arc::clone(&shared), Arc::clone(&connections));
                let admitted = Admitted::new(shared, Arc::clone(&entry), connections);
                let task = tokio::task::spawn_local(async move {
                    connection::serve(&admitted.shared, &admitted.client, client).await;
                });
                entry.set_task(task.abort_handle());
            }
            _ = stopped.changed() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_sweep_ends_the_server_with_an_error() {
        let options = Options { threads: 1, ..Options::default() };
        sweep::PANICS.store(true, Ordering::Relaxed);
        let error = serve(&options).expect_err("it has not ended by itself");
        assert!(matches!(&error, ServeError::Panicked { thread, .. } if thread == "sweep"));
        assert!(error.to_string().contains("as a test wants"), "{error}");
    }
}
