//! The maps of a catalog, as the log lists them.

use pando_pmem::Domain;
use pando_pmem::layout::CATALOG_VERSION_OFF;
use pando_tc::{ListedMap, MapList};
use pando_tree::maps::slots::{MapEntry, MapHeader};
use pando_tree::maps::{Catalog, MapError};

use crate::Error;

/// The header of a map, or an error if it is damaged.
pub(super) fn header_of(entry: &MapEntry) -> Result<&MapHeader, Error> {
    let damaged = |&damage| Error::of_map(MapError::Damaged { slot: entry.slot, damage });
    entry.header.as_ref().map_err(damaged)
}

/// The version of the catalog.
pub(super) fn catalog_version<D: Domain>(catalog: &Catalog<D>) -> Result<u64, Error> {
    let guard = catalog.pool().pin().map_err(Error::of_pool)?;
    Ok(catalog.read(&guard, CATALOG_VERSION_OFF))
}

/// The list of the maps.
pub(super) fn map_list<D: Domain>(catalog: &Catalog<D>) -> Result<MapList, Error> {
    let guard = catalog.pool().pin().map_err(Error::of_pool)?;
    let read_version = || catalog.read(&guard, CATALOG_VERSION_OFF);
    let listed = |entry: &MapEntry| {
        let MapHeader { name, kind, options, number } = header_of(entry)?.clone();
        Ok(ListedMap { name, kind, options, number })
    };
    loop {
        let version = read_version();
        let maps = catalog.maps(&guard).iter().map(listed).collect::<Result<_, Error>>()?;
        // Else another thread has changed the catalog.
        if read_version() == version {
            let max_bytes = catalog.pool().geometry().max_bytes;
            return Ok(MapList { version, max_bytes, maps });
        }
    }
}
