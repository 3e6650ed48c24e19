//! The handles of maps in a pool that processes share. A map is dropped only while nobody has a
//! handle of it (`map_locks.rs` of `pando-pmem`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use pando_pmem::catalog::MapEntry;
use pando_pmem::{Domain, Pool, mutant};

use super::catalog::{Catalog, MapError};

/// How long an opening of a map waits for a process that drops the map.
const DROPS_WAIT: Duration = Duration::from_secs(5);
/// The pause between two looks at such a map.
const DROPS_PAUSE: Duration = Duration::from_millis(1);

/// While it lives, no other process drops the map.
#[derive(Debug)]
pub struct MapInUse<D: Domain> {
    pool: Arc<Pool<D>>,
    slot: u64,
}

impl<D: Domain> Drop for MapInUse<D> {
    fn drop(&mut self) {
        self.pool.leave_map(self.slot);
    }
}

impl<D: Domain> Catalog<D> {
    /// The map `name`, for a new handle; `None` if there is no such map.
    ///
    /// # Errors
    ///
    /// [`MapError::OpenElsewhere`] if a process has been dropping the map for five seconds.
    pub fn find_to_use(&self, name: &str) -> Result<Option<(MapEntry, MapInUse<D>)>, MapError> {
        let find = || self.find_map(&self.pool().pin()?, name);
        let begin = Instant::now();
        loop {
            let Some(entry) = find()? else { return Ok(None) };
            if self.pool().use_map(entry.slot)? {
                let in_use = MapInUse { pool: Arc::clone(self.pool_handle()), slot: entry.slot };
                if !self.pool().is_shared() || mutant!("map-used-unseen") {
                    return Ok(Some((entry, in_use)));
                }
                // Again: it may have been dropped before it was in use.
                match find()? {
                    None => return Ok(None),
                    Some(found) if found.slot == entry.slot => return Ok(Some((found, in_use))),
                    Some(_) => {}
                }
            } else if begin.elapsed() > DROPS_WAIT {
                return Err(MapError::OpenElsewhere { name: name.to_owned() });
            }
            std::thread::sleep(DROPS_PAUSE);
        }
    }
}
