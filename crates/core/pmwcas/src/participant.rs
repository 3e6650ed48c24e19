//! The data of a participant's slot in process memory.

use std::cell::{Cell, RefCell};

use crate::word::{Life, MAX_WORDS};

/// The data of one slot; only the thread that is pinned in the slot uses it. It has lines of its
/// own, aligned to pairs of lines, since processors fetch pairs together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Participant {
    /// The last operation, if its clean-up waits for the next one.
    pub pending: RefCell<CommittedPending>,
    /// The descriptor of the partition that the next operation tries first.
    pub next: Cell<u64>,
}

// SAFETY: only the thread that is pinned in the slot uses its cells, and the pool orders the
// hand-over of a slot from thread to thread.
unsafe impl Sync for Participant {}

/// The last operation of a slot, if its clean-up is pending.
#[derive(Debug, Default)]
pub(crate) struct CommittedPending {
    pub life: Option<Life>,
    /// Address and new value of each target.
    pub targets: [(u64, u64); MAX_WORDS],
    pub count: usize,
}

impl CommittedPending {
    pub fn targets(&self) -> &[(u64, u64)] {
        &self.targets[..self.count]
    }

    pub fn offs(&self) -> impl Iterator<Item = u64> {
        self.targets().iter().map(|&(off, _)| off)
    }
}
