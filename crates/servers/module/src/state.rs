//! The state of the module in this process.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::files::Files;
use crate::garbage::Collector;
use crate::names::Names;
use crate::store::Store;
use crate::workers::Workers;

/// Where the server is. Only the main thread changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A start at which the pool has precedence: until the first sleep of the event loop, or the
    /// end of MODULE LOAD, writes, loads, frees and flushes leave the pool alone.
    PoolFirst = 0,
    /// A start at which the files have precedence: they are applied to an empty pool.
    FilesFirst = 1,
    Serving = 2,
    /// A later load: full sync, DEBUG RELOAD.
    Loading = 3,
}

/// All of it. The counters and truth values are loaded and stored relaxed: the main thread alone
/// decides by them, and no other memory follows from them.
#[derive(Debug)]
pub struct State {
    store: Mutex<Option<Arc<Store>>>,
    collector: OnceLock<Collector>,
    phase: AtomicU8,
    pub names: Names,
    pub workers: Workers,
    /// Whether a start from the pool still has to write the files.
    pub files: Files,
    /// Stubs of files that stand for no map.
    pub placeholders: AtomicU64,
    /// The main thread saves an RDB file or an append-only file.
    pub is_saving: AtomicBool,
    /// The policy of `maxmemory` lets the server remove maps, and the log says so.
    pub has_warned_of_policy: AtomicBool,
    /// Maps at the last start from the pool, and its time in microseconds.
    pub rebuilt_maps: AtomicU64,
    pub rebuilt_us: AtomicU64,
}

/// The state.
pub static STATE: State = State {
    store: Mutex::new(None),
    collector: OnceLock::new(),
    phase: AtomicU8::new(Phase::FilesFirst as u8),
    names: Names::new(),
    workers: Workers::new(),
    files: Files::new(),
    placeholders: AtomicU64::new(0),
    is_saving: AtomicBool::new(false),
    has_warned_of_policy: AtomicBool::new(false),
    rebuilt_maps: AtomicU64::new(0),
    rebuilt_us: AtomicU64::new(0),
};

impl State {
    /// Sets the pool, and starts the removal of garbage.
    pub fn begin(&self, store: Arc<Store>, collector: Collector, phase: Phase) {
        let _ = self.collector.set(collector);
        self.set_phase(phase);
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = Some(store);
    }

    /// The pool; none before the start and after the shutdown.
    pub fn store(&self) -> Option<Arc<Store>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the pool away.
    pub fn take_store(&self) -> Option<Arc<Store>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The pool, and the removal of its garbage.
    pub fn parts(&self) -> Option<(Arc<Store>, &Collector)> {
        Some((self.store()?, self.collector.get()?))
    }

    pub fn collector(&self) -> Option<&Collector> {
        self.collector.get()
    }

    pub fn phase(&self) -> Phase {
        // Relaxed: the main thread alone sets it, and decides by it.
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::PoolFirst,
            1 => Phase::FilesFirst,
            2 => Phase::Serving,
            _ => Phase::Loading,
        }
    }

    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
}
