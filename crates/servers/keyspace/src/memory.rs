//! A limit on memory, and what goes when it is reached.
//!
//! How much is in use is asked of the pool ten times a second ([`Store::measure`]), and between two
//! measures estimated from what is written; not where the limit is too far to be reached meanwhile.
//!
//! What is evicted or deleted leaves gaps in nodes of the index, which are filled by later writes,
//! or go when nodes are merged; so the pool's figure follows late, or rises at first. Who waited
//! for it would evict far too much, or refuse writes for which there is room. Therefore what goes
//! near the limit counts as free at once, and stays on account until as much was written, or the
//! figure fell; at most a quarter of the figure. So live data keep to the limit, and the pool may
//! take up to a third more.
//!
//! Which key was used least recently is known approximately: a table holds for each range of hashes
//! the second in which a key of it was last used. The victim is the least recently used of a few
//! ranges picked at random. The table is of the process: after a restart all keys are alike at
//! first. There are a million ranges once the policy asks for them. Before that the table only
//! tells OBJECT IDLETIME, and has 65,536 ranges: each read and write of a key touches it, and one
//! of 256 KiB stays in the processor's cache where one of 4 MiB does not.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::layout::HASH_BITS;

/// Ranges of hashes whose use is noted, in bits: for a policy that asks for it, and for OBJECT
/// IDLETIME alone.
pub(crate) const FINE_BITS: u32 = 20;
pub(crate) const COARSE_BITS: u32 = 16;
/// More than is written between two measures.
const FAR_BYTES: u64 = 1 << 30;
/// What a record takes besides its key and value, about.
const RECORD_BYTES: u64 = 24;

/// What is done when there is no more memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum EvictionPolicy {
    /// Writes that need memory are refused.
    #[default]
    NoEviction = 0,
    /// Keys that were not used for long go first, approximately.
    AllKeysLru = 1,
    /// Keys that expire soonest go first; others stay.
    VolatileTtl = 2,
}

impl EvictionPolicy {
    /// The names that Redis has for them, each at its policy's number.
    pub const NAMES: [&str; 3] = ["noeviction", "allkeys-lru", "volatile-ttl"];

    /// The one whose name is at `place`.
    pub fn at(place: usize) -> Option<Self> {
        [Self::NoEviction, Self::AllKeysLru, Self::VolatileTtl].get(place).copied()
    }
}

/// How much may be in use, and what is done at the limit.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimit {
    /// In bytes; zero for any number.
    pub bytes: u64,
    /// What is done at the limit.
    pub policy: EvictionPolicy,
    /// Ranges of hashes among which a victim is chosen.
    pub samples: u32,
}

/// The limit, and what is known of use.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// In bytes; zero for none.
    pub(crate) limit_bytes: AtomicU64,
    pub(crate) evicted_keys: AtomicU64,
    pub(crate) policy: AtomicU8,
    pub(crate) samples: AtomicU32,
    /// As of the last measure.
    pub(crate) measured_bytes: AtomicU64,
    /// Written since then, about.
    pub(crate) written_bytes: AtomicU64,
    /// Evicted or deleted, and neither gone from the measure nor written over so far.
    pub(crate) account_bytes: AtomicU64,
    /// Pieces of the room for what was decided that are missing, plus one; 0 before anyone has
    /// counted.
    missing_pieces: AtomicU64,
    /// Whether enough of that room is kept.
    has_intent_reserve: AtomicBool,
    /// The second in which a key of each range was last used: in the fine table, once there is one.
    pub(crate) fine: OnceLock<Recency>,
    pub(crate) coarse: OnceLock<Recency>,
}

/// The second in which a key of each of some ranges of hashes was last used.
#[derive(Debug)]
pub(crate) struct Recency {
    /// How far a hash is shifted to be the number of its range.
    shift: u32,
    seconds: Box<[AtomicU32]>,
}

impl Recency {
    pub(crate) fn new(bits: u32, second: impl Fn(u64) -> u32) -> Self {
        let shift = HASH_BITS - bits;
        let seconds = (0..1 << bits).map(|range| AtomicU32::new(second(range << shift)));
        Self { shift, seconds: seconds.collect() }
    }

    #[inline]
    pub(crate) fn of(&self, hash: u64) -> &AtomicU32 {
        &self.seconds[(hash >> self.shift) as usize]
    }
}

// All of these are figures by themselves: relaxed, all.
impl Memory {
    /// Notes that a key was used.
    #[inline]
    pub(crate) fn note_use(&self, hash: u64, now_ms: u64) {
        if let Some(recency) = self.recency() {
            let range = recency.of(hash);
            let second = (now_ms / 1000) as u32;
            if range.load(Ordering::Relaxed) != second {
                range.store(second, Ordering::Relaxed);
            }
        }
    }

    /// The second of the store's clock in which a key of a hash's range was last used; 0 if none
    /// was since the server started.
    pub(crate) fn used_at_s(&self, hash: u64) -> u64 {
        self.recency().map_or(0, |recency| u64::from(recency.of(hash).load(Ordering::Relaxed)))
    }

    #[inline]
    pub(crate) fn recency(&self) -> Option<&Recency> {
        self.fine.get().or_else(|| self.coarse.get())
    }

    /// Notes that a record was written or removed.
    #[inline]
    pub(crate) fn note_write(&self, key_bytes: usize, value_bytes: Option<usize>) {
        if let Some(bytes) = value_bytes
            && self.is_near()
        {
            let bytes = RECORD_BYTES + (key_bytes + bytes) as u64;
            self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Notes that a record was removed whose bytes count as free from now on.
    pub(crate) fn note_removal(&self, key_bytes: usize, value_bytes: usize) {
        let bytes = RECORD_BYTES + (key_bytes + value_bytes) as u64;
        self.account_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether the limit may be reached before the next measure. Far from it nothing is counted:
    /// all threads would count in one place, and wait for each other's caches.
    #[inline]
    fn is_near(&self) -> bool {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let measured_bytes = self.measured_bytes.load(Ordering::Relaxed);
        limit_bytes > 0 && limit_bytes.saturating_sub(measured_bytes) < FAR_BYTES
    }

    /// Whether the limit is near, and more than three quarters of it are in use: then what is
    /// removed is counted.
    #[inline]
    pub(crate) fn is_tight(&self) -> bool {
        let used_bytes = self.measured_bytes.load(Ordering::Relaxed)
            + self.written_bytes.load(Ordering::Relaxed);
        self.is_near() && used_bytes > self.limit_bytes.load(Ordering::Relaxed) / 4 * 3
    }

    /// Notes how many pieces of the room for what was decided are missing. If they are more than
    /// `spare`, no other room is given.
    pub(crate) fn note_intent_reserve(&self, missing: u64, spare: u64) {
        self.missing_pieces.store(missing + 1, Ordering::Relaxed);
        self.has_intent_reserve.store(missing <= spare, Ordering::Relaxed);
    }

    /// Pieces of that room that are missing; all if nobody has counted.
    #[inline]
    pub(crate) fn missing_pieces(&self) -> u64 {
        self.missing_pieces.load(Ordering::Relaxed).wrapping_sub(1)
    }

    #[inline]
    pub(crate) fn has_intent_reserve(&self) -> bool {
        self.has_intent_reserve.load(Ordering::Relaxed)
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        if !self.has_intent_reserve() {
            return u64::MAX;
        }
        let measured_bytes = self.measured_bytes.load(Ordering::Relaxed);
        let used_bytes = measured_bytes + self.written_bytes.load(Ordering::Relaxed);
        let account_bytes = self.account_bytes.load(Ordering::Relaxed);
        used_bytes.saturating_sub(account_bytes.min(measured_bytes / 4))
    }
}
