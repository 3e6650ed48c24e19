//! The allocated blocks, for `check`, which compares them with the blocks that the maps reach, and
//! for `stat`.

use std::ops::ControlFlow;

use super::chunks::Chunk;
use super::sizes::CLASS_BYTES;
use super::slab::{ACTIVE_AT, Place, blocks_of};
use crate::domain::Domain;
use crate::error::Result;
use crate::layout::CHUNK_BYTES;
use crate::pool::Pool;

/// An active block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    /// Its offset.
    pub off: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// How the chunks of a pool are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Chunks that were ever used.
    pub chunks: u64,
    /// Chunks that are free again.
    pub free_chunks: u64,
    /// Free chunks whose room was returned to the system ([`Pool::release_unused`]).
    pub hole_chunks: u64,
    /// Chunks that are slabs.
    pub slab_chunks: u64,
    /// Chunks in active spans.
    pub span_chunks: u64,
    /// Chunks that are reserved, or wait for their epoch.
    pub claimed_chunks: u64,
    /// Active blocks.
    pub active_blocks: u64,
    /// Bytes of active blocks.
    pub active_bytes: u64,
    /// Bytes of blocks that are taken and not active: they are reserved, wait for their epoch, or
    /// belonged to a dead process.
    pub inactive_bytes: u64,
}

impl<D: Domain> Pool<D> {
    /// Calls `visit` for every active block, in order of offsets, until it breaks. The thread is
    /// pinned meanwhile, so a chunk that it has seen to be a slab stays one.
    pub fn visit_active(&self, visit: &mut dyn FnMut(Block) -> ControlFlow<()>) -> Result<()> {
        let _guard = self.pin()?;
        let mut chunk = 0;
        // Also beyond the frontier: no block was ever activated there, but that word may be
        // damaged.
        while chunk < self.chunks_there() {
            let mut next = chunk + 1;
            match self.chunk(chunk) {
                Chunk::Slab { class } => {
                    for block in 0..blocks_of(class) {
                        if self.is_active(&Place { chunk, class, block }) {
                            let off = self.block_off(chunk, class, block);
                            if visit(Block { off, bytes: CLASS_BYTES[class] }).is_break() {
                                return Ok(());
                            }
                        }
                    }
                }
                Chunk::Head { chunks } => {
                    let off = self.geometry().chunk_off(chunk);
                    if visit(Block { off, bytes: chunks * CHUNK_BYTES }).is_break() {
                        return Ok(());
                    }
                    next = chunk + chunks;
                }
                _ => {}
            }
            chunk = next;
        }
        Ok(())
    }

    /// Prefetches the line that [`active_block`](Self::active_block) will read, for blocks of up to
    /// a page; the offset may be any.
    #[inline]
    pub fn prefetch_block_state(&self, off: u64) {
        if let Some(chunk) = self.geometry().chunk_of(off) {
            self.prefetch(self.geometry().chunk_off(chunk) + ACTIVE_AT);
        }
    }

    /// Bytes of the active block at `off`, if an active block begins there.
    pub fn active_block(&self, off: u64) -> Option<u64> {
        match self.slab_place(off) {
            Ok(place) => self.is_active(&place).then(|| place.bytes()),
            Err(_) => {
                let chunk = self.geometry().chunk_of(off)?;
                match self.chunk(chunk) {
                    Chunk::Head { chunks } if self.geometry().chunk_off(chunk) == off => {
                        let is_whole = chunk + chunks <= self.frontier()
                            && (chunk + 1..chunk + chunks).all(|at| self.chunk(at) == Chunk::Body);
                        is_whole.then_some(chunks * CHUNK_BYTES)
                    }
                    _ => None,
                }
            }
        }
    }

    /// How many active blocks the slab has in which the active block at `off` lies; `None` if it
    /// lies in none.
    pub fn neighbours(&self, off: u64) -> Option<u64> {
        let Place { chunk, class, .. } = self.slab_place(off).ok()?;
        Some(self.active_in_slab(chunk, class))
    }

    fn active_in_slab(&self, chunk: u64, class: usize) -> u64 {
        let words = 0..blocks_of(class).div_ceil(64);
        words.map(|index| u64::from(self.active_count(chunk, index))).sum()
    }

    /// Whether the active block at `off` could be allocated again, because its taken bit is
    /// damaged.
    pub fn would_give_out(&self, off: u64) -> bool {
        self.slab_place(off).is_ok_and(|place| !self.is_taken(&place))
    }

    /// An estimate of the bytes of the active blocks (`used.rs` says how exact it is). Each call
    /// visits up to 512 chunks (32 MiB), until all were visited; after that, a call costs a few
    /// loads. Until then, the other chunks are estimated to be as full as the visited ones. In a
    /// pool that processes share, each call visits all chunks.
    pub fn used_bytes(&self) -> u64 {
        if self.is_shared() {
            // Pinned: see below.
            let Ok(_guard) = self.pin() else { return 0 };
            return (0..self.frontier()).map(|chunk| self.active_bytes_of(chunk)).sum();
        }
        let (used, frontier) = (&self.cache.used, self.frontier());
        // Pinned, so a chunk that is seen to be a slab stays one meanwhile.
        if used.counted() < frontier
            && let Ok(_guard) = self.pin()
        {
            used.count(frontier, |chunk| self.active_bytes_of(chunk));
        }
        used.estimate(frontier)
    }

    fn active_bytes_of(&self, chunk: u64) -> u64 {
        match self.chunk(chunk) {
            Chunk::Slab { class } => self.active_in_slab(chunk, class) * CLASS_BYTES[class],
            Chunk::Head { chunks } => chunks * CHUNK_BYTES,
            _ => 0,
        }
    }

    /// How the chunks are used. Reads the chunk table and all slabs.
    pub fn usage(&self) -> Result<Usage> {
        let mut usage = Usage { chunks: self.frontier(), ..Usage::default() };
        for chunk in 0..usage.chunks {
            match self.chunk(chunk) {
                Chunk::Free => usage.free_chunks += 1,
                Chunk::Hole => {
                    usage.free_chunks += 1;
                    usage.hole_chunks += 1;
                }
                Chunk::Slab { class } => {
                    usage.slab_chunks += 1;
                    usage.inactive_bytes +=
                        self.inactive_in_slab(chunk, class) * CLASS_BYTES[class];
                }
                Chunk::Head { .. } | Chunk::Body => usage.span_chunks += 1,
                Chunk::Claimed { .. } | Chunk::HeldHole => {
                    usage.claimed_chunks += 1;
                    usage.inactive_bytes += CHUNK_BYTES;
                }
            }
        }
        self.visit_active(&mut |block| {
            usage.active_blocks += 1;
            usage.active_bytes += block.bytes;
            ControlFlow::Continue(())
        })?;
        Ok(usage)
    }
}
