//! Random numbers, and orders that a seed repeats.

use std::hash::{BuildHasher, RandomState};

use pando_index::random::Random;

/// A number that differs from call to call and from process to process.
pub fn unpredictable() -> u64 {
    // Each `RandomState` is keyed by the system's random source.
    RandomState::new().hash_one(0u64)
}

/// The numbers below `count` in an order that depends on `seed` alone.
pub fn order(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    Random::new(seed).shuffle(&mut order);
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
