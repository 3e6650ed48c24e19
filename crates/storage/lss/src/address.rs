//! Where a part of a page is.
//!
//! ```text
//! bit       63          46 45          25 24     11 10         0
//!           segment        unit           units     generation
//! ```
//!
//! A unit has 32 bytes. The part begins at unit `unit` of segment `segment` and takes `units`
//! units. `generation` is the lower bits of the segment's generation, which is raised each time
//! that the segment is written anew. No part begins at unit 0, so the word is never zero.

use std::fmt;
use std::num::NonZeroU64;

/// Parts begin at multiples of this, in bytes.
pub(crate) const UNIT_BYTES: usize = 32;

const SEGMENT_BITS: u32 = 18;
const UNIT_BITS: u32 = 21;
const UNITS_BITS: u32 = 14;
const GENERATION_BITS: u32 = 11;

/// A segment has at most so many bytes.
pub(crate) const MAX_SEGMENT_BYTES: u64 = (UNIT_BYTES as u64) << UNIT_BITS;
/// There are at most so many segments.
pub(crate) const MAX_SEGMENTS: u32 = 1 << SEGMENT_BITS;
/// A part has at most so many bytes.
pub(crate) const MAX_PART_BYTES: usize = UNIT_BYTES * ((1 << UNITS_BITS) - 1);

const _: () = assert!(SEGMENT_BITS + UNIT_BITS + UNITS_BITS + GENERATION_BITS == 64);

/// The address of a part.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Address(NonZeroU64);

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

impl Address {
    /// The address of a part of `bytes` bytes at byte `at` of a segment.
    pub fn new(segment: u32, at: usize, bytes: usize, generation: u32) -> Self {
        debug_assert!(segment < MAX_SEGMENTS && at != 0 && at.is_multiple_of(UNIT_BYTES));
        debug_assert!((at as u64) < MAX_SEGMENT_BYTES && (1..=MAX_PART_BYTES).contains(&bytes));
        let unit = (at / UNIT_BYTES) as u64;
        let units = bytes.div_ceil(UNIT_BYTES) as u64;
        let generation = u64::from(generation) & mask(GENERATION_BITS);
        let place = u64::from(segment) << UNIT_BITS | unit;
        let word = (place << UNITS_BITS | units) << GENERATION_BITS | generation;
        // The part does not begin at unit 0.
        Self(NonZeroU64::new(word).unwrap_or(NonZeroU64::MIN))
    }

    /// The address with this word; `None` for a word that no address has.
    pub fn from_word(word: u64) -> Option<Self> {
        let address = Self(NonZeroU64::new(word)?);
        (address.at() != 0 && address.bytes() != 0).then_some(address)
    }

    pub fn word(self) -> u64 {
        self.0.get()
    }

    pub fn segment(self) -> u32 {
        (self.word() >> (64 - SEGMENT_BITS)) as u32
    }

    /// The byte of the segment at which the part begins.
    pub fn at(self) -> usize {
        (self.word() >> (UNITS_BITS + GENERATION_BITS) & mask(UNIT_BITS)) as usize * UNIT_BYTES
    }

    /// Bytes of the part, with the zeros behind it.
    pub fn bytes(self) -> usize {
        (self.word() >> GENERATION_BITS & mask(UNITS_BITS)) as usize * UNIT_BYTES
    }

    /// Whether the part is of that generation of its segment.
    pub fn is_of(self, generation: u32) -> bool {
        self.word() & mask(GENERATION_BITS) == u64::from(generation) & mask(GENERATION_BITS)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (segment, at) = (self.segment(), self.at());
        write!(formatter, "byte {at} of segment {segment}, {} bytes", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_words() {
        assert_eq!(Address::new(1, 64, 32, 1).word(), 1 << 46 | 2 << 25 | 1 << 11 | 1);
        let last = Address::new(
            MAX_SEGMENTS - 1,
            MAX_SEGMENT_BYTES as usize - UNIT_BYTES,
            MAX_PART_BYTES,
            u32::MAX,
        );
        assert_eq!(last.word(), u64::MAX);
    }

    #[test]
    fn an_address_gives_back_what_it_was_made_of() {
        let address = Address::new(77, 4096 + 64, 33, 0x1234_5678);
        assert_eq!((address.segment(), address.at(), address.bytes()), (77, 4160, 64));
        assert!(address.is_of(0x1234_5678) && !address.is_of(0x1234_5679));
        assert_eq!(Address::from_word(address.word()), Some(address));
        assert_eq!(Address::from_word(0), None);
        assert_eq!(Address::from_word(1 << 25), None, "no bytes");
    }
}
