//! Writes that fail in tests, as in a full pool.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::Result;

/// Writes that fail, as in a full pool.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    granted: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Refusals {
    /// Lets the next `granted` writes succeed, and the next `refused` ones fail.
    pub(crate) fn set(&self, granted: u64, refused: u64) {
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
