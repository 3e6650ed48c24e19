//! Scans, forwards and backwards (paper 4.2.6).
//!
//! A cursor copies a batch of one leaf's live records while it is pinned, and lends them when it
//! is not. Where it goes on is decided by the leaf's range, not by the last key that it returned:
//! an empty leaf has a range too. If a batch did not exhaust the leaf, it goes on behind the
//! batch's last key, in whatever leaf that lies by then.

use std::cell::Cell;
use std::cmp::Ordering as Compare;
use std::ops::Bound;

use pando_index::{Cursor, Error, KeyRange, Order, Record};
use pando_pmem::Domain;

use crate::candidate::Candidate;
use crate::leaf::Leaf;
use crate::meta::Meta;
use crate::node::{Context, Probe, Side, compare_keys};
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

/// What a cursor copies into. A thread's last cursor leaves its room to the next: a short scan
/// would spend a tenth of its time on allocation.
#[derive(Debug, Default)]
struct Buffers {
    bytes: Vec<u8>,
    places: Vec<Place>,
    unsorted: Vec<Candidate>,
}

/// More room than this is not kept for a thread's next cursor, in bytes.
const KEPT_BYTES: usize = 64 * 1024;

thread_local! {
    static SPARE: Cell<Option<Buffers>> = const { Cell::new(None) };
}

impl Buffers {
    fn take() -> Self {
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        spare.unwrap_or_else(|| Self {
            bytes: Vec::with_capacity(FIRST_BYTES),
            places: Vec::with_capacity(FIRST_BATCH),
            unsorted: Vec::with_capacity(FIRST_BATCH * 4),
        })
    }

    fn keep(mut self) {
        if self.bytes.capacity() <= KEPT_BYTES {
            self.bytes.clear();
            self.places.clear();
            // A thread that is ending keeps nothing.
            let _ = SPARE.try_with(|spare| spare.set(Some(self)));
        }
    }
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
    /// The batch, and the unsorted records of the leaf at hand.
    buffers: Buffers,
    position: usize,
}

impl<D: Domain> Drop for TreeCursor<'_, D> {
    fn drop(&mut self) {
        std::mem::take(&mut self.buffers).keep();
    }
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
            buffers: Buffers::take(),
            position: 0,
        }
    }

    fn fill(&mut self) -> Result<(), Error> {
        self.buffers.bytes.clear();
        self.buffers.places.clear();
        self.position = 0;
        while self.buffers.places.is_empty() && self.next != Next::End {
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
            (Stop::GoOn, _) => match self.buffers.places.last() {
                Some(last) => Some((&self.buffers.bytes[last.at..last.at + last.key_bytes], false)),
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
    /// scan still goes, in its order. Whether records were deleted in place.
    fn gather_unsorted(
        &mut self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        probe: Option<Probe<'_>>,
    ) -> bool {
        let order = self.order;
        self.buffers.unsorted.clear();
        let any_dead =
            leaf.gather_unsorted(context, &mut self.buffers.unsorted, |candidate| match probe {
                None => true,
                Some(probe) => {
                    let found = candidate.compare_probe(context, leaf, probe);
                    found
                        != if order == Order::Ascending { Compare::Less } else { Compare::Greater }
                }
            });
        if order == Order::Descending {
            self.buffers.unsorted.reverse();
        }
        any_dead
    }

    fn copy_ascending(
        &mut self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        probe: Option<Probe<'_>>,
    ) -> Stop {
        let mut slot = probe.map_or(0, |probe| leaf.sorted_position(context, probe));
        leaf.prefetch_from(context, slot);
        let any_dead = self.gather_unsorted(context, leaf, probe);
        let mut newer = 0;
        loop {
            let sorted =
                (slot < leaf.sorted()).then(|| leaf.sorted_candidate(context, slot, any_dead));
            let first = self.buffers.unsorted.get(newer).copied();
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
            if slot < leaf.sorted() && leaf.has_key(context, leaf.sorted_meta(context, slot), probe)
            {
                slot += 1;
            }
        }
        let any_dead = self.gather_unsorted(context, leaf, probe);
        let mut newer = 0;
        loop {
            let sorted =
                slot.checked_sub(1).map(|slot| leaf.sorted_candidate(context, slot, any_dead));
            let first = self.buffers.unsorted.get(newer).copied();
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
        let at = self.buffers.bytes.len();
        let key_bytes = meta.key_bytes() as usize;
        let value_bytes = if meta.is_pointer() {
            // If it was superseded or deleted since its metadata was read, what is there now is
            // found by looking again.
            let Some(value) = leaf.value(context, meta) else { return Some(Stop::GoOn) };
            self.buffers.bytes.extend_from_slice(leaf.key(context, meta));
            self.buffers.bytes.extend_from_slice(value);
            value.len()
        } else {
            // Key and value stand side by side.
            let record = context.bytes(leaf.node.off + meta.offset(), meta.record_bytes());
            self.buffers.bytes.extend_from_slice(record);
            record.len() - key_bytes
        };
        self.buffers.places.push(Place { at, key_bytes, value_bytes });
        (self.buffers.places.len() >= self.batch).then_some(Stop::GoOn)
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
        if self.position == self.buffers.places.len() {
            self.fill()?;
        }
        let Some(place) = self.buffers.places.get(self.position) else { return Ok(None) };
        self.position += 1;
        let (key, value) = self.buffers.bytes[place.at..].split_at(place.key_bytes);
        Ok(Some((key, &value[..place.value_bytes])))
    }
}
