//! What `check` and `stat` see of a tree: its invariants, its shape, and the blocks that it
//! reaches. Exact while nobody writes.
//!
//! Nothing that a node says is believed before it was found to lie in the node's block: a damaged
//! tree is walked to the end, and every problem is reported.

use std::collections::HashSet;

use pando_index::Error;
use pando_pmem::{Block, Domain};
use pando_tree::context::Context;
use pando_tree::maps::{Audit, ProblemClass};

use crate::build::Extent;
use crate::layout::Link;
use crate::leaf::Leaf;
use crate::meta::Meta;
use crate::node::{Inner, Node};
use crate::tree::{BzTree, MAX_HEIGHT};

/// What a walk has found, and where it has been.
struct Walk<'visit> {
    found: Audit,
    /// Offsets of the nodes that were walked.
    walked: HashSet<u64>,
    visit: &'visit mut dyn FnMut(&[u8], &[u8]),
}

impl<D: Domain> BzTree<D> {
    /// Walks the whole tree, and lends the live records of leaves in which nothing is wrong to
    /// `visit`.
    pub(crate) fn walk_tree(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit, Error> {
        let guard = self.pin()?;
        let context = self.context(&guard);
        let mut walked = Walk { found: Audit::default(), walked: HashSet::new(), visit };
        let root = Link::at(context, self.root_off);
        walk(context, &mut walked, root, 1, None, None, &mut None);
        Ok(walked.found)
    }
}

fn walk<'op, D: Domain>(
    context: Context<'op, '_, D>,
    walked: &mut Walk<'_>,
    link: Link,
    depth: u64,
    low: Option<&'op [u8]>,
    high: Option<&'op [u8]>,
    leaf_depth: &mut Option<u64>,
) {
    let off = link.off();
    let audit = &mut walked.found;
    let Some(bytes) = context.pool().active_block(off) else {
        audit.problem(
            ProblemClass::Block,
            off,
            "the node is reachable, but its block is not allocated",
        );
        return;
    };
    if !walked.walked.insert(off) {
        audit.problem(ProblemClass::Structure, off, "the node is reached twice");
        return;
    }
    audit.blocks.push(Block { off, bytes });
    let node = Node::at(context, link);
    if node.header.node_bytes != bytes {
        let found = node.header.node_bytes;
        audit.problem(
            ProblemClass::Block,
            off,
            format!("the node says {found} bytes, its block has {bytes}"),
        );
        return;
    }
    if node.is_leaf() {
        audit.stat.height = audit.stat.height.max(depth);
        if *leaf_depth.get_or_insert(depth) != depth {
            audit.problem(
                ProblemClass::Structure,
                off,
                format!("the leaf is at level {depth}, others are not"),
            );
        }
        walk_leaf(context, walked, Leaf::new(node), low, high);
        return;
    }
    audit.stat.inner_nodes += 1;
    audit.stat.inner_bytes += bytes;
    let inner = Inner { node };
    if inner.children() == 0 || depth as usize > MAX_HEIGHT {
        audit.problem(ProblemClass::Structure, off, "an inner node without children, or too deep");
        return;
    }
    if !inner.is_sound(context) {
        audit.problem(ProblemClass::Structure, off, "the children or separators leave the node");
        return;
    }
    if !inner.has_sound_slices(context) {
        audit.problem(ProblemClass::Separator, off, "a slice is not that of its separator");
    }
    if inner.status(context).is_frozen() {
        audit.problem(ProblemClass::Structure, off, "an inner node is frozen and still in place");
    }
    let mut from = low;
    for index in 0..inner.children() {
        let to = if index + 1 < inner.children() {
            let separator = inner.separator(context, index);
            if from.is_some_and(|from| from >= separator) {
                walked.found.problem(
                    ProblemClass::Separator,
                    off,
                    format!("separator {index} does not ascend"),
                );
            }
            if high.is_some_and(|high| separator >= high) {
                walked.found.problem(
                    ProblemClass::Separator,
                    off,
                    format!("separator {index} is beyond the node's range"),
                );
            }
            Some(separator)
        } else {
            high
        };
        walk(context, walked, inner.child(context, index), depth + 1, from, to, leaf_depth);
        from = to;
    }
}

fn walk_leaf<D: Domain>(
    context: Context<'_, '_, D>,
    walked: &mut Walk<'_>,
    leaf: Leaf,
    low: Option<&[u8]>,
    high: Option<&[u8]>,
) {
    let off = leaf.node.off;
    let audit = &mut walked.found;
    let wrong_before = audit.problems.len();
    let node_bytes = leaf.node.header.node_bytes;
    audit.stat.leaves += 1;
    audit.stat.leaf_bytes += node_bytes;
    let Some(storage_bytes) = leaf.stored(context) else {
        audit.problem(ProblemClass::Count, off, "the leaf counts more than it holds");
        return;
    };
    if !leaf.holds_its_records(context, node_bytes - storage_bytes) {
        audit.problem(
            ProblemClass::Structure,
            off,
            "a record leaves the place of the leaf's records",
        );
        return;
    }
    if !is_open_or_closed(context, &leaf) {
        audit.problem(
            ProblemClass::Structure,
            off,
            "a leaf that is in place in a state that none is in",
        );
    }
    let mut last: Option<&[u8]> = None;
    for index in 0..leaf.sorted() {
        let key = leaf.key(context, leaf.sorted_meta(context, index));
        if last.is_some_and(|last| last >= key) {
            audit.problem(
                ProblemClass::Order,
                off,
                format!("sorted record {index} does not ascend"),
            );
        }
        last = Some(key);
    }
    if !leaf.has_sound_slices(context) {
        audit.problem(ProblemClass::Order, off, "a slice is not that of its key");
    }
    let live = leaf.live_records(context);
    if !live.is_sorted_by(|left, right| left.key(context) < right.key(context)) {
        audit.problem(ProblemClass::Order, off, "live records do not ascend");
    }
    for record in &live {
        let key = record.key(context);
        if low.is_some_and(|low| key < low) || high.is_some_and(|high| key >= high) {
            audit.problem(ProblemClass::Separator, off, "a key lies outside the leaf's range");
        }
        if record.meta.is_pointer() {
            audit.value_block(context, off, context.read(record.off));
        }
    }
    audit.stat.records += live.len() as u64;
    let extent = Extent::of(&live);
    audit.stat.live_bytes += extent.bytes();
    audit.stat.deleted_bytes += storage_bytes.saturating_sub(extent.storage_bytes);
    if audit.problems.len() == wrong_before {
        for record in &live {
            // `None`: it was deleted since.
            if let Some(value) = leaf.value(context, record.meta) {
                (walked.visit)(record.key(context), value);
            }
        }
    }
}

/// Whether a leaf that is in place is not marked as replaced, closed by its last claimed slot or
/// its gate if at all, and has dead bits only if all slots are claimed.
fn is_open_or_closed<D: Domain>(context: Context<'_, '_, D>, leaf: &Leaf) -> bool {
    let mut slots = Vec::new();
    leaf.read_slots(context, &mut slots);
    let full = slots.len() as u64 == leaf.slots();
    let closes_early = slots.iter().rev().skip(1).any(|meta| meta.is_closed());
    let is_replaced = slots.last().is_some_and(|last| last.is_closed() && *last != Meta::CLOSED);
    let gate = leaf.gate(context);
    !closes_early
        && !is_replaced
        && !gate.is_replaced()
        && (full || (!gate.is_closed() && leaf.dead(context) == 0))
}
