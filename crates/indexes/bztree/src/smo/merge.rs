//! Merges of leaves.
//!
//! A merge needs room for two copies, of the leaf and of its parent, before it frees three blocks.
//! It reserves both before it closes a leaf. If there is no room for the copy of the parent, the
//! parent is split first. If there is no room at all, nothing changes, and the caller gets
//! [`Merging::Later`]. A remove then tries again when it has dropped its guard and blocks can be
//! reused, and after that leaves the merge to a sweep (`sweep.rs`). A merge that other threads have
//! prevented is treated in the same way.

use pando_index::{Error, Result};
use pando_inner::{InnerContent, MOST_RACES, Node, Outcome, Path, Progress};
use pando_pmem::{Domain, mutant};
use pando_tree::context::Context;
use pando_tree::room::{Tries, nothing_to_give};

use crate::build::{Room, Wanted};
use crate::closing::Closing;
use crate::content::Content;
use crate::layout::{HEADER_BYTES, PAIR_BYTES};
use crate::leaf::{Estimate, Leaf};
use crate::meta::Meta;
use crate::node::Probe;
use crate::tree::BzTree;

/// A neighbour for a merge: its index in the parent, and the bytes that both take as one leaf.
pub(super) struct Partner {
    pub(super) index: u64,
    pub(super) merged_bytes: u64,
}

/// The result of an attempt to give back the room that a delete has left in its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what found no room is to be done when there is some"]
pub(crate) enum Merging {
    /// There is nothing more to give back.
    Done,
    /// The pool had no room for the copies, or other threads always changed the tree first.
    Later,
}

/// The most that two leaves may hold to be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The usual size of a leaf, with the usual room for changes.
    Usual,
    /// The size of the larger leaf's block: a full pool may have no larger block, and the merge
    /// frees one.
    Tight,
}

/// Room for changes in a leaf that is built in a full pool: slots for a few deletes.
pub(super) const TIGHT_BYTES: u64 = 32;

/// Records of a bucket of a range leaf that may be due for a merge.
const FEW_BESIDE: u64 = 3;
/// Of so many deletes that leave few records in their bucket, one counts those of the leaf.
const RARELY: u16 = 2;

impl<D: Domain> BzTree<D> {
    /// After a delete: gives back room of the leaf that is no longer needed, if that is worth a
    /// copy.
    #[inline]
    pub(crate) fn merge_underfull(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
        leaf: &Leaf,
    ) -> Merging {
        let small = u64::from(self.options.merge_bytes);
        // Each slot deletes at most one of the sorted records; in place, any number may be deleted.
        let shape = leaf.node.shape();
        let sorted_bytes = leaf.node.header().node_bytes.saturating_sub(shape.sorted_at);
        let is_large = shape.is_uniform() && sorted_bytes >= small + leaf.slots() * shape.stride();
        if is_large && leaf.slot(context, leaf.slots().saturating_sub(1)) == Meta::EMPTY {
            return Merging::Done;
        }
        // A count of the whole leaf is worth it if the bucket is empty, or sometimes if it has few.
        if let (Some(leaf), Some(number)) = (leaf.ranged(context), probe.number) {
            let beside = leaf.count_beside(context, number);
            if beside > FEW_BESIDE || (beside > 0 && !probe.hash.is_multiple_of(RARELY)) {
                return Merging::Done;
            }
        }
        let estimate = leaf.estimate(context);
        if estimate.live_bytes >= small && !leaf.may_be_empty(context, estimate) {
            return Merging::Done;
        }
        let merged =
            context.guard.with_reserve(|| match self.merge_leaf(context, probe, Fit::Usual) {
                Ok(Progress::Merged) => self.upper().shrink(context, probe.upper()),
                other => other,
            });
        Merging::of(merged)
    }

    /// Like [`merge_underfull`](Self::merge_underfull), after it found no room, with reclamations
    /// before it. If it finds no room again, a sweep will do it. The caller holds no guard.
    #[cold]
    pub(crate) fn merge_with_room(&self, probe: Probe<'_>) {
        let merging = self.until_done(Tries::Few, nothing_to_give, |guard| {
            let merged =
                guard.with_reserve(|| self.merge_underfull_again(self.context(guard), probe));
            merged.map(Some)
        });
        if Merging::of(merging) == Merging::Later {
            self.sweep.owe();
        }
    }

    /// Like [`merge_underfull`](Self::merge_underfull), for a leaf whose merge, or the merge of a
    /// node above it, found no room before.
    #[cold]
    pub(super) fn merge_underfull_again(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
    ) -> Outcome {
        // A leaf without a neighbour under its parent gets one when the parent is merged.
        let above = self.upper().shrink(context, probe.upper())?;
        let merged = self.merge_leaf(context, probe, Fit::Usual)?;
        if merged == Progress::Merged {
            let _ = self.upper().shrink(context, probe.upper())?;
        }
        Ok(if merged == Progress::Nothing { above } else { merged })
    }

    /// Merges the leaf of `probe`, and the nodes above it, with a neighbour, even if the leaf is
    /// large, if both fit tightly into one block.
    pub(super) fn merge_tightly(&self, context: Context<'_, D>, probe: Probe<'_>) -> Outcome {
        let merged = self.merge_leaf(context, probe, Fit::Tight)?;
        if merged == Progress::Merged {
            let _ = self.upper().shrink(context, probe.upper())?;
        }
        Ok(merged)
    }

    /// Merges the leaf of `probe` with a neighbour, if one fits; in the usual way only if the leaf
    /// is small.
    #[cold]
    fn merge_leaf(&self, context: Context<'_, D>, probe: Probe<'_>, fit: Fit) -> Outcome {
        let mut path = self.find_path(context, probe);
        let leaf = Leaf::new(path.leaf);
        let small = u64::from(self.options.merge_bytes);
        let Estimate { mut live_bytes, is_closed, .. } = leaf.estimate(context);
        if is_closed {
            // The thread that has closed it replaces it, or opens it again.
            return Ok(Progress::Nothing);
        }
        if live_bytes >= small {
            // The estimate counts updated records twice.
            live_bytes = self.content(context, &leaf).bytes();
        }
        if fit == Fit::Usual && live_bytes >= small && live_bytes > 0 {
            return Ok(Progress::Nothing);
        }
        let partner = self.partner(context, &path, live_bytes, fit);
        let Some(Partner { index, merged_bytes }) = partner else {
            return self.shrink_range(context, &path);
        };
        // Before a leaf is closed: a leaf that was closed in vain has lost a slot.
        if let Err(error) = self.reserve_merge(context, &path, merged_bytes) {
            let parent = path.above_leaf(1).map(|step| InnerContent::read(context, step.inner));
            if !parent.is_some_and(|parent| self.is_too_large(context, &parent)) {
                return Err(error);
            }
            return match self.upper().split_inner(context, &path, path.height - 1)? {
                // Under a smaller parent, which is at most half as large, so this ends.
                Progress::Replaced => self.merge_leaf(context, probe, fit),
                other => Ok(other),
            };
        }
        let (closing, content) = self.close(context, &leaf)?;
        let mut merged = self.merge_leaves(context, &path, closing, &content, index, fit);
        for _ in 0..MOST_RACES {
            if !matches!(merged, Ok(Progress::Raced)) {
                break;
            }
            path = self.find_path(context, probe);
            if path.leaf.link != leaf.node.link {
                // Another thread has replaced it: look at the new one.
                return Ok(Progress::Raced);
            }
            let live_bytes = content.bytes();
            let Some(Partner { index, .. }) = self.partner(context, &path, live_bytes, fit) else {
                break;
            };
            merged = self.merge_leaves(context, &path, closing, &content, index, fit);
        }
        if !matches!(merged, Ok(Progress::Merged)) {
            closing.reopen(context);
        }
        merged
    }

    /// Replaces the leaf at the end of `path` by a smaller one, if it is a range leaf with so few
    /// records that this gives back a quarter of it.
    fn shrink_range(&self, context: Context<'_, D>, path: &Path) -> Outcome {
        let leaf = Leaf::new(path.leaf);
        if leaf.ranged(context).is_none() {
            return Ok(Progress::Nothing);
        }
        let is_smaller = |bytes| bytes <= leaf.node.header().node_bytes / 4 * 3;
        let content = self.content(context, &leaf);
        let bytes = self.range_bytes_of(&content, path.leaf_fence(context));
        let Some(bytes) = bytes.filter(|&bytes| is_smaller(bytes)) else {
            return Ok(Progress::Nothing);
        };
        // A full pool may have larger blocks alone.
        if !is_smaller(context.reserve(bytes)?.bytes()) {
            return Ok(Progress::Nothing);
        }
        let (closing, content) = self.close(context, &leaf)?;
        self.consolidate(context, path, closing, &content, self.room(Wanted::NONE))
    }

    /// Reserves the blocks of a merge at the end of `path`, and returns them: the copy of both
    /// leaves and that of the parent. Returns an error if the pool does not have both.
    fn reserve_merge(&self, context: Context<'_, D>, path: &Path, merged_bytes: u64) -> Result<()> {
        let reserve = |bytes| context.guard.reserve(bytes).map_err(Error::storage);
        let _merged = reserve(merged_bytes)?;
        let _parent = match path.above_leaf(1) {
            // The merged leaf becomes the root.
            Some(parent) if path.height == 1 && parent.inner.children() == 2 => None,
            Some(parent) => Some(reserve(InnerContent::read(context, parent.inner).bytes())?),
            None => None,
        };
        Ok(())
    }

    /// The neighbour with which the leaf at the end of `path` may be merged, the left one first. It
    /// must not be closed, and must have room for `live` bytes.
    pub(super) fn partner(
        &self,
        context: Context<'_, D>,
        path: &Path,
        live: u64,
        fit: Fit,
    ) -> Option<Partner> {
        let parent = path.above_leaf(1)?;
        let is_ranged = Leaf::new(path.leaf).ranged(context).is_some();
        let partner = |index: u64| {
            let node = Node::at(context, parent.inner.child(context, index));
            if !node.is_leaf() {
                return None;
            }
            let neighbour = Leaf::new(node);
            let (most_bytes, free_bytes) = self.limits(fit, [&path.leaf, &node]);
            let other = neighbour.estimate(context);
            let mut merged_bytes = HEADER_BYTES + other.live_bytes + live + free_bytes;
            let mut fits = merged_bytes <= most_bytes && !other.is_closed;
            if is_ranged && neighbour.ranged(context).is_some() {
                let records = (other.live_bytes + live) / PAIR_BYTES;
                fits &= records <= self.most_merged(fit, most_bytes);
                merged_bytes = self.range_bytes(records);
            }
            // An empty leaf can always be merged away, whatever its neighbour is doing.
            (live == 0 || fits).then_some(Partner { index, merged_bytes })
        };
        parent.child.checked_sub(1).and_then(partner).or_else(|| {
            let right = parent.child + 1;
            if right < parent.inner.children() { partner(right) } else { None }
        })
    }

    /// The most records of a merged range leaf.
    fn most_merged(&self, fit: Fit, most_bytes: u64) -> u64 {
        match fit {
            Fit::Usual => self.capacity(),
            Fit::Tight => pando_ranged::capacity(most_bytes),
        }
    }

    /// The most bytes of a merged leaf, and those of its room for changes.
    fn limits(&self, fit: Fit, leaves: [&Node; 2]) -> (u64, u64) {
        let options = &self.options;
        match fit {
            Fit::Usual => (u64::from(options.leaf_bytes), u64::from(options.free_bytes)),
            Fit::Tight => {
                let [leaf, other] = leaves.map(|leaf| leaf.header().node_bytes);
                // Without the dead bits. No larger than writes make a leaf: there may be no blocks
                // for the halves.
                let most_bytes = u64::from(options.leaf_bytes) + u64::from(options.free_bytes);
                ((leaf.max(other) - 16).min(most_bytes), TIGHT_BYTES)
            }
        }
    }

    /// Merges the closed leaf at the end of `path` with the neighbour at index `partner`.
    pub(super) fn merge_leaves(
        &self,
        context: Context<'_, D>,
        path: &Path,
        closing: Closing,
        content: &Content,
        partner: u64,
        fit: Fit,
    ) -> Outcome {
        let upper = self.upper();
        let Ok(Some(mut parent)) = upper.parent(context, path, path.height, path.leaf.link) else {
            return Ok(Progress::Raced);
        };
        let partner = partner as usize;
        let Some(&child) = parent.content.children.get(partner) else {
            return Ok(Progress::Nothing);
        };
        let neighbour = Leaf::new(Node::at(context, child));
        let early = mutant!("merge-loses-neighbour").then(|| self.content(context, &neighbour));
        let (other, others) = self.close(context, &neighbour)?;
        let others = early.unwrap_or(others);
        let left = parent.child.min(partner);
        let fence = || path.fence(context, (left as u64, left as u64 + 1));
        let merged = (|| {
            let (before, behind) = match partner < parent.child {
                true => (&others, content),
                false => (content, &others),
            };
            let (all, _blocks) = before.join(context, behind)?;
            // It may have grown before it was closed. Then the next operation replaces it.
            let (most_bytes, free_bytes) = self.limits(fit, [&path.leaf, &neighbour.node]);
            let bytes = HEADER_BYTES + all.bytes() + free_bytes;
            let is_too_much = match all {
                Content::Numbers(_) => all.len() as u64 > self.most_merged(fit, most_bytes),
                Content::Records(_) => bytes > most_bytes,
            };
            if content.len() > 0 && is_too_much {
                return Ok(Progress::Nothing);
            }
            let room = Room { free_bytes, wanted: Wanted::NONE };
            let leaf_bytes = u64::from(self.options.leaf_bytes).min(match fit {
                Fit::Usual => u64::MAX,
                Fit::Tight => most_bytes,
            });
            let merged = self.build(context, &all, room, fence, leaf_bytes)?;
            parent.content.merge_children(left, merged.link);
            let old = [path.leaf.link, neighbour.node.link];
            upper.install_merge(context, (path, path.height), parent, merged, old, |operation| {
                closing.seal(operation)?;
                other.seal(operation)
            })
        })();
        if !matches!(merged, Ok(Progress::Merged)) {
            other.reopen(context);
        }
        merged
    }
}

impl Merging {
    fn of(outcome: Outcome) -> Self {
        match outcome {
            Ok(Progress::Merged | Progress::Replaced | Progress::Nothing) => Self::Done,
            Ok(Progress::Raced) | Err(_) => Self::Later,
        }
    }
}
