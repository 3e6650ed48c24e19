//! The layout of inner nodes (paper 4.1, figure 2), the words with which every node begins, and the
//! words that name nodes.
//!
//! ```text
//! every node
//! byte 0        8        16       24         node_bytes
//!      header   status   shape    content
//!
//! inner node
//! byte 0        8        16       24          24 + 8 n
//!      header   status   shape    n children  n - 1 slices   n - 1 key places   keys     (keys of any length)
//!      header   status   shape    n children  n - 1 keys                                 (all keys of 8 bytes)
//!
//! header       63..56 kind   55..48 prefix    47..32 sorted records, or children   31..0 node_bytes
//! shape        63..48 slots  47..16 offset of the sorted records or keys  15..0 length of each, or 0
//! key place    63..32 offset                31..0 length
//! status       63..61 control  60 frozen  59..0 version, raised by every change of a child
//! link         63..61 control  60 zero  59..48 hint  47..0 offset of a node
//! hint         11 one: of a leaf, and 10..0 as its index says; 11 zero: of an inner node, and
//!              10..0 children; zero if unknown
//! ```
//!
//! The status and the shape of a leaf are its index's affair. Slices are drawn in
//! [`slices`](crate::slices). *Prefix* is the number of bytes that all keys with slices have in
//! common, up to a maximum. Offsets in a node count from its first byte. A node whose keys all have
//! 8 bytes keeps them side by side, without slices or key places.
//!
//! Children and the entry word are links. The hint tells a descent which lines of a node to
//! prefetch before it has read the node's header. Nothing relies on it.

use pando_pmwcas::{HINT_SHIFT, MAX_HINT};

/// At most so many common bytes of a node's keys are left out of slices.
pub const MAX_PREFIX_BYTES: usize = 255;
/// Bytes of the slice and the metadata of a sorted record, or of the slice and the place of a key.
pub const SLICED_BYTES: u64 = 16;

/// Bytes before the content of a node.
pub const HEADER_BYTES: u64 = 24;
/// Levels of inner nodes in a path: with two children per node, more than any pool can have.
pub(crate) const MAX_HEIGHT: usize = 48;
/// Where the status of an inner node is.
pub const STATUS_AT: u64 = 8;
/// Where the shape is.
pub const SHAPE_AT: u64 = 16;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It has records.
    Leaf = 1,
    /// It has children.
    Inner = 2,
}

/// The first word of a node; never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the node is.
    pub kind: Kind,
    /// Bytes that all keys with slices have in common, from the first on.
    pub prefix_bytes: usize,
    /// Sorted records of a leaf, or children of an inner node.
    pub count: u64,
    /// Bytes of the node, which are those of its block.
    pub node_bytes: u64,
}

impl Header {
    /// The word.
    pub fn encode(self) -> u64 {
        let prefix_bytes = self.prefix_bytes as u64 & 0xFF;
        (self.kind as u64) << 56 | prefix_bytes << 48 | self.count << 32 | self.node_bytes
    }

    /// Whether this library writes such a word.
    #[inline(always)]
    pub fn is_possible(word: u64) -> bool {
        match word >> 56 {
            1 => true,
            2 => word >> 32 & 0xFFFF > 0,
            _ => false,
        }
    }

    /// Decodes a word that is [possible](Self::is_possible).
    #[inline(always)]
    pub fn of(word: u64) -> Self {
        Self {
            kind: if word >> 56 == Kind::Inner as u64 { Kind::Inner } else { Kind::Leaf },
            prefix_bytes: (word >> 48) as usize & 0xFF,
            count: (word >> 32) & 0xFFFF,
            node_bytes: word & 0xFFFF_FFFF,
        }
    }
}

/// The number of separators of an inner node whose keys have no common bytes, by its first word;
/// `None` of any other.
#[inline(always)]
pub(crate) fn separators_of(header: u64) -> Option<u64> {
    // Of any other word, a greater number remains: one comparison checks all.
    let rest = ((header >> 32) as u32).wrapping_sub((Kind::Inner as u32) << 24 | 1);
    (rest < 0xFFFF).then_some(u64::from(rest))
}

/// The third word of a node; never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Slots of a leaf.
    pub slots: u64,
    /// Offset of the first sorted record, or the first key.
    pub sorted_at: u64,
    /// Length of each sorted record or key, if keys have 8 bytes and all are alike; else zero.
    pub record_bytes: u64,
}

impl Shape {
    /// The word.
    pub fn encode(self) -> u64 {
        self.slots << 48 | self.sorted_at << 16 | self.record_bytes
    }

    /// The word of an inner node with `children` children, if its keys have 8 bytes.
    #[inline(always)]
    pub(crate) fn of_numbers(children: u64) -> u64 {
        (HEADER_BYTES + children * 8) << 16 | 8
    }

    /// What the word says.
    #[inline(always)]
    pub fn decode(word: u64) -> Self {
        Self {
            slots: word >> 48,
            sorted_at: (word >> 16) & 0xFFFF_FFFF,
            record_bytes: word & 0xFFFF,
        }
    }

    /// Whether all sorted records or keys are alike, with keys of 8 bytes.
    #[inline(always)]
    pub fn is_uniform(self) -> bool {
        self.record_bytes != 0
    }

    /// Distance of one sorted record or key from the next, if they are alike.
    #[inline(always)]
    pub fn stride(self) -> u64 {
        self.record_bytes.next_multiple_of(8)
    }
}

/// The word that names a node: its offset, and a hint of its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link(pub u64);

const LEAF_HINT: u16 = 1 << 11;

/// The shape of a node as far as a link tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Nothing is known.
    None,
    /// A leaf: 11 bits of its index.
    Leaf(u16),
    /// An inner node with so many children.
    Inner {
        /// Their number.
        children: u64,
    },
}

impl Hint {
    fn encode(self) -> u16 {
        match self {
            Self::Leaf(bits) if bits < LEAF_HINT => LEAF_HINT | bits,
            Self::Inner { children } if children < u64::from(LEAF_HINT) => children as u16,
            _ => 0,
        }
    }
}

impl Link {
    /// The link to the node at `off`.
    pub fn new(off: u64, hint: Hint) -> Self {
        Self(off | u64::from(hint.encode()) << HINT_SHIFT)
    }

    /// The node's offset.
    #[inline(always)]
    pub fn off(self) -> u64 {
        self.0 & ((1 << HINT_SHIFT) - 1)
    }

    /// The number of words in the pool before the node. If the offset is no multiple of 8, a larger
    /// number than any pool has.
    #[inline(always)]
    pub fn word_index(self) -> u64 {
        // As `pando_pmem::word_index` of the offset, without a mask.
        (self.0 << (u64::BITS - HINT_SHIFT)).rotate_right(u64::BITS - HINT_SHIFT + 3)
    }

    /// The hint as PMwCAS stores it.
    #[inline(always)]
    pub fn hint_bits(self) -> u16 {
        (self.0 >> HINT_SHIFT) as u16 & MAX_HINT
    }

    /// The hint.
    #[inline(always)]
    pub fn hint(self) -> Hint {
        match self.hint_bits() {
            bits if bits & LEAF_HINT != 0 => Hint::Leaf(bits & (LEAF_HINT - 1)),
            0 => Hint::None,
            bits => Hint::Inner { children: u64::from(bits) },
        }
    }
}

const FROZEN: u64 = 1 << 60;

/// The status word of an inner node. An index may use it for its leaves too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u64);

impl Status {
    /// Whether the node was replaced.
    pub fn is_frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    /// The status of the replaced node.
    pub fn frozen(self) -> Self {
        Self(self.0 | FROZEN)
    }

    /// The status after a change: of a child, in an inner node. At one change per nanosecond the
    /// version lasts for 36 years.
    pub fn next(self) -> Self {
        Self((self.0 & FROZEN) | ((self.0 & (FROZEN - 1)) + 1) & (FROZEN - 1))
    }
}

const _: () = assert!(MAX_PREFIX_BYTES == 0xFF);
const _: () = assert!(MAX_HINT == 2 * LEAF_HINT - 1);
const _: () = assert!(FROZEN & pando_pmwcas::CONTROL_BITS == 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_words() {
        let header =
            Header { kind: Kind::Leaf, prefix_bytes: 0xA5, count: 0x12, node_bytes: 0x800 };
        assert_eq!(header.encode(), 0x01A5_0012_0000_0800);
        assert_eq!(Header::of(header.encode()), header);
        assert!(Header::is_possible(header.encode()));
        assert_eq!(separators_of(0x0200_0012_0000_0800), Some(0x11));
        assert_eq!(separators_of(0x0200_FFFF_0000_0800), Some(0xFFFE));
        let others = [0x0200_0000, 0x0201_0012, 0x0100_0012, 0x0300_0012, 0x0201_0000, 0];
        assert!(others.iter().all(|word| separators_of(word << 32).is_none()));
        for damaged in [0, 0x0300_0000_0000_0000, 0x0200_0000_0000_0800] {
            assert!(!Header::is_possible(damaged), "{damaged:x}");
        }
        let shape = Shape { slots: 0x11, sorted_at: 0x123, record_bytes: 16 };
        assert_eq!(shape.encode(), 0x0011_0000_0123_0010);
        assert_eq!(Shape::decode(shape.encode()), shape);
    }

    #[test]
    fn links_carry_an_offset_and_a_hint() {
        let leaf = Link::new(0x1234_5678_9ABC, Hint::Leaf(0x18F));
        assert_eq!(leaf.0, 0x098F_1234_5678_9ABC);
        assert_eq!((leaf.off(), leaf.hint()), (0x1234_5678_9ABC, Hint::Leaf(0x18F)));
        for link in [leaf.0, 0x0FFF_FFFF_FFFF_FFF8, 0x0FFF_0000_0000_0040, 7, 0].map(Link) {
            assert_eq!(link.word_index(), pando_pmem::word_index(link.off()), "{link:x?}");
        }
        let inner = Link::new(64, Hint::Inner { children: 253 });
        assert_eq!((inner.0, inner.hint()), (0x00FD_0000_0000_0040, Hint::Inner { children: 253 }));
        assert_eq!(Link::new(64, Hint::Leaf(2048)).hint(), Hint::None);
        assert_eq!(Link::new(64, Hint::Inner { children: 2048 }).hint(), Hint::None);
    }

    #[test]
    fn a_version_wraps() {
        assert_eq!(Status((1 << 60) - 1).next(), Status(0));
    }
}
