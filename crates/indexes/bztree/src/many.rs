//! Gets of many keys at once.
//!
//! The descents of a group of keys take turns, so that they wait for memory together. Each key is
//! read by itself, as by a single get; the answers are not of one point in time.

use pando_index::{Result, VisitMany};
use pando_pmem::Domain;
use pando_tree::checked::undamaged;
use pando_tree::maps::Tree;

use crate::layout::LIMITS;
use crate::leaf::{Leaf, Superseded};
use crate::node::Probe;
use crate::tree::BzTree;

/// Descents that take turns. More would request more lines at a time than a core can wait for.
const GROUP: usize = 8;

impl<D: Domain> BzTree<D> {
    /// Lends the value of each of `keys` to `visit`, with the key's index, in order; `None` if it
    /// is absent.
    pub(crate) fn visit_many(&self, keys: &[&[u8]], visit: &mut VisitMany<'_>) -> Result<()> {
        self.in_groups::<GROUP>(keys, LIMITS, |guard, first, keys| {
            let context = self.context(guard);
            let mut probes = [Probe::new(&[]); GROUP];
            for (probe, key) in probes.iter_mut().zip(keys) {
                *probe = Probe::new(key);
            }
            let probes = &probes[..keys.len()];
            let upper = probes.iter().map(|probe| probe.upper());
            let leaves = self.upper().find_leaves::<GROUP, D>(context, upper);
            for (at, (leaf, probe)) in leaves.iter().zip(probes).enumerate() {
                match Leaf::new(*leaf).get(context, *probe) {
                    Ok(value) => {
                        undamaged(guard)?;
                        visit(first + at, value);
                    }
                    // The value's block was superseded or deleted meanwhile: look again.
                    Err(Superseded) => {
                        let lend = |value: &[u8]| visit(first + at, Some(value));
                        if self.read_with(probe.bytes, lend)?.is_none() {
                            visit(first + at, None);
                        }
                    }
                }
            }
            Ok(())
        })
    }
}
