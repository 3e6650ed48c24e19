//! Memory in which tests lay out a pool byte by byte, and open it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::Mapping;

/// Memory for one pool at a time, by [`Pool::create_in`](crate::Pool::create_in) and
/// [`Pool::open_in`](crate::Pool::open_in). Read and written by whole words.
#[derive(Debug)]
pub struct Arena(Mapping);

impl Arena {
    /// `bytes` bytes, all zero: enough for a pool with that limit.
    pub fn new(bytes: u64) -> io::Result<Self> {
        Ok(Self(Mapping::anonymous(bytes)?))
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Address of the first byte: the hooks of a [`Domain`](crate::Domain) get addresses from there
    /// on.
    pub fn address(&self) -> usize {
        self.0.base() as usize
    }

    pub(crate) fn mapping(&self) -> Mapping {
        self.0.clone()
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is aligned to pages and lives as long as this object. All threads
        // that share it use atomics, or own a block of the pool.
        unsafe { std::slice::from_raw_parts(self.0.base().cast(), self.bytes() as usize / 8) }
    }

    /// The word at `off`, a multiple of 8.
    #[inline]
    pub fn word(&self, off: u64) -> u64 {
        // Relaxed, here and below: one thread writes and reads the layout.
        self.words()[off as usize / 8].load(Ordering::Relaxed)
    }

    /// Sets the word at `off`, a multiple of 8.
    #[inline]
    pub fn set_word(&self, off: u64, word: u64) {
        self.words()[off as usize / 8].store(word, Ordering::Relaxed);
    }

    /// `bytes` bytes from `off`; both multiples of 8.
    pub fn read(&self, off: u64, bytes: usize) -> Vec<u8> {
        (off..off + bytes as u64).step_by(8).flat_map(|at| self.word(at).to_le_bytes()).collect()
    }

    /// Writes `content` to `off`; its length and `off` are multiples of 8.
    pub fn write(&self, off: u64, content: &[u8]) {
        for (index, word) in content.as_chunks::<8>().0.iter().enumerate() {
            self.set_word(off + index as u64 * 8, u64::from_le_bytes(*word));
        }
    }
}
