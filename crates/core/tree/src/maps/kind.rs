//! A kind of index, as all who hold maps of any kind see it.

use std::sync::Arc;

use pando_index::{Error, RangeIndex};
use pando_pmem::catalog::{MapEntry, MapHeader};
use pando_pmem::{Domain, Guard, Reservation};
use pando_pmwcas::Pmwcas;

use super::audit::Audit;
use super::catalog::{Catalog, MapError};
use super::settings::{BadSetting, Setting, Settings};
use super::unit::{KnownKind, Unit};

/// A kind of index that a pool can hold as a named map.
///
/// An index says here all that the layers above need: they hold, open, check, measure and explore
/// every kind through this. It owns blocks of the pool and nothing else, all reached from the map's
/// entry word. Guides: `docs/adding-an-index.md`.
pub trait IndexKind: Sized + 'static {
    /// The kind's number in the catalog of every pool; given once, for ever.
    const NUMBER: u64;
    /// Its name, as commands and options take it.
    const NAME: &'static str;
    /// What it is, in a line.
    const WHAT: &'static str;
    /// What a user may set of it.
    const SETTINGS: &'static [Setting];

    /// The index in a pool of domain `D`.
    type Index<D: Domain>: RangeIndex + 'static;

    /// Whether `settings`, each of which is in its own range, go together.
    fn check(settings: &Settings) -> Result<(), BadSetting> {
        let _ = settings;
        Ok(())
    }

    /// The block with which a new map begins, written and flushed; its offset becomes the value of
    /// the map's entry word together with the map's name.
    fn first_block<'guard, 'pool, D: Domain>(
        pmwcas: &'guard Pmwcas<D>,
        guard: &'guard Guard<'pool, D>,
        settings: &Settings,
    ) -> pando_pmem::Result<Reservation<'guard, 'pool, D>>;

    /// The index whose entry word is at `root_off`. Does no work that grows with the records.
    fn open<D: Domain>(
        catalog: Arc<Catalog<D>>,
        root_off: u64,
        settings: &Settings,
    ) -> Self::Index<D>;

    /// Whether the block that the entry word at `root_off` names is of a layout of this build's;
    /// what is wrong, if an earlier build has written another. What is damaged is not for this to
    /// say.
    fn check_layout<D: Domain>(
        pmwcas: &Pmwcas<D>,
        guard: &Guard<'_, D>,
        root_off: u64,
    ) -> Result<(), String> {
        let _ = (pmwcas, guard, root_off);
        Ok(())
    }

    /// Walks the whole index: its invariants, its figures, the blocks that it reaches. Lends the
    /// records of every node in which nothing is wrong to `visit`, key and value, so that of a
    /// damaged pool all can be copied out that can be read. Believes nothing that a block says
    /// before it was found to lie in the block.
    fn walk<D: Domain>(
        index: &Self::Index<D>,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Audit, Error>;

    /// As [`walk`](Self::walk), for what it finds alone.
    fn audit<D: Domain>(index: &Self::Index<D>) -> Result<Audit, Error> {
        Self::walk(index, &mut |_, _| ())
    }

    /// Which part of a dropped map goes next, given its entry word, which is not zero: the word
    /// that leads to the part, and the blocks that are free with it. What follows from the words of
    /// the map alone, and is called until the entry word is zero; several threads may ask at once,
    /// and go on after a crash. Believes nothing that a block says before it was found to lie in
    /// the block, and passes over what is no part of an index.
    fn next_unit<D: Domain>(
        pmwcas: &Pmwcas<D>,
        guard: &Guard<'_, D>,
        root_off: u64,
        settings: &Settings,
    ) -> Unit;

    /// Lends the value of `key` to `visit` and returns its result; `None` if the key is absent. An
    /// index that can does it without a virtual call.
    #[inline]
    fn read_with<D: Domain, R>(
        index: &Self::Index<D>,
        key: &[u8],
        visit: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        let (mut visit, mut answer) = (Some(visit), None);
        index.read(key, &mut |value| answer = visit.take().map(|visit| visit(value)))?;
        Ok(answer)
    }
}

impl<D: Domain> KnownKind<D> {
    /// The kind `K`.
    pub fn of<K: IndexKind>() -> Self {
        Self { number: K::NUMBER, settings: K::SETTINGS, next_unit: K::next_unit::<D> }
    }
}

impl<D: Domain> Catalog<D> {
    /// The map `name` of the kind `K`; created with `settings` if there is none of that name.
    pub fn find_or_create_index<K: IndexKind>(
        self: &Arc<Self>,
        name: &str,
        settings: &Settings,
    ) -> Result<K::Index<D>, MapError> {
        K::check(settings)?;
        let guard = self.pool().pin()?;
        let header =
            MapHeader { name: name.to_owned(), kind: K::NUMBER, options: settings.encode() };
        let first_block = || K::first_block(self, &guard, settings);
        let entry = self.find_or_create_map(&guard, &header, &first_block)?;
        self.open_entry::<K>(&entry)
    }

    /// The map `name` of the kind `K`; `None` if there is none of that name.
    pub fn find_index<K: IndexKind>(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<Option<K::Index<D>>, MapError> {
        let guard = self.pool().pin()?;
        self.find_map(&guard, name)?.map(|entry| self.open_entry::<K>(&entry)).transpose()
    }

    /// The index of `entry`, as it was created.
    pub fn open_entry<K: IndexKind>(
        self: &Arc<Self>,
        entry: &MapEntry,
    ) -> Result<K::Index<D>, MapError> {
        let header = entry
            .header
            .as_ref()
            .map_err(|&damage| MapError::Damaged { slot: entry.slot, damage })?;
        if header.kind != K::NUMBER {
            return Err(MapError::OtherKind {
                name: header.name.clone(),
                found: header.kind,
                expected: K::NUMBER,
            });
        }
        let settings = Settings::decode(K::SETTINGS, header.options)?;
        K::check(&settings)?;
        // Nothing of the map is reused while it is opened.
        let guard = self.pool().pin()?;
        if self.read(&guard, entry.slot_off()) != entry.word {
            return Err(MapError::Dropped { name: header.name.clone() });
        }
        K::check_layout(self, &guard, entry.root_off())
            .map_err(|what| MapError::OtherLayout { name: header.name.clone(), what })?;
        Ok(K::open(Arc::clone(self), entry.root_off(), &settings))
    }
}
