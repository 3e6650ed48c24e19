//! Splits: the parent of two new leaves, of an inner node, of the root.

use pando_index::{Error, Result};
use pando_pmem::{Domain, mutant};
use pando_pmwcas::{Descriptor, Policy};
use pando_tree::context::Context;
use pando_tree::key::{SLICE_BYTES, shortest_between};

use crate::content::{InnerContent, NewNode};
use crate::descent::{Path, Upper};
use crate::install::{Anchor, Gone, Outcome, Parent, Progress, give, modify};
use crate::layout::Link;
use crate::node::Leaves;

/// The halves of a split and the separator between them.
pub type Halves<'op, D> = (NewNode<'op, D>, &'op [u8], NewNode<'op, D>);

impl<L: Leaves> Upper<L> {
    /// The parent of the leaf at the end of `path`, if it has room for one more separator; `None`
    /// above the root. Otherwise what has happened instead: the parent was split, or another thread
    /// came first. `is_scarce`: split it also if a full pool has no block for a copy of it.
    ///
    /// # Errors
    ///
    /// The pool is full.
    pub fn parent_with_room<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        path: &Path,
        separator: &[u8],
        is_scarce: bool,
    ) -> Result<Result<Option<Parent<'op>>, Progress>> {
        let parent = match self.parent(context, path, path.height, path.leaf.link) {
            Ok(parent) => parent,
            Err(Gone) => return Ok(Err(Progress::Raced)),
        };
        if let Some(parent) = &parent
            && (self.is_full(&parent.content, separator)
                || (is_scarce && self.is_too_large(context, &parent.content)))
        {
            return self.split_inner(context, path, path.height - 1).map(Err);
        }
        Ok(Ok(parent))
    }

    /// Whether a full pool has no block for a copy of an inner node, but may have blocks for its
    /// halves. (Not of a node whose halves would be merged again.)
    pub fn is_too_large<D: Domain>(
        &self,
        context: Context<'_, D>,
        content: &InnerContent<'_>,
    ) -> bool {
        let bytes = content.bytes();
        bytes >= self.inner_bytes / 2 && context.guard.reserve(bytes).is_err()
    }

    /// Splits the inner node at `level` of `path`; if its parent is full, splits the parent
    /// instead.
    ///
    /// # Errors
    ///
    /// The pool is full.
    pub fn split_inner<D: Domain>(
        &self,
        context: Context<'_, D>,
        path: &Path,
        level: usize,
    ) -> Outcome {
        let subject = match Parent::to_replace(context, path, level) {
            Ok(subject) => subject,
            Err(progress) => return Ok(progress),
        };
        let inner = subject.inner;
        if subject.content.children.len() < 2 {
            return Ok(Progress::Nothing);
        }
        let parent = match self.parent(context, path, level, inner.node.link) {
            Ok(parent) => parent,
            Err(Gone) => return Ok(Progress::Raced),
        };
        let (left, between, right) = subject.content.split();
        if let Some(parent) = &parent
            && self.is_full(&parent.content, between)
        {
            return self.split_inner(context, path, level - 1);
        }
        let left = left.build(context).map_err(Error::storage)?;
        let right = right.build(context).map_err(Error::storage)?;
        self.install_split(
            context,
            (path, level),
            inner.node.link,
            parent,
            (left, between, right),
            |operation| {
                let status_off = inner.node.status_off();
                operation.add_word(status_off, subject.status.0, subject.status.frozen().0)
            },
        )
    }

    /// Whether an inner node must be split before it takes another separator.
    fn is_full(&self, content: &InnerContent<'_>, separator: &[u8]) -> bool {
        content.children.len() >= 4
            && content.bytes() + separator.len() as u64 + 16 > self.inner_bytes
    }

    /// Replaces the node `old` at `level` of `path` by two, under a new parent. `seal` adds the
    /// words that say that the node has not changed since it was read.
    ///
    /// # Errors
    ///
    /// The pool is full.
    pub fn install_split<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        (path, level): (&Path, usize),
        old: Link,
        parent: Option<Parent<'op>>,
        halves: Halves<'op, D>,
        seal: impl FnOnce(&mut Descriptor<'op, 'op, D>) -> pando_pmwcas::Result<()>,
    ) -> Outcome {
        let (left, between, right) = halves;
        modify(context, Progress::Replaced, |operation| {
            seal(operation)?;
            let Some(mut parent) = parent else {
                // The root splits: a new root above the halves. The old root is freed as the old
                // value of the entry word.
                let content = InnerContent {
                    children: vec![left.link, right.link],
                    separators: vec![between],
                };
                let root = content.build(context)?;
                let entry = self.hang(operation, Anchor::Root, old)?;
                give(operation, entry, root);
                for half in [left, right] {
                    let owned = operation.own_block(0, Policy::FreeNewOnFailure)?;
                    give(operation, owned, half);
                }
                return Ok(true);
            };
            parent.content.split_child(parent.child, left.link, between, right.link);
            let block = parent.content.build(context)?;
            let Some(anchor) = self.anchor(context, path, level - 1, parent.inner.node.link) else {
                return Ok(false);
            };
            let status_off = parent.inner.node.status_off();
            if !mutant!("parent-not-frozen") {
                operation.add_word(status_off, parent.status.0, parent.status.frozen().0)?;
            }
            let entry = self.hang(operation, anchor, parent.inner.node.link)?;
            give(operation, entry, block);
            let (replaced, policy) = if mutant!("leaked-split-node") {
                (0, Policy::FreeNewOnFailure)
            } else {
                (old.0, Policy::FreeOne)
            };
            let owned = operation.own_block(replaced, policy)?;
            give(operation, owned, left);
            let owned = operation.own_block(0, Policy::FreeNewOnFailure)?;
            give(operation, owned, right);
            Ok(true)
        })
    }
}

/// The shortest key above `last` and not above `first`. Keys of eight bytes are not shortened, so
/// that they are searched as numbers.
pub fn separator_between<'key>(last: &[u8], first: &'key [u8]) -> &'key [u8] {
    if first.len() == SLICE_BYTES { first } else { shortest_between(last, first) }
}
