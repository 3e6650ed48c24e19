//! The next unit of a tree whose map was dropped: the first node of a level, with its keys and
//! records, level by level from the leaves up.
//!
//! A node need not have a cell in its parent, so the order inside a level is that of its fences.
//! The word that leads to the level's first node is a cell of the first node of the level
//! above, or the entry word. It changes to the next node of the level, and at the end to zero. An
//! inner node with a cell that leads nowhere is one whose level below is gone. So the next node of
//! an inner level gets such a cell in the step in which it becomes the first. (`pando_tree::maps`
//! says how units are freed, and what a crash leaves.)

use pando_pmem::Domain;
use pando_tree::maps::{Change, Unit};

use crate::layout::{Cell, RECORD};
use crate::node::{Context, Node};
use crate::state::State;

/// A node with checked header and state.
struct Checked<'op, D: Domain> {
    node: Node<'op, D>,
    state: State,
}

/// The next unit of the tree whose entry word is at `root_off`.
pub(crate) fn next_unit<D: Domain>(context: Context<'_, D>, root_off: u64) -> Unit {
    let (mut word, mut level) = (root_off, None);
    loop {
        let off = context.read(word);
        let Some(first) = checked(context, off, level) else { return Unit::passed_over(word, off) };
        match first_child(context, &first) {
            Some(child) => {
                level = Some(first.node.level - 1);
                word = child;
            }
            None => return unit(context, word, &first),
        }
    }
}

/// The node at `off`, if a node of the tree can be there.
fn checked<'op, D: Domain>(
    context: Context<'op, D>,
    off: u64,
    level: Option<u64>,
) -> Option<Checked<'op, D>> {
    let header = context.check_header(off, level).ok()?;
    let state = State(context.read(off));
    let is_state = state.fits(&context.shape, header.kind)
        && (header.level == 0 || state.live(header.kind) != 0);
    is_state.then(|| Checked { node: context.node(off), state })
}

/// The live cells of a node.
fn live<D: Domain>(checked: &Checked<'_, D>) -> impl Iterator<Item = u8> {
    let live = checked.state.live(checked.node.kind);
    (0..64).filter(move |cell| live >> cell & 1 != 0)
}

/// The word of a cell that leads to another node.
fn link_off<D: Domain>(context: Context<'_, D>, node: &Node<'_, D>, cell: u8) -> u64 {
    node.cell_off(context, cell) + (context.shape.cell_words() - 1) * 8
}

/// Whether a cell of an inner node leads nowhere.
fn leads_nowhere<D: Domain>(context: Context<'_, D>, checked: &Checked<'_, D>) -> bool {
    live(checked).any(|cell| context.read(link_off(context, &checked.node, cell)) == 0)
}

/// The word that leads to the first child; `None` for a leaf, or if the level below is gone.
fn first_child<D: Domain>(context: Context<'_, D>, checked: &Checked<'_, D>) -> Option<u64> {
    let node = &checked.node;
    if node.level == 0 || leads_nowhere(context, checked) {
        return None;
    }
    let key = |cell: &u8| {
        let cell = node.cell(context, *cell);
        (cell.slice, checked_key(context, &cell))
    };
    live(checked).min_by_key(key).map(|cell| link_off(context, node, cell))
}

/// The key of a cell that may have any content.
fn checked_key<D: Domain>(context: Context<'_, D>, cell: &Cell) -> Vec<u8> {
    match context.shape.is_variable && RECORD.check(context.pool(), cell.block).is_ok() {
        true => context.key(cell),
        false => Vec::new(),
    }
}

/// The node to which the word at `word` leads, the first of its level.
fn unit<D: Domain>(context: Context<'_, D>, word: u64, first: &Checked<'_, D>) -> Unit {
    let Checked { node, state } = first;
    let next_off = context.read(link_off(context, node, state.fence()));
    let next = checked(context, next_off, Some(node.level)).filter(|_| next_off != node.off);
    let new = next.as_ref().map_or(0, |_| next_off);
    let mut unit = Unit::of_block(word, node.off, new, node.off);
    if let Some(next) = next
        && node.level > 0
        && !leads_nowhere(context, &next)
    {
        let off = live(&next).next().map(|cell| link_off(context, &next.node, cell));
        unit.other = off.map(|off| Change { off, old: context.read(off), new: 0 });
    }
    if context.shape.is_variable {
        let fence = std::iter::once(state.fence());
        let blocks = live(first).chain(fence).map(|cell| node.cell(context, cell).block);
        unit.owned = blocks.filter(|&block| block != 0).collect();
    }
    unit
}
