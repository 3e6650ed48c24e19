//! The indexes as this crate compiles them, in a pool of the caller's own.
//!
//! For the benchmark. It makes pools with settings that the public API does not have, and measures
//! the code that the public API runs, without a second copy of it.

use std::sync::Arc;

use pando_index::RangeIndex;
use pando_pmem::{Adr, Domain, Process};
use pando_tree::maps::{Catalog, OptionValues};

use super::kinds::{kind_called, kind_of};
use super::map_list::header_of;
use crate::Error;

/// A domain for which this crate compiles all indexes.
pub trait CompiledDomain: Domain {
    /// The map `name` with the index called `index`; created if it is not there, with the options
    /// of an experiment too. Without `options`, with the defaults.
    ///
    /// # Errors
    ///
    /// An index that is not known, an option out of its range, a pool that is full.
    fn find_or_create(
        catalog: &Arc<Catalog<Self>>,
        name: &str,
        index: &str,
        options: Option<&OptionValues>,
    ) -> Result<Arc<dyn RangeIndex>, Error>;

    /// The index of the map `name`.
    ///
    /// # Errors
    ///
    /// No such map, or a map that is damaged.
    fn find(catalog: &Arc<Catalog<Self>>, name: &str) -> Result<Arc<dyn RangeIndex>, Error>;
}

macro_rules! compiled {
    ($($domain:ty),+) => {
        $(
            impl CompiledDomain for $domain {
                // Inlined into another crate, each would bring a copy of all indexes there.
                #[inline(never)]
                fn find_or_create(
                    catalog: &Arc<Catalog<Self>>,
                    name: &str,
                    index: &str,
                    options: Option<&OptionValues>,
                ) -> Result<Arc<dyn RangeIndex>, Error> {
                    find_or_create(catalog, name, index, options)
                }

                #[inline(never)]
                fn find(
                    catalog: &Arc<Catalog<Self>>,
                    name: &str,
                ) -> Result<Arc<dyn RangeIndex>, Error> {
                    find(catalog, name)
                }
            }
        )+
    };
}

compiled!(Process, Adr);

fn find_or_create<D: Domain>(
    catalog: &Arc<Catalog<D>>,
    name: &str,
    index: &str,
    options: Option<&OptionValues>,
) -> Result<Arc<dyn RangeIndex>, Error> {
    let kind = kind_called::<D>(Some(index))?;
    let defaults = || OptionValues::new(kind.options());
    let options = options.cloned().unwrap_or_else(defaults);
    kind.create(catalog, name, &options, 0).map_err(Error::of_map)?;
    find(catalog, name)
}

fn find<D: Domain>(catalog: &Arc<Catalog<D>>, name: &str) -> Result<Arc<dyn RangeIndex>, Error> {
    let guard = catalog.pool().pin().map_err(Error::of_pool)?;
    let found = catalog.find_map(&guard, name).map_err(Error::of_map)?;
    let entry =
        found.ok_or_else(|| Error::MapNotFound { name: name.to_owned(), present: Vec::new() })?;
    kind_of(header_of(&entry)?)?.open(catalog, &entry).map_err(Error::of_map)
}
