//! Keys, as searches compare them.

use std::cmp::Ordering as Compare;

use pando_index::Limits;

/// The longest key of most indexes, in bytes.
pub const MAX_KEY_BYTES: usize = 32 << 10;

/// The longest value of most indexes, in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 30;

/// Both of them.
pub const LIMITS: Limits =
    Limits { max_key_bytes: MAX_KEY_BYTES, max_value_bytes: MAX_VALUE_BYTES };

/// Bytes of a key that its slice holds.
pub const SLICE_BYTES: usize = 8;

/// The first eight bytes of a key as a big-endian number, filled up with zeros. Slices that differ
/// compare as their keys do. Equal slices decide nothing.
#[inline(always)]
pub fn slice_of(key: &[u8]) -> u64 {
    match key.first_chunk::<SLICE_BYTES>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; SLICE_BYTES];
            padded[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(padded)
        }
    }
}

/// The length of the common prefix of both keys.
pub fn alike_bytes(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// The shortest key above `below` and not above `above`; the two must ascend.
pub fn shortest_between<'key>(below: &[u8], above: &'key [u8]) -> &'key [u8] {
    above.get(..=alike_bytes(below, above)).unwrap_or(above)
}

/// A key to search for.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'key> {
    /// All bytes.
    pub bytes: &'key [u8],
    /// Their slice.
    pub slice: u64,
}

impl<'key> Probe<'key> {
    /// A search for this key.
    #[inline(always)]
    pub fn new(bytes: &'key [u8]) -> Self {
        Self { bytes, slice: slice_of(bytes) }
    }

    /// Compares a key with this slice with the probe; `key` lends the whole key.
    #[inline(always)]
    pub fn compare_with<'other>(self, slice: u64, key: impl FnOnce() -> &'other [u8]) -> Compare {
        match slice.cmp(&self.slice) {
            Compare::Equal => key().cmp(self.bytes),
            other => other,
        }
    }
}

/// Compares two keys: by their slices if these differ.
#[inline(always)]
pub fn compare(left: &[u8], right: &[u8]) -> Compare {
    Probe::new(right).compare_with(slice_of(left), || left)
}

/// On which side of an equal separator a search continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where the key itself lies.
    Holding,
    /// Where the keys right before it lie.
    Before,
}

/// The target of a search.
#[derive(Clone, Copy, Debug)]
pub enum Target<'key> {
    /// To the node that holds the key.
    Holding(Probe<'key>),
    /// To the node that holds the keys right before the key, which is not the smallest of all.
    Before(Probe<'key>),
    /// To the last node.
    Last,
}

impl Target<'_> {
    /// Whether the target may be at a key with this slice, or behind it.
    #[inline(always)]
    pub fn reaches_slice(self, slice: u64) -> bool {
        match self {
            Self::Holding(probe) | Self::Before(probe) => slice <= probe.slice,
            Self::Last => true,
        }
    }

    /// Whether the target is in a range that begins at `low`, or behind that range.
    #[inline(always)]
    pub fn reaches(self, low: &[u8]) -> bool {
        match self {
            Self::Holding(probe) => probe.compare_with(slice_of(low), || low).is_le(),
            Self::Before(probe) => probe.compare_with(slice_of(low), || low).is_lt(),
            Self::Last => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&[u8]; 12] = [
        b"",
        b"\0",
        b"a",
        b"a\0",
        b"a\0\0\0\0\0\0\0",
        b"aaaaaaaa",
        b"aaaaaaaa\0",
        b"aaaaaaab",
        b"abcdefgh",
        b"abcdefghi",
        b"b",
        b"\xff",
    ];

    #[test]
    fn slices_that_differ_compare_as_their_keys() {
        assert_eq!(slice_of(b"ab"), 0x6162_0000_0000_0000);
        assert_eq!(slice_of(b"abcdefghi"), 0x6162_6364_6566_6768);
        for left in KEYS {
            for right in KEYS {
                let slices = slice_of(left).cmp(&slice_of(right));
                assert!(slices.is_eq() || slices == left.cmp(right), "{left:?} {right:?}");
                assert_eq!(compare(left, right), left.cmp(right), "{left:?} {right:?}");
            }
        }
    }

    #[test]
    fn a_separator_divides() {
        for pair in KEYS.windows(2) {
            let separator = shortest_between(pair[0], pair[1]);
            assert!(pair[0] < separator && separator <= pair[1], "{pair:?}: {separator:?}");
        }
        assert_eq!(shortest_between(b"abcd", b"abxyz"), b"abx");
    }

    #[test]
    fn a_target_reaches_what_begins_before_it() {
        for (at, key) in KEYS.into_iter().enumerate() {
            for (other_at, other) in KEYS.into_iter().enumerate() {
                let (holding, before) =
                    (Target::Holding(Probe::new(key)), Target::Before(Probe::new(key)));
                assert_eq!(holding.reaches(other), other_at <= at, "{key:?} {other:?}");
                assert_eq!(before.reaches(other), other_at < at, "{key:?} {other:?}");
                assert!(holding.reaches_slice(slice_of(other)) || !holding.reaches(other));
                assert!(Target::Last.reaches(other));
            }
        }
    }
}
