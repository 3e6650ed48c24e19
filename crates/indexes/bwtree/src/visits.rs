//! A count that many threads raise, each in a line of its own.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const STRIPES: usize = 16;

/// Two lines: the processor fetches them together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// How often leaves were used.
#[derive(Debug, Default)]
pub(crate) struct Visits([Stripe; STRIPES]);

/// The number of the calling thread.
fn this_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Relaxed: only the number matters.
        static THIS: usize = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    THIS.try_with(|&this| this).unwrap_or_default()
}

impl Visits {
    /// Counts one.
    pub fn add(&self) {
        // Relaxed: only the number matters.
        self.0[this_thread() % STRIPES].0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count(&self) -> u64 {
        // Relaxed: as above.
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}
