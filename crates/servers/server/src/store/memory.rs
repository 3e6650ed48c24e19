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

use pando::{KeyRange, Order};

use super::layout::{Content, HASH_BITS, Head, hash_of, head_prefix, split_head_key};
use super::stripes::{Access, stripe_of};
use super::{DATABASES, Store, own_keys};
use crate::failure::{Failure, Result};

/// Ranges of hashes whose use is noted, in bits: for a policy that asks for it, and for OBJECT
/// IDLETIME alone.
const FINE_BITS: u32 = 20;
const COARSE_BITS: u32 = 16;
/// More than is written between two measures.
const FAR_BYTES: u64 = 1 << 30;
/// What a record takes besides its key and value, about.
const RECORD_BYTES: u64 = 24;
/// Keys evicted for one command at most.
const EVICTIONS_A_COMMAND: u32 = 100;

/// What is done when there is no more memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EvictionPolicy {
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
    pub(crate) const NAMES: [&str; 3] = ["noeviction", "allkeys-lru", "volatile-ttl"];

    /// The one whose name is at `place`.
    pub(crate) fn at(place: usize) -> Option<Self> {
        [Self::NoEviction, Self::AllKeysLru, Self::VolatileTtl].get(place).copied()
    }
}

/// How much may be in use, and what is done at the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryLimit {
    /// Zero for any number.
    pub bytes: u64,
    pub policy: EvictionPolicy,
    /// Ranges of hashes among which a victim is chosen.
    pub samples: u32,
}

/// The limit, and what is known of use.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// In bytes; zero for none.
    limit_bytes: AtomicU64,
    policy: AtomicU8,
    samples: AtomicU32,
    /// As of the last measure.
    measured_bytes: AtomicU64,
    /// Written since then, about.
    written_bytes: AtomicU64,
    /// Evicted or deleted, and neither gone from the measure nor written over so far.
    account_bytes: AtomicU64,
    evicted_keys: AtomicU64,
    /// Pieces of the room for what was decided that are missing, plus one; 0 before anyone has
    /// counted.
    missing_pieces: AtomicU64,
    /// Whether enough of that room is kept.
    has_intent_reserve: AtomicBool,
    /// The second in which a key of each range was last used: in the fine table, once there is one.
    fine: OnceLock<Recency>,
    coarse: OnceLock<Recency>,
}

/// The second in which a key of each of some ranges of hashes was last used.
#[derive(Debug)]
struct Recency {
    /// How far a hash is shifted to be the number of its range.
    shift: u32,
    seconds: Box<[AtomicU32]>,
}

impl Recency {
    fn new(bits: u32, second: impl Fn(u64) -> u32) -> Self {
        let shift = HASH_BITS - bits;
        let seconds = (0..1 << bits).map(|range| AtomicU32::new(second(range << shift)));
        Self { shift, seconds: seconds.collect() }
    }

    #[inline]
    fn of(&self, hash: u64) -> &AtomicU32 {
        &self.seconds[(hash >> self.shift) as usize]
    }
}

// All of these are figures by themselves: relaxed, all.
impl Memory {
    /// Notes that a key was used.
    #[inline]
    pub(super) fn note_use(&self, hash: u64, now_ms: u64) {
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
    pub(super) fn used_at_s(&self, hash: u64) -> u64 {
        self.recency().map_or(0, |recency| u64::from(recency.of(hash).load(Ordering::Relaxed)))
    }

    #[inline]
    fn recency(&self) -> Option<&Recency> {
        self.fine.get().or_else(|| self.coarse.get())
    }

    /// Notes that a record was written or removed.
    #[inline]
    pub(super) fn note_write(&self, key_bytes: usize, value_bytes: Option<usize>) {
        if let Some(bytes) = value_bytes
            && self.is_near()
        {
            let bytes = RECORD_BYTES + (key_bytes + bytes) as u64;
            self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Notes that a record was removed whose bytes count as free from now on.
    pub(super) fn note_removal(&self, key_bytes: usize, value_bytes: usize) {
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
    pub(super) fn is_tight(&self) -> bool {
        let used_bytes = self.measured_bytes.load(Ordering::Relaxed)
            + self.written_bytes.load(Ordering::Relaxed);
        self.is_near() && used_bytes > self.limit_bytes.load(Ordering::Relaxed) / 4 * 3
    }

    /// Notes how many pieces of the room for what was decided are missing. If they are more than
    /// `spare`, no other room is given.
    pub(super) fn note_intent_reserve(&self, missing: u64, spare: u64) {
        self.missing_pieces.store(missing + 1, Ordering::Relaxed);
        self.has_intent_reserve.store(missing <= spare, Ordering::Relaxed);
    }

    /// Pieces of that room that are missing; all if nobody has counted.
    #[inline]
    pub(super) fn missing_pieces(&self) -> u64 {
        self.missing_pieces.load(Ordering::Relaxed).wrapping_sub(1)
    }

    #[inline]
    pub(super) fn has_intent_reserve(&self) -> bool {
        self.has_intent_reserve.load(Ordering::Relaxed)
    }

    fn used_bytes(&self) -> u64 {
        if !self.has_intent_reserve() {
            return u64::MAX;
        }
        let measured_bytes = self.measured_bytes.load(Ordering::Relaxed);
        let used_bytes = measured_bytes + self.written_bytes.load(Ordering::Relaxed);
        let account_bytes = self.account_bytes.load(Ordering::Relaxed);
        used_bytes.saturating_sub(account_bytes.min(measured_bytes / 4))
    }
}

impl Store {
    /// Seconds since a key was last used, or one whose hash is close to its own; since the store
    /// was opened, if none was.
    pub(crate) fn idle_s(&self, key: &[u8]) -> u64 {
        let used_at_s = self.memory.used_at_s(hash_of(key)).max(self.opened_at_ms / 1000);
        (self.clock.now_ms() / 1000).saturating_sub(used_at_s)
    }

    /// Sets the limit.
    pub(crate) fn limit_memory(&self, limit: MemoryLimit) {
        let memory = &self.memory;
        let coarse = memory.coarse.get_or_init(|| Recency::new(COARSE_BITS, |_| 0));
        if limit.policy == EvictionPolicy::AllKeysLru {
            let known = |hash| coarse.of(hash).load(Ordering::Relaxed);
            memory.fine.get_or_init(|| Recency::new(FINE_BITS, known));
        }
        memory.policy.store(limit.policy as u8, Ordering::Relaxed);
        memory.samples.store(limit.samples, Ordering::Relaxed);
        memory.limit_bytes.store(limit.bytes, Ordering::Relaxed);
        self.measure();
    }

    /// Asks the pool how much is in use.
    pub(crate) fn measure(&self) {
        let memory = &self.memory;
        let measured_bytes = self.pool.used_bytes();
        let before_bytes = memory.measured_bytes.swap(measured_bytes, Ordering::Relaxed)
            + memory.written_bytes.swap(0, Ordering::Relaxed);
        // What did not come on top of the last measure has taken the place of what was evicted.
        let placed_bytes = before_bytes.saturating_sub(measured_bytes);
        let less = |bytes: u64| Some(bytes.saturating_sub(placed_bytes));
        let _ = memory.account_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Keys that were evicted since this was asked last.
    pub(crate) fn take_evicted_keys(&self) -> u64 {
        self.memory.evicted_keys.swap(0, Ordering::Relaxed)
    }

    /// Makes room for a write, if the limit is reached and the policy lets keys go; whether there
    /// is room. The caller must hold no stripe.
    #[inline]
    pub(crate) fn make_room(&self) -> Result<bool> {
        let limit_bytes = match self.memory.limit_bytes.load(Ordering::Relaxed) {
            0 => u64::MAX,
            limit_bytes => limit_bytes,
        };
        if self.memory.used_bytes() < limit_bytes {
            return Ok(true);
        }
        self.evict(limit_bytes)
    }

    #[cold]
    fn evict(&self, limit_bytes: u64) -> Result<bool> {
        let policy = self.memory.policy.load(Ordering::Relaxed);
        for _ in 0..EVICTIONS_A_COMMAND {
            if self.memory.used_bytes() < limit_bytes {
                return Ok(true);
            }
            let victim = match policy {
                policy if policy == EvictionPolicy::AllKeysLru as u8 => self.least_recent()?,
                policy if policy == EvictionPolicy::VolatileTtl as u8 => self.soonest()?,
                _ => None,
            };
            let Some(full) = victim else { return Ok(false) };
            let (space, hash, key) = split_head_key(&full).ok_or(Failure::Damaged)?;
            let held = self.lock([stripe_of(hash)].into_iter().collect(), Access::Alone)?;
            // Of a long string the sweep will remove the pieces.
            let swept_bytes = self.map.read(&full, |value| match Head::decode(value) {
                Some(Head { content: Content::Long(long), .. }) => long.bytes,
                _ => 0,
            })?;
            let mut transaction = self.begin(held, self.clock.now_ms());
            // Another may have removed it since.
            if let Some(swept_bytes) = swept_bytes {
                transaction.remove_head(space, key)?;
                transaction.commit()?;
                self.memory.account_bytes.fetch_add(swept_bytes, Ordering::Relaxed);
                self.memory.evicted_keys.fetch_add(1, Ordering::Relaxed);
            }
        }
        // Each write lets go of more than it takes, so what is too much will be gone soon.
        Ok(true)
    }

    /// A head whose range was used least recently of a few.
    fn least_recent(&self) -> Result<Option<Vec<u8>>> {
        let Some(recency) = self.memory.recency() else { return Ok(None) };
        let mut oldest: Option<(u32, Vec<u8>)> = None;
        for _ in 0..self.memory.samples.load(Ordering::Relaxed) {
            let Some(full) = self.random_head()? else { break };
            let (_, hash, _) = split_head_key(&full).ok_or(Failure::Damaged)?;
            let used = recency.of(hash).load(Ordering::Relaxed);
            if oldest.as_ref().is_none_or(|(second, _)| used < *second) {
                oldest = Some((used, full));
            }
        }
        Ok(oldest.map(|(_, full)| full))
    }

    /// The head's key at or behind a random place in a random database; `None` if there is none at
    /// all.
    fn random_head(&self) -> Result<Option<Vec<u8>>> {
        let hash = fastrand::u64(..1 << HASH_BITS);
        let first = fastrand::u8(..DATABASES);
        // From the place on; then from the beginning.
        for from in [hash, 0] {
            for database in (0..DATABASES).map(|step| (first + step) % DATABASES) {
                let space = self.space(database);
                let range =
                    KeyRange::between(&head_prefix(space, from), &head_prefix(space + 1, 0));
                if let Some((full, _)) = self.map.scan(range, Order::Ascending)?.next_record()? {
                    return Ok(Some(full.to_vec()));
                }
            }
        }
        Ok(None)
    }

    /// The head's key that expires next.
    fn soonest(&self) -> Result<Option<Vec<u8>>> {
        let mut scan = self.map.scan(KeyRange::prefix(own_keys::EXPIRIES), Order::Ascending)?;
        while let Some((entry, _)) = scan.next_record()? {
            let (at_ms, full) = own_keys::split_expiry(entry).ok_or(Failure::Damaged)?;
            // One that the head does not agree with is left to the sweep.
            if self.expires_at(full)? == Some(at_ms) {
                return Ok(Some(full.to_vec()));
            }
        }
        Ok(None)
    }
}
