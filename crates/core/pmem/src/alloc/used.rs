//! How many bytes are allocated, cheaply and nearly: for who must know it often.
//!
//! The active bits say it exactly, but to read them all takes a look at each chunk. So a cursor
//! passes over the chunks, some at each question, and adds up what it finds; whoever sets or clears
//! an active bit of a chunk behind the cursor adds or takes away the block's bytes. Chunks before
//! the cursor are taken to be as full as those behind it, until it comes to them. All of this is
//! process memory, and costs nothing in a process that never asks.
//!
//! The figure is off by what others set or clear in a chunk in the moment in which the cursor
//! passes it: a block, seldom, of the chunk's 64 KiB.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::layout::CHUNK_BYTES;

/// Chunks that one question looks at.
const COUNT_AT_ONCE: u64 = 512;
/// Sums that threads share, so that few add to the same.
const SHARDS: usize = 16;

/// What the cursor and the threads have added up.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// Chunks that the cursor has passed.
    counted: AtomicU64,
    is_counting: AtomicBool,
    /// Their sum, which wraps, is the bytes that are active in these chunks.
    shards: [Shard; SHARDS],
}

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(AtomicU64);

fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SHARD: Cell<usize> = const { Cell::new(usize::MAX) });
    // A thread that is about to end, and has no such cell any more, adds to the first.
    let known = SHARD.try_with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    });
    known.unwrap_or(0)
}

impl Used {
    /// A block of `chunk` is active from now on.
    #[inline]
    pub(super) fn note_activated(&self, chunk: u64, bytes: u64) {
        self.add(chunk, bytes);
    }

    /// A block of `chunk` is no longer active.
    #[inline]
    pub(super) fn note_deactivated(&self, chunk: u64, bytes: u64) {
        self.add(chunk, bytes.wrapping_neg());
    }

    #[inline]
    fn add(&self, chunk: u64, bytes: u64) {
        // Relaxed, here and below: the sum is an estimate, and nothing hangs on its order.
        if chunk < self.counted.load(Ordering::Relaxed) {
            self.shards[shard()].0.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn sum(&self) -> u64 {
        let parts = self.shards.iter().map(|shard| shard.0.load(Ordering::Relaxed));
        let sum = parts.fold(0, u64::wrapping_add);
        // A moment apart, the parts may seem to be less than nothing.
        if sum > i64::MAX as u64 { 0 } else { sum }
    }

    /// Chunks that the cursor has passed.
    pub(super) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// Moves the cursor on over up to 512 chunks below `frontier`, unless another thread does;
    /// `active_bytes` says how much is active in a chunk.
    pub(super) fn count(&self, frontier: u64, active_bytes: impl Fn(u64) -> u64) {
        if self.is_counting.swap(true, Ordering::Acquire) {
            return;
        }
        let first = self.counted();
        for chunk in first..frontier.min(first + COUNT_AT_ONCE) {
            self.shards[shard()].0.fetch_add(active_bytes(chunk), Ordering::Relaxed);
            self.counted.store(chunk + 1, Ordering::Relaxed);
        }
        self.is_counting.store(false, Ordering::Release);
    }

    /// Bytes of the active blocks below `frontier`, nearly.
    pub(super) fn estimate(&self, frontier: u64) -> u64 {
        let (counted, sum) = (self.counted(), self.sum());
        if counted == 0 || counted >= frontier {
            return sum;
        }
        let scaled = u128::from(sum) * u128::from(frontier) / u128::from(counted);
        u64::try_from(scaled).unwrap_or(u64::MAX).min(frontier * CHUNK_BYTES)
    }
}
