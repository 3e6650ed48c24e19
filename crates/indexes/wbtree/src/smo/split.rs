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

use pando_index::Error;
use pando_pmem::{Domain, mutant};
use pando_pmwcas::Policy;
use pando_tree::checked::undamaged;

use crate::build;
use crate::claim::NoClaim;
use crate::layout::Cell;
use crate::node::{Context, Node};
use crate::smo::{Attempt, relink};
use crate::state::State;
use crate::tree::WbTree;

impl<D: Domain> WbTree<D> {
    pub(crate) fn split(
        &self,
        context: Context<'_, '_, D>,
        node: &Node<'_, D>,
        state: State,
    ) -> Result<Attempt, Error> {
        let Ok((mut order, cells)) = node.contents(context, state) else {
            return Ok(Attempt::Again);
        };
        let claim = match node.claim(context, state, 1, 0) {
            Ok(claim) => claim,
            Err(NoClaim::Changed) => return Ok(Attempt::Again),
            Err(NoClaim::NoRoom) => return Ok(Attempt::Not),
        };
        undamaged(context.guard)?;
        let count = order.len();
        let kept = count / 2;
        if kept == 0 {
            return Ok(Attempt::Not);
        }
        let (moved, fence) = (&cells[kept..count], &cells[count]);
        let right =
            build::node(context, node.level, moved, fence, node.off).map_err(Error::storage)?;
        let mut separator = Cell { slice: moved[0].slice, block: 0, link: right.off() };
        let mut key_block = None;
        if context.shape.is_variable {
            let below = context.block(cells[kept - 1].block).0;
            let first = context.block(moved[0].block).0;
            // Of a leaf, the shortest that divides: of what lies above the last key that stays, and
            // not above the first that goes. Of an inner node it is the first child's own key.
            let same = below.iter().zip(first).take_while(|(left, right)| left == right).count();
            let key = if node.level == 0 { first.get(..same + 1).unwrap_or(first) } else { first };
            let block = build::block(context, key, &[])?;
            separator.slice = crate::layout::slice_of(key);
            separator.block = block.off();
            key_block = Some(block);
        }
        build::write_cell(context, node, claim.first(), &separator);
        build::flush_cells(context, node, claim.cells());
        let gone = order.iter().skip(kept).fold(0, |gone, cell| gone | 1u64 << cell);
        order.truncate(kept);
        let live = state.live(node.kind) & !gone;
        let next = state.next(node.kind, live, &order, claim.first());

        let mut operation = context.pmwcas.allocate(context.guard).map_err(Error::storage)?;
        let prepared = (|| {
            node.expect(context, &mut operation, state, next)?;
            let beyond = if mutant!("wbtree-left-of-a-split") { 0 } else { fence.link };
            relink(context, &mut operation, node.level, beyond, right.off())?;
            let owned = operation.own_block(0, Policy::FreeNewOnFailure)?;
            operation.activate(owned, right);
            if let Some(block) = key_block {
                let owned = operation.own_block(0, Policy::FreeNewOnFailure)?;
                operation.activate(owned, block);
            }
            Ok::<_, pando_pmwcas::Error>(())
        })();
        prepared.map_err(Error::storage)?;
        if !operation.execute() {
            return Ok(Attempt::Again);
        }
        node.write_slots(context, next, &order);
        Ok(Attempt::Done)
    }
}
