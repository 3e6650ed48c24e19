//! Maps that were dropped, but not yet freed when their pool was closed or killed. A thread frees
//! them after the pool is opened.
//!
//! Opening reads the catalog, in 1,024 loads, and starts the thread only if there is such a map. So
//! opening takes no longer. The work is done by a thread, and not in steps of later calls, for two
//! reasons. A program that only reads, or that needs no room, gives the space back too. And no call
//! takes longer because of another map. Closing the pool stops the thread between two steps; the
//! next opening continues.

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
    /// Starts the thread if there are dropped maps.
    pub fn begin<D: Domain>(catalog: &Arc<Catalog<D>>) -> Option<Self> {
        if !catalog.slots().has_dropped_maps() {
            return None;
        }
        let is_enough = Arc::new(AtomicBool::new(false));
        let (catalog, asked) = (Arc::clone(catalog), Arc::clone(&is_enough));
        let free = move || {
            // Relaxed: the flag orders no other memory. After an error the next opening frees the
            // rest, or the next thread that needs room.
            let _ = catalog.free_dropped(&|| asked.load(Ordering::Relaxed));
        };
        let thread = Builder::new().name("pando-drop".to_owned()).spawn(free);
        // If the thread cannot be started, the next thread that needs room frees them.
        thread.ok().map(|thread| Self { is_enough, thread: Mutex::new(Some(thread)) })
    }

    /// Waits until the thread has ended. A check would report a block as leaked if the thread had
    /// taken it from a dropped map and not yet freed it.
    pub fn wait(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // It panics only because of a bug, and the panic was reported.
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
