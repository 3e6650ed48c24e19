//! Splits: the parent of new leaves, of an inner node, of the root.

use pando_index::{Error, Result};
use pando_pmem::{Domain, mutant};
use pando_pmwcas::{Descriptor, MAX_WORDS, Policy};
use pando_tree::context::Context;
use pando_tree::key::{SLICE_BYTES, shortest_between};

use crate::content::{InnerContent, NewNode};
use crate::descent::{Path, Upper};
use crate::install::{Anchor, Gone, Outcome, Parent, Progress, give, modify};
use crate::layout::Link;
use crate::node::Leaves;

/// Nodes in the place of one, and the separator before each but the first.
pub type Parts<'op, D> = (NewNode<'op, D>, Vec<(&'op [u8], NewNode<'op, D>)>);

/// Nodes besides the first one that may take the place of one. Each takes an entry of the
/// descriptor. The others are: the seal, which is one word; the status of the parent; the status
/// and the child word of the parent's parent; and the first node.
pub const MOST_MORE: usize = MAX_WORDS - 5;

/// About as many bytes as a separator takes in an inner node, with its child.
pub fn separator_bytes(separator: &[u8]) -> u64 {
    separator.len() as u64 + 16
}

impl<L: Leaves> Upper<L> {
    /// The parent of the leaf at the end of `path`, if it has room for more separators, of
    /// `more_bytes` ([`separator_bytes`]); `None` above the root. Otherwise what has happened
    /// instead: the parent was split, or another thread came first. `is_scarce`: split it also if a
    /// full pool has no block for a copy of it.
    ///
    /// # Errors
    ///
    /// The pool is full.
    pub fn parent_with_room<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        path: &Path,
        more_bytes: u64,
        is_scarce: bool,
    ) -> Result<Result<Option<Parent<'op>>, Progress>> {
        let parent = match self.parent(context, path, path.height, path.leaf.link) {
            Ok(parent) => parent,
            Err(Gone) => return Ok(Err(Progress::Raced)),
        };
        if let Some(parent) = &parent
            && (self.is_full(&parent.content, more_bytes)
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
            && self.is_full(&parent.content, separator_bytes(between))
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
            (left, vec![(between, right)]),
            |operation| {
                let status_off = inner.node.status_off();
                operation.add_word(status_off, subject.status.0, subject.status.frozen().0)
            },
        )
    }

    /// Whether an inner node must be split before it takes separators of so many bytes.
    fn is_full(&self, content: &InnerContent<'_>, more_bytes: u64) -> bool {
        content.children.len() >= 4 && content.bytes() + more_bytes > self.inner_bytes
    }

    /// Replaces the node `old` at `level` of `path` by `parts`, at most [`MOST_MORE`] behind the
    /// first one, under a new parent. `seal` adds the word that says that the node has not changed
    /// since it was read.
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
        (first, others): Parts<'op, D>,
        seal: impl FnOnce(&mut Descriptor<'op, 'op, D>) -> pando_pmwcas::Result<()>,
    ) -> Outcome {
        modify(context, Progress::Replaced, |operation| {
            seal(operation)?;
            let Some(mut parent) = parent else {
                // The root splits: a new root above the parts. The old root is freed as the old
                // value of the entry word.
                let mut content = InnerContent { children: vec![first.link], separators: vec![] };
                content.add_children(0, &others);
                let root = content.build(context)?;
                let entry = self.hang(operation, Anchor::Root, old)?;
                give(operation, entry, root);
                let owned = operation.own_block(0, Policy::FreeNewOnFailure)?;
                give(operation, owned, first);
                give_others(operation, others)?;
                return Ok(true);
            };
            parent.content.children[parent.child] = first.link;
            parent.content.add_children(parent.child, &others);
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
            give(operation, owned, first);
            give_others(operation, others)?;
            Ok(true)
        })
    }
}

/// Passes new nodes, whose links are in their new parent, to `operation`.
fn give_others<'op, D: Domain>(
    operation: &mut Descriptor<'_, 'op, D>,
    others: Vec<(&'op [u8], NewNode<'op, D>)>,
) -> pando_pmwcas::Result<()> {
    for (_, node) in others {
        let owned = operation.own_block(0, Policy::FreeNewOnFailure)?;
        give(operation, owned, node);
    }
    Ok(())
}

/// The shortest key above `last` and not above `first`. Keys of eight bytes are not shortened, so
/// that they are searched as numbers.
pub fn separator_between<'key>(last: &[u8], first: &'key [u8]) -> &'key [u8] {
    if first.len() == SLICE_BYTES { first } else { shortest_between(last, first) }
}
