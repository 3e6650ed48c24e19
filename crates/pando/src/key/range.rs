//! Ranges of keys, and what keys begin with.

use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

use pando_index::KeyRange;

use super::{AsKey, encoded};

/// A range of keys of type `K`: `a..b`, `a..=b`, `a..`, `..b`, `..=b`, `..`, or a pair of
/// [`Bound`]s, whose ends are keys or forms of keys ([`AsKey`]).
pub trait AsKeyRange<K> {
    /// The range of the encoded keys.
    fn encode_range(&self) -> KeyRange;
}

impl<K> AsKeyRange<K> for RangeFull {
    fn encode_range(&self) -> KeyRange {
        KeyRange::all()
    }
}

macro_rules! ranges {
    ($($range:ty),*) => {$(
        impl<K, Q: AsKey<K>> AsKeyRange<K> for $range {
            fn encode_range(&self) -> KeyRange {
                let (low, high) = (self.start_bound(), self.end_bound());
                KeyRange { low: low.map(encoded), high: high.map(encoded) }
            }
        }
    )*};
}

ranges!(
    Range<Q>,
    RangeInclusive<Q>,
    RangeFrom<Q>,
    RangeTo<Q>,
    RangeToInclusive<Q>,
    (Bound<Q>, Bound<Q>)
);

/// What keys of type `K` may begin with: the first elements of a tuple as a shorter tuple, or the
/// first bytes of a string or a byte string.
pub trait AsKeyPrefix<K> {
    /// Appends the bytes with which the encodings of these keys begin, and no others do.
    fn encode_prefix(&self, bytes: &mut Vec<u8>);
}

impl<K, Q: AsKeyPrefix<K> + ?Sized> AsKeyPrefix<K> for &Q {
    fn encode_prefix(&self, bytes: &mut Vec<u8>) {
        (**self).encode_prefix(bytes);
    }
}

macro_rules! begins_tuple {
    ($(($($key:ident $source:ident $element:tt),+) [$($rest:ident),+])*) => {$(
        impl<$($key, $source: AsKey<$key>,)+ $($rest),+> AsKeyPrefix<($($key,)+ $($rest,)+)>
            for ($($source,)+)
        {
            fn encode_prefix(&self, bytes: &mut Vec<u8>) {
                $(self.$element.encode_element(bytes);)+
            }
        }
    )*};
}

begins_tuple! {
    (A P 0) [B]
    (A P 0) [B, C]
    (A P 0, B Q 1) [C]
    (A P 0) [B, C, D]
    (A P 0, B Q 1) [C, D]
    (A P 0, B Q 1, C R 2) [D]
}

/// As a whole key a string is its own bytes.
macro_rules! begins_string {
    ($($source:ty, $key:ty, [$($parameters:tt)*];)*) => {$(
        impl<$($parameters)*> AsKeyPrefix<$key> for $source {
            fn encode_prefix(&self, bytes: &mut Vec<u8>) {
                let string: &[u8] = self.as_ref();
                bytes.extend_from_slice(string);
            }
        }
    )*};
}

begins_string! {
    String, String, [];
    str, String, [];
    Vec<u8>, Vec<u8>, [];
    [u8], Vec<u8>, [];
    [u8; N], Vec<u8>, [const N: usize];
}
