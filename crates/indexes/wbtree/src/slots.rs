//! The slot words of a slot+bitmap node: the order of its live cells (paper 4.2, 4.5).
//!
//! ```text
//! slot word   63..48 version of the state   47..0 eight slots of six bits, the first lowest
//! ```
//!
//! The word `i` has the cells of records `8 i` to `8 i + 7`, in order of keys.
//!
//! # Protocol
//!
//! The state alone says which cells are live. The slot words are derived from it, and each has the
//! version from which it was derived. A thread that needs the order, and finds a word of another
//! version, sorts the live cells and rewrites the words (paper, figure 10, lines 2 to 4). A leaf is
//! searched without its slots (`search.rs`).
//!
//! | step | thread | what a crash leaves |
//! | --- | --- | --- |
//! | the state has version v | the writer | words of earlier versions, which do not count |
//! | the cells are read and sorted; the state still has version v | any thread | the same |
//! | each word of another version is written with that of v | any thread | some words of v |
//!
//! So a word of version v holds the sorted live cells of v, whichever thread wrote it, and at any
//! time. A late store may replace a word of a later version. Its own version never returns, so each
//! thread that finds it ignores it like any outdated word. The cost is one more sort by a reader;
//! no word is ever wrong.
//!
//! The writer of a state writes its words right after the swap, before the write-back, which then
//! includes both: they are in one line, whose stores reach the medium in order. So a word of v is
//! on the medium only with a state of v or of a later version. A recovery never goes back to an
//! earlier state, so after a crash no other state has the version of such a word. The words need no
//! write-back of their own.

use crate::order::{CELL_BITS, CELLS, CELLS_A_WORD, Order};

const VERSION_SHIFT: usize = 48;

const _: () = {
    assert!(CELLS_A_WORD * CELL_BITS == VERSION_SHIFT);
    assert!(crate::layout::MAX_VERSION == u64::MAX >> VERSION_SHIFT);
};

/// The number of words for `count` slots.
#[inline(always)]
pub(crate) fn words_of(count: usize) -> u64 {
    count.div_ceil(CELLS_A_WORD) as u64
}

/// The word `index` of the slots of `order`, for a state of `version`.
#[inline(always)]
pub(crate) fn encode(order: &Order, index: u64, version: u64) -> u64 {
    version << VERSION_SHIFT | order.word(index as usize)
}

/// The version of the state for which a word was written.
#[inline(always)]
pub(crate) fn version_of(word: u64) -> u64 {
    word >> VERSION_SHIFT
}

/// A word of no state: no state has the largest version.
pub(crate) const NONE: u64 = u64::MAX << VERSION_SHIFT;

/// The cells of a word.
#[inline(always)]
pub(crate) fn cells_of(word: u64) -> u64 {
    word & CELLS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_slots() {
        let mut order = Order::ascending(0, 9);
        order.insert(0, 37);
        let words = [encode(&order, 0, 0xABCD), encode(&order, 1, 0xABCD)];
        let first = [37, 0, 1, 2, 3, 4, 5, 6];
        let slots = first.iter().rev().fold(0, |slots: u64, cell| slots << 6 | cell);
        assert_eq!(words, [0xABCD << 48 | slots, 0xABCD << 48 | 8 << 6 | 7]);
        assert_eq!((version_of(words[1]), words_of(10)), (0xABCD, 2));
        let words = words.map(cells_of);
        assert_eq!(Order::of_words([words[0], words[1], 0, 0, 0], 10), order);
    }
}
