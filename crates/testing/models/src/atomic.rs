//! The atomic word of the models: loom's word, with a possible switch of threads at each access.
//!
//! Loom remembers only the last access to an atomic. If one thread loads, and another thread loads
//! and then stores, loom does not notice that the first load and the store can be exchanged. It
//! runs one schedule instead of three. A read-modify-write hides nothing. So each access comes
//! after a read-modify-write of a second word, which is relaxed and orders nothing.

use loom::sync::atomic::Ordering::Relaxed;
use loom::sync::atomic::{AtomicU64, Ordering};

/// A 64-bit word.
#[derive(Debug, Default)]
pub struct Atomic {
    word: AtomicU64,
    accesses: AtomicU64,
}

impl Atomic {
    pub fn new(value: u64) -> Self {
        Self { word: AtomicU64::new(value), accesses: AtomicU64::new(0) }
    }

    fn accessed(&self) -> &AtomicU64 {
        self.accesses.fetch_add(1, Relaxed);
        &self.word
    }

    pub fn load(&self, order: Ordering) -> u64 {
        self.accessed().load(order)
    }

    pub fn store(&self, value: u64, order: Ordering) {
        self.accessed().store(value, order);
    }

    pub fn fetch_and(&self, mask: u64, order: Ordering) -> u64 {
        self.accessed().fetch_and(mask, order)
    }

    pub fn fetch_add(&self, number: u64, order: Ordering) -> u64 {
        self.accessed().fetch_add(number, order)
    }

    pub fn fetch_max(&self, number: u64, order: Ordering) -> u64 {
        self.accessed().fetch_max(number, order)
    }

    pub fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.accessed().compare_exchange(current, new, success, failure)
    }
}

#[test]
fn all_schedules_of_a_load_beside_a_load_and_a_store_are_run() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let outcomes = seen.clone();
    crate::explore(None, move || {
        let word = loom::sync::Arc::new(Atomic::new(0));
        let writer = loom::thread::spawn({
            let word = word.clone();
            move || {
                word.load(Relaxed);
                word.store(1, Relaxed);
            }
        });
        outcomes.lock().unwrap().insert(word.load(Relaxed));
        writer.join().unwrap();
    });
    assert_eq!(seen.lock().unwrap().len(), 2);
}
