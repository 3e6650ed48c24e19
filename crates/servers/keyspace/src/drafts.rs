//! Drafts: records of long strings that no head refers to yet (`pieces.rs`).

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::layout::CollectionId;

/// The numbers of drafts.
#[derive(Debug, Default)]
pub(crate) struct Drafts(Mutex<SmallVec<[CollectionId; 4]>>);

impl Drafts {
    /// Locks the list.
    pub(crate) fn hold(&self) -> MutexGuard<'_, SmallVec<[CollectionId; 4]>> {
        self.0.lock()
    }

    /// Removes the drafts of a transaction that has ended.
    pub(crate) fn end(&self, ended: &[CollectionId]) {
        self.0.lock().retain(|draft| !ended.contains(draft));
    }
}
