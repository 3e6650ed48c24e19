//! The state of a node: on how many levels it is linked, and where its value is. It is one word, so
//! that a write of the value, a link and a delete each fail if another one came first.
//!
//! ```text
//! bit    60     59 .. 58  57 .. 56  55 .. 53   52 .. 48   47 .. 4     3 .. 0
//!        0      0         kind      top bits   levels     version     bytes      small
//!        0      0         kind      0          levels     0                      inline
//!        0      0         kind      0          levels     offset of the block    of a block
//! ```
//!
//! * `levels`: the node is linked on so many levels, from level 0 up. Zero: the record is deleted,
//!   and the whole word is zero and final.
//! * *small*: a value of at most eight bytes. It is in the word `small`, except for its top three
//!   bits, which that word needs for itself; these are here. A change replaces both words at once
//!   and raises the version. So if a thread reads the same state before and after `small`, it has
//!   the value of that state.
//! * *inline*: behind the key, as it was inserted.
//! * *block*: in a block of its own. A value that has moved to a block does not move back to the
//!   node, because the version of a small value would start again.

use pando_pmwcas::{HINT_SHIFT, MAX_HINT};

use crate::layout::MAX_HEIGHT;

const LEVELS_SHIFT: u32 = HINT_SHIFT;
const LEVELS_MASK: u64 = 0x1F;
const TOP_SHIFT: u32 = 53;
const TOP_MASK: u64 = 7;
const KIND_SHIFT: u32 = 56;
const LOW_MASK: u64 = (1 << HINT_SHIFT) - 1;
const LENGTH_MASK: u64 = 0xF;
const VERSION_SHIFT: u32 = 4;
/// Bits of a small value that its word holds.
const SMALL_BITS: u32 = 61;
/// The longest small value, in bytes.
pub(crate) const SMALL_BYTES: usize = 8;

const _: () = {
    assert!(LEVELS_SHIFT + 5 == TOP_SHIFT && TOP_SHIFT + 3 == KIND_SHIFT);
    assert!((3 << KIND_SHIFT) >> HINT_SHIFT <= MAX_HINT as u64, "a state's upper bits are a hint");
    assert!(MAX_HEIGHT as u64 <= LEVELS_MASK);
};

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In two words of the node.
    Small = 0,
    /// Behind the key.
    Inline = 1,
    /// In a block of its own.
    Block = 2,
}

/// The state word of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(pub u64);

/// A value of at most eight bytes, as two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Small {
    /// The content of the node's word.
    pub word: u64,
    top: u64,
    bytes: u64,
}

impl Small {
    /// `None` if the value is longer.
    #[inline(always)]
    pub fn new(value: &[u8]) -> Option<Self> {
        let mut padded = [0; SMALL_BYTES];
        padded.get_mut(..value.len())?.copy_from_slice(value);
        let number = u64::from_le_bytes(padded);
        let word = number & ((1 << SMALL_BITS) - 1);
        Some(Self { word, top: number >> SMALL_BITS, bytes: value.len() as u64 })
    }
}

impl State {
    /// The state of a deleted record.
    pub const DELETED: Self = Self(0);

    /// The state of a node with this small value that is linked on level 0.
    #[inline(always)]
    pub fn small(small: Small) -> Self {
        Self(1 << LEVELS_SHIFT | small.top << TOP_SHIFT | small.bytes)
    }

    /// The state of a node with an inline value that is linked on level 0.
    pub fn inline() -> Self {
        Self(1 << LEVELS_SHIFT | (Kind::Inline as u64) << KIND_SHIFT)
    }

    /// The state of a node with a value in this block that is linked on level 0.
    pub fn block(off: u64) -> Self {
        Self(1 << LEVELS_SHIFT | (Kind::Block as u64) << KIND_SHIFT | off)
    }

    /// The number of levels on which the node is linked; zero if it is deleted.
    #[inline(always)]
    pub fn levels(self) -> usize {
        (self.0 >> LEVELS_SHIFT & LEVELS_MASK) as usize
    }

    #[inline(always)]
    pub fn is_deleted(self) -> bool {
        self.levels() == 0
    }

    /// The same on so many levels.
    pub fn on_levels(self, levels: usize) -> Self {
        Self(self.0 & !(LEVELS_MASK << LEVELS_SHIFT) | (levels as u64) << LEVELS_SHIFT)
    }

    /// Checked: `None` for an unknown kind.
    #[inline(always)]
    pub fn kind(self) -> Option<Kind> {
        match self.0 >> KIND_SHIFT {
            0 => Some(Kind::Small),
            1 => Some(Kind::Inline),
            2 => Some(Kind::Block),
            _ => None,
        }
    }

    /// The offset of the value's block; zero if it has none.
    #[inline(always)]
    pub fn block_off(self) -> u64 {
        if self.kind() == Some(Kind::Block) { self.0 & LOW_MASK } else { 0 }
    }

    /// The bits above the offset of the block, in the state of a node whose value moves to a block.
    pub fn hint_of_block(self) -> u16 {
        (Self::block(0).on_levels(self.levels()).0 >> HINT_SHIFT) as u16
    }

    /// The state with the next small value. Only for a value that is not in a block.
    #[inline(always)]
    pub fn with_small(self, small: Small) -> Self {
        let version = match self.kind() {
            Some(Kind::Small) => self.0 & LOW_MASK & !LENGTH_MASK,
            _ => 0,
        };
        let next = (version + (1 << VERSION_SHIFT)) & LOW_MASK;
        Self(State::small(small).on_levels(self.levels()).0 | next)
    }

    /// Bytes of a small value; more than [`SMALL_BYTES`] in a damaged pool.
    #[inline(always)]
    pub fn small_bytes(self) -> usize {
        (self.0 & LENGTH_MASK) as usize
    }

    /// The small value whose word is `word`, padded with zeros.
    #[inline(always)]
    pub fn small_value(self, word: u64) -> [u8; SMALL_BYTES] {
        (word | (self.0 >> TOP_SHIFT & TOP_MASK) << SMALL_BITS).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use pando_pmwcas::MAX_VALUE;

    use super::*;

    #[test]
    fn golden_states() {
        let small = Small::new(&u64::MAX.to_le_bytes()).unwrap();
        assert_eq!(small.word, MAX_VALUE);
        assert_eq!(State::small(small).0, 0x00E1_0000_0000_0008);
        assert_eq!(State::inline().0, 0x0101_0000_0000_0000);
        assert_eq!(State::block(0x1240).on_levels(3).0, 0x0203_0000_0000_1240);
        assert_eq!(State::inline().on_levels(3).hint_of_block(), 0x203);
        assert_eq!(State::inline().on_levels(16).with_small(small).0, 0x00F0_0000_0000_0018);
        assert!(State::DELETED.is_deleted());
        assert_eq!(State(3 << KIND_SHIFT).kind(), None);
    }

    #[test]
    fn a_small_value_is_what_it_was_made_of_and_never_of_the_same_state_twice() {
        let mut state = State::small(Small::new(b"").unwrap()).on_levels(2);
        for value in [&b""[..], b"a", b"\xff\xff\xff\xff\xff\xff\xff\xff", b"12345678", b""] {
            let small = Small::new(value).unwrap();
            let next = state.with_small(small);
            assert_ne!(next, state);
            assert_eq!(&next.small_value(small.word)[..next.small_bytes()], value);
            assert_eq!(next.levels(), 2);
            state = next;
        }
        assert_eq!(Small::new(b"123456789"), None);
    }
}
