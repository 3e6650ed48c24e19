//! The peer `scc`: `TreeIndex` of crate scc 3.8, a B+-tree with lock-free reads.
//!
//! Settings: it has none. The crate's documentation leads to `peek_with` for reads and to the
//! `_sync` methods for writes outside of async code, and both are what is used here. A value is
//! immutable once it is in the tree: `upsert_sync` links a new entry and unlinks the old one.
//! Eight-byte keys and values are `u64`; longer ones are boxed slices.
//!
//! `TreeIndex::len` walks all entries, so the count is a true one.

use std::ops::Bound::{Included, Unbounded};

use scc::{Guard, TreeIndex};

use super::slots::{KeySlot, ValueSlot};
use crate::system::{Order, Refusal, Scan, System};

/// `TreeIndex` with keys and values in the forms `K` and `V`.
#[derive(Default)]
pub struct Tree<K, V> {
    tree: TreeIndex<K, V>,
}

impl<K: KeySlot, V: ValueSlot> System for Tree<K, V> {
    #[inline]
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        Ok(self.tree.insert_sync(K::keep(key), V::keep(value)).is_ok())
    }

    #[inline]
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.tree.upsert_sync(K::keep(key), V::keep(value));
        Ok(())
    }

    #[inline]
    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        Ok(K::ask(key, |key| self.tree.peek_with(key, |_, value| value.show(visit))).is_some())
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        Ok(K::ask(key, |key| self.tree.remove_sync(key)))
    }

    #[inline]
    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        let guard = Guard::new();
        let mut show = |key: &K, value: &V| key.show(|key| value.show(|value| visit(key, value)));
        // From a key below all others, scc 3.8 looks for the first record leaf by leaf from the
        // other end, in a time that grows with the square of the leaves.
        let is_least = from.iter().all(|&byte| byte == 0);
        K::ask(from, |from| match order {
            Order::Ascending => {
                let low = if is_least { Unbounded } else { Included(from) };
                let mut records = self.tree.range::<K::Query, _>((low, Unbounded), &guard);
                for _ in 0..limit {
                    let Some((key, value)) = records.next() else { break };
                    show(key, value);
                }
            }
            Order::Descending => {
                let mut records =
                    self.tree.range::<K::Query, _>((Unbounded, Included(from)), &guard);
                for _ in 0..limit {
                    let Some((key, value)) = records.next_back() else { break };
                    show(key, value);
                }
            }
        });
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.tree.len() as u64)
    }
}
