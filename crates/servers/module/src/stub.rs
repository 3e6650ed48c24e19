//! The value of a key in Redis's memory: the number of a map, and its figures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::layout::Head;
use crate::store::Store;

/// A map in the keyspace. Its records are in the pool.
#[derive(Debug)]
pub struct Stub {
    number: u64,
    /// None before the first use: a start reads no head.
    head: Mutex<Option<Head>>,
    is_removed: AtomicBool,
}

/// The number of a stub that stands for a map of a file, while the pool has precedence.
const PLACEHOLDER: u64 = 0;

impl Stub {
    pub fn new(number: u64, head: Option<Head>) -> Self {
        Self { number, head: Mutex::new(head), is_removed: AtomicBool::new(false) }
    }

    pub fn placeholder() -> Self {
        Self::new(PLACEHOLDER, Some(Head::default()))
    }

    pub fn is_placeholder(&self) -> bool {
        self.number == PLACEHOLDER
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// The figures. Only the main thread, and a forked child, call this.
    pub fn head(&self, store: &Store) -> Result<Head, pando::Error> {
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        match *head {
            Some(head) => Ok(head),
            None => Ok(*head.insert(store.head(self.number)?)),
        }
    }

    /// The figures, if they are known.
    pub fn known_head(&self) -> Option<Head> {
        *self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_head(&self, head: Head) {
        *self.head.lock().unwrap_or_else(PoisonError::into_inner) = Some(head);
    }

    /// The commit that emptied the map has removed its entry too: nothing is left to remove.
    pub fn set_removed(&self) {
        // Relaxed: the thread that frees the stub gets it through a lock of Redis.
        self.is_removed.store(true, Ordering::Relaxed);
    }

    pub fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }
}
