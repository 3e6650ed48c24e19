//! How often changes of pages lose a race, as in table I of the Bw-tree paper. A handle that was
//! created for it counts them in process memory, and so do its clones.

use std::sync::atomic::{AtomicU64, Ordering};

/// A change of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Race {
    /// A write of a record, consolidations with one included.
    Write,
    /// The replacement of a chain by a base page.
    Consolidation,
    /// Of leaves and inner pages.
    Split,
    /// Of leaves and inner pages.
    Merge,
}

#[derive(Debug, Default)]
struct Count {
    attempts: AtomicU64,
    failures: AtomicU64,
}

/// Attempts to change pages, and the number of those that failed because another thread's change
/// came first.
#[derive(Debug, Default)]
pub struct Races {
    counts: [Count; 4],
}

impl Races {
    /// Attempts, and those of them that failed.
    pub fn of(&self, race: Race) -> (u64, u64) {
        let count = &self.counts[race as usize];
        // Relaxed: only the numbers matter.
        (count.attempts.load(Ordering::Relaxed), count.failures.load(Ordering::Relaxed))
    }

    #[cold]
    pub(crate) fn add(&self, race: Race, is_won: bool) {
        let count = &self.counts[race as usize];
        count.attempts.fetch_add(1, Ordering::Relaxed);
        count.failures.fetch_add(u64::from(!is_won), Ordering::Relaxed);
    }
}
