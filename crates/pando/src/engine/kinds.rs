//! The kinds of index, and the operations on a map of any kind.

use std::marker::PhantomData;
use std::sync::Arc;

use pando_index::RangeIndex;
use pando_pmem::{Domain, Process};
use pando_tree::maps::slots::{MapEntry, MapHeader};
use pando_tree::maps::{
    Audit, Catalog, IndexKind, IndexOptions, KnownKind, MapError, OptionSpec, OptionValues, Tree,
};

use crate::Error;

/// A kind of index, in pools of domain `D`.
pub(super) trait Kind<D: Domain> {
    /// Its number in the catalog.
    fn number(&self) -> u64;

    /// Its name.
    fn name(&self) -> &'static str;

    /// A description in one line.
    fn what(&self) -> &'static str;

    /// Its options.
    fn options(&self) -> &'static [OptionSpec];

    /// Whether a value may have this many bytes, in a map with these options.
    fn takes_value_bytes(&self, options: &OptionValues, bytes: usize) -> bool;

    /// Whether several processes may use a map at once.
    fn is_shareable(&self) -> bool;

    /// Creates the map `name`, unless it exists. `number` is zero, or of a transactional map
    /// [`MapHeader::NEW_NUMBER`] or the number that it had in a lost pool.
    fn create(
        &self,
        catalog: &Arc<Catalog<D>>,
        name: &str,
        options: &OptionValues,
        number: u64,
    ) -> Result<MapEntry, MapError>;

    /// The index of a map.
    fn open(
        &self,
        catalog: &Arc<Catalog<D>>,
        entry: &MapEntry,
    ) -> Result<Arc<dyn RangeIndex>, MapError>;

    /// Walks a map, and lends the records of its undamaged parts.
    fn walk(
        &self,
        catalog: &Arc<Catalog<D>>,
        entry: &MapEntry,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Audit, Error>;

    /// The rule by which its dropped maps are freed.
    fn known(&self) -> KnownKind<D>;
}

/// Every kind; the first is the default. A new index is one entry here (and a dependency).
pub(super) fn kinds<D: Domain>() -> &'static [&'static dyn Kind<D>] {
    &[
        &Of::<pando_bztree::BzTrees>(PhantomData),
        // Unit tests use two kinds, and each would be compiled for each of their domains.
        #[cfg(not(test))]
        &Of::<pando_nbtree::NbTrees>(PhantomData),
        #[cfg(not(test))]
        &Of::<pando_wbtree::WbTrees>(PhantomData),
        &Of::<pando_skiplist::SkipLists>(PhantomData),
        #[cfg(not(test))]
        &Of::<pando_bwtree::BwTrees>(PhantomData),
        #[cfg(all(feature = "sorted-array", not(test)))]
        &Of::<pando_sorted_array::SortedArrays>(PhantomData),
    ]
}

/// The name, the description and the options of each kind. They do not depend on the domain.
pub(crate) fn described()
-> impl Iterator<Item = (&'static str, &'static str, &'static [OptionSpec])> {
    kinds::<Process>().iter().map(|kind| (kind.name(), kind.what(), kind.options()))
}

/// The kind called `name`; the default kind if there is no name.
pub(super) fn kind_called<D: Domain>(name: Option<&str>) -> Result<&'static dyn Kind<D>, Error> {
    let all = kinds::<D>();
    let named = |kind: &&&dyn Kind<D>| name.is_none_or(|name| kind.name() == name);
    all.iter().find(named).copied().ok_or_else(|| Error::Option {
        option: "index".to_owned(),
        found: name.unwrap_or_default().to_owned(),
        allowed: all.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" or "),
    })
}

/// The kind of the map with this header.
pub(super) fn kind_of<D: Domain>(header: &MapHeader) -> Result<&'static dyn Kind<D>, Error> {
    kind_numbered(&header.name, header.kind)
}

/// The kind with this number, of the map `name`.
pub(super) fn kind_numbered<D: Domain>(
    name: &str,
    number: u64,
) -> Result<&'static dyn Kind<D>, Error> {
    let known = kinds::<D>().iter().find(|kind| kind.number() == number);
    known.copied().ok_or_else(|| Error::UnknownIndex { name: name.to_owned(), number })
}

/// The public form of an error of the index of `entry`.
fn of_index(entry: &MapEntry, error: pando_index::Error) -> Error {
    Error::of_index(entry.header.as_ref().map_or("", |header| &header.name), error)
}

struct Of<K>(PhantomData<K>);

impl<D: Domain, K: IndexKind> Kind<D> for Of<K> {
    fn number(&self) -> u64 {
        K::NUMBER
    }

    fn name(&self) -> &'static str {
        K::NAME
    }

    fn what(&self) -> &'static str {
        K::DESCRIPTION
    }

    fn options(&self) -> &'static [OptionSpec] {
        K::Options::SPECS
    }

    fn takes_value_bytes(&self, options: &OptionValues, bytes: usize) -> bool {
        K::Index::<D>::takes_value_bytes(K::Options::of(options), bytes)
    }

    fn is_shareable(&self) -> bool {
        K::Index::<D>::IS_SHAREABLE
    }

    fn create(
        &self,
        catalog: &Arc<Catalog<D>>,
        name: &str,
        options: &OptionValues,
        number: u64,
    ) -> Result<MapEntry, MapError> {
        catalog.find_or_create_entry::<K>(name, K::Options::of(options), number)
    }

    fn open(
        &self,
        catalog: &Arc<Catalog<D>>,
        entry: &MapEntry,
    ) -> Result<Arc<dyn RangeIndex>, MapError> {
        Ok(Arc::new(catalog.open_entry::<K>(entry)?))
    }

    fn walk(
        &self,
        catalog: &Arc<Catalog<D>>,
        entry: &MapEntry,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Audit, Error> {
        let index = catalog.open_entry::<K>(entry).map_err(Error::of_map)?;
        index.walk(visit).map_err(|error| of_index(entry, error))
    }

    fn known(&self) -> KnownKind<D> {
        KnownKind::of::<K>()
    }
}
