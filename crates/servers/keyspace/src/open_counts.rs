//! The sizes of open collections, which the process keeps (`counts.rs`).

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::layout::CollectionId;

/// An open collection.
#[derive(Debug)]
struct Entry {
    count: u64,
    /// The key of its head.
    head_key: Box<[u8]>,
}

/// The open collections. A thread that reads or writes a number holds the lock of the collection's
/// key.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<HashMap<CollectionId, Entry>>);

impl Counts {
    pub(crate) fn get(&self, id: CollectionId) -> Option<u64> {
        self.0.lock().get(&id).map(|entry| entry.count)
    }

    pub(crate) fn put(&self, id: CollectionId, head_key: &[u8], count: u64) {
        self.0.lock().insert(id, Entry { count, head_key: head_key.into() });
    }

    pub(crate) fn set(&self, id: CollectionId, count: u64) {
        if let Some(entry) = self.0.lock().get_mut(&id) {
            entry.count = count;
        }
    }

    pub(crate) fn forget(&self, id: CollectionId) {
        self.0.lock().remove(&id);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// At most `most` of them, with the keys of their heads.
    pub(crate) fn some(&self, most: usize) -> Vec<(CollectionId, Box<[u8]>)> {
        let entries = self.0.lock();
        entries.iter().take(most).map(|(id, entry)| (*id, entry.head_key.clone())).collect()
    }
}
