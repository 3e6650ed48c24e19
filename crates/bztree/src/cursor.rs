//! Scans, forwards and backwards (paper 4.2.6).
//!
//! A cursor copies a batch of one leaf's live records while it is pinned, and lends them when it
//! is not. Where it goes on is decided by the leaf's range, not by the last key that it returned:
//! an empty leaf has a range too. If a batch did not exhaust the leaf, it goes on behind the
//! batch's last key, in whatever leaf that lies by then.

use std::cmp::Ordering as Compare;
use std::ops::Bound;

use pando_index::{Cursor, Error, KeyRange, Order, Record};
use pando_pmem::Domain;

use crate::candidate::Candidate;
use crate::layout::Meta;
use crate::node::{Context, Leaf, Probe, Side, compare_keys};
use crate::tree::BzTree;

/// Records of the first batch: short scans copy little. Later batches double up to whole leaves.
const FIRST_BATCH: usize = 12;
/// Room for the first batch, in bytes; more is made as it is needed.
const FIRST_BYTES: usize = 512;

/// From where the next batch is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing is left.
    End,
    /// From the first or last leaf on.
    Edge,
    /// Forwards: from the cursor's key on. Backwards: from right before it. The key itself only
    /// if it is included.
    Key { included: bool },
}

/// Where one copied record stands in the batch's bytes.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    key_bytes: usize,
    value_bytes: usize,
}

/// How the copying of a leaf ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The leaf has no more records.
    LeafDone,
    /// The range has no more records.
    RangeDone,
    /// The batch is full, or what was read is out of date: go on behind what was copied.
    GoOn,
}

/// A scan of a tree.
#[derive(Debug)]
pub(crate) struct TreeCursor<'index, D: Domain> {
    tree: &'index BzTree<D>,
    range: KeyRange,
    order: Order,
    next: Next,
    /// The key of [`Next::Key`].
    key: Vec<u8>,
    batch: usize,
    bytes: Vec<u8>,
    places: Vec<Place>,
    position: usize,
    /// Unsorted records of the leaf at hand; the room is kept from leaf to leaf.
    unsorted: Vec<Candidate>,
}

impl<'index, D: Domain> TreeCursor<'index, D> {
    pub fn new(tree: &'index BzTree<D>, mut range: KeyRange, order: Order) -> Self {
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
        Self {
            tree,
            range,
            order,
            next,
            key,
            batch: FIRST_BATCH,
            bytes: Vec::with_capacity(FIRST_BYTES),
            places: Vec::with_capacity(FIRST_BATCH),
            position: 0,
            unsorted: Vec::with_capacity(FIRST_BATCH * 2),
        }
    }

    fn fill(&mut self) -> Result<(), Error> {
        self.bytes.clear();
        self.places.clear();
        self.position = 0;
        while self.places.is_empty() && self.next != Next::End {
            let tree = self.tree;
            let guard = tree.pin()?;
            self.fill_from_leaf(tree.context(&guard));
        }
        Ok(())
    }

    fn fill_from_leaf(&mut self, context: Context<'_, '_, D>) {
        let key = std::mem::take(&mut self.key);
        let (probe, side) = match (self.next, self.order) {
            (Next::Key { included: false }, Order::Descending) => {
                (Some(Probe::new(&key)), Side::Before)
            }
            (Next::Key { .. }, _) => (Some(Probe::new(&key)), Side::Holding),
            (_, Order::Ascending) => (None, Side::Holding),
            (_, Order::Descending) => (None, Side::Before),
        };
        let (leaf, fence) = self.tree.find_fenced(context, probe, side);
        let stop = match self.order {
            Order::Ascending => self.copy_ascending(context, &leaf, probe),
            Order::Descending => self.copy_descending(context, &leaf, probe),
        };
        self.batch = self.batch.saturating_mul(2);
        self.key = key;
        let next = match (stop, self.order) {
            (Stop::RangeDone, _) => None,
            (Stop::LeafDone, Order::Ascending) => fence.high.map(|high| (high, true)),
            (Stop::LeafDone, Order::Descending) => fence.low.map(|low| (low, false)),
            (Stop::GoOn, _) => match self.places.last() {
                Some(last) => Some((&self.bytes[last.at..last.at + last.key_bytes], false)),
                // Nothing was copied before what was out of date: the same place again.
                None => return,
            },
        };
        self.next = match next {
            None => Next::End,
            Some((key, included)) => {
                self.key.clear();
                self.key.extend_from_slice(key);
                Next::Key { included }
            }
        };
    }

    /// Gathers the newest settled record of each key among the unsorted ones that lie where the
    /// scan still goes, in its order.
    fn gather_unsorted(
        &mut self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        probe: Option<Probe<'_>>,
    ) {
        let order = self.order;
        self.unsorted.clear();
        leaf.gather_unsorted(context, &mut self.unsorted, |candidate| match probe {
            None => true,
            Some(probe) => {
                let found = candidate.compare_probe(context, leaf, probe);
                found != if order == Order::Ascending { Compare::Less } else { Compare::Greater }
            }
        });
        if order == Order::Descending {
            self.unsorted.reverse();
        }
    }

    fn copy_ascending(
        &mut self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        probe: Option<Probe<'_>>,
    ) -> Stop {
        let mut slot = probe.map_or(0, |probe| leaf.sorted_position(context, probe));
        self.gather_unsorted(context, leaf, probe);
        let mut newer = 0;
        loop {
            let sorted = (slot < leaf.sorted())
                .then(|| Candidate::new(context, leaf, leaf.meta(context, slot)));
            let first = self.unsorted.get(newer).copied();
            let taken = match (sorted, first) {
                (None, None) => return Stop::LeafDone,
                (Some(sorted), None) => (sorted, 1, 0),
                (None, Some(first)) => (first, 0, 1),
                (Some(sorted), Some(first)) => match sorted.compare(context, leaf, first) {
                    Compare::Less => (sorted, 1, 0),
                    Compare::Equal => (first, 1, 1),
                    Compare::Greater => (first, 0, 1),
                },
            };
            slot += taken.1;
            newer += taken.2;
            if let Some(stop) = self.take(context, leaf, taken.0, probe) {
                return stop;
            }
        }
    }

    fn copy_descending(
        &mut self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        probe: Option<Probe<'_>>,
    ) -> Stop {
        let mut slot = leaf.sorted();
        if let Some(probe) = probe {
            slot = leaf.sorted_position(context, probe);
            // The position is before the key itself, if it is there.
            if slot < leaf.sorted() && leaf.has_key(context, leaf.meta(context, slot), probe) {
                slot += 1;
            }
        }
        self.gather_unsorted(context, leaf, probe);
        let mut newer = 0;
        loop {
            let sorted = slot
                .checked_sub(1)
                .map(|slot| Candidate::new(context, leaf, leaf.meta(context, slot)));
            let first = self.unsorted.get(newer).copied();
            let taken = match (sorted, first) {
                (None, None) => return Stop::LeafDone,
                (Some(sorted), None) => (sorted, 1, 0),
                (None, Some(first)) => (first, 0, 1),
                (Some(sorted), Some(first)) => match sorted.compare(context, leaf, first) {
                    Compare::Greater => (sorted, 1, 0),
                    Compare::Equal => (first, 1, 1),
                    Compare::Less => (first, 0, 1),
                },
            };
            slot -= taken.1;
            newer += taken.2;
            if let Some(stop) = self.take(context, leaf, taken.0, probe) {
                return stop;
            }
        }
    }

    /// Copies a record into the batch if it counts; says how to stop if that is due.
    #[inline(always)]
    fn take(
        &mut self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        candidate: Candidate,
        probe: Option<Probe<'_>>,
    ) -> Option<Stop> {
        let meta = candidate.meta;
        if self.next == (Next::Key { included: false })
            && probe.is_some_and(|probe| candidate.compare_probe(context, leaf, probe).is_eq())
        {
            return None;
        }
        if self.is_out_of_range(context, leaf, meta) {
            return Some(Stop::RangeDone);
        }
        if !meta.is_visible() {
            return None;
        }
        let at = self.bytes.len();
        let key_bytes = meta.key_bytes() as usize;
        let value_bytes = if meta.is_pointer() {
            // If it was superseded or deleted since its metadata was read, what is there now is
            // found by looking again.
            let Some(value) = leaf.value(context, meta) else { return Some(Stop::GoOn) };
            self.bytes.extend_from_slice(leaf.key(context, meta));
            self.bytes.extend_from_slice(value);
            value.len()
        } else {
            // Key and value stand side by side.
            let record = context.bytes(leaf.node.off + meta.offset(), meta.record_bytes());
            self.bytes.extend_from_slice(record);
            record.len() - key_bytes
        };
        self.places.push(Place { at, key_bytes, value_bytes });
        (self.places.len() >= self.batch).then_some(Stop::GoOn)
    }

    #[inline(always)]
    fn is_out_of_range(&self, context: Context<'_, '_, D>, leaf: &Leaf, meta: Meta) -> bool {
        let (end, beyond) = match self.order {
            Order::Ascending => (&self.range.high, Compare::Greater),
            Order::Descending => (&self.range.low, Compare::Less),
        };
        match end {
            Bound::Unbounded => false,
            Bound::Included(end) => compare_keys(leaf.key(context, meta), end) == beyond,
            Bound::Excluded(end) => {
                let found = compare_keys(leaf.key(context, meta), end);
                found == beyond || found.is_eq()
            }
        }
    }
}

impl<D: Domain> Cursor for TreeCursor<'_, D> {
    #[inline]
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
