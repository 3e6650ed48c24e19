//! The traits of an index as a map of a pool, and maps whose index is known.

use std::ops::Deref;
use std::sync::Arc;

use pando_index::{RangeIndex, Result};
use pando_pmem::Domain;

use super::audit::Audit;
use super::catalog::{Catalog, MapError};
use super::options::{IndexOptions, OptionValues};
use super::slots::{MapEntry, MapHeader};
use super::unit::{KnownKind, NextUnit, Unit};
use crate::blocks::Reserved;
use crate::context::Context;
use crate::handle::Handle;

/// An index that a pool can hold as a named map: its name, and its type in each domain.
///
/// The layers above open, check, measure and explore every index by this trait and by [`Tree`].
/// Guide: `docs/adding-an-index.md`.
pub trait IndexKind: Sized + 'static {
    /// The index's number in the catalog of every pool; it never changes.
    const NUMBER: u64;
    /// Its name, for commands and options.
    const NAME: &'static str;
    /// A description in one line.
    const DESCRIPTION: &'static str;

    /// Its options.
    type Options: IndexOptions;

    /// The index in a pool of domain `D`.
    type Index<D: Domain>: Tree<Domain = D, Options = Self::Options>;
}

/// Declares an index: an empty enum that is [`IndexKind`](crate::maps::IndexKind), with its number,
/// name, description, type in the domain `D` and options. Numbers from `0xFFFF_0000` on are for
/// examples and experiments.
#[macro_export]
macro_rules! index_kind {
    (
        $(#[$attribute:meta])* pub enum $kind:ident = $number:literal, $name:literal,
        $description:literal, $index:ident<D $(, $style:ident)?>, $options:ty;
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug)]
        pub enum $kind {}

        impl $crate::maps::IndexKind for $kind {
            const NUMBER: u64 = $number;
            const NAME: &'static str = $name;
            const DESCRIPTION: &'static str = $description;

            type Options = $options;
            type Index<D: ::pando_pmem::Domain> = $index<D $(, $style)?>;
        }
    };
}

/// An index in a pool, which holds its [`Handle`]. All its durable state is in blocks of the pool,
/// reachable from the map's entry word.
pub trait Tree:
    RangeIndex + Deref<Target = Handle<Self::Domain, Self::Options>> + Sized + 'static
{
    /// The pool's persistence domain.
    type Domain: Domain;

    /// Its options.
    type Options: IndexOptions;

    /// Whether several processes may use a map at once. All that an operation of one process needs
    /// of another's must then be in the pool: process memory has only hints, and no step waits for,
    /// or is undone by, the generation alone.
    const IS_SHAREABLE: bool = false;

    /// The first block of a new map, written and flushed. The step that creates the map writes its
    /// offset into the map's entry word.
    fn first_block<'op>(
        context: Context<'op, Self::Domain>,
        options: Self::Options,
    ) -> Reserved<'op, Self::Domain>;

    /// The index of `handle`. The time does not grow with the number of records.
    fn open(handle: Handle<Self::Domain, Self::Options>) -> Self;

    /// Checks whether the block that the entry word at `root_off` names has a layout of this build;
    /// returns what is wrong, if an earlier build has written another layout. Damage is not
    /// reported here.
    fn check_layout(context: Context<'_, Self::Domain>, root_off: u64) -> Result<(), String> {
        let _ = (context, root_off);
        Ok(())
    }

    /// Whether a value may have this many bytes, in an index with these options. For a map that is
    /// to be created; the limits of an index are exact.
    fn takes_value_bytes(options: Self::Options, bytes: usize) -> bool {
        let _ = (options, bytes);
        true
    }

    /// Lends the value of `key` to `visit` and returns its result; `None` if the key is absent.
    /// Like [`read`](RangeIndex::read), without a virtual call.
    fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Result<Option<R>>;

    /// Walks the whole index: its invariants, its figures, the blocks that it reaches. Lends the
    /// records of every undamaged node to `visit`, key and value, so that all readable records of a
    /// damaged pool can be copied out. Each field of a block is checked against the block before it
    /// is used.
    fn walk(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit>;

    /// Like [`walk`](Self::walk), for its report alone.
    fn audit(&self) -> Result<Audit> {
        self.walk(&mut |_, _| ())
    }

    /// The next part of a dropped map to be freed, given its entry word, which is not zero: the
    /// word that leads to the part, and the blocks that are freed with it. The result follows from
    /// the words of the map alone. It is called until the entry word is zero; several threads may
    /// call it at once, and again after a crash. Each field of a block is checked against the block
    /// before it is used, and anything that is no part of an index is skipped.
    fn next_unit(context: Context<'_, Self::Domain>, root_off: u64, options: Self::Options)
    -> Unit;
}

impl<D: Domain> KnownKind<D> {
    /// The index `K`.
    pub fn of<K: IndexKind>() -> Self {
        let next_unit: NextUnit<D> = |context, root_off, values| {
            K::Index::<D>::next_unit(context, root_off, K::Options::of(values))
        };
        Self { number: K::NUMBER, options: K::Options::SPECS, next_unit }
    }
}

impl<D: Domain> Catalog<D> {
    /// The map `name` with the index `K`; created with `options` if there is none of that name.
    pub fn find_or_create_index<K: IndexKind>(
        self: &Arc<Self>,
        name: &str,
        options: K::Options,
    ) -> Result<K::Index<D>, MapError> {
        let entry = self.find_or_create_entry::<K>(name, options, 0)?;
        self.open_entry::<K>(&entry)
    }

    /// The entry of the map `name`; created with the index `K`, these options and `number` if there
    /// is none of that name ([`find_or_create_map`](Self::find_or_create_map)).
    pub fn find_or_create_entry<K: IndexKind>(
        self: &Arc<Self>,
        name: &str,
        options: K::Options,
        number: u64,
    ) -> Result<MapEntry, MapError> {
        const { assert!(K::NUMBER >> 32 == 0, "an index number has 32 bits") };
        let values = options.values()?.encode();
        let guard = self.pool().pin()?;
        let header = MapHeader { name: name.to_owned(), kind: K::NUMBER, options: values, number };
        let first_block = || K::Index::<D>::first_block(Context::new(self, &guard), options);
        self.find_or_create_map(&guard, &header, &first_block)
    }

    /// The map `name` with the index `K`; `None` if there is none of that name.
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
        let options = K::Options::of(&OptionValues::decode(K::Options::SPECS, header.options)?);
        options.check()?;
        // No block of the map is reused while it is opened.
        let guard = self.pool().pin()?;
        if self.read(&guard, entry.slot_off()) != entry.word {
            return Err(MapError::Dropped { name: header.name.clone() });
        }
        let root_off = entry.root_off();
        K::Index::<D>::check_layout(Context::new(self, &guard), root_off)
            .map_err(|what| MapError::OtherLayout { name: header.name.clone(), what })?;
        Ok(K::Index::<D>::open(Handle { catalog: Arc::clone(self), root_off, options }))
    }
}
