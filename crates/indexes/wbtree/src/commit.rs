//! The one atomic write.
//!
//! A change of a node that owns no block is a swap of its state (paper, figures 9 and 10):
//!
//! | step | write-backs, fences | a crash leaves |
//! | --- | --- | --- |
//! | claimed cells are written; unless near (`put.rs`), written back; **fence** | 1, 1; near 0, 0 | free cells |
//! | the state is swapped; slot words are written, the claim is released | | all or nothing |
//! | the line of these words is written back; **fence** | 1, 1 | all |
//! | the durable version is stored (`durable.rs`); return | | all |
//!
//! A change that allocates or frees blocks is a PMwCAS of the state that owns them, so that a block
//! is allocated exactly if the state names it. Both changes depend on the state that was read:
//! which records are live, which cell is the fence, whether the node is alive.

use pando_index::Error;
use pando_pmem::{Domain, mutant};
use pando_tree::blocks::Blocks;

use crate::claim::Claim;
use crate::node::{Context, Node};
use crate::order::Order;
use crate::state::State;

/// Makes `to` the node's state, if it is `from`, with live cells in this order; durable when it
/// returns. A claim says that cells were written: near ones, or ones whose write-back has begun.
#[inline]
pub(crate) fn commit<'op, D: Domain>(
    context: Context<'op, D>,
    node: &Node<'_, D>,
    from: State,
    to: State,
    order: &Order,
    claim: Option<(Claim<'op, D>, bool)>,
    blocks: Blocks<'op, D>,
) -> Result<bool, Box<Error>> {
    if blocks.is_none() {
        if !mutant!("wbtree-cell-not-fenced") && claim.as_ref().is_some_and(|(_, is_near)| !is_near)
        {
            D::fence();
        }
        let swapped = context.pmwcas.compare_exchange_dirty(context.guard, node.off, from.0, to.0);
        if swapped.is_err() {
            return Ok(false);
        }
        node.write_slots(context, to, order);
        drop(claim);
        node.make_durable(context, to);
        return Ok(true);
    }
    // The operation's own first fence covers the cells.
    let is_done = context.publish(|operation| {
        node.expect(context, operation, from, to)?;
        blocks.give_to(operation)?;
        Ok(true)
    })?;
    if is_done {
        node.write_slots(context, to, order);
    }
    Ok(is_done)
}
