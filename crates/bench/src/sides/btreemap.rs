//! The peer of the standard library: `BTreeMap<u64, u64>` under a readers-writer lock.
//!
//! The fastest ordered map that needs no dependency, for as long as one thread is at it.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::side::{Refusal, Side};

/// `RwLock<BTreeMap<u64, u64>>`.
#[derive(Default)]
pub struct Locked {
    map: RwLock<BTreeMap<u64, u64>>,
}

impl Locked {
    // A panic of another thread ends the run anyway; the map itself is never left half changed.
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<u64, u64>> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, u64>> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Side for Locked {
    fn insert_new(&self, key: u64, value: u64) -> Result<bool, Refusal> {
        Ok(self.write().insert(key, value).is_none())
    }

    fn upsert(&self, key: u64, value: u64) -> Result<(), Refusal> {
        self.write().insert(key, value);
        Ok(())
    }

    fn get(&self, key: u64) -> Result<Option<u64>, Refusal> {
        Ok(self.read().get(&key).copied())
    }

    fn delete(&self, key: u64) -> Result<bool, Refusal> {
        Ok(self.write().remove(&key).is_some())
    }

    fn scan(&self, from: u64, limit: u64, mut visit: impl FnMut(u64, u64)) -> Result<(), Refusal> {
        for (&key, &value) in self.read().range(from..).take(limit.min(usize::MAX as u64) as usize)
        {
            visit(key, value);
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.read().len() as u64)
    }
}
