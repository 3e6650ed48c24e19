//! Changes of inner nodes (paper 4.3).
//!
//! Inner nodes are hints that are kept up to date. A replaced leaf names its replacement. So an
//! operation that finds a replaced leaf still reaches the right one, and updates the inner nodes on
//! its way. The first operation that does so does it for all.
//!
//! # Protocol
//!
//! If one child is replaced by one other, that is one CAS of its slot. A change of the keys
//! replaces the node:
//!
//! | step | helper | what other threads see |
//! | --- | --- | --- |
//! | freeze all slots: by one hardware transaction, or one by one | any thread | no CAS of them succeeds any more |
//! | copy, with the change: one node, or two if it is full, or none if its last child was removed | | the old node, and all children |
//! | replace the node in its parent by the same rules, or in the root | | the old node, or the new |
//! | retire the old node | | |
//!
//! The deciding word is a slot: that of the lowest node in which only one child is replaced, or the
//! root. A thread that stops after it has frozen a node delays no other thread: a thread that needs
//! to change that node makes its own copy, and the slot above decides which copy is used. For the
//! same reason freezing slot by slot is as good as the transaction, which only saves a CAS for each
//! slot. (The paper changes nodes in place within transactions, and does not say what happens on
//! processors that never commit one.)
//!
//! If the root has one child left, it is frozen like any other node, and replaced by its child: the
//! tree is one level lower. (Its keys never change, so it never gets a second child.)
//!
//! If the first child of a node is dropped, the range of its leaf goes to the leaf before it, which
//! is below another node. The separator to the left of the node rises in the same step. It is in
//! the parent, which is copied too, or in a node farther up.

use pando_pmem::{Domain, Guard, mutant};
use pando_tree::key::{Probe, Side};

use crate::separator::Separator;
use crate::tree::NbTree;
use crate::volatile::inner::Parts;
use crate::volatile::node::{InnerRef, Kind, LeafRef, Node};
use crate::volatile::nodes::Inner;

/// The replacement of a child.
#[derive(Clone, Debug)]
enum Edit<'guard> {
    /// One node; with the separator to its left, if that rises.
    One(Node<'guard>, Option<Separator>),
    /// Two nodes, and the separator between them; with the one to their left, if that rises.
    Two(Node<'guard>, Separator, Node<'guard>, Option<Separator>),
    /// No node: the left neighbour gets its range.
    None,
}

impl<D: Domain> NbTree<D> {
    /// Puts the replacement of `leaf` into the inner nodes, unless it is there.
    pub(crate) fn install(&self, guard: &Guard<'_, D>, leaf: LeafRef<'_>) {
        let Some(replacement) = leaf.replaced_by(guard) else { return };
        let edit = match (replacement.left(guard), replacement.right(guard)) {
            (Some(left), Some(right)) => {
                Edit::Two(left.node(), right.low.clone(), right.node(), None)
            }
            (Some(left), None) => Edit::One(left.node(), None),
            _ => Edit::None,
        };
        let mut room = [0; 8];
        let probe = Probe::new(leaf.low.bytes(&mut room));
        if self.change(guard, &probe, leaf.node(), 0, &edit) {
            // SAFETY: this thread has just put the replacement in its place.
            unsafe { self.layers.root.retired.retire(guard, leaf.node()) };
        }
    }

    /// Applies `edit` to `target`, which is at `level` on the path to `probe`, if it is still
    /// there. Returns whether this thread did it.
    fn change(
        &self,
        guard: &Guard<'_, D>,
        probe: &Probe<'_>,
        target: Node<'_>,
        level: u32,
        edit: &Edit<'_>,
    ) -> bool {
        loop {
            let root = self.layers.root.slot();
            let mut node = root.load(guard);
            let mut parent = None;
            while node != target {
                let Kind::Inner(inner) = node.kind() else { return false };
                if inner.level <= level {
                    return false;
                }
                let index = inner.index(probe, Side::Holding);
                parent = Some((inner, index));
                node = inner.slot(index).load(guard);
            }
            let done = match parent {
                None => self.change_root(target, level, edit),
                Some((inner, index)) => match edit {
                    Edit::One(one, None) if inner.slot(index).replace::<D>(target, *one) => true,
                    _ => self.change_copied(guard, probe, inner, target, edit),
                },
            };
            if done {
                return true;
            }
        }
    }

    /// The edit of the root; false if the root has changed.
    fn change_root(&self, target: Node<'_>, level: u32, edit: &Edit<'_>) -> bool {
        let root = self.layers.root.slot();
        match edit {
            Edit::One(one, _) => root.replace::<D>(target, *one),
            Edit::Two(left, separator, right, _) => {
                let children = [*left, *right];
                let separators = std::iter::once(separator.clone()).collect();
                let inner = Inner::new(level + 1, &children, separators);
                let new = Node::of_inner(inner);
                let done = root.replace::<D>(target, new);
                if !done {
                    // SAFETY: made above, and no slot holds it: the replacement failed.
                    unsafe { new.discard() }
                }
                done
            }
            // The first leaf is never dropped, so the root has a child.
            Edit::None => true,
        }
    }

    /// Replaces `inner` by a copy with the edit; returns whether this thread did it.
    fn change_copied(
        &self,
        guard: &Guard<'_, D>,
        probe: &Probe<'_>,
        inner: InnerRef<'_>,
        target: Node<'_>,
        edit: &Edit<'_>,
    ) -> bool {
        if !mutant!("nbtree-unfrozen-inner") {
            inner.freeze::<D>();
        }
        let mut parts = inner.parts(guard);
        // It may have been replaced before the freeze. Then the copy only makes the node changeable
        // again.
        let at = parts.children.iter().position(|&child| child == target);
        let raised = at.and_then(|at| apply(&mut parts, at, edit));
        let (level, old) = (inner.level, inner.node());
        let most = self.options.inner_children as usize;
        let above = if parts.children.is_empty() {
            Edit::None
        } else if parts.children.len() <= most {
            let new = Inner::new(level, &parts.children, parts.separators);
            Edit::One(self.layers.root.retired.inner(new), raised)
        } else {
            let half = parts.children.len() / 2;
            let (left, right) = parts.children.split_at(half);
            let (of_left, middle, of_right) = parts.separators.split_at(half - 1);
            let left = self.layers.root.retired.inner(Inner::new(level, left, of_left));
            let right = self.layers.root.retired.inner(Inner::new(level, right, of_right));
            Edit::Two(left, middle, right, raised)
        };
        if self.change(guard, probe, old, level, &above) {
            // SAFETY: this thread has just put the copy in its place.
            unsafe { self.layers.root.retired.retire(guard, old) };
            self.lower_root(guard);
            return at.is_some();
        }
        let (first, second) = match above {
            Edit::One(new, _) => (Some(new), None),
            Edit::Two(left, _, right, _) => (Some(left), Some(right)),
            Edit::None => (None, None),
        };
        for new in [first, second].into_iter().flatten() {
            // SAFETY: made above, and no slot holds it: the change failed. If a copy of the node
            // above held it, that copy was freed before any other thread saw it.
            unsafe { new.discard() }
        }
        false
    }
}

impl<D: Domain> NbTree<D> {
    /// Makes the root's only child the root, as long as it is the only one.
    fn lower_root(&self, guard: &Guard<'_, D>) {
        let root = self.layers.root.slot();
        loop {
            let node = root.load(guard);
            let Kind::Inner(inner) = node.kind() else { return };
            if inner.len() > 1 {
                return;
            }
            // After this, its child must not be replaced in it.
            inner.freeze::<D>();
            if root.replace::<D>(node, inner.slot(0).load(guard)) {
                // SAFETY: this thread has just put the child in its place.
                unsafe { self.layers.root.retired.retire(guard, node) };
            }
        }
    }
}

/// Applies the edit to the child at `at`; returns the separator to the left of all children, if it
/// rises.
fn apply<'guard>(parts: &mut Parts<'guard>, at: usize, edit: &Edit<'guard>) -> Option<Separator> {
    let mut raised = None;
    let mut raise = |parts: &mut Parts<'_>, low: &Option<Separator>| match (low, at.checked_sub(1))
    {
        (Some(low), Some(left)) => {
            drop(parts.separators.remove(left));
            parts.separators.insert(left, low.clone());
        }
        (Some(low), None) => raised = Some(low.clone()),
        (None, _) => {}
    };
    match edit {
        Edit::One(one, low) => {
            parts.children[at] = *one;
            raise(parts, low);
        }
        Edit::Two(left, separator, right, low) => {
            parts.children[at] = *left;
            parts.children.insert(at + 1, *right);
            parts.separators.insert(at, separator.clone());
            raise(parts, low);
        }
        Edit::None => {
            parts.children.remove(at);
            if at > 0 {
                parts.separators.remove(at - 1);
            } else if parts.separators.len() > 0 {
                let low = parts.separators.remove(0);
                raised = if mutant!("nbtree-separator-stays") { None } else { Some(low) };
            }
        }
    }
    raised
}
