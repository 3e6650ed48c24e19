//! The bytes of a change of a leaf outside of the pool: its records that are new, have another
//! value, or are gone (`image.rs` has whole pages; `marshal.rs` decides which of them is written).
//!
//! All numbers are little-endian.
//!
//! ```text
//! byte   0        8         12   16
//!        0        records   0    record ..
//!
//! record   key bytes (2) | value bytes (2), 0xFFFF: it is gone | key | value
//! ```
//!
//! [`ImageDelta::decode`] checks all of it, and that keys ascend. [`Image::of_parts`] checks also
//! that they are in the page's range.

use std::iter;

use pando_tree::key::MAX_KEY_BYTES;

use crate::image::{Image, MAX_IMAGE_BYTES, number, take};
use crate::layout::MAX_INLINE_BYTES;

const HEADER_BYTES: usize = 16;
/// Instead of a value's length: the record is gone.
const GONE: u16 = u16::MAX;

const _: () = assert!(MAX_INLINE_BYTES < GONE as u32);

/// A change of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageDelta<'image> {
    /// Keys, and values; no value if the record is gone.
    pub records: Vec<(&'image [u8], Option<&'image [u8]>)>,
}

impl<'image> ImageDelta<'image> {
    /// The bytes of the change.
    pub fn encode(&self) -> Vec<u8> {
        let value_bytes = |value: Option<&[u8]>| value.map_or(0, <[u8]>::len);
        let records = self.records.iter().map(|&(key, value)| 4 + key.len() + value_bytes(value));
        let mut bytes = Vec::with_capacity(HEADER_BYTES + records.sum::<usize>());
        bytes.extend([0; 8]);
        bytes.extend((self.records.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        for &(key, value) in &self.records {
            bytes.extend((key.len() as u16).to_le_bytes());
            bytes.extend(value.map_or(GONE, |value| value.len() as u16).to_le_bytes());
            bytes.extend(key);
            bytes.extend(value.unwrap_or_default());
        }
        bytes
    }

    /// Whether the bytes of a change change nothing.
    pub fn is_empty(bytes: &[u8]) -> bool {
        bytes.len() == HEADER_BYTES
    }

    /// Checked: what is wrong, if the bytes are no change of a leaf.
    pub fn decode(bytes: &'image [u8]) -> Result<Self, &'static str> {
        if bytes.len() > MAX_IMAGE_BYTES {
            return Err("a delta of it is longer than a page may be");
        }
        let mut rest = bytes;
        let delta = Self::read(&mut rest)?.ok_or("a delta of it ends too early")?;
        match rest.is_empty() {
            true => Ok(delta),
            false => Err("there are bytes behind the last record of a delta"),
        }
    }

    fn read(rest: &mut &'image [u8]) -> Result<Option<Self>, &'static str> {
        let (Some(first), Some(count), Some(zero)) =
            (number(rest, 8), number(rest, 4), number(rest, 4))
        else {
            return Ok(None);
        };
        if first | zero != 0 {
            return Err("the first bytes of a delta are not those of one");
        }
        let mut records: Vec<(&[u8], Option<&[u8]>)> = Vec::new();
        for _ in 0..count {
            let (Some(key_bytes), Some(value_bytes)) = (number(rest, 2), number(rest, 2)) else {
                return Ok(None);
            };
            let Some(key) = take(rest, key_bytes as usize) else { return Ok(None) };
            let value = match value_bytes {
                gone if gone == u64::from(GONE) => None,
                length => match take(rest, length as usize) {
                    Some(value) => Some(value),
                    None => return Ok(None),
                },
            };
            if records.last().is_some_and(|&(before, _)| before >= key) {
                return Err("the keys of a delta do not ascend");
            }
            let is_long = value.is_some_and(|value| value.len() > MAX_INLINE_BYTES as usize);
            if key.len() > MAX_KEY_BYTES || is_long {
                return Err("a key or a value of a delta has a length that it cannot have");
            }
            records.push((key, value));
        }
        Ok(Some(Self { records }))
    }
}

impl<'image> Image<'image> {
    /// The page that consists of these parts: an image, and the changes behind it, oldest first.
    /// Checked: what is wrong, if they are no page.
    pub fn of_parts(parts: &'image [Vec<u8>]) -> Result<Self, &'static str> {
        let (base, deltas) = parts.split_first().ok_or("it has no part")?;
        let deltas = deltas.iter().map(|delta| ImageDelta::decode(delta));
        deltas.into_iter().try_fold(Self::decode(base)?, |image, delta| image.changed(&delta?))
    }

    pub(crate) fn changed(self, delta: &ImageDelta<'image>) -> Result<Self, &'static str> {
        if self.level > 0 {
            return Err("it is an inner page, and has a delta");
        }
        let first = delta.records.first().map(|&(key, _)| key);
        let last = delta.records.last().map(|&(key, _)| key);
        let is_behind = |key: &[u8]| self.high.is_some_and(|high| high <= key);
        if first.is_some_and(|key| key < self.low) || last.is_some_and(is_behind) {
            return Err("the keys of a delta are not in its range");
        }
        let mut records = Vec::with_capacity(self.records.len() + delta.records.len());
        let mut kept = self.records.iter().copied().peekable();
        for &(key, value) in &delta.records {
            records.extend(iter::from_fn(|| kept.next_if(|&(before, _)| before < key)));
            kept.next_if(|&(before, _)| before == key);
            records.extend(value.map(|value| (key, value)));
        }
        records.extend(kept);
        Ok(Self { records, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::tests::change_every_byte;

    fn delta() -> ImageDelta<'static> {
        ImageDelta { records: vec![(b"b", Some(b"xy")), (b"cc", None)] }
    }

    #[test]
    fn golden_delta() {
        let header = [0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        let bytes = delta().encode();
        assert_eq!(bytes, [&header[..], b"\x01\0\x02\0bxy\x02\0\xFF\xFFcc"].concat());
        assert_eq!(ImageDelta::decode(&bytes), Ok(delta()));
    }

    #[test]
    fn changed_bytes_are_refused_or_are_another_delta() {
        change_every_byte(&delta().encode(), |bytes| Ok(ImageDelta::decode(bytes)?.encode()));
    }

    fn leaf() -> Image<'static> {
        let records: Vec<(&[u8], &[u8])> = vec![(b"b", b"1"), (b"c", b"2"), (b"d", b"3")];
        Image { level: 0, low: b"b", high: Some(b"e"), right: 9, records }
    }

    #[test]
    fn a_page_has_the_changes_behind_its_image() {
        let of = |deltas: &[ImageDelta<'_>]| {
            let deltas = deltas.iter().map(ImageDelta::encode);
            let parts: Vec<_> = iter::once(leaf().encode()).chain(deltas).collect();
            Image::of_parts(&parts).map(|image| image.encode())
        };
        let first = ImageDelta {
            records: vec![(b"b", None), (b"bb", Some(b"new")), (b"d", Some(b"other"))],
        };
        let second = ImageDelta { records: vec![(b"bb", None), (b"bc", None), (b"dd", Some(b""))] };
        let records: Vec<(&[u8], &[u8])> = vec![(b"c", b"2"), (b"d", b"other"), (b"dd", b"")];
        let expected = Image { records, ..leaf() };
        assert_eq!(of(&[first.clone(), second]), Ok(expected.encode()));
        for key in [&b"a"[..], b"e"] {
            let outside = ImageDelta { records: vec![(key, None)] };
            of(&[first.clone(), outside]).expect_err("not in its range");
        }
    }

    #[test]
    fn inner_pages_have_no_deltas() {
        let inner = Image { level: 1, records: vec![(b"b", &[8, 0, 0, 0])], ..leaf() };
        Image::of_parts(&[inner.encode(), delta().encode()]).expect_err("an inner page");
        Image::of_parts(&[]).expect_err("no page");
    }
}
