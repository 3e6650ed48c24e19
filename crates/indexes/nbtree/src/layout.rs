//! The block of a leaf's records, and its words: the key-value layer (paper 3.1).
//!
//! ```text
//! byte   0        8        16       24       32       40       48       56
//! 0      next     mark     zero ...
//! 64     classes  key 0    value 0  key 1    value 1  key 2    value 2  zero
//! 128    classes  key 3    value 3  key 4    ...
//! ...                                                                              to 1,024: 45 slots
//! ```
//!
//! * `next`: the block of the next leaf, zero behind the last. With [`REPLACED`] the leaf is
//!   replaced, and the rest of `next` has not changed since. A word of PMwCAS.
//! * `mark`: [`LEAF_MARK`] and, in the low 8 bits, the number of slots of the block.
//! * A slot's `key` is the first eight bytes of the key as a big-endian number, with zeros behind a
//!   shorter key.
//! * A record may be in any slot. It is put into the *home* line of its fingerprint, or the first
//!   line behind it that has room. So a search can fetch the home line while it waits for the
//!   leaf's metadata (`tree.rs`).
//! * `classes`: two bits a slot: the top two bits of the value for which the slot was filled.
//!
//! The top two bits of a *value word* decide what its slot holds:
//!
//! ```text
//! bit   63 62   61 60   59 .. 48   47 .. 0
//!       0  0    value, its lower 62 bits             the slot's key is exactly the eight bytes
//!       0  1    value, its lower 62 bits             the same, PENDING: not inserted yet
//!       1  0    value, its lower 62 bits             the same, CLOSED: its leaf is being replaced
//!       1  1    flags   0          0                 never used
//!       1  1    flags   1          0                 deleted; this never changes
//!       1  1    flags   2          block             a record in a block of its own
//!                                                    flags: 1 PENDING, 2 CLOSED
//! ```
//!
//! The paper takes the top two bits from the user's value. Here they are in `classes`, and every
//! value is allowed: a value of eight bytes whose top two bits are not those of its slot has a
//! block of its own ([`pando_tree::record_block`]).
//!
//! After a crash a slot is live if its value word holds a value or a block and is not pending.

use pando_pmem::Exclusive;
pub(crate) use pando_tree::key::LIMITS;
pub use pando_tree::key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use pando_tree::record_block::KeyLength;

/// Bytes of a line of the pool.
pub(crate) const LINE_BYTES: u64 = 64;
/// Slots of a line.
pub(crate) const SLOTS_A_LINE: u64 = 3;
/// Most slots of a leaf.
pub(crate) const MAX_SLOTS: usize = 45;
/// Words of the largest block.
pub(crate) const BLOCK_WORDS: usize = 128;

/// Offset of the word that names the next leaf.
pub(crate) const NEXT_AT: u64 = 0;
/// Offset of the mark.
pub(crate) const MARK_AT: u64 = 8;
/// In the word that names the next leaf: this leaf is replaced.
pub(crate) const REPLACED: u64 = 1 << 48;
/// The upper bytes of the mark.
pub(crate) const LEAF_MARK: u64 = u64::from_be_bytes(*b"NBTree1\0");
/// The bits of a word that hold a block's offset.
pub(crate) const BLOCK_MASK: u64 = (1 << 48) - 1;

/// The layout of a record's block.
pub(crate) const RECORD: KeyLength = KeyLength::Upper;

/// The bits of a value that its value word holds.
const VALUE_BITS: u32 = 62;
const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;
const PENDING: u64 = 1 << 62;
const CLOSED: u64 = 1 << 63;
const SPECIAL: u64 = 3 << 62;
const SPECIAL_PENDING: u64 = 1 << 60;
const SPECIAL_CLOSED: u64 = 1 << 61;
const KIND_SHIFT: u32 = 48;
const KIND_MASK: u64 = 0xFFF << KIND_SHIFT;
const DELETED_KIND: u64 = 1 << KIND_SHIFT;
const RECORD_KIND: u64 = 2 << KIND_SHIFT;

/// The value word of a slot that was never used.
pub(crate) const EMPTY: u64 = SPECIAL;
/// The value word of a slot whose record was deleted.
pub(crate) const DELETED: u64 = SPECIAL | DELETED_KIND;
/// The bits beside a block's offset in the value word of a record.
pub(crate) const RECORD_TAG: u64 = SPECIAL | RECORD_KIND;
/// The bits of a record's value word that decide whether it names its block: all except the closed
/// bit.
pub(crate) const STABLE_BITS: u64 = !SPECIAL_CLOSED;

const _: () = {
    assert!(BLOCK_WORDS as u64 * 8 == LINE_BYTES * (1 + MAX_SLOTS as u64 / SLOTS_A_LINE));
    assert!((MAX_SLOTS as u64).is_multiple_of(SLOTS_A_LINE));
    assert!(8 + 16 * SLOTS_A_LINE + 8 == LINE_BYTES);
    assert!(MAX_SLOTS <= u8::MAX as usize);
};

/// Bytes of a block with so many slots.
pub(crate) const fn block_bytes(slots: usize) -> u64 {
    LINE_BYTES * (1 + (slots as u64).div_ceil(SLOTS_A_LINE))
}

/// The mark of a block with so many slots.
pub(crate) const fn mark(slots: usize) -> u64 {
    LEAF_MARK | slots as u64
}

/// Offset in the block of the classes of the slot's line.
#[inline(always)]
pub(crate) fn classes_at(slot: usize) -> u64 {
    LINE_BYTES * (1 + slot as u64 / SLOTS_A_LINE)
}

/// Offset in the block of the slot's key; its value follows.
#[inline(always)]
pub(crate) fn key_at(slot: usize) -> u64 {
    classes_at(slot) + 8 + slot as u64 % SLOTS_A_LINE * 16
}

/// Offset in the block of the slot's value word.
#[inline(always)]
pub(crate) fn value_at(slot: usize) -> u64 {
    key_at(slot) + 8
}

/// The first slot of the home line of a key with this fingerprint, in a leaf of so many slots.
#[inline(always)]
pub(crate) fn home_slot(fingerprint: u8, slots: usize) -> usize {
    let lines = slots.div_ceil(SLOTS_A_LINE as usize);
    ((usize::from(fingerprint) * lines) >> 8) * SLOTS_A_LINE as usize
}

/// The free slot that a key with this fingerprint takes: the first one from its home on,
/// cyclically.
#[inline(always)]
pub(crate) fn slot_to_take(free: u64, fingerprint: u8, slots: usize) -> Option<usize> {
    let home = home_slot(fingerprint, slots);
    let ahead = free & u64::MAX << home;
    let chosen = if ahead == 0 { free } else { ahead };
    (chosen != 0).then_some(chosen.trailing_zeros() as usize)
}

/// The shift of the slot's class in the word of its line.
#[inline(always)]
pub(crate) fn class_shift(slot: usize) -> u32 {
    (slot as u64 % SLOTS_A_LINE) as u32 * 2
}

/// The class of the slot in the word of its line.
#[inline(always)]
pub(crate) fn class_of(classes: u64, slot: usize) -> u64 {
    (classes >> class_shift(slot)) & 3
}

/// A value of eight bytes as a number, split into class and value word.
#[inline(always)]
pub(crate) fn split_value(value: u64) -> (u64, u64) {
    (value >> VALUE_BITS, value & VALUE_MASK)
}

/// The value that a value word holds, given its slot's class.
#[inline(always)]
pub(crate) fn join_value(class: u64, word: u64) -> u64 {
    class << VALUE_BITS | word & VALUE_MASK
}

/// The content of a slot by its value word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Never used.
    Empty,
    /// A deleted record.
    Deleted,
    /// A value of a key of exactly eight bytes.
    Value,
    /// A record in the block at this offset.
    Record(u64),
    /// No code writes such a word.
    Damaged,
}

/// The content of a slot by its value word, without its flags.
#[inline(always)]
pub(crate) fn content(word: u64) -> Content {
    if word & SPECIAL != SPECIAL {
        return Content::Value;
    }
    let off = word & BLOCK_MASK;
    match word & KIND_MASK {
        0 if off == 0 => Content::Empty,
        DELETED_KIND if off == 0 => Content::Deleted,
        RECORD_KIND => Content::Record(off),
        _ => Content::Damaged,
    }
}

/// Whether the slot holds a value of a key of exactly eight bytes, and has no flag.
#[inline(always)]
pub(crate) fn is_plain_value(word: u64) -> bool {
    word & SPECIAL == 0
}

/// Whether the slot's record is not inserted yet.
#[inline(always)]
pub(crate) fn is_pending(word: u64) -> bool {
    if word & SPECIAL == SPECIAL { word & SPECIAL_PENDING != 0 } else { word & PENDING != 0 }
}

/// Whether the leaf is being replaced, and the content is final.
#[inline(always)]
pub(crate) fn is_closed(word: u64) -> bool {
    if word & SPECIAL == SPECIAL { word & SPECIAL_CLOSED != 0 } else { word & CLOSED != 0 }
}

/// The same content, pending.
#[inline(always)]
pub(crate) fn pending(word: u64) -> u64 {
    if word & SPECIAL == SPECIAL { word | SPECIAL_PENDING } else { word | PENDING }
}

/// The same content, closed.
#[inline(always)]
pub(crate) fn closed(word: u64) -> u64 {
    if word & SPECIAL == SPECIAL { word | SPECIAL_CLOSED } else { word | CLOSED }
}

/// The same content without flags.
#[inline(always)]
pub(crate) fn plain(word: u64) -> u64 {
    if word & SPECIAL == SPECIAL {
        word & !(SPECIAL_PENDING | SPECIAL_CLOSED)
    } else {
        word & VALUE_MASK
    }
}

/// The value word of a record in the block at `off`.
#[cfg(test)]
pub(crate) fn record_word(off: u64) -> u64 {
    RECORD_TAG | off
}

/// The words of a block that no other thread can see yet.
#[derive(Debug)]
pub(crate) struct Image {
    words: [u64; BLOCK_WORDS],
    slots: usize,
}

impl Image {
    /// An empty leaf of so many slots before the leaf at `next`.
    pub fn new(slots: usize, next: u64) -> Self {
        let mut words = [0; BLOCK_WORDS];
        words[(NEXT_AT / 8) as usize] = next;
        words[(MARK_AT / 8) as usize] = mark(slots);
        for slot in 0..slots.next_multiple_of(SLOTS_A_LINE as usize) {
            words[(value_at(slot) / 8) as usize] = EMPTY;
        }
        Self { words, slots }
    }

    /// Fills a slot.
    pub fn fill(&mut self, slot: usize, slice: u64, class: u64, word: u64) {
        self.words[(key_at(slot) / 8) as usize] = slice;
        self.words[(value_at(slot) / 8) as usize] = word;
        self.words[(classes_at(slot) / 8) as usize] |= class << class_shift(slot);
    }

    /// The bytes of the block.
    pub fn bytes(&self) -> Vec<u8> {
        let words = block_bytes(self.slots) as usize / 8;
        self.words[..words].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Copies the block's bytes into `block`.
    pub fn write_to(&self, mut block: Exclusive<'_>) {
        let words = &self.words[..block_bytes(self.slots) as usize / 8];
        for (index, &word) in words.iter().enumerate() {
            block.write_u64(index * 8, word);
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_tree::key::slice_of;

    use super::*;

    #[test]
    fn golden_leaf() {
        let mut image = Image::new(3, 0x1_0000);
        image.fill(0, slice_of(b"ash"), 3, split_value(u64::MAX).1);
        image.fill(1, 0, 0, record_word(0x2_0040));
        let expected: [&[u8]; 10] = [
            &[0, 0, 1, 0, 0, 0, 0, 0, 3, 49, 101, 101, 114, 84, 66, 78],
            &[0; 48],
            &[3, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0, b'h', b's', b'a'],
            &[255, 255, 255, 255, 255, 255, 255, 0x3F],
            &[0; 8],
            &[0x40, 0, 2, 0, 0, 0, 2, 0xC0],
            &[0; 8],
            &[0, 0, 0, 0, 0, 0, 0, 0xC0],
            &[0; 8],
        ];
        assert_eq!(image.bytes(), expected.concat());
    }

    #[test]
    fn golden_words() {
        assert_eq!((EMPTY, DELETED), (0xC000_0000_0000_0000, 0xC001_0000_0000_0000));
        assert_eq!(record_word(0x40), 0xC002_0000_0000_0040);
        assert_eq!(pending(5), 0x4000_0000_0000_0005);
        assert_eq!(closed(5), 0x8000_0000_0000_0005);
        assert_eq!(pending(record_word(0x40)), 0xD002_0000_0000_0040);
        assert_eq!(closed(record_word(0x40)), 0xE002_0000_0000_0040);
    }

    #[test]
    fn copy_and_sync_bits_never_show() {
        for value in [0, 1, u64::MAX, 1 << 63, 1 << 62, 3 << 62, 1 << 61, 7 << 61, u64::MAX >> 1] {
            let (class, word) = split_value(value);
            for flagged in [word, pending(word), closed(word)] {
                assert_eq!(content(flagged), Content::Value);
                assert_eq!(plain(flagged), word);
                assert_eq!(join_value(class, flagged), value);
            }
            assert!(is_pending(pending(word)) && is_closed(closed(word)));
            assert!(!is_pending(word) && !is_closed(word));
        }
    }

    #[test]
    fn records_keep_their_block_under_flags() {
        let word = record_word(BLOCK_MASK & !63);
        for flagged in [word, pending(word), closed(word)] {
            assert_eq!(content(flagged), Content::Record(BLOCK_MASK & !63));
            assert_eq!(plain(flagged), word);
        }
        assert_eq!(closed(word) & STABLE_BITS, word);
        assert_ne!(pending(word) & STABLE_BITS, word);
    }

    #[test]
    fn every_fingerprint_has_a_home_and_every_free_slot_is_taken() {
        for slots in 1..=MAX_SLOTS {
            for fingerprint in 0..=u8::MAX {
                let home = home_slot(fingerprint, slots);
                assert!(home < slots && home.is_multiple_of(SLOTS_A_LINE as usize));
                let mut free = (1 << slots) - 1;
                for turn in 0..slots {
                    let taken = slot_to_take(free, fingerprint, slots);
                    assert_eq!(taken, Some((home + turn) % slots), "{fingerprint} of {slots}");
                    free &= !(1 << ((home + turn) % slots));
                }
                assert_eq!(slot_to_take(free, fingerprint, slots), None);
            }
        }
        assert_eq!(home_slot(u8::MAX, MAX_SLOTS), MAX_SLOTS - SLOTS_A_LINE as usize);
    }

    #[test]
    fn slots_lie_in_one_line_and_nowhere_twice() {
        let mut places = std::collections::BTreeSet::new();
        for slot in 0..MAX_SLOTS {
            assert_eq!(key_at(slot) / 64, value_at(slot) / 64);
            assert_eq!(key_at(slot) / 64, classes_at(slot) / 64);
            assert!(places.insert(key_at(slot)) && places.insert(value_at(slot)));
            assert!(value_at(slot) + 8 <= block_bytes(MAX_SLOTS));
        }
    }
}
