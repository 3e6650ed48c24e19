//! Merges: a node takes over the cells and the fence of the node to its right. Also the collapse of
//! a root.
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | free cells of the left node are claimed; the right one's cells and fence are copied there | free cells |
//! | one PMwCAS: the left state with these cells and this fence, the right state dead, the parent's without the right one's cell; of leaves, the pointer of the next one to the right, which leads to the left one | before or after |
//!
//! The PMwCAS compares everything that was read: both nodes and the parent. Both nodes must be
//! children of one parent, and the left one's fence must lead to the right one. Blocks of
//! records and of the right fence's key change their owner. The right node, the key of the left
//! one's fence and the key of the parent's cell are freed. The merge allocates nothing, so
//! deletes in a full pool make room. Some versions are kept for merges of nodes whose ordinary
//! versions are used up; a node that has used these too is copied first.

use pando_index::Result;
use pando_pmem::{Domain, mutant};
use pando_pmwcas::Policy;
use pando_tree::blocks::Blocks;
use pando_tree::checked::Steps;
use pando_tree::key::{Probe, Target};

use crate::build;
use crate::layout::Cell;
use crate::node::{Context, Seen};
use crate::smo::replace::FENCE_VERSIONS;
use crate::smo::{Attempt, MERGE_BELOW, relink};
use crate::tree::{WbTree, dead};

/// The result of an attempt to merge a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merged {
    /// It is merged with a neighbour, and its parent may be small now.
    Done { parent_is_small: bool },
    /// Its parent has no other child.
    OnlyChild,
    /// Its neighbours are too full.
    Not,
}

impl<D: Domain> Seen<'_, D> {
    fn may_change(&self, context: Context<'_, D>) -> bool {
        self.state.version() < context.shape.versions + FENCE_VERSIONS
    }
}

impl<D: Domain> WbTree<D> {
    /// Merges the node of `level` that holds the key with a neighbour.
    pub(crate) fn merge(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
        level: u64,
    ) -> Result<Merged> {
        let mut steps = Steps::of_attempts();
        loop {
            steps.take(context.guard, self.root_off)?;
            let Some(found) = self.seek(context, Target::Holding(probe), level + 1)? else {
                return Ok(Merged::Not);
            };
            let Ok(parent) = found.node.contents(context, found.state) else { continue };
            if !parent.may_change(context) {
                self.make_room(context, &parent.node, parent.state, probe)?;
                continue;
            }
            let count = parent.count();
            let is_here = |cell: &Cell| context.compare(cell, probe).is_le();
            let place = parent.live().partition_point(is_here).saturating_sub(1);
            let mut outcome = Attempt::Not;
            for right in [place + 1, place] {
                if right == 0 || right >= count {
                    continue;
                }
                outcome = self.fuse(context, &parent, right)?;
                if outcome != Attempt::Not {
                    break;
                }
            }
            match outcome {
                Attempt::Again => {}
                Attempt::Not if count == 1 => return Ok(Merged::OnlyChild),
                Attempt::Not => return Ok(Merged::Not),
                Attempt::Done => {
                    let left = count as u64 - 1;
                    let parent_is_small = left * MERGE_BELOW < parent.node.cells(context);
                    return Ok(Merged::Done { parent_is_small });
                }
            }
        }
    }

    /// Merges the child at `right` of the parent into the one before it.
    fn fuse(&self, context: Context<'_, D>, parent: &Seen<'_, D>, right: usize) -> Result<Attempt> {
        let off = |place: usize| parent.cells[place].link;
        let child = |place| Seen::of(context, off(place));
        let (Some(left), Some(gone)) = (child(right - 1), child(right)) else {
            let is_dead = |off: &u64| context.node(*off).state(context).is_dead();
            // If the parent still leads to a dead node, the tree is damaged.
            if let Some(off) = [right - 1, right].map(off).into_iter().find(is_dead)
                && parent.node.state(context) == parent.state
            {
                return Err(dead(off));
            }
            return Ok(Attempt::Again);
        };
        if left.fence().link != gone.node.off {
            // Between them is a node that has no cell in the parent yet.
            let state = parent.node.state(context);
            if state == parent.state {
                self.post(context, left.node)?;
            }
            return Ok(if parent.node.state(context) == parent.state {
                Attempt::Not
            } else {
                Attempt::Again
            });
        }
        let kind = left.node.kind;
        let total = (left.count() + gone.count()) as u64;
        // Not completely full: the next insert would split it again.
        let is_fitting = total + 2 <= left.node.cells(context)
            && (total <= 2 || total * 4 <= left.node.cells(context) * 3);
        if !is_fitting {
            return Ok(Attempt::Not);
        }
        if !left.may_change(context) {
            let key = context.key(&parent.cells[right - 1]);
            self.replace(context, left.node.level, Probe::new(&key), left.node.off)?;
            return Ok(Attempt::Again);
        }
        let claim = match left.node.claim(context, left.state, gone.count() as u32 + 1, 0) {
            Ok(claim) => claim,
            Err(refused) => return Ok(refused.into()),
        };
        let (mut order, mut live) = (left.order, left.state.live(kind));
        let mut fence = 0;
        for (at, cell) in claim.cells().zip(&gone.cells) {
            build::write_cell(context, &left.node, at, cell);
            if order.len() < total as usize {
                order.push(at);
                live |= 1 << at;
            } else {
                fence = at;
            }
        }
        build::flush_cells(context, &left.node, claim.cells());
        let next = left.state.next(kind, live, &order, fence);
        let mut parent_order = parent.order;
        let parent_cell = parent_order.cell(right);
        parent_order.remove(right);
        let parent_kind = parent.node.kind;
        let parent_live = parent.state.live(parent_kind) & !(1 << parent_cell);
        let parent_next =
            parent.state.next(parent_kind, parent_live, &parent_order, parent.state.fence());

        let is_done = context.publish(|operation| {
            left.node.expect(context, operation, left.state, next)?;
            let state = gone.state;
            let dead = if mutant!("wbtree-dead-not-marked") { state } else { state.dead() };
            gone.node.expect(context, operation, state, dead)?;
            parent.node.expect(context, operation, parent.state, parent_next)?;
            let beyond = if mutant!("wbtree-left-of-a-merge") { 0 } else { gone.fence().link };
            relink(context, operation, left.node.level, beyond, left.node.off)?;
            for old in [gone.node.off, left.fence().block, parent.cells[right].block] {
                Blocks { new: None, old }.give_to(operation)?;
            }
            Ok(true)
        })?;
        if !is_done {
            return Ok(Attempt::Again);
        }
        left.node.write_slots(context, next, &order);
        parent.node.write_slots(context, parent_next, &parent_order);
        Ok(Attempt::Done)
    }

    /// Makes the only child of the root the root, repeatedly if necessary.
    pub(crate) fn collapse(&self, context: Context<'_, D>) -> Result<()> {
        let mut steps = Steps::of_attempts();
        loop {
            steps.take(context.guard, self.root_off)?;
            let root = self.root(context);
            if root.level == 0 {
                return Ok(());
            }
            let Some(root) = Seen::of(context, root.off) else {
                let off = root.off;
                if root.state(context).is_dead() && self.root(context).off == off {
                    return Err(dead(off));
                }
                continue;
            };
            if root.count() != 1 || root.fence().link != 0 {
                return Ok(());
            }
            let child = context.node(root.cells[0].link);
            let state = child.state(context);
            if state.is_dead() {
                return Ok(());
            }
            let Ok(fence) = child.fence(context, state) else { continue };
            // If it has a next node, that one is not posted yet, and the post needs the root.
            if fence.link != 0 {
                return Ok(());
            }
            // A failure means that one of them has changed.
            context.publish(|operation| {
                operation.add_word(self.root_off, root.node.off, child.off)?;
                root.node.expect(context, operation, root.state, root.state.dead())?;
                child.expect(context, operation, state, state)?;
                operation.own_block(root.node.off, Policy::FreeOldOnSuccess)?;
                Ok(true)
            })?;
        }
    }
}
