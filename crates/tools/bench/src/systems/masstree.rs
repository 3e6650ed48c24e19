//! The peer `masstree`: crate masstree 0.9, a trie of B+-trees after the paper of that name.
//!
//! Of the crates of that name on crates.io this one is maintained and complete (deletes, scans
//! both ways). Settings: `MassTree` for 8-byte values, which keeps them in the leaf, and
//! `MassTree15` for longer ones, which boxes them; reads and scans by reference, and the scans
//! by whole leaves that the documentation calls the fastest. Each operation takes a guard of its
//! own, as a user's single operation would. The feature `mimalloc` is off: it would change the
//! allocator of every system. Keys are byte strings of at most 256 bytes in every shape.
//!
//! There is no insertion of new keys only: `insert_new` looks first and then inserts, and says
//! `false` too if the insertion found the key after all (in which case the value is replaced). The
//! threads of this harness insert different keys.
//!
//! In 0.9.5, a scan downwards from an absent key of more than eight bytes leaves a record out. With
//! `aaaaaaaa-1` and `bbbbbbbb-9` in the tree, one from `cccccccc-0` returns only the first: the
//! bytes after the eighth are compared although the first eight differ. So a scan downwards begins
//! at the greatest key with those eight bytes, and skips the records above its start.
//!
//! Rarely, after several threads have written and deleted, a scan downwards from a key in the
//! middle gives no record at all, and gives none again until the tree changes. One from the end of
//! the tree is right. So a scan downwards that gave none is repeated from the end.
//!
//! The crate keeps an approximate count of records; the count here is a scan, so that it is exact.

use ::masstree::{MassTree, MassTree15, RangeBound};

use super::slots::value_number;
use crate::record::MAX_KEY_BYTES;
use crate::system::{Order, Refusal, Scan, System};

/// Bytes of a key that the tree compares at once.
const SLICE_BYTES: usize = 8;

/// Where a scan downwards from `from` begins; see the top of this file.
struct Top([u8; MAX_KEY_BYTES]);

impl Top {
    fn new(from: &[u8]) -> Self {
        let mut top = [0xFF; MAX_KEY_BYTES];
        let kept = from.len().min(SLICE_BYTES);
        top[..kept].copy_from_slice(&from[..kept]);
        Self(top)
    }

    fn bound<'key>(&'key self, from: &'key [u8]) -> RangeBound<'key> {
        RangeBound::Included(if from.len() <= SLICE_BYTES { from } else { &self.0 })
    }
}

/// A tree as a system. The arguments are its type, the functions that make a value of bytes and
/// lend its bytes, and those that read a value and scan upwards and downwards. The last one is the
/// type of a value that a scan returns.
macro_rules! system {
    (
        $(#[$about:meta])*
        $name:ident($tree:ident<$value:ty>), $made:expr, $lent:expr,
        $get:ident, $scan_up:ident, $scan_down:ident, $shown:ty
    ) => {
        $(#[$about])*
        pub struct $name {
            tree: $tree<$value>,
        }

        impl Default for $name {
            fn default() -> Self {
                Self { tree: $tree::new() }
            }
        }

        impl System for $name {
            #[inline]
            fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
                let guard = self.tree.guard();
                Ok(self.tree.$get(key, &guard).is_none()
                    && self.tree.insert_with_guard(key, $made(value), &guard).is_none())
            }

            #[inline]
            fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
                self.tree.insert_with_guard(key, $made(value), &self.tree.guard());
                Ok(())
            }

            #[inline]
            fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
                let guard = self.tree.guard();
                Ok(self.tree.$get(key, &guard).map(|value| visit($lent(&value).as_ref())).is_some())
            }

            #[inline]
            fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
                Ok(self.tree.remove_with_guard(key, &self.tree.guard())?.is_some())
            }

            #[inline]
            fn scan(
                &self,
                scan: Scan<'_>,
                mut visit: impl FnMut(&[u8], &[u8]),
            ) -> Result<(), Refusal> {
                let Scan { from, limit, order } = scan;
                if limit == 0 {
                    return Ok(());
                }
                let guard = self.tree.guard();
                let mut left = limit;
                #[allow(clippy::borrowed_box, reason = "what the crate hands out")]
                let mut show = |key: &[u8], value: $shown| {
                    if order == Order::Descending && key > from {
                        return true;
                    }
                    visit(key, $lent(&value).as_ref());
                    left -= 1;
                    left > 0
                };
                let unbounded = RangeBound::Unbounded;
                match order {
                    Order::Ascending => {
                        self.tree.$scan_up(RangeBound::Included(from), unbounded, show, &guard);
                    }
                    Order::Descending => {
                        let top = Top::new(from);
                        let top = top.bound(from);
                        if self.tree.$scan_down(unbounded, top, &mut show, &guard) == 0 {
                            self.tree.$scan_down(unbounded, unbounded, &mut show, &guard);
                        }
                    }
                }
                Ok(())
            }

            fn count(&self) -> Result<u64, Refusal> {
                let guard = self.tree.guard();
                let all = RangeBound::Unbounded;
                Ok(self.tree.$scan_up(all, all, |_, _| true, &guard) as u64)
            }
        }
    };
}

system!(
    /// Values of eight bytes, kept in the leaves.
    Words(MassTree<u64>), value_number, |value: &u64| value.to_le_bytes(),
    get_with_guard, scan_intra_leaf_batch, scan_rev_batch, u64
);

system!(
    /// Values of any length, boxed.
    Boxes(MassTree15<Box<[u8]>>), Box::from, |value| value,
    get_ref, scan_intra_leaf_batch_ref, scan_rev_batch_ref, &Box<[u8]>
);
