//! The layout of leaves (paper 4.1, figure 2), and the words in them that never change. Inner nodes
//! and links, and the header of every node, are drawn in [`pando_inner::layout`].
//!
//! ```text
//! byte 0        8        16       24                                              node_bytes
//!      header   gate     shape    m slices   m metadata   n slots   d words of dead bits   records
//!
//! hint of a link  10 zero    9..6 lines that the search of the sorted records looks into, halved
//!                 5..0 the first of them
//! ```
//!
//! Gate, slots and the metadata of sorted records are drawn in [`meta`](crate::meta), slices in
//! [`pando_inner::slices`]. Offsets in a leaf count from its first byte. Records start at multiples
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

pub(crate) use pando_inner::layout::{
    HEADER_BYTES, Header, Hint, Kind, Link, SHAPE_AT, SLICED_BYTES, STATUS_AT, Shape,
};
pub(crate) use pando_tree::key::LIMITS;
pub use pando_tree::key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// Bytes that a record takes, rounded up to whole words.
#[inline(always)]
pub(crate) fn padded(record_bytes: u64) -> u64 {
    record_bytes.next_multiple_of(8)
}

/// Bytes of a record with a key and a value of eight bytes.
pub(crate) const PAIR_BYTES: u64 = 16;

/// Dead bits in a word.
pub(crate) const DEAD_BITS: u64 = 60;

/// What a link tells of a leaf: offset in whole lines, and length in whole pairs of lines, of what
/// the search of the sorted records reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafHint {
    pub searched_at: u64,
    pub searched_bytes: u64,
}

impl LeafHint {
    pub fn encode(self) -> Hint {
        let Self { searched_at, searched_bytes } = self;
        match searched_at < 4096 && searched_bytes < 2048 {
            true => Hint::Leaf(((searched_bytes / 128) as u16) << 6 | (searched_at / 64) as u16),
            false => Hint::None,
        }
    }

    #[inline(always)]
    pub fn decode(bits: u16) -> Self {
        Self {
            searched_at: u64::from(bits & 0x3F) * 64,
            searched_bytes: u64::from((bits >> 6) & 0xF) * 128,
        }
    }
}

/// Bytes of the dead bits of a leaf with so many sorted records and slots.
pub(crate) fn dead_bytes(sorted: u64, slots: u64) -> u64 {
    (sorted + slots).div_ceil(DEAD_BITS) * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_counts_lines() {
        let hint = LeafHint { searched_at: 1000, searched_bytes: 424 }.encode();
        assert_eq!(hint, Hint::Leaf(0xCF));
        assert_eq!(LeafHint::decode(0xCF), LeafHint { searched_at: 960, searched_bytes: 384 });
        let wide = LeafHint { searched_at: 64, searched_bytes: 2048 };
        assert_eq!(wide.encode(), Hint::None);
    }

    #[test]
    fn every_record_has_a_dead_bit() {
        let words: Vec<_> = [(0, 1), (59, 1), (60, 1), (100, 21)]
            .map(|(sorted, slots)| dead_bytes(sorted, slots) / 8)
            .into();
        assert_eq!(words, [1, 1, 2, 3]);
    }
}
