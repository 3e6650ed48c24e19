//! New nodes and blocks, written before any other thread can see them.

use pando_index::{Error, Result};
use pando_pmem::{Domain, mutant};
use pando_tree::blocks::{NewBlock, Reserved};
use pando_tree::key::Probe;

use crate::layout::{
    CLAIMS_AT, Cell, HEADER_AT, Header, LEFT_AT, LINE_BYTES, RECORD, SLOTS_AT, STATE_AT,
};
use crate::node::{Context, Node};
use crate::order::Order;
use crate::slots;
use crate::state::State;

/// A node of `level` with these ascending cells and this fence, and, for a leaf, the leaf to the
/// left; written and flushed.
pub(crate) fn node<'op, D: Domain>(
    context: Context<'op, D>,
    level: u64,
    cells: &[Cell],
    fence: &Cell,
    left_off: u64,
) -> Reserved<'op, D> {
    let shape = context.shape;
    let kind = shape.kind(level);
    let mut block = context.guard.reserve(shape.node_bytes)?;
    // Near cells stay free for the next put, if there is room behind them.
    let near = shape.near(kind).count_ones() as usize;
    let is_roomy = near + cells.len() < shape.cells(kind) as usize;
    let first = if is_roomy { near } else { 0 };
    block.write_u64(STATE_AT, State::new(kind, first, cells.len()).0);
    block.write_u64(CLAIMS_AT, 0);
    block.write_u64(HEADER_AT, Header { level, kind, node_bytes: shape.node_bytes }.encode());
    block.write_u64(LEFT_AT, if level == 0 { left_off } else { 0 });
    let order = Order::ascending(first, cells.len());
    for index in 0..(kind.cells_at() - SLOTS_AT) / 8 {
        // Words without slots get a version too, so that a version of an earlier node in this block
        // does not count.
        let is_slots = index < slots::words_of(cells.len());
        block.write_u64(
            SLOTS_AT + index * 8,
            if is_slots { slots::encode(&order, index, 0) } else { slots::NONE },
        );
    }
    let mut at = kind.cells_at() + first as u64 * shape.cell_words() * 8;
    for cell in cells.iter().chain([fence]) {
        let (bytes, length) = cell.encode(&shape);
        block.write(at, &bytes[..length]);
        at += length as u64;
    }
    if !mutant!("wbtree-node-not-flushed") {
        block.flush(0, at);
    }
    Ok(block)
}

/// A cell of this key, with a new block for the key and for a record's value, if the tree has
/// blocks.
#[inline]
pub(crate) fn cell<'op, D: Domain>(
    context: Context<'op, D>,
    probe: Probe<'_>,
    value: &[u8],
    link: u64,
) -> Result<(Cell, Option<NewBlock<'op, D>>)> {
    let mut cell = Cell { slice: probe.slice, block: 0, link };
    if !context.shape.is_variable {
        return Ok((cell, None));
    }
    let block = RECORD.reserve(*context, probe.bytes, value).map_err(Error::storage)?;
    cell.block = block.off();
    Ok((cell, Some(block)))
}

/// Writes a claimed cell.
#[inline]
pub(crate) fn write_cell<D: Domain>(
    context: Context<'_, D>,
    node: &Node<'_, D>,
    at: u8,
    cell: &Cell,
) {
    use std::sync::atomic::Ordering::Release;
    let (pool, off) = (context.pool(), node.cell_off(context, at));
    // Release: a reader of an earlier state that sees one of these stores sees the later state too.
    pool.word(off).store(cell.slice, Release);
    if context.shape.is_variable {
        pool.word(off + 8).store(cell.block, Release);
    }
    let words = context.shape.cell_words();
    pool.word(off + words * 8 - 8).store(cell.link, Release);
}

/// Starts the write-back of ascending cells, of each line once.
#[inline]
pub(crate) fn flush_cells<D: Domain>(
    context: Context<'_, D>,
    node: &Node<'_, D>,
    cells: impl Iterator<Item = u8>,
) {
    let bytes = context.shape.cell_words() * 8;
    let mut flushed = 0;
    for at in cells {
        let off = node.cell_off(context, at);
        let end = (off + bytes).next_multiple_of(LINE_BYTES);
        let begin = off.max(flushed);
        if begin < end {
            if !mutant!("wbtree-cell-not-flushed") {
                context.pool().flush(begin, end - begin);
            }
            flushed = end;
        }
    }
}
