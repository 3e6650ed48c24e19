//! Which processes have which maps open, in a pool that processes share.
//!
//! A map may be dropped only while nobody has a handle of it. Each slot of the catalog has a byte
//! behind those of the numbers (`processes.rs`), for locks alone:
//!
//! | process | byte of the map's slot |
//! | --- | --- |
//! | has handles of the map | shared |
//! | takes the map out of the catalog | exclusive |
//!
//! A process that opens a map finds it in the catalog, locks its byte, and finds it again: then the
//! map stays until the lock ends. Both locks end with the process. A process that dies before it
//! has changed the slot leaves the map; one that dies after that leaves a dropped map, which others
//! free (`teardown.rs` of the layer above).
//!
//! The locks belong to the open file description, so a process counts its own handles.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{MutexGuard, PoisonError};

use crate::domain::Domain;
use crate::error::{Result, io_error};
use crate::mutant;
use crate::pool::Pool;
use crate::sharing::{MAPS_OFF, MapUse, Sharing};
use crate::sys::{self, Access};

fn uses(sharing: &Sharing) -> MutexGuard<'_, HashMap<u64, MapUse>> {
    // Each change is one step, so the table is right after a panic.
    sharing.maps.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Domain> Pool<D> {
    fn lock_map(&self, access: Access, slot: u64) -> Result<bool> {
        let Some(file) = &self.file else { return Ok(true) };
        sys::try_lock(file, access, MAPS_OFF + slot, 1)
            .map_err(io_error(&self.path, "lock the file"))
    }

    fn unlock_map(&self, slot: u64) {
        // A forked child does not have the file.
        if let (Some(file), Ok(())) = (&self.file, self.check_not_forked()) {
            // An unlock of own bytes fails only if the system is out of memory. Then the lock ends
            // with the pool.
            let _ = sys::unlock(file, MAPS_OFF + slot, 1);
        }
    }

    /// Notes a handle of the map in this slot of the catalog, until [`leave_map`](Self::leave_map).
    /// False if the map is being dropped. The caller then looks whether the slot still has the map.
    pub fn use_map(&self, slot: u64) -> Result<bool> {
        let Some(sharing) = &self.sharing else { return Ok(true) };
        self.check_not_forked()?;
        match uses(sharing).entry(slot) {
            Entry::Occupied(mut known) => match known.get_mut() {
                MapUse::Open(handles) => *handles += 1,
                MapUse::Claimed => return Ok(false),
            },
            Entry::Vacant(unknown) => {
                if !self.lock_map(Access::Shared, slot)? {
                    return Ok(false);
                }
                unknown.insert(MapUse::Open(1));
            }
        }
        Ok(true)
    }

    /// After [`use_map`](Self::use_map): the handle is gone.
    pub fn leave_map(&self, slot: u64) {
        let Some(sharing) = &self.sharing else { return };
        let mut uses = uses(sharing);
        match uses.get_mut(&slot) {
            Some(MapUse::Open(handles)) if *handles > 1 => *handles -= 1,
            _ => {
                uses.remove(&slot);
                self.unlock_map(slot);
            }
        }
    }

    /// Claims the map in this slot, to take it out of the catalog, until
    /// [`unclaim_map`](Self::unclaim_map). False if a process has a handle of it, or a claim.
    pub fn claim_map(&self, slot: u64) -> Result<bool> {
        let Some(sharing) = &self.sharing else { return Ok(true) };
        self.check_not_forked()?;
        let mut uses = uses(sharing);
        if uses.contains_key(&slot) {
            return Ok(false);
        }
        if !self.lock_map(Access::Exclusive, slot)? && !mutant!("map-dropped-under-others") {
            return Ok(false);
        }
        uses.insert(slot, MapUse::Claimed);
        Ok(true)
    }

    /// Ends a claim.
    pub fn unclaim_map(&self, slot: u64) {
        let Some(sharing) = &self.sharing else { return };
        uses(sharing).remove(&slot);
        self.unlock_map(slot);
    }
}
