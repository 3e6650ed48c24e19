//! Structure modifications: consolidation, split, merge, growth and collapse of the root (paper
//! 4.3, 5).
//!
//! # Protocol
//!
//! A *leaf* is closed first, by one CAS that nobody flushes: its first empty slot becomes *closed*,
//! or, if there is none, its gate does. No slot behind it can be claimed after that; those before
//! it that are in progress are aborted; then the leaf's records are final, and whoever comes by may
//! copy them. What replaces it is built from the copy and put in place by one PMwCAS; the first
//! wins, the others look again. A crash between closing and installing leaves a closed leaf, or
//! not even that; the next writer to come by replaces it.
//!
//! If there is no room to replace it, the leaf is *opened* again, so that a full pool still takes
//! deletes and what fits its leaves: the closed slot becomes *aborted*, and later ones can be
//! claimed; a closed gate opens with a version that it never had. The PMwCAS that replaces a leaf
//! takes the word that closed it, from *closed* to *replaced*, which nobody opens. So of an opening
//! and an installation from the same closing only one succeeds.
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
use crate::layout::{HEADER_BYTES, InnerStatus, Link};
use crate::leaf::{Estimate, Leaf, Look};
use crate::meta::{Gate, Kind, Meta};
use crate::node::{Context, Inner, Probe};
use crate::tree::{BzTree, Path, Step, storage};

/// Where a node hangs: the word that names it, and the status that must not have changed.
#[derive(Clone, Copy)]
enum Anchor {
    Root,
    Child { inner: Inner, child: u64, status: InnerStatus },
}

/// An inner node that is to be replaced: its status before it was read, and what it holds.
struct Parent<'op> {
    inner: Inner,
    status: InnerStatus,
    content: InnerContent<'op>,
    /// Which of its children is the subject.
    child: usize,
}

/// The outcome of one attempt at a modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The tree changed, by this thread or another.
    Changed,
    /// Nothing was to be done.
    Nothing,
}

type Outcome = Result<Progress, Error>;

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
            let copy = HEADER_BYTES + live + self.room(wanted).least_bytes();
            let bytes = copy.min(path.leaf.header.node_bytes);
            drop(context.guard.reserve(bytes).map_err(storage)?);
        }
        self.rebuild(context, &path, wanted).map(|_| ())
    }

    /// Replaces the leaf of `probe` if it is closed, or opens it, for an operation that met the
    /// closed leaf of `met`. Lack of room is none of its business if that leaf could be opened.
    #[cold]
    pub(crate) fn settle_closed(
        &self,
        context: Context<'_, '_, D>,
        probe: Probe<'_>,
        wanted: Wanted,
        met: &Look,
    ) -> Result<(), Error> {
        let path = self.find_path(context, probe);
        let Some(closing) = Leaf::new(path.leaf).look(context, probe, None).closing else {
            return Ok(());
        };
        let settled = self.rebuild(context, &path, wanted);
        let (off, word) = closing;
        let is_stuck = met.closing == Some(closing) && context.read(off) == word;
        match settled {
            Err(error) if is_stuck => Err(error),
            _ => Ok(()),
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
        let worth = !is_closed
            && live_bytes < u64::from(self.options().merge_bytes)
            && self.partner(context, &path, live_bytes).is_some();
        if worth && matches!(self.rebuild(context, &path, Wanted::NONE), Ok(Progress::Changed)) {
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

    /// Closes the leaf: no record of it changes after that.
    pub(crate) fn close(context: Context<'_, '_, D>, leaf: &Leaf) -> Closing {
        let swap = |off: u64, from: u64, to: u64| {
            context.pmwcas.compare_exchange_undurable(context.guard, off, from, to)
        };
        let mut slot = 0;
        while slot < leaf.slots() {
            let off = leaf.slot_off(slot);
            let meta = leaf.slot(context, slot);
            match meta.kind() {
                Kind::Empty => {
                    Self::secure_slots_before(context, leaf, slot);
                    if swap(off, meta.0, Meta::CLOSED.0).is_ok() {
                        return Closing::Slot { off, meta: Meta::CLOSED };
                    }
                }
                Kind::Reserved => {
                    if swap(off, meta.0, meta.aborted().0).is_ok() {
                        slot += 1;
                    }
                }
                // A leaf that was replaced hangs nowhere any more: nothing will come of this.
                Kind::Closed | Kind::Replaced => return Closing::Slot { off, meta },
                Kind::Inline | Kind::Pointer | Kind::Deleted | Kind::Aborted => slot += 1,
            }
        }
        Self::secure_all_slots(context, leaf);
        let off = leaf.gate_off();
        loop {
            let gate = leaf.gate(context);
            if gate.is_closed() {
                return Closing::Gate { off, gate };
            }
            if swap(off, gate.0, gate.closed().0).is_ok() {
                return Closing::Gate { off, gate: gate.closed() };
            }
        }
    }

    /// Undoes `close`, unless the leaf was replaced or opened since.
    fn reopen(context: Context<'_, '_, D>, closing: Closing) {
        let (off, closed, _) = closing.words();
        let opened = match closing {
            Closing::Slot { meta, .. } if meta.kind() == Kind::Closed => meta.aborted().0,
            Closing::Gate { gate, .. } if !gate.is_replaced() => gate.opened().0,
            _ => return,
        };
        // A failure says that another thread has settled the matter.
        let _ = context.pmwcas.compare_exchange_undurable(context.guard, off, closed, opened);
    }

    /// Makes the operation replace the closed leaf, and no other state of it.
    fn seal(operation: &mut Descriptor<'_, '_, D>, closing: Closing) -> pando_pmwcas::Result<()> {
        let (off, closed, replaced) = closing.words();
        operation.add_word(off, closed, replaced)
    }

    /// Closes the leaf at the end of `path` and replaces it by one, by two, or together with a
    /// neighbour by one, as its content wants. Opens it if there is no room for that.
    fn rebuild(&self, context: Context<'_, '_, D>, path: &Path, wanted: Wanted) -> Outcome {
        let leaf = Leaf::new(path.leaf);
        let closing = Self::close(context, &leaf);
        self.replace(context, path, (&leaf, closing), wanted)
            .inspect_err(|_| Self::reopen(context, closing))
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
        let free = u64::from(options.free_bytes);
        // A record that needs more than the usual room gets it, but is no reason to tear the
        // others apart: when it is there, the split finds its place.
        if HEADER_BYTES + live + free > u64::from(options.leaf_bytes) && records.len() >= 2 {
            return self.split_leaf(context, path, leaf.1, &records, wanted);
        }
        if (live == 0 || live < u64::from(options.merge_bytes))
            && wanted.records == 0
            && let Some(partner) = self.partner(context, path, live)
            && self.merge_leaves(context, path, leaf.1, &records, partner)? == Progress::Changed
        {
            return Ok(Progress::Changed);
        }
        self.consolidate(context, path, leaf.1, &records, wanted)
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
            Self::seal(&mut operation, closing)?;
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
        let Some(first) = right.first() else { return Ok(Progress::Nothing) };
        let parent = match self.parent(context, path, path.height, path.leaf.link) {
            Ok(parent) => parent,
            Err(Gone) => return Ok(Progress::Nothing),
        };
        if let Some(parent) = &parent
            && self.is_full(&parent.content, first.key(context))
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
            (left, first.key(context), right_block),
            |operation| Self::seal(operation, closing),
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

    /// The neighbour with which the leaf at the end of `path` may be merged: its index in the
    /// parent. The left one first; it must not be closed, and must have room for `live` bytes.
    fn partner(&self, context: Context<'_, '_, D>, path: &Path, live: u64) -> Option<u64> {
        let parent = path.above_leaf(1)?;
        let options = self.options();
        let fits = |index: u64| {
            let node = context.node(parent.inner.child(context, index));
            if !node.is_leaf() {
                return false;
            }
            let neighbour = Leaf::new(node).estimate(context);
            let both = neighbour.live_bytes + live;
            let bytes = HEADER_BYTES + both + u64::from(options.free_bytes);
            // An empty leaf can always go, whatever its neighbour is in the middle of.
            let fits = bytes <= u64::from(options.leaf_bytes);
            live == 0 || (fits && !neighbour.is_closed)
        };
        let left = parent.child.checked_sub(1).filter(|&index| fits(index));
        left.or_else(|| {
            let right = parent.child + 1;
            (right < parent.inner.children() && fits(right)).then_some(right)
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
        let other = Self::close(context, &neighbour);
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
            Self::reopen(context, other);
            return Ok(Progress::Nothing);
        }
        let merged = build::leaf(context, &all, self.room(Wanted::NONE))
            .inspect_err(|_| Self::reopen(context, other))
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
                Self::seal(operation, closing)?;
                Self::seal(operation, other)
            },
        )
        .inspect_err(|_| Self::reopen(context, other))
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

    /// Reads an inner node: the status first, so that the copy is exact if the status still is
    /// the same at installation.
    fn read_parent<'op>(context: Context<'op, '_, D>, step: Step) -> Parent<'op> {
        let status = step.inner.status(context);
        let content = InnerContent::read(context, step.inner);
        Parent { inner: step.inner, status, content, child: step.child as usize }
    }

    /// The parent of the node `link` at `level` of `path`; none if that is the root.
    fn parent<'op>(
        &self,
        context: Context<'op, '_, D>,
        path: &Path,
        level: usize,
        link: Link,
    ) -> Result<Option<Parent<'op>>, Gone> {
        let Some(above) = level.checked_sub(1) else {
            return if context.link(self.root_off()) == link { Ok(None) } else { Err(Gone) };
        };
        let step = path.at(above).ok_or(Gone)?;
        let parent = Self::read_parent(context, step);
        let holds = parent.content.children.get(parent.child) == Some(&link);
        if holds && !parent.status.is_frozen() { Ok(Some(parent)) } else { Err(Gone) }
    }

    /// Where the node `link` at `level` of `path` hangs now; `None` if not where the path says.
    fn anchor(
        &self,
        context: Context<'_, '_, D>,
        path: &Path,
        level: usize,
        link: Link,
    ) -> Option<Anchor> {
        let Some(above) = level.checked_sub(1) else {
            return (context.link(self.root_off()) == link).then_some(Anchor::Root);
        };
        let Step { inner, child } = path.at(above)?;
        let status = inner.status(context);
        let holds = inner.child(context, child) == link;
        (holds && !status.is_frozen()).then_some(Anchor::Child { inner, child, status })
    }

    /// Adds to `operation` that the node `old` is replaced where it hangs; the new node comes by
    /// `activate`. Whichever of the two is not in place in the end is freed.
    fn hang(
        &self,
        operation: &mut Descriptor<'_, '_, D>,
        anchor: Anchor,
        old: Link,
    ) -> pando_pmwcas::Result<pando_pmwcas::Entry> {
        match anchor {
            Anchor::Root => operation.reserve_entry(self.root_off(), old.0, Policy::FreeOne),
            Anchor::Child { inner, child, status } => {
                let status_off = inner.node.status_off();
                operation.add_word(status_off, status.0, status.next().0)?;
                operation.reserve_entry(inner.child_off(child), old.0, Policy::FreeOne)
            }
        }
    }

    /// Passes a new node to `operation` as the new value of `entry`.
    fn give<'pool>(
        operation: &mut Descriptor<'_, 'pool, D>,
        entry: pando_pmwcas::Entry,
        node: NewNode<'_, 'pool, D>,
    ) {
        operation.activate_with_hint(entry, node.block, node.link.hint_bits());
    }

    fn run(operation: Descriptor<'_, '_, D>, prepared: Result<(), Unprepared>) -> Outcome {
        match prepared {
            Ok(()) => {
                let changed = operation.execute();
                Ok(if changed { Progress::Changed } else { Progress::Nothing })
            }
            Err(Unprepared::Gone) => Ok(Progress::Nothing),
            Err(Unprepared::Failed(error)) => Err(storage(error)),
        }
    }
}

/// The word that closed a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Closing {
    /// A slot that was empty.
    Slot { off: u64, meta: Meta },
    /// The gate, of a leaf all of whose slots are claimed.
    Gate { off: u64, gate: Gate },
}

impl Closing {
    /// Its offset, what it holds while the leaf is closed, and from when the leaf is replaced.
    pub fn words(self) -> (u64, u64, u64) {
        match self {
            Self::Slot { off, meta } => (off, meta.0, Meta::REPLACED.0),
            Self::Gate { off, gate } => (off, gate.0, gate.replaced().0),
        }
    }
}

/// The halves of a split and the separator between them.
type Halves<'op, 'pool, D> = (NewNode<'op, 'pool, D>, &'op [u8], NewNode<'op, 'pool, D>);

/// The tree changed under the path.
struct Gone;

/// Why an operation was not put together.
enum Unprepared {
    Gone,
    Failed(pando_pmwcas::Error),
}

impl From<pando_pmwcas::Error> for Unprepared {
    fn from(error: pando_pmwcas::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<pando_pmem::Error> for Unprepared {
    fn from(error: pando_pmem::Error) -> Self {
        Self::Failed(error.into())
    }
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
