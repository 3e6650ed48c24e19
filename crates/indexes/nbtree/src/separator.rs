//! Keys that are looked for, and keys that divide leaves.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::layout::{SLICE_BYTES, slice_of};

/// A key that is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe<'key> {
    /// The first eight bytes as a number, filled up with zeros.
    pub slice: u64,
    /// All bytes.
    pub bytes: &'key [u8],
}

impl<'key> Probe<'key> {
    #[inline(always)]
    pub fn new(bytes: &'key [u8]) -> Self {
        Self { slice: slice_of(bytes), bytes }
    }

    /// Whether the slice is the whole key.
    #[inline(always)]
    pub fn is_eight(&self) -> bool {
        self.bytes.len() == SLICE_BYTES
    }

    /// How it lies to a separator.
    pub fn compare(&self, separator: &Separator) -> Ordering {
        let by_slice = self.slice.cmp(&separator.slice);
        by_slice.then_with(|| compare_tie(self, separator.long.as_deref()))
    }

    /// One byte that equal keys have in common (paper 3.1: `fps`), never zero.
    #[inline(always)]
    pub fn fingerprint(&self) -> u8 {
        if self.is_eight() { eight_fingerprint(self.slice) } else { long_fingerprint(self.bytes) }
    }
}

const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// The fingerprint of a key of eight bytes.
#[inline(always)]
pub(crate) fn eight_fingerprint(slice: u64) -> u8 {
    // Of the key's upper half, too: a product's upper bits depend on all lower ones.
    one_byte((slice ^ slice >> 32).wrapping_mul(FACTOR))
}

fn long_fingerprint(bytes: &[u8]) -> u8 {
    let mut hash = bytes.len() as u64;
    for chunk in bytes.chunks(SLICE_BYTES) {
        hash = (hash.rotate_left(29) ^ slice_of(chunk)).wrapping_mul(FACTOR);
    }
    one_byte(hash)
}

#[inline(always)]
fn one_byte(hash: u64) -> u8 {
    // Zero is a free slot's.
    ((hash >> 56) as u8).max(1)
}

/// The fingerprint of any key.
pub(crate) fn fingerprint_of(key: &[u8]) -> u8 {
    Probe::new(key).fingerprint()
}

/// A key that divides two leaves: the lowest that may lie in the right one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Separator {
    /// The first eight bytes as a number, filled up with zeros.
    pub slice: u64,
    /// All bytes, if these are not exactly eight.
    long: Option<Arc<[u8]>>,
}

impl Separator {
    pub fn new(bytes: &[u8]) -> Self {
        let long = (bytes.len() != SLICE_BYTES).then(|| Arc::from(bytes));
        Self { slice: slice_of(bytes), long }
    }

    /// A key of exactly eight bytes.
    pub fn eight(slice: u64) -> Self {
        Self { slice, long: None }
    }

    /// Below all keys.
    pub fn lowest() -> Self {
        Self::new(&[])
    }

    pub fn parts(self) -> (u64, Option<Arc<[u8]>>) {
        (self.slice, self.long)
    }

    pub fn of_parts(slice: u64, long: Option<Arc<[u8]>>) -> Self {
        Self { slice, long }
    }

    /// Whether nothing is below.
    pub fn is_lowest(&self) -> bool {
        self.long.as_deref().is_some_and(<[u8]>::is_empty)
    }

    /// All bytes, written to `room` if they stand nowhere else.
    pub fn bytes<'all>(&'all self, room: &'all mut [u8; SLICE_BYTES]) -> &'all [u8] {
        match &self.long {
            Some(long) => long,
            None => {
                *room = self.slice.to_be_bytes();
                room
            }
        }
    }
}

/// How the probe lies to a separator with the same first eight bytes.
#[cold]
pub(crate) fn compare_tie(probe: &Probe<'_>, long: Option<&[u8]>) -> Ordering {
    match long {
        Some(long) => probe.bytes.cmp(long),
        None => probe.bytes.len().cmp(&SLICE_BYTES),
    }
}

/// The shortest key above `left` and not above `right`, of two keys that ascend.
pub(crate) fn shortest_between(left: &[u8], right: &[u8]) -> Separator {
    let common = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    let bytes = (common + 1).min(right.len());
    // What has eight bytes needs no room of its own.
    let bytes = if right.len() >= SLICE_BYTES { bytes.max(SLICE_BYTES) } else { bytes };
    Separator::new(&right[..bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_divides() {
        let keys: [&[u8]; 9] = [
            b"",
            b"\0",
            b"a",
            b"a\0\0\0\0\0\0\0",
            b"aaaaaaaa",
            b"aaaaaaaa\0",
            b"aaaaaaab",
            b"b",
            b"\xff",
        ];
        for pair in keys.windows(2) {
            let separator = shortest_between(pair[0], pair[1]);
            assert_eq!(Probe::new(pair[0]).compare(&separator), Ordering::Less, "{pair:?}");
            assert_ne!(Probe::new(pair[1]).compare(&separator), Ordering::Less, "{pair:?}");
        }
    }

    #[test]
    fn equal_keys_have_equal_fingerprints_by_all_ways() {
        assert_eq!(fingerprint_of(b"12345678"), eight_fingerprint(slice_of(b"12345678")));
    }
}
