//! The position of the sweeps of a full pool, for one handle (`smo/sweep.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The position of a handle's sweeps.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// The number at which the next sweep begins.
    pub(crate) at: AtomicU64,
    /// Whether some leaf may wait for its merge.
    pub(crate) owes: AtomicBool,
    /// Whether writes of the handle were refused more than once.
    pub(crate) was_full: AtomicBool,
    /// Numbers that sweeps have passed since a leaf was changed; the maximum if that was a whole
    /// round.
    pub(crate) passed: AtomicU64,
}

impl Default for Sweep {
    fn default() -> Self {
        // A new handle does not know whether a leaf waits.
        let owes = AtomicBool::new(true);
        let [at, passed] = [AtomicU64::new(0), AtomicU64::new(0)];
        Self { at, owes, was_full: AtomicBool::new(false), passed }
    }
}

impl Sweep {
    /// Whether the handle has found the pool full.
    pub(crate) fn was_full(&self) -> bool {
        // Relaxed: see `owe`.
        self.was_full.load(Ordering::Relaxed)
    }

    /// Notes that a record was deleted.
    #[inline]
    pub(crate) fn stir(&self) {
        // Relaxed: see `owe`. Written rarely, since all threads read it.
        if self.passed.load(Ordering::Relaxed) == u64::MAX {
            self.passed.store(0, Ordering::Relaxed);
        }
    }

    /// Notes that a leaf waits for its merge.
    pub(crate) fn owe(&self) {
        // Relaxed, as all accesses here: the word orders nothing. A thread that misses the store
        // refuses a write that might have been possible.
        self.owes.store(true, Ordering::Relaxed);
        self.passed.store(0, Ordering::Relaxed);
    }
}
