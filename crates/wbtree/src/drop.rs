//! Dropping a whole tree.
//!
//! The records are removed one by one, so that every block goes the way that a removed record's goes, and
//! the empty nodes are merged until the root is a leaf; what little room that may take is kept for it. Then one PMwCAS takes the map out of the catalog,
//! frees its header and that leaf, and makes the leaf dead, so that a writer that had reached it fails. A crash
//! before leaves the map, with fewer records.

use pando_index::{Error, KeyRange, Order, RangeIndex};
use pando_pmem::Domain;
use pando_pmem::catalog::MapEntry;
use pando_pmwcas::maps::MapError;

use crate::node::{Probe, Seek};
use crate::smo::Merged;
use crate::tree::WbTree;

impl<D: Domain> WbTree<D> {
    pub(crate) fn drop_map(&self, entry: &MapEntry) -> Result<(), Error> {
        loop {
            let mut records = self.scan(KeyRange::all(), Order::Ascending)?;
            while let Some((key, _)) = records.next()? {
                self.remove(key)?;
            }
            let guard = self.pin()?;
            guard.relieve(|| self.merge_all())?;
            let context = self.context(&guard);
            let root = self.root(context);
            let state = root.state(context);
            // A scan from the root says whether it is damaged, or was replaced.
            if state.is_dead() || root.level > 0 || state.count(root.kind) > 0 {
                continue;
            }
            let Ok(fence) = root.fence(context, state) else { continue };
            if fence.link != 0 {
                self.post(context, root)?;
                continue;
            }
            let seal = (root.off, state.0, state.dead().0);
            match self.pmwcas().drop_map(&guard, entry, root.off, Some(seal)) {
                Err(MapError::Busy) => {}
                result => return result.map_err(Error::storage),
            }
        }
    }

    /// Merges what fits, on every level.
    fn merge_all(&self) -> Result<(), Error> {
        let guard = self.pin()?;
        let context = self.context(&guard);
        for level in 0..self.root(context).level {
            let mut key = Vec::new();
            loop {
                let probe = Probe::new(&key);
                while let Merged::Done { .. } = self.merge(context, probe, level)? {}
                let Some(found) = self.seek(context, Seek::Holding(probe), level)? else { break };
                if let Some(left) = found.crossed {
                    self.post(context, left)?;
                }
                let Ok(fence) = found.node.fence(context, found.state) else { continue };
                if fence.link == 0 {
                    break;
                }
                self.post(context, found.node)?;
                key = context.key(&fence);
            }
        }
        self.collapse(context)
    }
}
