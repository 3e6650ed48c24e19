//! How high a node becomes.
//!
//! Heights decide nothing but speed: a list is sound whatever they are. By chance alone, as in the paper, half of the
//! nodes of a level are on the next one. But the gaps between two of these differ, and a search goes through long
//! ones more often than through short ones: to one node a level on the average, each of which is a line to wait for.
//!
//! With *even gaps* an insert looks how many nodes of a level lie in the gap in which it finds its place, between two
//! nodes of the next level: those that its search has gone through, and whether there is one behind. Before the node
//! rises from a level to the next:
//!
//! | nodes that it knows of in the gap | it rises |
//! | --- | --- |
//! | none | never: the gap would be split for nothing |
//! | one | by chance, in one of two cases |
//! | two or more | always |
//!
//! So inserts leave no long gaps, in whatever order they come, and a search goes to 0.7 times as many nodes. Removes
//! make gaps longer. In the worst order of those that were simulated (descending inserts, then each second record
//! removed) a search goes to as many nodes as by chance alone.
//!
//! What is chance follows from the key and the map's seed, so that a run can be repeated, and so that who does not know
//! the seed can neither choose keys whose nodes stay low nor foresee which nodes are high.

use crate::layout::{MAX_HEIGHT, slice_of};
use crate::style::Place;

/// What the height of the node of `key` depends on by chance: a bit a level, of one key in one map always the same.
/// The map's `seed` keeps a user's keys from being chosen to be low.
#[inline]
fn chances(key: &[u8], seed: u64) -> u64 {
    let fold = |mixed: u64, word: u64| {
        let product = u128::from(mixed ^ word) * 0x9E37_79B9_7F4A_7C15;
        product as u64 ^ (product >> 64) as u64
    };
    let start = fold(seed ^ 0xA076_1D64_78BD_642F, key.len() as u64);
    let (words, rest) = key.as_chunks::<8>();
    let mixed = words.iter().fold(start, |mixed, word| fold(mixed, u64::from_le_bytes(*word)));
    let mixed = if rest.is_empty() { mixed } else { fold(mixed, slice_of(rest)) };
    fold(mixed, 0xE703_7ED1_A0B4_28DB)
}

/// The height of the node of `key` by chance alone.
#[inline]
pub(crate) fn by_chance(key: &[u8], seed: u64) -> usize {
    (1 + chances(key, seed).trailing_zeros() as usize).min(MAX_HEIGHT)
}

/// The height of the node of `key` that makes gaps even, if it is inserted at `place`.
#[inline]
pub(crate) fn by_gaps(key: &[u8], seed: u64, place: &Place) -> usize {
    let chances = chances(key, seed);
    let rises = |level: usize| {
        let is_one_behind = place.succ(level) != place.succ(level + 1);
        match place.passed[level].saturating_add(u8::from(is_one_behind)) {
            0 => false,
            1 => chances >> level & 1 == 0,
            _ => true,
        }
    };
    1 + (0..MAX_HEIGHT - 1).take_while(|&level| rises(level)).count()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pando_index::RangeIndex;
    use pando_pmem::{CreateOptions, Pool, Volatile};
    use pando_pmwcas::Pmwcas;

    use super::*;
    use crate::node::Probe;
    use crate::{Options, SkipLists};

    /// Nodes that searches for all keys go to, in a list of nodes of so many levels in all.
    fn passed(even_gaps: bool, keys: &[u64], gone: impl Fn(u64) -> bool) -> (u64, u64) {
        let pool = Pool::<Volatile>::anonymous(&CreateOptions::default()).expect("memory");
        let pmwcas = Arc::new(Pmwcas::open(pool, &[]).expect("opens"));
        let options = Options { even_gaps, height_seed: 1, ..Options::default() };
        let settings = options.settings().expect("options");
        let list = pmwcas.find_or_create_index::<SkipLists>("list", &settings).expect("a list");
        for key in keys {
            list.insert(&key.to_be_bytes(), b"").expect("inserts");
        }
        for key in keys.iter().filter(|&&key| gone(key)) {
            assert!(list.remove(&key.to_be_bytes()).expect("removes"));
        }
        let guard = list.pin().expect("pins");
        let context = list.context(&guard);
        let (mut passed, mut levels) = (0, 0);
        for key in keys.iter().filter(|&&key| !gone(key)) {
            let place = list.find_place(context, Probe::new(&key.to_be_bytes()), |_| ());
            passed += place.passed.iter().map(|&nodes| u64::from(nodes)).sum::<u64>();
            levels += context.state(place.found.expect("is there")).levels() as u64;
        }
        (passed, levels)
    }

    #[test]
    fn even_gaps_are_gone_through_in_fewer_steps() {
        const KEYS: u64 = 20_000;
        let ascending: Vec<u64> = (0..KEYS).collect();
        let descending: Vec<u64> = (0..KEYS).rev().collect();
        // Each key once, since the factor and the number of keys have no divisor in common.
        let mixed: Vec<u64> = (0..KEYS).map(|number| number * 7_919 % KEYS).collect();
        let none = |_| false;
        for (keys, most) in [(&ascending, 0.8), (&descending, 0.9), (&mixed, 0.8)] {
            let (even, even_levels) = passed(true, keys, none);
            let (chance, chance_levels) = passed(false, keys, none);
            assert!(even as f64 <= chance as f64 * most, "{even} of {chance} at {:?}", &keys[..3]);
            assert!(even_levels as f64 <= chance_levels as f64 * 1.1);
        }
        // What is removed in a pattern leaves longer gaps, and no long ones.
        for (keys, every) in [(&ascending, 2), (&descending, 2), (&ascending, 3), (&mixed, 3)] {
            let gone = |key| key % every == 1;
            let ((even, _), (chance, _)) = (passed(true, keys, gone), passed(false, keys, gone));
            assert!(even as f64 <= chance as f64 * 1.2, "{even} of {chance}, {every}");
        }
    }

    #[test]
    fn golden_heights() {
        let heights: Vec<_> =
            (0..12_u64).map(|number| by_chance(&number.to_be_bytes(), 1)).collect();
        // Nodes that are there keep theirs, whatever this says; runs of the lab are repeated by it.
        assert_eq!(heights, [5, 2, 2, 3, 10, 1, 1, 2, 5, 1, 2, 1]);
    }

    #[test]
    fn half_of_a_level_is_on_the_next() {
        for length in [1, 7, 8, 9, 16, 40] {
            for seed in [0, 1, u64::MAX] {
                let mut above = [0_u64; MAX_HEIGHT + 1];
                for number in 0..65_536_u64 {
                    let mut key = number.to_be_bytes().repeat(5);
                    key.drain(..40 - length.max(3));
                    let height = by_chance(&key, seed);
                    (0..height).for_each(|level| above[level] += 1);
                }
                for level in 1..5 {
                    let (here, below) = (above[level] as f64, above[level - 1] as f64);
                    let share = here / below;
                    assert!((0.45..0.55).contains(&share), "{length} {seed} {level}: {share}");
                }
            }
        }
    }
}
