//! The state that all connections of this protocol share.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pando_keyspace::Store;
use pando_net::stats::Stats;
use pando_net::web_request::Alarm;
use parking_lot::Mutex;

use crate::counters::Counters;

/// The version of memcached that this server follows.
pub(crate) const VERSION: &str = "1.6.18";
/// The default limit of a value, with its key and overhead.
const DEFAULT_MAX_ITEM_BYTES: usize = 1 << 20;
/// The largest limit, which is memcached's.
const LARGEST_MAX_ITEM_BYTES: usize = 1 << 30;

/// The state that all connections of this protocol share.
#[derive(Debug)]
pub struct State {
    pub(crate) counters: Counters,
    pub(crate) waiting: Waiting,
    pub(crate) max_item_bytes: usize,
}

impl State {
    /// `max_item_bytes` limits a value with its key and overhead; `None` for memcached's default.
    pub fn new(max_item_bytes: Option<u64>) -> Self {
        let max_item_bytes = max_item_bytes.map_or(DEFAULT_MAX_ITEM_BYTES, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX).min(LARGEST_MAX_ITEM_BYTES)
        });
        Self { counters: Counters::default(), waiting: Waiting::default(), max_item_bytes }
    }
}

/// The parts of the server that a connection uses.
#[derive(Clone, Copy)]
pub struct Server<'run> {
    /// The keys of clients.
    pub store: &'run Store,
    /// The statistics of all protocols.
    pub stats: &'run Stats,
    /// Raised by HTTP requests on a port of another protocol.
    pub web_request_alarm: &'run Alarm,
    /// The state that connections of this protocol share.
    pub state: &'run State,
}

/// The server of one connection.
pub(crate) struct Serving<'run> {
    server: Server<'run>,
    /// Whether the present request has had an exclusive lock, so it may have written.
    pub may_write: Cell<bool>,
}

impl<'run> Serving<'run> {
    pub(crate) fn of(server: Server<'run>) -> Self {
        Self { server, may_write: Cell::new(false) }
    }
}

impl<'run> Deref for Serving<'run> {
    type Target = Server<'run>;

    fn deref(&self) -> &Server<'run> {
        &self.server
    }
}

/// The time of the delayed flush, in milliseconds of the store's clock; `u64::MAX` if there is
/// none.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) due_at: AtomicU64,
    /// Held during a flush.
    pub(crate) turn: Mutex<Option<Refused>>,
}

/// A delayed flush that was refused.
#[derive(Debug)]
pub(crate) struct Refused {
    /// When it is tried again.
    pub(crate) again_at: Instant,
    /// The error until then.
    pub(crate) failure: String,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { due_at: AtomicU64::new(u64::MAX), turn: Mutex::new(None) }
    }
}

impl Waiting {
    /// Sets the time, and replaces an earlier one.
    pub(crate) fn wait_until(&self, due_at: u64) {
        let mut refused = self.turn.lock();
        *refused = None;
        // Relaxed: only the time matters, and a thread that finds that it has come takes the lock.
        self.due_at.store(due_at, Ordering::Relaxed);
    }
}
