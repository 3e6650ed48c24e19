//! Gets of many keys at once.
//!
//! A get spends most of its time waiting for memory: for a line of each node on its path, one after
//! the other. Here the descents of a group of keys take turns, level by level: the line that one of
//! them reads next is prefetched while the others read theirs. Each key is read by itself, as by a
//! single get; the answers are not of one point in time.

use pando_index::{Result, VisitMany};
use pando_pmem::Domain;
use pando_tree::checked::undamaged;
use pando_tree::context::Context;
use pando_tree::key::Side;
use pando_tree::maps::Tree;

use crate::layout::{LIMITS, Link};
use crate::leaf::{Leaf, Superseded};
use crate::node::{Inner, Node, Probe};
use crate::tree::{BzTree, MAX_HEIGHT};

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
            let leaves = self.find_leaves(context, probes);
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

    /// The leaves for `probes`, in order; the further elements are unspecified.
    fn find_leaves(&self, context: Context<'_, D>, probes: &[Probe<'_>]) -> [Node; GROUP] {
        let mut nodes = [self.root(context); GROUP];
        let mut child_offs = [0; GROUP];
        let mut children = [Link(0); GROUP];
        // All leaves have the same depth below one root.
        for _ in 0..MAX_HEIGHT {
            if nodes.iter().take(probes.len()).any(Node::is_leaf) {
                break;
            }
            for ((off, node), &probe) in child_offs.iter_mut().zip(&nodes).zip(probes) {
                let inner = Inner { node: *node };
                *off = inner.child_off(inner.search(context, probe, Side::Holding));
            }
            for ((child, &off), _) in children.iter_mut().zip(&child_offs).zip(probes) {
                *child = Link::at(context, off);
                child.prefetch(context);
            }
            for ((node, &child), _) in nodes.iter_mut().zip(&children).zip(probes) {
                *node = Node::at(context, child);
            }
        }
        // If a node is left, the tree is damaged.
        for node in nodes.iter_mut().take(probes.len()).filter(|node| !node.is_leaf()) {
            *node = node.too_deep(context);
        }
        nodes
    }
}
