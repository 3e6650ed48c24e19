//! Dropping a whole list.
//!
//! The records are removed one by one, so that every block goes the way that a removed record's
//! goes; then one PMwCAS takes the map out of the catalog, frees its header and its head, and marks the
//! head's word on level 0, which must name the head itself. A crash before the last step leaves the
//! map, with fewer records.

use pando_index::{Error, KeyRange, Order, RangeIndex};
use pando_pmem::Domain;
use pando_pmem::catalog::MapEntry;
use pando_pmwcas::maps::MapError;

use crate::layout::MARK;
use crate::list::SkipList;
use crate::style::Links;

impl<D: Domain, S: Links> SkipList<D, S> {
    /// Removes all records, and then the map `entry`, which is this list's, from the catalog. No
    /// other handle or cursor may be used meanwhile, or afterwards. When it returns, the map is gone
    /// durably.
    pub(crate) fn drop_map(&self, entry: &MapEntry) -> Result<(), Error> {
        loop {
            let mut records = self.scan(KeyRange::all(), Order::Ascending)?;
            while let Some((key, _)) = records.next()? {
                self.remove(key)?;
            }
            let guard = self.pin()?;
            let head = self.head(self.context(&guard));
            let seal = (head.next_off(0), head.0, head.0 | MARK);
            match self.pmwcas().drop_map(&guard, entry, head.0, Some(seal)) {
                Err(MapError::Busy) => {}
                result => return result.map_err(Error::storage),
            }
        }
    }
}
