//! Numbers that nobody can predict, and orders that a seed repeats.

use std::hash::{BuildHasher, RandomState};

/// A number that differs from call to call and from process to process.
pub fn unpredictable() -> u64 {
    // Each `RandomState` is keyed by the system's random source.
    RandomState::new().hash_one(0u64)
}

/// SplitMix64: the next number of the sequence that `state` stands in.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// The numbers below `count` in an order that depends on `seed` alone.
pub fn order(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = seed;
    for last in (1..count).rev() {
        let other = (next(&mut state) % (last as u64 + 1)) as usize;
        order.swap(last, other);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_every_number_and_repeats() {
        let shuffled = order(1000, 7);
        assert_eq!(shuffled, order(1000, 7));
        assert_ne!(shuffled, order(1000, 8));
        let mut sorted = shuffled.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
        assert!(order(0, 1).is_empty());
    }
}
