//! New nodes and values' blocks: written and flushed before any other thread can see them.

use std::sync::atomic::Ordering;

use pando_index::{Error, Result};
use pando_pmem::{Domain, mutant};
use pando_tree::blocks::NewBlock;
use pando_tree::context::Context;
use pando_tree::key::{Probe, SLICE_BYTES};
use pando_tree::value_block;

use crate::layout::{
    HIGH_SLICE_AT, INFO_AT, Info, LOW_LEVELS, PREV_AT, SLICE_AT, SMALL_AT, STATE_AT, next_at,
    tail_at,
};
use crate::node::{Next, Node};
use crate::state::{Small, State};
use crate::style::Place;

/// A node of that height for the record, to be linked at `place` on `levels` at once; and the block
/// of its value, if the value is longer than `inline_bytes` (and than a small one).
pub(crate) fn node<'op, D: Domain>(
    context: Context<'op, D>,
    place: &Place,
    height: usize,
    levels: usize,
    key: Probe<'_>,
    value: &[u8],
    inline_bytes: u32,
) -> Result<(NewBlock<'op, D>, Option<NewBlock<'op, D>>)> {
    let small = Small::new(value);
    let is_inline = small.is_none() && value.len() <= inline_bytes as usize;
    let inline: &[u8] = if is_inline { value } else { &[] };
    let info = Info { height, key_bytes: key.bytes.len(), inline_bytes: inline.len() as u32 };
    let mut own = None;
    let state = match small {
        Some(small) => State::small(small),
        None if is_inline => State::inline(),
        None => {
            let block = value_block::reserve(context, value).map_err(Error::storage)?;
            State::block(own.insert(block).off())
        }
    };
    let bytes = info.node_bytes();
    let mut block = context.reserve(bytes)?;
    for level in 0..levels {
        block.write_u64(next_at(level), place.behind(context, level, key.slice).0);
    }
    block.write_u64(PREV_AT, place.preds[0].0);
    block.write_u64(STATE_AT, state.on_levels(levels).0);
    block.write_u64(SMALL_AT, small.map_or(0, |small| small.word));
    block.write_u64(INFO_AT, info.encode());
    block.write_u64(SLICE_AT, key.slice);
    if levels < height {
        // Not linked there yet, so no thread follows these words; but in the style of CAS they may
        // be marked.
        block.zero(next_at(levels), tail_at(height).saturating_sub(next_at(levels)));
    }
    if height > LOW_LEVELS {
        block.write_u64(HIGH_SLICE_AT, key.slice);
    }
    let mut at = tail_at(height);
    if let Some(tail) = key.bytes.get(SLICE_BYTES..) {
        block.write(at, tail);
        at += tail.len() as u64;
    }
    block.write(at, inline);
    if !mutant!("skip-node-not-flushed") {
        block.flush(0, bytes);
    }
    Ok((block, own))
}

/// Sets the successor of `node` on a level on which it is not linked yet. It is durable after the
/// next fence: that of the operation that links the node.
pub(crate) fn set_next<D: Domain>(context: Context<'_, D>, node: Node, level: usize, next: Next) {
    let word = context.pool().word(node.next_off(level));
    // Release: pairs with the acquire load of a thread that comes here by the link that is set
    // next.
    word.store(next.0, Ordering::Release);
    if !mutant!("skip-raised-unflushed") {
        word.flush();
    }
}
