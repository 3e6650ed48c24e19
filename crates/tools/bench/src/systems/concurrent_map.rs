//! The peer `concurrent-map`: crate concurrent-map 5.0, the lock-free B+-tree that came out of
//! sled.
//!
//! Settings: the fan-out of 64 and the reclamation buffer of 128 that the documentation calls
//! "pretty good for most use cases". The map is not shared by reference: each thread has a clone of
//! its own, made when it first comes, as the documentation asks. With more than one clone alive a
//! write copies its leaf, so keys and values that are not eight bytes long are reference-counted
//! slices, which makes that copy a matter of counters; eight-byte ones are `u64`.
//!
//! `len` lags behind writes by its documentation, so the count is a scan.

use std::borrow::Borrow;
use std::ops::Bound::{Included, Unbounded};
use std::sync::{Arc, Mutex, PoisonError};

use ::concurrent_map::{ConcurrentMap, Minimum};
use thread_local::ThreadLocal;

use super::slots::{KeySlot, ValueSlot};
use crate::system::{Order, Refusal, Scan, System};

/// Bytes that a copy of a leaf shares with the leaf. No bytes at all are `None` and nothing else,
/// because the map wants its least key as a constant; so the order is that of the bytes.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Shared(Option<Arc<[u8]>>);

impl Shared {
    fn new(bytes: &[u8]) -> Self {
        Self((!bytes.is_empty()).then(|| bytes.into()))
    }
}

impl Borrow<[u8]> for Shared {
    fn borrow(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl Minimum for Shared {
    const MIN: Self = Self(None);
}

impl KeySlot for Shared {
    type Query = [u8];

    fn keep(bytes: &[u8]) -> Self {
        Self::new(bytes)
    }

    fn ask<Answer>(bytes: &[u8], ask: impl FnOnce(&[u8]) -> Answer) -> Answer {
        ask(bytes)
    }

    fn show(&self, visit: impl FnOnce(&[u8])) {
        visit(self.borrow());
    }
}

impl ValueSlot for Shared {
    fn keep(bytes: &[u8]) -> Self {
        Self::new(bytes)
    }

    fn show(&self, visit: impl FnOnce(&[u8])) {
        visit(self.borrow());
    }
}

/// `ConcurrentMap` with keys and values in the forms `K` and `V`, and a clone for each thread.
pub struct Map<K: KeySlot + Minimum, V: ValueSlot> {
    first: Mutex<ConcurrentMap<K, V>>,
    clones: ThreadLocal<ConcurrentMap<K, V>>,
}

impl<K: KeySlot + Minimum, V: ValueSlot> Default for Map<K, V> {
    fn default() -> Self {
        Self { first: Mutex::new(ConcurrentMap::default()), clones: ThreadLocal::new() }
    }
}

impl<K: KeySlot + Minimum, V: ValueSlot> Map<K, V> {
    #[inline]
    fn own(&self) -> &ConcurrentMap<K, V> {
        let clone = || self.first.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.clones.get_or(clone)
    }
}

impl<K: KeySlot + Minimum, V: ValueSlot> System for Map<K, V> {
    #[inline]
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        Ok(self.own().cas(K::keep(key), None::<&V>, Some(V::keep(value))).is_ok())
    }

    #[inline]
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.own().insert(K::keep(key), V::keep(value));
        Ok(())
    }

    #[inline]
    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        let value = K::ask(key, |key| self.own().get(key));
        Ok(value.map(|value| value.show(visit)).is_some())
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        Ok(K::ask(key, |key| self.own().remove(key)).is_some())
    }

    #[inline]
    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        let mut show = |key: K, value: V| key.show(|key| value.show(|value| visit(key, value)));
        K::ask(from, |from| match order {
            Order::Ascending => {
                let mut records = self.own().range((Included(from), Unbounded));
                for _ in 0..limit {
                    let Some((key, value)) = records.next() else { break };
                    show(key, value);
                }
            }
            Order::Descending => {
                let mut records = self.own().range((Unbounded, Included(from)));
                for _ in 0..limit {
                    let Some((key, value)) = records.next_back() else { break };
                    show(key, value);
                }
            }
        });
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.own().iter().count() as u64)
    }
}
