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
const NEAR: u64 = 16;
/// The same in `numbers.rs`: the child's bounds are among them.
pub(crate) const WINDOW: u64 = 17;
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

    /// The first of the [`WINDOW`] separators around that guess; zero if there are fewer. `count`
    /// is a link's hint, so it is below [`MAX_COUNT`].
    #[inline(always)]
    pub fn window(self, number: u64, count: u64) -> u64 {
        // In a damaged tree the bounds may be any, and so may the guess.
        let (range, below) = (self.high.wrapping_sub(self.low), number.wrapping_sub(self.low));
        let shift = ((range | 1 << (RANGE_BITS - 1)).leading_zeros() ^ 63) - (RANGE_BITS - 1);
        let (below, range) = ((below >> shift) as u32, (range >> shift) as u32 | 1);
        window_around(u64::from(below.wrapping_mul(count as u32) / range), count)
    }
}

/// The same as [`Span::window`] for all keys.
#[inline(always)]
pub(crate) fn window_of_all(number: u64, count: u64) -> u64 {
    window_around(((number >> u32::BITS) * count.min(MAX_COUNT)) >> u32::BITS, count)
}

#[inline(always)]
fn window_around(guess: u64, count: u64) -> u64 {
    guess.saturating_sub(WINDOW / 2).min(count.saturating_sub(WINDOW))
}

/// Prefetches the lines of an inner node that a search in the window reads. The node begins at word
/// `node` of `all`.
#[inline(always)]
pub(crate) fn prefetch_window<D: Domain>(all: Words<'_, D>, node: u64, children: u64, window: u64) {
    let children_at = node + HEADER_BYTES / 8 + window;
    for index in [0, WINDOW / 2, WINDOW - 1] {
        all.prefetch(children_at + children + index);
    }
    for index in [WINDOW / 4, WINDOW * 3 / 4] {
        all.prefetch(children_at + index);
    }
}

/// The first of the separators among which a search looks first.
#[inline(always)]
fn window_start(guess: u64, count: u64) -> u64 {
    guess.saturating_sub(NEAR / 2).min(count.saturating_sub(NEAR))
}

/// Prefetches the lines of an inner node at `off` that a search reads, if the guess is right.
#[inline(always)]
pub(crate) fn prefetch_guessed<D: Domain>(pool: &Pool<D>, off: u64, children: u64, guess: u64) {
    let children_at = off + HEADER_BYTES;
    let window = children_at + (children + window_start(guess, children - 1)) * 8;
    for index in [0, NEAR / 2, NEAR - 1] {
        pool.prefetch(window + index * 8);
    }
    for index in [guess.saturating_sub(NEAR / 4), guess + NEAR / 4] {
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
    if count < NEAR || !words.reach(first + count) {
        return None;
    }
    let start = window_start(guess, count);
    let window = words.part::<{ NEAR as usize }>(first + start)?;
    // Relaxed: separators never change, and the thread has read, with acquire, the word that
    // published the node.
    let goes_right = |at: u64| {
        let key = window.load(at, Ordering::Relaxed).swap_bytes();
        if above { key <= number } else { key < number }
    };
    if goes_right(NEAR - 1) {
        return (start + NEAR == count).then_some(count);
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
    let quarter = step(0, NEAR / 4);
    Some(start + quarter + step(quarter, 1))
}

const _: () = assert!(NEAR == 16);

#[cfg(test)]
mod tests {
    use pando_pmem::{CreateOptions, Process};

    use super::*;

    #[test]
    fn a_guess_is_the_share_of_the_range() {
        let span = Span { low: 1000, high: 2000 };
        let guesses = [0, 1000, 1500, 1999, 2000, u64::MAX].map(|key| span.guess(key, 100));
        assert_eq!(guesses, [0, 0, 49, 99, 99, 99]);
        assert_eq!(Span::ALL.guess(u64::MAX / 4 * 3, 2047), 1535);
        assert_eq!(Span::ALL.guess(u64::MAX, 4096), 2047);
        // As only damage leaves them.
        assert_eq!(Span { low: 7, high: 7 }.guess(7, 100), 0);
        assert_eq!(Span { low: 7, high: 3 }.guess(u64::MAX, 100), 0);
    }

    #[test]
    fn a_window_lies_around_the_guess() {
        let span = Span { low: 1000, high: 2000 };
        let windows = [1000, 1100, 1500, 1999].map(|key| span.window(key, 100));
        assert_eq!(windows, [0, 1, 41, 83]);
        let far = Span { low: 1 << 60, high: 1 << 61 };
        assert_eq!(far.window(3 << 59, 100), far.guess(3 << 59, 100) - WINDOW / 2);
        let windows = [0, u64::MAX / 4 * 3, u64::MAX].map(|key| window_of_all(key, 4096));
        assert_eq!(windows, [0, 1527, 2038]);
        // There are not so many separators, or only damage leaves such bounds.
        assert_eq!((span.window(1500, 16), window_of_all(u64::MAX, 16)), (0, 0));
        for span in [Span { low: 7, high: 7 }, Span { low: 7, high: 3 }, span] {
            for key in [0, 5, u64::MAX] {
                assert!(span.window(key, 2046) <= 2046 - WINDOW);
            }
        }
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
                for guess in 0..count + 20 {
                    let found = search_guessed(words, 0, count, key, above, guess);
                    let label = format!("{key} of {count}, {guess}: {found:?}");
                    assert!(found.is_none_or(|found| found == right), "{label}");
                    let is_near = count >= NEAR && guess.abs_diff(right) < NEAR / 2 - 1;
                    assert!(!is_near || found.is_some(), "{label}");
                }
            }
        }
        assert_eq!(guard.damage(), None);
        // Separators that do not all lie in the node.
        let words = pool.words(guard.reserve(4096).expect("room").off(), 100);
        assert_eq!(search_guessed(words, 60, 41, 7, true, 10), None);
        assert!(guard.damage().is_some());
    }
}
