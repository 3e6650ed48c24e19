//! The keys that a scan visits, and their order.

use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the smallest key to the largest.
    Ascending,
    /// From the largest key to the smallest.
    Descending,
}

/// A range of keys; each end is included, excluded, or open. If the lower end is above the upper
/// end, the range is empty.
///
/// Each range of the standard library whose ends are byte strings is one: `a..b`, `a..=b`, `a..`,
/// `..b`, `..=b`, `..`, and a pair of [`Bound`]s.
///
/// ```
/// use pando_index::KeyRange;
///
/// assert!(KeyRange::from("a"..="c").contains(b"c"));
/// assert!(KeyRange::between(b"a", b"c").contains(b"b"));
/// assert!(KeyRange::prefix(b"as").contains(b"aspen"));
/// assert!(!KeyRange::between(b"c", b"a").contains(b"b"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The lower end.
    pub low: Bound<Vec<u8>>,
    /// The upper end.
    pub high: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self { low: Bound::Unbounded, high: Bound::Unbounded }
    }

    /// Every key from `low`, included, to `high`, excluded.
    pub fn between(low: &[u8], high: &[u8]) -> Self {
        Self { low: Bound::Included(low.to_vec()), high: Bound::Excluded(high.to_vec()) }
    }

    /// Every key that begins with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { low: Bound::Included(prefix.to_vec()), high: after_prefix(prefix) }
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        let above_low = match &self.low {
            Bound::Included(low) => key >= low.as_slice(),
            Bound::Excluded(low) => key > low.as_slice(),
            Bound::Unbounded => true,
        };
        above_low
            && match &self.high {
                Bound::Included(high) => key <= high.as_slice(),
                Bound::Excluded(high) => key < high.as_slice(),
                Bound::Unbounded => true,
            }
    }
}

impl From<RangeFull> for KeyRange {
    fn from(_: RangeFull) -> Self {
        Self::all()
    }
}

macro_rules! from_ranges {
    ($($range:ty),*) => {$(
        impl<K: AsRef<[u8]>> From<$range> for KeyRange {
            fn from(range: $range) -> Self {
                let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
                let (low, high) = (range.start_bound(), range.end_bound());
                Self { low: owned(low), high: owned(high) }
            }
        }
    )*};
}

from_ranges!(
    Range<K>,
    RangeInclusive<K>,
    RangeFrom<K>,
    RangeTo<K>,
    RangeToInclusive<K>,
    (Bound<K>, Bound<K>)
);

/// The first key after all keys that begin with `prefix`: the prefix without its trailing 0xFF
/// bytes, with its last byte raised by one. Open if no byte is left.
fn after_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    match prefix.iter().rposition(|&byte| byte != 0xFF) {
        None => Bound::Unbounded,
        Some(last) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            Bound::Excluded(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_the_standard_library_are_ranges_of_keys() {
        let [a, c] = [b"a", b"c"].map(|key| key.to_vec());
        let (low, high) = (Bound::Included(a.clone()), Bound::Excluded(c.clone()));
        let open = Bound::Unbounded;
        for (range, low, high) in [
            (KeyRange::from(..), open.clone(), open.clone()),
            (KeyRange::from("a".."c"), low.clone(), high.clone()),
            (KeyRange::from(&a[..]..=&c[..]), low.clone(), Bound::Included(c.clone())),
            (KeyRange::from(b"a"..), low.clone(), open.clone()),
            (KeyRange::from(..c.clone()), open.clone(), high.clone()),
            (KeyRange::from(..=[b'c']), open.clone(), Bound::Included(c.clone())),
            (KeyRange::from((Bound::Included("a"), Bound::Unbounded)), low.clone(), open.clone()),
        ] {
            assert_eq!(range, KeyRange { low, high });
        }
    }

    #[test]
    fn prefix_ends_before_the_next_prefix() {
        assert_eq!(KeyRange::prefix(b"ab").high, Bound::Excluded(b"ac".to_vec()));
        assert_eq!(KeyRange::prefix(b"a\xff\xff").high, Bound::Excluded(b"b".to_vec()));
        assert_eq!(KeyRange::prefix(b"\xff").high, Bound::Unbounded);
        assert!(KeyRange::prefix(b"a").contains(b"a"));
        assert!(KeyRange::prefix(b"a").contains(b"a\xff\xff\xff"));
        assert!(!KeyRange::prefix(b"a").contains(b"b"));
    }
}
