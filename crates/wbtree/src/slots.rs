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
//! What is live follows from the state alone; the slot words are derived from it, and each says from
//! which version. Who finds one of another version passes them over, looks through the live cells as in
//! a bitmap-only node, and writes the words anew (paper, figure 10, lines 2 to 4).
//!
//! | step | who | what a crash leaves |
//! | --- | --- | --- |
//! | the state has version v, durably | the writer | words of earlier versions: nobody believes them |
//! | the cells are read and sorted; the state still has version v | anyone | the same |
//! | each word is swapped from what was found before the state was looked at again, to that of v | anyone | some words of v |
//!
//! So a word of version v holds what the live cells of v sort to, whoever wrote it. A late writer's swap
//! fails, since versions do not return. And a word of v reaches the medium only when a state of v is
//! durable, of which a recovery never goes back to an earlier one; so after a crash no other state
//! has the version of a word that was left. The words need no write-back of their own.

use crate::state::Order;

/// Slots of a word.
pub(crate) const SLOTS_A_WORD: u64 = 8;
const SLOT_BITS: u64 = 6;
const VERSION_SHIFT: u32 = 48;

const _: () = {
    assert!(SLOTS_A_WORD * SLOT_BITS == VERSION_SHIFT as u64);
    assert!(crate::state::MAX_VERSION == u64::MAX >> VERSION_SHIFT);
    assert!(crate::layout::MAX_CELLS <= 1 << SLOT_BITS);
};

/// How many words `count` slots take.
#[inline(always)]
pub(crate) fn words_of(count: usize) -> u64 {
    (count as u64).div_ceil(SLOTS_A_WORD)
}

/// The word `index` of the slots of `order`, for a state of `version`.
#[inline]
pub(crate) fn encode(order: &Order, index: u64, version: u64) -> u64 {
    let first = (index * SLOTS_A_WORD) as usize;
    let cells = &order.all()[first..order.all().len().min(first + SLOTS_A_WORD as usize)];
    let slots = cells.iter().rev().fold(0, |slots, &cell| slots << SLOT_BITS | u64::from(cell));
    version << VERSION_SHIFT | slots
}

/// The version of the state for which a word was written.
#[inline(always)]
pub(crate) fn version_of(word: u64) -> u64 {
    word >> VERSION_SHIFT
}

/// The cell of record `place`, of the words of a node.
#[inline(always)]
pub(crate) fn cell(words: &[u64], place: usize) -> u8 {
    let word = words[place / SLOTS_A_WORD as usize];
    (word >> (SLOT_BITS * (place as u64 % SLOTS_A_WORD)) & ((1 << SLOT_BITS) - 1)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_slots() {
        let mut order = Order::ascending(9);
        order.insert(0, 37);
        let words = [encode(&order, 0, 0xABCD), encode(&order, 1, 0xABCD)];
        let first = [37, 0, 1, 2, 3, 4, 5, 6];
        let slots = first.iter().rev().fold(0, |slots: u64, cell| slots << 6 | cell);
        assert_eq!(words, [0xABCD << 48 | slots, 0xABCD << 48 | 8 << 6 | 7]);
        assert_eq!((version_of(words[1]), words_of(10)), (0xABCD, 2));
        let cells: Vec<_> = (0..10).map(|place| cell(&words, place)).collect();
        assert_eq!(cells, order.all());
    }
}
