//! The layout of nodes and the bits of their words (paper 4.1, figure 2).
//!
//! ```text
//! leaf
//! byte 0        8        16       24                        node_bytes
//!      header   status   shape    metadata ... free ... records, growing downwards
//!
//! inner node
//! byte 0        8        16       24          24 + 8 n
//!      header   status   shape    n children  n - 1 key places   keys     (keys of any length)
//!      header   status   shape    n children  n - 1 keys                  (all keys of 8 bytes)
//!
//! header       63..56 kind   55..48 zero      47..32 sorted records, or children   31..0 node_bytes
//! shape        63..48 zero   47..16 offset of the sorted records or keys  15..0 length of each, or 0
//! key place    63..32 offset                31..0 length
//! leaf status  63..61 control  60 frozen  59..44 records  43..22 bytes of records  21..0 deleted bytes
//! inner status 63..61 control  60 frozen  59..0 version, raised by every change of a child
//! metadata     63..61 control  60 visible  59 reserved  58 pointer  57..32 offset  31..16 key length
//!              15..0 record length
//! link         63..61 control  60 zero  59..48 hint  47..0 offset of a node
//! hint         of a leaf: 11 one  10..6 line of the first unsorted metadata  5..0 line of the
//!              first sorted record; of an inner node: 11 zero  10..0 children; zero if unknown
//! reserved     63..61 control  60 zero  59 one  58 zero  57..48 incarnation  47..32 hash of the key
//!              31..16 key length  15..0 record length
//! ```
//!
//! Offsets in a node count from its first byte. Records start at multiples of 8:
//!
//! ```text
//! inline   key, value, padding to 8
//! pointer  offset of the value's block (a word), key, padding to 8
//! value's block: length (a word), bytes
//! ```
//!
//! Links are what children and the entry word hold. The hint tells a descent which lines of a leaf
//! to ask for before it has seen the leaf's header; it is never more than a hint.
//!
//! A leaf's sorted records whose keys have 8 bytes, and which are equally long and inline, stand
//! in order, one length (padded) apart, so that a search needs no metadata. An inner node whose keys all
//! have 8 bytes keeps them side by side, without key places.

/// Bytes before the metadata of a leaf and the children of an inner node.
pub(crate) const HEADER_BYTES: u64 = 24;
pub(crate) const STATUS_AT: u64 = 8;
pub(crate) const SHAPE_AT: u64 = 16;

/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 32 * 1024;
/// Longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 30;
/// Smallest place that a record takes beside its metadata.
pub(crate) const MIN_RECORD_BYTES: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Leaf = 1,
    Inner = 2,
}

/// The first word of a node; never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    /// Sorted records of a leaf, or children of an inner node.
    pub count: u64,
    pub node_bytes: u64,
}

impl Header {
    pub fn encode(self) -> u64 {
        (self.kind as u64) << 56 | self.count << 32 | self.node_bytes
    }

    /// Checked: `None` for a word that cannot have been written.
    #[inline(always)]
    pub fn decode(word: u64) -> Option<Self> {
        let kind = match word >> 48 {
            0x0100 => Kind::Leaf,
            0x0200 => Kind::Inner,
            _ => return None,
        };
        Some(Self { kind, count: (word >> 32) & 0xFFFF, node_bytes: word & 0xFFFF_FFFF })
    }
}

/// The third word of a node; never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Offset of the first sorted record, or the first key.
    pub sorted_at: u64,
    /// Length of each sorted record or key, if keys have 8 bytes and all are alike; else zero.
    pub record_bytes: u64,
}

impl Shape {
    pub fn encode(self) -> u64 {
        self.sorted_at << 16 | self.record_bytes
    }

    #[inline(always)]
    pub fn decode(word: u64) -> Self {
        Self { sorted_at: (word >> 16) & 0xFFFF_FFFF, record_bytes: word & 0xFFFF }
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

/// What a link tells of the node's shape; offsets in the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Nothing is known.
    None,
    /// A leaf: the lines of the first unsorted metadata and of the first sorted record.
    Leaf { metadata_at: u64, sorted_at: u64 },
    /// An inner node with so many children.
    Inner { children: u64 },
}

impl Hint {
    pub fn encode(self) -> u16 {
        match self {
            Self::Leaf { metadata_at, sorted_at } if metadata_at < 2048 && sorted_at < 4096 => {
                LEAF_HINT | ((metadata_at / 64) as u16) << 6 | (sorted_at / 64) as u16
            }
            Self::Inner { children } if children < 2048 => children as u16,
            _ => 0,
        }
    }
}

impl Link {
    pub fn new(off: u64, hint: Hint) -> Self {
        Self(off | u64::from(hint.encode()) << 48)
    }

    #[inline(always)]
    pub fn off(self) -> u64 {
        self.0 & ((1 << 48) - 1)
    }

    #[inline(always)]
    pub fn hint_bits(self) -> u16 {
        (self.0 >> 48) as u16 & 0xFFF
    }

    #[inline(always)]
    pub fn hint(self) -> Hint {
        let bits = self.hint_bits();
        if bits & LEAF_HINT != 0 {
            Hint::Leaf {
                metadata_at: u64::from((bits >> 6) & 0x1F) * 64,
                sorted_at: u64::from(bits & 0x3F) * 64,
            }
        } else if bits != 0 {
            Hint::Inner { children: u64::from(bits) }
        } else {
            Hint::None
        }
    }
}

const FROZEN: u64 = 1 << 60;

/// The status word of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafStatus(pub u64);

const SIZE_MASK: u64 = (1 << 22) - 1;
/// The most records that a leaf's status can count.
pub(crate) const MAX_RECORDS: u64 = 0xFFFF;

impl LeafStatus {
    pub fn new(records: u64, block_bytes: u64, deleted_bytes: u64) -> Self {
        debug_assert!(records <= MAX_RECORDS && block_bytes <= SIZE_MASK);
        Self(records << 44 | block_bytes << 22 | deleted_bytes)
    }

    #[inline(always)]
    pub fn is_frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    pub fn frozen(self) -> Self {
        Self(self.0 | FROZEN)
    }

    /// Frozen for good: the leaf is being replaced. The count of deleted bytes is full then.
    pub fn replaced(self) -> Self {
        Self(self.0 | FROZEN | SIZE_MASK)
    }

    /// Not frozen any more, and unlike any status that the leaf had before, which only rise: a
    /// byte more counts as deleted. `None` if the leaf may have been replaced.
    pub fn thawed(self) -> Option<Self> {
        (self.deleted_bytes() < SIZE_MASK - 1).then(|| Self((self.0 & !FROZEN) + 1))
    }

    #[inline(always)]
    pub fn records(self) -> u64 {
        (self.0 >> 44) & MAX_RECORDS
    }

    /// Bytes of the record storage block.
    #[inline(always)]
    pub fn block_bytes(self) -> u64 {
        (self.0 >> 22) & SIZE_MASK
    }

    /// Bytes of records and metadata that are deleted or superseded.
    #[inline(always)]
    pub fn deleted_bytes(self) -> u64 {
        self.0 & SIZE_MASK
    }

    /// Bytes that a copy of the live records would take, metadata included.
    pub fn live_bytes(self) -> u64 {
        (self.records() * 8 + self.block_bytes()).saturating_sub(self.deleted_bytes())
    }

    /// With one more record of `bytes` bytes; `None` if the leaf of `node_bytes` has no room.
    #[inline(always)]
    pub fn with_record(self, bytes: u64, node_bytes: u64) -> Option<Self> {
        let records = self.records() + 1;
        let block_bytes = self.block_bytes() + bytes;
        let fits = HEADER_BYTES + records * 8 + block_bytes <= node_bytes
            && records <= MAX_RECORDS
            && block_bytes <= SIZE_MASK;
        fits.then(|| {
            Self((self.0 & FROZEN) | Self::new(records, block_bytes, self.deleted_bytes()).0)
        })
    }

    /// With a record of `bytes` bytes, and its metadata, deleted.
    pub fn with_deleted(self, bytes: u64) -> Self {
        let deleted = (self.deleted_bytes() + bytes + 8).min(SIZE_MASK);
        Self((self.0 & !SIZE_MASK) | deleted)
    }
}

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

    /// After a change of a child. At a change a nanosecond the version lasts for 36 years.
    pub fn next(self) -> Self {
        Self((self.0 & FROZEN) | ((self.0 & (FROZEN - 1)) + 1) & (FROZEN - 1))
    }
}

/// A metadata word: where a record is and what state it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta(pub u64);

const VISIBLE: u64 = 1 << 60;
const RESERVED: u64 = 1 << 59;
const POINTER: u64 = 1 << 58;
const OFFSET_MASK: u64 = (1 << 26) - 1;
const LENGTHS_MASK: u64 = 0xFFFF_FFFF;

/// What a metadata word says of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// The record counts.
    Visible,
    /// The record's key is deleted, if no later record says otherwise.
    Deleted,
    /// An insert or update is under way, or was when the process died.
    InProgress,
    /// An insert or update that came to nothing.
    Aborted,
}

impl Meta {
    /// The slot was counted, and its owner has not said for which key.
    pub const UNMARKED: Self = Self(0);
    /// The slot's operation came to nothing.
    pub const ABORTED: Self = Self(1);

    pub fn visible(offset: u64, key_bytes: u64, record_bytes: u64, pointer: bool) -> Self {
        let pointer = if pointer { POINTER } else { 0 };
        debug_assert!(offset <= OFFSET_MASK && key_bytes <= 0xFFFF && record_bytes <= 0xFFFF);
        Self(VISIBLE | pointer | offset << 32 | key_bytes << 16 | record_bytes)
    }

    pub fn reserved(incarnation: u32, hash: u16, key_bytes: u64, record_bytes: u64) -> Self {
        let incarnation = u64::from(incarnation) & 0x3FF;
        Self(RESERVED | incarnation << 48 | u64::from(hash) << 32 | key_bytes << 16 | record_bytes)
    }

    pub fn deleted(self) -> Self {
        Self(self.0 & !VISIBLE)
    }

    #[inline(always)]
    pub fn state(self) -> SlotState {
        if self.0 & VISIBLE != 0 {
            SlotState::Visible
        } else if self.0 & RESERVED != 0 || self == Self::UNMARKED {
            SlotState::InProgress
        } else if self.offset() == 0 {
            SlotState::Aborted
        } else {
            SlotState::Deleted
        }
    }

    /// Whether the slot is visible or deleted.
    #[inline(always)]
    pub fn is_settled(self) -> bool {
        self.0 & RESERVED == 0 && self.offset() != 0
    }

    /// Whether the slot is visible or deleted, inline, with a key of eight bytes, and its word not
    /// under a PMwCAS.
    #[inline(always)]
    pub fn is_settled_inline_of_8(self) -> bool {
        const DECIDING: u64 = pando_pmwcas::CONTROL_BITS | RESERVED | POINTER | 0xFFFF << 16;
        // Slots that are unmarked or aborted have no key length.
        self.0 & DECIDING == 8 << 16
    }

    /// Whether the slot is in progress and may turn out to be of a key with this length and hash.
    /// An operation of an earlier incarnation is dead and will not.
    pub fn may_become(self, incarnation: u32, hash: u16, key_bytes: u64) -> bool {
        if self == Self::UNMARKED {
            return true;
        }
        let wanted = Self::reserved(incarnation, hash, key_bytes, 0).0;
        self.0 & RESERVED != 0 && self.0 & !0xFFFF == wanted
    }

    #[inline(always)]
    pub fn is_visible(self) -> bool {
        self.0 & VISIBLE != 0
    }

    #[inline(always)]
    pub fn is_pointer(self) -> bool {
        self.0 & POINTER != 0
    }

    #[inline(always)]
    pub fn offset(self) -> u64 {
        (self.0 >> 32) & OFFSET_MASK
    }

    #[inline(always)]
    pub fn key_bytes(self) -> u64 {
        (self.0 >> 16) & 0xFFFF
    }

    /// Length of the record, unpadded.
    #[inline(always)]
    pub fn record_bytes(self) -> u64 {
        self.0 & 0xFFFF
    }

    /// Length that the record takes of the record storage block.
    #[inline(always)]
    pub fn padded_bytes(self) -> u64 {
        padded(self.record_bytes())
    }

    /// Offset of the key.
    #[inline(always)]
    pub fn key_at(self) -> u64 {
        if self.is_pointer() { self.offset() + 8 } else { self.offset() }
    }

    /// The same record at another offset.
    pub fn moved_to(self, offset: u64) -> Self {
        Self(self.0 & !(OFFSET_MASK << 32) | offset << 32)
    }
}

/// Slots that `room` bytes between the sorted metadata and the sorted records are enough for.
pub(crate) fn free_slots(room: u64) -> u64 {
    room / (8 + MIN_RECORD_BYTES)
}

#[inline(always)]
pub(crate) fn padded(record_bytes: u64) -> u64 {
    record_bytes.next_multiple_of(8).max(MIN_RECORD_BYTES)
}

/// Sixteen bits that tell most keys apart, for slots in progress.
#[inline(always)]
pub(crate) fn key_hash(key: &[u8]) -> u16 {
    let (words, rest) = key.as_chunks::<8>();
    let mut hash = 0x9E37_79B9_7F4A_7C15_u64 ^ key.len() as u64;
    for word in words {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        hash ^= hash >> 32;
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        hash ^= hash >> 32;
    }
    (hash >> 16) as u16
}

const _: () = {
    use pando_pmwcas::CONTROL_BITS;
    assert!((FROZEN | VISIBLE | RESERVED | POINTER) & CONTROL_BITS == 0);
    assert!(LENGTHS_MASK & (OFFSET_MASK << 32) == 0);
    assert!((OFFSET_MASK << 32) & POINTER == 0);
    assert!(MAX_KEY_BYTES + 8 <= 0xFFFF);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_words() {
        let header = Header { kind: Kind::Leaf, count: 0x12, node_bytes: 0x800 };
        assert_eq!(header.encode(), 0x0100_0012_0000_0800);
        assert_eq!(Header::decode(header.encode()), Some(header));
        assert_eq!(Header::decode(0x0300_0000_0000_0000), None);
        assert_eq!(Shape { sorted_at: 0x123, record_bytes: 16 }.encode(), 0x0000_0000_0123_0010);
        assert_eq!(LeafStatus::new(2, 3, 4).0, 2 << 44 | 3 << 22 | 4);
        assert_eq!(LeafStatus::new(2, 3, 4).frozen().0, 1 << 60 | 2 << 44 | 3 << 22 | 4);
        assert_eq!(Meta::visible(0x10, 8, 16, false).0, 0x1000_0010_0008_0010);
        assert_eq!(Meta::visible(0x10, 8, 16, true).0, 0x1400_0010_0008_0010);
        assert_eq!(Meta::reserved(0x401, 0xABCD, 8, 16).0, 0x0801_ABCD_0008_0010);
    }

    #[test]
    fn links_carry_an_offset_and_a_hint() {
        let leaf = Link::new(0x1234_5678_9ABC, Hint::Leaf { metadata_at: 424, sorted_at: 1000 });
        assert_eq!(leaf.0, 0x098F_1234_5678_9ABC);
        assert_eq!(leaf.off(), 0x1234_5678_9ABC);
        assert_eq!(leaf.hint(), Hint::Leaf { metadata_at: 384, sorted_at: 960 });
        let inner = Link::new(64, Hint::Inner { children: 253 });
        assert_eq!((inner.0, inner.hint()), (0x00FD_0000_0000_0040, Hint::Inner { children: 253 }));
        let wide = Hint::Leaf { metadata_at: 2048, sorted_at: 64 };
        assert_eq!(Link::new(64, wide).hint(), Hint::None);
        assert_eq!(Link::new(64, Hint::Inner { children: 2048 }).hint(), Hint::None);
    }

    #[test]
    fn states_of_a_slot() {
        let visible = Meta::visible(64, 8, 16, false);
        assert_eq!(visible.state(), SlotState::Visible);
        assert_eq!(visible.deleted().state(), SlotState::Deleted);
        assert_eq!(Meta::UNMARKED.state(), SlotState::InProgress);
        assert_eq!(Meta::ABORTED.state(), SlotState::Aborted);
        let reserved = Meta::reserved(7, 99, 8, 16);
        assert_eq!(reserved.state(), SlotState::InProgress);
        assert!(reserved.may_become(7, 99, 8));
        assert!(!reserved.may_become(8, 99, 8) && !reserved.may_become(7, 98, 8));
        assert!(!reserved.may_become(7, 99, 9));
        for meta in [visible, visible.deleted(), Meta::UNMARKED, Meta::ABORTED, reserved] {
            let settled = matches!(meta.state(), SlotState::Visible | SlotState::Deleted);
            assert_eq!(meta.is_settled(), settled);
            assert_eq!(meta.is_settled_inline_of_8(), settled);
        }
    }

    #[test]
    fn fields_do_not_overflow() {
        let full = LeafStatus::new(MAX_RECORDS, 0, 0);
        assert_eq!(full.with_record(8, u64::MAX), None);
        let wide = LeafStatus::new(0, SIZE_MASK, 0);
        assert_eq!(wide.with_record(8, u64::MAX), None);
        let deleted = LeafStatus::new(1, 2, SIZE_MASK - 4).with_deleted(100);
        assert_eq!((deleted.deleted_bytes(), deleted.records()), (SIZE_MASK, 1));
        assert_eq!(deleted.thawed(), None);
        let frozen = LeafStatus::new(1, 2, 3).frozen();
        assert_eq!(frozen.thawed(), Some(LeafStatus::new(1, 2, 4)));
        assert_eq!((frozen.replaced().thawed(), frozen.replaced().records()), (None, 1));
        let last = InnerStatus((1 << 60) - 1);
        assert_eq!(last.next(), InnerStatus(0));
    }
}
