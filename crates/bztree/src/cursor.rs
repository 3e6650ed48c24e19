//! Scans, forwards and backwards (paper 4.2.6).
//!
//! A cursor copies a batch of one leaf's live records while it is pinned, and lends them when it
//! is not. Where it goes on is decided by the leaf's range, not by the last key that it returned:
//! an empty leaf has a range too. If a batch did not exhaust the leaf, it goes on behind the
//! batch's last key, in whatever leaf that lies by then.

use std::ops::Bound;

use pando_index::{Cursor, Error, KeyRange, Order, Record};
use pando_pmem::Domain;

use crate::build::LiveRecord;
use crate::node::{Context, Leaf, Probe, Side};
use crate::tree::BzTree;

/// Records of the first batch: short scans copy little. Later batches double up to whole leaves.
const FIRST_BATCH: usize = 16;

/// From where the next batch is to come.
#[derive(Debug)]
enum Next {
    /// Nothing is left.
    End,
    /// From the first or last leaf on.
    Edge,
    /// Forwards: from this key on. Backwards: from right before this key, or from the key itself
    /// if it is included.
    Key { key: Vec<u8>, included: bool },
}

/// Where one copied record stands in the batch's bytes.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    key_bytes: usize,
    value_bytes: usize,
}

/// A scan of a tree.
#[derive(Debug)]
pub(crate) struct TreeCursor<'index, D: Domain> {
    tree: &'index BzTree<D>,
    range: KeyRange,
    order: Order,
    next: Next,
    batch: usize,
    bytes: Vec<u8>,
    places: Vec<Place>,
    position: usize,
}

impl<'index, D: Domain> TreeCursor<'index, D> {
    pub fn new(tree: &'index BzTree<D>, range: KeyRange, order: Order) -> Self {
        let start = match order {
            Order::Ascending => &range.low,
            Order::Descending => &range.high,
        };
        let next = match start {
            Bound::Unbounded => Next::Edge,
            Bound::Included(key) => Next::Key { key: key.clone(), included: true },
            Bound::Excluded(key) => Next::Key { key: key.clone(), included: false },
        };
        Self {
            tree,
            range,
            order,
            next,
            batch: FIRST_BATCH,
            bytes: Vec::new(),
            places: Vec::new(),
            position: 0,
        }
    }

    fn fill(&mut self) -> Result<(), Error> {
        self.bytes.clear();
        self.places.clear();
        self.position = 0;
        while self.places.is_empty() && !matches!(self.next, Next::End) {
            let tree = self.tree;
            let guard = tree.pin()?;
            self.fill_from_leaf(tree.context(&guard));
        }
        Ok(())
    }

    fn fill_from_leaf(&mut self, context: Context<'_, '_, D>) {
        let next = std::mem::replace(&mut self.next, Next::End);
        let (probe, side) = match (&next, self.order) {
            (Next::Key { key, included }, Order::Descending) if !included => {
                (Some(Probe::new(key)), Side::Before)
            }
            (Next::Key { key, .. }, _) => (Some(Probe::new(key)), Side::Holding),
            (_, Order::Ascending) => (None, Side::Holding),
            (_, Order::Descending) => (None, Side::Before),
        };
        let (leaf, fence) = self.tree.find_fenced(context, probe, side);
        let (exhausted, out_of_range) = match self.order {
            Order::Ascending => self.copy_ascending(context, &leaf, &next),
            Order::Descending => self.copy_descending(context, &leaf, &next),
        };
        self.batch = self.batch.saturating_mul(2);
        self.next = if out_of_range {
            Next::End
        } else if exhausted {
            match (self.order, fence.low, fence.high) {
                (Order::Ascending, _, Some(high)) => {
                    Next::Key { key: high.to_vec(), included: true }
                }
                (Order::Descending, Some(low), _) => {
                    Next::Key { key: low.to_vec(), included: false }
                }
                _ => Next::End,
            }
        } else {
            match self.places.last() {
                Some(last) => {
                    let key = self.bytes[last.at..last.at + last.key_bytes].to_vec();
                    Next::Key { key, included: false }
                }
                // A value vanished under the only record of the batch: look again.
                None => next,
            }
        };
    }

    /// Whether the leaf is exhausted, and whether the range is.
    fn copy_ascending(
        &mut self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        next: &Next,
    ) -> (bool, bool) {
        let unsorted = leaf.newest_unsorted(context);
        let (mut slot, mut newer) = match next {
            Next::Key { key, .. } => {
                let from = unsorted.partition_point(|record| record.key < key.as_slice());
                (leaf.sorted_position(context, Probe::new(key)), from)
            }
            _ => (0, 0),
        };
        let after = match next {
            Next::Key { key, included: false } => Some(key.as_slice()),
            _ => None,
        };
        loop {
            let sorted = (slot < leaf.sorted()).then(|| record_at(context, leaf, slot));
            let record = match (sorted, unsorted.get(newer)) {
                (None, None) => return (true, false),
                (Some(sorted), None) => {
                    slot += 1;
                    sorted
                }
                (Some(sorted), Some(first)) if sorted.key < first.key => {
                    slot += 1;
                    sorted
                }
                (sorted, Some(first)) => {
                    newer += 1;
                    slot += u64::from(sorted.is_some_and(|sorted| sorted.key == first.key));
                    *first
                }
            };
            if let Some(stop) = self.take(context, leaf, record, after) {
                return stop;
            }
        }
    }

    fn copy_descending(
        &mut self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        next: &Next,
    ) -> (bool, bool) {
        let unsorted = leaf.newest_unsorted(context);
        let (mut slot, mut newer, before) = match next {
            Next::Key { key, included } => {
                let wanted =
                    |found: &[u8]| if *included { found <= key.as_slice() } else { found < key };
                let mut slot = leaf.sorted_position(context, Probe::new(key));
                if slot < leaf.sorted() && wanted(record_at(context, leaf, slot).key) {
                    slot += 1;
                }
                let newer = unsorted.partition_point(|record| wanted(record.key));
                (slot, newer, (!included).then_some(key.as_slice()))
            }
            _ => (leaf.sorted(), unsorted.len(), None),
        };
        loop {
            let sorted = slot.checked_sub(1).map(|slot| record_at(context, leaf, slot));
            let first = newer.checked_sub(1).map(|index| unsorted[index]);
            let record = match (sorted, first) {
                (None, None) => return (true, false),
                (Some(sorted), None) => {
                    slot -= 1;
                    sorted
                }
                (Some(sorted), Some(first)) if sorted.key > first.key => {
                    slot -= 1;
                    sorted
                }
                (sorted, Some(first)) => {
                    newer -= 1;
                    slot -= u64::from(sorted.is_some_and(|sorted| sorted.key == first.key));
                    first
                }
            };
            if let Some(stop) = self.take(context, leaf, record, before) {
                return stop;
            }
        }
    }

    /// Copies a record into the batch if it counts; says how to stop if that is due.
    fn take(
        &mut self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        record: LiveRecord<'_>,
        excluded: Option<&[u8]>,
    ) -> Option<(bool, bool)> {
        if excluded == Some(record.key) {
            return None;
        }
        let beyond = match self.order {
            Order::Ascending => match &self.range.high {
                Bound::Included(high) => record.key > high.as_slice(),
                Bound::Excluded(high) => record.key >= high.as_slice(),
                Bound::Unbounded => false,
            },
            Order::Descending => match &self.range.low {
                Bound::Included(low) => record.key < low.as_slice(),
                Bound::Excluded(low) => record.key <= low.as_slice(),
                Bound::Unbounded => false,
            },
        };
        if beyond {
            return Some((true, true));
        }
        if !record.meta.is_visible() {
            return None;
        }
        let Some(value) = leaf.value(context, record.meta) else {
            // Superseded or deleted since its metadata was read: what is there now is found by
            // looking again, from behind what was copied.
            return Some((false, false));
        };
        let at = self.bytes.len();
        self.bytes.extend_from_slice(record.key);
        self.bytes.extend_from_slice(value);
        let place = Place { at, key_bytes: record.key.len(), value_bytes: value.len() };
        self.places.push(place);
        (self.places.len() >= self.batch).then_some((false, false))
    }
}

fn record_at<'op, D: Domain>(
    context: Context<'op, '_, D>,
    leaf: &Leaf,
    slot: u64,
) -> LiveRecord<'op> {
    let meta = leaf.meta(context, slot);
    LiveRecord { key: leaf.key(context, meta), meta, off: leaf.node.off + meta.offset() }
}

impl<D: Domain> Cursor for TreeCursor<'_, D> {
    fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        if self.position == self.places.len() {
            self.fill()?;
        }
        let Some(place) = self.places.get(self.position) else { return Ok(None) };
        self.position += 1;
        let (key, value) = self.bytes[place.at..].split_at(place.key_bytes);
        Ok(Some((key, &value[..place.value_bytes])))
    }
}
