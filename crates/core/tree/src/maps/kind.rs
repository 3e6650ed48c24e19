//! An index as a map of a pool: what it says of itself, and maps of a kind that is known.

use std::ops::Deref;
use std::sync::Arc;

use pando_index::{RangeIndex, Result};
use pando_pmem::Domain;
use pando_pmem::catalog::{MapEntry, MapHeader};

use super::audit::Audit;
use super::catalog::{Catalog, MapError};
use super::options::{IndexOptions, OptionValues};
use super::unit::{KnownKind, NextUnit, Unit};
use crate::blocks::Reserved;
use crate::context::Context;
use crate::handle::Handle;

/// A kind of index that a pool can hold as a named map: its name, and its index in each domain.
///
/// The layers above hold, open, check, measure and explore every index by this and by [`Tree`].
/// Guide: `docs/adding-an-index.md`.
pub trait IndexKind: Sized + 'static {
    /// The kind's number in the catalog of every pool; given once, for ever.
    const NUMBER: u64;
    /// Its name, as commands and options take it.
    const NAME: &'static str;
    /// What it is, in a line.
    const DESCRIPTION: &'static str;

    /// What a user may set of it.
    type Options: IndexOptions;

    /// The index in a pool of domain `D`.
    type Index<D: Domain>: Tree<Domain = D, Options = Self::Options>;
}

/// An index in a pool, which holds its [`Handle`]. It owns blocks of the pool and nothing else, all
/// reached from the map's entry word.
pub trait Tree:
    RangeIndex + Deref<Target = Handle<Self::Domain, Self::Options>> + Sized + 'static
{
    /// The pool's persistence domain.
    type Domain: Domain;

    /// What a user may set of it.
    type Options: IndexOptions;

    /// The block with which a new map begins, written and flushed; its offset becomes the value of
    /// the map's entry word together with the map's name.
    fn first_block<'op>(
        context: Context<'op, Self::Domain>,
        options: Self::Options,
    ) -> Reserved<'op, Self::Domain>;

    /// The index of `handle`. Does no work that grows with the records.
    fn open(handle: Handle<Self::Domain, Self::Options>) -> Self;

    /// Whether the block that the entry word at `root_off` names is of a layout of this build's;
    /// what is wrong, if an earlier build has written another. What is damaged is not for this to
    /// say.
    fn check_layout(context: Context<'_, Self::Domain>, root_off: u64) -> Result<(), String> {
        let _ = (context, root_off);
        Ok(())
    }

    /// Lends the value of `key` to `visit` and returns its result; `None` if the key is absent. As
    /// [`read`](RangeIndex::read), without a virtual call.
    fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Result<Option<R>>;

    /// Walks the whole index: its invariants, its figures, the blocks that it reaches. Lends the
    /// records of every node in which nothing is wrong to `visit`, key and value, so that of a
    /// damaged pool all can be copied out that can be read. Believes nothing that a block says
    /// before it was found to lie in the block.
    fn walk(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit>;

    /// As [`walk`](Self::walk), for what it finds alone.
    fn audit(&self) -> Result<Audit> {
        self.walk(&mut |_, _| ())
    }

    /// Which part of a dropped map goes next, given its entry word, which is not zero: the word
    /// that leads to the part, and the blocks that are free with it. What follows from the words of
    /// the map alone, and is called until the entry word is zero; several threads may ask at once,
    /// and go on after a crash. Believes nothing that a block says before it was found to lie in
    /// the block, and passes over what is no part of an index.
    fn next_unit(context: Context<'_, Self::Domain>, root_off: u64, options: Self::Options)
    -> Unit;
}

impl<D: Domain> KnownKind<D> {
    /// The kind `K`.
    pub fn of<K: IndexKind>() -> Self {
        let next_unit: NextUnit<D> = |context, root_off, values| {
            K::Index::<D>::next_unit(context, root_off, K::Options::of(values))
        };
        Self { number: K::NUMBER, options: K::Options::SPECS, next_unit }
    }
}

impl<D: Domain> Catalog<D> {
    /// The map `name` of the kind `K`; created with `options` if there is none of that name.
    pub fn find_or_create_index<K: IndexKind>(
        self: &Arc<Self>,
        name: &str,
        options: K::Options,
    ) -> Result<K::Index<D>, MapError> {
        let values = options.values()?.encode();
        let guard = self.pool().pin()?;
        let header = MapHeader { name: name.to_owned(), kind: K::NUMBER, options: values };
        let first_block = || K::Index::<D>::first_block(Context::new(self, &guard), options);
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
        let options = K::Options::of(&OptionValues::decode(K::Options::SPECS, header.options)?);
        options.check()?;
        // Nothing of the map is reused while it is opened.
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
