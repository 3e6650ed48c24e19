//! Eight-byte records as integers, for the maps whose users would keep them so.
//!
//! Keys are big-endian, so that the order of integers is that of the bytes; values little-endian.

use crate::record::Shape;
use crate::system::Refusal;

/// The integer that a key of eight bytes stands for.
#[inline]
pub fn key_word(bytes: &[u8]) -> Result<u64, Refusal> {
    Ok(u64::from_be_bytes(bytes.try_into()?))
}

/// The integer that a value of eight bytes stands for.
#[inline]
pub fn value_word(bytes: &[u8]) -> Result<u64, Refusal> {
    Ok(u64::from_le_bytes(bytes.try_into()?))
}

/// The limits of a system that takes integers alone.
pub fn only_words(shape: Shape) -> Result<(), String> {
    if shape.is_eight() {
        Ok(())
    } else {
        Err("it takes keys and values of 8 bytes only".to_owned())
    }
}
