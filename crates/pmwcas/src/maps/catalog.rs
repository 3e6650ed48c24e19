//! Changes of a pool's catalog of named maps, each one PMwCAS over the slot and the version.
//!
//! The version changes with every slot, so of two threads that give one name at the same time one
//! fails, looks again and finds the other's map. The header and the map's first block belong to
//! the operation until it succeeds; a crash leaves either the whole map or nothing.

use pando_pmem::catalog::{HEADER_BYTES, MAX_NAME_BYTES, MapEntry, MapHeader};
use pando_pmem::{Domain, Guard, Reservation, layout};

use super::BadSetting;
use crate::error::Error;
use crate::finalize::Policy;
use crate::pmwcas::Pmwcas;

/// Why the catalog was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The name is empty or too long.
    #[error("a map's name has 1 to {MAX_NAME_BYTES} bytes, {found:?} has {}", found.len())]
    BadName {
        /// The name that was given.
        found: String,
    },
    /// The catalog is full.
    #[error("the pool holds {} maps, as many as it can; drop one first", layout::CATALOG_SLOTS)]
    CatalogFull,
    /// The map was changed or dropped while it was to be dropped.
    #[error("the map changed while it was being dropped; try again")]
    Busy,
    /// The map was dropped since it was found.
    #[error("the map {name:?} was dropped meanwhile; look for it again")]
    Dropped {
        /// The map's name.
        name: String,
    },
    /// The catalog names a map whose header is damaged.
    #[error("the header of the map at {off:#x} is damaged; `check` says what else is")]
    Damaged {
        /// Offset of the header.
        off: u64,
    },
    /// The map is of another kind than the one it was to be opened as.
    #[error("the map {name:?} is of kind {found}, not {expected}; open it as what it is")]
    OtherKind {
        /// The map's name.
        name: String,
        /// The number of its kind.
        found: u64,
        /// The number of the kind that was asked for.
        expected: u64,
    },
    /// The map's blocks are of a layout that this build does not know.
    #[error(
        "the map {name:?} was written by another build: {what}; copy its records with that build"
    )]
    OtherLayout {
        /// The map's name.
        name: String,
        /// What was found, and what was expected.
        what: String,
    },
    /// A setting has a value that it cannot have.
    #[error(transparent)]
    Setting(#[from] BadSetting),
    /// The operation could not be carried out.
    #[error(transparent)]
    Pmwcas(#[from] Error),
}

impl From<pando_pmem::Error> for MapError {
    fn from(error: pando_pmem::Error) -> Self {
        Self::Pmwcas(error.into())
    }
}

impl<D: Domain> Pmwcas<D> {
    /// The maps of the pool.
    pub fn maps(&self, guard: &Guard<'_, D>) -> Vec<MapEntry> {
        self.pool().catalog(guard, &|off| self.read(guard, off))
    }

    /// The map called `name`.
    pub fn find_map(&self, guard: &Guard<'_, D>, name: &str) -> Option<MapEntry> {
        let named =
            |entry: &MapEntry| entry.header.as_ref().is_some_and(|found| found.name == name);
        self.maps(guard).into_iter().find(named)
    }

    /// Finds the map of `header.name`, or creates it with what `make_root` makes its first block.
    pub fn find_or_create_map<'guard, 'pool>(
        &self,
        guard: &'guard Guard<'pool, D>,
        header: &MapHeader,
        make_root: &dyn Fn() -> pando_pmem::Result<Reservation<'guard, 'pool, D>>,
    ) -> Result<MapEntry, MapError> {
        if header.name.is_empty() || header.name.len() > MAX_NAME_BYTES {
            return Err(MapError::BadName { found: header.name.clone() });
        }
        loop {
            let version_off = self.pool().catalog_version_off();
            let version = self.read(guard, version_off);
            if let Some(entry) = self.find_map(guard, &header.name) {
                return Ok(entry);
            }
            let slot_off = self.pool().empty_catalog_slot(&|off| self.read(guard, off));
            let slot_off = slot_off.ok_or(MapError::CatalogFull)?;
            let root = make_root()?;
            let mut block = guard.reserve(HEADER_BYTES)?;
            block.write(0, &header.encode(root.off()));
            block.flush(0, HEADER_BYTES);
            let mut operation = self.allocate(guard)?;
            let slot = operation.reserve_entry(slot_off, 0, Policy::FreeNewOnFailure)?;
            let header_off = operation.activate(slot, block);
            let owned = operation.own_block(0, Policy::FreeNewOnFailure)?;
            operation.activate(owned, root);
            operation.add_word(version_off, version, version + 1)?;
            if operation.execute() {
                return Ok(MapEntry { slot_off, header_off, header: Some(header.clone()) });
            }
        }
    }

    /// Drops an empty map: its slot, its header, and the block `root` that its entry word names.
    /// `seal` is a word that keeps writers out, from and to what, if taking the block out of the entry
    /// word does not.
    pub fn drop_map(
        &self,
        guard: &Guard<'_, D>,
        entry: &MapEntry,
        root: u64,
        seal: Option<(u64, u64, u64)>,
    ) -> Result<(), MapError> {
        let version_off = self.pool().catalog_version_off();
        let version = self.read(guard, version_off);
        let mut operation = self.allocate(guard)?;
        operation.reserve_entry(entry.slot_off, entry.header_off, Policy::FreeOldOnSuccess)?;
        operation.reserve_entry(entry.root_off(), root, Policy::FreeOldOnSuccess)?;
        if let Some((off, open, closed)) = seal {
            operation.add_word(off, open, closed)?;
        }
        operation.add_word(version_off, version, version + 1)?;
        if operation.execute() { Ok(()) } else { Err(MapError::Busy) }
    }
}
