//! Ranges and prefixes of keys.

use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

use pando_index::KeyRange;

use super::{AsKey, KeyError, encoded};

/// A range of keys of type `K`: `a..b`, `a..=b`, `a..`, `..b`, `..=b`, `..`, or a pair of
/// [`Bound`]s, whose ends are keys or forms of keys ([`AsKey`]).
pub trait AsKeyRange<K> {
    /// The range of the encoded keys.
    ///
    /// # Errors
    ///
    /// As [`AsKey::encode`].
    fn encode_range(&self) -> Result<KeyRange, KeyError>;
}

impl<K> AsKeyRange<K> for RangeFull {
    fn encode_range(&self) -> Result<KeyRange, KeyError> {
        Ok(KeyRange::all())
    }
}

macro_rules! ranges {
    ($($range:ty),*) => {$(
        impl<K, Q: AsKey<K>> AsKeyRange<K> for $range {
            fn encode_range(&self) -> Result<KeyRange, KeyError> {
                let (low, high) = (self.start_bound(), self.end_bound());
                Ok(KeyRange { low: encoded_bound(low)?, high: encoded_bound(high)? })
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

fn encoded_bound<K>(bound: Bound<&impl AsKey<K>>) -> Result<Bound<Vec<u8>>, KeyError> {
    Ok(match bound {
        Bound::Included(key) => Bound::Included(encoded(key)?),
        Bound::Excluded(key) => Bound::Excluded(encoded(key)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

/// The beginning of keys of type `K`: the first elements of a tuple as a shorter tuple, or the
/// first bytes of a string or a byte string.
pub trait AsKeyPrefix<K> {
    /// Appends the bytes with which the encodings of these keys begin, and no others do.
    ///
    /// # Errors
    ///
    /// As [`AsKey::encode`].
    fn encode_prefix(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError>;
}

impl<K, Q: AsKeyPrefix<K> + ?Sized> AsKeyPrefix<K> for &Q {
    fn encode_prefix(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
        (**self).encode_prefix(bytes)
    }
}

macro_rules! begins_tuple {
    ($(($($key:ident $source:ident $element:tt),+) [$($rest:ident),+])*) => {$(
        impl<$($key, $source: AsKey<$key>,)+ $($rest),+> AsKeyPrefix<($($key,)+ $($rest,)+)>
            for ($($source,)+)
        {
            fn encode_prefix(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
                $(self.$element.encode_element(bytes)?;)+
                Ok(())
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
            fn encode_prefix(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
                let string: &[u8] = self.as_ref();
                bytes.extend_from_slice(string);
                Ok(())
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
