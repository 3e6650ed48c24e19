//! The layout of nodes (paper 4.1, figure 2) and the words in them that never change.
//!
//! ```text
//! leaf
//! byte 0        8        16       24                                              node_bytes
//!      header   gate     shape    m slices   m metadata   n slots   d words of dead bits   records
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
//! hint         of a leaf: 11 one  10..6 lines that the search of the sorted records looks into
//!              5..0 the first of them; of an inner node: 11 zero  10..0 children; zero if unknown
//! ```
//!
//! Gate, slots and the metadata of sorted records are drawn in [`meta`](crate::meta), slices in
//! [`slices`](crate::slices). *Prefix* is the number of bytes that all keys with slices have in
//! common, up to a maximum. Offsets in a node count from its first byte. Records start at multiples
//! of 8:
//!
//! ```text
//! inline   key, value, padding to 8
//! pointer  offset of the value's block (a word), key, padding to 8
//! ```
//!
//! A leaf's sorted records stand at its end, in order, and never change. If their keys have 8
//! bytes, and they are equally long and inline, they stand one length (padded) apart and need no
//! metadata and no slices (m is zero). Otherwise each has its own (m is their number). Each later
//! record has a slot. Slots are claimed from the first to the last. The records of slots stand
//! before the sorted ones, in descending order. A dead bit (60 a word) of each sorted record and
//! each slot says that the record was deleted in place. Such bits are set only when all slots are
//! claimed.
//!
//! An inner node whose keys all have 8 bytes keeps them side by side, without slices or key places.
//!
//! Children and the entry word are links. The hint tells a descent which lines of a leaf to
//! prefetch before it has read the leaf's header. Nothing relies on it.

use pando_pmwcas::{HINT_SHIFT, MAX_HINT};
pub(crate) use pando_tree::key::LIMITS;
pub use pando_tree::key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// At most so many common bytes of a node's keys are left out of slices.
pub(crate) const MAX_PREFIX_BYTES: usize = 255;
/// Bytes of the slice and the metadata of a sorted record, or of the slice and the place of a key.
pub(crate) const SLICED_BYTES: u64 = 16;

/// Bytes that a record takes, rounded up to whole words.
#[inline(always)]
pub(crate) fn padded(record_bytes: u64) -> u64 {
    record_bytes.next_multiple_of(8)
}

/// Bytes before the metadata or slots of a leaf and the children of an inner node.
pub(crate) const HEADER_BYTES: u64 = 24;
/// The status of an inner node, the gate of a leaf.
pub(crate) const STATUS_AT: u64 = 8;
pub(crate) const SHAPE_AT: u64 = 16;

/// Dead bits in a word.
pub(crate) const DEAD_BITS: u64 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Leaf = 1,
    Inner = 2,
}

/// The first word of a node; never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    /// Bytes that all keys with slices have in common, from the first on.
    pub prefix_bytes: usize,
    /// Sorted records of a leaf, or children of an inner node.
    pub count: u64,
    pub node_bytes: u64,
}

impl Header {
    pub fn encode(self) -> u64 {
        let prefix_bytes = self.prefix_bytes as u64 & 0xFF;
        (self.kind as u64) << 56 | prefix_bytes << 48 | self.count << 32 | self.node_bytes
    }

    /// Checked: `None` for a word that no code writes.
    #[inline(always)]
    pub fn decode(word: u64) -> Option<Self> {
        let count = (word >> 32) & 0xFFFF;
        let kind = match word >> 56 {
            1 => Kind::Leaf,
            2 if count > 0 => Kind::Inner,
            _ => return None,
        };
        Some(Self {
            kind,
            prefix_bytes: (word >> 48) as usize & 0xFF,
            count,
            node_bytes: word & 0xFFFF_FFFF,
        })
    }
}

/// The third word of a node; never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Slots of a leaf.
    pub slots: u64,
    /// Offset of the first sorted record, or the first key.
    pub sorted_at: u64,
    /// Length of each sorted record or key, if keys have 8 bytes and all are alike; else zero.
    pub record_bytes: u64,
}

impl Shape {
    pub fn encode(self) -> u64 {
        self.slots << 48 | self.sorted_at << 16 | self.record_bytes
    }

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
        padded(self.record_bytes)
    }
}

/// The word that names a node: its offset, and a hint of its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link(pub u64);

const LEAF_HINT: u16 = 1 << 11;

/// The shape of a node as far as a link tells it; offsets in the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Nothing is known.
    None,
    /// A leaf: offset and length, in whole lines, of what the search of the sorted records reads.
    Leaf { searched_at: u64, searched_bytes: u64 },
    /// An inner node with so many children.
    Inner { children: u64 },
}

impl Hint {
    pub fn encode(self) -> u16 {
        match self {
            Self::Leaf { searched_at, searched_bytes }
                if searched_at < 4096 && searched_bytes < 2048 =>
            {
                LEAF_HINT | ((searched_bytes / 64) as u16) << 6 | (searched_at / 64) as u16
            }
            Self::Inner { children } if children < 2048 => children as u16,
            _ => 0,
        }
    }
}

impl Link {
    pub fn new(off: u64, hint: Hint) -> Self {
        Self(off | u64::from(hint.encode()) << HINT_SHIFT)
    }

    #[inline(always)]
    pub fn off(self) -> u64 {
        self.0 & ((1 << HINT_SHIFT) - 1)
    }

    #[inline(always)]
    pub fn hint_bits(self) -> u16 {
        (self.0 >> HINT_SHIFT) as u16 & MAX_HINT
    }

    #[inline(always)]
    pub fn hint(self) -> Hint {
        let bits = self.hint_bits();
        if bits & LEAF_HINT != 0 {
            Hint::Leaf {
                searched_at: u64::from(bits & 0x3F) * 64,
                searched_bytes: u64::from((bits >> 6) & 0x1F) * 64,
            }
        } else if bits != 0 {
            Hint::Inner { children: u64::from(bits) }
        } else {
            Hint::None
        }
    }
}

const FROZEN: u64 = 1 << 60;

/// The status word of an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InnerStatus(pub u64);

impl InnerStatus {
    pub fn is_frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    pub fn frozen(self) -> Self {
        Self(self.0 | FROZEN)
    }

    /// The status after a change of a child. At one change per nanosecond the version lasts for 36
    /// years.
    pub fn next(self) -> Self {
        Self((self.0 & FROZEN) | ((self.0 & (FROZEN - 1)) + 1) & (FROZEN - 1))
    }
}

/// Bytes of the dead bits of a leaf with so many sorted records and slots.
pub(crate) fn dead_bytes(sorted: u64, slots: u64) -> u64 {
    (sorted + slots).div_ceil(DEAD_BITS) * 8
}

const _: () = assert!(MAX_PREFIX_BYTES == 0xFF);
const _: () = assert!(FROZEN & pando_pmwcas::CONTROL_BITS == 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_words() {
        let header =
            Header { kind: Kind::Leaf, prefix_bytes: 0xA5, count: 0x12, node_bytes: 0x800 };
        assert_eq!(header.encode(), 0x01A5_0012_0000_0800);
        assert_eq!(Header::decode(header.encode()), Some(header));
        assert_eq!(Header::decode(0x0300_0000_0000_0000), None);
        let shape = Shape { slots: 0x11, sorted_at: 0x123, record_bytes: 16 };
        assert_eq!(shape.encode(), 0x0011_0000_0123_0010);
        assert_eq!(Shape::decode(shape.encode()), shape);
    }

    #[test]
    fn links_carry_an_offset_and_a_hint() {
        let leaf =
            Link::new(0x1234_5678_9ABC, Hint::Leaf { searched_at: 1000, searched_bytes: 424 });
        assert_eq!(leaf.0, 0x098F_1234_5678_9ABC);
        assert_eq!(leaf.off(), 0x1234_5678_9ABC);
        assert_eq!(leaf.hint(), Hint::Leaf { searched_at: 960, searched_bytes: 384 });
        let inner = Link::new(64, Hint::Inner { children: 253 });
        assert_eq!((inner.0, inner.hint()), (0x00FD_0000_0000_0040, Hint::Inner { children: 253 }));
        let wide = Hint::Leaf { searched_at: 64, searched_bytes: 2048 };
        assert_eq!(Link::new(64, wide).hint(), Hint::None);
        assert_eq!(Link::new(64, Hint::Inner { children: 2048 }).hint(), Hint::None);
    }

    #[test]
    fn a_version_wraps() {
        assert_eq!(InnerStatus((1 << 60) - 1).next(), InnerStatus(0));
    }

    #[test]
    fn every_record_has_a_dead_bit() {
        let words: Vec<_> = [(0, 1), (59, 1), (60, 1), (100, 21)]
            .map(|(sorted, slots)| dead_bytes(sorted, slots) / 8)
            .into();
        assert_eq!(words, [1, 1, 2, 3]);
    }
}
