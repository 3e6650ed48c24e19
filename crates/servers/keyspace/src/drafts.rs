//! Records that are being written and that no head leads to yet (`pieces.rs`).

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::layout::CollectionId;

/// Numbers under which something is being written that no head has yet.
#[derive(Debug, Default)]
pub(crate) struct Drafts(Mutex<SmallVec<[CollectionId; 4]>>);

impl Drafts {
    /// Holds the list as it is.
    pub(crate) fn hold(&self) -> MutexGuard<'_, SmallVec<[CollectionId; 4]>> {
        self.0.lock()
    }

    /// The drafts of a transaction that has ended.
    pub(crate) fn end(&self, ended: &[CollectionId]) {
        self.0.lock().retain(|draft| !ended.contains(draft));
    }
}
