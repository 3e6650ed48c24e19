//! The running snapshot, and the result of the last one.

use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

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
