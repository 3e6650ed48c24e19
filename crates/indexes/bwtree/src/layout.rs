//! The bytes of a tree in its pool.
//!
//! All numbers are little-endian.
//!
//! ```text
//! anchor, which the map's entry word names; and behind it the first segment's words
//!
//! byte   0         8         16        24        32        40 .. 63  64 .. 511
//! 0      root      segments  fresh     sweep     begun     changes 0 mapping words of 56 PIDs
//!
//! segment of the mapping table, 4 KiB
//!
//! byte   0         8         16 .. 63  64 .. 4095
//! 0      next      anchor    number  0 mapping words of 504 PIDs
//! ```
//!
//! * `root`: the mapping word of the root page. Zero: a leaf without records, if `begun` is zero;
//!   otherwise it is damaged.
//! * `begun`: one from the first record on.
//! * `segments`: the newest segment; each names the one before it.
//! * `fresh`, `sweep`: where the next search for a free PID begins (`table.rs`): bits 63 .. 48 the
//!   number of the word, below them the segment. Any earlier value is valid too.
//! * `anchor`: the anchor of the segment's tree. Trees from before these words existed have zero in
//!   `begun` and `anchor`.
//! * `changes`: changes of the structure so far; `number`: how many segments were there before.
//!   Both only in a tree whose pages are in a store (`stored.rs`).
//!
//! A *PID* is the offset of its mapping word. A mapping word is free (zero, or removed), or
//! a [`Link`]:
//!
//! ```text
//! bit    60        59 .. 49  48        47 .. 3                               2   1        0
//!        0         distance  inner     offset of the page's newest record    0   captured written
//!        1         generation (20 bits), epoch (40 bits)                     removed
//!        1         1 in bit 59, stamp (59 bits)                              absent
//! ```
//!
//! * The newest record is the base, or a delta. `distance`: its distance from the base of its
//!   chain, in units of 32 bytes; 0 for the base itself, 0x7FF for a delta that is a block.
//! * `inner`: whether it is an inner page.
//! * *removed*: the page was merged into its left neighbour in that generation and epoch. Epoch 0:
//!   no thread has recorded the epoch yet.
//! * *absent*, *captured* and *written* are only in a tree whose pages are in a store (`stored.rs`
//!   says what they mean). Such a tree is always of generation 1.
//!
//! ```text
//! base page
//!
//! byte   0         8         16        24        32        40        48        56
//! 0      info      sizes     right     low       high      shape     0         high slice
//! 64     slices, one word a record | places, one word a record | keys and values | low and high key
//!        ... | claim | delta space
//!
//! info   63 .. 32 records      31 .. 16 prefix bytes   15 .. 8 level    4 words    3 .. 0 kind
//! sizes  63 .. 32 end of the delta space               31 .. 0 end of the base
//! right  PID of the page behind it on its level; zero: none
//! low, high  63 .. 32 length of the key (all ones: none)   31 .. 0 where it stands
//! shape  31 .. 16 bytes of each value                  15 .. 0 bytes of each key      if `words` is set
//! high slice the first eight bytes of the high key as a number; all ones if there is none
//! place  63 pointer   62 .. 48 bytes of the value   47 .. 32 bytes of the key   31 .. 0 where the key stands
//! claim  63 .. 32 generation                          31 .. 0 first free byte of the delta space
//! ```
//!
//! * A *slice* is eight bytes of a key, with zeros behind the end of the key. If `words` is set, it
//!   is the first eight bytes; then all keys have one length of at most eight, all values have one
//!   length and are in the page, and there are values instead of places. Otherwise it is the eight
//!   bytes behind the *prefix* that all keys share.
//! * In an inner page a record is a child: its lowest key, and its PID as the value. The lowest key
//!   of the first child is that of the page; its slice is zero, and its key is not stored.
//! * A *pointer* is the offset of the block of a value: eight bytes in the value's place.
//! * The claim stands right before the delta space, which begins at the next multiple of 32.
//!
//! ```text
//! delta, at a multiple of 32 from its base, or a block
//!
//! byte   0         8         16     ..
//! 0      info      next      key, padded to 8, eight at least | value, padded to 8
//!
//! info   63 .. 56 deltas from here on   55 .. 41 position   40 .. 24 bytes of the value   23 .. 8 bytes of the key
//!        7 own    6 endless    5 zero    4 pointer    3 .. 0 kind
//! next   a link to what it was prepended to; with its bit 0: the store has that state
//! ```
//!
//! | kind | key | value |
//! | --- | --- | --- |
//! | 1 leaf, 2 inner | | base pages |
//! | 3 insert, 4 modify | of the record | the record's, or its pointer |
//! | 5 delete | of the record | |
//! | 6 split | K, from which on the records are in the right sibling | PID of the right sibling |
//! | 7 index entry | K_P, the lowest of the new child | its PID; K_Q, where its range ends, unless *endless* |
//! | 8 index entry delete | the lowest of the child that is gone | PID of its left neighbour; length (8 bytes) of that one's lowest key; that key; where its range ends, unless *endless* |
//! | 9 node merge | the lowest of the page that was merged into this one | the link of that page's content |
//! | 10 remove node | | (only in the style of single words) |
//! | 12 partial | | a base page with what was written blindly (`blind.rs`); *right* is its own PID |
//!
//! *position*: the number of records of the base before the key; 0x7FFF: not known. *own*: the
//! delta is a block of its own.
//!
//! For a value's block, see [`pando_tree::value_block`].

use pando_pmem::mutant;
use pando_pmwcas::HINT_SHIFT;
pub(crate) use pando_tree::key::LIMITS;
pub use pando_tree::key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// The longest value inside a page, in bytes.
pub(crate) const MAX_INLINE_BYTES: u32 = 16 * 1024;

pub(crate) const ANCHOR_BYTES: u64 = 512;
pub(crate) const ROOT_AT: u64 = 0;
pub(crate) const SEGMENTS_AT: u64 = 8;
pub(crate) const FRESH_AT: u64 = 16;
pub(crate) const SWEEP_AT: u64 = 24;
pub(crate) const BEGUN_AT: u64 = 32;
pub(crate) const CHANGES_AT: u64 = 40;

pub(crate) const SEGMENT_BYTES: u64 = 4096;
/// In a segment: the segment before it.
pub(crate) const NEXT_SEGMENT_AT: u64 = 0;
/// In a segment: the anchor of its tree.
pub(crate) const OWNER_AT: u64 = 8;
/// In a segment: its number.
pub(crate) const NUMBER_AT: u64 = 16;
/// Where the mapping words of a segment, and of the anchor, begin.
pub(crate) const WORDS_AT: u64 = 64;

/// Records of chains are at multiples of 8; the bits below are flags.
pub(crate) const OFF_MASK: u64 = (1 << HINT_SHIFT) - 8;
/// The store has this state of the page.
const WRITTEN: u64 = 1;
/// A thread is about to write this state of the page into the store.
const CAPTURED: u64 = 1 << 1;
const FLAGS: u64 = 7;
const INNER: u64 = 1 << HINT_SHIFT;
const DISTANCE_SHIFT: u32 = HINT_SHIFT + 1;
const DISTANCE_MASK: u64 = 0x7FF;
const REMOVED: u64 = 1 << 60;
const ABSENT: u64 = REMOVED | (STAMP_MASK + 1);
const STAMP_MASK: u64 = (1 << 59) - 1;
const EPOCH_BITS: u32 = 40;
const GENERATION_MASK: u64 = 0xF_FFFF;

/// A delta beside a base begins before this, from the base: the greatest distance that a link can
/// hold.
pub(crate) const MAX_DELTAS_END: u64 = (DISTANCE_MASK - 1) * DELTA_ALIGN;
/// Deltas stand at multiples of this from their base.
pub(crate) const DELTA_ALIGN: u64 = 32;
pub(crate) const HEADER_BYTES: u64 = 64;
pub(crate) const SLICES_AT: u64 = HEADER_BYTES;
pub(crate) const INFO_WORD: u64 = 0;
pub(crate) const SIZES_WORD: u64 = 1;
pub(crate) const RIGHT_WORD: u64 = 2;
pub(crate) const LOW_WORD: u64 = 3;
pub(crate) const HIGH_WORD: u64 = 4;
pub(crate) const SHAPE_WORD: u64 = 5;
/// The word that is zero.
pub(crate) const RESERVED_WORD: u64 = 6;
pub(crate) const HIGH_SLICE_WORD: u64 = 7;

/// Instead of a key's length: there is no key.
pub(crate) const NO_KEY: u32 = u32::MAX;

const _: () = {
    assert!(HIGH_SLICE_WORD * 8 + 8 == HEADER_BYTES);
    assert!(DISTANCE_SHIFT + 11 == 60 && REMOVED == 1 << 60);
    assert!((DISTANCE_MASK << DISTANCE_SHIFT | INNER) & (REMOVED | OFF_MASK) == 0);
    assert!(GENERATION_MASK << EPOCH_BITS < REMOVED);
    assert!(MAX_KEY_BYTES < 1 << 16 && (MAX_INLINE_BYTES as u64) < 1 << 15);
    assert!(16 + 2 * MAX_KEY_BYTES < 1 << 17, "what an index entry delete says fits its length");
    assert!(WORDS_AT < ANCHOR_BYTES && CHANGES_AT + 8 <= WORDS_AT && NUMBER_AT + 8 <= WORDS_AT);
    assert!(FLAGS & OFF_MASK == 0 && FLAGS & (WRITTEN | CAPTURED) == 3 && ABSENT == 0b11 << 59);
};

/// The content of a page's mapping word: where the newest record of its chain is, and where its
/// base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link(pub u64);

impl Link {
    /// The root of a tree that has never had a record: an empty leaf.
    pub const EMPTY: Self = Self(0);

    /// To a base page.
    pub fn base(off: u64, is_inner: bool) -> Self {
        Self(off | if is_inner { INNER } else { 0 })
    }

    /// To a delta that stands beside a chain's base.
    pub fn beside(base_off: u64, off: u64, is_inner: bool) -> Self {
        let distance = (off - base_off) / DELTA_ALIGN;
        debug_assert!(distance < DISTANCE_MASK, "a delta stands too far behind its base");
        Self(Self::base(off, is_inner).0 | distance << DISTANCE_SHIFT)
    }

    /// To a delta that is a block.
    pub fn block(off: u64, is_inner: bool) -> Self {
        Self(Self::base(off, is_inner).0 | DISTANCE_MASK << DISTANCE_SHIFT)
    }

    #[inline(always)]
    pub fn off(self) -> u64 {
        self.0 & OFF_MASK
    }

    #[inline(always)]
    pub fn is_inner(self) -> bool {
        self.0 & INNER != 0
    }

    /// The bits above the offset, for [`Descriptor::activate_with_hint`](pando_pmwcas::Descriptor).
    pub fn hint(self) -> u16 {
        (self.0 >> HINT_SHIFT) as u16
    }

    #[inline(always)]
    fn distance(self) -> u64 {
        self.0 >> DISTANCE_SHIFT & DISTANCE_MASK
    }

    /// Whether it leads to a base page, not to a delta.
    #[inline(always)]
    pub fn is_base(self) -> bool {
        self.distance() == 0
    }

    /// The base of the chain, if the link says where it is.
    #[inline(always)]
    pub fn base_off(self) -> Option<u64> {
        match self.distance() {
            DISTANCE_MASK => None,
            distance => Some(self.off().wrapping_sub(distance * DELTA_ALIGN) & OFF_MASK),
        }
    }

    /// The word of a page that was removed in that generation and epoch; epoch 0 if it is to be
    /// recorded later.
    pub fn removed(generation: u32, epoch: u64) -> Self {
        let epoch = epoch & ((1 << EPOCH_BITS) - 1);
        Self(REMOVED | (u64::from(generation) & GENERATION_MASK) << EPOCH_BITS | epoch)
    }

    /// The word of a page that is in the store alone. Each eviction has another stamp.
    pub fn absent(stamp: u64) -> Self {
        Self(ABSENT | stamp & STAMP_MASK)
    }

    /// Whether there is no page, or the page is absent.
    #[inline(always)]
    pub fn is_removed(self) -> bool {
        self.0 & REMOVED != 0
    }

    /// Whether the page is in the store alone. Only for a tree whose pages are in a store.
    pub fn is_absent(self) -> bool {
        self.0 & ABSENT == ABSENT
    }

    /// Whether the store has this state of the page.
    pub fn is_written(self) -> bool {
        self.0 & WRITTEN != 0
    }

    pub fn written(self) -> Self {
        Self(self.0 & !FLAGS | WRITTEN)
    }

    pub fn captured(self) -> Self {
        Self(self.0 | CAPTURED)
    }

    /// The link without flags, for another place than the page's own mapping word.
    pub fn content(self) -> Self {
        Self(self.0 & !FLAGS)
    }

    /// The link for the delta that is prepended to the page. It still says whether the store has
    /// this state.
    pub fn next(self) -> Self {
        let kept = if mutant!("bw-captured-taken-for-written") && self.0 & CAPTURED != 0 {
            WRITTEN
        } else {
            self.0 & WRITTEN
        };
        Self(self.0 & !FLAGS | kept)
    }

    /// When the page was removed, if that was in this generation.
    pub fn removal_epoch(self, generation: u32) -> Option<u64> {
        let of = self.0 >> EPOCH_BITS & GENERATION_MASK;
        (of == u64::from(generation) & GENERATION_MASK).then_some(self.0 & ((1 << EPOCH_BITS) - 1))
    }
}

/// The kind of a record of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Leaf = 1,
    Inner = 2,
    Insert = 3,
    Modify = 4,
    Delete = 5,
    Split = 6,
    IndexEntry = 7,
    IndexEntryDelete = 8,
    NodeMerge = 9,
    RemoveNode = 10,
    Partial = 12,
}

impl Kind {
    /// Checked: `None` for an unknown kind.
    #[inline(always)]
    pub fn decode(word: u64) -> Option<Self> {
        Some(match word & 0xF {
            1 => Self::Leaf,
            2 => Self::Inner,
            3 => Self::Insert,
            4 => Self::Modify,
            5 => Self::Delete,
            6 => Self::Split,
            7 => Self::IndexEntry,
            8 => Self::IndexEntryDelete,
            9 => Self::NodeMerge,
            10 => Self::RemoveNode,
            12 => Self::Partial,
            _ => return None,
        })
    }
}

/// The first word of a base page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageInfo {
    pub level: u8,
    /// All keys and all values are of one length each, and short.
    pub is_words: bool,
    pub prefix_bytes: u16,
    pub records: u32,
}

impl PageInfo {
    pub fn encode(self) -> u64 {
        self.encode_as(if self.level == 0 { Kind::Leaf } else { Kind::Inner })
    }

    /// The word of a page of this kind.
    pub fn encode_as(self, kind: Kind) -> u64 {
        u64::from(self.records) << 32
            | u64::from(self.prefix_bytes) << 16
            | u64::from(self.level) << 8
            | u64::from(self.is_words) << 4
            | kind as u64
    }

    #[inline(always)]
    pub fn decode(word: u64) -> Self {
        Self {
            level: (word >> 8) as u8,
            is_words: word & 1 << 4 != 0,
            prefix_bytes: (word >> 16) as u16,
            records: (word >> 32) as u32,
        }
    }
}

/// The place of a key and its value, in a page that has places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub at: u32,
    pub key_bytes: u16,
    pub value_bytes: u16,
    pub is_pointer: bool,
}

impl Place {
    pub fn encode(self) -> u64 {
        u64::from(self.is_pointer) << 63
            | u64::from(self.value_bytes) << 48
            | u64::from(self.key_bytes) << 32
            | u64::from(self.at)
    }

    #[inline(always)]
    pub fn decode(word: u64) -> Self {
        Self {
            at: word as u32,
            key_bytes: (word >> 32) as u16,
            value_bytes: (word >> 48) as u16 & 0x7FFF,
            is_pointer: word >> 63 != 0,
        }
    }
}

/// The position of a delta's key, if it is not known.
pub(crate) const NO_POSITION: u16 = 0x7FFF;

/// Where the key of a delta stands.
pub(crate) const KEY_AT: u64 = 16;

/// The bit of a delta's first word that is zero.
const ZERO_BIT: u64 = 1 << 5;

/// The first word of a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaInfo {
    pub kind: Kind,
    /// The value is a pointer.
    pub is_pointer: bool,
    /// The range of the index entry has no end.
    pub is_endless: bool,
    /// The delta is a block of its own.
    pub is_own: bool,
    pub key_bytes: u16,
    pub value_bytes: u32,
    pub position: u16,
    /// Deltas from here on, including this one; 255 means 255 or more.
    pub deltas: u8,
}

impl DeltaInfo {
    pub fn encode(self) -> u64 {
        u64::from(self.deltas) << 56
            | u64::from(self.position) << 41
            | u64::from(self.value_bytes) << 24
            | u64::from(self.key_bytes) << 8
            | u64::from(self.is_own) << 7
            | u64::from(self.is_endless) << 6
            | u64::from(self.is_pointer) << 4
            | self.kind as u64
    }

    /// Checked: `None` for a word that is no delta's.
    #[inline(always)]
    pub fn decode(word: u64) -> Option<Self> {
        let kind = Kind::decode(word)?;
        if matches!(kind, Kind::Leaf | Kind::Inner) || word & ZERO_BIT != 0 {
            return None;
        }
        Some(Self {
            kind,
            is_pointer: word & 1 << 4 != 0,
            is_endless: word & 1 << 6 != 0,
            is_own: word & 1 << 7 != 0,
            key_bytes: (word >> 8) as u16,
            value_bytes: (word >> 24) as u32 & 0x1_FFFF,
            position: (word >> 41) as u16 & NO_POSITION,
            deltas: (word >> 56) as u8,
        })
    }

    /// Where its value stands.
    #[inline(always)]
    pub fn value_at(self) -> u64 {
        KEY_AT + u64::from(self.key_bytes).next_multiple_of(8).max(8)
    }

    /// Its length in bytes.
    pub fn bytes(self) -> u64 {
        self.value_at() + u64::from(self.value_bytes).next_multiple_of(8)
    }

    /// Bytes that it takes of a delta space.
    pub fn room(self) -> u64 {
        self.bytes().next_multiple_of(DELTA_ALIGN)
    }
}

/// The start of the delta space of a page whose base ends at `base_bytes`; the claim stands in the
/// word before.
#[inline(always)]
pub(crate) fn deltas_at(base_bytes: u64) -> u64 {
    (base_bytes + 8).next_multiple_of(DELTA_ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_links() {
        assert_eq!(Link::base(0x1_0040, true).0, 0x0001_0000_0001_0040);
        let beside = Link::beside(0x1_0040, 0x1_00C0, false);
        assert_eq!(beside.0, 0x0008_0000_0001_00C0);
        assert_eq!((beside.base_off(), beside.is_base()), (Some(0x1_0040), false));
        let block = Link::block(0x40, false);
        assert_eq!((block.0, block.base_off()), (0x0FFE_0000_0000_0040, None));
        assert_eq!(block.hint(), 0xFFE);
        let far = Link::beside(0x1_0000, 0x1_0000 + MAX_DELTAS_END, false);
        assert_eq!(far.base_off(), Some(0x1_0000));
        let removed = Link::removed(0x12, 0x34);
        assert_eq!(removed.0, 0x1000_1200_0000_0034);
        assert!(removed.is_removed() && !block.is_removed() && !Link::EMPTY.is_removed());
        assert_eq!(removed.removal_epoch(0x12), Some(0x34));
        assert_eq!(removed.removal_epoch(0x13), None);
    }

    #[test]
    fn golden_words() {
        let info = PageInfo { level: 2, is_words: true, prefix_bytes: 0x304, records: 5 };
        assert_eq!(info.encode(), 0x0000_0005_0304_0212);
        assert_eq!(PageInfo::decode(info.encode()), info);
        let place = Place { at: 0x64, key_bytes: 3, value_bytes: 0x7FFF, is_pointer: true };
        assert_eq!(place.encode(), 0xFFFF_0003_0000_0064);
        assert_eq!(Place::decode(place.encode()), place);
        let delta = DeltaInfo {
            kind: Kind::IndexEntry,
            is_pointer: true,
            is_endless: true,
            is_own: true,
            key_bytes: 9,
            value_bytes: 0x1_0003,
            position: 0x102,
            deltas: 3,
        };
        assert_eq!(delta.encode(), 0x0302_0500_0300_09D7);
        assert_eq!(DeltaInfo::decode(delta.encode()), Some(delta));
        assert_eq!(DeltaInfo::decode(delta.encode() | ZERO_BIT), None);
        assert_eq!((KEY_AT, delta.value_at()), (16, 32));
        assert_eq!(DeltaInfo::decode(1), None);
        assert_eq!(DeltaInfo::decode(15), None);
    }
}
