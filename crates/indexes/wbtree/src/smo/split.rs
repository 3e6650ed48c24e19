//! Splits (paper 4.3): the upper half of a node's cells is copied to a new node.
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | the new node is written: the upper half, and the node's fence | a reserved block |
//! | a free cell of the node becomes a fence with the separator and the new node | a free cell |
//! | one PMwCAS: the node's state, in which the upper half is not live and the fence is the new one; of a leaf, the pointer of the leaf to the right, which leads to the new one | before or after |
//! | the new node is posted | a node that is found through a fence |
//!
//! The deciding word is the node's state. The PMwCAS owns the new node and the separator's
//! block. Blocks of records change their owner with it.

use pando_index::{Error, Result};
use pando_pmem::{Domain, mutant};
use pando_tree::blocks::Blocks;
use pando_tree::checked::undamaged;
use pando_tree::key::{Probe, shortest_between};

use crate::build;
use crate::node::{Context, Node};
use crate::smo::{Attempt, relink};
use crate::state::State;
use crate::tree::WbTree;

impl<D: Domain> WbTree<D> {
    pub(crate) fn split(
        &self,
        context: Context<'_, D>,
        node: &Node<'_, D>,
        state: State,
    ) -> Result<Attempt> {
        let Ok(seen) = node.contents(context, state) else { return Ok(Attempt::Again) };
        let claim = match node.claim(context, state, 1, 0) {
            Ok(claim) => claim,
            Err(refused) => return Ok(refused.into()),
        };
        undamaged(context.guard)?;
        let kept = seen.count() / 2;
        if kept == 0 {
            return Ok(Attempt::Not);
        }
        let (stay, moved) = seen.live().split_at(kept);
        let right = build::node(context, node.level, moved, seen.fence(), node.off);
        let right = right.map_err(Error::storage)?;
        let first = context.key(&moved[0]);
        let key = match stay.last() {
            Some(last) if node.level == 0 && context.shape.is_variable => {
                shortest_between(context.block(last.block).0, &first)
            }
            // Fixed keys have one length; in an inner node it is the first child's own key.
            _ => &first,
        };
        let (separator, key_block) = build::cell(context, Probe::new(key), &[], right.off())?;
        build::write_cell(context, node, claim.first(), &separator);
        build::flush_cells(context, node, claim.cells());
        let mut order = seen.order;
        let gone = order.iter().skip(kept).fold(0, |gone, cell| gone | 1u64 << cell);
        order.truncate(kept);
        let live = state.live(node.kind) & !gone;
        let next = state.next(node.kind, live, &order, claim.first());

        let is_done = context.publish(|operation| {
            node.expect(context, operation, state, next)?;
            let beyond = if mutant!("wbtree-left-of-a-split") { 0 } else { seen.fence().link };
            relink(context, operation, node.level, beyond, right.off())?;
            for new in [Some(right), key_block] {
                Blocks { new, old: 0 }.give_to(operation)?;
            }
            Ok(true)
        })?;
        if !is_done {
            return Ok(Attempt::Again);
        }
        node.write_slots(context, next, &order);
        Ok(Attempt::Done)
    }
}
