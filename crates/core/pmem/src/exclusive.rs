//! A range of a block that one thread owns, written word by word.
//!
//! No other thread should see the block, but one may still read it: a thread that began an
//! [`OptimisticRead`](crate::OptimisticRead) when the block had another owner loads words of it,
//! and drops them. A plain store beside that load would be a data race, which is undefined even if
//! the word is dropped. So the stores are relaxed stores of whole words, and the load sees an old
//! or a new word. A word that is written in part is loaded first; that is no race either, since
//! only its owner stores there. The processor executes the same stores in both cases.

use std::sync::atomic::{AtomicU64, Ordering};

/// A range of a reserved block, to be written.
#[derive(Debug)]
pub struct Exclusive<'block> {
    /// The words that the range lies in.
    words: &'block [AtomicU64],
    /// The byte of the first word at which the range begins.
    skipped: usize,
}

impl<'block> Exclusive<'block> {
    pub(crate) fn new(words: &'block [AtomicU64], skipped: usize) -> Self {
        Self { words, skipped }
    }

    /// Copies `source` to byte `at` of the range; panics beyond its last word, as a slice does.
    #[inline]
    pub fn write(&mut self, at: usize, source: &[u8]) {
        let at = self.skipped + at;
        if at.is_multiple_of(8) {
            self.write_words(at / 8, source);
        } else {
            // First the rest of the word in which it begins, then whole words.
            let (head, rest) = source.split_at(source.len().min(8 - at % 8));
            merge(&self.words[at / 8], at % 8, head);
            self.write_words(at / 8 + 1, rest);
        }
    }

    /// Copies `source` to the words from `first` on. The bytes of the last word after it stay.
    #[inline]
    fn write_words(&mut self, first: usize, source: &[u8]) {
        let (whole, tail) = source.as_chunks::<8>();
        for (word, bytes) in self.words[first..][..whole.len()].iter().zip(whole) {
            // Relaxed, here and below: the block is published by a later release.
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        if !tail.is_empty() {
            merge(&self.words[first + whole.len()], 0, tail);
        }
    }

    /// Writes `value`, little-endian, to byte `at` of the range.
    #[inline]
    pub fn write_u64(&mut self, at: usize, value: u64) {
        if (self.skipped + at).is_multiple_of(8) {
            self.words[(self.skipped + at) / 8].store(value, Ordering::Relaxed);
        } else {
            self.write(at, &value.to_le_bytes());
        }
    }

    /// Sets `bytes` bytes from byte `at` to zero.
    #[inline]
    pub fn zero(&mut self, at: usize, bytes: usize) {
        const ZEROS: [u8; 8] = [0; 8];
        let head = bytes.min((self.skipped + at).wrapping_neg() % 8);
        let whole = (bytes - head) / 8;
        self.write(at, &ZEROS[..head]);
        let first = (self.skipped + at + head) / 8;
        for word in &self.words[first..][..whole] {
            word.store(0, Ordering::Relaxed);
        }
        self.write(at + head + whole * 8, &ZEROS[..bytes - head - whole * 8]);
    }
}

/// Writes `part`, of fewer than eight bytes, to byte `at` of the word. Its other bytes stay.
#[inline]
fn merge(word: &AtomicU64, at: usize, part: &[u8]) {
    // By shifts: a word that is assembled from bytes on the stack stalls its load.
    let new = part.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)) << (8 * at);
    let mask = ((1 << (8 * part.len())) - 1) << (8 * at);
    word.store(word.load(Ordering::Relaxed) & !mask | new, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any range is written, byte for byte, and its neighbours stay.
    #[test]
    fn ranges_are_written_and_their_neighbours_stay() {
        const BYTES: usize = 40;
        for skipped in 0..8 {
            for at in 0..12 {
                for length in 0..=BYTES - skipped - at {
                    let words = [const { AtomicU64::new(u64::MAX) }; BYTES / 8];
                    let found = || -> Vec<u8> {
                        let load = |word: &AtomicU64| word.load(Ordering::Relaxed).to_le_bytes();
                        words.iter().flat_map(load).collect()
                    };
                    let source: Vec<u8> = (0..length as u8).collect();
                    let place = skipped + at..skipped + at + length;
                    let mut expected = vec![0xFF; BYTES];
                    expected[place.clone()].copy_from_slice(&source);
                    Exclusive::new(&words, skipped).write(at, &source);
                    assert_eq!(found(), expected, "{length} bytes at {at} behind {skipped}");
                    expected[place].fill(0);
                    Exclusive::new(&words, skipped).zero(at, length);
                    assert_eq!(found(), expected, "{length} zeros at {at} behind {skipped}");
                }
            }
        }
    }

    /// An early reader sees whole words. Miri reports a data race here if a store is plain.
    #[test]
    fn who_looks_too_early_sees_whole_words() {
        let words = [const { AtomicU64::new(0) }; 4];
        std::thread::scope(|scope| {
            scope.spawn(|| Exclusive::new(&words, 0).write(3, &[0xAB; 26]));
            for _ in 0..100 {
                let middle = words[1].load(Ordering::Relaxed);
                assert!(middle == 0 || middle == u64::from_le_bytes([0xAB; 8]), "{middle:#x}");
            }
        });
    }
}
