//! The state that the handles of a pool share, and that the handles of a map share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pando_index::RangeIndex;
use pando_pmem::ProcessHere;
use pando_tc::SnapshotLimits;

use crate::Acknowledge;
use crate::engine::{Engine, OpenedMap, Stamped};

/// The state that the handles of one pool share.
pub(crate) struct PoolShared {
    pub(crate) engine: Box<dyn Engine>,
    /// Whether it was opened for salvage, only to be copied out.
    pub(crate) is_salvaged: bool,
    /// When writes to transactional maps return, unless a handle says otherwise.
    pub(crate) acknowledge: Acknowledge,
    pub(crate) snapshot_limits: SnapshotLimits,
    /// The process that has opened it.
    pub(crate) opened_by: ProcessHere,
    /// The maps with open handles, so that all handles of a map share one index.
    pub(crate) open_maps: Mutex<HashMap<String, Weak<MapShared>>>,
}

impl PoolShared {
    /// The maps with open handles.
    pub(crate) fn open_maps(&self) -> MutexGuard<'_, HashMap<String, Weak<MapShared>>> {
        // The table is a cache of weak handles: it stays usable after a panic.
        self.open_maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state that the handles of one map share.
pub(crate) struct MapShared {
    pub(crate) name: String,
    // Dropped before the pool: the index must release the pool before the pool closes.
    pub(crate) index: Arc<dyn RangeIndex>,
    /// If it is transactional. Dropped before the pool too.
    pub(crate) stamped: Option<Stamped>,
    /// See [`OpenedMap::in_use`]. Dropped after the index, and before the pool.
    _in_use: Option<Box<dyn Send + Sync>>,
    pub(crate) pool: Arc<PoolShared>,
}

impl MapShared {
    pub(crate) fn new(name: &str, opened: OpenedMap, pool: Arc<PoolShared>) -> Self {
        let OpenedMap { index, stamped, in_use } = opened;
        Self { name: name.to_owned(), index, stamped, _in_use: in_use, pool }
    }
}
