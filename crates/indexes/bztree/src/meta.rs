//! The words of a leaf that change: a slot's metadata, and the gate.
//!
//! ```text
//! metadata  63..61 control  60..58 kind  57..48 fingerprint  47..32 place   31..16 key length  15..0 record length
//! reserved  63..61 control  60..58 one   57..42 hash   41..32 generation   31..16 key length  15..0 record length
//! gate      63..61 control  60 replaced  59 closed     58..0 version, raised by every opening
//! ```
//!
//! A place is the offset of the record in its leaf, in words; that of a deleted slot is the offset
//! of a key. The fingerprint is the upper part of the key's hash.
//!
//! The states of a slot have one direction:
//!
//! ```text
//! empty ── reserved ── inline, pointer, deleted      settled: it counts, and never changes
//!    │        └─────── aborted                       no record
//!    ├── deleted                                     a delete that writes no record
//!    └── closed ────── replaced                      no slot behind it is ever claimed
//!           └───────── aborted                       the leaf is open again, behind this slot
//! ```

use pando_pmem::mutant;
use pando_pmwcas::CONTROL_BITS;

use crate::layout::padded;

/// A slot's metadata: the place and state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta(pub u64);

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No thread has claimed it.
    Empty = 0,
    /// An operation is in progress, or was when its thread stopped.
    Reserved = 1,
    /// Key and value stand at the place.
    Inline = 2,
    /// The value's block and the key stand at the place.
    Pointer = 3,
    /// The key at the place is absent, unless a later slot has it.
    Deleted = 4,
    /// The operation was aborted.
    Aborted = 5,
    /// The leaf takes no more records.
    Closed = 6,
    /// The leaf is not part of the tree any more.
    Replaced = 7,
}

const KIND_SHIFT: u32 = 58;
const FINGERPRINT_SHIFT: u32 = 48;
const HASH_SHIFT: u32 = 42;
const PLACE_SHIFT: u32 = 32;
const KEY_SHIFT: u32 = 16;
/// The greatest length of a leaf, in bytes: places have sixteen bits.
pub(crate) const MAX_LEAF_BYTES: u64 = 8 << 16;
/// The bits that all slots of one key have in common, in each state.
const MATCH_MASK: u64 = 0x3FF << FINGERPRINT_SHIFT | 0xFFFF << KEY_SHIFT;

impl Meta {
    pub const EMPTY: Self = Self(0);
    pub const CLOSED: Self = Self((Kind::Closed as u64) << KIND_SHIFT);
    pub const REPLACED: Self = Self((Kind::Replaced as u64) << KIND_SHIFT);

    /// A claimed slot, for a key and a record of these lengths.
    pub fn reserved(generation: u32, hash: u16, key_bytes: u64, record_bytes: u64) -> Self {
        debug_assert!(key_bytes <= 0xFFFF && record_bytes <= 0xFFFF);
        Self(
            (Kind::Reserved as u64) << KIND_SHIFT
                | u64::from(hash) << HASH_SHIFT
                | u64::from(generation & 0x3FF) << PLACE_SHIFT
                | key_bytes << KEY_SHIFT
                | record_bytes,
        )
    }

    #[inline(always)]
    fn settled(kind: Kind, offset: u64, hash: u16, key_bytes: u64, record_bytes: u64) -> Self {
        // In an undamaged leaf the offset fits. In a damaged one it is checked as any other offset
        // (`bounds.rs`).
        Self(
            (kind as u64) << KIND_SHIFT
                | u64::from(hash >> 6) << FINGERPRINT_SHIFT
                | ((offset / 8) & 0xFFFF) << PLACE_SHIFT
                | key_bytes << KEY_SHIFT
                | record_bytes,
        )
    }

    /// A record that counts.
    #[inline(always)]
    pub fn visible(
        offset: u64,
        hash: u16,
        key_bytes: u64,
        record_bytes: u64,
        pointer: bool,
    ) -> Self {
        let kind = if pointer { Kind::Pointer } else { Kind::Inline };
        Self::settled(kind, offset, hash, key_bytes, record_bytes)
    }

    /// A slot that deletes the record's key; the key stays where it is.
    #[inline(always)]
    pub fn deleted(self, hash: u16) -> Self {
        Self::settled(Kind::Deleted, self.key_at(), hash, self.key_bytes(), 0)
    }

    /// The aborted state of a reserved or closed slot; it keeps its space.
    pub fn aborted(self) -> Self {
        Self((Kind::Aborted as u64) << KIND_SHIFT | self.record_bytes())
    }

    #[inline(always)]
    pub fn kind(self) -> Kind {
        match (self.0 >> KIND_SHIFT) & 7 {
            0 => Kind::Empty,
            1 => Kind::Reserved,
            2 => Kind::Inline,
            3 => Kind::Pointer,
            4 => Kind::Deleted,
            5 => Kind::Aborted,
            6 => Kind::Closed,
            _ => Kind::Replaced,
        }
    }

    /// Whether the slot counts: visible or deleted.
    #[inline(always)]
    pub fn is_settled(self) -> bool {
        matches!(self.kind(), Kind::Inline | Kind::Pointer | Kind::Deleted)
    }

    #[inline(always)]
    pub fn is_visible(self) -> bool {
        matches!(self.kind(), Kind::Inline | Kind::Pointer)
    }

    #[inline(always)]
    pub fn is_pointer(self) -> bool {
        self.kind() == Kind::Pointer
    }

    /// Whether the leaf takes no records behind this slot.
    #[inline(always)]
    pub fn is_closed(self) -> bool {
        matches!(self.kind(), Kind::Closed | Kind::Replaced)
    }

    /// The pattern for [`may_match`](Self::may_match).
    #[inline(always)]
    pub fn pattern(hash: u16, key_bytes: u64) -> u64 {
        u64::from(hash >> 6) << FINGERPRINT_SHIFT | key_bytes << KEY_SHIFT
    }

    /// Whether the slot may be of the key of `pattern`. The answer for an empty slot means nothing.
    #[inline(always)]
    pub fn may_match(self, pattern: u64) -> bool {
        (self.0 ^ pattern) & MATCH_MASK == 0
    }

    /// Whether the slot is in progress and may become a record of a key with this length and hash.
    /// An operation of an earlier generation is dead and will not.
    #[inline]
    pub fn may_become(self, generation: u32, hash: u16, key_bytes: u64) -> bool {
        self.0 & !0xFFFF == Self::reserved(generation, hash, key_bytes, 0).0
    }

    #[inline(always)]
    pub fn offset(self) -> u64 {
        ((self.0 >> PLACE_SHIFT) & 0xFFFF) * 8
    }

    #[inline(always)]
    pub fn key_bytes(self) -> u64 {
        (self.0 >> KEY_SHIFT) & 0xFFFF
    }

    /// Length of the record, unpadded.
    #[inline(always)]
    pub fn record_bytes(self) -> u64 {
        self.0 & 0xFFFF
    }

    /// Bytes that the slot takes of the records' space, in each state.
    #[inline(always)]
    pub fn padded_bytes(self) -> u64 {
        padded(self.record_bytes())
    }

    /// Offset of the key of a settled slot.
    #[inline(always)]
    pub fn key_at(self) -> u64 {
        if self.is_pointer() { self.offset() + 8 } else { self.offset() }
    }

    /// The same record at another offset, without a fingerprint.
    #[inline(always)]
    pub fn moved_to(self, offset: u64) -> Self {
        Self::settled(self.kind(), offset, 0, self.key_bytes(), self.record_bytes())
    }
}

/// The word that closes a leaf all of whose slots are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gate(pub u64);

const GATE_REPLACED: u64 = 1 << 60;
const GATE_CLOSED: u64 = 1 << 59;

impl Gate {
    #[inline(always)]
    pub fn is_closed(self) -> bool {
        self.0 & (GATE_CLOSED | GATE_REPLACED) != 0
    }

    pub fn is_replaced(self) -> bool {
        self.0 & GATE_REPLACED != 0
    }

    pub fn closed(self) -> Self {
        Self(self.0 | GATE_CLOSED)
    }

    pub fn replaced(self) -> Self {
        Self(self.0 | GATE_CLOSED | GATE_REPLACED)
    }

    /// The state after an opening, unlike any earlier state of the gate. At one opening per
    /// nanosecond the version lasts for 18 years.
    pub fn opened(self) -> Self {
        let raised = self.0 + if mutant!("same-gate-again") { 0 } else { 1 };
        Self(raised & (GATE_CLOSED - 1))
    }
}

/// Sixteen bits in which most keys differ.
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
    assert!(CONTROL_BITS & (7 << KIND_SHIFT) == 0 && KIND_SHIFT + 3 == 61);
    assert!((GATE_REPLACED | GATE_CLOSED) & CONTROL_BITS == 0);
    assert!(crate::layout::MAX_KEY_BYTES + 8 <= 0xFFFF);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_words() {
        let inline = Meta::visible(0x10, 0xABCD, 8, 16, false);
        assert_eq!(inline.0, 0x0AAF_0002_0008_0010);
        assert_eq!(Meta::visible(0x10, 0xABCD, 8, 16, true).0, 0x0EAF_0002_0008_0010);
        assert_eq!(inline.deleted(0xABCD).0, 0x12AF_0002_0008_0000);
        assert_eq!(Meta::reserved(0x401, 0xABCD, 8, 16).0, 0x06AF_3401_0008_0010);
        assert_eq!(Meta::reserved(0x401, 0xABCD, 8, 16).aborted().0, 0x1400_0000_0000_0010);
        assert_eq!(Meta::CLOSED.0, 0x1800_0000_0000_0000);
        assert_eq!(Meta::REPLACED.0, 0x1C00_0000_0000_0000);
        let gate = Gate(7).closed();
        assert_eq!((gate.0, gate.replaced().0), (0x0800_0000_0000_0007, 0x1800_0000_0000_0007));
        assert_eq!(gate.opened(), Gate(8));
        assert_eq!(Gate(GATE_CLOSED - 1).opened(), Gate(0));
    }

    #[test]
    fn kinds_of_a_slot() {
        let visible = Meta::visible(64, 99, 8, 16, false);
        let pointer = Meta::visible(64, 99, 8, 16, true);
        let reserved = Meta::reserved(7, 99, 8, 16);
        let kinds = [
            (Meta::EMPTY, Kind::Empty),
            (reserved, Kind::Reserved),
            (visible, Kind::Inline),
            (pointer, Kind::Pointer),
            (visible.deleted(99), Kind::Deleted),
            (reserved.aborted(), Kind::Aborted),
            (Meta::CLOSED, Kind::Closed),
            (Meta::REPLACED, Kind::Replaced),
        ];
        for (meta, kind) in kinds {
            assert_eq!(meta.kind(), kind);
            let settled = matches!(kind, Kind::Inline | Kind::Pointer | Kind::Deleted);
            assert_eq!(meta.is_settled(), settled);
            assert_eq!(meta.may_match(Meta::pattern(99, 8)), settled || kind == Kind::Reserved);
        }
        assert_eq!((pointer.key_at(), pointer.deleted(99).key_at()), (72, 72));
        assert_eq!(
            (reserved.aborted().padded_bytes(), visible.deleted(99).padded_bytes()),
            (16, 0)
        );
        assert!(!visible.may_match(Meta::pattern(99, 9)));
        assert!(!visible.may_match(Meta::pattern(99 + 64, 8)));
    }

    #[test]
    fn what_a_slot_may_become() {
        let reserved = Meta::reserved(7, 99, 8, 16);
        assert!(reserved.may_become(7, 99, 8) && reserved.may_become(7 + 1024, 99, 8));
        assert!(!reserved.may_become(8, 99, 8) && !reserved.may_become(7, 98, 8));
        assert!(!reserved.may_become(7, 99, 9));
        assert!(!reserved.aborted().may_become(7, 99, 8));
        assert!(!Meta::EMPTY.may_become(0, 0, 0));
    }
}
