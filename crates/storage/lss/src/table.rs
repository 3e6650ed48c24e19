//! The table of pages, as readers see it: for each PID the address of the page's newest part.
//!
//! The writer alone changes it, after it has written the block. So a reader finds in the file what
//! the table names, unless the segment has been written anew since; then the table has changed too.

use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceBox;

use crate::address::Address;

/// PIDs in one chunk, chunks in one group, and groups: room for all PIDs of 32 bits.
const CHUNK: usize = 1 << 12;
const GROUP: usize = 1 << 12;
const GROUPS: usize = 1 << 8;

const _: () = assert!(CHUNK * GROUP * GROUPS == 1 << 32);

type Chunk = Vec<AtomicU64>;
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
    /// The newest part of the page `pid`; `None` if the page does not exist.
    pub fn get(&self, pid: u32) -> Option<Address> {
        let (group, chunk, at) = places(pid);
        let chunk = self.groups[group].get()?[chunk].get()?;
        // Acquire: pairs with the release of `set`, after the part was written.
        Address::from_word(chunk[at].load(Ordering::Acquire))
    }

    /// Sets the newest part of the page `pid`.
    pub fn set(&self, pid: u32, newest: Option<Address>) {
        if newest.is_none() && self.get(pid).is_none() {
            return;
        }
        let (group, chunk, at) = places(pid);
        let group = self.groups[group].get_or_init(|| Box::new(empty(GROUP, OnceBox::new)));
        let chunk = group[chunk].get_or_init(|| Box::new(empty(CHUNK, AtomicU64::default)));
        // Release: see `get`.
        chunk[at].store(newest.map_or(0, Address::word), Ordering::Release);
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
            let words = words.iter().enumerate();
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
            table.set(pid, Some(part));
            assert_eq!(table.get(pid), Some(part));
        }
        table.set(65_536, None);
        let pids: Vec<_> = table.pages().map(|(pid, _)| pid).collect();
        assert_eq!(pids, [0, u32::MAX]);
    }
}
