//! Records by number: the key of record `i`, the number of a key, and the values that a key may
//! have.
//!
//! A bijection of 64 bits maps numbers to keys. So keys are spread evenly, and no table of keys
//! competes for the cache. A key that was never inserted is recognised: its number is out of range.

use pando_index::random::{FACTORS, INCREMENT, Random};

/// Bits of a value that distinguish the writes of a key; the bits above them depend on the key.
pub const VERSION_BITS: u32 = 16;

const VALUE_SALT: u64 = INCREMENT;

/// The key of record `number`.
#[inline]
pub fn key_of(number: u64) -> u64 {
    Random::new(number).draw()
}

/// The number of the record with this key: the inverse of [`key_of`].
pub fn number_of(key: u64) -> u64 {
    let mut bits = undo_shift(key, 31).wrapping_mul(inverse(FACTORS[1]));
    bits = undo_shift(bits, 27).wrapping_mul(inverse(FACTORS[0]));
    undo_shift(bits, 30).wrapping_sub(INCREMENT)
}

/// The value that write `version` gives to `key`; only [`VERSION_BITS`] of the version are used.
#[inline]
pub fn value_of(key: u64, version: u64) -> u64 {
    let own = key_of(key ^ VALUE_SALT);
    let mask = (1 << VERSION_BITS) - 1;
    (own & !mask) | (version & mask)
}

/// Whether a write of `key` may have given it `value`.
#[inline]
pub fn belongs(key: u64, value: u64) -> bool {
    (value_of(key, 0) ^ value) >> VERSION_BITS == 0
}

/// Solves `bits ^ (bits >> shift) == mixed` for `bits`.
fn undo_shift(mixed: u64, shift: u32) -> u64 {
    let mut bits = mixed;
    // Each step corrects `shift` more of the upper bits.
    for _ in 0..64 / shift {
        bits = mixed ^ (bits >> shift);
    }
    bits
}

/// The inverse of an odd number modulo 2^64, by Newton's method: each step doubles the number of
/// correct bits.
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut turn = 0;
    while turn < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        turn += 1;
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_leads_back_to_its_number() {
        for number in (0..10_000).chain([u64::MAX, u64::MAX - 1, 1 << 63]) {
            assert_eq!(number_of(key_of(number)), number);
        }
    }

    #[test]
    fn a_value_belongs_to_its_key_alone() {
        let key = key_of(7);
        assert!(belongs(key, value_of(key, 0)) && belongs(key, value_of(key, 0xFFFF)));
        assert!(!belongs(key_of(8), value_of(key, 0)));
        assert!(!belongs(key, value_of(key, 0) ^ (1 << VERSION_BITS)));
    }
}
