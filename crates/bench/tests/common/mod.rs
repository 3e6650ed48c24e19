//! What the tests share: a reference index that is right by construction, a small plan, and a
//! side with a planted fault.

#![allow(dead_code, reason = "each test file takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pando_bench::chooser::KeyChoice;
use pando_bench::compare::{Entrant, Plan};
use pando_bench::mix::Mix;
use pando_bench::side::{Refusal, Side};
use pando_bench::sides::btreemap::Locked;
use pando_index::{Cursor, Error, KeyRange, Limits, Order, RangeIndex, Record, Upserted};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// A `BTreeMap` under a lock that keeps the contract of an index.
#[derive(Default)]
pub struct Reference {
    records: RwLock<Records>,
}

impl RangeIndex for Reference {
    fn limits(&self) -> Limits {
        Limits { max_key_bytes: 8, max_value_bytes: 8 }
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let mut records = self.records.write().unwrap();
        if records.contains_key(key) {
            return Err(Error::KeyExists);
        }
        records.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let mut records = self.records.write().unwrap();
        *records.get_mut(key).ok_or(Error::KeyNotFound)? = value.to_vec();
        Ok(())
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<Upserted, Error> {
        match self.records.write().unwrap().insert(key.to_vec(), value.to_vec()) {
            None => Ok(Upserted::Inserted),
            Some(_) => Ok(Upserted::Updated),
        }
    }

    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
        Ok(self.records.read().unwrap().get(key).map(|value| visit(value)).is_some())
    }

    fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.records.write().unwrap().remove(key).is_some())
    }

    fn compare_exchange(&self, key: &[u8], expected: &[u8], new: &[u8]) -> Result<(), Error> {
        match self.records.write().unwrap().get_mut(key) {
            None => Err(Error::KeyNotFound),
            Some(value) if value != expected => Err(Error::ValueMismatch),
            Some(value) => {
                *value = new.to_vec();
                Ok(())
            }
        }
    }

    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>, Error> {
        assert_eq!(order, Order::Ascending, "the benchmark scans forward");
        Ok(Box::new(Ascending { index: self, range, current: None }))
    }

    fn len(&self) -> Result<u64, Error> {
        Ok(self.records.read().unwrap().len() as u64)
    }
}

struct Ascending<'index> {
    index: &'index Reference,
    range: KeyRange,
    current: Option<(Vec<u8>, Vec<u8>)>,
}

impl Cursor for Ascending<'_> {
    fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        if let Some((key, _)) = self.current.take() {
            self.range.low = std::ops::Bound::Excluded(key);
        }
        let records = self.index.records.read().unwrap();
        let bounds = (self.range.low.clone(), self.range.high.clone());
        let next = records.range(bounds).next();
        self.current = next.map(|(key, value)| (key.clone(), value.clone()));
        Ok(self.current.as_ref().map(|(key, value)| (key.as_slice(), value.as_slice())))
    }
}

/// What a planted side does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The insert with this number is answered and forgotten.
    ForgetInsert(u64),
    /// The delete with this number is answered and forgotten.
    ForgetDelete(u64),
    /// The get with this number gives another key's value.
    WrongValue(u64),
    /// The scan with this number leaves out its second record.
    SkipInScan(u64),
    /// The insert with this number panics.
    PanicInInsert(u64),
}

/// A right map with one fault in it.
pub struct Planted {
    map: Locked,
    plant: Plant,
    turns: AtomicU64,
}

impl Planted {
    /// A side with the fault `plant`.
    pub fn new(plant: Plant) -> Self {
        Self { map: Locked::default(), plant, turns: AtomicU64::new(0) }
    }

    fn is_due(&self, plant: impl Fn(u64) -> Plant) -> bool {
        let kind = |plant: &Plant| std::mem::discriminant(plant);
        kind(&plant(0)) == kind(&self.plant)
            && plant(self.turns.fetch_add(1, Ordering::Relaxed)) == self.plant
    }
}

impl Side for Planted {
    fn insert_new(&self, key: u64, value: u64) -> Result<bool, Refusal> {
        assert!(!self.is_due(Plant::PanicInInsert), "the planted panic");
        if self.is_due(Plant::ForgetInsert) {
            return Ok(true);
        }
        self.map.insert_new(key, value)
    }

    fn upsert(&self, key: u64, value: u64) -> Result<(), Refusal> {
        self.map.upsert(key, value)
    }

    fn get(&self, key: u64) -> Result<Option<u64>, Refusal> {
        let found = self.map.get(key)?;
        Ok(found.map(|value| if self.is_due(Plant::WrongValue) { !value } else { value }))
    }

    fn delete(&self, key: u64) -> Result<bool, Refusal> {
        if self.is_due(Plant::ForgetDelete) {
            return Ok(true);
        }
        self.map.delete(key)
    }

    fn scan(&self, from: u64, limit: u64, mut visit: impl FnMut(u64, u64)) -> Result<(), Refusal> {
        let is_due = self.is_due(Plant::SkipInScan);
        let mut turn = 0;
        self.map.scan(from, limit, |key, value| {
            turn += 1;
            if !(is_due && turn == 2) {
                visit(key, value);
            }
        })
    }

    fn count(&self) -> Result<u64, Refusal> {
        self.map.count()
    }
}

/// Every mix on two thousand records, in about a second.
pub fn small_plan() -> Plan {
    Plan {
        base: None,
        mixes: Mix::ALL.to_vec(),
        records: 2_000,
        threads: vec![1, 3],
        keys: KeyChoice::Uniform,
        rounds: 1,
        time: Duration::from_millis(10),
        batch: 100,
        sample_every: 4,
        seed: 1,
    }
}

/// An entrant built by `build`.
pub fn entrant<S: Side + 'static>(name: &str, build: impl Fn() -> S + 'static) -> Entrant {
    Entrant { name: name.to_owned(), build: Box::new(move || Ok(Box::new(build()))) }
}
