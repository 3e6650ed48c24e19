//! The next unit of a list whose map was dropped: the first nodes, with the values that have blocks
//! of their own, as many as one operation frees; then the head. The head's successor on level 0
//! changes to the next remaining node; the other levels are not read any more. (`pando_tree::maps`
//! says how units are freed, and what a crash leaves.)

use pando_pmem::Domain;
use pando_tree::context::Context;
use pando_tree::maps::Unit;

use crate::layout::{Info, MAX_HEIGHT, tail_at};
use crate::node::{Next, Node};

/// The next unit of the list whose entry word is at `root_off`.
pub(crate) fn next_unit<D: Domain>(context: Context<'_, D>, root_off: u64) -> Unit {
    let head = Node(context.read(root_off));
    let is_head =
        context.pool().active_block(head.0).is_some_and(|bytes| bytes >= tail_at(MAX_HEIGHT))
            && head.info(context) == Info { height: MAX_HEIGHT, key_bytes: 0, inline_bytes: 0 };
    if !is_head {
        return Unit::passed_over(root_off, head.0);
    }
    let first = head.next(context, 0);
    if first.node() == head || first.0 == 0 {
        return Unit::of_block(root_off, head.0, 0, head.0);
    }
    let mut unit = Unit::passed_over(head.next_off(0), first.0);
    let mut next = first;
    while next.node() != head {
        let Some([node, value]) = node_and_value(context, next) else {
            // The nodes behind it cannot be found.
            next = Next(head.0);
            break;
        };
        let is_known = unit.own.contains(&node);
        if is_known || unit.own.len() + 2 > Unit::MAX_OWN {
            break;
        }
        unit.own.push(node);
        unit.own.extend((value != 0).then_some(value));
        next = next.node().next(context, 0).unmarked();
    }
    unit.leading.new = if next.0 == first.0 { head.0 } else { next.0 };
    unit
}

/// The node that `next` leads to, and the block of its value; zero if it has none.
fn node_and_value<D: Domain>(context: Context<'_, D>, next: Next) -> Option<[u64; 2]> {
    let node = next.node();
    let bytes = context.pool().active_block(node.0)?;
    let info = node.info(context);
    let is_node = info.is_valid() && info.node_bytes() <= bytes;
    is_node.then(|| [node.0, node.state(context).block_off()])
}
