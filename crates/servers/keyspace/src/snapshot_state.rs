//! The snapshot that is being written, and what became of the last one.

use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use crate::snapshot_file::Writer;

/// Snapshots of a store.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// The number of the one that is being written; else zero.
    pub(crate) writing: AtomicU64,
    pub(crate) writer: Mutex<Option<Writer>>,
    pub(crate) state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) begun: u64,
    pub(crate) last: SnapshotState,
}

/// What became of snapshots.
#[derive(Clone, Debug, Default)]
pub struct SnapshotState {
    /// Whether one is being written.
    pub is_writing: bool,
    /// When the last one that succeeded was finished, in milliseconds of the system's clock; zero
    /// if none has since the server began.
    pub finished_system_ms: u64,
    /// Whether the last one failed.
    pub has_failed: bool,
}
