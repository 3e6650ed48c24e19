//! The search of a key in a node (paper 4.5).
//!
//! The paper's search is binary, through the slot array, and continues in a register when fewer
//! than eight slots are left. It needs this because its slots cost loads that wait for loads. Here
//! no cell waits for a slot. All cells are compared with the key, in the order in which they lie,
//! into a word with one bit for each cell. In a leaf, only the cells up to the last live one are
//! compared, since the lines behind it need not be loaded. With the live cells of the state that
//! word says
//!
//! * in a leaf, which cell has the key;
//! * in an inner node, how many keys are not above it. The slot of that place says which cell is
//!   the last of these.
//!
//! All lines of a node are loaded at once (paper 2.2), no address depends on the content of a line,
//! and no branch can be mispredicted.
//!
//! Slices are compared. If a key has the same slice as the probe, whole keys are compared.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Words, mutant};
use pando_tree::key::{Probe, Target};

use crate::layout::{Cell, NodeKind, SLOTS_AT};
use crate::node::{Changed, Context, Node};
use crate::order::{CELLS_A_WORD, Order, cell_of};
use crate::slots;
use crate::state::State;

/// Which cells have slices that are not above the given one, and which have an equal one: a bit for
/// each cell, also for cells that are not live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    pub not_above: u64,
    pub equal: u64,
}

/// Compares the cells of a node of `kind`, up to the last one with a bit in `upto`.
#[inline(always)]
pub(crate) fn compare_all<D: Domain, const CELL_WORDS: usize>(
    words: &Words<'_, D>,
    kind: NodeKind,
    slice: u64,
    upto: u64,
) -> Compared {
    let first = kind.cells_at() / 8;
    let (above, equal) = words.fold_every::<CELL_WORDS, _>(
        first,
        64 - upto.leading_zeros() as usize,
        Ordering::Acquire,
        (0, 0),
        |(above, equal), found| {
            (2 * above + u64::from(slice < found), 2 * equal + u64::from(slice == found))
        },
    );
    Compared { not_above: !above, equal }
}

/// The cell at a place of the order, if the slot of that place is of `state`.
#[inline(always)]
pub(crate) fn cell_at<D: Domain>(
    words: &Words<'_, D>,
    kind: NodeKind,
    state: State,
    place: usize,
) -> Option<u8> {
    if kind == NodeKind::SlotOnly {
        return Some(state.slot(place as u64));
    }
    let word = words.get(SLOTS_AT / 8 + (place / CELLS_A_WORD) as u64, Ordering::Acquire)?;
    (mutant!("wbtree-child-of-another-state") || slots::version_of(word) == state.version())
        .then_some(cell_of(word, place % CELLS_A_WORD))
}

/// The number of set bits. Not every processor that this is compiled for has the instruction, and
/// without it this is a tenth of a search.
#[inline(always)]
pub(crate) fn ones(word: u64) -> usize {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("popcnt") {
        let count: usize;
        // SAFETY: the processor has the instruction, which affects only its operand and flags.
        unsafe {
            std::arch::asm!(
                "popcnt {0}, {1}", out(reg) count, in(reg) word, options(pure, nomem, nostack)
            );
        }
        return count;
    }
    word.count_ones() as usize
}

impl<D: Domain> Node<'_, D> {
    /// Compares the cells up to the last one with a bit in `upto`.
    #[inline(always)]
    fn compare_all(&self, context: Context<'_, D>, slice: u64, upto: u64) -> Compared {
        match context.shape.is_variable {
            true => compare_all::<D, 3>(&self.words, self.kind, slice, upto),
            false => compare_all::<D, 2>(&self.words, self.kind, slice, upto),
        }
    }

    /// The live cell that has the key.
    #[inline(always)]
    pub fn search(
        &self,
        context: Context<'_, D>,
        state: State,
        probe: Probe<'_>,
    ) -> Result<Option<(u8, Cell)>, Changed> {
        let compared = self.compare_all(context, probe.slice, state.live(self.kind));
        self.that_has(context, state, probe, compared)
    }

    #[inline(always)]
    fn that_has(
        &self,
        context: Context<'_, D>,
        state: State,
        probe: Probe<'_>,
        compared: Compared,
    ) -> Result<Option<(u8, Cell)>, Changed> {
        let mut equal = compared.equal & state.live(self.kind);
        while equal != 0 {
            let at = equal.trailing_zeros() as u8;
            let cell = self.cell(context, at);
            // Before the block is read: it is the cell's block, and not one from before or
            // after.
            self.still(context, state)?;
            if !context.shape.is_variable || context.block(cell.block).0 == probe.bytes {
                return Ok(Some((at, cell)));
            }
            equal &= equal - 1;
        }
        self.still(context, state)?;
        Ok(None)
    }

    /// What a writer needs to know of a key. Place and order are valid if the swap of the state
    /// succeeds.
    #[inline]
    pub fn look(
        &self,
        context: Context<'_, D>,
        state: State,
        probe: Probe<'_>,
    ) -> Result<Look, Changed> {
        self.check(context, state);
        let compared = self.compare_all(context, probe.slice, state.live(self.kind));
        let found = self.that_has(context, state, probe, compared)?;
        if self.kind == NodeKind::BitmapOnly {
            return Ok(Look { found, place: 0, order: Order::EMPTY });
        }
        let order = self.order(context, state)?;
        let live = state.live(self.kind);
        let is_tied = context.shape.is_variable && compared.equal & live != 0;
        let place = if is_tied {
            self.rank(context, state, probe, false, &order)?
        } else {
            ones(compared.not_above & live) - usize::from(found.is_some())
        };
        Ok(Look { found, place, order })
    }

    /// In an inner node: the cell of the child to go to, and whether it is the last in order. The
    /// state is not read again.
    pub fn child(
        &self,
        context: Context<'_, D>,
        state: State,
        target: Target<'_>,
    ) -> Result<(u8, bool), Changed> {
        let order = self.order(context, state)?;
        let place = match target {
            Target::Holding(probe) => self.rank(context, state, probe, true, &order)?,
            Target::Before(probe) => self.rank(context, state, probe, false, &order)?,
            Target::Last => order.len(),
        };
        // Keys below the first key belong to the first child too, which has the lowest keys.
        Ok((order.cell(place.saturating_sub(1)), place == order.len()))
    }
}

/// The answer of a node for a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The live cell that has the key, and its content.
    pub found: Option<(u8, Cell)>,
    /// The place of the key in the order: that of its cell, or where its cell would be.
    pub place: usize,
    /// The live cells in order; empty for a bitmap-only node.
    pub order: Order,
}
