//! An estimate of the allocated bytes, for callers that need it often.
//!
//! The active bits give the exact number, but reading all of them visits each chunk. So a cursor
//! passes over the chunks, some at each call, and sums up the bytes that it finds. A thread that
//! sets or clears an active bit in a chunk that the cursor has passed adds or subtracts the block's
//! bytes. Chunks that the cursor has not passed yet are estimated to be as full as the others. All
//! of this is process memory, and costs nothing in a process that never calls it.
//!
//! The sum misses changes in a chunk while the cursor passes it: seldom, and one block of the
//! chunk's 64 KiB.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::layout::CHUNK_BYTES;

/// Chunks that the cursor passes in one call.
const COUNT_AT_ONCE: u64 = 512;
/// Partial sums. Threads are spread over them, so that few share one.
const SHARDS: usize = 16;

/// The cursor, and the sum of the cursor and the threads.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// Chunks that the cursor has passed.
    counted: AtomicU64,
    is_counting: AtomicBool,
    /// Their sum, which wraps, is the number of active bytes in these chunks.
    shards: [Shard; SHARDS],
}

/// A partial sum, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(AtomicU64);

fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SHARD: Cell<usize> = const { Cell::new(usize::MAX) });
    // A thread that is ending, and has no such cell any more, uses the first.
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
        // Relaxed, here and below: the sum is an estimate, and nothing depends on its order.
        if chunk < self.counted.load(Ordering::Relaxed) {
            self.shards[shard()].0.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn sum(&self) -> u64 {
        let parts = self.shards.iter().map(|shard| shard.0.load(Ordering::Relaxed));
        let sum = parts.fold(0, u64::wrapping_add);
        // The parts are read at different times, so their sum may seem to be negative.
        if sum > i64::MAX as u64 { 0 } else { sum }
    }

    /// Chunks that the cursor has passed.
    pub(super) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// Moves the cursor over up to 512 chunks below `frontier`, unless another thread does;
    /// `active_bytes` returns the active bytes of a chunk.
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

    /// Estimates the bytes of the active blocks below `frontier`.
    pub(super) fn estimate(&self, frontier: u64) -> u64 {
        let (counted, sum) = (self.counted(), self.sum());
        if counted == 0 || counted >= frontier {
            return sum;
        }
        let scaled = u128::from(sum) * u128::from(frontier) / u128::from(counted);
        u64::try_from(scaled).unwrap_or(u64::MAX).min(frontier * CHUNK_BYTES)
    }
}
