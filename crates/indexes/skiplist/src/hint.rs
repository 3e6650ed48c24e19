//! Hints in a `next` word about the key of the node that it leads to, so that a search need not
//! read the node.
//!
//! On each level a search compares its key with that of the next node, and does not go to half of
//! these nodes: it only waits for their lines. The offset of a node leaves twelve bits of its word
//! free. They say at which bit the next node's slice differs from the slice of the word's own node,
//! and the bits that follow:
//!
//! ```text
//! bit    60   59 .. 54     53 .. 48                        47 .. 6    5 .. 1   0
//!        0    bits alike   the six bits behind the first   offset     0        mark
//!                          that differs
//! ```
//!
//! The next node's slice is the larger one, so it has a one where they first differ. All zero means
//! no hint. This is so behind the last node, for equal slices, and for slices that differ in their
//! first bit with zeros behind it. The word is changed as a whole, so the hint always belongs to
//! the node that the word leads to.
//!
//! The head counts as a node with the slice zero.

use std::cmp::Ordering as Compare;

use pando_pmwcas::HINT_SHIFT;

const FOLLOWING_BITS: u32 = 6;
const FOLLOWING_MASK: u16 = (1 << FOLLOWING_BITS) - 1;

/// The hint of a word about the key that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint(u16);

impl Hint {
    pub const NONE: Self = Self(0);

    /// The hint for the word of a node with the slice `from` that leads to one with the slice `to`.
    #[inline(always)]
    pub fn between(from: u64, to: u64) -> Self {
        let differing = from ^ to;
        if differing == 0 {
            return Self::NONE;
        }
        let alike = differing.leading_zeros();
        Self((alike as u16) << FOLLOWING_BITS | following(to, alike))
    }

    #[inline(always)]
    pub fn of_word(word: u64) -> Self {
        Self((word >> HINT_SHIFT) as u16 & 0xFFF)
    }

    /// Its bits above the offset in a word.
    #[inline(always)]
    pub fn to_word(self) -> u64 {
        u64::from(self.0) << HINT_SHIFT
    }

    /// These bits alone.
    pub fn bits(self) -> u16 {
        self.0
    }

    fn alike(self) -> u32 {
        u32::from(self.0 >> FOLLOWING_BITS)
    }

    /// Compares the key that the word leads to with a key of the slice `probe`. `probe` shares its
    /// first `alike` bits with the slice of the word's node, and is not below that. Returns `None`
    /// if the hint does not decide.
    #[inline(always)]
    pub fn compare(self, probe: u64, alike: u32) -> Option<Compare> {
        if self == Self::NONE {
            return None;
        }
        match self.alike().cmp(&alike) {
            // Where the next node's slice first differs from that of the word's node, the probe
            // still equals the latter.
            Compare::Less => Some(Compare::Greater),
            Compare::Greater => Some(Compare::Less),
            Compare::Equal => {
                let compared = (self.0 & FOLLOWING_MASK).cmp(&following(probe, alike));
                compared.is_ne().then_some(compared)
            }
        }
    }

    /// The hint for a new node with the slice `new`, between the word's node, with the slice
    /// `from`, and the next one; `None` if this hint does not give it.
    pub fn behind(self, from: u64, new: u64) -> Option<Self> {
        let is_told = self != Self::NONE && (from ^ new).leading_zeros() > self.alike();
        is_told.then_some(self)
    }

    /// The hint for the word of a node with the slice `from` that must lead where the word of a
    /// node with the slice `over` leads. This is the hint of the latter. `None` if it does not give
    /// the new one.
    pub fn over(self, from: u64, over: u64) -> Option<Self> {
        if self == Self::NONE {
            return None;
        }
        let alike = self.alike();
        // The known first bits of the slice where it leads. That of `from` differs from it no
        // later.
        let same = over & !(u64::MAX >> alike);
        let first = 1 << (63 - alike);
        let following = u64::from(self.0 & FOLLOWING_MASK) << (64 - FOLLOWING_BITS);
        Some(Self::between(from, same | first | following >> alike >> 1))
    }
}

/// The bits of `slice` behind the one that follows its first `alike`.
#[inline(always)]
fn following(slice: u64, alike: u32) -> u16 {
    (slice << alike << 1 >> (64 - FOLLOWING_BITS)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that differ early, late, and by little.
    fn slices() -> Vec<u64> {
        let mut slices = vec![0, 1, 2, 3, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) + 1];
        for shift in [0, 1, 5, 6, 7, 31, 56, 57, 58] {
            slices.extend((0..40_u64).map(|number| number << shift));
            slices.extend((0..4_u64).map(|number| (number << shift) ^ 0x5A5A_5A5A_5A5A_5A5A));
        }
        slices.sort_unstable();
        slices.dedup();
        slices
    }

    #[test]
    fn golden_hints() {
        assert_eq!(Hint::between(5, 5), Hint::NONE);
        assert_eq!(Hint::between(0, 1).bits(), 63 << 6);
        assert_eq!(Hint::between(0, 0x1A80).bits(), 51 << 6 | 0b101010);
        assert_eq!(Hint::of_word(0x0CEA_0000_0000_0040 | 1).bits(), 51 << 6 | 0b101010);
    }

    #[test]
    fn what_is_told_is_so() {
        let slices = slices();
        let (mut told, mut all) = (0, 0);
        for (index, &from) in slices.iter().enumerate() {
            for &to in &slices[index..] {
                let hint = Hint::between(from, to);
                assert_eq!(Hint::of_word(hint.to_word()), hint);
                for &probe in &slices[index..] {
                    let alike = (from ^ probe).leading_zeros();
                    let compared = hint.compare(probe, alike);
                    assert!(compared.is_none_or(|found| found == to.cmp(&probe)));
                    told += u64::from(compared.is_some());
                    all += 1;
                }
            }
        }
        assert!(told * 10 > all * 9, "{told} of {all}");
    }

    #[test]
    fn what_follows_from_neighbours_is_what_their_slices_say() {
        let slices = slices();
        for (index, &low) in slices.iter().enumerate() {
            for (middle_index, &middle) in slices.iter().enumerate().skip(index) {
                for &high in &slices[middle_index..] {
                    let behind = Hint::between(low, high).behind(low, middle);
                    assert!(behind.is_none_or(|hint| hint == Hint::between(middle, high)));
                    let over = Hint::between(middle, high).over(low, middle);
                    assert!(over.is_none_or(|hint| hint == Hint::between(low, high)));
                }
            }
        }
    }
}
