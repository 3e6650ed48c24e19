//! Room that no record uses any more goes back to the system, so that a file gets smaller by itself
//! when keys go.
//!
//! The sweep returns some of it each time, as long as it finds any ([`Room::return_some`]).
//! To look costs a pass over the pool's table of chunks, so after a look that found nothing it
//! looks [`LOOK_AGAIN`] sweeps later; a flush has it look at once. MEMORY PURGE returns all that
//! there is, in a thread of its own ([`return_all`]).
//!
//! Writes that need the room again have to make it, chunk by chunk. How much of it they may lose to
//! the sweep is bounded by [`AT_ONCE_BYTES`] a sweep: 160 MiB a second, of which making them again
//! takes a few hundredths.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pando::Pool;

use crate::failure::Result;

/// What one step returns: other threads find so much less room for as long as it takes.
const STEP_BYTES: u64 = 1 << 20;
/// What one sweep returns at most.
const AT_ONCE_BYTES: u64 = 16 << 20;
/// Sweeps until the next look, after one that found nothing; after one that failed.
const LOOK_AGAIN: u32 = 10;
const TRY_AGAIN: u32 = 600;

/// Who looks for room that is not used, and when.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Whether a thread returns all of it. Relaxed: two of them do no harm.
    is_returned: AtomicBool,
    /// Sweeps that do not look. Relaxed, wherever it is: a flush that is overlooked is seen by the
    /// next look.
    pauses: AtomicU32,
}

impl Room {
    /// There may be room to return now.
    pub(crate) fn look_now(&self) {
        self.pauses.store(0, Ordering::Relaxed);
    }

    /// Returns some of the room of `pool` that is not used, for a sweep.
    pub(crate) fn return_some(&self, pool: &Pool) -> Result<()> {
        let pauses = self.pauses.load(Ordering::Relaxed);
        if pauses > 0 {
            self.pauses.store(pauses - 1, Ordering::Relaxed);
            return Ok(());
        }
        self.pauses.store(TRY_AGAIN, Ordering::Relaxed);
        let mut returned_bytes = 0;
        while returned_bytes < AT_ONCE_BYTES {
            match pool.release_unused(STEP_BYTES)? {
                0 => break,
                bytes => returned_bytes += bytes,
            }
        }
        let pauses = if returned_bytes > 0 { 0 } else { LOOK_AGAIN };
        self.pauses.store(pauses, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the caller is to return all room; not if another thread is at it.
    pub(crate) fn begin_return_of_all(&self) -> bool {
        !self.is_returned.swap(true, Ordering::Relaxed)
    }

    /// Gives up what [`begin_return_of_all`](Self::begin_return_of_all) has begun.
    pub(crate) fn end_return_of_all(&self) {
        self.is_returned.store(false, Ordering::Relaxed);
    }
}

/// Returns all room of `pool` that is not used to the system, until `is_ending`; how many bytes.
pub(crate) fn return_all(pool: &Pool, is_ending: &AtomicBool) -> Result<u64> {
    let mut returned_bytes = 0;
    // Relaxed: who sees it late returns a little more.
    while !is_ending.load(Ordering::Relaxed) {
        match pool.release_unused(STEP_BYTES)? {
            0 => break,
            bytes => returned_bytes += bytes,
        }
    }
    Ok(returned_bytes)
}
