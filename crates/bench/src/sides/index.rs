//! Any [`RangeIndex`] of Pando as a side: keys as 8 big-endian bytes, so that bytewise order is
//! numeric order, values as 8 little-endian bytes.
//!
//! It goes through the public contract and nothing else, so what is measured is what a user of
//! byte-string keys gets.

use std::any::Any;

use pando_index::{KeyRange, Order, RangeIndex};

use crate::side::{Refusal, Side};

/// Stands for bytes that are not eight: no key or value of the workload has a place for it.
const MALFORMED: u64 = u64::MAX;

type Footprint<I> = dyn Fn(&I) -> Option<u64> + Send + Sync;

/// An index, what it lives in, and how to ask that for its size.
pub struct Indexed<I> {
    index: I,
    footprint: Box<Footprint<I>>,
    _home: Box<dyn Any + Send + Sync>,
}

impl<I: RangeIndex> Indexed<I> {
    /// An index on the heap.
    pub fn new(index: I) -> Self {
        Self { index, footprint: Box::new(|_| None), _home: Box::new(()) }
    }

    /// An index in a pool: `footprint` says how many bytes it takes, and `home` (a folder, a pool)
    /// is kept until the index is dropped.
    pub fn in_pool(
        index: I,
        footprint: impl Fn(&I) -> Option<u64> + Send + Sync + 'static,
        home: impl Any + Send + Sync,
    ) -> Self {
        Self { index, footprint: Box::new(footprint), _home: Box::new(home) }
    }
}

fn value(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(MALFORMED, u64::from_le_bytes)
}

fn key(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(MALFORMED, u64::from_be_bytes)
}

impl<I: RangeIndex> Side for Indexed<I> {
    fn insert_new(&self, key: u64, value: u64) -> Result<bool, Refusal> {
        match self.index.insert(&key.to_be_bytes(), &value.to_le_bytes()) {
            Ok(()) => Ok(true),
            Err(Refusal::KeyExists) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    fn upsert(&self, key: u64, value: u64) -> Result<(), Refusal> {
        self.index.upsert(&key.to_be_bytes(), &value.to_le_bytes()).map(|_| ())
    }

    fn get(&self, key: u64) -> Result<Option<u64>, Refusal> {
        let mut found = MALFORMED;
        let is_there = self.index.read(&key.to_be_bytes(), &mut |bytes| found = value(bytes))?;
        Ok(is_there.then_some(found))
    }

    fn delete(&self, key: u64) -> Result<bool, Refusal> {
        self.index.remove(&key.to_be_bytes())
    }

    fn scan(&self, from: u64, limit: u64, mut visit: impl FnMut(u64, u64)) -> Result<(), Refusal> {
        let mut cursor = self.index.scan(KeyRange::from(&from.to_be_bytes()), Order::Ascending)?;
        for _ in 0..limit {
            let Some((key_bytes, value_bytes)) = cursor.next()? else { break };
            visit(key(key_bytes), value(value_bytes));
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        self.index.len()
    }

    fn footprint_bytes(&self) -> Option<u64> {
        (self.footprint)(&self.index)
    }
}
