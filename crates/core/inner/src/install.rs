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

use crate::content::{InnerContent, NewNode};
use crate::descent::{Path, Step, Upper};
use crate::layout::{Link, Status};
use crate::node::{Inner, Leaves};

/// Where a node is installed: the word that names it, and the status that must not change.
#[derive(Clone, Copy)]
pub enum Anchor {
    /// The entry word, of the root.
    Root,
    /// A word of an inner node.
    Child {
        /// The inner node.
        inner: Inner,
        /// The index of the child.
        child: u64,
        /// The status.
        status: Status,
    },
}

/// An inner node that is to be replaced: its status before it was read, and its content.
pub struct Parent<'op> {
    /// The node.
    pub inner: Inner,
    /// Its status before it was read.
    pub status: Status,
    /// Its content.
    pub content: InnerContent<'op>,
    /// The child that is to be changed.
    pub child: usize,
}

/// How an attempt at a modification ended, if the pool had room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a caller that takes a race or a replacement for a merge comes back for ever"]
pub enum Progress {
    /// Two nodes became one, or the root's only child became the root.
    Merged,
    /// A node was replaced by one or more, with its records and maybe others.
    Replaced,
    /// Another thread has changed the tree: look again.
    Raced,
    /// There was nothing to do.
    Nothing,
}

/// An error says that the pool had no room; the tree is unchanged.
pub type Outcome = Result<Progress>;

/// The tree changed below the path.
pub struct Gone;

impl<'op> Parent<'op> {
    /// Reads an inner node, status first: the copy is exact if the status is still the same at
    /// installation.
    pub fn read<D: Domain>(context: Context<'op, D>, step: Step) -> Self {
        let status = step.inner.status(context);
        let content = InnerContent::read(context, step.inner);
        Self { inner: step.inner, status, content, child: step.child as usize }
    }

    /// The same for the node at `level` of `path`, unless it was replaced, or there is none.
    pub(crate) fn to_replace<D: Domain>(
        context: Context<'op, D>,
        path: &Path,
        level: usize,
    ) -> Result<Self, Progress> {
        let subject = Self::read(context, path.at(level).ok_or(Progress::Nothing)?);
        if subject.status.is_frozen() { Err(Progress::Raced) } else { Ok(subject) }
    }
}

impl<L: Leaves> Upper<L> {
    /// The parent of the node `link` at `level` of `path`; `None` if the node is the root.
    pub fn parent<'op, D: Domain>(
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
        let parent = Parent::read(context, step);
        let holds = parent.content.children.get(parent.child) == Some(&link);
        if holds && !parent.status.is_frozen() { Ok(Some(parent)) } else { Err(Gone) }
    }

    /// Where the node `link` at `level` of `path` is installed now; `None` if it is not where the
    /// path says.
    pub fn anchor<D: Domain>(
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

    /// Replaces the leaf at the end of `path` by `copy`. `seal` adds the words that say that the
    /// leaf has not changed since it was read.
    ///
    /// # Errors
    ///
    /// The pool is full.
    pub fn install_copy<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        path: &Path,
        anchor: Anchor,
        copy: NewNode<'op, D>,
        seal: impl FnOnce(&mut Descriptor<'op, 'op, D>) -> pando_pmwcas::Result<()>,
    ) -> Outcome {
        modify(context, Progress::Replaced, |operation| {
            seal(operation)?;
            let entry = self.hang(operation, anchor, path.leaf.link)?;
            give(operation, entry, copy);
            Ok(true)
        })
    }

    /// Adds to `operation` the replacement of the node `old`; [`give`] adds the new node. At the
    /// end, the one of the two nodes that is not installed is freed.
    pub(crate) fn hang<D: Domain>(
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
}

/// Passes a new node to `operation` as the new value of `entry`.
pub(crate) fn give<'op, D: Domain>(
    operation: &mut Descriptor<'_, 'op, D>,
    entry: pando_pmwcas::Entry,
    node: NewNode<'op, D>,
) {
    operation.activate_with_hint(entry, node.block, node.link.hint_bits());
}

/// Runs the PMwCAS that `prepare` fills; returns `progress` if it succeeds.
pub(crate) fn modify<'op, D: Domain>(
    context: Context<'op, D>,
    progress: Progress,
    prepare: impl FnOnce(&mut Descriptor<'op, 'op, D>) -> pando_pmwcas::Result<bool>,
) -> Outcome {
    Ok(if context.publish(prepare)? { progress } else { Progress::Raced })
}
