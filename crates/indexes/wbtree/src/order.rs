//! Cells of a node in order of their keys, eight to a word, as in slot words.

use crate::layout::MAX_CELLS;

/// Cells of a word.
pub(crate) const CELLS_A_WORD: usize = 8;
/// Bits of a cell.
pub(crate) const CELL_BITS: usize = 6;
const CELL: u64 = (1 << CELL_BITS) - 1;
/// The bits of a word that are cells.
pub(crate) const CELLS: u64 = (1 << (CELLS_A_WORD * CELL_BITS)) - 1;
/// Words of an order.
pub(crate) const WORDS: usize = (MAX_CELLS as usize).div_ceil(CELLS_A_WORD);
const LAST_SHIFT: usize = (CELLS_A_WORD - 1) * CELL_BITS;

const _: () = assert!(MAX_CELLS <= CELL);

/// Cells in order. All bits behind the last one are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    words: [u64; WORDS],
    len: usize,
}

/// The cell at a place of a word.
#[inline(always)]
pub(crate) fn cell_of(word: u64, place: usize) -> u8 {
    (word >> (CELL_BITS * place) & CELL) as u8
}

impl Order {
    pub const EMPTY: Self = Self { words: [0; WORDS], len: 0 };

    /// From words that have only cells, the first `len` of them.
    #[inline(always)]
    pub fn of_words(words: [u64; WORDS], len: usize) -> Self {
        Self { words, len }
    }

    /// The cells from `first` on, `len` of them, in ascending order.
    pub fn ascending(first: usize, len: usize) -> Self {
        (first as u8..(first + len) as u8).collect()
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The cells of the word `index`.
    #[inline(always)]
    pub fn word(&self, index: usize) -> u64 {
        self.words[index]
    }

    #[inline(always)]
    pub fn cell(&self, place: usize) -> u8 {
        cell_of(self.words[place / CELLS_A_WORD], place % CELLS_A_WORD)
    }

    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0..self.len).map(|place| self.cell(place))
    }

    #[inline(always)]
    pub fn push(&mut self, cell: u8) {
        self.words[self.len / CELLS_A_WORD] |=
            u64::from(cell) << (CELL_BITS * (self.len % CELLS_A_WORD));
        self.len += 1;
    }

    /// The bits of the places before `at`, in its word.
    #[inline(always)]
    fn before(at: usize) -> u64 {
        (1 << (CELL_BITS * (at % CELLS_A_WORD))) - 1
    }

    #[inline]
    pub fn insert(&mut self, at: usize, cell: u8) {
        let (first, before) = (at / CELLS_A_WORD, Self::before(at));
        let word = self.words[first];
        let moved = (word & !before) << CELL_BITS;
        let cell = u64::from(cell) << (CELL_BITS * (at % CELLS_A_WORD));
        self.words[first] = (word & before | moved | cell) & CELLS;
        let mut pushed_out = word >> LAST_SHIFT;
        for word in &mut self.words[first + 1..] {
            let last = *word >> LAST_SHIFT;
            *word = (*word << CELL_BITS | pushed_out) & CELLS;
            pushed_out = last;
        }
        self.len += 1;
    }

    #[inline]
    pub fn remove(&mut self, at: usize) {
        let (first, before) = (at / CELLS_A_WORD, Self::before(at));
        let mut pulled_in = 0;
        for word in self.words[first + 1..].iter_mut().rev() {
            let lowest = *word & CELL;
            *word = *word >> CELL_BITS | pulled_in << LAST_SHIFT;
            pulled_in = lowest;
        }
        let word = self.words[first];
        let moved = (word >> CELL_BITS) & !before;
        self.words[first] = word & before | moved | pulled_in << LAST_SHIFT;
        self.len -= 1;
    }

    /// Replaces the cell at a place.
    pub fn set(&mut self, at: usize, cell: u8) {
        let shift = CELL_BITS * (at % CELLS_A_WORD);
        let word = &mut self.words[at / CELLS_A_WORD];
        *word = *word & !(CELL << shift) | u64::from(cell) << shift;
    }

    /// Replaces the cell `from`, if it is in the order.
    pub fn replace(&mut self, from: u8, to: u8) {
        let place = self.iter().position(|cell| cell == from);
        if let Some(place) = place {
            self.set(place, to);
        }
    }

    /// Keeps the first `len`.
    pub fn truncate(&mut self, len: usize) {
        let first = len / CELLS_A_WORD;
        if let Some(word) = self.words.get_mut(first) {
            *word &= Self::before(len);
        }
        self.words.iter_mut().skip(first + 1).for_each(|word| *word = 0);
        self.len = self.len.min(len);
    }
}

impl FromIterator<u8> for Order {
    #[inline(always)]
    fn from_iter<I: IntoIterator<Item = u8>>(cells: I) -> Self {
        let mut order = Self::EMPTY;
        cells.into_iter().for_each(|cell| order.push(cell));
        order
    }
}

#[cfg(test)]
mod tests {
    use pando_index::random::Random;

    use super::*;

    #[test]
    fn orders_change_as_lists_do() {
        let (mut random, mut order, mut list) = (Random::new(1), Order::EMPTY, Vec::<u8>::new());
        for _ in 0..3000 {
            let (len, cell) = (list.len() as u64, random.below(MAX_CELLS) as u8);
            match random.below(8) {
                0..5 if len < MAX_CELLS => {
                    let at = random.below(len + 1) as usize;
                    order.insert(at, cell);
                    list.insert(at, cell);
                }
                5 if len > 0 => {
                    let at = random.below(len) as usize;
                    order.set(at, cell);
                    list[at] = cell;
                }
                6 if random.one_in(30) => {
                    let keep = random.below(len + 1) as usize;
                    order.truncate(keep);
                    list.truncate(keep);
                }
                _ if len > 0 => {
                    let at = random.below(len) as usize;
                    order.remove(at);
                    list.remove(at);
                }
                _ => {}
            }
            // All bits behind the last cell are zero.
            assert_eq!(order, list.iter().copied().collect());
            assert!(order.iter().eq(list.iter().copied()) && order.len() == list.len());
        }
    }
}
