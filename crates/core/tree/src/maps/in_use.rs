//! The handles of maps in a pool that processes share. A map is dropped only while nobody has a
//! handle of it (`map_locks.rs` of `pando-pmem`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use pando_pmem::{Domain, Guard, Pool, mutant};

use super::catalog::{Catalog, MapError};
use super::slots::MapEntry;

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

/// While it lives, no process has a handle of the map, or opens it.
#[derive(Debug)]
pub struct MapClaim<'pool, D: Domain> {
    pool: &'pool Pool<D>,
    slot: u64,
}

impl<D: Domain> Drop for MapClaim<'_, D> {
    fn drop(&mut self) {
        self.pool.unclaim_map(self.slot);
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

    /// Claims the map `entry`, to take it out of the catalog.
    ///
    /// # Errors
    ///
    /// [`MapError::OpenElsewhere`] if a process has a handle of it, [`MapError::Dropped`] if it was
    /// dropped since it was found.
    pub fn claim(&self, entry: &MapEntry) -> Result<MapClaim<'_, D>, MapError> {
        let name = || entry.header.as_ref().map(|header| header.name.clone()).unwrap_or_default();
        if !self.pool().claim_map(entry.slot)? {
            return Err(MapError::OpenElsewhere { name: name() });
        }
        let claim = MapClaim { pool: self.pool(), slot: entry.slot };
        // In a shared pool its slot and the block of its header may be another map's now.
        let is_unseen = self.pool().is_shared() && !mutant!("map-claimed-unseen");
        if is_unseen && !self.is_there(&self.pool().pin()?, entry) {
            return Err(MapError::Dropped { name: name() });
        }
        Ok(claim)
    }

    /// Whether the slot of `entry` still has that map, or one that looks the same.
    pub fn is_there(&self, guard: &Guard<'_, D>, entry: &MapEntry) -> bool {
        let found = self.slots().entry_in(guard, entry.slot, &|off| self.read(guard, off));
        found.is_some_and(|found| found.word == entry.word && found.header == entry.header)
    }
}
