//! The bytes of a page outside of the pool, for a tree whose pages are in a store (`stored.rs`).
//!
//! All numbers are little-endian. A page is named by its number, not by its PID.
//!
//! ```text
//! byte   0        8       12        16      17        18    20          24           28    32
//!        0        right   records   level   has high  0     low bytes   high bytes   0     ..
//!
//! from byte 32 on: low key | high key | records
//!
//! record of a leaf        key bytes (2) | value bytes (2) | key | value
//! record of an inner page key bytes (2) | 4 (2)           | key | number of the child
//! ```
//!
//! * `right`: the page behind it on its level; zero: none (the root, which has number 0, is behind
//!   no page).
//! * The first child's key is the low key of the page.
//!
//! [`Image::decode`] checks all of it, and also that keys ascend and are in the page's range. It
//! does not know which pages exist.

use pando_tree::key::MAX_KEY_BYTES;

use crate::layout::MAX_INLINE_BYTES;

const HEADER_BYTES: usize = 32;
const CHILD_BYTES: usize = 4;
/// Each inner page has at least two children when it is made.
const MAX_LEVEL: u8 = 64;

/// An image has at most so many bytes; a page of a store is not made longer.
pub const MAX_IMAGE_BYTES: usize = 400 << 10;

/// A page, as its image has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image<'image> {
    pub level: u8,
    pub low: &'image [u8],
    pub high: Option<&'image [u8]>,
    pub right: u32,
    /// Keys, and values or the numbers of children.
    pub records: Vec<(&'image [u8], &'image [u8])>,
}

/// Takes `bytes` bytes from the front of `rest`.
pub(crate) fn take<'image>(rest: &mut &'image [u8], bytes: usize) -> Option<&'image [u8]> {
    let (front, behind) = rest.split_at_checked(bytes)?;
    *rest = behind;
    Some(front)
}

pub(crate) fn number(rest: &mut &[u8], bytes: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..bytes].copy_from_slice(take(rest, bytes)?);
    Some(u64::from_le_bytes(word))
}

impl<'image> Image<'image> {
    /// The bytes of the page.
    pub fn encode(&self) -> Vec<u8> {
        let low_bytes = self.low.len() as u32;
        let high_bytes = self.high.map_or(0, <[u8]>::len) as u32;
        let records: usize =
            self.records.iter().map(|(key, value)| 4 + key.len() + value.len()).sum();
        let keys = (low_bytes + high_bytes) as usize;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + keys + records);
        bytes.extend([0; 8]);
        bytes.extend(self.right.to_le_bytes());
        bytes.extend((self.records.len() as u32).to_le_bytes());
        bytes.extend([self.level, u8::from(self.high.is_some()), 0, 0]);
        bytes.extend(low_bytes.to_le_bytes());
        bytes.extend(high_bytes.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.low);
        bytes.extend(self.high.unwrap_or_default());
        for (key, value) in &self.records {
            bytes.extend((key.len() as u16).to_le_bytes());
            bytes.extend((value.len() as u16).to_le_bytes());
            bytes.extend(*key);
            bytes.extend(*value);
        }
        bytes
    }

    /// Checked: what is wrong, if the bytes are no page.
    pub fn decode(bytes: &'image [u8]) -> Result<Self, &'static str> {
        if bytes.len() > MAX_IMAGE_BYTES {
            return Err("it is longer than a page may be");
        }
        let mut rest = bytes;
        let image = Self::read(&mut rest)?.ok_or("it ends too early")?;
        if !rest.is_empty() {
            return Err("there are bytes behind its last record");
        }
        Ok(image)
    }

    fn read(rest: &mut &'image [u8]) -> Result<Option<Self>, &'static str> {
        let mut word = |bytes| number(rest, bytes);
        let Some(words) = [8, 4, 4, 1, 1, 2, 4, 4, 4].map(&mut word).into_iter().collect() else {
            return Ok(None);
        };
        let words: Vec<u64> = words;
        let [first, right, count, level, has_high, zero, low_bytes, high_bytes, last] = words[..]
        else {
            return Ok(None);
        };
        if first | zero | last != 0 || has_high > 1 || has_high == 0 && high_bytes != 0 {
            return Err("its first bytes are not those of a page");
        }
        if low_bytes.max(high_bytes) > MAX_KEY_BYTES as u64 {
            return Err("its range has a key longer than keys may be");
        }
        let Some(low) = take(rest, low_bytes as usize) else { return Ok(None) };
        let Some(high) = take(rest, high_bytes as usize) else { return Ok(None) };
        let high = (has_high == 1).then_some(high);
        if high.is_some_and(|high| high <= low) || high.is_some() != (right != 0) {
            return Err("its range has no key, or its end and its right sibling do not agree");
        }
        let level = level as u8;
        if level > MAX_LEVEL || level > 0 && count == 0 {
            return Err("it is too high above the leaves, or an inner page without children");
        }
        let mut records: Vec<(&[u8], &[u8])> = Vec::new();
        for index in 0..count {
            let (Some(key_bytes), Some(value_bytes)) = (number(rest, 2), number(rest, 2)) else {
                return Ok(None);
            };
            let Some(key) = take(rest, key_bytes as usize) else { return Ok(None) };
            let Some(value) = take(rest, value_bytes as usize) else { return Ok(None) };
            let is_ordered = match records.last() {
                Some(&(before, _)) => before < key,
                None if level > 0 => key == low,
                None => low <= key,
            };
            if !is_ordered || index + 1 == count && high.is_some_and(|high| high <= key) {
                return Err("its keys do not ascend within its range");
            }
            let is_value = match level {
                0 => value.len() <= MAX_INLINE_BYTES as usize,
                _ => value.len() == CHILD_BYTES && value != [0; CHILD_BYTES],
            };
            if key.len() > MAX_KEY_BYTES || !is_value {
                return Err("a key or a value has a length that it cannot have");
            }
            records.push((key, value));
        }
        let right = right as u32;
        Ok(Some(Self { level, low, high, right, records }))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Each byte is changed in every way, and the bytes are cut off and made longer at each place:
    /// no panic, and what is decoded is encoded to the same bytes.
    pub(crate) fn change_every_byte(
        bytes: &[u8],
        encoded_again: impl Fn(&[u8]) -> Result<Vec<u8>, &'static str>,
    ) {
        for at in 0..bytes.len() {
            encoded_again(&bytes[..at]).expect_err("cut off");
            for change in 1..=u8::MAX {
                let mut changed = bytes.to_vec();
                changed[at] ^= change;
                if let Ok(again) = encoded_again(&changed) {
                    assert_eq!(again, changed, "byte {at}");
                }
            }
        }
        encoded_again(&[bytes, &[0]].concat()).expect_err("longer");
    }

    fn inner() -> Image<'static> {
        Image {
            level: 1,
            low: b"b",
            high: Some(b"dd"),
            right: 9,
            records: vec![(b"b", &[8, 0, 0, 0]), (b"c", &[0, 1, 0, 0])],
        }
    }

    #[test]
    fn golden_image() {
        let bytes = inner().encode();
        let header = [
            0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0,
            0, 0, 0,
        ];
        let rest = b"bdd\x01\0\x04\0b\x08\0\0\0\x01\0\x04\0c\0\x01\0\0";
        assert_eq!(bytes, [&header[..], rest].concat());
        assert_eq!(Image::decode(&bytes), Ok(inner()));
    }

    #[test]
    fn a_leaf_may_be_empty_and_endless() {
        let leaf = Image { level: 0, low: b"", high: None, right: 0, records: Vec::new() };
        assert_eq!(Image::decode(&leaf.encode()), Ok(leaf));
    }

    #[test]
    fn changed_bytes_are_refused_or_are_another_page() {
        change_every_byte(&inner().encode(), |bytes| Ok(Image::decode(bytes)?.encode()));
    }

    #[test]
    fn pages_that_cannot_be_are_refused() {
        let refused = |image: Image<'_>| Image::decode(&image.encode()).expect_err("no page");
        refused(Image { records: vec![(b"b", &[8, 0, 0, 0]), (b"b", &[8, 0, 0, 0])], ..inner() });
        refused(Image { records: vec![(b"c", &[8, 0, 0, 0])], ..inner() });
        refused(Image { records: vec![(b"b", &[8, 0, 0, 0]), (b"dd", &[8, 0, 0, 0])], ..inner() });
        refused(Image { records: Vec::new(), ..inner() });
        refused(Image { high: Some(b"b"), ..inner() });
        refused(Image { right: 0, ..inner() });
        refused(Image { level: 65, ..inner() });
        refused(Image { records: vec![(b"b", &[0, 0, 0, 0])], ..inner() });
        refused(Image { high: None, ..inner() });
        refused(Image { records: vec![(b"b", &[8, 0, 0])], ..inner() });
        let long = vec![0; MAX_INLINE_BYTES as usize + 1];
        refused(Image { level: 0, records: vec![(b"b", &long)], ..inner() });
    }
}
