//! What goes next of a tree whose map is dropped: the first node of a level, with its keys and
//! records, level by level from the leaves up.
//!
//! A node need not have a cell in its parent, so a level goes along its fences. The word that leads
//! to the level's first node is a cell of the first node of the level above, or the entry word; it
//! becomes the next node of the level, and at last zero. An inner node with a cell that leads
//! nowhere is one whose level below is gone. So the next node of an inner level gets such a cell in
//! the step in which it becomes the first. (How units are freed, and what a crash leaves, says
//! `pando_tree::maps`.)

use std::sync::atomic::Ordering;

use pando_pmem::Domain;
use pando_tree::maps::{Change, Unit};

use crate::layout::{BLOCK_HEADER_BYTES, Cell, HEADER_AT, Header, block_lengths};
use crate::node::{Context, Node};
use crate::state::State;

/// More levels than any pool can have nodes for.
const MAX_LEVELS: u64 = 64;

/// A node whose header and state are sound.
struct Sound<'op, D: Domain> {
    node: Node<'op, D>,
    state: State,
}

/// The next unit of the tree whose entry word is at `root_off`.
pub(crate) fn next_unit<D: Domain>(context: Context<'_, '_, D>, root_off: u64) -> Unit {
    let (mut word, mut level) = (root_off, None);
    loop {
        let off = read(context, word);
        let Some(sound) = sound(context, off, level) else { return Unit::passed_over(word, off) };
        match first_child(context, &sound) {
            Some(child) => {
                level = Some(sound.node.level - 1);
                word = child;
            }
            None => return unit(context, word, &sound),
        }
    }
}

fn read<D: Domain>(context: Context<'_, '_, D>, off: u64) -> u64 {
    context.read(off)
}

fn sound<'op, D: Domain>(
    context: Context<'op, '_, D>,
    off: u64,
    level: Option<u64>,
) -> Option<Sound<'op, D>> {
    let shape = context.shape;
    context.pool().active_block(off).filter(|&bytes| bytes >= shape.node_bytes)?;
    // Acquire: with the store of the node's durable version.
    let header = Header::decode(context.pool().word(off + HEADER_AT).load(Ordering::Acquire))?;
    let is_header = header.node_bytes == shape.node_bytes
        && header.kind == shape.kind(header.level)
        && level.map_or(header.level < MAX_LEVELS, |level| level == header.level);
    let (state, cells) = (State(read(context, off)), shape.cells(header.kind));
    let live = state.live(header.kind);
    let is_state = live >> cells == 0 && u64::from(state.fence()) < cells;
    let is_sound = is_header && is_state && (header.level == 0 || live != 0);
    is_sound.then(|| Sound { node: context.node(off), state })
}

/// The live cells of a node.
fn live<D: Domain>(sound: &Sound<'_, D>) -> impl Iterator<Item = u8> {
    let live = sound.state.live(sound.node.kind);
    (0..64).filter(move |cell| live >> cell & 1 != 0)
}

/// The word of a cell that leads to another node.
fn link_off<D: Domain>(context: Context<'_, '_, D>, node: &Node<'_, D>, cell: u8) -> u64 {
    node.cell_off(context, cell) + (context.shape.cell_words() - 1) * 8
}

/// The word that leads to the first child; none of a leaf, or if the level below is gone.
fn first_child<D: Domain>(context: Context<'_, '_, D>, sound: &Sound<'_, D>) -> Option<u64> {
    let node = &sound.node;
    let is_gone = |cell| read(context, link_off(context, node, cell)) == 0;
    if node.level == 0 || live(sound).any(is_gone) {
        return None;
    }
    let key = |cell: &u8| {
        let cell = node.cell(context, *cell);
        (cell.slice, checked_key(context, &cell))
    };
    live(sound).min_by_key(key).map(|cell| link_off(context, node, cell))
}

/// The key of a cell, of which nothing is believed.
fn checked_key<D: Domain>(context: Context<'_, '_, D>, cell: &Cell) -> Vec<u8> {
    if !context.shape.is_variable || cell.block == 0 {
        return Vec::new();
    }
    let bytes = context.pool().active_block(cell.block).unwrap_or_default();
    let is_key = bytes >= BLOCK_HEADER_BYTES && {
        // Relaxed: written before the cell was.
        let header = context.pool().word(cell.block).load(Ordering::Relaxed);
        let (key_bytes, value_bytes) = block_lengths(header);
        key_bytes + value_bytes <= bytes - BLOCK_HEADER_BYTES
    };
    if is_key { context.key(cell) } else { Vec::new() }
}

/// The node to which the word at `word` leads, the first of its level.
fn unit<D: Domain>(context: Context<'_, '_, D>, word: u64, first: &Sound<'_, D>) -> Unit {
    let Sound { node, state } = first;
    let next_off = read(context, link_off(context, node, state.fence()));
    let next = sound(context, next_off, Some(node.level)).filter(|_| next_off != node.off);
    let new = next.as_ref().map_or(0, |_| next_off);
    let mut unit = Unit::of_block(word, node.off, new, node.off);
    if let Some(next) = next
        && node.level > 0
        && !live(&next).any(|cell| read(context, link_off(context, &next.node, cell)) == 0)
    {
        let off = live(&next).next().map(|cell| link_off(context, &next.node, cell));
        unit.other = off.map(|off| Change { off, old: read(context, off), new: 0 });
    }
    if context.shape.is_variable {
        let fence = std::iter::once(state.fence());
        let blocks = live(first).chain(fence).map(|cell| node.cell(context, cell).block);
        unit.owned = blocks.filter(|&block| block != 0).collect();
    }
    unit
}
