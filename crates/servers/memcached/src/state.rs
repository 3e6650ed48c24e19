//! What all connections of this protocol share.

use std::sync::atomic::{AtomicU64, Ordering};

use pando_keyspace::Store;
use pando_net::stats::Stats;
use pando_net::web_request::Alarm;
use parking_lot::Mutex;

use crate::counters::Counters;

/// The version that clients are told: whose protocol it is.
pub(crate) const VERSION: &str = "1.6.18";
/// A value, with its key and what memcached keeps of it, is no longer than this unless it is set.
const DEFAULT_MAX_ITEM_BYTES: usize = 1 << 20;
/// And it is set to no more than this, which is memcached's own limit.
const LARGEST_MAX_ITEM_BYTES: usize = 1 << 30;

/// What all connections of this protocol share.
#[derive(Debug)]
pub struct State {
    pub(crate) counters: Counters,
    pub(crate) waiting: Waiting,
    pub(crate) max_item_bytes: usize,
}

impl State {
    /// A value may be so long, with its key and what memcached keeps of it; none for memcached's
    /// limit.
    pub fn new(max_item_bytes: Option<u64>) -> Self {
        let max_item_bytes = max_item_bytes.map_or(DEFAULT_MAX_ITEM_BYTES, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX).min(LARGEST_MAX_ITEM_BYTES)
        });
        Self { counters: Counters::default(), waiting: Waiting::default(), max_item_bytes }
    }
}

/// What a connection works with.
#[derive(Clone, Copy)]
pub struct Server<'run> {
    /// Clients' keys.
    pub store: &'run Store,
    /// What servers of all protocols count.
    pub stats: &'run Stats,
    /// Says that HTTP requests come where none belong.
    pub web_request_alarm: &'run Alarm,
    /// What connections of this protocol share.
    pub state: &'run State,
}

/// When the flush that waits is due, in milliseconds of the store's clock; `u64::MAX` if none
/// waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) due_at: AtomicU64,
    /// Held by who flushes.
    pub(crate) turn: Mutex<()>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { due_at: AtomicU64::new(u64::MAX), turn: Mutex::new(()) }
    }
}

impl Waiting {
    /// In place of what waits already.
    pub(crate) fn wait_until(&self, due_at: u64) {
        let _turn = self.turn.lock();
        // Relaxed: only the moment itself matters, and who finds that it has come takes the lock.
        self.due_at.store(due_at, Ordering::Relaxed);
    }
}
