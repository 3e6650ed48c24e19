//! The peer `congee`: crate congee 0.4, an adaptive radix tree with optimistic lock coupling.
//!
//! Settings: the default allocator, the only one that the crate brings. Keys and values are
//! `usize`, so it takes 8-byte keys and 8-byte values and no others. Each operation pins an epoch
//! of its own, as a user's single operation would.
//!
//! `insert` replaces, so `insert_new` is `compute_or_insert` with a function that keeps the present
//! value. A scan fills a buffer from a half-open range, upwards only. It may stop after a page of
//! this adapter's size, and continues at the key after the last one. No half-open range contains
//! the largest key of all, so that key is looked up. There is no number of records, so the count is
//! a scan.

use ::congee::{Congee, DefaultAllocator};

use super::slots::{key_number, value_number};
use crate::system::{Order, Refusal, Scan, System};

/// Records that one call of `range` fills in, at most: a short scan takes one call, and the buffer
/// lies on the stack.
const PAGE_RECORDS: usize = 128;

/// `Congee<usize, usize>`.
pub struct Tree {
    tree: Congee<usize, usize>,
}

impl Default for Tree {
    fn default() -> Self {
        Self { tree: Congee::new(DefaultAllocator {}) }
    }
}

// The crate asserts at compile time that a `usize` has eight bytes.
fn key_word(bytes: &[u8]) -> usize {
    key_number(bytes) as usize
}

impl Tree {
    /// Visits up to `limit` records from `from`, included, upwards.
    #[inline]
    fn ascend(&self, from: usize, limit: u64, mut visit: impl FnMut(usize, usize)) {
        let guard = self.tree.pin();
        let (mut from, mut left) = (from, limit);
        let mut page = [(0, 0); PAGE_RECORDS];
        while left > 0 {
            let wanted = left.min(PAGE_RECORDS as u64) as usize;
            let found = self.tree.range(&from, &usize::MAX, &mut page[..wanted], &guard);
            for &(key, value) in &page[..found] {
                visit(key, value);
            }
            left -= found as u64;
            if found < wanted {
                break;
            }
            // The range excludes the largest key, so there is one after each that it gives.
            from = page[found - 1].0 + 1;
        }
        if left > 0
            && let Some(value) = self.tree.get(&usize::MAX, &guard)
        {
            visit(usize::MAX, value);
        }
    }
}

impl System for Tree {
    #[inline]
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        let guard = self.tree.pin();
        let value = value_number(value) as usize;
        let keep_old = |old: Option<usize>| old.unwrap_or(value);
        let old = self.tree.compute_or_insert(key_word(key), keep_old, &guard);
        old.map(|old| old.is_none()).map_err(|_| out_of_memory())
    }

    #[inline]
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let value = value_number(value) as usize;
        let done = self.tree.insert(key_word(key), value, &self.tree.pin());
        done.map(|_| ()).map_err(|_| out_of_memory())
    }

    #[inline]
    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        let value = self.tree.get(&key_word(key), &self.tree.pin());
        Ok(value.map(|value| visit(&(value as u64).to_le_bytes())).is_some())
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        Ok(self.tree.remove(&key_word(key), &self.tree.pin()).is_some())
    }

    #[inline]
    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        if order == Order::Descending {
            return Err("congee scans upwards only".into());
        }
        self.ascend(key_word(from), limit, |key, value| {
            visit(&(key as u64).to_be_bytes(), &(value as u64).to_le_bytes());
        });
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        let mut count = 0;
        self.ascend(0, u64::MAX, |_, _| count += 1);
        Ok(count)
    }
}

fn out_of_memory() -> Refusal {
    "congee could not allocate a node".into()
}
