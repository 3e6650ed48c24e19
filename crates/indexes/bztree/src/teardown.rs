//! The blocks of a leaf of a tree whose map was dropped.

use pando_pmem::Domain;
use pando_tree::context::Context;

use crate::leaf::Leaf;

/// The blocks of a leaf's values; none of a leaf whose records exceed it.
pub(crate) fn values<D: Domain>(context: Context<'_, D>, leaf: &Leaf) -> Vec<u64> {
    if leaf.ranged(context).is_some() {
        return Vec::new();
    }
    let node_bytes = leaf.node.header().node_bytes;
    let stored = leaf.stored(context);
    if !stored.is_some_and(|stored| leaf.holds_its_records(context, node_bytes - stored)) {
        return Vec::new();
    }
    let live = leaf.live_records(context);
    live.iter()
        .filter(|record| record.meta.is_pointer())
        .map(|record| context.read(record.off))
        .collect()
}
