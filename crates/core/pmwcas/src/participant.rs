//! What belongs to a participant's slot in process memory.

use std::cell::{Cell, RefCell};

use crate::word::{Life, MAX_WORDS};

/// What belongs to a participant's slot, and only the thread that is pinned there touches: on lines
/// of its own, and on pairs of them, which processors fetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Participant {
    /// The operation whose references wait for the next one.
    pub pending: RefCell<CommittedPending>,
    /// Which descriptor of its own it looks at first.
    pub next: Cell<u64>,
}

// SAFETY: the cells of a slot are only touched by the thread that is pinned in the slot, and the
// pool orders the hand-over of a slot from thread to thread.
unsafe impl Sync for Participant {}

/// The last operation of a participant's thread, if its clean-up is pending.
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
