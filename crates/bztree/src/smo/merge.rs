//! Merges: of a leaf or an inner node with a neighbour, and of the root with its only child.

use pando_index::Error;
use pando_pmem::Domain;
use pando_pmwcas::{Descriptor, Policy};
use pando_tree::checked::sound;

use crate::build::{self, Extent, NewNode, Wanted};
use crate::candidate::LiveRecord;
use crate::claim::Closing;
use crate::install::{Anchor, Outcome, Parent, Progress, Unprepared};
use crate::layout::{HEADER_BYTES, Link};
use crate::leaf::{Estimate, Leaf};
use crate::meta::Meta;
use crate::node::{Context, Inner, Probe};
use crate::tree::{BzTree, Path, Step};

/// A neighbour to be merged with: its index in the parent, and what both would take as one.
pub(super) struct Partner {
    pub(super) index: u64,
    pub(super) merged_bytes: u64,
}

impl<D: Domain> BzTree<D> {
    /// After a delete: gives back what the leaf no longer needs, if it is worth a copy. Whatever
    /// fails here is no failure of the delete.
    #[inline]
    pub(crate) fn tidy(&self, context: Context<'_, '_, D>, probe: Probe<'_>, leaf: &Leaf) {
        let small = u64::from(self.options().merge_bytes);
        // Each slot deletes at most one of the sorted records; in place, any number may be deleted.
        let shape = leaf.node.shape;
        let sorted_bytes = leaf.node.header.node_bytes.saturating_sub(shape.sorted_at);
        let is_large = shape.is_uniform() && sorted_bytes >= small + leaf.slots() * shape.stride();
        if is_large && leaf.slot(context, leaf.slots().saturating_sub(1)) == Meta::EMPTY {
            return;
        }
        if leaf.estimate(context).live_bytes < small {
            context.guard.relieve(|| self.tidy_leaf(context, probe));
        }
    }

    #[cold]
    fn tidy_leaf(&self, context: Context<'_, '_, D>, probe: Probe<'_>) {
        let path = self.find_path(context, probe);
        let leaf = Leaf::new(path.leaf);
        let Estimate { live_bytes, is_closed } = leaf.estimate(context);
        if is_closed || live_bytes >= u64::from(self.options().merge_bytes) {
            return;
        }
        let Some(Partner { merged_bytes, .. }) = self.partner(context, &path, live_bytes) else {
            return;
        };
        // Before anything is closed: a leaf that was closed for nothing has lost a slot.
        if context.guard.reserve(merged_bytes).is_err() {
            return;
        }
        if matches!(self.rebuild(context, &path, Wanted::NONE), Ok(Progress::Changed)) {
            self.shrink(context, probe);
        }
    }

    /// The neighbour with which the leaf at the end of `path` may be merged. The left one first; it
    /// must not be closed, and must have room for `live` bytes.
    pub(super) fn partner(
        &self,
        context: Context<'_, '_, D>,
        path: &Path,
        live: u64,
    ) -> Option<Partner> {
        let parent = path.above_leaf(1)?;
        let options = self.options();
        let partner = |index: u64| {
            let node = context.node(parent.inner.child(context, index));
            if !node.is_leaf() {
                return None;
            }
            let neighbour = Leaf::new(node).estimate(context);
            let both = neighbour.live_bytes + live;
            let merged_bytes = HEADER_BYTES + both + u64::from(options.free_bytes);
            // An empty leaf can always go, whatever its neighbour is in the middle of.
            let fits = merged_bytes <= u64::from(options.leaf_bytes) && !neighbour.is_closed;
            (live == 0 || fits).then_some(Partner { index, merged_bytes })
        };
        parent.child.checked_sub(1).and_then(partner).or_else(|| {
            let right = parent.child + 1;
            if right < parent.inner.children() { partner(right) } else { None }
        })
    }

    /// Merges the closed leaf at the end of `path` with the neighbour at index `partner`.
    pub(super) fn merge_leaves(
        &self,
        context: Context<'_, '_, D>,
        path: &Path,
        closing: Closing,
        records: &[LiveRecord],
        partner: u64,
    ) -> Outcome {
        let Ok(Some(mut parent)) = self.parent(context, path, path.height, path.leaf.link) else {
            return Ok(Progress::Nothing);
        };
        let partner = partner as usize;
        let Some(&child) = parent.content.children.get(partner) else {
            return Ok(Progress::Nothing);
        };
        let neighbour = Leaf::new(context.node(child));
        let other = neighbour.close(context);
        let others = neighbour.live_records(context);
        sound(context.guard).inspect_err(|_| other.reopen(context))?;
        let all: Vec<_> = if partner < parent.child {
            others.iter().chain(records).copied().collect()
        } else {
            records.iter().chain(&others).copied().collect()
        };
        // It may have grown until it was closed; then it is left to the next that comes by.
        let free = u64::from(self.options().free_bytes);
        let bytes = HEADER_BYTES + Extent::of(&all).bytes() + free;
        if !records.is_empty() && bytes > u64::from(self.options().leaf_bytes) {
            other.reopen(context);
            return Ok(Progress::Nothing);
        }
        let merged = build::leaf(context, &all, self.room(Wanted::NONE))
            .inspect_err(|_| other.reopen(context))
            .map_err(Error::storage)?;
        let left = parent.child.min(partner);
        parent.content.merge_children(left, merged.link);
        self.install_merge(
            context,
            path,
            path.height,
            parent,
            merged,
            [path.leaf.link, neighbour.node.link],
            |operation| {
                closing.seal(operation)?;
                other.seal(operation)
            },
        )
        .inspect_err(|_| other.reopen(context))
    }

    /// Replaces two nodes at `level` by one, under a new parent, or as the root if it would be the
    /// root's only child.
    #[expect(clippy::too_many_arguments, reason = "one installation for leaves and inner nodes")]
    fn install_merge<'op, 'pool>(
        &self,
        context: Context<'op, 'pool, D>,
        path: &Path,
        level: usize,
        parent: Parent<'op>,
        merged: NewNode<'op, 'pool, D>,
        old: [Link; 2],
        seal: impl FnOnce(&mut Descriptor<'op, 'pool, D>) -> pando_pmwcas::Result<()>,
    ) -> Outcome {
        let mut operation = context.pmwcas.allocate(context.guard).map_err(Error::storage)?;
        let prepared = (|| {
            seal(&mut operation)?;
            let parent_off = parent.inner.node.link;
            let Some(anchor) = self.anchor(context, path, level - 1, parent_off) else {
                return Err(Unprepared::Gone);
            };
            let status_off = parent.inner.node.status_off();
            operation.add_word(status_off, parent.status.0, parent.status.frozen().0)?;
            if matches!(anchor, Anchor::Root) && parent.content.children.len() == 1 {
                let entry = self.hang(&mut operation, Anchor::Root, parent_off)?;
                Self::give(&mut operation, entry, merged);
                operation.own_block(old[0].0, Policy::FreeOldOnSuccess)?;
            } else {
                let block = parent.content.build(context)?;
                let entry = self.hang(&mut operation, anchor, parent_off)?;
                Self::give(&mut operation, entry, block);
                let owned = operation.own_block(old[0].0, Policy::FreeOne)?;
                Self::give(&mut operation, owned, merged);
            }
            operation.own_block(old[1].0, Policy::FreeOldOnSuccess)?;
            Ok(())
        })();
        Self::run(operation, prepared)
    }

    /// Merges inner nodes on the way to `probe` that have become small, from below.
    fn shrink(&self, context: Context<'_, '_, D>, probe: Probe<'_>) {
        for above in 1.. {
            let path = self.find_path(context, probe);
            if above > path.height {
                return;
            }
            let level = path.height - above;
            match self.shrink_inner(context, &path, level) {
                Ok(Progress::Changed) => {}
                // Lack of room to build the merged node, or a race: it stays as it is.
                Ok(Progress::Nothing) | Err(_) => return,
            }
        }
    }

    fn shrink_inner(&self, context: Context<'_, '_, D>, path: &Path, level: usize) -> Outcome {
        let Some(step) = path.at(level) else { return Ok(Progress::Nothing) };
        let subject = Self::read_parent(context, step);
        if subject.status.is_frozen() {
            return Ok(Progress::Nothing);
        }
        let lone = subject.content.children.len() == 1;
        if level == 0 {
            return if lone {
                self.collapse_root(context, &subject)
            } else {
                Ok(Progress::Nothing)
            };
        }
        if !lone && subject.content.bytes() >= u64::from(self.options().inner_bytes) / 4 {
            return Ok(Progress::Nothing);
        }
        let link = step.inner.node.link;
        let Ok(Some(mut parent)) = self.parent(context, path, level, link) else {
            return Ok(Progress::Nothing);
        };
        let count = parent.content.children.len();
        let neighbours = [parent.child.checked_sub(1), Some(parent.child + 1)];
        for partner in neighbours.into_iter().flatten().filter(|&index| index < count) {
            let inner = Inner { node: context.node(parent.content.children[partner]) };
            if inner.node.is_leaf() {
                continue;
            }
            let other = Self::read_parent(context, Step { inner, child: 0 });
            let bytes = other.content.bytes() + subject.content.bytes();
            let fits = bytes <= u64::from(self.options().inner_bytes) / 4 * 3;
            if other.status.is_frozen() || !(fits || lone) {
                continue;
            }
            let left = parent.child.min(partner);
            let between = parent.content.separators[left];
            let statuses = [(inner, other.status), (step.inner, subject.status)];
            let joined = if partner < parent.child {
                other.content.join(between, subject.content)
            } else {
                subject.content.join(between, other.content)
            };
            let merged = joined.build(context).map_err(Error::storage)?;
            parent.content.merge_children(left, merged.link);
            let old = [link, inner.node.link];
            return self.install_merge(context, path, level, parent, merged, old, |operation| {
                for (inner, status) in statuses {
                    operation.add_word(inner.node.status_off(), status.0, status.frozen().0)?;
                }
                Ok(())
            });
        }
        Ok(Progress::Nothing)
    }

    /// Makes the root's only child the root.
    fn collapse_root(&self, context: Context<'_, '_, D>, root: &Parent<'_>) -> Outcome {
        let link = root.inner.node.link;
        let mut operation = context.pmwcas.allocate(context.guard).map_err(Error::storage)?;
        let prepared = (|| {
            let status_off = root.inner.node.status_off();
            operation.add_word(status_off, root.status.0, root.status.frozen().0)?;
            operation.add_word(self.root_off(), link.0, root.content.children[0].0)?;
            operation.own_block(link.0, Policy::FreeOldOnSuccess)?;
            Ok(())
        })();
        Self::run(operation, prepared)
    }
}
