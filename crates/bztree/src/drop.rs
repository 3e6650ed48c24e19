//! Dropping a whole tree.
//!
//! The records are removed one by one, so that every block goes the way that a removed record's
//! goes; then one PMwCAS takes the map out of the catalog and frees its header and its last leaf.
//! That leaf was closed before, so that a writer that had reached it fails. A crash before the last
//! step leaves the map, with fewer records.

use pando_index::{Error, KeyRange, Order, RangeIndex};
use pando_pmem::Domain;
use pando_pmem::catalog::MapEntry;
use pando_pmwcas::maps::MapError;

use crate::leaf::Leaf;
use crate::node::Probe;
use crate::tree::BzTree;

impl<D: Domain> BzTree<D> {
    /// Removes all records, and then the map `entry`, which is this tree's, from the catalog. No
    /// other handle or cursor may be used meanwhile, or afterwards. When it returns, the map is gone durably.
    pub(crate) fn drop_map(&self, entry: &MapEntry) -> Result<(), Error> {
        loop {
            self.remove_all()?;
            let guard = self.pin()?;
            let context = self.context(&guard);
            let root = context.node(context.link(self.root_off()));
            if !root.is_leaf() {
                // Leaves that found no neighbour to merge with when they became empty.
                guard.relieve(|| self.tidy_empty(context, Probe::new(&[])))?;
                continue;
            }
            let leaf = Leaf::new(root);
            let closing = leaf.close(context);
            if !leaf.live_records(context).is_empty() {
                guard.relieve(|| self.tidy_empty(context, Probe::new(&[])))?;
                continue;
            }
            let seal = closing.words();
            match self.pmwcas().drop_map(&guard, entry, root.link.0, Some(seal)) {
                Err(MapError::Busy) => {}
                result => return result.map_err(Error::storage),
            }
        }
    }

    fn remove_all(&self) -> Result<(), Error> {
        let mut records = self.scan(KeyRange::all(), Order::Ascending)?;
        while let Some((key, _)) = records.next()? {
            self.remove(key)?;
        }
        Ok(())
    }
}
