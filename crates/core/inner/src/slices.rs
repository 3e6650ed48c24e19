//! Slices: the bytes in which most keys of a node differ, side by side.
//!
//! A node whose keys do not all have eight bytes stores a slice for each sorted key: the eight
//! bytes after the prefix that all its sorted keys share. Slices are searched like keys of eight
//! bytes, as numbers in neighbouring lines. A key itself lies elsewhere, and is read only if its
//! slice equals that of the searched key.
//!
//! ```text
//! slice   8 bytes of the key from prefix_bytes of the header on, as they stand in the key; zeros
//!         where the key has no more
//! ```
//!
//! Slices that differ compare, as big-endian numbers, as their keys do. Equal slices decide
//! nothing: zeros may belong to the key, and keys continue after their slices.

use std::cmp::Ordering as Compare;
use std::ops::Range;
use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Words};
use pando_tree::key::{alike_bytes, slice_of};

use crate::layout::MAX_PREFIX_BYTES;

/// A shorter prefix stays in the slices: to compare it would need a read of a key.
const MIN_PREFIX_BYTES: usize = 4;

/// The index of the first of `count` keys of 8 bytes that is at least `number` (with `above`:
/// greater than it). The keys stand `stride` words apart in `words`, from word `first`.
#[inline(always)]
pub fn search_numbers<D: Domain>(
    words: Words<'_, D>,
    first: u64,
    stride: u64,
    count: u64,
    number: u64,
    above: bool,
    narrowed: impl FnOnce(u64),
) -> u64 {
    // One check for all keys: a check of each would make the loop longer.
    if count > 0 && !words.reach(first + (count - 1) * stride + 1) {
        return 0;
    }
    // Relaxed: keys never change, and the thread has read, with acquire, the word that published
    // the node.
    let goes_right = |index: u64| {
        let key = words.at(first + index * stride, Ordering::Relaxed).swap_bytes();
        u64::from(if above { key <= number } else { key < number })
    };
    let (mut low, mut size) = (0, count);
    while size > 16 {
        (low, size) = quartered(low, size, goes_right);
    }
    narrowed(low);
    while size >= 4 {
        (low, size) = quartered(low, size, goes_right);
    }
    (0..size).fold(low, |position, index| position + goes_right(low + index))
}

/// One step of a search among `size` keys from `low`: the quarter in which it continues.
///
/// There is no branch on the outcome: the keys of random searches have no pattern that a processor
/// could predict, and the three loads of a step wait for their lines together.
#[inline(always)]
fn quartered(low: u64, size: u64, goes_right: impl Fn(u64) -> u64) -> (u64, u64) {
    let quarter = size / 4;
    let pivot = low + quarter - 1;
    let steps = goes_right(pivot) + goes_right(pivot + quarter) + goes_right(pivot + 2 * quarter);
    // The last part also has the rest of the division. The other parts include keys of the next
    // part, which are greater, so this does no harm.
    (low + steps * quarter, size - 3 * quarter)
}

/// The first index in `range` for which `goes_right` is false, or the end of `range`. Behind such
/// an index there is none for which it is true.
#[inline(always)]
pub fn search_range(range: Range<u64>, goes_right: impl Fn(u64) -> bool) -> u64 {
    let Range { start: mut low, end: mut high } = range;
    while low < high {
        let middle = low.midpoint(high);
        if goes_right(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Whether a search for `key` continues right of `found`, to the first key that is at least `key`
/// (with `above`: greater than it).
#[inline(always)]
pub fn goes_right(found: &[u8], key: &[u8], above: bool) -> bool {
    match found.cmp(key) {
        Compare::Less => true,
        Compare::Equal => above,
        Compare::Greater => false,
    }
}

/// The length of the prefix that the slices of ascending keys from `first` to `last` leave out,
/// since all these keys share it.
pub fn prefix_bytes_of(first: &[u8], last: &[u8]) -> usize {
    match alike_bytes(first, last) {
        0..MIN_PREFIX_BYTES => 0,
        alike => alike.min(MAX_PREFIX_BYTES),
    }
}

/// The slice of a key behind `prefix_bytes`, as a number.
#[inline(always)]
pub fn slice_behind(key: &[u8], prefix_bytes: usize) -> u64 {
    slice_of(key.get(prefix_bytes..).unwrap_or_default())
}

/// The sorted keys of a node, by their slices.
pub struct Sliced<'op, D: Domain> {
    /// The node's words.
    pub words: Words<'op, D>,
    /// The index of the first slice among them.
    pub first: u64,
    /// The common prefix of all keys.
    pub prefix: &'op [u8],
}

impl<'op, D: Domain> Sliced<'op, D> {
    /// The first key in `range` that is at least `key` (with `above`: greater than it), or the end
    /// of `range`. `key_at` lends the node's keys. `narrowed` is called early with the approximate
    /// end of the search.
    #[inline]
    pub fn search(
        &self,
        range: Range<u64>,
        key: &[u8],
        above: bool,
        key_at: impl Fn(u64) -> &'op [u8],
        narrowed: impl FnOnce(u64),
    ) -> u64 {
        let Range { start, end } = range;
        if !self.prefix.is_empty() {
            match key.get(..self.prefix.len()).unwrap_or(key).cmp(self.prefix) {
                Compare::Less => return start,
                Compare::Greater => return end,
                Compare::Equal => {}
            }
        }
        let slice = slice_behind(key, self.prefix.len());
        let (first, count) = (self.first + start, end - start);
        let low = start + search_numbers(self.words, first, 1, count, slice, false, narrowed);
        if low == end || self.slice(low) != slice {
            return low;
        }
        let is_alone = low + 1 == end || self.slice(low + 1) != slice;
        let high = if is_alone {
            low + 1
        } else {
            start + search_numbers(self.words, first, 1, count, slice, true, |_| {})
        };
        search_range(low..high, |index| goes_right(key_at(index), key, above))
    }

    /// Whether the slices are those of `keys`, and each key begins with the prefix.
    pub fn are_of(&self, keys: impl Iterator<Item = &'op [u8]>) -> bool {
        keys.enumerate().all(|(index, key)| {
            let slice = slice_behind(key, self.prefix.len());
            key.starts_with(self.prefix) && self.slice(index as u64) == slice
        })
    }

    #[inline(always)]
    fn slice(&self, index: u64) -> u64 {
        // Relaxed: slices never change, and the thread has read, with acquire, the word that
        // published the node.
        self.words.load(self.first + index, Ordering::Relaxed).swap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_begins_behind_the_prefix() {
        assert_eq!(slice_behind(b"abc", 1).to_be_bytes(), *b"bc\0\0\0\0\0\0");
        assert_eq!(slice_behind(b"abc", 7), 0);
    }

    #[test]
    fn a_prefix_is_what_the_ends_have_in_common() {
        assert_eq!(prefix_bytes_of(b"user1", b"user22"), 4);
        assert_eq!(prefix_bytes_of(b"", b"x"), 0);
        assert_eq!(prefix_bytes_of(b"user", b"user"), 4);
        assert_eq!(prefix_bytes_of(b"use", b"use"), 0);
        assert_eq!(prefix_bytes_of(&[7; 400], &[7; 300]), MAX_PREFIX_BYTES);
    }
}
