//! Eviction of keys at the memory limit.

use std::sync::atomic::Ordering;

use pando::KeyRange;

use crate::failure::{Failure, Result};
use crate::layout::{Content, DATABASES, HASH_BITS, Head, hash_of, head_prefix, split_head_key};
use crate::memory::{COARSE_BITS, EvictionPolicy, FINE_BITS, MemoryLimit, Recency};
use crate::own_keys;
use crate::store::Store;
use crate::stripes::{Access, stripe_of};

/// Most keys that are evicted for one command.
const EVICTIONS_A_COMMAND: u32 = 100;

impl Store {
    /// Seconds since the last use of a key, or of another key in its range of hashes; since the
    /// store was opened, if there was none.
    pub fn idle_s(&self, key: &[u8]) -> u64 {
        let used_at_s = self.memory.used_at_s(hash_of(key)).max(self.opened_at_ms / 1000);
        (self.clock.now_ms() / 1000).saturating_sub(used_at_s)
    }

    /// Sets the memory limit. In a record store only pages are evicted, no keys.
    pub fn limit_memory(&self, limit: MemoryLimit) {
        let memory = &self.memory;
        let coarse = memory.coarse.get_or_init(|| Recency::new(COARSE_BITS, |_| 0));
        if limit.policy == EvictionPolicy::AllKeysLru {
            let known = |hash| coarse.of(hash).load(Ordering::Relaxed);
            memory.fine.get_or_init(|| Recency::new(FINE_BITS, known));
        }
        memory.policy.store(limit.policy as u8, Ordering::Relaxed);
        memory.samples.store(limit.samples, Ordering::Relaxed);
        let limit_bytes = self.page_bytes().map_or(limit.bytes, |_| 0);
        memory.limit_bytes.store(limit_bytes, Ordering::Relaxed);
        self.measure();
    }

    /// Reads the pool's used bytes.
    pub(crate) fn measure(&self) {
        if self.page_bytes().is_some() {
            // There is no limit.
            return;
        }
        let memory = &self.memory;
        let measured_bytes = self.pool.used_bytes();
        let before_bytes = memory.measured_bytes.swap(measured_bytes, Ordering::Relaxed)
            + memory.written_bytes.swap(0, Ordering::Relaxed);
        // Written bytes that did not increase the measure have filled gaps of evicted records.
        let placed_bytes = before_bytes.saturating_sub(measured_bytes);
        let less = |bytes: u64| Some(bytes.saturating_sub(placed_bytes));
        let _ = memory.account_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Keys evicted since the last call.
    pub fn take_evicted_keys(&self) -> u64 {
        self.memory.evicted_keys.swap(0, Ordering::Relaxed)
    }

    /// Makes room for a write: at the memory limit it evicts keys if the policy allows that.
    /// Returns whether there is room. The caller must hold no stripe.
    #[inline]
    pub fn make_room(&self) -> Result<bool> {
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
        let mut refused = 0;
        for _ in 0..EVICTIONS_A_COMMAND {
            if self.memory.used_bytes() < limit_bytes {
                return Ok(true);
            }
            let victim = match policy {
                policy if policy == EvictionPolicy::AllKeysLru as u8 => self.least_recent()?,
                policy if policy == EvictionPolicy::VolatileTtl as u8 => self.soonest(refused)?,
                _ => None,
            };
            let Some(full) = victim else { return Ok(false) };
            let (space, hash, key) = split_head_key(&full).ok_or(Failure::Damaged)?;
            let held = self.lock([stripe_of(hash)].into_iter().collect(), Access::Exclusive)?;
            // The sweep will remove the pieces of a long string.
            let swept_bytes = self.map.read(&full, |value| match Head::decode(value) {
                Some(Head { content: Content::Long(long), .. }) => long.bytes,
                _ => 0,
            })?;
            let mut transaction = self.begin(held, self.clock.now_ms());
            // Another thread may have removed it.
            if let Some(swept_bytes) = swept_bytes {
                let removed =
                    transaction.remove_head(space, key).and_then(|_| transaction.commit());
                match removed {
                    // The removal of another key may need less room.
                    Err(failure) if failure.is_no_memory() => {
                        refused += 1;
                        continue;
                    }
                    removed => removed?,
                }
                self.memory.account_bytes.fetch_add(swept_bytes, Ordering::Relaxed);
                self.memory.evicted_keys.fetch_add(1, Ordering::Relaxed);
            }
        }
        // A command's evictions free more than it writes, so the limit is soon met.
        Ok(refused < EVICTIONS_A_COMMAND)
    }

    /// The key of a head whose range is the least recently used one of a few random ranges.
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

    /// The key of the first head at or after a random position in a random database; `None` if
    /// there is no head.
    fn random_head(&self) -> Result<Option<Vec<u8>>> {
        let hash = fastrand::u64(..1 << HASH_BITS);
        let first = fastrand::u8(..DATABASES);
        // First from the random position, then from the beginning.
        for from in [hash, 0] {
            for database in (0..DATABASES).map(|step| (first + step) % DATABASES) {
                let space = self.space(database);
                let range =
                    KeyRange::between(&head_prefix(space, from), &head_prefix(space + 1, 0));
                if let Some((full, _)) = self.map.range(range).next_record()? {
                    return Ok(Some(full.to_vec()));
                }
            }
        }
        Ok(None)
    }

    /// The key of the head with the earliest expiry, behind the first `passed` ones.
    fn soonest(&self, passed: u32) -> Result<Option<Vec<u8>>> {
        let mut left = passed;
        let mut scan = self.map.prefix(own_keys::EXPIRIES);
        while let Some((entry, _)) = scan.next_record()? {
            let (at_ms, full) = own_keys::split_expiry(entry).ok_or(Failure::Damaged)?;
            // The sweep removes entries that do not match their head.
            if self.expires_at(full)? == Some(at_ms) {
                if left == 0 {
                    return Ok(Some(full.to_vec()));
                }
                left -= 1;
            }
        }
        Ok(None)
    }
}
