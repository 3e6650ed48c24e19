//! Records as bytes: the format of the keys and values of a run, and the check of a record that was
//! read.
//!
//! A key begins with its *number key*, eight big-endian bytes, which alone decide the order of
//! keys. A value begins with eight little-endian bytes that belong to its key
//! ([`keys`](crate::keys)). The other bytes are filler, computed from these eight. Each read checks
//! the length and the last eight bytes of a value. This costs little and finds a truncated or torn
//! value.
//!
//! The harness is compiled once for keys and values of 8 bytes (`EIGHT`) and once for all other
//! lengths, so that records of 8 bytes do not pay for longer ones.

use crate::error::Fault;
use crate::keys::{belongs, key_of, number_of};

/// Length of the part of a key or a value that is not filler, in bytes.
pub const WORD_BYTES: usize = 8;
/// Maximum length of a key in bytes.
pub const MAX_KEY_BYTES: usize = 128;
/// Maximum length of a value in bytes.
pub const MAX_VALUE_BYTES: usize = 4096;

const FILLER_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Lengths of the keys and values of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a key, 8 to 128. The first eight are a big-endian number.
    pub key_bytes: usize,
    /// Bytes of a value, 8 to 4096. The first eight are a little-endian number.
    pub value_bytes: usize,
}

impl Shape {
    /// Keys and values of eight bytes.
    pub const EIGHT: Self = Self { key_bytes: WORD_BYTES, value_bytes: WORD_BYTES };

    /// Whether keys and values are eight bytes.
    pub fn is_eight(self) -> bool {
        self == Self::EIGHT
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self::EIGHT
    }
}

/// The mapping of records to keys, and the lengths of both.
#[derive(Clone, Copy, Debug, Default)]
pub struct Records {
    /// Lengths of keys and values.
    pub shape: Shape,
    /// Number keys are the record numbers, so that inserts ascend; otherwise, they are a mix of the
    /// record numbers.
    pub is_monotonic: bool,
}

impl Records {
    /// The number key of record `number`.
    #[inline]
    pub fn key(self, number: u64) -> u64 {
        if self.is_monotonic { number } else { key_of(number) }
    }

    /// The number of the record with this number key.
    pub fn number(self, key: u64) -> u64 {
        if self.is_monotonic { key } else { number_of(key) }
    }

    /// The fault that the record with this number key was not found.
    pub fn lost(self, key: u64, operation: &'static str) -> Fault {
        Fault::Lost { key, number: self.number(key), operation }
    }

    /// Checks the bytes of a value of `key`.
    #[inline]
    pub fn check_value<const EIGHT: bool>(
        self,
        key: u64,
        bytes: &[u8],
        operation: &'static str,
    ) -> Result<(), Fault> {
        let due = if EIGHT { WORD_BYTES } else { self.shape.value_bytes };
        let Some(first) = bytes.first_chunk().filter(|_| bytes.len() == due) else {
            return Err(Fault::Length { key, found: bytes.len(), due, operation });
        };
        let found = u64::from_le_bytes(*first);
        if !belongs(key, found) {
            return Err(Fault::WrongValue { key, found, operation });
        }
        if !EIGHT && !ends_with_tail(bytes, found) {
            return Err(Fault::Torn { key, operation });
        }
        Ok(())
    }

    /// The number key of the bytes of a key.
    #[inline]
    pub fn check_key<const EIGHT: bool>(
        self,
        bytes: &[u8],
        operation: &'static str,
    ) -> Result<u64, Fault> {
        let due = if EIGHT { WORD_BYTES } else { self.shape.key_bytes };
        let Some(first) = bytes.first_chunk().filter(|_| bytes.len() == due) else {
            return Err(Fault::Length { key: 0, found: bytes.len(), due, operation });
        };
        let key = u64::from_be_bytes(*first);
        if !EIGHT && !ends_with_tail(bytes, key) {
            return Err(Fault::Torn { key, operation });
        }
        Ok(key)
    }
}

/// The filler of a record.
#[inline]
fn tail_of(first: u64) -> u64 {
    first.wrapping_mul(FILLER_FACTOR).rotate_left(23)
}

#[inline]
fn ends_with_tail(bytes: &[u8], first: u64) -> bool {
    let tail_bytes = WORD_BYTES.min(bytes.len() - WORD_BYTES);
    bytes[bytes.len() - tail_bytes..] == tail_of(first).to_le_bytes()[..tail_bytes]
}

/// Writes the filler after the first eight bytes.
#[inline]
fn fill(bytes: &mut [u8], first: u64) {
    let mut word = first;
    let (_, filler) = bytes.split_at_mut(WORD_BYTES);
    for chunk in filler.chunks_mut(WORD_BYTES) {
        word = word.wrapping_add(FILLER_FACTOR);
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
    let tail_bytes = WORD_BYTES.min(filler.len());
    let tail_off = filler.len() - tail_bytes;
    filler[tail_off..].copy_from_slice(&tail_of(first).to_le_bytes()[..tail_bytes]);
}

/// The buffers of a thread for the bytes of a key and a value.
#[derive(Clone, Debug)]
pub struct Buffers {
    shape: Shape,
    key: [u8; MAX_KEY_BYTES],
    value: Box<[u8]>,
}

impl Buffers {
    /// Buffers for records of `shape`, whose lengths must be within the limits.
    pub fn new(shape: Shape) -> Self {
        Self { shape, key: [0; MAX_KEY_BYTES], value: vec![0; shape.value_bytes].into() }
    }

    /// The bytes of the key with this number key.
    #[inline]
    pub fn key<const EIGHT: bool>(&mut self, key: u64) -> &[u8] {
        self.both::<EIGHT>(key, None).0
    }

    /// The bytes of a key and of its value.
    #[inline]
    pub fn record<const EIGHT: bool>(&mut self, key: u64, value: u64) -> (&[u8], &[u8]) {
        self.both::<EIGHT>(key, Some(value))
    }

    #[inline]
    fn both<const EIGHT: bool>(&mut self, key: u64, value: Option<u64>) -> (&[u8], &[u8]) {
        let key_bytes = if EIGHT { WORD_BYTES } else { self.shape.key_bytes };
        let value_bytes = if EIGHT { WORD_BYTES } else { self.shape.value_bytes };
        let key_room = &mut self.key[..key_bytes];
        let value_room = &mut self.value[..value_bytes];
        key_room[..WORD_BYTES].copy_from_slice(&key.to_be_bytes());
        if !EIGHT {
            fill(key_room, key);
        }
        if let Some(value) = value {
            value_room[..WORD_BYTES].copy_from_slice(&value.to_le_bytes());
            if !EIGHT {
                fill(value_room, value);
            }
        }
        (key_room, value_room)
    }

    /// The least and the greatest key of this shape.
    pub fn ends(shape: Shape) -> (Vec<u8>, Vec<u8>) {
        (vec![0; shape.key_bytes], vec![u8::MAX; shape.key_bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::value_of;

    #[test]
    fn records_of_every_shape_are_recognised() {
        for (key_bytes, value_bytes) in [(8, 8), (9, 12), (16, 16), (20, 44), (94, 1200)] {
            let shape = Shape { key_bytes, value_bytes };
            let records = Records { shape, is_monotonic: false };
            let key = records.key(7);
            let mut buffers = Buffers::new(shape);
            let (key_room, value) = buffers.record::<false>(key, value_of(key, 3));
            assert_eq!((key_room.len(), value.len()), (key_bytes, value_bytes));
            assert_eq!(records.check_key::<false>(key_room, "a test").unwrap(), key);
            records.check_value::<false>(key, value, "a test").unwrap();
            let mut torn = value.to_vec();
            torn[value_bytes - 1] ^= 1;
            if value_bytes > 8 {
                let fault = records.check_value::<false>(key, &torn, "a test").unwrap_err();
                assert!(matches!(fault, Fault::Torn { .. }), "{fault}");
            }
            let fault = records.check_value::<false>(key, &value[1..], "a test").unwrap_err();
            assert!(matches!(fault, Fault::Length { .. }), "{fault}");
        }
    }

    #[test]
    fn bytes_are_ordered_as_the_numbers_are() {
        let shape = Shape { key_bytes: 24, value_bytes: 8 };
        let mut buffers = Buffers::new(shape);
        let mut bytes = |key| buffers.key::<false>(key).to_vec();
        assert!(bytes(1) < bytes(2) && bytes(255) < bytes(256) && bytes(1) < bytes(u64::MAX));
        let (least, greatest) = Buffers::ends(shape);
        assert!(least < bytes(0) && bytes(u64::MAX) < greatest);
    }
}
