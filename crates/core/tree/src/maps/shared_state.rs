//! The process memory of an index, shared by all its handles on one pool.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

type SharedState = Weak<dyn Any + Send + Sync>;

/// By the offset of the index's entry word.
#[derive(Debug, Default)]
pub(super) struct SharedStates(Mutex<HashMap<u64, SharedState>>);

impl SharedStates {
    fn locked(&self) -> MutexGuard<'_, HashMap<u64, SharedState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory that the handles of the index at `root_off` share; made by `make` if there is
    /// none.
    pub fn find_or_make<T: Any + Send + Sync>(
        &self,
        root_off: u64,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut shared_states = self.locked();
        let known = shared_states.get(&root_off).and_then(Weak::upgrade);
        if let Some(known) = known.and_then(|known| known.downcast::<T>().ok()) {
            return known;
        }
        let made = Arc::new(make());
        let weak: Weak<T> = Arc::downgrade(&made);
        shared_states.insert(root_off, weak);
        made
    }

    pub fn forget(&self, root_off: u64) {
        self.locked().remove(&root_off);
    }
}
