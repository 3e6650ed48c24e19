//! The peer of crates.io: crossbeam's skip list, in the two forms that its users have.
//!
//! `skiplist` is `SkipMap<u64, u64>`, the map that the crate's documentation leads to: integer
//! keys compared as integers, values in the node. Its upsert is `insert`, which replaces the
//! node. In 0.1.3, the newest release, it unlinks the old node before it links the new one, so that
//! another thread's get in between finds nothing (crossbeam issue 1023); those misses are reported
//! beside its figures.
//!
//! `skiplist:tuned` is the best that we know how to make of the same list: the `base` interface
//! with one epoch guard an operation, so that a get counts no references on a shared line, and
//! atomic values that are replaced in place.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::base::SkipList;

use crate::side::{Refusal, Side};

/// `SkipMap` as its documentation shows it.
#[derive(Default)]
pub struct Plain {
    map: SkipMap<u64, u64>,
}

impl Side for Plain {
    const REPLACING_HIDES_KEY: bool = true;

    fn insert_new(&self, key: u64, value: u64) -> Result<bool, Refusal> {
        // What was there before, if the workload were wrong, has the same upper bits; a record
        // too few then shows in the count.
        Ok(*self.map.get_or_insert(key, value).value() == value)
    }

    fn upsert(&self, key: u64, value: u64) -> Result<(), Refusal> {
        self.map.insert(key, value);
        Ok(())
    }

    fn get(&self, key: u64) -> Result<Option<u64>, Refusal> {
        Ok(self.map.get(&key).map(|entry| *entry.value()))
    }

    fn delete(&self, key: u64) -> Result<bool, Refusal> {
        Ok(self.map.remove(&key).is_some())
    }

    fn scan(&self, from: u64, limit: u64, mut visit: impl FnMut(u64, u64)) -> Result<(), Refusal> {
        for entry in self.map.range(from..).take(limit.min(usize::MAX as u64) as usize) {
            visit(*entry.key(), *entry.value());
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.map.len() as u64)
    }
}

/// The same list under guards, with values replaced in place.
pub struct Tuned {
    list: SkipList<u64, AtomicU64>,
}

impl Default for Tuned {
    fn default() -> Self {
        Self { list: SkipList::new(crossbeam_epoch::default_collector().clone()) }
    }
}

impl Side for Tuned {
    fn insert_new(&self, key: u64, value: u64) -> Result<bool, Refusal> {
        let guard = &crossbeam_epoch::pin();
        let entry = self.list.get_or_insert(key, AtomicU64::new(value), guard);
        let is_ours = entry.value().load(Ordering::Acquire) == value;
        entry.release(guard);
        Ok(is_ours)
    }

    fn upsert(&self, key: u64, value: u64) -> Result<(), Refusal> {
        let guard = &crossbeam_epoch::pin();
        match self.list.get(&key, guard) {
            // Release: pairs with the acquiring load of a get.
            Some(entry) => entry.value().store(value, Ordering::Release),
            None => self.list.insert(key, AtomicU64::new(value), guard).release(guard),
        }
        Ok(())
    }

    fn get(&self, key: u64) -> Result<Option<u64>, Refusal> {
        let guard = &crossbeam_epoch::pin();
        Ok(self.list.get(&key, guard).map(|entry| entry.value().load(Ordering::Acquire)))
    }

    fn delete(&self, key: u64) -> Result<bool, Refusal> {
        let guard = &crossbeam_epoch::pin();
        Ok(self.list.remove(&key, guard).is_some_and(|entry| {
            entry.release(guard);
            true
        }))
    }

    fn scan(&self, from: u64, limit: u64, mut visit: impl FnMut(u64, u64)) -> Result<(), Refusal> {
        let guard = &crossbeam_epoch::pin();
        let mut entry = self.list.lower_bound(std::ops::Bound::Included(&from), guard);
        for _ in 0..limit {
            let Some(found) = entry else { break };
            visit(*found.key(), found.value().load(Ordering::Acquire));
            entry = found.next();
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.list.len() as u64)
    }
}
