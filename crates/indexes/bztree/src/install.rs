//! The installation of new nodes in place of old ones: the word that names a node, and the
//! operation that changes this word.
//!
//! An inner node is read *status first*. A change of one of its children raises the version in its
//! status, and its replacement freezes it, in the same PMwCAS. So the copy is exact if the status
//! is still the same at installation, and every installation has the status among its words.

use pando_index::Result;
use pando_pmem::{Domain, mutant};
use pando_pmwcas::{Descriptor, Policy};
use pando_tree::context::Context;

use crate::build::{InnerContent, NewNode};
use crate::layout::{InnerStatus, Link};
use crate::node::Inner;
use crate::tree::{BzTree, Path, Step};

/// Where a node is installed: the word that names it, and the status that must not change.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Root,
    Child { inner: Inner, child: u64, status: InnerStatus },
}

/// An inner node that is to be replaced: its status before it was read, and its content.
pub(crate) struct Parent<'op> {
    pub inner: Inner,
    pub status: InnerStatus,
    pub content: InnerContent<'op>,
    /// The child that is to be changed.
    pub child: usize,
}

/// How an attempt at a modification ended, if the pool had room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a caller that takes a race or a replacement for a merge comes back for ever"]
pub(crate) enum Progress {
    /// Two nodes became one, or the root's only child became the root.
    Merged,
    /// A node was replaced by one or two with the same records.
    Replaced,
    /// Another thread has changed the tree: look again.
    Raced,
    /// There was nothing to do.
    Nothing,
}

/// An error says that the pool had no room; the tree is unchanged.
pub(crate) type Outcome = Result<Progress>;

/// The tree changed below the path.
pub(crate) struct Gone;

impl<D: Domain> BzTree<D> {
    /// Reads an inner node, status first: the copy is exact if the status is still the same at
    /// installation.
    pub(crate) fn read_parent<'op>(context: Context<'op, D>, step: Step) -> Parent<'op> {
        let status = step.inner.status(context);
        let content = InnerContent::read(context, step.inner);
        Parent { inner: step.inner, status, content, child: step.child as usize }
    }

    /// The parent of the node `link` at `level` of `path`; `None` if the node is the root.
    pub(crate) fn parent<'op>(
        &self,
        context: Context<'op, D>,
        path: &Path,
        level: usize,
        link: Link,
    ) -> Result<Option<Parent<'op>>, Gone> {
        let Some(above) = level.checked_sub(1) else {
            return if Link::at(context, self.root_off) == link { Ok(None) } else { Err(Gone) };
        };
        let step = path.at(above).ok_or(Gone)?;
        let parent = Self::read_parent(context, step);
        let holds = parent.content.children.get(parent.child) == Some(&link);
        if holds && !parent.status.is_frozen() { Ok(Some(parent)) } else { Err(Gone) }
    }

    /// Where the node `link` at `level` of `path` is installed now; `None` if it is not where the
    /// path says.
    pub(crate) fn anchor(
        &self,
        context: Context<'_, D>,
        path: &Path,
        level: usize,
        link: Link,
    ) -> Option<Anchor> {
        let Some(above) = level.checked_sub(1) else {
            return (Link::at(context, self.root_off) == link).then_some(Anchor::Root);
        };
        let Step { inner, child } = path.at(above)?;
        let status = inner.status(context);
        let holds = inner.child(context, child) == link;
        (holds && !status.is_frozen()).then_some(Anchor::Child { inner, child, status })
    }

    /// Adds to `operation` the replacement of the node `old`; `activate` adds the new node. At the
    /// end, the one of the two nodes that is not installed is freed.
    pub(crate) fn hang(
        &self,
        operation: &mut Descriptor<'_, '_, D>,
        anchor: Anchor,
        old: Link,
    ) -> pando_pmwcas::Result<pando_pmwcas::Entry> {
        match anchor {
            Anchor::Root => operation.reserve_entry(self.root_off, old.0, Policy::FreeOne),
            Anchor::Child { inner, child, status } => {
                let status_off = inner.node.status_off();
                let raised = if mutant!("lost-child-version") { status } else { status.next() };
                operation.add_word(status_off, status.0, raised.0)?;
                operation.reserve_entry(inner.child_off(child), old.0, Policy::FreeOne)
            }
        }
    }

    /// Passes a new node to `operation` as the new value of `entry`.
    pub(crate) fn give<'op>(
        operation: &mut Descriptor<'_, 'op, D>,
        entry: pando_pmwcas::Entry,
        node: NewNode<'op, D>,
    ) {
        operation.activate_with_hint(entry, node.block, node.link.hint_bits());
    }

    /// Runs the PMwCAS that `prepare` fills; returns `progress` if it succeeds.
    pub(crate) fn modify<'op>(
        context: Context<'op, D>,
        progress: Progress,
        prepare: impl FnOnce(&mut Descriptor<'op, 'op, D>) -> pando_pmwcas::Result<bool>,
    ) -> Outcome {
        Ok(if context.publish(prepare)? { progress } else { Progress::Raced })
    }
}
