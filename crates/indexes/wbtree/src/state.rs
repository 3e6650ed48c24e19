//! The state of a node: the one word whose change commits every change of the node.
//!
//! ```text
//! 63..61 control   60 dead   59..44 version   43..38 fence   37..0 body
//!
//! body, bitmap kinds   a bit a cell: the cell is live
//! body, slot-only      2..0 number of records   3 (i + 1) .. 3 i + 5 the cell of record i, in order of keys
//! ```
//!
//! The paper's bitmap has a bit that says whether the slot array is valid. Here slot words have
//! the version for which they were written ([`slots`](crate::slots)), so no write must clear a bit
//! first.
//!
//! Each change raises the version, which never returns: a node whose versions are used up is
//! copied. So if a thread finds the same state after it has read cells, the state was unchanged in
//! between. And a CAS from a state succeeds only if nothing changed since that state was read. No
//! word leads to a dead node; a thread that still holds one starts again from the root.

use pando_pmem::mutant;
use pando_pmwcas::CONTROL_BITS;

use crate::layout::{MAX_CELLS, MAX_VERSION, NodeKind, Shape};
use crate::order::Order;

const FENCE_SHIFT: u32 = 38;
const VERSION_SHIFT: u32 = 44;
const DEAD: u64 = 1 << 60;
const BODY: u64 = (1 << FENCE_SHIFT) - 1;

const _: () = {
    assert!(MAX_CELLS == FENCE_SHIFT as u64 && MAX_CELLS <= 1 << (VERSION_SHIFT - FENCE_SHIFT));
    assert!((MAX_VERSION << VERSION_SHIFT | DEAD | BODY) & CONTROL_BITS == 0);
    assert!(CONTROL_BITS == !(2 * DEAD - 1) && MAX_VERSION << VERSION_SHIFT < DEAD);
};

/// A node's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(pub u64);

impl State {
    /// The state of a new node: its `live` cells from the cell `first` on are live, in order, and
    /// its fence is the cell behind them.
    pub fn new(kind: NodeKind, first: usize, live: usize) -> Self {
        let order = Order::ascending(first, live);
        let cells = ((1 << live) - 1) << first;
        Self(Self::body(kind, cells, &order) | ((first + live) as u64) << FENCE_SHIFT)
    }

    fn body(kind: NodeKind, live: u64, order: &Order) -> u64 {
        match kind {
            NodeKind::SlotBitmap | NodeKind::BitmapOnly => live,
            NodeKind::SlotOnly => {
                let places = (0..order.len()).rev();
                let slots = places.fold(0, |body, place| body << 3 | u64::from(order.cell(place)));
                slots << 3 | order.len() as u64
            }
        }
    }

    #[inline(always)]
    pub fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }

    #[inline(always)]
    pub fn version(self) -> u64 {
        self.0 >> VERSION_SHIFT & MAX_VERSION
    }

    /// The cell that is the fence.
    #[inline(always)]
    pub fn fence(self) -> u8 {
        (self.0 >> FENCE_SHIFT & 0x3F) as u8
    }

    /// A bit for each live cell.
    #[inline(always)]
    pub fn live(self, kind: NodeKind) -> u64 {
        match kind {
            NodeKind::SlotBitmap | NodeKind::BitmapOnly => self.0 & BODY,
            NodeKind::SlotOnly => {
                (0..self.0 & 7).fold(0, |live, place| live | 1 << self.slot(place))
            }
        }
    }

    /// The number of live cells.
    #[inline(always)]
    pub fn count(self, kind: NodeKind) -> usize {
        match kind {
            NodeKind::SlotBitmap | NodeKind::BitmapOnly => (self.0 & BODY).count_ones() as usize,
            NodeKind::SlotOnly => (self.0 & 7) as usize,
        }
    }

    /// A bit for each cell that is live or the fence.
    #[inline(always)]
    pub fn used(self, kind: NodeKind) -> u64 {
        self.live(kind) | 1 << self.fence()
    }

    /// Whether the node has all cells that the state names.
    #[inline(always)]
    pub fn fits(self, shape: &Shape, kind: NodeKind) -> bool {
        self.used(kind) >> shape.cells(kind) == 0
    }

    /// The cell at a place of the order of a slot-only node.
    #[inline(always)]
    pub fn slot(self, place: u64) -> u8 {
        (self.0 >> (3 * place + 3) & 7) as u8
    }

    /// The order of a slot-only node.
    #[inline(always)]
    pub fn slots(self) -> Order {
        (0..self.0 & 7).map(|place| self.slot(place)).collect()
    }

    /// The state after this one, with these live cells and this fence. `order` is their order; a
    /// bitmap-only node needs none.
    #[inline]
    pub fn next(self, kind: NodeKind, live: u64, order: &Order, fence: u8) -> Self {
        let raised = self.version() + if mutant!("wbtree-version-stands") { 0 } else { 1 };
        let version = raised & MAX_VERSION;
        Self(
            version << VERSION_SHIFT
                | u64::from(fence) << FENCE_SHIFT
                | Self::body(kind, live, order),
        )
    }

    /// The last state of a node.
    pub fn dead(self) -> Self {
        Self(self.0 | DEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_states() {
        assert_eq!(State::new(NodeKind::BitmapOnly, 2, 3).0, 0x0000_0140_0000_001C);
        let state = State::new(NodeKind::SlotBitmap, 0, 3);
        assert_eq!(state.0, 0x0000_00C0_0000_0007);
        let mut order = Order::ascending(0, 3);
        order.insert(1, 5);
        let next = state.next(NodeKind::SlotBitmap, 0x27, &order, 4);
        assert_eq!(next.0, 0x0000_1100_0000_0027);
        assert_eq!((next.version(), next.fence(), next.count(NodeKind::SlotBitmap)), (1, 4, 4));
        assert_eq!(next.dead().0, 0x1000_1100_0000_0027);
        let next = State::new(NodeKind::SlotOnly, 0, 3).next(NodeKind::SlotOnly, 0x27, &order, 4);
        assert_eq!(next.0, 0x0000_1100_0000_0000 | (2 << 9 | 1 << 6 | 5 << 3) << 3 | 4);
        assert_eq!(next.live(NodeKind::SlotOnly), 0x27);
        assert!(next.slots().iter().eq([0, 5, 1, 2]));
    }

    /// Trap: the 8-byte slot array is only atomic while n < 8.
    #[test]
    fn seven_records_and_the_fence_fit_the_slots_of_a_word() {
        let order = Order::ascending(0, 7);
        let state = State(0).next(NodeKind::SlotOnly, 0x7F, &order, 7);
        assert!(state.slots() == order && state.fence() == 7);
        assert_eq!(state.used(NodeKind::SlotOnly), 0xFF);
        assert_eq!(crate::layout::MAX_SLOT_ONLY_CELLS, 8);
    }
}
