//! Guesses of a key's child in an inner node.
//!
//! The separators on both sides of a link are the bounds of the node's keys. If the keys are spread
//! evenly between them, the share of the range below a key is the share of the children before it.
//! So a descent prefetches the lines around that place, all at once, before it reads the node, and
//! searches there first. If the child is not there, all separators are prefetched and searched. The
//! root is guessed too, but not prefetched: it is in the processor's caches.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Pool, Words};

use crate::layout::HEADER_BYTES;

/// Separators among which a search looks first.
const WINDOW: u64 = 16;
/// The number of bits to which a range is cut.
const RANGE_BITS: u32 = 21;
/// A node with more separators is treated as one with this many. Their number times a share of the
/// range then has at most 32 bits, which a processor divides fast.
const MAX_COUNT: u64 = (1 << (u32::BITS - RANGE_BITS)) - 1;

/// Bounds of a node's keys, if they have eight bytes: none is below `low` or above `high`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub low: u64,
    pub high: u64,
}

impl Span {
    /// All keys.
    pub const ALL: Self = Self { low: 0, high: u64::MAX };

    /// How many of `count` separators are probably not above `number`, which may also lie outside.
    #[inline(always)]
    pub fn guess(self, number: u64, count: u64) -> u64 {
        // In a damaged tree the bounds may be any.
        let range = self.high.saturating_sub(self.low);
        let below = number.saturating_sub(self.low).min(range);
        let shift = (u64::BITS - RANGE_BITS).saturating_sub(range.leading_zeros());
        let (below, range) = ((below >> shift) as u32, (range >> shift) as u32 | 1);
        u64::from(below * count.min(MAX_COUNT) as u32 / range)
    }
}

/// The same for all keys.
#[inline(always)]
pub(crate) fn guess_of_all(number: u64, count: u64) -> u64 {
    ((number >> u32::BITS) * count.min(MAX_COUNT)) >> u32::BITS
}

/// The first of the separators among which a search looks first.
#[inline(always)]
fn window_start(guess: u64, count: u64) -> u64 {
    guess.saturating_sub(WINDOW / 2).min(count.saturating_sub(WINDOW))
}

/// Prefetches the lines of an inner node at `off` that a search reads, if the guess is right.
#[inline(always)]
pub(crate) fn prefetch_guessed<D: Domain>(pool: &Pool<D>, off: u64, children: u64, guess: u64) {
    let children_at = off + HEADER_BYTES;
    let window = children_at + (children + window_start(guess, children - 1)) * 8;
    for index in [0, WINDOW / 2, WINDOW - 1] {
        pool.prefetch(window + index * 8);
    }
    for index in [guess.saturating_sub(WINDOW / 4), guess + WINDOW / 4] {
        pool.prefetch(children_at + index * 8);
    }
}

/// Searches the separators around `guess`, of `count` from word `first` on: returns how many are
/// below `number` (with `above`: not above it), if that is seen there.
#[inline(always)]
pub(crate) fn search_guessed<D: Domain>(
    words: Words<'_, D>,
    first: u64,
    count: u64,
    number: u64,
    above: bool,
    guess: u64,
) -> Option<u64> {
    if count < WINDOW || !words.reach(first + count) {
        return None;
    }
    let start = window_start(guess, count);
    let window = words.part::<{ WINDOW as usize }>(first + start)?;
    // Relaxed: separators never change, and the thread has read, with acquire, the word that
    // published the node.
    let goes_right = |at: u64| {
        let key = window.load(at, Ordering::Relaxed).swap_bytes();
        if above { key <= number } else { key < number }
    };
    if goes_right(WINDOW - 1) {
        return (start + WINDOW == count).then_some(count);
    }
    if start > 0 && !goes_right(0) {
        return None;
    }
    // The last place is decided, so the answer is one of sixteen. Each step has three loads that do
    // not wait for each other, and no branch that a processor could not predict.
    let step = |from: u64, by: u64| {
        let of = |place: u64| u64::from(goes_right(from + place * by - 1));
        by * (of(1) + of(2) + of(3))
    };
    let quarter = step(0, WINDOW / 4);
    Some(start + quarter + step(quarter, 1))
}

const _: () = assert!(WINDOW == 16);

#[cfg(test)]
mod tests {
    use pando_pmem::{CreateOptions, Process};

    use super::*;
    use crate::slices::search_few;

    #[test]
    fn a_guess_is_the_share_of_the_range() {
        let span = Span { low: 1000, high: 2000 };
        let guesses = [0, 1000, 1500, 1999, 2000, u64::MAX].map(|key| span.guess(key, 100));
        assert_eq!(guesses, [0, 0, 49, 99, 99, 99]);
        assert_eq!(Span::ALL.guess(u64::MAX / 4 * 3, 2047), 1535);
        assert_eq!(Span::ALL.guess(u64::MAX, 4096), 2047);
        let guesses = [0, u64::MAX / 4 * 3, u64::MAX].map(|key| guess_of_all(key, 4096));
        assert_eq!(guesses, [0, 1535, 2046]);
        // As only damage leaves them.
        assert_eq!(Span { low: 7, high: 7 }.guess(7, 100), 0);
        assert_eq!(Span { low: 7, high: 3 }.guess(u64::MAX, 100), 0);
    }

    /// Whatever the guess: what is found is right, and it is found if the guess is near.
    #[test]
    fn a_search_from_any_guess_is_right() {
        let pool = Pool::<Process>::anonymous(&CreateOptions::default()).expect("memory");
        let guard = pool.pin().expect("a slot");
        for count in [0, 1, 7, 8, 9, 15, 16, 17, 40, 200_u64] {
            let mut block = guard.reserve((count + 1) * 8).expect("room");
            (0..count).for_each(|at| block.write_u64(at * 8, (at * 10).swap_bytes()));
            let words = pool.words(block.off(), count);
            let searches = (0..count * 10 + 2).flat_map(|key| [(key, false), (key, true)]);
            for (key, above) in searches {
                let is_below = |at: &u64| at * 10 < key + u64::from(above);
                let right = (0..count).filter(is_below).count() as u64;
                if above && count < WINDOW {
                    assert_eq!(search_few(words, 0, count, key), right, "{key} of {count}");
                }
                for guess in 0..count + 20 {
                    let found = search_guessed(words, 0, count, key, above, guess);
                    let label = format!("{key} of {count}, {guess}: {found:?}");
                    assert!(found.is_none_or(|found| found == right), "{label}");
                    let is_near = count >= WINDOW && guess.abs_diff(right) < WINDOW / 2 - 1;
                    assert!(!is_near || found.is_some(), "{label}");
                }
            }
        }
        assert_eq!(guard.damage(), None);
        // Separators that do not all lie in the node.
        let words = pool.words(guard.reserve(4096).expect("room").off(), 100);
        assert_eq!(search_guessed(words, 60, 41, 7, true, 10), None);
        assert_eq!(search_few(words, 90, 11, 7), 0);
        assert!(guard.damage().is_some());
    }
}
