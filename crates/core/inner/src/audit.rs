//! The walk of a tree for `check` and `stat`: the invariants of its inner nodes, its shape, and the
//! blocks that it reaches. Exact while no thread writes.
//!
//! Each field of a node is checked against the node's block before it is used. So a damaged tree is
//! walked to its end, and every problem is reported.

use pando_pmem::Domain;
use pando_tree::context::Context;
use pando_tree::maps::{Audit, ProblemClass};

use crate::descent::Fence;
use crate::layout::{HEADER_BYTES, Link, MAX_HEIGHT};
use crate::node::{Inner, Node};

/// A walk in progress.
struct Walk<'op, 'call, D: Domain> {
    context: Context<'op, D>,
    audit: Audit,
    /// The depth of the first leaf that was found.
    leaf_depth: Option<u64>,
    leaf: &'call mut dyn FnMut(&mut Audit, Node, Fence<'op>),
}

/// Walks the tree whose entry word is at `root_off`. `leaf` audits each leaf, whose keys lie in the
/// range; its block has as many bytes as its header says.
pub fn walk<'op, D: Domain>(
    context: Context<'op, D>,
    root_off: u64,
    leaf: &mut dyn FnMut(&mut Audit, Node, Fence<'op>),
) -> Audit {
    let mut walk = Walk { context, audit: Audit::default(), leaf_depth: None, leaf };
    walk.node(Link::at(context, root_off), 1, Fence::default());
    walk.audit
}

impl<'op, D: Domain> Walk<'op, '_, D> {
    fn problem(&mut self, class: ProblemClass, off: u64, what: impl Into<String>) {
        self.audit.problem(class, off, what);
    }

    /// Walks the subtree of `link`, whose keys lie in `fence`.
    fn node(&mut self, link: Link, depth: u64, fence: Fence<'op>) {
        let (context, off) = (self.context, link.off());
        let Some(bytes) = self.audit.block(context.pool(), off, HEADER_BYTES, "a node") else {
            return;
        };
        let node = Node::at(context, link);
        if node.header().node_bytes != bytes {
            let found = node.header().node_bytes;
            let what = format!("the node says {found} bytes, its block has {bytes}");
            self.problem(ProblemClass::Block, off, what);
            return;
        }
        if node.is_leaf() {
            self.audit.stat.height = self.audit.stat.height.max(depth);
            if *self.leaf_depth.get_or_insert(depth) != depth {
                let what = format!("the leaf is at level {depth}, others are not");
                self.problem(ProblemClass::Structure, off, what);
            }
            (self.leaf)(&mut self.audit, node, fence);
            return;
        }
        self.audit.stat.inner_nodes += 1;
        self.audit.stat.inner_bytes += bytes;
        let inner = Inner { node };
        if inner.children() == 0 || depth as usize > MAX_HEIGHT {
            let what = "an inner node without children, or too deep";
            self.problem(ProblemClass::Structure, off, what);
            return;
        }
        if !inner.is_within_bounds(context) {
            let what = "the children or separators leave the node";
            self.problem(ProblemClass::Structure, off, what);
            return;
        }
        if !inner.slices_match(context) {
            self.problem(ProblemClass::Separator, off, "a slice is not that of its separator");
        }
        if inner.status(context).is_frozen() {
            let what = "an inner node is frozen and still in place";
            self.problem(ProblemClass::Structure, off, what);
        }
        for index in 0..inner.children() {
            let range = fence.of_child(context, inner, index);
            if index + 1 < inner.children() {
                let separator = inner.separator(context, index);
                if range.low.is_some_and(|low| low >= separator) {
                    let what = format!("separator {index} does not ascend");
                    self.problem(ProblemClass::Separator, off, what);
                }
                if fence.high.is_some_and(|high| separator >= high) {
                    let what = format!("separator {index} is beyond the node's range");
                    self.problem(ProblemClass::Separator, off, what);
                }
            }
            self.node(inner.child(context, index), depth + 1, range);
        }
    }
}
