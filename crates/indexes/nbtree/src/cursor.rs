//! Scans, forwards and backwards, which the paper lacks.
//!
//! A cursor takes the slots of one leaf that lie in its range while it is pinned, sorts them,
//! copies their records, and lends these when it is not. Of long values it copies no more at once
//! than about [`FULL_BYTES`], and comes back. Where it goes on is decided by the leaf's range, not
//! by the last key that it returned:
//!
//! * Forwards: at the separator to the right of the leaf, as the descent found it. A leaf that is
//!   open has at least that range, since its range only grows, to the right, when its neighbour is
//!   dropped. What lies beyond is left to the next step, which may come to the same leaf.
//! * Backwards: right below the leaf's lowest key, which never changes.
//!
//! The leaf was not replaced when it was found, during the scan. Its bitmap is read once, and then
//! each of its value words.
//!
//! * A record that is there throughout has its slot in that bitmap, and its word holds it whenever
//!   it is read: an update changes the word in place, or leaves it closed, with the value before,
//!   in a leaf that is replaced meanwhile.
//! * What a word says was true at that moment, or, of a closed one, when the leaf was found or
//!   later: no change of a closed word takes effect before the leaf's replacement is published.
//! * No key is there twice: of the slots of one bitmap all but one of a key are deleted for ever.
//!
//! So each record is one of an instant of the scan, and those of one leaf may be of different
//! instants. No step waits for another thread or begins again because of one, other than at a leaf
//! that is dropped while it is looked for.

use std::cmp::Ordering as Compare;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use pando_index::{Cursor, Error, KeyRange, Order, Record};
use pando_pmem::{Domain, Guard, mutant};
use pando_tree::batch::{FULL_BYTES, ThreadsBatch};
use pando_tree::checked::{damaged, sound};

use crate::layout::{Content, MAX_SLOTS, content, is_closed, key_at};
use crate::record;
use crate::separator::{Probe, Separator};
use crate::tree::{Found, NbTree};
use crate::volatile::inner::Side;
use crate::volatile::leaf::slots;
use crate::volatile::node::{Kind, LeafRef};

/// From where the next leaf's records are to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing is left.
    End,
    /// From the first or last leaf on.
    Edge,
    /// From the cursor's key on; the key itself only if it is included.
    Key { included: bool },
}

/// A slot with a record of the range.
#[derive(Clone, Copy, Debug)]
struct Taken {
    slice: u64,
    found: Found,
}

/// The slots of a leaf.
type AllTaken = ArrayVec<Taken, MAX_SLOTS>;

/// A scan of a tree.
#[derive(Debug)]
pub(crate) struct TreeCursor<'index, D: Domain> {
    tree: &'index NbTree<D>,
    range: KeyRange,
    order: Order,
    next: Next,
    /// The key of [`Next::Key`].
    key: Vec<u8>,
    batch: ThreadsBatch,
}

impl<'index, D: Domain> TreeCursor<'index, D> {
    pub fn new(tree: &'index NbTree<D>, mut range: KeyRange, order: Order) -> Self {
        // The end where the scan starts is not looked at again: its key serves as the first one.
        let start = match order {
            Order::Ascending => &mut range.low,
            Order::Descending => &mut range.high,
        };
        let (next, key) = match std::mem::replace(start, Bound::Unbounded) {
            Bound::Unbounded => (Next::Edge, Vec::new()),
            Bound::Included(key) => (Next::Key { included: true }, key),
            Bound::Excluded(key) => (Next::Key { included: false }, key),
        };
        Self { tree, range, order, next, key, batch: ThreadsBatch::default() }
    }

    fn fill(&mut self) -> Result<(), Error> {
        self.batch.clear();
        while self.batch.is_empty() && self.next != Next::End {
            let tree = self.tree;
            let guard = tree.pin()?;
            self.fill_from_leaf(&guard)?;
            sound(&guard)?;
        }
        Ok(())
    }

    /// Copies what one leaf has, and goes on behind it.
    fn fill_from_leaf(&mut self, guard: &Guard<'_, D>) -> Result<(), Error> {
        let key = std::mem::take(&mut self.key);
        let probe = (self.next != Next::Edge).then(|| Probe::new(&key));
        let side = match (self.next, self.order) {
            (Next::Key { included: false } | Next::Edge, Order::Descending) => Side::Below,
            _ => Side::Holding,
        };
        let Some((leaf, high)) = self.find(guard, probe.as_ref(), side) else {
            self.key = key;
            return Ok(());
        };
        let mut taken = self.take(guard, leaf, probe.as_ref(), high.as_ref());
        taken.sort_unstable_by(|left, right| {
            let compared = left.slice.cmp(&right.slice).then_with(|| {
                let (mut left_room, mut right_room) = ([0; 8], [0; 8]);
                let left = key_of(guard, left, &mut left_room);
                left.cmp(key_of(guard, right, &mut right_room))
            });
            if self.order == Order::Ascending { compared } else { compared.reverse() }
        });
        if !self.copy(guard, leaf, &taken) {
            self.key = self.batch.last_key().unwrap_or_default().to_vec();
            self.next = Next::Key { included: false };
            return Ok(());
        }
        let low = (!leaf.low.is_lowest()).then(|| leaf.low.clone());
        let (edge, included) = match self.order {
            Order::Ascending => (high, true),
            Order::Descending => (low, false),
        };
        self.next = match edge {
            None => Next::End,
            Some(edge) => {
                let mut room = [0; 8];
                self.key = edge.bytes(&mut room).to_vec();
                // Of a sound leaf the probe lies in its range, or right above.
                let advances = match (self.next, self.order) {
                    (Next::Key { .. }, Order::Ascending) => self.key > key,
                    (Next::Key { included: false }, Order::Descending) => self.key < key,
                    _ => true,
                };
                if !advances {
                    return Err(damaged(leaf.block_off, "a scan would not get past it"));
                }
                if self.is_over(&self.key) { Next::End } else { Next::Key { included } }
            }
        };
        Ok(())
    }

    /// Whether nothing from `key` on lies in the range.
    fn is_over(&self, key: &[u8]) -> bool {
        match (self.order, &self.range.high, &self.range.low) {
            (Order::Ascending, Bound::Included(high), _) => key > high.as_slice(),
            (Order::Ascending, Bound::Excluded(high), _) => key >= high.as_slice(),
            (Order::Descending, _, Bound::Included(low) | Bound::Excluded(low)) => {
                key <= low.as_slice()
            }
            _ => false,
        }
    }

    /// The leaf of the probe, or at the edge, and the separator to its right.
    fn find<'guard>(
        &self,
        guard: &'guard Guard<'_, D>,
        probe: Option<&Probe<'_>>,
        side: Side,
    ) -> Option<(LeafRef<'guard>, Option<Separator>)> {
        let tree = self.tree;
        let mut high = None;
        let mut node = tree.layers.root.slot().load(guard);
        let mut leaf = loop {
            match node.kind() {
                Kind::Inner(inner) => {
                    let index = match (probe, side) {
                        (Some(probe), _) => inner.index(probe, side),
                        (None, Side::Holding) => 0,
                        (None, Side::Below) => inner.len() - 1,
                    };
                    if index + 1 < inner.len() {
                        high = Some(inner.separator(index));
                    }
                    node = inner.slot(index).load(guard);
                }
                Kind::Leaf(leaf) => break leaf,
            }
        };
        while let Some(replacement) = leaf.replaced_by(guard) {
            tree.install(guard, leaf);
            let is_right = |right: &LeafRef<'_>| match probe.map(|probe| probe.compare(&right.low))
            {
                None => side == Side::Below,
                Some(Compare::Less) => false,
                Some(Compare::Equal) => side == Side::Holding,
                Some(Compare::Greater) => true,
            };
            // A leaf that was dropped has none.
            let left = replacement.left(guard)?;
            leaf = match replacement.right(guard) {
                Some(right) if is_right(&right) && !mutant!("nbtree-scan-of-the-left-half") => {
                    right
                }
                Some(right) => {
                    high = Some(right.low.clone());
                    left
                }
                None => left,
            };
        }
        Some((leaf, high))
    }

    /// Copies the records of the slots; whether all.
    fn copy(&mut self, guard: &Guard<'_, D>, leaf: LeafRef<'_>, taken: &[Taken]) -> bool {
        for (turn, taken) in taken.iter().enumerate() {
            if turn > 0 && self.batch.bytes() >= FULL_BYTES {
                return false;
            }
            let mut room = [0; 8];
            let key = key_of(guard, taken, &mut room);
            let tree = self.tree;
            self.batch.push_with(
                |bytes| bytes.extend_from_slice(key),
                |bytes| {
                    tree.lend(guard, leaf, taken.found, |value| bytes.extend_from_slice(value));
                },
            );
        }
        true
    }

    /// The slots of the leaf whose records lie in the range, from the probe on, and below `high`.
    fn take(
        &self,
        guard: &Guard<'_, D>,
        leaf: LeafRef<'_>,
        probe: Option<&Probe<'_>>,
        high: Option<&Separator>,
    ) -> AllTaken {
        let tree = self.tree;
        let mut all = AllTaken::new();
        let start_included = self.next == Next::Key { included: true };
        for slot in slots(leaf.control::<D>().bitmap()) {
            let word = tree.settled(guard, leaf, slot);
            if mutant!("nbtree-scan-passes-closed") && is_closed(word) {
                continue;
            }
            // Relaxed: stored before the slot was decided.
            let slice = guard.pool().word(leaf.block_off + key_at(slot)).load(Ordering::Relaxed);
            let eight = slice.to_be_bytes();
            let key = match content(word) {
                Content::Value => &eight[..],
                Content::Record(off) => record::parts(guard, off).0,
                Content::Deleted => {
                    tree.make_durable(guard, leaf, slot);
                    continue;
                }
                Content::Empty | Content::Damaged => continue,
            };
            let own = Probe { slice, bytes: key };
            let is_ahead = probe.is_none_or(|probe| {
                let compared = slice.cmp(&probe.slice).then_with(|| key.cmp(probe.bytes));
                match (compared, self.order) {
                    (Compare::Equal, _) => start_included,
                    (Compare::Greater, Order::Ascending) | (Compare::Less, Order::Descending) => {
                        true
                    }
                    _ => false,
                }
            });
            let is_below = high.is_none_or(|high| own.compare(high) == Compare::Less);
            // Backwards nothing is beyond: what lies above the leaf's range comes before.
            let is_here = is_ahead && (is_below || self.order == Order::Descending);
            if !is_here || !self.range.contains(key) {
                continue;
            }
            tree.make_durable(guard, leaf, slot);
            all.push(Taken { slice, found: Found { slot, word } });
        }
        all
    }
}

/// The key of a slot's record.
fn key_of<'all, D: Domain>(
    guard: &'all Guard<'_, D>,
    taken: &Taken,
    room: &'all mut [u8; 8],
) -> &'all [u8] {
    match content(taken.found.word) {
        Content::Record(off) => record::parts(guard, off).0,
        _ => {
            *room = taken.slice.to_be_bytes();
            room
        }
    }
}

impl<D: Domain> Cursor for TreeCursor<'_, D> {
    fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        if self.batch.is_used_up() {
            self.fill()?;
        }
        Ok(self.batch.lend())
    }
}

#[cfg(test)]
mod tests {
    use pando_index::RangeIndex;
    use pando_pmem::{CreateOptions, Pool, Volatile};
    use pando_tree::maps::Catalog;

    use super::*;
    use crate::NbTrees;

    #[test]
    fn a_batch_is_bounded_in_bytes() {
        let create = CreateOptions { max_bytes: 1 << 30, ..CreateOptions::default() };
        let pool = Pool::<Volatile>::anonymous(&create).expect("memory");
        let catalog = std::sync::Arc::new(Catalog::open(pool).expect("opens"));
        let tree = catalog
            .find_or_create_index::<NbTrees>("tree", crate::Options::default())
            .expect("a tree");
        let value = vec![7; FULL_BYTES];
        for number in 0..20_u8 {
            tree.insert(&[number], &value).expect("an insert");
        }
        for order in [Order::Ascending, Order::Descending] {
            let mut cursor = TreeCursor::new(&tree, KeyRange::all(), order);
            let mut records = 0;
            while let Some((key, found)) = cursor.next().expect("a record") {
                let number = if order == Order::Ascending { records } else { 19 - records };
                assert!(key == [number] && found == value, "{order:?}");
                assert!(cursor.batch.bytes() <= 2 * FULL_BYTES, "{}", cursor.batch.bytes());
                records += 1;
            }
            assert_eq!(records, 20, "{order:?}");
        }
    }
}
