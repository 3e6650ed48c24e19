//! Maps that were dropped and not free when their pool was closed or killed: a thread frees them
//! after the pool is opened.
//!
//! Opening looks at the catalog, in 1,024 loads, and starts the thread only if there is such a map,
//! so it takes no longer than before. A thread, and not steps within later calls: a program that
//! only reads, or none of whose calls needs room, gives the space back too, and no call of it takes
//! longer by somebody else's map. Closing the pool stops the thread between two steps; the next
//! opening goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use pando_pmem::Domain;
use pando_tree::maps::Catalog;

/// The thread, which ends when this is dropped, or before.
pub(super) struct Resumed {
    is_enough: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Resumed {
    /// Goes on with what is dropped, if anything is.
    pub fn begin<D: Domain>(catalog: &Arc<Catalog<D>>) -> Option<Self> {
        if !catalog.pool().has_dropped_maps() {
            return None;
        }
        let is_enough = Arc::new(AtomicBool::new(false));
        let (catalog, asked) = (Arc::clone(catalog), Arc::clone(&is_enough));
        let free = move || {
            // Relaxed: the flag says nothing of other memory. What could not be freed is freed by
            // the next opening, or by who needs room.
            let _ = catalog.free_dropped(&|| asked.load(Ordering::Relaxed));
        };
        let thread = Builder::new().name("pando-drop".to_owned()).spawn(free);
        // Without a thread, who needs room frees them.
        thread.ok().map(|thread| Self { is_enough, thread: Mutex::new(Some(thread)) })
    }

    /// Waits until the thread has freed what it began with. Then no block is on its way from a
    /// dropped map to the allocator, which a check would report as leaked.
    pub fn wait(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // It panics only by a bug of ours, which was told.
            let _ = thread.join();
        }
    }
}

impl Drop for Resumed {
    fn drop(&mut self) {
        self.is_enough.store(true, Ordering::Relaxed);
        self.wait();
    }
}
