//! Merges: the parent of a leaf that takes the place of two, of inner nodes, and of the root with
//! its only child.

use pando_index::Error;
use pando_pmem::Domain;
use pando_pmwcas::{Descriptor, Policy};
use pando_tree::context::Context;

use crate::content::NewNode;
use crate::descent::{Path, Step, Upper};
use crate::install::{Anchor, Outcome, Parent, Progress, give, modify};
use crate::layout::Link;
use crate::node::{Inner, Leaves, Node, Probe};

/// How often a merge starts again when other threads change the tree. Each time another thread has
/// succeeded.
pub const MOST_RACES: usize = 8;

impl<L: Leaves> Upper<L> {
    /// Replaces the two nodes `old` at `level` of `path` by `merged`, which is already a child in
    /// the content of `parent`; as the root if it would be the root's only child. `seal` adds the
    /// words that say that the nodes have not changed since they were read.
    ///
    /// # Errors
    ///
    /// The pool is full.
    pub fn install_merge<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        (path, level): (&Path, usize),
        parent: Parent<'op>,
        merged: NewNode<'op, D>,
        old: [Link; 2],
        seal: impl FnOnce(&mut Descriptor<'op, 'op, D>) -> pando_pmwcas::Result<()>,
    ) -> Outcome {
        modify(context, Progress::Merged, |operation| {
            seal(operation)?;
            let parent_off = parent.inner.node.link;
            let Some(anchor) = self.anchor(context, path, level - 1, parent_off) else {
                return Ok(false);
            };
            let status_off = parent.inner.node.status_off();
            operation.add_word(status_off, parent.status.0, parent.status.frozen().0)?;
            if matches!(anchor, Anchor::Root) && parent.content.children.len() == 1 {
                let entry = self.hang(operation, Anchor::Root, parent_off)?;
                give(operation, entry, merged);
                operation.own_block(old[0].0, Policy::FreeOldOnSuccess)?;
            } else {
                let block = parent.content.build(context)?;
                let entry = self.hang(operation, anchor, parent_off)?;
                give(operation, entry, block);
                let owned = operation.own_block(old[0].0, Policy::FreeOne)?;
                give(operation, owned, merged);
            }
            operation.own_block(old[1].0, Policy::FreeOldOnSuccess)?;
            Ok(true)
        })
    }

    /// Merges the inner nodes on the path to `probe` that have become small, from below. Returns
    /// whether any was merged.
    ///
    /// # Errors
    ///
    /// The pool is full.
    pub fn shrink<D: Domain>(&self, context: Context<'_, D>, probe: Probe<'_>) -> Outcome {
        let (mut above, mut races, mut progress) = (1, 0, Progress::Nothing);
        loop {
            let path = self.find_path(context, probe);
            if above > path.height {
                return Ok(progress);
            }
            match self.shrink_inner(context, &path, path.height - above)? {
                // The node below may have a neighbour now.
                Progress::Merged => (above, progress) = (1, Progress::Merged),
                Progress::Raced if races == MOST_RACES => return Ok(Progress::Raced),
                Progress::Raced => races += 1,
                Progress::Replaced | Progress::Nothing => above += 1,
            }
        }
    }

    fn shrink_inner<D: Domain>(
        &self,
        context: Context<'_, D>,
        path: &Path,
        level: usize,
    ) -> Outcome {
        let subject = match Parent::to_replace(context, path, level) {
            Ok(subject) => subject,
            Err(progress) => return Ok(progress),
        };
        let lone = subject.content.children.len() == 1;
        if level == 0 {
            return if lone {
                self.collapse_root(context, &subject)
            } else {
                Ok(Progress::Nothing)
            };
        }
        if !lone && subject.content.bytes() >= self.inner_bytes / 4 {
            return Ok(Progress::Nothing);
        }
        let link = subject.inner.node.link;
        let Ok(Some(mut parent)) = self.parent(context, path, level, link) else {
            return Ok(Progress::Raced);
        };
        let count = parent.content.children.len();
        let neighbours = [parent.child.checked_sub(1), Some(parent.child + 1)];
        for partner in neighbours.into_iter().flatten().filter(|&index| index < count) {
            let inner = Inner { node: Node::at(context, parent.content.children[partner]) };
            if inner.node.is_leaf() {
                continue;
            }
            let other = Parent::read(context, Step { inner, child: 0 });
            let bytes = other.content.bytes() + subject.content.bytes();
            let fits = bytes <= self.inner_bytes / 4 * 3;
            if other.status.is_frozen() || !(fits || lone) {
                continue;
            }
            let left = parent.child.min(partner);
            let between = parent.content.separators[left];
            let statuses = [(inner, other.status), (subject.inner, subject.status)];
            let joined = if partner < parent.child {
                other.content.join(between, subject.content)
            } else {
                subject.content.join(between, other.content)
            };
            let merged = joined.build(context).map_err(Error::storage)?;
            parent.content.merge_children(left, merged.link);
            let old = [link, inner.node.link];
            return self.install_merge(context, (path, level), parent, merged, old, |operation| {
                for (inner, status) in statuses {
                    operation.add_word(inner.node.status_off(), status.0, status.frozen().0)?;
                }
                Ok(())
            });
        }
        Ok(Progress::Nothing)
    }

    /// Makes the root's only child the root.
    fn collapse_root<D: Domain>(&self, context: Context<'_, D>, root: &Parent<'_>) -> Outcome {
        let link = root.inner.node.link;
        modify(context, Progress::Merged, |operation| {
            let status_off = root.inner.node.status_off();
            operation.add_word(status_off, root.status.0, root.status.frozen().0)?;
            operation.add_word(self.root_off, link.0, root.content.children[0].0)?;
            operation.own_block(link.0, Policy::FreeOldOnSuccess)?;
            Ok(true)
        })
    }
}
