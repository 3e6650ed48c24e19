//! The layout of nodes (paper 4.2, figure 8), and of the blocks of keys and records.
//!
//! ```text
//! byte 0        8        16       24       32             64
//! 0    state    claims   header   left     4 slot words   cells ..      slot+bitmap
//! 0    state    claims   header   left     cells ..                     bitmap-only, slot-only
//!
//! header  63..56 0x79   55..48 level, 0 of a leaf   47..40 kind   31..16 durable version   15..0 bytes of the node
//! claims  63..38 generation, its low 26 bits       37..0 cells that a thread has claimed
//!
//! cell, fixed      0 key     8 link
//! cell, variable   0 slice   8 block    16 link
//! ```
//!
//! Keys and records of any length have blocks ([`pando_tree::record_block`]), with the length of
//! the key in the lower half. The block of a key has no value.
//!
//! The state is drawn in [`state`](crate::state), slot words in [`slots`](crate::slots);
//! [`durable`](crate::durable) explains the durable version. Left is the offset of the leaf to the
//! left, zero in the first leaf and in inner nodes; [`smo`](crate::smo) says how it changes.
//!
//! A live cell of a leaf is a record: its link is the value (fixed), or zero with key and value in
//! the block (variable). A live cell of an inner node is a child: the link is the child's
//! offset, the key is the lowest that the child may hold. Cells in the state's own line are
//! *near*: they are written back with the state ([`put`](crate::put)), and a new node leaves them
//! free. One cell of each node, the *fence*, has the lowest key beyond the node and the offset of
//! the next node of the level. In the last node of a level the words of the fence are zero.
//!
//! A fixed key is the eight bytes as a number, the first byte the most significant. A slice is that
//! of the first eight bytes, padded with zeros; block zero is the empty key.

use pando_pmem::BLOCK_ALIGN;
pub use pando_tree::key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use pando_tree::record_block::KeyLength;

/// Bytes of each key and each value of a tree with fixed records.
pub const FIXED_BYTES: usize = 8;

pub(crate) const STATE_AT: u64 = 0;
pub(crate) const CLAIMS_AT: u64 = 8;
pub(crate) const HEADER_AT: u64 = 16;
pub(crate) const LEFT_AT: u64 = 24;
pub(crate) const SLOTS_AT: u64 = 32;
/// Slot words of a slot+bitmap node.
pub(crate) const SLOT_WORDS: u64 = 4;
/// The most cells of a node: the bits of the bitmap.
pub(crate) const MAX_CELLS: u64 = 38;
/// The most cells of a slot+bitmap node: the slots of its slot words.
pub(crate) const MAX_SLOT_BITMAP_CELLS: u64 = SLOT_WORDS * 8;
/// The most cells of a slot-only node: slots have three bits.
pub(crate) const MAX_SLOT_ONLY_CELLS: u64 = 8;
/// The fewest cells of a node: the fence, one for the fence of a split, and twice two, so that no
/// split leaves an inner node with one child.
pub(crate) const MIN_CELLS: u64 = 6;
pub(crate) const LINE_BYTES: u64 = 64;
/// More levels than any pool can have nodes for.
pub(crate) const MAX_LEVELS: u64 = 64;
/// The most lines of a node.
pub(crate) const MAX_NODE_LINES: u64 = 12;
/// The layout of the block of a key or record.
pub(crate) const RECORD: KeyLength = KeyLength::Lower;

/// Marks nodes with the layout above.
const MAGIC: u64 = 0x79;
/// Marks nodes without a durable version; some of these have no pointer to the left either.
const EARLIER_MAGIC: u64 = 0x78;
const DURABLE_SHIFT: u32 = 16;
/// The largest version of a state.
pub(crate) const MAX_VERSION: u64 = 0xFFFF;
const DURABLE: u64 = MAX_VERSION << DURABLE_SHIFT;

const _: () = {
    assert!(MAX_NODE_LINES * LINE_BYTES < 1 << DURABLE_SHIFT);
    // A node at a damaged offset still has all its words.
    assert!(MAX_NODE_LINES * LINE_BYTES <= pando_pmem::NOTHING_BYTES);
    assert!(SLOTS_AT + SLOT_WORDS * 8 == LINE_BYTES && BLOCK_ALIGN == LINE_BYTES);
    assert!(STATE_AT == 0 && CLAIMS_AT + 8 == HEADER_AT);
    assert!(HEADER_AT + 8 == LEFT_AT && LEFT_AT + 8 == SLOTS_AT);
    assert!(MAX_VALUE_BYTES <= u32::MAX as usize);
    assert!(MAX_KEY_BYTES < MAX_VALUE_BYTES);
};

/// How a node stores which cells are live, and their order (paper, table 2 and figure 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeKind {
    /// A bitmap has the live cells, slot words have their order.
    #[default]
    SlotBitmap = 1,
    /// A bitmap has the live cells; their order must be computed.
    BitmapOnly = 2,
    /// The slots are in the word of the bitmap, so there are at most seven records.
    SlotOnly = 3,
}

impl NodeKind {
    /// Offset of the first cell.
    #[inline(always)]
    pub(crate) fn cells_at(self) -> u64 {
        match self {
            Self::SlotBitmap => LINE_BYTES,
            Self::BitmapOnly | Self::SlotOnly => 32,
        }
    }

    /// A bit for each cell of two words that lies in the state's line.
    #[inline(always)]
    pub(crate) fn near(self) -> u64 {
        (1 << ((LINE_BYTES - self.cells_at()) / 16)) - 1
    }

    fn max_cells(self) -> u64 {
        match self {
            Self::SlotBitmap => MAX_SLOT_BITMAP_CELLS,
            Self::BitmapOnly => MAX_CELLS,
            Self::SlotOnly => MAX_SLOT_ONLY_CELLS,
        }
    }
}

/// The common properties of all nodes of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub node_bytes: u64,
    pub leaf: NodeKind,
    pub inner: NodeKind,
    /// Whether keys and values have any length, and blocks of their own.
    pub is_variable: bool,
    /// Changes of a node before it is copied.
    pub versions: u64,
}

impl Shape {
    #[inline(always)]
    pub fn cell_words(&self) -> u64 {
        Self::cell_words_if(self.is_variable)
    }

    #[inline(always)]
    pub const fn cell_words_if(is_variable: bool) -> u64 {
        if is_variable { 3 } else { 2 }
    }

    #[inline(always)]
    pub fn kind(&self, level: u64) -> NodeKind {
        if level == 0 { self.leaf } else { self.inner }
    }

    /// A bit for each near cell of a node of `kind`. A tree with variable records has none: a
    /// PMwCAS, which has its own fence, changes a record's state.
    #[inline(always)]
    pub fn near(&self, kind: NodeKind) -> u64 {
        if self.is_variable { 0 } else { kind.near() }
    }

    /// Cells of a node of `kind`.
    #[inline(always)]
    pub fn cells(&self, kind: NodeKind) -> u64 {
        let cells = (self.node_bytes - kind.cells_at()) / (self.cell_words() * 8);
        cells.min(kind.max_cells())
    }
}

/// The third word of a node. Only its durable version changes, which is not part of this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub level: u64,
    pub kind: NodeKind,
    pub node_bytes: u64,
}

impl Header {
    pub fn encode(self) -> u64 {
        MAGIC << 56 | self.level << 48 | (self.kind as u64) << 40 | self.node_bytes
    }

    /// The word with this durable version.
    #[inline(always)]
    pub fn encode_with(self, durable_version: u64) -> u64 {
        self.encode() | durable_version << DURABLE_SHIFT
    }

    /// The durable version in a node's header.
    #[inline(always)]
    pub fn durable_version_of(word: u64) -> u64 {
        (word & DURABLE) >> DURABLE_SHIFT
    }

    /// Checked: `None` for a word that no code writes.
    pub fn decode(word: u64) -> Option<Self> {
        let kind = match word >> 40 & 0xFF {
            1 => NodeKind::SlotBitmap,
            2 => NodeKind::BitmapOnly,
            3 => NodeKind::SlotOnly,
            _ => return None,
        };
        let header = Self {
            level: Self::level_of(word),
            kind,
            node_bytes: word & !(u64::MAX << DURABLE_SHIFT),
        };
        (header.encode() == word & !DURABLE).then_some(header)
    }

    /// Whether a node of a tree of this shape, and of `level` if that is given, has this header.
    pub fn is_of(&self, shape: &Shape, level: Option<u64>) -> bool {
        self.node_bytes == shape.node_bytes
            && self.kind == shape.kind(self.level)
            && level.map_or(self.level < MAX_LEVELS, |level| level == self.level)
    }

    /// Whether it is the header of a node of an earlier layout.
    pub fn is_earlier(word: u64) -> bool {
        word >> 56 == EARLIER_MAGIC
    }

    /// [`top_of`](Self::top_of) a leaf.
    pub const LEAF_TOP: u64 = MAGIC << 8;

    /// Magic number and level of any word: all that a descent knows before it reads a node.
    #[inline(always)]
    pub fn top_of(word: u64) -> u64 {
        word >> 48
    }

    /// The level in a result of [`top_of`](Self::top_of); `None` if it is of no node.
    #[inline(always)]
    pub fn level_of_top(top: u64) -> Option<u64> {
        (top >> 8 == MAGIC).then_some(top & 0xFF)
    }

    /// The level in a node's header.
    #[inline(always)]
    pub fn level_of(word: u64) -> u64 {
        word >> 48 & 0xFF
    }
}

/// The content of a cell. A fixed one has no block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    pub slice: u64,
    pub block: u64,
    pub link: u64,
}

impl Cell {
    /// The cell's bytes in a node of `shape`.
    pub fn encode(self, shape: &Shape) -> ([u8; 24], usize) {
        let words: &[u64] = if shape.is_variable {
            &[self.slice, self.block, self.link]
        } else {
            &[self.slice, self.link]
        };
        let mut bytes = [0; 24];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        (bytes, words.len() * 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_words() {
        let header = Header { level: 3, kind: NodeKind::BitmapOnly, node_bytes: 512 };
        assert_eq!(header.encode(), 0x7903_0200_0000_0200);
        assert_eq!(header.encode_with(0xABCD), 0x7903_0200_ABCD_0200);
        for word in [header.encode(), header.encode_with(0xABCD)] {
            assert_eq!(Header::decode(word), Some(header));
        }
        assert_eq!(Header::durable_version_of(header.encode_with(0xABCD)), 0xABCD);
    }

    #[test]
    fn golden_cells() {
        let cell = Cell { slice: 1, block: 2, link: 3 };
        let mut shape = Shape {
            node_bytes: 512,
            leaf: NodeKind::SlotBitmap,
            inner: NodeKind::SlotBitmap,
            is_variable: true,
            versions: 16,
        };
        let (bytes, length) = cell.encode(&shape);
        assert_eq!((bytes[0], bytes[8], bytes[16], length), (1, 2, 3, 24));
        assert_eq!(
            (shape.cells(NodeKind::SlotBitmap), shape.cells(NodeKind::BitmapOnly)),
            (18, 20)
        );
        shape.is_variable = false;
        let (bytes, length) = cell.encode(&shape);
        assert_eq!((bytes[0], bytes[8], bytes[16], length), (1, 3, 0, 16));
        assert_eq!(
            (shape.cells(NodeKind::SlotBitmap), shape.cells(NodeKind::BitmapOnly)),
            (28, 30)
        );
        assert_eq!(shape.cells(NodeKind::SlotOnly), 8);
        let near = [NodeKind::SlotBitmap, NodeKind::BitmapOnly, NodeKind::SlotOnly];
        assert_eq!(near.map(|kind| shape.near(kind)), [0, 0b11, 0b11]);
        shape.is_variable = true;
        assert_eq!(near.map(|kind| shape.near(kind)), [0; 3]);
    }

    /// A node of the earlier layout.
    #[test]
    fn earlier_headers_are_refused() {
        let earlier = 0x7803_0200_0000_0200;
        assert_eq!((Header::decode(earlier), Header::is_earlier(earlier)), (None, true));
        assert!(!Header::is_earlier(0x7903_0200_0000_0200));
    }

    #[test]
    fn damaged_headers_are_refused() {
        let undamaged = Header { level: 1, kind: NodeKind::SlotBitmap, node_bytes: 512 }.encode();
        for bit in [32, 35, 39, 40, 42, 56, 63] {
            assert_eq!(Header::decode(undamaged ^ 1 << bit), None, "bit {bit}");
        }
    }
}
