//! The forms in which the maps of crates.io keep keys and values.
//!
//! A map that is generic over its types is at its best when eight bytes are a number in its nodes
//! and longer ones are a slice on the heap. [`KeySlot`] and [`ValueSlot`] are those two forms, so
//! that an adapter is written once. Looking a key up allocates nothing in either form.

use std::borrow::Borrow;

use super::words::{key_word, value_word};

/// The form in which a map keeps a key; its order is the bytewise order of the bytes.
pub trait KeySlot: Borrow<<Self as KeySlot>::Query> + Clone + Ord + Send + Sync + 'static {
    /// What a key is looked up by.
    type Query: Ord + ?Sized;

    /// The form of these bytes.
    fn keep(bytes: &[u8]) -> Self;

    /// Calls `ask` with these bytes in the form that looks a key up.
    fn ask<Answer>(bytes: &[u8], ask: impl FnOnce(&Self::Query) -> Answer) -> Answer;

    /// Calls `visit` with the bytes.
    fn show(&self, visit: impl FnOnce(&[u8]));
}

/// The form in which a map keeps a value.
pub trait ValueSlot: Clone + PartialEq + Send + Sync + 'static {
    /// The form of these bytes.
    fn keep(bytes: &[u8]) -> Self;

    /// Calls `visit` with the bytes.
    fn show(&self, visit: impl FnOnce(&[u8]));
}

/// The number in eight big-endian bytes. Others never come here: the shape of a run says how long
/// its keys are.
#[inline]
pub fn key_number(bytes: &[u8]) -> u64 {
    key_word(bytes).unwrap_or(u64::MAX)
}

/// The number in eight little-endian bytes; as [`key_number`].
#[inline]
pub fn value_number(bytes: &[u8]) -> u64 {
    value_word(bytes).unwrap_or(u64::MAX)
}

impl KeySlot for u64 {
    type Query = Self;

    #[inline]
    fn keep(bytes: &[u8]) -> Self {
        key_number(bytes)
    }

    #[inline]
    fn ask<Answer>(bytes: &[u8], ask: impl FnOnce(&Self) -> Answer) -> Answer {
        ask(&key_number(bytes))
    }

    #[inline]
    fn show(&self, visit: impl FnOnce(&[u8])) {
        visit(&self.to_be_bytes());
    }
}

impl ValueSlot for u64 {
    #[inline]
    fn keep(bytes: &[u8]) -> Self {
        value_number(bytes)
    }

    #[inline]
    fn show(&self, visit: impl FnOnce(&[u8])) {
        visit(&self.to_le_bytes());
    }
}

impl KeySlot for Box<[u8]> {
    type Query = [u8];

    #[inline]
    fn keep(bytes: &[u8]) -> Self {
        bytes.into()
    }

    #[inline]
    fn ask<Answer>(bytes: &[u8], ask: impl FnOnce(&[u8]) -> Answer) -> Answer {
        ask(bytes)
    }

    #[inline]
    fn show(&self, visit: impl FnOnce(&[u8])) {
        visit(self);
    }
}

impl ValueSlot for Box<[u8]> {
    #[inline]
    fn keep(bytes: &[u8]) -> Self {
        bytes.into()
    }

    #[inline]
    fn show(&self, visit: impl FnOnce(&[u8])) {
        visit(self);
    }
}
