//! The next unit of a tree whose map was dropped: the first leaf with the blocks that it owns, or
//! an inner node without children. The word that names a unit becomes zero, the first child's
//! before the second's. (`pando_tree::maps` says how units are freed, and what a crash leaves.)

use pando_pmem::Domain;
use pando_tree::context::Context;
use pando_tree::maps::Unit;

use crate::layout::{HEADER_BYTES, Link, MAX_HEIGHT};
use crate::node::{Inner, Node};

/// The next unit of the tree whose entry word is at `root_off`. `owned`: the blocks that a leaf
/// owns.
pub fn next_unit<D: Domain>(
    context: Context<'_, D>,
    root_off: u64,
    owned: impl FnOnce(Node) -> Vec<u64>,
) -> Unit {
    let mut word = root_off;
    for _ in 0..=MAX_HEIGHT {
        let link = Link::at(context, word);
        let (off, bytes) = (link.off(), context.pool().active_block(link.off()));
        let Some(bytes) = bytes.filter(|&bytes| bytes >= HEADER_BYTES) else {
            return Unit::passed_over(word, link.0);
        };
        let node = Node::at(context, link);
        if node.header().node_bytes != bytes {
            return Unit::passed_over(word, link.0);
        }
        let unit = Unit::of_block(word, link.0, 0, off);
        if node.is_leaf() {
            return Unit { owned: owned(node), ..unit };
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
