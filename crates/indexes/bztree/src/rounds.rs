//! How far the sweeps of a full pool have come, for one handle (`smo/sweep.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where the sweeps of a handle have come to.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// The number at which the next one begins.
    pub(crate) at: AtomicU64,
    /// Whether some leaf may wait for its merge.
    pub(crate) owes: AtomicBool,
    /// Whether a write of the handle was ever refused, and not only once.
    pub(crate) was_full: AtomicBool,
    /// Numbers that sweeps have passed since a leaf was changed; the most if that was a round.
    pub(crate) passed: AtomicU64,
}

impl Default for Sweep {
    fn default() -> Self {
        // It cannot know whether a leaf waits.
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
        // Relaxed: see `owe`. Written seldom, since all threads read it.
        if self.passed.load(Ordering::Relaxed) == u64::MAX {
            self.passed.store(0, Ordering::Relaxed);
        }
    }

    /// Notes that a leaf waits for its merge.
    pub(crate) fn owe(&self) {
        // Relaxed, as all here: it orders nothing; who misses it refuses a write that might have
        // been carried out.
        self.owes.store(true, Ordering::Relaxed);
        self.passed.store(0, Ordering::Relaxed);
    }
}
