//! Changes of a pool's catalog of named maps. Each is one PMwCAS over the slot and the version.
//!
//! Each change of a slot changes the version. So if two threads create a map with one name at the
//! same time, one of them fails, looks again and finds the other's map. The operation owns the
//! header and the map's first block until it succeeds. A crash leaves either the whole map or
//! nothing.

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_pmem::layout::CATALOG_VERSION_OFF;
use pando_pmem::{Domain, Guard, Pool, layout};
use pando_pmwcas::{CONTROL_BITS, Error, Pmwcas, Policy};

use super::options::BadOption;
use super::shared_state::SharedStates;
use super::slots::{
    Damage, HEADER_BYTES, LIVE_MARK, MAX_NAME_BYTES, MapEntry, MapHeader, Slots, slot_word,
};
use super::unit::KnownKind;
use crate::blocks::Reserved;

/// How often a change of the catalog, or of a map that is freed, is attempted before the words
/// count as damaged. An attempt fails because another thread's has succeeded, or because of damage,
/// which makes every attempt fail.
pub(super) const MAX_ATTEMPTS: u32 = 1 << 16;

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
    #[error(
        "the pool has {} maps, the most that it can have; drop one first",
        layout::CATALOG_SLOTS
    )]
    CatalogFull,
    /// A map of the new name exists.
    #[error("a map {name:?} exists; choose another name, or drop that map first")]
    Exists {
        /// The name.
        name: String,
    },
    /// Another process has handles of the map, or is dropping it.
    #[error("the map {name:?} is open in another process, or being dropped there")]
    OpenElsewhere {
        /// Its name.
        name: String,
    },
    /// The map was dropped since it was found.
    #[error("the map {name:?} was dropped meanwhile; look for it again")]
    Dropped {
        /// The map's name.
        name: String,
    },
    /// A slot of the catalog is damaged, so its map cannot be used, and its name is not known.
    #[error(
        "the map in the catalog's slot {slot} is damaged: {damage}. Copy its records out by \
         `pando --salvage dump --slot {slot}` (Pool::salvage_slot), then remove it by `pando drop --slot {slot}`"
    )]
    Damaged {
        /// Number of the slot.
        slot: u64,
        /// What is damaged.
        damage: Damage,
    },
    /// Words of the catalog, or of a map that is freed, refer to operations that do not exist, or
    /// cannot be changed.
    #[error(
        "the word at {off:#x} is damaged; `pando check` lists all damage, and `pando --salvage dump` copies \
         the readable records out"
    )]
    DamagedWord {
        /// Its offset.
        off: u64,
    },
    /// There is no map of that name, or it is one of the damaged maps.
    #[error(
        "no map {name:?} is found, and {}: one of them may be {name:?}. Copy the records out by \
         `pando --salvage dump --slot N` (Pool::salvage_slot), then remove it by `pando drop --slot N`",
        damaged_slots(slots)
    )]
    Hidden {
        /// The map's name.
        name: String,
        /// Numbers of the damaged slots.
        slots: Vec<u64>,
    },
    /// The index of a damaged map must be named.
    #[error(
        "the index and the options of the map in the catalog's slot {slot} are no longer known; name them as the map \
         was created, by `--index` and `--set` (MapOptions)"
    )]
    KindNotKnown {
        /// Number of the slot.
        slot: u64,
    },
    /// There is not exactly one header for the map in a damaged slot.
    #[error(
        "{found} headers name the catalog's slot {slot}, so the records of its map cannot be found; \
         restore a copy of the pool, or free the slot by `pando drop --slot {slot}`"
    )]
    NoHeader {
        /// Number of the slot.
        slot: u64,
        /// The number of headers that were found.
        found: usize,
    },
    /// No map is in the slot.
    #[error("the catalog's slot {slot} has no map")]
    NoSuchSlot {
        /// Number of the slot.
        slot: u64,
    },
    /// The map has another index than the one that was requested.
    #[error(
        "the map {name:?} has index number {found}, not {expected}; open it with its own index"
    )]
    OtherKind {
        /// The map's name.
        name: String,
        /// The number of its index.
        found: u64,
        /// The number of the requested index.
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
    /// The value of an option is not allowed.
    #[error(transparent)]
    Option(#[from] BadOption),
    /// The operation could not be carried out.
    #[error(transparent)]
    Pmwcas(#[from] Error),
}

impl From<pando_pmem::Error> for MapError {
    fn from(error: pando_pmem::Error) -> Self {
        Self::Pmwcas(error.into())
    }
}

fn damaged_slots(slots: &[u64]) -> String {
    let listed: Vec<_> = slots.iter().take(10).map(u64::to_string).collect();
    let more = if slots.len() > listed.len() { ", .." } else { "" };
    match slots {
        [slot] => format!("the map in the catalog's slot {slot} is damaged"),
        _ => format!("the maps in the catalog's slots {}{more} are damaged", listed.join(", ")),
    }
}

/// The catalog's version after `version`.
pub(super) fn next_version(version: u64) -> u64 {
    (version + 1) & !CONTROL_BITS
}

/// The named maps of a pool, and the PMwCAS that changes them and the catalog.
#[derive(Debug)]
pub struct Catalog<D: Domain> {
    pmwcas: Pmwcas<D>,
    pub(super) kinds: Vec<KnownKind<D>>,
    shared_states: SharedStates,
}

impl<D: Domain> From<Pmwcas<D>> for Catalog<D> {
    fn from(pmwcas: Pmwcas<D>) -> Self {
        Self { pmwcas, kinds: Vec::new(), shared_states: SharedStates::default() }
    }
}

impl<D: Domain> Deref for Catalog<D> {
    type Target = Pmwcas<D>;

    #[inline(always)]
    fn deref(&self) -> &Pmwcas<D> {
        &self.pmwcas
    }
}

impl<D: Domain> Catalog<D> {
    /// Recovers the pool ([`Pmwcas::open`]) and returns its maps.
    pub fn open(pool: Arc<Pool<D>>) -> Result<Self, Error> {
        Pmwcas::open(pool).map(Self::from)
    }

    /// Sets the indexes whose dropped maps any thread that finds them can free.
    pub fn with_kinds(self, kinds: Vec<KnownKind<D>>) -> Self {
        Self { kinds, ..self }
    }

    /// The slots of the catalog, on the medium.
    pub fn slots(&self) -> Slots<'_, D> {
        Slots::of(self.pool())
    }

    /// The pool's handle, when the maps are no longer used.
    pub fn into_pool(self) -> Arc<Pool<D>> {
        self.pmwcas.into_pool()
    }

    /// The process memory of the index whose entry word is at `root_off`: that of another handle of
    /// the index, or else the result of `make`. It lives as long as a handle holds it.
    ///
    /// For opening an index, not for its operations: one call waits for another, and for its
    /// `make`.
    pub fn shared_state<T: Any + Send + Sync>(
        &self,
        root_off: u64,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        self.shared_states.find_or_make(root_off, make)
    }

    /// To be called when the index whose entry word was at `root_off` is dropped.
    pub fn forget_shared_state(&self, root_off: u64) {
        self.shared_states.forget(root_off);
    }

    /// The maps of the pool, including damaged ones.
    pub fn maps(&self, guard: &Guard<'_, D>) -> Vec<MapEntry> {
        self.slots().maps(guard, &|off| self.read(guard, off))
    }

    /// The map with this name. If the name is not found while the name of a damaged map is not
    /// known, the result is [`MapError::Hidden`]: the damaged map may have it.
    pub fn find_map(&self, guard: &Guard<'_, D>, name: &str) -> Result<Option<MapEntry>, MapError> {
        let mut damaged = Vec::new();
        for entry in self.maps(guard) {
            match &entry.header {
                Ok(header) if header.name == name => return Ok(Some(entry)),
                Ok(_) => {}
                Err(_) => damaged.push(entry.slot),
            }
        }
        if damaged.is_empty() {
            return Ok(None);
        }
        Err(MapError::Hidden { name: name.to_owned(), slots: damaged })
    }

    /// The map in the catalog's slot `slot`. If the slot's word is damaged, its header is searched
    /// in all blocks, in time that grows with the pool; the entry then has that header.
    pub fn map_in_slot(&self, guard: &Guard<'_, D>, slot: u64) -> Result<MapEntry, MapError> {
        self.slots().word_off(slot).ok_or(MapError::NoSuchSlot { slot })?;
        let entry = self.slots().entry_in(guard, slot, &|off| self.read(guard, off));
        let entry = entry.ok_or(MapError::NoSuchSlot { slot })?;
        // A dropped map no longer exists, except for one that cannot be freed because its header is
        // damaged.
        if entry.is_dropped() && entry.header.is_ok() {
            return Err(MapError::NoSuchSlot { slot });
        }
        if !matches!(entry.header, Err(Damage::Slot { .. })) {
            return Ok(entry);
        }
        let mut found = self.slots().find_headers(guard, slot)?;
        match (found.pop(), found.len()) {
            (Some((header_off, header)), 0) => {
                Ok(MapEntry { header_off, header: Ok(header), ..entry })
            }
            (last, rest) => {
                Err(MapError::NoHeader { slot, found: rest + usize::from(last.is_some()) })
            }
        }
    }

    /// The result of [`map_in_slot`](Self::map_in_slot), with the words of a damaged header in
    /// which its copies agree, or otherwise with `told`: index and options.
    pub fn with_remains(
        &self,
        guard: &Guard<'_, D>,
        entry: MapEntry,
        told: Option<(u64, [u64; 4])>,
    ) -> Result<MapEntry, MapError> {
        if entry.header.is_ok() {
            return Ok(entry);
        }
        let remains = self.slots().header_remains(guard, entry.header_off);
        let (kind, options) = told
            .or(remains.kind.zip(remains.options))
            .ok_or(MapError::KindNotKnown { slot: entry.slot })?;
        let (name, number) = (String::new(), remains.number.unwrap_or_default());
        Ok(MapEntry { header: Ok(MapHeader { name, kind, options, number }), ..entry })
    }

    /// Rewrites the slot and the header of the damaged map `entry`, whose header was found or
    /// given, so that it can be dropped. No other thread may change the catalog meanwhile.
    pub fn repair_map(&self, entry: &MapEntry) -> Result<MapEntry, MapError> {
        let header = entry.header.as_ref();
        let header = header.map_err(|_| MapError::KindNotKnown { slot: entry.slot })?;
        let word = slot_word(LIVE_MARK, entry.header_off);
        self.slots().rewrite_header(entry.header_off, entry.slot, header);
        if entry.word != word {
            self.slots().rewrite_slot(entry.slot, word);
        }
        Ok(MapEntry { word, ..entry.clone() })
    }

    /// Empties a damaged slot that leads to no map.
    pub fn clear_slot(&self, slot: u64) {
        self.slots().rewrite_slot(slot, 0);
    }

    /// The catalog's version, for a change of the catalog. No operation can change a word that
    /// refers to an operation that does not exist. So if damage has made the version such a word,
    /// it is reset.
    pub(super) fn catalog_version(&self, guard: &Guard<'_, D>) -> u64 {
        let off = CATALOG_VERSION_OFF;
        let word = self.pool().word(off);
        // Relaxed: a damaged word says nothing about other memory. Loaded before the check, so that
        // the word that is replaced is the one that was found damaged.
        let found = word.load(Ordering::Relaxed);
        if self.is_damaged(guard, off) {
            let _ = word.compare_exchange(found, found & !CONTROL_BITS);
        }
        self.read(guard, off)
    }

    /// Finds the map `header.name`, or creates it with the first block that `make_root` makes. A
    /// map with [`MapHeader::NEW_NUMBER`] gets the number that the catalog's version becomes.
    pub fn find_or_create_map<'guard>(
        &self,
        guard: &'guard Guard<'_, D>,
        header: &MapHeader,
        make_root: &dyn Fn() -> Reserved<'guard, D>,
    ) -> Result<MapEntry, MapError> {
        if header.name.is_empty() || header.name.len() > MAX_NAME_BYTES {
            return Err(MapError::BadName { found: header.name.clone() });
        }
        let version_off = CATALOG_VERSION_OFF;
        for _ in 0..MAX_ATTEMPTS {
            let version = self.catalog_version(guard);
            if let Some(entry) = self.find_map(guard, &header.name)? {
                return Ok(entry);
            }
            let slot = self.slots().empty_slot(&|off| self.read(guard, off));
            let Some(slot) = slot else {
                if self.free_dropped(&|| false)? {
                    continue;
                }
                return Err(MapError::CatalogFull);
            };
            let slot_off = layout::CATALOG_OFF + slot * 8;
            let mut header = header.clone();
            if header.number == MapHeader::NEW_NUMBER {
                header.number = next_version(version);
            }
            let root = make_root()?;
            let mut block = guard.reserve(HEADER_BYTES)?;
            block.write(0, &header.encode(slot, root.off()));
            block.flush(0, HEADER_BYTES);
            let mut operation = self.allocate(guard)?;
            let entry = operation.reserve_entry(slot_off, 0, Policy::FreeNewOnFailure)?;
            let header_off = block.off();
            let word = operation.activate_with_hint(entry, block, LIVE_MARK);
            let owned = operation.own_block(0, Policy::FreeNewOnFailure)?;
            operation.activate(owned, root);
            operation.add_word(version_off, version, next_version(version))?;
            if operation.execute() {
                return Ok(MapEntry { slot, word, header_off, header: Ok(header) });
            }
        }
        Err(MapError::DamagedWord { off: version_off })
    }

    /// Gives the map `entry` the name `name`, durably; the map with its new name. Handles of the
    /// map stay as they are. This allocates no block.
    ///
    /// No other thread may change the catalog meanwhile. Other threads may read it: they find one
    /// of the two names, and possibly the new one before it is durable.
    ///
    /// | step | what is written | what a crash leaves |
    /// | --- | --- | --- |
    /// | 1 | one PMwCAS: the catalog's version | the old name |
    /// | 2 | the copies of the header (`Pool::replace_header`) | the old name or the new one |
    ///
    /// The version is first: if a crash follows, a log lists the maps again, with either name.
    pub fn rename_map(
        &self,
        guard: &Guard<'_, D>,
        entry: &MapEntry,
        name: &str,
    ) -> Result<MapEntry, MapError> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(MapError::BadName { found: name.to_owned() });
        }
        let header = entry.header.as_ref();
        let header = header.map_err(|&damage| MapError::Damaged { slot: entry.slot, damage })?;
        if self.find_map(guard, name)?.is_some() {
            return Err(MapError::Exists { name: name.to_owned() });
        }
        if self.read(guard, entry.slot_off()) != entry.word {
            return Err(MapError::Dropped { name: header.name.clone() });
        }
        self.count_change(guard)?;
        let header = MapHeader { name: name.to_owned(), ..header.clone() };
        self.slots().replace_header(guard, entry, &header);
        Ok(MapEntry { header: Ok(header), ..entry.clone() })
    }

    /// Makes the copies of each map's header equal and durable after a crash. No other thread of
    /// this process may change the catalog meanwhile. A map that another process drops is left out.
    pub fn settle_headers(&self, guard: &Guard<'_, D>) -> Result<(), MapError> {
        for entry in self.maps(guard) {
            if self.pool().use_map(entry.slot)? {
                if self.is_there(guard, &entry) {
                    self.slots().settle_header(guard, &entry);
                }
                self.pool().leave_map(entry.slot);
            }
        }
        Ok(())
    }

    /// Increments the catalog's version, durably.
    fn count_change(&self, guard: &Guard<'_, D>) -> Result<(), MapError> {
        let version_off = CATALOG_VERSION_OFF;
        for _ in 0..MAX_ATTEMPTS {
            let version = self.catalog_version(guard);
            let mut operation = self.allocate(guard)?;
            operation.add_word(version_off, version, next_version(version))?;
            if operation.execute() {
                return Ok(());
            }
        }
        Err(MapError::DamagedWord { off: version_off })
    }
}
