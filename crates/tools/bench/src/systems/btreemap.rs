//! The peer of the standard library: a `BTreeMap` under a readers-writer lock.
//!
//! The fastest ordered map that needs no dependency, for as long as one thread is at it. Records
//! of 8 and 8 bytes are integers in it, of any other shape boxed bytes: what its user would
//! write.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::words::{key_word, value_word};
use crate::system::{Order, Refusal, Scan, System};

type Integers = BTreeMap<u64, u64>;
type Strings = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// A map under a lock.
#[derive(Default)]
pub struct Locked<Map> {
    map: RwLock<Map>,
}

/// `RwLock<BTreeMap<u64, u64>>`.
pub type LockedIntegers = Locked<Integers>;
/// `RwLock<BTreeMap<Box<[u8]>, Box<[u8]>>>`.
pub type LockedBytes = Locked<Strings>;

impl<Map> Locked<Map> {
    // A panic of another thread ends the run anyway; the map itself is never left half changed.
    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a record; false, with nothing changed, if its key is there.
fn add<Key: Ord, Value>(map: &mut BTreeMap<Key, Value>, key: Key, value: Value) -> bool {
    match map.entry(key) {
        Entry::Occupied(_) => false,
        Entry::Vacant(room) => {
            room.insert(value);
            true
        }
    }
}

/// A limit as the standard library's iterators take it.
pub(super) fn limit_of(limit: u64) -> usize {
    limit.min(usize::MAX as u64) as usize
}

impl System for LockedIntegers {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        let (key, value) = (key_word(key)?, value_word(value)?);
        Ok(add(&mut self.write(), key, value))
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let (key, value) = (key_word(key)?, value_word(value)?);
        self.write().insert(key, value);
        Ok(())
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        let key = key_word(key)?;
        let found = self.read().get(&key).copied();
        Ok(found.map(|value| visit(&value.to_le_bytes())).is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        let key = key_word(key)?;
        Ok(self.write().remove(&key).is_some())
    }

    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        let from = key_word(from)?;
        let hand_on = |(key, value): (&u64, &u64)| visit(&key.to_be_bytes(), &value.to_le_bytes());
        let map = self.read();
        match order {
            Order::Ascending => map.range(from..).take(limit_of(limit)).for_each(hand_on),
            Order::Descending => map.range(..=from).rev().take(limit_of(limit)).for_each(hand_on),
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.read().len() as u64)
    }
}

impl System for LockedBytes {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        let (key, value) = (key.into(), value.into());
        Ok(add(&mut self.write(), key, value))
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let (key, value) = (key.into(), value.into());
        self.write().insert(key, value);
        Ok(())
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        Ok(self.read().get(key).map(|value| visit(value)).is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        Ok(self.write().remove(key).is_some())
    }

    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        let map = self.read();
        let limit = limit_of(limit);
        match order {
            Order::Ascending => {
                let range = (Bound::Included(from), Bound::Unbounded);
                for (key, value) in map.range::<[u8], _>(range).take(limit) {
                    visit(key, value);
                }
            }
            Order::Descending => {
                let range = (Bound::Unbounded, Bound::Included(from));
                for (key, value) in map.range::<[u8], _>(range).rev().take(limit) {
                    visit(key, value);
                }
            }
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.read().len() as u64)
    }
}
