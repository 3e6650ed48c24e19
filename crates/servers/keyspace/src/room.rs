//! Returns room that no record uses to the system, so that a file shrinks when keys are removed.
//!
//! Each sweep returns some room, as long as there is any ([`Room::return_some`]). A search reads
//! the pool's whole table of chunks. So after a search without result the next one is
//! [`LOOK_AGAIN`] sweeps later; a flush triggers a search at once. MEMORY PURGE returns all unused
//! room, in a thread of its own ([`return_all`]).
//!
//! Writes that need returned room have to allocate it again, chunk by chunk. A sweep returns at
//! most [`AT_ONCE_BYTES`], which is 160 MiB per second; allocating that again takes a few
//! hundredths of a second.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pando::Pool;

use crate::failure::Result;

/// Room returned in one step; during the step other threads cannot use it.
const STEP_BYTES: u64 = 1 << 20;
/// Most room returned by one sweep.
const AT_ONCE_BYTES: u64 = 16 << 20;
/// Sweeps until the next search: after a search without result, and after an error.
const LOOK_AGAIN: u32 = 10;
const TRY_AGAIN: u32 = 600;

/// When to search for unused room.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Whether a thread returns all room. Relaxed: two such threads do no harm.
    is_returned: AtomicBool,
    /// Sweeps to skip. Relaxed everywhere: if a flush is missed, the next search finds its room.
    pauses: AtomicU32,
}

impl Room {
    /// Searches at the next sweep.
    pub(crate) fn look_now(&self) {
        self.pauses.store(0, Ordering::Relaxed);
    }

    /// Returns some unused room of `pool`, for a sweep.
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

    /// Whether the caller may return all room: only one thread does so at a time.
    pub(crate) fn begin_return_of_all(&self) -> bool {
        !self.is_returned.swap(true, Ordering::Relaxed)
    }

    /// Ends what [`begin_return_of_all`](Self::begin_return_of_all) has begun.
    pub(crate) fn end_return_of_all(&self) {
        self.is_returned.store(false, Ordering::Relaxed);
    }
}

/// Returns all unused room of `pool` to the system, until `is_ending`; returns the bytes.
pub(crate) fn return_all(pool: &Pool, is_ending: &AtomicBool) -> Result<u64> {
    let mut returned_bytes = 0;
    // Relaxed: a late view only returns a little more.
    while !is_ending.load(Ordering::Relaxed) {
        match pool.release_unused(STEP_BYTES)? {
            0 => break,
            bytes => returned_bytes += bytes,
        }
    }
    Ok(returned_bytes)
}
