//! The descent from the root to a leaf.
//!
//! A descent needs no retry, because what it finds was reachable at some point in time since it
//! began:
//!
//! * An inner node that was replaced is frozen, but its children are still those of the time of
//!   freezing. A leaf reached through it was current when the descent began, or later.
//! * The range of keys of a leaf never changes; modifications make new leaves. So the separators of
//!   the path, from any mixture of old and new inner nodes, are exactly the bounds of the leaf.
//! * The leaf beside it, below the same parent, is as good: if the parent is not frozen, it is
//!   current; otherwise it was current when the parent was frozen, which is not before the descent
//!   began.
//! * A leaf that was replaced is sealed. It holds what it held when it was replaced, which is not
//!   before the descent began. A reader may use it. A writer finds it sealed and starts again.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Pool, Words, mutant, word_index};
use pando_pmwcas::CONTROL_BITS;
use pando_tree::context::Context;
use pando_tree::key::Side;

use crate::guess::Span;
use crate::layout::{Link, MAX_HEIGHT};
use crate::node::{Inner, Leaves, Node, Probe};
use crate::numbers::descend;

/// The inner nodes of one tree.
#[derive(Clone, Copy, Debug)]
pub struct Upper<L> {
    /// The offset of the entry word.
    pub root_off: u64,
    /// An inner node that would take more bytes is split.
    pub inner_bytes: u64,
    leaves: PhantomData<L>,
}

/// An inner node of a path, and the child that was taken.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The node.
    pub inner: Inner,
    /// The index of the child.
    pub child: u64,
}

/// The path from the root to a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    steps: [Option<Step>; MAX_HEIGHT],
    /// The number of inner nodes.
    pub height: usize,
    /// The leaf.
    pub leaf: Node,
}

impl Path {
    /// The inner node `above` levels over the leaf, counted from 1; `None` if it would be above the
    /// root.
    pub fn above_leaf(&self, above: usize) -> Option<Step> {
        self.height.checked_sub(above).and_then(|level| self.steps[level])
    }

    /// The inner node at `level`, counted from the root.
    pub fn at(&self, level: usize) -> Option<Step> {
        self.steps.get(level).copied().flatten()
    }

    /// The upper bound of the leaf's range, excluded; `None` if it is open.
    pub fn high<'op, D: Domain>(&self, context: Context<'op, D>) -> Option<&'op [u8]> {
        let steps = self.steps[..self.height].iter().rev().copied().flatten();
        let mut inner = steps.filter(|step| step.child + 1 < step.inner.children());
        inner.next().map(|step| step.inner.separator(context, step.child))
    }

    /// The range of the leaf.
    pub fn leaf_fence<'op, D: Domain>(&self, context: Context<'op, D>) -> Fence<'op> {
        let child = self.above_leaf(1).map_or(0, |step| step.child);
        self.fence(context, (child, child))
    }

    /// The range of the children `first` to `last` of the leaf's parent; without a parent, that of
    /// the leaf.
    pub fn fence<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        (first, last): (u64, u64),
    ) -> Fence<'op> {
        let steps = self.steps[..self.height].iter().rev().copied().flatten().enumerate();
        // Above the parent there is one child.
        let ends = steps.map(|(above, step)| match above {
            0 => (step.inner, first, last),
            _ => (step.inner, step.child, step.child),
        });
        let mut fence = Fence::default();
        for (inner, first, last) in ends {
            if fence.low.is_none() && first > 0 {
                fence.low = Some(inner.separator(context, first - 1));
            }
            if fence.high.is_none() && last + 1 < inner.children() {
                fence.high = Some(inner.separator(context, last));
            }
        }
        fence
    }
}

/// The range of keys of a leaf: from `low`, included, to `high`, excluded; `None` is open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fence<'op> {
    /// The lowest key.
    pub low: Option<&'op [u8]>,
    /// The lowest key above all.
    pub high: Option<&'op [u8]>,
}

impl<'op> Fence<'op> {
    /// Whether the key lies in the range.
    pub fn holds(&self, key: &[u8]) -> bool {
        self.low.is_none_or(|low| low <= key) && self.high.is_none_or(|high| key < high)
    }

    /// The range of a child, if this is the range of the node.
    #[inline(always)]
    pub(crate) fn of_child<D: Domain>(
        self,
        context: Context<'op, D>,
        inner: Inner,
        child: u64,
    ) -> Self {
        let is_last = child + 1 == inner.children();
        Self {
            low: if child > 0 { Some(inner.separator(context, child - 1)) } else { self.low },
            high: if is_last { self.high } else { Some(inner.separator(context, child)) },
        }
    }
}

/// A leaf of a descent, its range, and its parent.
#[derive(Clone, Copy, Debug)]
pub struct Fenced<'op> {
    /// The leaf.
    pub leaf: Node,
    /// Its range.
    pub fence: Fence<'op>,
    parent: Option<Step>,
    /// The range of the parent.
    outer: Fence<'op>,
}

impl<'op> Fenced<'op> {
    /// The leaf right above this one (with [`Side::Before`]: right below it), if it has the same
    /// parent. It is as good as one that a descent finds: it was in place when the descent to this
    /// leaf began, or later.
    #[inline]
    pub fn beside<D: Domain>(&self, context: Context<'op, D>, side: Side) -> Option<Self> {
        let Step { inner, child } = self.step_beside(side)?;
        let leaf = Node::at(context, inner.child(context, child));
        // All leaves have the same depth.
        let leaf = if leaf.is_leaf() { leaf } else { leaf.too_deep(context) };
        let outer = if mutant!("scan-bound-of-parent") { Fence::default() } else { self.outer };
        let fence = outer.of_child(context, inner, child);
        Some(Self { leaf, fence, parent: Some(Step { inner, child }), outer })
    }

    /// Prefetches the first lines of the leaf that [`beside`](Self::beside) finds.
    #[inline]
    pub fn prefetch_beside<D: Domain>(&self, context: Context<'op, D>, side: Side) {
        if let Some(Step { inner, child }) = self.step_beside(side) {
            let off = inner.child(context, child).off();
            (0..4).for_each(|line| context.pool().prefetch(off + line * 64));
        }
    }

    #[inline(always)]
    fn step_beside(&self, side: Side) -> Option<Step> {
        let Step { inner, child } = self.parent?;
        let child = match side {
            Side::Holding => Some(child + 1).filter(|&child| child < inner.children())?,
            Side::Before => child.checked_sub(1)?,
        };
        Some(Step { inner, child })
    }
}

/// A node of a descent: the bounds of its keys, and a guess of the next child.
#[derive(Clone, Copy, Debug)]
struct Reached {
    node: Node,
    span: Span,
    guess: u64,
}

/// The child that a descent takes, prefetched but not read.
#[derive(Clone, Copy, Debug)]
struct Next {
    link: Link,
    span: Span,
    guess: u64,
}

impl Reached {
    #[inline(always)]
    fn first(root: Node, number: Option<u64>) -> Self {
        let separators = root.header().count.saturating_sub(1);
        let guess = number.map_or(0, |number| Span::ALL.guess(number, separators));
        Self { node: root, span: Span::ALL, guess }
    }

    /// The index of the child for `probe`.
    #[inline(always)]
    fn search<D: Domain>(&self, context: Context<'_, D>, probe: Probe<'_>) -> u64 {
        Inner { node: self.node }.search(context, probe, Side::Holding, self.guess)
    }

    #[inline(always)]
    fn next<D: Domain, L: Leaves>(
        &self,
        context: Context<'_, D>,
        index: u64,
        number: Option<u64>,
    ) -> Next {
        let inner = Inner { node: self.node };
        let link = inner.child(context, index);
        let span = inner.child_span(context, self.span, index);
        // If the separators here are of several lengths, those of the child probably are, too.
        let number = number.filter(|_| self.node.shape().is_uniform());
        let guess = link.prefetch::<D, L>(context, span, number);
        Next { link, span, guess }
    }
}

impl Next {
    #[inline(always)]
    fn reached<D: Domain>(self, context: Context<'_, D>) -> Reached {
        let Self { link, span, guess } = self;
        Reached { node: Node::at(context, link), span, guess }
    }
}

impl<L: Leaves> Upper<L> {
    /// The inner nodes of the tree whose entry word is at `root_off`.
    #[inline(always)]
    pub fn new(root_off: u64, inner_bytes: u32) -> Self {
        Self { root_off, inner_bytes: u64::from(inner_bytes), leaves: PhantomData }
    }

    /// The root.
    #[inline(always)]
    pub(crate) fn root<D: Domain>(&self, context: Context<'_, D>) -> Node {
        Node::at(context, Link::at(context, self.root_off))
    }

    /// The leaf that `choose` selects: it returns the child to take in each inner node, and gets a
    /// guess of it. `number` is the key that is searched, if it has eight bytes: it tells which
    /// lines to prefetch.
    #[inline(always)]
    pub fn descend<D: Domain>(
        &self,
        context: Context<'_, D>,
        number: Option<u64>,
        mut choose: impl FnMut(Inner, u64) -> u64,
    ) -> Node {
        let mut at = Reached::first(self.root(context), number);
        for _ in 0..MAX_HEIGHT {
            if at.node.is_leaf() {
                return at.node;
            }
            let index = choose(Inner { node: at.node }, at.guess);
            at = at.next::<D, L>(context, index, number).reached(context);
        }
        at.node.too_deep(context)
    }

    /// The leaf for `probe`, without its path. Most gets and writes use this.
    #[inline(always)]
    pub fn find_leaf<D: Domain>(&self, context: Context<'_, D>, probe: Probe<'_>) -> Node {
        let root = Link::at(context, self.root_off);
        let link = match probe.number {
            Some(number) => Self::link_for(context.pool(), root, number),
            None => root,
        };
        Self::find_below(context, link, probe.bytes)
    }

    /// The same for a number, without a guard: a link on the way to the leaf, and nearly always
    /// that to the leaf. The caller is pinned, and checks what the link leads to. `None` if the
    /// root is being changed. `all` are all words of the pool.
    #[inline(always)]
    pub fn seek<D: Domain>(&self, all: Words<'_, D>, number: u64) -> Option<Link> {
        // Acquire: as in `Pmwcas::read`.
        let root = all.get(word_index(self.root_off), Ordering::Acquire)?;
        (root & CONTROL_BITS == 0).then(|| descend::<D, L>(all, Link(root), number))
    }

    // A function of its own with few values to keep, because most writes begin with it: within an
    // operation, processors have too few registers for it.
    #[inline(never)]
    fn link_for<D: Domain>(pool: &Pool<D>, root: Link, number: u64) -> Link {
        descend::<D, L>(pool.all_words(), root, number)
    }

    /// The leaf for `key` below the node that `link` names, or this node. It is
    /// [`descend`](Self::descend) written out: there, the closure would be a call.
    #[inline(always)]
    pub fn find_below<D: Domain>(context: Context<'_, D>, link: Link, key: &[u8]) -> Node {
        let found = Node::at(context, link);
        if found.is_leaf() {
            return found;
        }
        let link = Self::link_below(context, link, key);
        let found = Node::at(context, link);
        if found.is_leaf() { found } else { Node::nothing(context, link) }
    }

    #[inline(never)]
    fn link_below<D: Domain>(context: Context<'_, D>, link: Link, key: &[u8]) -> Link {
        let probe = Probe::new(key);
        let mut at = Reached::first(Node::at(context, link), None);
        for _ in 0..MAX_HEIGHT {
            if at.node.is_leaf() {
                break;
            }
            let index = at.search(context, probe);
            at = at.next::<D, L>(context, index, probe.number).reached(context);
        }
        at.node.link
    }

    /// The leaves for at most `GROUP` probes, in order; the further elements are unspecified.
    ///
    /// A descent spends most of its time waiting for memory: for lines of each node, one node after
    /// the other. Here the descents take turns, level by level: the lines that one of them reads
    /// next are prefetched while the others read theirs.
    #[inline(always)]
    pub fn find_leaves<'key, const GROUP: usize, D: Domain>(
        &self,
        context: Context<'_, D>,
        probes: impl Iterator<Item = Probe<'key>> + Clone,
    ) -> [Node; GROUP] {
        let root = self.root(context);
        let mut all = [Reached { node: root, span: Span::ALL, guess: 0 }; GROUP];
        for (at, probe) in all.iter_mut().zip(probes.clone()) {
            *at = Reached::first(root, probe.number);
        }
        let mut next = [Next { link: Link(0), span: Span::ALL, guess: 0 }; GROUP];
        // All leaves have the same depth below one root.
        for _ in 0..MAX_HEIGHT {
            if all.iter().zip(probes.clone()).any(|(at, _)| at.node.is_leaf()) {
                break;
            }
            for ((next, at), probe) in next.iter_mut().zip(&all).zip(probes.clone()) {
                let index = at.search(context, probe);
                *next = at.next::<D, L>(context, index, probe.number);
            }
            for ((at, next), _) in all.iter_mut().zip(&next).zip(probes.clone()) {
                *at = next.reached(context);
            }
        }
        // If a node is left, the tree is damaged.
        for (at, _) in all.iter_mut().zip(probes).filter(|(at, _)| !at.node.is_leaf()) {
            at.node = at.node.too_deep(context);
        }
        all.map(|at| at.node)
    }

    /// The path to the leaf for `probe`.
    #[inline]
    pub fn find_path<D: Domain>(&self, context: Context<'_, D>, probe: Probe<'_>) -> Path {
        let mut steps = [None; MAX_HEIGHT];
        let mut height = 0;
        let leaf = self.descend(context, probe.number, |inner, guess| {
            let child = inner.search(context, probe, Side::Holding, guess);
            steps[height] = Some(Step { inner, child });
            height += 1;
            child
        });
        Path { steps, height, leaf }
    }

    /// The leaf on `side` of `probe` (without a probe: the first or last leaf), and its range.
    // A function of its own, so that the closure is inlined into it.
    #[inline(never)]
    pub fn find_fenced<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        probe: Option<Probe<'_>>,
        side: Side,
    ) -> Fenced<'op> {
        let (mut fence, mut outer, mut parent) = (Fence::default(), Fence::default(), None);
        let number = probe.and_then(|probe| probe.number);
        let leaf = self.descend(context, number, |inner, guess| {
            let child = match (probe, side) {
                (Some(probe), _) => inner.search(context, probe, side, guess),
                (None, Side::Holding) => 0,
                (None, Side::Before) => inner.children() - 1,
            };
            outer = fence;
            fence = outer.of_child(context, inner, child);
            parent = Some(Step { inner, child });
            child
        });
        Fenced { leaf, fence, parent, outer }
    }
}
