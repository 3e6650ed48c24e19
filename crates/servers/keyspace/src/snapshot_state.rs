//! The running snapshot, and the result of the last one.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock;
use crate::failure::Failure;
use crate::snapshot_file::Writer;

/// Snapshots of a store.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// The number of the running snapshot; zero if there is none.
    pub(crate) writing: AtomicU64,
    pub(crate) writer: Mutex<Option<Writer>>,
    /// The error that a command found in the running snapshot.
    pub(crate) failure: Mutex<Option<Failure>>,
    pub(crate) state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) begun: u64,
    pub(crate) last: SnapshotState,
}

/// The state of snapshots.
#[derive(Clone, Debug, Default)]
pub struct SnapshotState {
    /// Whether a snapshot is being written.
    pub is_writing: bool,
    /// When the last successful snapshot was finished, in milliseconds of the system's clock; zero
    /// if there was none since the server started.
    pub finished_system_ms: u64,
    /// Whether the last snapshot failed.
    pub has_failed: bool,
}

/// A snapshot that is being written. Its end is noted when this is dropped, so also after a panic:
/// otherwise no later snapshot could begin.
pub(crate) struct Saving<'store> {
    pub(crate) snapshots: &'store Snapshots,
    pub(crate) is_saved: bool,
}

impl Drop for Saving<'_> {
    fn drop(&mut self) {
        // Release: with the loads by holders of stripes. No command writes to the snapshot now.
        self.snapshots.writing.store(0, Ordering::Release);
        drop(self.snapshots.writer.lock().take());
        let mut state = self.snapshots.state.lock();
        state.last.is_writing = false;
        state.last.has_failed = !self.is_saved;
        if self.is_saved {
            state.last.finished_system_ms = clock::system_ms();
        }
    }
}
