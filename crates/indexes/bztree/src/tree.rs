//! The tree: its handle, and the descent from the root to a leaf.
//!
//! A descent needs no retry, because what it finds was reachable at some point in time since it
//! began:
//!
//! * An inner node that was replaced is frozen, but its children are still those of the time of
//!   freezing. A leaf reached through it was current when the descent began, or later.
//! * The range of keys of a leaf never changes; structure modifications make new leaves. So the
//!   separators of the path, from any mixture of old and new inner nodes, are exactly the bounds of
//!   the leaf.
//! * A leaf that was replaced is closed. It holds what it held when it was replaced, which is not
//!   before the descent began. A reader may use it. A writer finds it closed and starts again.

use std::sync::Arc;

use pando_pmem::Domain;
use pando_tree::context::Context;
use pando_tree::deref_to_handle;
use pando_tree::handle::Handle;
use pando_tree::key::Side;

use crate::layout::Link;
use crate::leaf::Leaf;
use crate::node::{Inner, Node, Probe};
use crate::options::Options;
use crate::rounds::Sweep;

/// Levels of inner nodes in a path: with two children per node, more than any pool can have.
pub(crate) const MAX_HEIGHT: usize = 48;

/// A BzTree in a pool. All its state is in the pool, apart from caches. Any number of handles may
/// be open.
#[derive(Clone, Debug)]
pub struct BzTree<D: Domain> {
    handle: Handle<D, Options>,
    pub(crate) sweep: Arc<Sweep>,
}

deref_to_handle!(BzTree<D>, Options);

/// An inner node of a path, and the child that was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub inner: Inner,
    pub child: u64,
}

/// The path from the root to a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    steps: [Option<Step>; MAX_HEIGHT],
    pub height: usize,
    pub leaf: Node,
}

impl Path {
    /// The inner node `above` levels over the leaf, counted from 1; `None` above the root.
    pub fn above_leaf(&self, above: usize) -> Option<Step> {
        self.height.checked_sub(above).and_then(|level| self.steps[level])
    }

    pub fn at(&self, level: usize) -> Option<Step> {
        self.steps.get(level).copied().flatten()
    }

    /// The upper bound of the leaf's range, excluded; `None` if it is open.
    pub fn high<'op, D: Domain>(&self, context: Context<'op, D>) -> Option<&'op [u8]> {
        let steps = self.steps[..self.height].iter().rev().copied().flatten();
        let mut inner = steps.filter(|step| step.child + 1 < step.inner.children());
        inner.next().map(|step| step.inner.separator(context, step.child))
    }
}

/// The range of keys of a leaf: from `low`, included, to `high`, excluded; `None` is open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fence<'op> {
    pub low: Option<&'op [u8]>,
    pub high: Option<&'op [u8]>,
}

impl<D: Domain> BzTree<D> {
    /// Opens the tree.
    pub(crate) fn new(handle: Handle<D, Options>) -> Self {
        let options = handle.options.fitted();
        Self { handle: Handle { options, ..handle }, sweep: Arc::default() }
    }

    /// The root.
    #[inline(always)]
    pub(crate) fn root(&self, context: Context<'_, D>) -> Node {
        Node::at(context, Link::at(context, self.root_off))
    }

    /// The leaf that `choose` selects: it returns the child to take in each inner node.
    #[inline(always)]
    pub(crate) fn descend(
        &self,
        context: Context<'_, D>,
        mut choose: impl FnMut(Inner) -> u64,
    ) -> Leaf {
        let mut node = self.root(context);
        for _ in 0..MAX_HEIGHT {
            if node.is_leaf() {
                return Leaf::new(node);
            }
            let inner = Inner { node };
            let link = inner.child(context, choose(inner));
            link.prefetch(context);
            node = Node::at(context, link);
        }
        Leaf::new(node.too_deep(context))
    }

    /// The leaf for `probe`, without its path. Most gets and writes use this, so it is
    /// [`descend`](Self::descend) written out: there, the closure would be a call.
    #[inline(always)]
    pub(crate) fn find_leaf(&self, context: Context<'_, D>, probe: Probe<'_>) -> Leaf {
        let mut node = self.root(context);
        for _ in 0..MAX_HEIGHT {
            if node.is_leaf() {
                return Leaf::new(node);
            }
            let inner = Inner { node };
            let link = inner.child(context, inner.search(context, probe, Side::Holding));
            link.prefetch(context);
            node = Node::at(context, link);
        }
        Leaf::new(node.too_deep(context))
    }

    /// The path to the leaf for `probe`.
    #[inline]
    pub(crate) fn find_path(&self, context: Context<'_, D>, probe: Probe<'_>) -> Path {
        let mut steps = [None; MAX_HEIGHT];
        let mut height = 0;
        let leaf = self.descend(context, |inner| {
            let child = inner.search(context, probe, Side::Holding);
            steps[height] = Some(Step { inner, child });
            height += 1;
            child
        });
        Path { steps, height, leaf: leaf.node }
    }

    /// The leaf on `side` of `probe` (without a probe: the first or last leaf), and its range.
    // A function of its own, so that the closure is inlined into it.
    #[inline(never)]
    pub(crate) fn find_fenced<'op>(
        &self,
        context: Context<'op, D>,
        probe: Option<Probe<'_>>,
        side: Side,
    ) -> (Leaf, Fence<'op>) {
        let mut fence = Fence::default();
        let leaf = self.descend(context, |inner| {
            let index = match (probe, side) {
                (Some(probe), _) => inner.search(context, probe, side),
                (None, Side::Holding) => 0,
                (None, Side::Before) => inner.children() - 1,
            };
            if index > 0 {
                fence.low = Some(inner.separator(context, index - 1));
            }
            if index + 1 < inner.children() {
                fence.high = Some(inner.separator(context, index));
            }
            index
        });
        (leaf, fence)
    }
}
