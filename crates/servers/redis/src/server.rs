//! What all connections share.

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
use pando_net::web_request::Alarm;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::acl::{self, Acl};
use crate::catalog::Catalog;
use crate::clients::Clients;
use crate::config::{self, Config};
use crate::slow_log::SlowLog;

impl Server {
    /// Does `work` in a thread of its own, which the server waits for when it ends.
    pub fn begin_task(
        &self,
        name: &str,
        work: impl FnOnce(&Self) + Send + 'static,
    ) -> io::Result<()> {
        let server = self.myself.upgrade().ok_or(io::Error::other("the server is being ended"))?;
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        let thread = std::thread::Builder::new().name(name.to_owned());
        tasks.push(thread.spawn(move || work(&server))?);
        Ok(())
    }

    /// Writes a snapshot, and says so in the log.
    pub(crate) fn save(&self) -> Result<()> {
        *self.saved_at.lock() = Instant::now();
        let (begun, changes) = (Instant::now(), self.stats.figures().changes());
        let kept = self.config.size(config::SNAPSHOTS);
        let (path, saved) = (self.snapshot.display(), self.store.save(&self.snapshot, kept));
        match &saved {
            Ok(keys) => {
                // Relaxed: a figure for INFO.
                self.changes_at_save.store(changes, Ordering::Relaxed);
                let took_ms = begun.elapsed().as_millis() as u64;
                tracing::info!(%path, keys, took_ms, kept, "snapshot written");
            }
            Err(error) => tracing::error!(%path, %error, "no snapshot was written"),
        }
        saved.map(|_| ())
    }

    /// Changes since the last snapshot, or since the server started.
    pub(crate) fn changes_since_save(&self) -> u64 {
        let changes = self.stats.figures().changes();
        changes.saturating_sub(self.changes_at_save.load(Ordering::Relaxed))
    }

    /// Begins a snapshot if it is time for one, and something has changed since the last.
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
        // Errors are in the log.
        if let Err(error) = self.begin_task("snapshot", |server| drop(server.save())) {
            tracing::error!(%error, "no thread for the snapshot");
        }
    }

    /// Waits for the threads that were begun by requests, when there are no more of those.
    pub fn end_tasks(&self) {
        self.store.end_long_work();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            let _ = task.join();
        }
    }

    /// Whether a client must authenticate before it may do anything.
    pub fn needs_password(&self) -> bool {
        self.acl.needs_password()
    }

    /// Makes `password` the default user's only one; with an empty one, it needs none.
    pub fn set_default_password(&self, password: &[u8]) {
        self.acl.set_default_password(password);
    }

    /// Puts the users of a file's text in place of all others.
    ///
    /// # Errors
    ///
    /// What is wrong, with the numbers of the lines; then nothing has changed.
    pub fn load_users(&self, text: &str) -> std::result::Result<(), String> {
        acl::load(&self.acl, self.catalog, text)
    }

    /// Shares it.
    pub fn shared_by_all(self) -> Arc<Self> {
        Arc::new_cyclic(|myself| Self { myself: Weak::clone(myself), ..self })
    }

    /// Applies the settings about memory, and asks how much is in use.
    pub fn limit_memory(&self) {
        let place = self.config.size(config::MAX_MEMORY_POLICY);
        let policy = EvictionPolicy::at(place).unwrap_or_default();
        // A pool that is all but full has room left for what was decided already, and under a
        // policy that evicts for the gaps that this leaves.
        let sixteenths = if policy == EvictionPolicy::NoEviction { 15 } else { 11 };
        let most_bytes = self.store.pool().max_bytes() / 16 * sixteenths;
        let bytes = match self.config.size(config::MAX_MEMORY) as u64 {
            0 => most_bytes,
            bytes => bytes.min(most_bytes),
        };
        let samples = self.config.size(config::MAX_MEMORY_SAMPLES) as u32;
        self.store.limit_memory(MemoryLimit { bytes, policy, samples });
    }

    /// A server of `store` with `loops` event loops; its settings are the defaults.
    pub(crate) fn new(store: Store, loops: usize, catalog: &'static Catalog) -> Self {
        let promise = store.pool().promise();
        // Forty hexadecimal digits, as tools expect; it need not be hard to guess.
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
        }
    }
}

/// The server.
pub struct Server {
    /// The commands that there are.
    pub(crate) catalog: &'static Catalog,
    /// Clients' keys.
    pub store: Store,
    /// What is counted.
    pub stats: Stats,
    /// Who may do what.
    pub(crate) acl: Acl,
    /// Who is connected.
    pub clients: Clients,
    /// The settings.
    pub config: Config,
    /// Commands that took long.
    pub(crate) slow_log: SlowLog,
    /// Says that HTTP requests come where none belong.
    pub web_request_alarm: Alarm,
    /// What the pool lies on, and what that means for what was acknowledged.
    pub promise: Promise,
    /// Different for every start.
    pub(crate) run_id: String,
    /// Where snapshots are written.
    pub snapshot: PathBuf,
    /// When the last snapshot began, or the last look whether one is due.
    saved_at: Mutex<Instant>,
    /// Changes that had been made when the last snapshot began.
    changes_at_save: AtomicU64,
    /// Keys that expire, as of when they were last counted.
    pub(crate) expiries: Mutex<Option<(Instant, Expiries)>>,
    /// Threads that were begun by requests and may outlive them.
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Whether a thread counts the keys for INFO.
    pub(crate) is_counting: AtomicBool,
    /// When it started, in milliseconds of the system's clock.
    pub(crate) started_system_ms: u64,
    /// The server itself, once it is shared.
    pub(crate) myself: Weak<Self>,
    /// Told when a client asks the server to end.
    pub stop: Notify,
}
