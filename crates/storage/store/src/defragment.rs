//! Chunks of the cache get blocks of other lengths.
//!
//! A chunk of 64 KiB has blocks of one length (`slab.rs` of `pando-pmem`). The length can change
//! only when all blocks of the chunk are free. But the clock evicts pages from everywhere. So a
//! full cache would keep the lengths that it was first filled with: pages that come later, and are
//! shorter, would each take a block of those.
//!
//! Therefore:
//!
//! * A load, or a blind write of an absent page, first takes no block that is much longer than it
//!   needs ([`Guard::fitting`](pando_pmem::Guard::fitting)), and pages are evicted instead. If the
//!   clock has evicted some, and there still is no block of the length, chunks are emptied: those
//!   whose pages need the least room, and were not used lately.
//! * After each turn of the clock's hand, sparse chunks are emptied: those whose pages need less
//!   than half of the chunk, or less than three quarters of the blocks that they have. Of 16 chunks
//!   one at most, so that few pages are read again.
//!
//! All of it only decides which pages go. What a thread that stops leaves is the same as of any
//! eviction.

use std::collections::{HashMap, HashSet};

use pando_bwtree::{PagePlace, PageSeen, PageState};
use pando_pmem::layout::CHUNK_BYTES;
use pando_pmem::{Domain, mutant};

use crate::cache::{Cache, SEEN};
use crate::error::Result;

/// After a turn of the hand, at most one of so many chunks is emptied.
const EMPTIED_PART: usize = 16;
/// A page that was used lately counts as so many.
const WEIGHT_OF_USED: u64 = 4;

/// A chunk with pages that have not changed.
#[derive(Default)]
pub(crate) struct Chunk {
    /// One of their blocks.
    off: u64,
    pages: u64,
    needed_bytes: u64,
    /// Those bytes, with the weight of used pages.
    cost: u64,
}

impl<D: Domain> Cache<D> {
    /// Empties some sparse chunks. Returns the bytes of the pages that were evicted.
    pub fn empty_sparse_chunks(&self) -> Result<u64> {
        let pool = self.tree.pool();
        if mutant!("store-sparse-chunks-kept") {
            return Ok(0);
        }
        let most = pool.geometry().max_chunks as usize / EMPTIED_PART;
        let is_sparse = |chunk: &Chunk| {
            let taken_bytes = pool.active_block(chunk.off).unwrap_or(0) * chunk.pages;
            chunk.needed_bytes < CHUNK_BYTES / 2 || chunk.needed_bytes < taken_bytes / 4 * 3
        };
        self.empty_chunks(most, is_sparse)
    }

    /// Empties up to `most` of the chunks that may be, those first whose pages cost the least.
    /// Returns the bytes of the pages that were evicted.
    pub fn empty_chunks(&self, most: usize, may_be: impl Fn(&Chunk) -> bool) -> Result<u64> {
        let (pool, mut chunks) = (self.tree.pool(), HashMap::<u64, Chunk>::new());
        self.each_place(|_, number, place| {
            let chunk = chunks.entry(number).or_default();
            chunk.off = place.off;
            chunk.pages += 1;
            chunk.needed_bytes += place.needed_bytes;
            chunk.cost += place.needed_bytes * if place.is_used { WEIGHT_OF_USED } else { 1 };
        })?;
        let mut emptied: Vec<_> = (chunks.iter())
            .filter(|(_, chunk)| may_be(chunk))
            // Else it has other blocks too, or pages that must stay.
            .filter(|(_, chunk)| pool.neighbours(chunk.off) == Some(chunk.pages))
            .map(|(number, chunk)| (chunk.cost, *number))
            .collect();
        emptied.sort_unstable();
        let emptied: HashSet<_> = emptied.iter().take(most).map(|(_, number)| *number).collect();
        let mut bytes = 0;
        if !emptied.is_empty() {
            self.each_place(|page, chunk, _| {
                if emptied.contains(&chunk) {
                    bytes += self.evict(page).unwrap_or(0);
                }
            })?;
        }
        Ok(bytes)
    }

    /// Calls `visit` for each page in memory that has not changed, but the root, which stays: its
    /// number, its chunk, and where it is.
    fn each_place(&self, mut visit: impl FnMut(u32, u64, PagePlace)) -> Result<()> {
        let (geometry, mut from) = (self.tree.pool().geometry(), Some(0));
        while let Some(at) = from {
            let (seen, next) = self.tree.pages_from(at, SEEN)?;
            from = next;
            let written = |page: &&PageSeen| page.state == PageState::Written && page.number > 0;
            for page in seen.iter().filter(written) {
                // Damage is told when the page is used.
                if let Ok(Some(place)) = self.tree.place_of(page.number)
                    && let Some(chunk) = geometry.chunk_of(place.off)
                {
                    visit(page.number, chunk, place);
                }
            }
        }
        Ok(())
    }
}
