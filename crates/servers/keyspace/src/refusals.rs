//! Writes that a test has the store refuse, as a full pool would.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::Result;

/// Writes that are refused, as by a full pool.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    granted: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Refusals {
    /// The next `granted` writes are made, and then so many refused.
    pub(crate) fn come(&self, granted: u64, refused: u64) {
        self.granted.store(granted, Ordering::Relaxed);
        self.refused.store(refused, Ordering::Relaxed);
    }

    pub(crate) fn step(&self) -> Result<()> {
        let less = |left: u64| left.checked_sub(1);
        let take = |from: &AtomicU64| {
            from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
        };
        match take(&self.granted) || !take(&self.refused) {
            true => Ok(()),
            false => Err(pando::Error::PoolFull { max_bytes: 0 }.into()),
        }
    }
}
