//! A hold: a pin that belongs to no thread, for bytes that a program keeps borrowed.
//!
//! The guard of a call ends with the call, in the thread that made it. A hold lasts as long as its
//! owner wants, and any thread may end it. It has a slot of its own, in which no thread runs an
//! operation.
//!
//! | step | what is written | a crash leaves |
//! | --- | --- | --- |
//! | 1 begin | the lease of a slot, by CAS, as when a thread pins (`participant.rs`) | a slot of an earlier generation, or of a dead process |
//! | 2 hold | nothing | the same |
//! | 3 end | the lease, without its pin | a slot that a thread may take |
//!
//! The deciding word is the lease, as for a thread. No thread remembers the lease, so no thread
//! pins by it. Another thread may take the slot after step 3. Nobody helps and nobody waits: while
//! the hold lives, the epoch rises once at most, and the pool reuses no block that was unlinked
//! meanwhile.
//!
//! A hold protects all that a search finds which begins later. Let the global epoch be `e` when
//! the hold becomes visible. From then on it is at most `e + 1`. Such a search reaches a block only
//! if the block was linked when the search began, or if an operation in progress has unlinked it,
//! whose owner was pinned in `e - 1` or later (`epoch.rs`: a helper reaches such blocks). So the
//! block was unlinked in `e - 1` or later, and is reused at `e + 2` or later. That is not while the
//! hold lives.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::lease::VERSION;
use crate::mutant;
use crate::pool::Pool;
use crate::sys::Process;

/// Most holds of a process at a time. Each has a slot, of which there are 8,192.
const MOST_HOLDS: usize = 1024;
/// The same in a shared pool, where a process keeps its slots until it leaves the pool.
const MOST_HOLDS_OF_SHARED: usize = 128;

/// A pin that belongs to no thread: while it lives, the pool reuses no block that a search finds
/// which begins later than the hold.
#[derive(Debug)]
pub struct Hold<D: Domain> {
    pool: Arc<Pool<D>>,
    slot: usize,
}

impl<D: Domain> Pool<D> {
    /// Begins a hold, which keeps a slot of the table of participants until it is dropped. A
    /// process has at most 1,024 at a time; 128 of a shared pool.
    ///
    /// # Errors
    ///
    /// [`Error::NoParticipantSlot`]; [`Error::Forked`] in a forked child.
    pub fn begin_hold(self: &Arc<Self>) -> Result<Hold<D>> {
        if self.slots.process.is_some_and(Process::has_forked) {
            return Err(Error::Forked(self.path().to_path_buf()));
        }
        let most = if self.is_shared() { MOST_HOLDS_OF_SHARED } else { MOST_HOLDS };
        let holds = &self.slots.holds;
        // Relaxed, here and below: it is a count.
        let counted = holds.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |holds| {
            (holds < most).then_some(holds + 1)
        });
        if counted.is_err() {
            let why = format!("a process has at most {most} pins or guards of values");
            return Err(Error::NoParticipantSlot { threads: most, why });
        }
        let guard = self.take_any().inspect_err(|_| {
            holds.fetch_sub(1, Ordering::Relaxed);
        })?;
        let slot = guard.slot();
        if !mutant!("hold-ends-at-once") {
            // The slot stays pinned. No thread uses its data in process memory meanwhile.
            std::mem::forget(guard);
        }
        Ok(Hold { pool: Arc::clone(self), slot })
    }
}

impl<D: Domain> Hold<D> {
    /// Whether these bytes lie in the pool. Else the hold does not protect them.
    pub fn covers(&self, bytes: &[u8]) -> bool {
        let first = bytes.as_ptr().addr() as u64;
        let pool = self.pool.addresses();
        pool.contains(&first) && bytes.len() as u64 <= pool.end - first
    }
}

impl<D: Domain> Drop for Hold<D> {
    fn drop(&mut self) {
        // A forked child has a copy of the hold, but the slot belongs to its parent.
        if !self.pool.slots.is_ours() {
            return;
        }
        let lease = self.pool.lease_at(self.pool.slot_off(self.slot));
        // No thread remembers the slot, so another one may take it at once, and then clears this:
        // so it is set while the slot is still pinned.
        self.pool.slots.ended.set(self.slot);
        // As when a thread unpins: release, paired with the acquire load in `try_advance`. What the
        // owner has read of the bytes came before. No other thread changes the lease of a pinned
        // slot.
        lease.store_transient(lease.load_unobserved() & VERSION);
        self.pool.slots.holds.fetch_sub(1, Ordering::Relaxed);
    }
}
