//! Structure modifications: consolidation, split, merge, growth and collapse of the root (paper
//! 4.3, 5).
//!
//! # Protocol
//!
//! A *leaf* is closed first (`claim.rs`); then its records are final, and whoever comes by may copy
//! them. What replaces it is built from the copy and put in place by one PMwCAS, which takes the
//! word that closed the leaf from *closed* to *replaced*; the first wins, the others look again.
//! A crash between closing and installing leaves a closed leaf, or not even that; the next writer
//! to come by replaces it. If there is no room to replace it, it is opened again, so that a full
//! pool still takes deletes and what fits its leaves.
//!
//! An *inner node* changes in two ways: a child is replaced in place, which raises the version in
//! its status; or the node is replaced, which freezes it. Both take its status as a word of the
//! PMwCAS. So a copy of an inner node is exact if the status is, at installation, what it was
//! before the copy was made. (The paper's status of an inner node has no version; there a child
//! replaced between copy and installation would be lost.) An inner node is never found frozen
//! and still in place: nobody has to help.
//!
//! | modification | words of the PMwCAS | blocks that hang on it |
//! | --- | --- | --- |
//! | consolidate leaf N under P | closing word of N, child of P: N to N', status of P: next version | N or N' |
//! | split leaf N under P, P under G | closing word of N, status of P: frozen, child of G: P to P', status of G: next | P or P', N, N', O |
//! | merge leaves L, N under P | the same, and that of L | P or P', L, N, M |
//! | split inner P under G, G under H | status of P, of G: frozen, child of H: G to G', status of H: next | G or G', P, P', Q |
//! | merge inner P, Q under G | status of P, Q, G: frozen, child of H: G to G', status of H: next | G or G', P, Q, M |
//! | any of these at the root | the entry word instead of child and status | the same |
//!
//! Blocks hang on the operation by its entries' policies, so neither a failure nor a crash leaks
//! one. When the root is left with one child, that child becomes the root in the same PMwCAS.
//!
//! A thread that finds its leaf in need does the modification first (paper 5.1), one step, and
//! starts again from the root; a parent that is too large is split before its child.

use pando_index::Error;
use pando_pmem::Domain;
use pando_pmwcas::{Descriptor, Policy};

use crate::build::{self, Extent, InnerContent, NewNode, Room, Wanted};
use crate::candidate::LiveRecord;
use crate::claim::Closing;
use crate::install::{Anchor, Gone, Outcome, Parent, Progress, Unprepared};
use crate::layout::{HEADER_BYTES, Link};
use crate::leaf::{Estimate, Leaf};
use crate::meta::Meta;
use crate::node::{Context, Inner, Probe};
use crate::slices::alike_bytes;
use crate::tree::{BzTree, Path, Step, storage};

impl<D: Domain> BzTree<D> {
    /// Makes room for the `wanted` records in the leaf of `probe`, if there is none. One step; the
    /// caller starts again.
    #[cold]
    pub(crate) fn restructure(
        &self,
        context: Context<'_, '_, D>,
        probe: Probe<'_>,
        wanted: Wanted,
    ) -> Result<(), Error> {
        let path = self.find_path(context, probe);
        let leaf = Leaf::new(path.leaf);
        let look = leaf.look(context, probe, None);
        if look.closing.is_none() {
            if leaf.has_room(&look, wanted.record_bytes) {
                return Ok(());
            }
            // Whether there is room for a copy is asked before the leaf is closed: what a full pool
            // refuses, again and again, should leave no trace in it.
            let live = leaf.estimate(context).live_bytes;
            let least = HEADER_BYTES + self.room(wanted).least_bytes();
            let copies = if self.is_to_split(live) { 2 } else { 1 };
            // What was updated counts twice in the estimate.
            let bytes = (least + live / copies).min(path.leaf.header.node_bytes).max(least);
            let blocks = (0..copies).map(|_| context.guard.reserve(bytes).map_err(storage));
            drop(blocks.collect::<Result<Vec<_>, Error>>()?);
        }
        self.rebuild(context, &path, wanted).map(|_| ())
    }

    /// Replaces the leaf of `probe`, if it is closed, or opens it. That there is no room to replace
    /// it is none of the business of an operation that came by.
    ///
    /// It closes nothing. If it closed the leaf anew that another has opened meanwhile, or a
    /// neighbour for a merge, two operations could keep each other out for ever.
    #[cold]
    pub(crate) fn settle_closed(
        &self,
        context: Context<'_, '_, D>,
        probe: Probe<'_>,
        wanted: Wanted,
    ) {
        let path = self.find_path(context, probe);
        let leaf = Leaf::new(path.leaf);
        let Some(closing) = leaf.look(context, probe, None).closing else { return };
        // Who wants room for a record does not merge.
        let wanted = Wanted { records: wanted.records.max(1), ..wanted };
        if self.replace(context, &path, (&leaf, closing), wanted).is_err() {
            closing.reopen(context);
        }
    }

    /// After a delete: gives back what the leaf no longer needs, if it is worth a copy. Whatever
    /// fails here is no failure of the delete.
    #[inline]
    pub(crate) fn tidy(&self, context: Context<'_, '_, D>, probe: Probe<'_>, leaf: &Leaf) {
        let small = u64::from(self.options().merge_bytes);
        // Each slot deletes at most one of the sorted records; in place, any number may be deleted.
        let shape = leaf.node.shape;
        let sorted_bytes = leaf.node.header.node_bytes - shape.sorted_at;
        let is_large = shape.is_uniform() && sorted_bytes >= small + leaf.slots() * shape.stride();
        if is_large && leaf.slot(context, leaf.slots() - 1) == Meta::EMPTY {
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

    /// One step towards a tree of one leaf, for a tree without records: merges the leaf of
    /// `probe` with a neighbour, or its parent with one.
    pub(crate) fn tidy_empty(
        &self,
        context: Context<'_, '_, D>,
        probe: Probe<'_>,
    ) -> Result<(), Error> {
        let path = self.find_path(context, probe);
        self.rebuild(context, &path, Wanted::NONE)?;
        self.shrink(context, probe);
        Ok(())
    }

    /// Closes the leaf at the end of `path` and replaces it by one, by two, or together with a
    /// neighbour by one, as its content wants. Opens it if there is no room for that.
    fn rebuild(&self, context: Context<'_, '_, D>, path: &Path, wanted: Wanted) -> Outcome {
        let leaf = Leaf::new(path.leaf);
        let closing = leaf.close(context);
        self.replace(context, path, (&leaf, closing), wanted)
            .inspect_err(|_| closing.reopen(context))
    }

    fn replace(
        &self,
        context: Context<'_, '_, D>,
        path: &Path,
        leaf: (&Leaf, Closing),
        wanted: Wanted,
    ) -> Outcome {
        let options = self.options();
        let records = leaf.0.live_records(context);
        let live = Extent::of(&records).bytes();
        // A record that needs more than the usual room gets it, but is no reason to tear the
        // others apart: when it is there, the split finds its place.
        if self.is_to_split(live) && records.len() >= 2 {
            return self.split_leaf(context, path, leaf.1, &records, wanted);
        }
        if (live == 0 || live < u64::from(options.merge_bytes))
            && wanted.records == 0
            && let Some(Partner { index, .. }) = self.partner(context, path, live)
            && self.merge_leaves(context, path, leaf.1, &records, index)? == Progress::Changed
        {
            return Ok(Progress::Changed);
        }
        self.consolidate(context, path, leaf.1, &records, wanted)
    }

    /// Whether a leaf with so many bytes of live records is split.
    fn is_to_split(&self, live: u64) -> bool {
        let options = self.options();
        HEADER_BYTES + live + u64::from(options.free_bytes) > u64::from(options.leaf_bytes)
    }

    fn room(&self, wanted: Wanted) -> Room {
        Room { free_bytes: u64::from(self.options().free_bytes), wanted }
    }

    fn consolidate(
        &self,
        context: Context<'_, '_, D>,
        path: &Path,
        closing: Closing,
        records: &[LiveRecord],
        wanted: Wanted,
    ) -> Outcome {
        let Some(anchor) = self.anchor(context, path, path.height, path.leaf.link) else {
            return Ok(Progress::Nothing);
        };
        let copy = build::leaf(context, records, self.room(wanted)).map_err(storage)?;
        let mut operation = context.pmwcas.allocate(context.guard).map_err(storage)?;
        let prepared = (|| {
            closing.seal(&mut operation)?;
            let entry = self.hang(&mut operation, anchor, path.leaf.link)?;
            Self::give(&mut operation, entry, copy);
            Ok(())
        })();
        Self::run(operation, prepared)
    }

    fn split_leaf(
        &self,
        context: Context<'_, '_, D>,
        path: &Path,
        closing: Closing,
        records: &[LiveRecord],
        wanted: Wanted,
    ) -> Outcome {
        let (left, right) = records.split_at(middle_of(records));
        let (Some(last), Some(first)) = (left.last(), right.first()) else {
            return Ok(Progress::Nothing);
        };
        let separator = separator_between(last.key(context), first.key(context));
        let parent = match self.parent(context, path, path.height, path.leaf.link) {
            Ok(parent) => parent,
            Err(Gone) => return Ok(Progress::Nothing),
        };
        if let Some(parent) = &parent
            && self.is_full(&parent.content, separator)
        {
            return self.split_inner(context, path, path.height - 1);
        }
        let room = self.room(wanted);
        let left = build::leaf(context, left, room).map_err(storage)?;
        let right_block = build::leaf(context, right, room).map_err(storage)?;
        self.install_split(
            context,
            path,
            path.height,
            path.leaf.link,
            parent,
            (left, separator, right_block),
            |operation| closing.seal(operation),
        )
    }

    /// Splits the inner node at `level` of `path`, or first its parent if that is full.
    fn split_inner(&self, context: Context<'_, '_, D>, path: &Path, level: usize) -> Outcome {
        let Some(step) = path.at(level) else { return Ok(Progress::Nothing) };
        let subject = Self::read_parent(context, step);
        if subject.status.is_frozen() || subject.content.children.len() < 2 {
            return Ok(Progress::Nothing);
        }
        let parent = match self.parent(context, path, level, step.inner.node.link) {
            Ok(parent) => parent,
            Err(Gone) => return Ok(Progress::Nothing),
        };
        let (left, between, right) = subject.content.split();
        if let Some(parent) = &parent
            && self.is_full(&parent.content, between)
        {
            return self.split_inner(context, path, level - 1);
        }
        let left = left.build(context).map_err(storage)?;
        let right = right.build(context).map_err(storage)?;
        self.install_split(
            context,
            path,
            level,
            step.inner.node.link,
            parent,
            (left, between, right),
            |operation| {
                let status_off = step.inner.node.status_off();
                operation.add_word(status_off, subject.status.0, subject.status.frozen().0)
            },
        )
    }

    /// Whether an inner node must be split before it takes another separator.
    fn is_full(&self, content: &InnerContent<'_>, separator: &[u8]) -> bool {
        content.children.len() >= 4
            && content.bytes() + separator.len() as u64 + 16 > u64::from(self.options().inner_bytes)
    }

    /// Replaces the node `old` at `level` by two, under a new parent.
    #[expect(clippy::too_many_arguments, reason = "one installation for leaves and inner nodes")]
    fn install_split<'op, 'pool>(
        &self,
        context: Context<'op, 'pool, D>,
        path: &Path,
        level: usize,
        old: Link,
        parent: Option<Parent<'op>>,
        halves: Halves<'op, 'pool, D>,
        seal: impl FnOnce(&mut Descriptor<'op, 'pool, D>) -> pando_pmwcas::Result<()>,
    ) -> Outcome {
        let (left, between, right) = halves;
        let mut operation = context.pmwcas.allocate(context.guard).map_err(storage)?;
        let prepared = (|| {
            seal(&mut operation)?;
            let Some(mut parent) = parent else {
                // The root splits: a new root above the halves. The old root is freed as the old
                // value of the entry word.
                let content = InnerContent {
                    children: vec![left.link, right.link],
                    separators: vec![between],
                };
                let root = content.build(context)?;
                let entry = self.hang(&mut operation, Anchor::Root, old)?;
                Self::give(&mut operation, entry, root);
                for half in [left, right] {
                    let owned = operation.own_block(0, Policy::FreeNewOnFailure)?;
                    Self::give(&mut operation, owned, half);
                }
                return Ok(());
            };
            parent.content.split_child(parent.child, left.link, between, right.link);
            let block = parent.content.build(context)?;
            let Some(anchor) = self.anchor(context, path, level - 1, parent.inner.node.link) else {
                return Err(Unprepared::Gone);
            };
            let status_off = parent.inner.node.status_off();
            operation.add_word(status_off, parent.status.0, parent.status.frozen().0)?;
            let entry = self.hang(&mut operation, anchor, parent.inner.node.link)?;
            Self::give(&mut operation, entry, block);
            let owned = operation.own_block(old.0, Policy::FreeOne)?;
            Self::give(&mut operation, owned, left);
            let owned = operation.own_block(0, Policy::FreeNewOnFailure)?;
            Self::give(&mut operation, owned, right);
            Ok(())
        })();
        Self::run(operation, prepared)
    }

    /// The neighbour with which the leaf at the end of `path` may be merged. The left one first; it
    /// must not be closed, and must have room for `live` bytes.
    fn partner(&self, context: Context<'_, '_, D>, path: &Path, live: u64) -> Option<Partner> {
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
    fn merge_leaves(
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
        let neighbour = Leaf::new(context.node(parent.content.children[partner]));
        let other = neighbour.close(context);
        let others = neighbour.live_records(context);
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
            .map_err(storage)?;
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
        let mut operation = context.pmwcas.allocate(context.guard).map_err(storage)?;
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
            let merged = joined.build(context).map_err(storage)?;
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
        let mut operation = context.pmwcas.allocate(context.guard).map_err(storage)?;
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

/// A neighbour to be merged with: its index in the parent, and what both would take as one.
struct Partner {
    index: u64,
    merged_bytes: u64,
}

/// The halves of a split and the separator between them.
type Halves<'op, 'pool, D> = (NewNode<'op, 'pool, D>, &'op [u8], NewNode<'op, 'pool, D>);

/// The shortest key above `last` and not above `first`. Keys of eight bytes stay as they are, so that
/// they are searched as numbers.
fn separator_between<'key>(last: &[u8], first: &'key [u8]) -> &'key [u8] {
    let shortest = first.get(..=alike_bytes(last, first)).unwrap_or(first);
    if first.len() == 8 { first } else { shortest }
}

/// Where to split, so that both halves have about the same bytes and at least one record.
fn middle_of(records: &[LiveRecord]) -> usize {
    let extent = Extent::of(records);
    let each = extent.metadata_bytes / records.len().max(1) as u64;
    let half = extent.bytes() / 2;
    let mut bytes = 0;
    for (index, record) in records.iter().enumerate() {
        bytes += record.meta.padded_bytes() + each;
        if bytes >= half {
            // The record that crosses the middle goes to the smaller side.
            return (index + 1).clamp(1, records.len() - 1);
        }
    }
    records.len() / 2
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pando_index::RangeIndex;
    use pando_pmem::testing::refusal::{Resource, refuse};
    use pando_pmem::{CreateOptions, Pool, Volatile};
    use pando_pmwcas::Pmwcas;

    use super::*;
    use crate::kind::BzTrees;
    use crate::options::Options;

    fn tree() -> BzTree<Volatile> {
        let options = Options {
            leaf_bytes: 512,
            inner_bytes: 256,
            free_bytes: 128,
            merge_bytes: 128,
            ..Options::default()
        };
        let create = CreateOptions { max_bytes: 8 << 20, ..CreateOptions::default() };
        let pool = Pool::anonymous(&create).expect("memory");
        let pmwcas = Arc::new(Pmwcas::open(pool, &[]).expect("opens"));
        let settings = options.settings().expect("options in range");
        pmwcas.find_or_create_index::<BzTrees>("tree", &settings).expect("the map")
    }

    /// Else two operations in a full pool could close each other's leaf, or the leaf that the other
    /// has just opened, for ever.
    #[test]
    fn who_meets_a_closed_leaf_closes_nothing() {
        let tree = tree();
        let key = |number: u64| number.to_be_bytes();
        let mut count = 0;
        while tree.audit().expect("audits").stat.leaves < 2 {
            tree.insert(&key(count), &[1; 8]).expect("room");
            count += 1;
        }
        let guard = tree.pin().expect("a slot");
        let context = tree.context(&guard);
        let (first, last) = (key(0), key(count - 1));
        let (small, other) = (Probe::new(&first), Probe::new(&last));
        // One record is left of the first leaf, which is not merged for want of room.
        let fence = |number: u64| tree.find_leaf(context, Probe::new(&key(number))).node.off;
        let of_small = (1..count).filter(|&number| fence(number) == fence(0));
        refuse(Resource::Block, 0, u64::MAX, || {
            for number in of_small {
                assert!(tree.remove(&key(number)).expect("removes are not refused"));
            }
        });
        let (leaf, neighbour) = (tree.find_leaf(context, small), tree.find_leaf(context, other));
        assert_ne!(leaf.node.off, neighbour.node.off);
        let path = tree.find_path(context, small);
        let live = leaf.estimate(context).live_bytes;
        assert!(tree.partner(context, &path, live).is_some(), "it could be merged");
        let slots = |leaf: &Leaf| -> Vec<Meta> {
            (0..leaf.slots()).map(|slot| leaf.slot(context, slot)).collect()
        };
        let before = slots(&neighbour);
        assert_eq!(before.last(), Some(&Meta::EMPTY), "the neighbour takes more");
        leaf.close(context);
        let closed = slots(&leaf);
        refuse(Resource::Block, 0, u64::MAX, || {
            tree.settle_closed(context, small, Wanted::NONE);
        });
        assert!(leaf.look(context, small, None).closing.is_none(), "it is open again");
        assert_eq!(slots(&neighbour), before, "its neighbour was closed, too");
        let changed = slots(&leaf).iter().zip(&closed).filter(|(now, then)| now != then).count();
        assert!(changed <= 1, "{changed} slots were used up");
        // With room it is replaced.
        leaf.close(context);
        tree.settle_closed(context, small, Wanted::NONE);
        assert_ne!(tree.find_leaf(context, small).node.off, leaf.node.off);
        assert_eq!(tree.get(&first).expect("a get"), Some(vec![1; 8]));
    }
}
