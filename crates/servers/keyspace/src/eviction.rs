//! What goes when the limit on memory is reached.

use std::sync::atomic::Ordering;

use pando::{KeyRange, Order};

use crate::failure::{Failure, Result};
use crate::layout::{Content, DATABASES, HASH_BITS, Head, hash_of, head_prefix, split_head_key};
use crate::memory::{COARSE_BITS, EvictionPolicy, FINE_BITS, MemoryLimit, Recency};
use crate::own_keys;
use crate::store::Store;
use crate::stripes::{Access, stripe_of};

/// Keys evicted for one command at most.
const EVICTIONS_A_COMMAND: u32 = 100;

impl Store {
    /// Seconds since a key was last used, or one whose hash is close to its own; since the store
    /// was opened, if none was.
    pub fn idle_s(&self, key: &[u8]) -> u64 {
        let used_at_s = self.memory.used_at_s(hash_of(key)).max(self.opened_at_ms / 1000);
        (self.clock.now_ms() / 1000).saturating_sub(used_at_s)
    }

    /// Sets the limit.
    pub fn limit_memory(&self, limit: MemoryLimit) {
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
    pub fn take_evicted_keys(&self) -> u64 {
        self.memory.evicted_keys.swap(0, Ordering::Relaxed)
    }

    /// Makes room for a write, if the limit is reached and the policy lets keys go; whether there
    /// is room. The caller must hold no stripe.
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
