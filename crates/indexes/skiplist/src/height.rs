//! The height of a node.
//!
//! Heights affect only the speed: a list is correct with any heights. By chance alone, as in the
//! paper, half of the nodes of a level are on the next one. But the gaps between two of these
//! differ, and a search passes through long gaps more often than through short ones. On average it
//! visits one node on each level, and each is a line to wait for.
//!
//! With *even gaps* an insert counts the nodes of a level in the gap of its place, between two
//! nodes of the next level: the nodes that its search has visited, and whether there is one behind
//! its place. Before the node rises from a level to the next:
//!
//! | known nodes in the gap | the node rises |
//! | --- | --- |
//! | none | in one of eight cases: usually the gap would be split in vain |
//! | one | in one of two |
//! | two or more | in seven of eight |
//!
//! So inserts leave few long gaps, in any order of inserts, and a search visits 0.7 times as many
//! nodes (0.9 times after descending inserts). Removes make gaps longer. In the worst tested order
//! (descending inserts, then the removal of each second record) a search visits about as many nodes
//! as by chance alone.
//!
//! No row is certain. Suppose that a node never rose with none, and always with two. Then an
//! attacker who does not know the seed, or an accident, could surround each node with high ones, so
//! that it stays low, and remove these. Only low nodes would remain, and a search would visit all
//! of them. With the table above, wherever nodes are inserted, on average at least one in eight of
//! a level is on the next one, if removes do not depend on heights. In the worst case a search
//! visits seven nodes on each level, on a third as many levels, which is 2.3 times as many as by
//! chance alone.
//!
//! The random part follows from the key and the map's seed. So a run can be repeated, and without
//! the seed no one can choose keys whose nodes stay low, or predict which nodes are high.

use pando_tree::key::slice_of;

use crate::layout::MAX_HEIGHT;
use crate::style::Place;

/// Mixes `word` in.
#[inline]
fn fold(mixed: u64, word: u64) -> u64 {
    let product = u128::from(mixed ^ word) * 0x9E37_79B9_7F4A_7C15;
    product as u64 ^ (product >> 64) as u64
}

/// The random bits for the height of the node of `key`: one bit for each level, always the same for
/// one key in one map. The map's `seed` prevents users from choosing keys with low nodes.
#[inline]
fn chances(key: &[u8], seed: u64) -> u64 {
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

/// Whether a node rises from each level, one bit for each level, by the number of known nodes in
/// its gap: none, one, more.
#[inline]
fn rising(key: &[u8], seed: u64) -> [u64; 3] {
    let first = chances(key, seed);
    let second = first >> MAX_HEIGHT;
    let third = fold(first, 0x8EBC_6AF0_9C88_C6E3);
    [!(first | second | third), !first, !(first & second & third)]
}

/// The height of the node of `key` with even gaps, if it is inserted at `place`.
#[inline]
pub(crate) fn by_gaps(key: &[u8], seed: u64, place: &Place) -> usize {
    let rising = rising(key, seed);
    let rises = |level: usize| {
        let is_one_behind = place.succ(level) != place.succ(level + 1);
        let known = place.passed[level].saturating_add(u8::from(is_one_behind));
        rising[usize::from(known.min(2))] >> level & 1 == 1
    };
    1 + (0..MAX_HEIGHT - 1).take_while(|&level| rises(level)).count()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pando_index::RangeIndex;
    use pando_pmem::{CreateOptions, Pool, Process};
    use pando_tree::maps::Catalog;

    use super::*;
    use crate::{Options, SkipLists};
    use pando_tree::key::Probe;

    /// The nodes that searches for all remaining keys visit, in several lists together. The few
    /// nodes on the highest levels depend on chance, and one list may differ by a quarter from the
    /// mean.
    fn passed(even_gaps: bool, keys: &[u64], gone: impl Fn(u64) -> bool) -> (u64, u64) {
        (1..=16)
            .map(|seed| passed_in_one(seed, even_gaps, keys, &gone))
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// The same in the list of one seed.
    fn passed_in_one(
        height_seed: u32,
        even_gaps: bool,
        keys: &[u64],
        gone: impl Fn(u64) -> bool,
    ) -> (u64, u64) {
        let pool = Pool::<Process>::anonymous(&CreateOptions::default()).expect("memory");
        let catalog = Arc::new(Catalog::open(pool).expect("opens"));
        let options = Options { even_gaps, height_seed, ..Options::default() };
        let list = catalog.find_or_create_index::<SkipLists>("list", options).expect("a list");
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
            levels += place.found.expect("is there").state(context).levels() as u64;
        }
        (passed, levels)
    }

    #[test]
    fn even_gaps_are_gone_through_in_fewer_steps() {
        const KEYS: u64 = 20_000;
        let ascending: Vec<u64> = (0..KEYS).collect();
        let descending: Vec<u64> = (0..KEYS).rev().collect();
        // Each key once, since the factor and the number of keys have no common divisor.
        let mixed: Vec<u64> = (0..KEYS).map(|number| number * 7_919 % KEYS).collect();
        let none = |_| false;
        for (keys, most) in [(&ascending, 0.8), (&descending, 0.9), (&mixed, 0.8)] {
            let (even, even_levels) = passed(true, keys, none);
            let (chance, chance_levels) = passed(false, keys, none);
            assert!(even as f64 <= chance as f64 * most, "{even} of {chance} at {:?}", &keys[..3]);
            assert!(even_levels as f64 <= chance_levels as f64 * 1.1);
        }
        // Regular removes leave longer gaps, but no very long ones.
        for (keys, every) in [(&ascending, 2), (&descending, 2), (&ascending, 3), (&mixed, 3)] {
            let gone = |key| key % every == 1;
            let ((even, _), (chance, _)) = (passed(true, keys, gone), passed(false, keys, gone));
            assert!(even as f64 <= chance as f64 * 1.2, "{even} of {chance}, {every}");
        }
    }

    /// Inserts keys, without knowledge of the seed, so that the remaining keys found none in their
    /// gaps.
    #[test]
    fn heights_cannot_be_foreseen() {
        const PLACES: u64 = 8;
        const LEFT: u64 = 20_000;
        let each = LEFT / PLACES;
        let mut keys = Vec::new();
        for place in 0..PLACES {
            let first = place * 4 * each;
            // Behind these, in half of the places, each node finds two in its gap.
            keys.extend([first + 1, first + 3]);
            for number in (1..each).rev() {
                let high = first + 2 * number + 2;
                // Between this one and the one before, which are both high, there is none.
                keys.extend([high, high + 1]);
            }
        }
        let gone = |key| key % 2 == 0;
        let ((even, _), (chance, _)) = (passed(true, &keys, gone), passed(false, &keys, gone));
        assert!(even <= 2 * chance, "{even} of {chance}");
    }

    #[test]
    fn golden_heights() {
        let heights: Vec<_> =
            (0..12_u64).map(|number| by_chance(&number.to_be_bytes(), 1)).collect();
        // Existing nodes keep their heights in any case. But the crash lab repeats runs by these
        // heights.
        assert_eq!(heights, [5, 2, 2, 3, 10, 1, 1, 2, 5, 1, 2, 1]);
    }

    #[test]
    fn more_nodes_rise_where_more_are_known() {
        const KEYS: u64 = 65_536;
        for level in 0..MAX_HEIGHT - 1 {
            let mut rose = [0_u64; 3];
            for number in 0..KEYS {
                let bits = rising(&number.to_be_bytes(), 1).map(|rising| rising >> level & 1);
                assert!(bits.is_sorted());
                rose.iter_mut().zip(bits).for_each(|(rose, bit)| *rose += bit);
            }
            for (rose, share) in rose.into_iter().zip([0.125, 0.5, 0.875]) {
                let differs = rose as f64 / KEYS as f64 - share;
                assert!(differs.abs() < 0.02, "{level} {share}: {rose}");
            }
        }
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
