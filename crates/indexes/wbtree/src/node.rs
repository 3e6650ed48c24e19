//! Reads of nodes.
//!
//! A reader loads the state, then cells, then the state again. If it is the same, the cells were
//! those of that state: a live cell is not written before a later state, with another version, is
//! in place. Stores to cells release and loads acquire, so a thread that sees a cell's next
//! content sees the later state too. The cells count only after the second load; above all, no
//! block is read before it.

use std::cmp::Ordering as Compare;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Pool, Words, mutant};
use pando_tree::context;
use pando_tree::key::{Probe, Target};
use pando_tree::maps::{Broken, ProblemClass};
use pando_tree::record_block::HEADER_BYTES;

use crate::layout::{
    Cell, HEADER_AT, Header, LEFT_AT, LINE_BYTES, NodeKind, RECORD, SLOTS_AT, Shape,
};
use crate::order::{Order, WORDS};
use crate::slots;
use crate::state::State;

/// The context of an operation, with the shape of the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'op, D: Domain> {
    pub context: context::Context<'op, D>,
    pub shape: Shape,
}

impl<'op, D: Domain> Deref for Context<'op, D> {
    type Target = context::Context<'op, D>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.context
    }
}

/// An offset behind all pools; adding another offset does not overflow.
const NOWHERE: u64 = 1 << 60;

/// The state is not the one that was read: look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changed;

/// A node, for as long as the guard is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'op, D: Domain> {
    pub(crate) words: Words<'op, D>,
    pub off: u64,
    pub level: u64,
    pub kind: NodeKind,
}

impl<'op, D: Domain> Context<'op, D> {
    /// The node at `off`, to which a live cell or the entry word led while the guard was held.
    #[inline(always)]
    pub fn node(&self, off: u64) -> Node<'op, D> {
        fetch(self.guard.pool(), off, self.shape.node_bytes);
        self.fetched_node(off)
    }

    /// The same, for a node whose lines were prefetched.
    #[inline(always)]
    pub fn fetched_node(&self, off: u64) -> Node<'op, D> {
        let pool: &'op Pool<D> = self.pool();
        let Some(words) = pool.words_within(off, self.shape.node_bytes / 8) else {
            return self.no_node(off);
        };
        // Relaxed: written before the node was published, and the caller has acquired that.
        let top = Header::top_of(words.at(HEADER_AT / 8, Ordering::Relaxed));
        let Some(level) = Header::level_of_top(top) else { return self.no_node(off) };
        Node { words, off, level, kind: self.shape.kind(level) }
    }

    /// A node without words, in place of one at a damaged offset.
    #[inline(always)]
    fn no_node(&self, off: u64) -> Node<'op, D> {
        self.guard.note_damage(off);
        Node { words: Words::nothing(), off: NOWHERE, level: 0, kind: self.shape.leaf }
    }

    /// Key and value in the block at `off`.
    #[inline]
    pub fn block(&self, off: u64) -> (&'op [u8], &'op [u8]) {
        if off == 0 {
            return (&[], &[]);
        }
        let pool: &'op Pool<D> = self.guard.pool();
        let (key_bytes, value_bytes) = RECORD.lengths(pool.word(off).load(Ordering::Relaxed));
        // SAFETY: the callers have read the block's offset from a live cell, or a fence, while
        // the guard was held, and have checked this by the state. Such a block was written before
        // it was published, is not written again, and is not reused before the guard is dropped.
        let bytes = unsafe { pool.bytes(off.wrapping_add(HEADER_BYTES), key_bytes + value_bytes) };
        // Empty slices, if damage has led here.
        bytes.split_at_checked(key_bytes as usize).unwrap_or_default()
    }

    /// Copies the key of a cell that was live, or a fence, into `key`.
    pub fn copy_key(&self, cell: &Cell, key: &mut Vec<u8>) {
        key.clear();
        if self.shape.is_variable {
            key.extend_from_slice(self.block(cell.block).0);
        } else {
            key.extend_from_slice(&cell.slice.to_be_bytes());
        }
    }

    /// The key of a cell that was live, or a fence.
    pub fn key(&self, cell: &Cell) -> Vec<u8> {
        let mut key = Vec::new();
        self.copy_key(cell, &mut key);
        key
    }

    /// Compares the key of a cell that was live, or a fence, with the probe.
    #[inline(always)]
    pub fn compare(&self, cell: &Cell, probe: Probe<'_>) -> Compare {
        match self.shape.is_variable {
            true => probe.compare_with(cell.slice, || self.block(cell.block).0),
            false => cell.slice.cmp(&probe.slice),
        }
    }

    /// The header of the node at `off`, which may be any offset.
    ///
    /// # Errors
    ///
    /// What is wrong, if no node of the tree can be there, or none of `level`.
    pub fn check_header(&self, off: u64, level: Option<u64>) -> Result<Header, Broken> {
        let (pool, shape) = (self.pool(), &self.shape);
        if pool.active_block(off).is_none_or(|bytes| bytes < shape.node_bytes) {
            let what = "the block of a node is not allocated, or is too small";
            return Err((ProblemClass::Block, what));
        }
        // Acquire: pairs with the store of the node's durable version.
        let header = Header::decode(pool.word(off + HEADER_AT).load(Ordering::Acquire));
        header.filter(|header| header.is_of(shape, level)).ok_or((
            ProblemClass::Structure,
            "the header of a node is not that of a node of this level and tree",
        ))
    }
}

/// A node as it was read under one state.
#[derive(Clone, Debug)]
pub(crate) struct Seen<'op, D: Domain> {
    pub node: Node<'op, D>,
    pub state: State,
    pub order: Order,
    /// The live cells in order, and behind them the fence.
    pub cells: Vec<Cell>,
}

impl<'op, D: Domain> Seen<'op, D> {
    /// The node at `off`, if it is alive and does not change while it is read.
    pub fn of(context: Context<'op, D>, off: u64) -> Option<Self> {
        let node = context.node(off);
        let state = node.state(context);
        // First: a damaged state names cells and a fence that must not be read.
        if state.is_dead() { None } else { node.contents(context, state).ok() }
    }

    pub fn count(&self) -> usize {
        self.order.len()
    }

    pub fn live(&self) -> &[Cell] {
        &self.cells[..self.count()]
    }

    pub fn fence(&self) -> &Cell {
        &self.cells[self.count()]
    }
}

impl<'op, D: Domain> Node<'op, D> {
    /// Number of cells of the node.
    #[inline(always)]
    pub fn cells(&self, context: Context<'_, D>) -> u64 {
        context.shape.cells(self.kind)
    }

    #[inline(always)]
    fn word_of(&self, context: Context<'_, D>, cell: u8) -> u64 {
        self.kind.cells_at() / 8 + u64::from(cell) * context.shape.cell_words()
    }

    /// Offset of a cell.
    #[inline(always)]
    pub fn cell_off(&self, context: Context<'_, D>, cell: u8) -> u64 {
        self.off + self.word_of(context, cell) * 8
    }

    #[inline(always)]
    fn slice(&self, context: Context<'_, D>, cell: u8) -> u64 {
        self.words.load(self.word_of(context, cell), Ordering::Acquire)
    }

    /// The content of a cell, of this state or another: valid only if the state is still the same
    /// afterwards.
    #[inline(always)]
    pub fn cell(&self, context: Context<'_, D>, cell: u8) -> Cell {
        let first = self.word_of(context, cell);
        let word = |index| self.words.load(first + index, Ordering::Acquire);
        if context.shape.is_variable {
            Cell { slice: word(0), block: word(1), link: word(2) }
        } else {
            Cell { slice: word(0), block: 0, link: word(1) }
        }
    }

    /// The fence under `state`.
    pub fn fence(&self, context: Context<'_, D>, state: State) -> Result<Cell, Changed> {
        let cell = self.cell(context, state.fence());
        self.still(context, state)?;
        Ok(cell)
    }

    /// The pointer to the leaf to the left of this leaf; zero in the first leaf.
    pub fn left_off(&self, context: Context<'_, D>) -> u64 {
        context.read(self.off + LEFT_AT)
    }

    /// The leaf to the left of this leaf, its state, and its fence, which leads here; `None` of the
    /// first leaf.
    ///
    /// Pointer and state may be of different times: a split may have come between the two reads, or
    /// this leaf may be dead. The fence decides: the leaf that it leads to is alive in that state,
    /// and begins where the fence says. The pointer never leads to a block that is allocated again
    /// while the guard is held ([`smo`]).
    ///
    /// [`smo`]: crate::smo
    pub fn left(
        &self,
        context: Context<'op, D>,
    ) -> Result<Option<(Node<'op, D>, State, Cell)>, Changed> {
        let off = self.left_off(context);
        if off == 0 {
            return Ok(None);
        }
        // A damaged pointer may lead anywhere; then the caller descends from the root. So the block
        // is checked before it is used.
        let (pool, shape) = (context.pool(), context.shape);
        let end = off.checked_add(shape.node_bytes).filter(|_| off.is_multiple_of(LINE_BYTES));
        if end.is_none_or(|end| end > pool.size_bytes()) {
            return Err(Changed);
        }
        // Relaxed: written before the node was published.
        let header = Header::decode(pool.word(off + HEADER_AT).load(Ordering::Relaxed));
        if !header.is_some_and(|header| header.is_of(&shape, Some(0))) {
            return Err(Changed);
        }
        let left = context.node(off);
        let state = left.state(context);
        if u64::from(state.fence()) >= shape.cells(left.kind) {
            return Err(Changed);
        }
        let fence = left.fence(context, state)?;
        if !mutant!("wbtree-left-believed") && (state.is_dead() || fence.link != self.off) {
            return Err(Changed);
        }
        Ok(Some((left, state, fence)))
    }

    /// Compares the key of `cell` with the probe's, under `state`.
    #[inline(always)]
    pub(crate) fn compare(
        &self,
        context: Context<'_, D>,
        state: State,
        cell: u8,
        probe: Probe<'_>,
    ) -> Result<Compare, Changed> {
        let slice = self.slice(context, cell);
        if slice != probe.slice || !context.shape.is_variable {
            return Ok(slice.cmp(&probe.slice));
        }
        let found = self.cell(context, cell);
        // Before the block is read: it is the cell's block, and not one from before or after.
        self.still(context, state)?;
        Ok(context.block(found.block).0.cmp(probe.bytes))
    }

    /// The slot word `index`, if it is of `state`.
    #[inline(always)]
    pub(crate) fn slot_word(&self, state: State, index: u64) -> Option<u64> {
        let word = self.words.load(SLOTS_AT / 8 + index, Ordering::Acquire);
        (mutant!("wbtree-slots-of-another-state") || slots::version_of(word) == state.version())
            .then_some(word)
    }

    /// The order in the slot words of `state`; `None` if they are of another version.
    #[inline(always)]
    fn order_by_slots(&self, state: State, count: usize) -> Option<Order> {
        let mut words = [0; WORDS];
        for (index, cells) in words.iter_mut().enumerate().take(slots::words_of(count) as usize) {
            *cells = slots::cells_of(self.slot_word(state, index as u64)?);
        }
        Some(Order::of_words(words, count))
    }

    /// How many of the ordered cells have keys below the probe's (with `inclusive`: not above
    /// it).
    pub(crate) fn rank(
        &self,
        context: Context<'_, D>,
        state: State,
        probe: Probe<'_>,
        inclusive: bool,
        order: &Order,
    ) -> Result<usize, Changed> {
        let (mut low, mut high) = (0, order.len());
        while low < high {
            let middle = (low + high) / 2;
            let is_before = match self.compare(context, state, order.cell(middle), probe)? {
                Compare::Less => true,
                Compare::Equal => inclusive,
                Compare::Greater => false,
            };
            if is_before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The live cells in order. If the slot words are of another version, the cells are sorted by
    /// their keys, and the slot words are rewritten.
    // Not inlined into `look`, which has few registers left.
    #[inline(never)]
    pub fn order(&self, context: Context<'_, D>, state: State) -> Result<Order, Changed> {
        match self.kind {
            NodeKind::SlotOnly => return Ok(state.slots()),
            NodeKind::SlotBitmap => {
                if let Some(order) = self.order_by_slots(state, state.count(self.kind)) {
                    return Ok(order);
                }
            }
            NodeKind::BitmapOnly => {}
        }
        let order = self.sort(context, state)?;
        self.write_slots(context, state, &order);
        Ok(order)
    }

    #[cold]
    #[inline(never)]
    fn sort(&self, context: Context<'_, D>, state: State) -> Result<Order, Changed> {
        let live = state.live(self.kind);
        let is_live = |cell: &u8| live >> cell & 1 != 0;
        let mut cells: Vec<(Cell, u8)> = (0..self.cells(context) as u8)
            .filter(is_live)
            .map(|at| (self.cell(context, at), at))
            .collect();
        self.still(context, state)?;
        cells.sort_unstable_by(|(left, _), (right, _)| {
            let blocks = || context.block(left.block).0.cmp(context.block(right.block).0);
            left.slice.cmp(&right.slice).then_with(blocks)
        });
        Ok(cells.into_iter().map(|(_, at)| at).collect())
    }

    /// Writes the slot words of `state`, if the node has any.
    #[inline]
    pub fn write_slots(&self, context: Context<'_, D>, state: State, order: &Order) {
        if self.kind != NodeKind::SlotBitmap {
            return;
        }
        for index in 0..slots::words_of(order.len()) {
            let word = context.pool().word(self.off + SLOTS_AT + index * 8);
            // Release: a thread that sees it sees the cells that it orders.
            word.store(slots::encode(order, index, state.version()), Ordering::Release);
        }
    }

    /// Notes damage if the state names cells that the node does not have.
    #[inline]
    pub fn check(&self, context: Context<'_, D>, state: State) {
        if !state.fits(&context.shape, self.kind) {
            context.guard.note_damage(self.off);
        }
    }

    /// The content of the node under one state.
    pub fn contents(&self, context: Context<'_, D>, state: State) -> Result<Seen<'op, D>, Changed> {
        self.check(context, state);
        let order = self.order(context, state)?;
        let cells = order.iter().chain([state.fence()]);
        let cells = cells.map(|cell| self.cell(context, cell)).collect();
        self.still(context, state)?;
        Ok(Seen { node: *self, state, order, cells })
    }

    /// The fence under `state`, if the target lies beyond it.
    #[inline(always)]
    pub fn is_beyond(
        &self,
        context: Context<'_, D>,
        state: State,
        target: Target<'_>,
    ) -> Result<Option<Cell>, Changed> {
        let fence = self.cell(context, state.fence());
        if fence.link == 0 {
            self.still(context, state)?;
            return Ok(None);
        }
        let is_beyond = match target {
            Target::Holding(probe) => self.compare(context, state, state.fence(), probe)?.is_le(),
            Target::Before(probe) => self.compare(context, state, state.fence(), probe)?.is_lt(),
            Target::Last => true,
        };
        self.still(context, state)?;
        Ok(is_beyond.then_some(fence))
    }
}

/// Prefetches the lines of the node at `off` (paper 2.2, prefetching B+-trees).
#[inline(always)]
pub(crate) fn fetch<D: Domain>(pool: &Pool<D>, off: u64, node_bytes: u64) {
    let mut line = 0;
    while line < node_bytes {
        pool.prefetch(off.wrapping_add(line));
        line += LINE_BYTES;
    }
}
