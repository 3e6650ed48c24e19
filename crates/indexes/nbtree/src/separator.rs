//! Fingerprints of keys, and keys that separate leaves.

use std::cmp::Ordering;
use std::sync::Arc;

use pando_tree::key::{Probe, SLICE_BYTES, shortest_between, slice_of};

/// One byte, the same for equal keys (paper 3.1: `fps`), never zero.
#[inline(always)]
pub(crate) fn fingerprint(probe: &Probe<'_>) -> u8 {
    if is_eight(probe) { eight_fingerprint(probe.slice) } else { long_fingerprint(probe.bytes) }
}

/// Whether the slice is the whole key.
#[inline(always)]
pub(crate) fn is_eight(probe: &Probe<'_>) -> bool {
    probe.bytes.len() == SLICE_BYTES
}

const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// The fingerprint of a key of eight bytes.
#[inline(always)]
pub(crate) fn eight_fingerprint(slice: u64) -> u8 {
    // The key's upper half too, because a product's upper bits depend on all lower bits.
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
    // Zero marks a free slot.
    ((hash >> 56) as u8).max(1)
}

/// A key that separates two leaves: the lowest that may be in the right one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Separator {
    /// The first eight bytes as a number, with zeros behind a shorter key.
    pub slice: u64,
    /// All bytes, if there are not exactly eight.
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

    /// The shortest key above `left` and not above `right`, of two keys that ascend.
    pub fn between(left: &[u8], right: &[u8]) -> Self {
        let shortest = shortest_between(left, right);
        // A separator of eight bytes needs no memory of its own.
        Self::new(right.get(..shortest.len().max(SLICE_BYTES)).unwrap_or(shortest))
    }

    /// Compares the separator with `probe`.
    pub fn compare(&self, probe: &Probe<'_>) -> Ordering {
        let by_slice = probe.slice.cmp(&self.slice);
        by_slice.then_with(|| compare_tie(probe, self.long.as_deref()))
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

    /// Whether no key is below.
    pub fn is_lowest(&self) -> bool {
        self.long.as_deref().is_some_and(<[u8]>::is_empty)
    }

    /// All bytes; written to `room` if they are not stored as bytes.
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

/// Compares the probe with a separator that has the same first eight bytes.
#[cold]
pub(crate) fn compare_tie(probe: &Probe<'_>, long: Option<&[u8]>) -> Ordering {
    match long {
        Some(long) => probe.bytes.cmp(long),
        None => probe.bytes.len().cmp(&SLICE_BYTES),
    }
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
            let separator = Separator::between(pair[0], pair[1]);
            assert_eq!(separator.compare(&Probe::new(pair[0])), Ordering::Less, "{pair:?}");
            assert_ne!(separator.compare(&Probe::new(pair[1])), Ordering::Less, "{pair:?}");
        }
    }

    #[test]
    fn equal_keys_have_equal_fingerprints_by_all_ways() {
        assert_eq!(fingerprint(&Probe::new(b"12345678")), eight_fingerprint(slice_of(b"12345678")));
    }
}
