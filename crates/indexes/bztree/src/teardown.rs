//! The next unit of a tree whose map was dropped: the first leaf with the blocks of its values, or
//! an inner node without children. The word that names a unit becomes zero, the first child's
//! before the second's. (`pando_tree::maps` says how units are freed, and what a crash leaves.)

use pando_pmem::Domain;
use pando_tree::context::Context;
use pando_tree::maps::Unit;

use crate::layout::{HEADER_BYTES, Link};
use crate::leaf::Leaf;
use crate::node::{Inner, Node};
use crate::tree::MAX_HEIGHT;

/// The next unit of the tree whose entry word is at `root_off`.
pub(crate) fn next_unit<D: Domain>(context: Context<'_, D>, root_off: u64) -> Unit {
    let mut word = root_off;
    for _ in 0..=MAX_HEIGHT {
        let link = Link::at(context, word);
        let (off, bytes) = (link.off(), context.pool().active_block(link.off()));
        let Some(bytes) = bytes.filter(|&bytes| bytes >= HEADER_BYTES) else {
            return Unit::passed_over(word, link.0);
        };
        let node = Node::at(context, link);
        if node.header.node_bytes != bytes {
            return Unit::passed_over(word, link.0);
        }
        let unit = Unit::of_block(word, link.0, 0, off);
        if node.is_leaf() {
            return Unit { owned: values(context, &Leaf::new(node)), ..unit };
        }
        let children = Inner { node }.children();
        if HEADER_BYTES + children * 8 > bytes {
            return Unit::passed_over(word, link.0);
        }
        let mut children = (0..children).map(|index| off + HEADER_BYTES + index * 8);
        match children.find(|&child| context.read(child) != 0) {
            Some(child) => word = child,
            None => return unit,
        }
    }
    // Deeper than any tree.
    Unit::passed_over(word, context.read(word))
}

/// The blocks of a leaf's values; none of a leaf whose records exceed it.
fn values<D: Domain>(context: Context<'_, D>, leaf: &Leaf) -> Vec<u64> {
    let node_bytes = leaf.node.header.node_bytes;
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
