//! The table of pages, as readers see it: for each PID the address of the page's newest part, and
//! how many parts and bytes the page has.
//!
//! The writer alone changes it, after it has written the block. So a reader finds in the file what
//! the table names, unless the segment has been written anew since; then the table has changed too.
//!
//! ```text
//! extent, 16 bits
//!
//! bit       15          2 1         0
//!           units         parts - 1
//! ```
//!
//! A unit has 32 bytes. A page with more of them than the field can hold has its greatest number.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use once_cell::race::OnceBox;

use crate::address::{Address, UNIT_BYTES};
use crate::part::{MAX_PAGE_BYTES, MAX_PARTS};

/// PIDs in one chunk, chunks in one group, and groups: room for all PIDs of 32 bits.
const CHUNK: usize = 1 << 12;
const GROUP: usize = 1 << 12;
const GROUPS: usize = 1 << 8;

const PARTS_BITS: u32 = 2;
const MAX_UNITS: usize = u16::MAX as usize >> PARTS_BITS;

const _: () = assert!(CHUNK * GROUP * GROUPS == 1 << 32);
const _: () = assert!(MAX_PARTS == 1 << PARTS_BITS && MAX_PAGE_BYTES < MAX_UNITS * UNIT_BYTES);

/// What the store has of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its parts: 1 to [`MAX_PARTS`](crate::MAX_PARTS).
    pub parts: usize,
    /// Bytes that they take in blocks.
    pub bytes: usize,
}

impl Extent {
    fn of(parts: &[Address]) -> Self {
        Self { parts: parts.len(), bytes: parts.iter().map(|part| part.bytes()).sum() }
    }

    fn word(self) -> u16 {
        let units = self.bytes.div_ceil(UNIT_BYTES).min(MAX_UNITS);
        ((units << PARTS_BITS) | (self.parts.clamp(1, MAX_PARTS) - 1)) as u16
    }

    fn from_word(word: u16) -> Self {
        let word = usize::from(word);
        Self { parts: (word & (MAX_PARTS - 1)) + 1, bytes: (word >> PARTS_BITS) * UNIT_BYTES }
    }
}

#[derive(Debug)]
struct Chunk {
    newest: Vec<AtomicU64>,
    extents: Vec<AtomicU16>,
}

impl Default for Chunk {
    fn default() -> Self {
        Self { newest: empty(CHUNK, AtomicU64::default), extents: empty(CHUNK, AtomicU16::default) }
    }
}

type Group = Vec<OnceBox<Chunk>>;

/// The table. Chunks are made when they are needed, and stay.
#[derive(Debug)]
pub(crate) struct Table {
    groups: Vec<OnceBox<Group>>,
}

/// Such a collection of `count` empty items.
fn empty<T>(count: usize, item: impl FnMut() -> T) -> Vec<T> {
    std::iter::repeat_with(item).take(count).collect()
}

impl Default for Table {
    fn default() -> Self {
        Self { groups: empty(GROUPS, OnceBox::new) }
    }
}

fn places(pid: u32) -> (usize, usize, usize) {
    let pid = pid as usize;
    (pid / (CHUNK * GROUP), pid / CHUNK % GROUP, pid % CHUNK)
}

impl Table {
    /// The chunk of a page, if it is made, and the page's place there.
    fn chunk(&self, pid: u32) -> Option<(&Chunk, usize)> {
        let (group, chunk, at) = places(pid);
        Some((self.groups[group].get()?[chunk].get()?, at))
    }

    /// The newest part of the page `pid`; `None` if the page does not exist.
    pub fn get(&self, pid: u32) -> Option<Address> {
        let (chunk, at) = self.chunk(pid)?;
        // Acquire: pairs with the release of `set`, after the part was written.
        Address::from_word(chunk.newest[at].load(Ordering::Acquire))
    }

    /// What the store has of the page `pid`, at some instant of the call or shortly before; `None`
    /// if the page does not exist.
    pub fn extent(&self, pid: u32) -> Option<Extent> {
        let (chunk, at) = self.chunk(pid)?;
        // Relaxed, both: a hint. The writer looks again.
        Address::from_word(chunk.newest[at].load(Ordering::Relaxed))?;
        Some(Extent::from_word(chunk.extents[at].load(Ordering::Relaxed)))
    }

    /// A part of the page cannot be read: it seems to have as many parts as it may have, so that it
    /// is written whole next.
    pub fn takes_no_delta(&self, pid: u32) {
        if let Some((chunk, at)) = self.chunk(pid) {
            // Relaxed: see `extent`.
            chunk.extents[at].fetch_or((MAX_PARTS - 1) as u16, Ordering::Relaxed);
        }
    }

    /// Sets the parts of the page `pid`, newest first; none if it does not exist.
    pub fn set(&self, pid: u32, parts: &[Address]) {
        if parts.is_empty() && self.get(pid).is_none() {
            return;
        }
        let (group, chunk, at) = places(pid);
        let group = self.groups[group].get_or_init(|| Box::new(empty(GROUP, OnceBox::new)));
        let chunk = group[chunk].get_or_init(Box::default);
        // Relaxed: see `extent`.
        chunk.extents[at].store(Extent::of(parts).word(), Ordering::Relaxed);
        let newest = parts.first().map_or(0, |part| part.word());
        // Release: see `get`.
        chunk.newest[at].store(newest, Ordering::Release);
    }

    /// The pages that exist, by ascending PIDs.
    pub fn pages(&self) -> impl Iterator<Item = (u32, Address)> {
        let groups = self.groups.iter().enumerate();
        let groups = groups.filter_map(|(group, chunks)| Some((group, chunks.get()?)));
        let chunks = groups.flat_map(|(group, chunks)| {
            let chunks = chunks.iter().enumerate();
            chunks.filter_map(move |(chunk, words)| Some((group * GROUP + chunk, words.get()?)))
        });
        let words = chunks.flat_map(|(chunk, words)| {
            let words = words.newest.iter().enumerate();
            words.map(move |(at, word)| ((chunk * CHUNK + at) as u32, word))
        });
        // Acquire: as in `get`.
        words.filter_map(|(pid, word)| {
            Some((pid, Address::from_word(word.load(Ordering::Acquire))?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_and_go() {
        let table = Table::default();
        let part = Address::new(1, 64, 32, 1);
        for pid in [u32::MAX, 0, 65_536] {
            assert_eq!(table.get(pid), None);
            assert_eq!(table.extent(pid), None);
            table.set(pid, &[part]);
            assert_eq!(table.get(pid), Some(part));
            assert_eq!(table.extent(pid), Some(Extent { parts: 1, bytes: 32 }));
        }
        table.takes_no_delta(65_536);
        assert_eq!(table.extent(65_536), Some(Extent { parts: MAX_PARTS, bytes: 32 }));
        table.set(65_536, &[]);
        let pids: Vec<_> = table.pages().map(|(pid, _)| pid).collect();
        assert_eq!(pids, [0, u32::MAX]);
    }

    #[test]
    fn golden_extents() {
        let extent = Extent { parts: 3, bytes: 320 };
        assert_eq!(extent.word(), 10 << 2 | 2);
        assert_eq!(Extent::from_word(extent.word()), extent);
        let longest = Extent { parts: MAX_PARTS, bytes: usize::MAX };
        assert_eq!(Extent::from_word(longest.word()).bytes, MAX_UNITS * UNIT_BYTES);
    }
}
