//! The peer of crates.io: crossbeam's skip list, by its two interfaces.
//!
//! `crossbeam-skiplist` is `SkipMap<u64, u64>`, the map that the crate's documentation leads to:
//! integer keys compared as integers, values in the node. Its upsert is `insert`, which replaces
//! the node. In 0.1.3, the newest release, it unlinks the old node before it links the new one, so
//! that another thread's get in between finds nothing (crossbeam issue 1023); those misses are
//! reported beside its figures.
//!
//! `crossbeam-skiplist:tuned` is our best use of the same list. It uses the `base` interface with
//! one epoch guard for each operation, so that a get counts no references on a shared line. Its
//! values are atomic, and are replaced in place. It takes 8-byte records only; the plain list has
//! boxed bytes for all others.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::base::SkipList;

use super::btreemap::limit_of;
use super::words::{key_word, value_word};
use crate::system::{Order, Refusal, Scan, System};

/// `SkipMap<u64, u64>` as its documentation shows it.
#[derive(Default)]
pub struct PlainIntegers {
    map: SkipMap<u64, u64>,
}

impl System for PlainIntegers {
    const REPLACING_HIDES_KEY: bool = true;

    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        let (key, value) = (key_word(key)?, value_word(value)?);
        // What was there before, if the workload were wrong, has the same upper bits; a record
        // too few then shows in the count.
        Ok(*self.map.get_or_insert(key, value).value() == value)
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.map.insert(key_word(key)?, value_word(value)?);
        Ok(())
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        let found = self.map.get(&key_word(key)?);
        Ok(found.map(|entry| visit(&entry.value().to_le_bytes())).is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        Ok(self.map.remove(&key_word(key)?).is_some())
    }

    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        let from = key_word(from)?;
        let mut hand_on = |key: &u64, value: &u64| visit(&key.to_be_bytes(), &value.to_le_bytes());
        match order {
            Order::Ascending => {
                for entry in self.map.range(from..).take(limit_of(limit)) {
                    hand_on(entry.key(), entry.value());
                }
            }
            Order::Descending => {
                for entry in self.map.range(..=from).rev().take(limit_of(limit)) {
                    hand_on(entry.key(), entry.value());
                }
            }
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.map.len() as u64)
    }
}

/// `SkipMap<Box<[u8]>, Box<[u8]>>`.
#[derive(Default)]
pub struct PlainBytes {
    map: SkipMap<Box<[u8]>, Box<[u8]>>,
}

impl System for PlainBytes {
    const REPLACING_HIDES_KEY: bool = true;

    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        // As with integers: a record too few shows in the count.
        Ok(**self.map.get_or_insert(key.into(), value.into()).value() == *value)
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.map.insert(key.into(), value.into());
        Ok(())
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        Ok(self.map.get(key).map(|entry| visit(entry.value())).is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        Ok(self.map.remove(key).is_some())
    }

    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        match order {
            Order::Ascending => {
                let range = (Bound::Included(from), Bound::Unbounded);
                for entry in self.map.range::<[u8], _>(range).take(limit_of(limit)) {
                    visit(entry.key(), entry.value());
                }
            }
            Order::Descending => {
                let range = (Bound::Unbounded, Bound::Included(from));
                for entry in self.map.range::<[u8], _>(range).rev().take(limit_of(limit)) {
                    visit(entry.key(), entry.value());
                }
            }
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.map.len() as u64)
    }
}

/// The same list of integers under guards, with values replaced in place.
pub struct Tuned {
    list: SkipList<u64, AtomicU64>,
}

impl Default for Tuned {
    fn default() -> Self {
        Self { list: SkipList::new(crossbeam_epoch::default_collector().clone()) }
    }
}

impl System for Tuned {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        let (key, value) = (key_word(key)?, value_word(value)?);
        let guard = &crossbeam_epoch::pin();
        let entry = self.list.get_or_insert(key, AtomicU64::new(value), guard);
        let is_ours = entry.value().load(Ordering::Acquire) == value;
        entry.release(guard);
        Ok(is_ours)
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let (key, value) = (key_word(key)?, value_word(value)?);
        let guard = &crossbeam_epoch::pin();
        match self.list.get(&key, guard) {
            // Release: pairs with the acquiring load of a get.
            Some(entry) => entry.value().store(value, Ordering::Release),
            None => self.list.insert(key, AtomicU64::new(value), guard).release(guard),
        }
        Ok(())
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        let key = key_word(key)?;
        let guard = &crossbeam_epoch::pin();
        let found = self.list.get(&key, guard).map(|entry| entry.value().load(Ordering::Acquire));
        Ok(found.map(|value| visit(&value.to_le_bytes())).is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        let key = key_word(key)?;
        let guard = &crossbeam_epoch::pin();
        Ok(self.list.remove(&key, guard).is_some_and(|entry| {
            entry.release(guard);
            true
        }))
    }

    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        let from = key_word(from)?;
        let guard = &crossbeam_epoch::pin();
        let mut entry = match order {
            Order::Ascending => self.list.lower_bound(Bound::Included(&from), guard),
            Order::Descending => self.list.upper_bound(Bound::Included(&from), guard),
        };
        for _ in 0..limit {
            let Some(found) = entry else { break };
            let value = found.value().load(Ordering::Acquire);
            visit(&found.key().to_be_bytes(), &value.to_le_bytes());
            entry = match order {
                Order::Ascending => found.next(),
                Order::Descending => found.prev(),
            };
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.list.len() as u64)
    }
}
