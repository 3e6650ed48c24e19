//! The memory limit and its figures.
//!
//! The used bytes are read from the pool ten times a second ([`Store::measure`]). Between two
//! measures they are estimated from writes, unless the limit is too far away.
//!
//! Evicted and deleted records leave gaps in nodes. Later writes fill them, or merges of nodes free
//! them; so the pool's figure decreases late, and may even increase at first. A server that waited
//! for it would evict far too much, or refuse writes for which there is room. Therefore the bytes
//! of records removed near the limit count as free at once. They stay on account until as many
//! bytes were written, or the figure decreased; the account is at most a quarter of the figure. So
//! live data keep to the limit, and the pool may take up to a third more.
//!
//! The least recently used key is known approximately: a table has, for each range of hashes, the
//! second of the last use of a key in it. The victim is in the least recently used one of a few
//! random ranges. The table is in process memory, so after a restart all keys are equal at first.
//! It has a million ranges under a policy that needs them. Otherwise only OBJECT IDLETIME uses it,
//! and it has 65,536 ranges: each read and write of a key touches it, and a table of 256 KiB stays
//! in the processor's cache, while one of 4 MiB does not.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::layout::HASH_BITS;

/// Ranges of hashes, in bits: for a policy that needs them, and for OBJECT IDLETIME alone.
pub(crate) const FINE_BITS: u32 = 20;
pub(crate) const COARSE_BITS: u32 = 16;
/// More bytes than are written between two measures.
const FAR_BYTES: u64 = 1 << 30;
/// Approximate bytes of a record besides its key and value.
const RECORD_BYTES: u64 = 24;

/// What happens at the memory limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum EvictionPolicy {
    /// Writes that need memory are refused.
    #[default]
    NoEviction = 0,
    /// Keys that were not used for a long time are evicted first, approximately.
    AllKeysLru = 1,
    /// Keys with the earliest expiry are evicted first; keys without one stay.
    VolatileTtl = 2,
}

impl EvictionPolicy {
    /// Redis's names, by number of the policy.
    pub const NAMES: [&str; 3] = ["noeviction", "allkeys-lru", "volatile-ttl"];

    /// The policy of that number.
    pub fn at(place: usize) -> Option<Self> {
        [Self::NoEviction, Self::AllKeysLru, Self::VolatileTtl].get(place).copied()
    }
}

/// A memory limit.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimit {
    /// The limit in bytes; zero for none.
    pub bytes: u64,
    /// What happens at the limit.
    pub policy: EvictionPolicy,
    /// Random ranges of hashes among which a victim is chosen.
    pub samples: u32,
}

/// The limit and the figures of memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// In bytes; zero for none.
    pub(crate) limit_bytes: AtomicU64,
    pub(crate) evicted_keys: AtomicU64,
    pub(crate) policy: AtomicU8,
    pub(crate) samples: AtomicU32,
    /// The used bytes of the last measure.
    pub(crate) measured_bytes: AtomicU64,
    /// Approximate bytes written since then.
    pub(crate) written_bytes: AtomicU64,
    /// Bytes of removed records that are neither subtracted from the measure nor overwritten yet.
    pub(crate) account_bytes: AtomicU64,
    /// The number of missing standing pieces of the intent reserve, plus one; 0 before the first
    /// count.
    missing_pieces: AtomicU64,
    /// Whether the intent reserve has enough pieces.
    has_intent_reserve: AtomicBool,
    /// The last uses of ranges: in the fine table, if it exists, otherwise in the coarse one.
    pub(crate) fine: OnceLock<Recency>,
    pub(crate) coarse: OnceLock<Recency>,
}

/// The second of the last use of a key, for each range of hashes.
#[derive(Debug)]
pub(crate) struct Recency {
    /// The shift from a hash to the number of its range.
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

// Relaxed in all of these: each figure is independent of others.
impl Memory {
    /// Notes the use of a key.
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

    /// The second of the store's clock of the last use of a key in a hash's range; 0 if there was
    /// none since the server started.
    pub(crate) fn used_at_s(&self, hash: u64) -> u64 {
        self.recency().map_or(0, |recency| u64::from(recency.of(hash).load(Ordering::Relaxed)))
    }

    #[inline]
    pub(crate) fn recency(&self) -> Option<&Recency> {
        self.fine.get().or_else(|| self.coarse.get())
    }

    /// Notes a write or a removal of a record.
    #[inline]
    pub(crate) fn note_write(&self, key_bytes: usize, value_bytes: Option<usize>) {
        if let Some(bytes) = value_bytes
            && self.is_near()
        {
            let bytes = RECORD_BYTES + (key_bytes + bytes) as u64;
            self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Notes a removal of a record whose bytes count as free at once.
    pub(crate) fn note_removal(&self, key_bytes: usize, value_bytes: usize) {
        let bytes = RECORD_BYTES + (key_bytes + value_bytes) as u64;
        self.account_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether the limit may be reached before the next measure. Far from the limit nothing is
    /// counted, because all threads would write to one cache line.
    #[inline]
    fn is_near(&self) -> bool {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let measured_bytes = self.measured_bytes.load(Ordering::Relaxed);
        limit_bytes > 0 && limit_bytes.saturating_sub(measured_bytes) < FAR_BYTES
    }

    /// Whether the limit is near, and more than three quarters of it are used: then removed bytes
    /// are counted.
    #[inline]
    pub(crate) fn is_tight(&self) -> bool {
        let used_bytes = self.measured_bytes.load(Ordering::Relaxed)
            + self.written_bytes.load(Ordering::Relaxed);
        self.is_near() && used_bytes > self.limit_bytes.load(Ordering::Relaxed) / 4 * 3
    }

    /// Notes the number of missing standing pieces. If it is more than `spare`, other writes get no
    /// room.
    pub(crate) fn note_intent_reserve(&self, missing: u64, spare: u64) {
        self.missing_pieces.store(missing + 1, Ordering::Relaxed);
        self.has_intent_reserve.store(missing <= spare, Ordering::Relaxed);
    }

    /// The number of missing pieces; the maximum before the first count.
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
