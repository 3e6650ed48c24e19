//! The block of a node.
//!
//! ```text
//! byte   0         8         16        24        32        40        48        56
//! 0      next 0    prev      state     small     info      slice     next 1    next 2
//! 64     slice     next 3    ..  next h-1, tail: the key's bytes from the ninth on, then the inline value
//! ```
//!
//! * `next i`: the successor on level `i`, with a hint of its key (`hint.rs`). There are only `h`
//!   of them, so the tail of a node of height 1 begins at byte 48, of height 3 at byte 64. The last
//!   node's successor is the head. Bit 0 ([`MARK`]): the node is unlinked from that level, and the
//!   word never changes again.
//! * `prev`: the predecessor on level 0; for the first node, the head.
//! * `state`, `small`: liveness, links and value (`state.rs`).
//! * `info`: bits 7 .. 0 the height `h`; 31 .. 8 the bytes of the key; 63 .. 32 the bytes of the
//!   inline value.
//! * `slice`: the first eight bytes of the key as a number with the same order; a shorter key is
//!   filled up with zeros. It is repeated before `next 3`, so that a search on the upper levels
//!   reads only that line.
//!
//! `info`, `slice` and the tail never change. A node of height 3 or less, with a key and a value of
//! eight bytes each, is one cache line. The *head* is a node of height [`MAX_HEIGHT`] without a
//! key. It stands before the first and behind the last node: all words of an empty list name the
//! head. Its `slice` is zero, and its `small` is the seed of the map's heights.
//!
//! For a value's block, see [`pando_tree::value_block`].

use pando_pmwcas::{HINT_SHIFT, MAX_VALUE};
pub(crate) use pando_tree::key::LIMITS;
use pando_tree::key::SLICE_BYTES;
pub use pando_tree::key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// The most levels on which one operation links a node, beside the successor's `prev` and the
/// value's block.
pub(crate) const MAX_LEVELS_AT_ONCE: u32 = pando_pmwcas::MAX_WORDS as u32 - 2;

/// Levels of the head, and of the highest node. About half of the nodes of a level are on the next
/// one (`height.rs`), so with up to sixteen million records a search takes no extra steps, and with
/// more only a few.
pub const MAX_HEIGHT: usize = 24;
/// The longest inline value, in bytes.
pub(crate) const MAX_INLINE_BYTES: u32 = 16 * 1024;

pub(crate) const PREV_AT: u64 = 8;
pub(crate) const STATE_AT: u64 = 16;
pub(crate) const SMALL_AT: u64 = 24;
pub(crate) const INFO_AT: u64 = 32;
pub(crate) const SLICE_AT: u64 = 40;
const UPPER_AT: u64 = 48;
/// Offset of the second copy of the slice, in nodes higher than [`LOW_LEVELS`].
pub(crate) const HIGH_SLICE_AT: u64 = 64;
/// Levels whose words are in the first line.
pub(crate) const LOW_LEVELS: usize = 3;

/// In a `next` word: its node is unlinked from that level.
pub(crate) const MARK: u64 = 1;
/// The bits of a `next` word that are the offset.
pub(crate) const OFF_MASK: u64 = (1 << HINT_SHIFT) - 1 - MARK;

const _: () = {
    assert!(next_at(0) == 0 && next_at(1) == UPPER_AT && next_at(LOW_LEVELS) == HIGH_SLICE_AT + 8);
    assert!(tail_at(LOW_LEVELS) == 64, "a node of height 3 without a tail is a line");
    assert!(MAX_KEY_BYTES < 1 << 24 && MAX_HEIGHT < 1 << 5);
    assert!((0xFFF << HINT_SHIFT) + OFF_MASK + MARK <= MAX_VALUE);
};

/// Offset in a node of its successor on `level`.
#[inline(always)]
pub(crate) const fn next_at(level: usize) -> u64 {
    match level {
        0 => 0,
        1..LOW_LEVELS => UPPER_AT + (level as u64 - 1) * 8,
        _ => HIGH_SLICE_AT + 8 + (level - LOW_LEVELS) as u64 * 8,
    }
}

/// Offset of the slice that a search on `level` reads.
#[inline(always)]
pub(crate) const fn slice_at(level: usize) -> u64 {
    if level < LOW_LEVELS { SLICE_AT } else { HIGH_SLICE_AT }
}

/// Offset of the tail of a node of that height.
#[inline(always)]
pub(crate) const fn tail_at(height: usize) -> u64 {
    if height <= LOW_LEVELS { UPPER_AT + (height as u64 - 1) * 8 } else { next_at(height) }
}

/// The constant properties of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    pub height: usize,
    pub key_bytes: usize,
    pub inline_bytes: u32,
}

impl Info {
    pub const fn encode(self) -> u64 {
        self.height as u64 | (self.key_bytes as u64) << 8 | (self.inline_bytes as u64) << 32
    }

    #[inline(always)]
    pub const fn decode(word: u64) -> Self {
        Self {
            height: (word & 0xFF) as usize,
            key_bytes: (word >> 8 & 0xFF_FFFF) as usize,
            inline_bytes: (word >> 32) as u32,
        }
    }

    /// Whether a node can have these lengths.
    pub fn is_valid(self) -> bool {
        (1..=MAX_HEIGHT).contains(&self.height)
            && self.key_bytes <= MAX_KEY_BYTES
            && self.inline_bytes <= MAX_INLINE_BYTES
    }

    /// Bytes of the key behind its slice.
    #[inline(always)]
    pub const fn tail_key_bytes(self) -> u64 {
        self.key_bytes.saturating_sub(SLICE_BYTES) as u64
    }

    /// Offset of the inline value.
    #[inline(always)]
    pub const fn inline_at(self) -> u64 {
        tail_at(self.height) + self.tail_key_bytes()
    }

    /// Bytes of the node.
    pub const fn node_bytes(self) -> u64 {
        self.inline_at() + self.inline_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_places() {
        let places: Vec<_> = (0..5).map(next_at).collect();
        assert_eq!(places, [0, 48, 56, 72, 80]);
        assert_eq!([1, 2, 3, 4, 5].map(tail_at), [48, 56, 64, 80, 88]);
        assert_eq!([0, 2, 3].map(slice_at), [40, 40, 64]);
        assert_eq!((PREV_AT, STATE_AT, SMALL_AT, INFO_AT, SLICE_AT), (8, 16, 24, 32, 40));
        let info = Info { height: 4, key_bytes: 11, inline_bytes: 100 };
        assert_eq!(info.encode(), 0x0000_0064_0000_0B04);
        assert_eq!(Info::decode(info.encode()), info);
        assert_eq!((info.inline_at(), info.node_bytes()), (83, 183));
        assert!(info.is_valid() && !Info { height: 0, ..info }.is_valid());
    }
}
