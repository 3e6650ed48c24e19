//! The state that all connections share.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pando::Promise;
use pando_keyspace::failure::Result;
use pando_keyspace::key_counts::Expiries;
use pando_keyspace::memory::{EvictionPolicy, MemoryLimit};
use pando_keyspace::{Store, clock};
use pando_net::stats::Stats;
use pando_net::threads;
use pando_net::web_request::Alarm;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::acl::{self, Acl};
use crate::catalog::Catalog;
use crate::clients::Clients;
use crate::config::{self, Config};
use crate::slow_log::SlowLog;

/// Room that a log's tail and the commits in progress may take of a pool.
const TAIL_BYTES: u64 = 48 << 20;

impl Server {
    /// Runs `work` in its own thread. The server waits for the thread when it stops.
    pub fn begin_task(
        &self,
        name: &str,
        work: impl FnOnce(&Self) + Send + 'static,
    ) -> io::Result<()> {
        let server = self.myself.upgrade().ok_or(io::Error::other("the server is stopping"))?;
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        let thread = std::thread::Builder::new().name(name.to_owned());
        tasks.push(thread.spawn(move || work(&server))?);
        Ok(())
    }

    /// Writes a snapshot, and logs the result.
    pub(crate) fn save(&self) -> Result<()> {
        *self.saved_at.lock() = Instant::now();
        let (begun, changes) = (Instant::now(), self.stats.figures().changes());
        let kept = self.config.size(config::SNAPSHOTS);
        let (path, saved) = (self.snapshot.display(), self.store.save(&self.snapshot, kept));
        match &saved {
            Ok(keys) => {
                // Relaxed: INFO reports it.
                self.changes_at_save.store(changes, Ordering::Relaxed);
                let took_ms = begun.elapsed().as_millis() as u64;
                tracing::info!(%path, keys, took_ms, kept, "snapshot written");
            }
            Err(error) => tracing::error!(%path, %error, "the snapshot was not written"),
        }
        saved.map(|_| ())
    }

    /// The number of changes since the last snapshot, or since the server's start.
    pub(crate) fn changes_since_save(&self) -> u64 {
        let changes = self.stats.figures().changes();
        changes.saturating_sub(self.changes_at_save.load(Ordering::Relaxed))
    }

    /// Begins a snapshot if its time has come and there were changes since the last one.
    pub fn save_if_due(&self) {
        let every = Duration::from_secs(self.config.size(config::SNAPSHOT_EVERY) as u64);
        if every.is_zero() || self.saved_at.lock().elapsed() < every {
            return;
        }
        *self.saved_at.lock() = Instant::now();
        if self.store.snapshot_state().is_writing
            || self.changes_since_save() == 0 && self.snapshot.exists()
        {
            return;
        }
        // The task logs errors.
        if let Err(error) = self.begin_task("snapshot", |server| drop(server.save())) {
            tracing::error!(%error, "cannot start a thread for the snapshot");
        }
    }

    /// Begins to count the keys in the background, if a client has asked for it.
    pub fn count_if_wanted(&self) {
        // Relaxed: the flag orders nothing.
        if !self.store.is_count_wanted() || self.is_counting_keys.swap(true, Ordering::Relaxed) {
            return;
        }
        let begun = self.begin_task("count", |server| {
            let _counting = Counting(&server.is_counting_keys);
            server.store.count_in_background();
        });
        if let Err(error) = begun {
            self.is_counting_keys.store(false, Ordering::Relaxed);
            tracing::warn!(%error, "cannot start a thread to count the keys");
        }
    }

    /// Waits for the threads of requests, when no more requests arrive.
    pub fn end_tasks(&self) {
        self.store.end_long_work();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.into_iter().for_each(threads::join);
    }

    /// Whether a client must authenticate first.
    pub fn needs_password(&self) -> bool {
        self.acl.needs_password()
    }

    /// Makes `password` the only password of the default user. An empty password means that none is
    /// needed.
    pub fn set_default_password(&self, password: &[u8]) {
        self.acl.set_default_password(password);
    }

    /// Replaces all users by those of a file's text.
    ///
    /// # Errors
    ///
    /// The wrong lines with their numbers; then nothing has changed.
    pub fn load_users(&self, text: &str) -> std::result::Result<(), String> {
        acl::load(&self.acl, self.catalog, text)
    }

    /// Moves the server into an `Arc`, for [`begin_task`](Self::begin_task).
    pub fn shared_by_all(self) -> Arc<Self> {
        Arc::new_cyclic(|myself| Self { myself: Weak::clone(myself), ..self })
    }

    /// Applies the parameters about memory, and measures the used memory.
    pub fn limit_memory(&self) {
        let place = self.config.size(config::MAX_MEMORY_POLICY);
        let policy = EvictionPolicy::at(place).unwrap_or_default();
        // The free rest of the pool is for writes of committed transactions. A policy that evicts
        // also needs it for the gaps that evictions leave.
        let sixteenths = if policy == EvictionPolicy::NoEviction { 15 } else { 11 };
        let pool_bytes = self.store.pool().max_bytes();
        // Each commit needs room in the log's tail, also one that only removes keys.
        let tail_bytes = self.store.log().map_or(0, |_| TAIL_BYTES.min(pool_bytes / 2));
        let most_bytes = (pool_bytes / 16 * sixteenths).min(pool_bytes - tail_bytes);
        let bytes = match self.config.size(config::MAX_MEMORY) as u64 {
            0 => most_bytes,
            bytes => bytes.min(most_bytes),
        };
        let samples = self.config.size(config::MAX_MEMORY_SAMPLES) as u32;
        self.store.limit_memory(MemoryLimit { bytes, policy, samples });
    }

    /// A server of `store` with `loops` event loops. Its config parameters have their defaults.
    pub(crate) fn new(store: Store, loops: usize, catalog: &'static Catalog) -> Self {
        let promise = store.pool().promise();
        // Tools expect forty hexadecimal digits. The ID is not a secret.
        let begun = format!("{} {}", pando_keyspace::clock::system_ms(), std::process::id());
        let run_id = pando_net::access::hash(begun.as_bytes())[..40].to_owned();
        Self {
            store,
            stats: Stats::new(loops, catalog.counted()),
            acl: acl::new(catalog),
            catalog,
            clients: Clients::default(),
            config: Config::default(),
            slow_log: SlowLog::default(),
            web_request_alarm: Alarm::default(),
            stop: Notify::new(),
            snapshot: PathBuf::new(),
            saved_at: Mutex::new(Instant::now()),
            changes_at_save: AtomicU64::new(0),
            expiries: Mutex::default(),
            tasks: Mutex::default(),
            started_system_ms: clock::system_ms(),
            myself: Weak::new(),
            promise,
            run_id,
            is_counting: AtomicBool::new(false),
            is_counting_keys: AtomicBool::new(false),
        }
    }
}

/// A count in a thread of its own. Clears its flag when it is dropped, so also after a panic.
pub(crate) struct Counting<'server>(pub(crate) &'server AtomicBool);

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        // Relaxed: the flag orders nothing.
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The server.
pub struct Server {
    pub(crate) catalog: &'static Catalog,
    /// The keys of clients.
    pub store: Store,
    /// Statistics.
    pub stats: Stats,
    pub(crate) acl: Acl,
    /// The connected clients.
    pub clients: Clients,
    /// The config parameters.
    pub config: Config,
    pub(crate) slow_log: SlowLog,
    /// Raised by HTTP requests on a port of another protocol.
    pub web_request_alarm: Alarm,
    /// The pool's medium, and its durability guarantees.
    pub promise: Promise,
    /// An ID of this start.
    pub(crate) run_id: String,
    /// The path of snapshots.
    pub snapshot: PathBuf,
    /// When the last snapshot began, or the last check for a due snapshot.
    saved_at: Mutex<Instant>,
    /// The number of changes at the begin of the last snapshot.
    changes_at_save: AtomicU64,
    /// The last count of keys that expire, and its time.
    pub(crate) expiries: Mutex<Option<(Instant, Expiries)>>,
    /// Threads that requests have started and that may outlive them.
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Whether a thread counts the keys that expire, for INFO.
    pub(crate) is_counting: AtomicBool,
    /// Whether a thread counts all keys.
    is_counting_keys: AtomicBool,
    /// The time of the start, in milliseconds of the system's clock.
    pub(crate) started_system_ms: u64,
    /// The server itself, after [`shared_by_all`](Self::shared_by_all).
    pub(crate) myself: Weak<Self>,
    /// Notified when a client sends SHUTDOWN.
    pub stop: Notify,
}
