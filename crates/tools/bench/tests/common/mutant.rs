//! A system with a fault, which the benchmark must find.

#![allow(dead_code, reason = "each test file takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pando_bench::keys::number_of;
use pando_bench::plan::NamedSystem;
use pando_bench::system::{Refusal, Scan, System};
use pando_bench::systems::btreemap::LockedIntegers;

/// The fault of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The insert with this number is answered and forgotten.
    ForgetInsert(u64),
    /// Each insert of a key that leaves this remainder by a million is answered and forgotten.
    ForgetOneInAMillion(u64),
    /// The insert with this number adds the next key as well, which the count does not admit.
    InventKey(u64),
    /// The delete with this number is answered and forgotten.
    ForgetDelete(u64),
    /// The get with this number gives another key's value.
    WrongValue(u64),
    /// The scan with this number leaves out its second record.
    SkipInScan(u64),
    /// Every get that finds its key takes so long.
    SleepInGet(Duration),
    /// The insert with this number panics.
    PanicInInsert(u64),
}

/// The key after an eight-byte `key`.
pub fn next_key(key: &[u8]) -> Result<[u8; 8], std::array::TryFromSliceError> {
    Ok(u64::from_be_bytes(key.try_into()?).wrapping_add(1).to_be_bytes())
}

/// A correct map with one fault.
pub struct Mutant {
    map: LockedIntegers,
    mutation: Mutation,
    turns: AtomicU64,
}

impl Mutant {
    /// A map with this fault.
    pub fn new(mutation: Mutation) -> Self {
        Self { map: LockedIntegers::default(), mutation, turns: AtomicU64::new(0) }
    }

    fn is_due(&self, mutation: impl Fn(u64) -> Mutation) -> bool {
        let kind = |mutation: &Mutation| std::mem::discriminant(mutation);
        kind(&mutation(0)) == kind(&self.mutation)
            && mutation(self.turns.fetch_add(1, Ordering::Relaxed)) == self.mutation
    }
}

impl System for Mutant {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        assert!(!self.is_due(Mutation::PanicInInsert), "the panic of the mutant");
        let number = number_of(u64::from_be_bytes(key.try_into()?));
        if self.is_due(Mutation::ForgetInsert)
            || self.mutation == Mutation::ForgetOneInAMillion(number % 1_000_000)
        {
            return Ok(true);
        }
        if self.is_due(Mutation::InventKey) {
            self.map.insert_new(&next_key(key)?, value)?;
        }
        self.map.insert_new(key, value)
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.map.upsert(key, value)
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        self.map.get(key, |value| match self.is_due(Mutation::WrongValue) {
            true => visit(&value.iter().map(|byte| !byte).collect::<Vec<_>>()),
            false => {
                if let Mutation::SleepInGet(time) = self.mutation {
                    std::thread::sleep(time);
                }
                visit(value)
            }
        })
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        if self.is_due(Mutation::ForgetDelete) {
            return Ok(true);
        }
        self.map.delete(key)
    }

    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let is_due = self.is_due(Mutation::SkipInScan);
        let mut turn = 0;
        self.map.scan(scan, |key, value| {
            turn += 1;
            if !(is_due && turn == 2) {
                visit(key, value);
            }
        })
    }

    fn count(&self) -> Result<u64, Refusal> {
        let count = self.map.count()?;
        // It would not even admit it.
        Ok(match self.mutation {
            Mutation::ForgetOneInAMillion(rest) => count + (count + 1_000_000 - rest) / 1_000_000,
            Mutation::InventKey(turn) if self.turns.load(Ordering::Relaxed) > turn => count - 1,
            _ => count,
        })
    }
}

/// An system built by `build`.
pub fn system<S: System + 'static>(name: &str, build: impl Fn() -> S + 'static) -> NamedSystem {
    NamedSystem { name: name.to_owned(), build: Box::new(move || Ok(Box::new(build()))) }
}
