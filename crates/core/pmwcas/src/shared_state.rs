//! What an index keeps in process memory, shared by all its handles on one pool.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pando_pmem::Domain;

use crate::pmwcas::Pmwcas;

type SharedState = Weak<dyn Any + Send + Sync>;

/// By the offset of the index's entry word.
#[derive(Debug, Default)]
pub(crate) struct SharedStates(Mutex<HashMap<u64, SharedState>>);

impl SharedStates {
    fn locked(&self) -> MutexGuard<'_, HashMap<u64, SharedState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Domain> Pmwcas<D> {
    /// What the index whose entry word is at `root_off` keeps in process memory: what another
    /// handle of it has, or else what `make` makes. It lives as long as some handle holds it.
    ///
    /// For opening an index, not for its operations: one call waits for another, and for its
    /// `make`.
    pub fn shared_state<T: Any + Send + Sync>(
        &self,
        root_off: u64,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut shared_states = self.shared_states().locked();
        let known = shared_states.get(&root_off).and_then(Weak::upgrade);
        if let Some(known) = known.and_then(|known| known.downcast::<T>().ok()) {
            return known;
        }
        let made = Arc::new(make());
        let weak: Weak<T> = Arc::downgrade(&made);
        shared_states.insert(root_off, weak);
        made
    }

    /// The index whose entry word was at `root_off` is no more.
    pub fn forget_shared_state(&self, root_off: u64) {
        self.shared_states().locked().remove(&root_off);
    }
}
