//! What the handles of a pool, and those of a map, share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pando_index::RangeIndex;

use crate::engine::Engine;

/// What the handles of one pool share.
pub(crate) struct PoolShared {
    pub(crate) engine: Box<dyn Engine>,
    /// Whether it was opened to be copied out and no more.
    pub(crate) is_salvaged: bool,
    /// The maps of which a handle is held, so that all handles of a map share one index.
    pub(crate) open_maps: Mutex<HashMap<String, Weak<MapShared>>>,
}

impl PoolShared {
    /// The maps of which a handle is held.
    pub(crate) fn open_maps(&self) -> MutexGuard<'_, HashMap<String, Weak<MapShared>>> {
        // The table is a cache of weak handles: it stays usable after a panic.
        self.open_maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the handles of one map share.
pub(crate) struct MapShared {
    pub(crate) name: String,
    // Before the pool: the index has to let go of the pool before the pool closes.
    pub(crate) index: Arc<dyn RangeIndex>,
    _pool: Arc<PoolShared>,
}

impl MapShared {
    pub(crate) fn new(name: &str, index: Arc<dyn RangeIndex>, pool: Arc<PoolShared>) -> Self {
        Self { name: name.to_owned(), index, _pool: pool }
    }
}
