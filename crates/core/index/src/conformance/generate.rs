//! Adversarial keys and values, as descriptions that have a short output and shrink well.

use proptest::prelude::*;
use proptest::sample::select;

use super::random::Random;
use crate::Limits;

/// The description of a key. A key that is longer than the index's limit is cut to the limit.
#[derive(Clone, Debug)]
pub(super) enum Key {
    /// These bytes.
    Bytes(Vec<u8>),
    /// This integer, big-endian, so that the keys are in the order of the numbers.
    Integer(u64),
    /// A prefix that all keys of this length share, then two bytes that differ.
    Prefixed { prefix_bytes: usize, tail: u16 },
    /// One byte, repeated.
    Filled { byte: u8, length: usize },
}

impl Key {
    pub(super) fn bytes(&self, limits: Limits) -> Vec<u8> {
        let room = limits.max_key_bytes;
        let mut key = match self {
            Key::Bytes(bytes) => bytes.clone(),
            Key::Integer(number) => number.to_be_bytes().to_vec(),
            Key::Prefixed { prefix_bytes, tail } => {
                let mut key = vec![b'p'; (*prefix_bytes).min(room.saturating_sub(2))];
                key.extend_from_slice(&tail.to_be_bytes());
                key
            }
            Key::Filled { byte, length } => vec![*byte; *length],
        };
        key.truncate(room);
        key
    }
}

/// The description of a value: pseudo-random bytes, so that two values seldom agree in a byte.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) length: usize,
    pub(super) seed: u8,
}

impl Value {
    pub(super) fn bytes(&self, limits: Limits) -> Vec<u8> {
        let length = self.length.min(limits.max_value_bytes);
        let mut random = Random::new(u64::from(self.seed));
        let mut value = Vec::with_capacity(length + 8);
        while value.len() < length {
            value.extend_from_slice(&random.next().to_le_bytes());
        }
        value.truncate(length);
        value
    }
}

/// Eight keys, so that operations on one key are frequent; the empty key is one of them.
pub(super) fn few_keys() -> BoxedStrategy<Key> {
    let keys: Vec<Vec<u8>> =
        [&b""[..], b"\0", b"a", b"a\0", b"ab", b"b", b"\x80", b"\xff"].map(<[u8]>::to_vec).into();
    select(keys).prop_map(Key::Bytes).boxed()
}

/// Short strings of the bytes at which comparisons often fail: sign, terminator, extremes.
pub(super) fn adversarial_bytes() -> BoxedStrategy<Key> {
    let byte = select(vec![0x00_u8, 0x01, 0x7F, 0x80, 0xFE, 0xFF]);
    prop::collection::vec(byte, 0..6).prop_map(Key::Bytes).boxed()
}

/// Numbers of one dense range, and the smallest and largest numbers.
pub(super) fn integers() -> BoxedStrategy<Key> {
    let ends = prop_oneof![0_u64..4, u64::MAX - 4..=u64::MAX, (1 << 63) - 2..=(1_u64 << 63) + 2];
    prop_oneof![20 => 1_000_u64..4_000, 1 => ends].prop_map(Key::Integer).boxed()
}

/// Keys that differ only after a prefix, some of which are longer than a small page.
pub(super) fn long_prefixes() -> BoxedStrategy<Key> {
    (select(vec![60_usize, 60, 60, 700, 3_000]), 0_u16..300)
        .prop_map(|(prefix_bytes, tail)| Key::Prefixed { prefix_bytes, tail })
        .boxed()
}

/// All of these, and keys of one repeated byte, in all lengths.
pub(super) fn mixed_keys() -> BoxedStrategy<Key> {
    let length = prop_oneof![8 => 0_usize..40, 3 => 40_usize..600, 1 => 4_000_usize..9_000];
    let filled = (select(vec![0x00_u8, b'm', 0x7F, 0x80, 0xFF]), length)
        .prop_map(|(byte, length)| Key::Filled { byte, length });
    prop_oneof![few_keys(), adversarial_bytes(), integers(), long_prefixes(), filled].boxed()
}

/// Values of all sizes: most of them small, some longer than a page, a few longer than many pages.
pub(super) fn values() -> BoxedStrategy<Value> {
    let length = prop_oneof![
        10 => Just(0_usize),
        60 => Just(8_usize),
        60 => 1_usize..60,
        20 => 100_usize..900,
        4 => 4_990_usize..5_010,
        1 => Just(100_000_usize),
    ];
    (length, any::<u8>()).prop_map(|(length, seed)| Value { length, seed }).boxed()
}
