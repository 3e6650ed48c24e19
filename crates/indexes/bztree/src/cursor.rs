//! Scans, forwards and backwards (paper 4.2.6).
//!
//! A cursor copies a batch of one leaf's live records while it is pinned, and lends them when it is
//! not. Where it goes on is decided by the leaf's range, not by the last key that it returned: an
//! empty leaf has a range too. If a batch did not exhaust the leaf, it goes on behind the batch's
//! last key, in whatever leaf that lies by then. Each record is one of an instant of the scan
//! (`leaf.rs`); those of one leaf may be of different instants.

use std::cell::Cell;
use std::cmp::Ordering as Compare;
use std::ops::{Bound, Range};

use pando_index::{Cursor, Error, KeyRange, Order, Record};
use pando_pmem::{Domain, mutant};
use pando_tree::batch::Batch;
use pando_tree::checked::{Steps, damaged, sound};

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

/// What a cursor copies into. A thread's last cursor leaves its room to the next: a short scan
/// would spend a tenth of its time on allocation.
#[derive(Debug, Default)]
struct Buffers {
    batch: Batch,
    slots: Vec<Meta>,
    unsorted: Vec<Candidate>,
}

thread_local! {
    static SPARE: Cell<Option<Buffers>> = const { Cell::new(None) };
}

impl Buffers {
    fn take() -> Self {
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        spare.unwrap_or_else(|| Self {
            batch: Batch::with_capacity(FIRST_BATCH, FIRST_BYTES),
            slots: Vec::with_capacity(FIRST_BATCH * 4),
            unsorted: Vec::with_capacity(FIRST_BATCH * 4),
        })
    }

    fn keep(mut self) {
        if self.batch.is_worth_keeping() {
            self.batch.clear();
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
    /// Records of the next batch.
    most: usize,
    /// The batch, and the unsorted records of the leaf at hand.
    buffers: Buffers,
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
        Self { tree, range, order, next, key, most: FIRST_BATCH, buffers: Buffers::take() }
    }

    fn fill(&mut self) -> Result<(), Error> {
        self.buffers.batch.clear();
        let mut steps = Steps::of_attempts();
        while self.buffers.batch.is_empty() && self.next != Next::End {
            let tree = self.tree;
            let guard = tree.pin()?;
            let was = self.next;
            self.fill_from_leaf(tree.context(&guard))?;
            if was == self.next {
                steps.take(&guard, tree.root_off())?;
            }
        }
        Ok(())
    }

    fn fill_from_leaf(&mut self, context: Context<'_, '_, D>) -> Result<(), Error> {
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
        let is_beyond = match self.order {
            Order::Ascending => fence.high.is_none_or(|high| *high > *key),
            // The leaf that holds the key may begin with it; the next one then is the one before.
            Order::Descending => {
                let holds = side == Side::Holding;
                fence.low.is_none_or(|low| *low < *key || (holds && *low == *key))
            }
        };
        // Else a damaged tree would be walked in circles.
        if probe.is_some() && !is_beyond {
            return Err(damaged(leaf.node.off, "it is led to by a range that has ended"));
        }
        if !leaf.is_sound(context) {
            context.guard.note_damage(leaf.node.off);
        }
        sound(context.guard)?;
        let stop = self.copy_leaf(context, &leaf, probe);
        if let Err(error) = sound(context.guard) {
            self.buffers.batch.clear();
            return Err(error);
        }
        self.most = self.most.saturating_mul(2);
        self.key = key;
        let next = match (stop, self.order) {
            (Stop::RangeDone, _) => None,
            (Stop::LeafDone, Order::Ascending) if mutant!("lost-scan-bound") => None,
            (Stop::LeafDone, Order::Ascending) => fence.high.map(|high| (high, true)),
            (Stop::LeafDone, Order::Descending) => fence.low.map(|low| (low, false)),
            (Stop::GoOn, _) => match self.buffers.batch.last_key() {
                Some(last) => Some((last, false)),
                // Nothing was copied before what was out of date: the same place again.
                None => return Ok(()),
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
        Ok(())
    }

    /// Whether a key that compares like this with the one where the scan goes on is yet to come.
    #[inline(always)]
    fn is_ahead(&self, found: Compare) -> bool {
        match found {
            Compare::Equal => self.next == (Next::Key { included: true }),
            Compare::Greater => self.order == Order::Ascending,
            Compare::Less => self.order == Order::Descending,
        }
    }

    /// Copies records of the leaf into the batch, in the order of the scan: the sorted ones in
    /// runs, between those of slots.
    fn copy_leaf(
        &mut self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        probe: Option<Probe<'_>>,
    ) -> Stop {
        leaf.prefetch_unsorted(context);
        let mut left = self.sorted_ahead(context, leaf, probe);
        let mut unsorted = std::mem::take(&mut self.buffers.unsorted);
        unsorted.clear();
        leaf.read_slots(context, &mut self.buffers.slots);
        let slots = &self.buffers.slots;
        let any_dead = leaf.gather_unsorted(context, slots, &mut unsorted, |candidate| {
            probe.is_none_or(|probe| self.is_ahead(candidate.compare_probe(context, leaf, probe)))
        });
        if self.order == Order::Descending {
            unsorted.reverse();
        }
        let stop = self.merge(context, leaf, &mut left, &unsorted, any_dead);
        self.buffers.unsorted = unsorted;
        stop
    }

    /// The sorted records that are yet to come.
    #[inline(always)]
    fn sorted_ahead(
        &self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        probe: Option<Probe<'_>>,
    ) -> Range<u64> {
        let Some(probe) = probe else { return 0..leaf.sorted() };
        let first = leaf.sorted_position(context, probe);
        if self.order == Order::Ascending {
            leaf.prefetch_from(context, first);
        }
        let is_there =
            first < leaf.sorted() && leaf.has_key(context, leaf.sorted_meta(context, first), probe);
        let included = self.next == (Next::Key { included: true });
        match self.order {
            Order::Ascending => first + u64::from(is_there && !included)..leaf.sorted(),
            Order::Descending => 0..first + u64::from(is_there && included),
        }
    }

    #[inline(always)]
    fn merge(
        &mut self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        left: &mut Range<u64>,
        unsorted: &[Candidate],
        any_dead: bool,
    ) -> Stop {
        let mut newer = 0;
        loop {
            let first = unsorted.get(newer).copied();
            // No more than the batch takes.
            let room = (self.most - self.buffers.batch.len()) as u64;
            let (run, is_cut) = match self.order {
                Order::Ascending => {
                    let near = left.start..left.end.min(left.start.saturating_add(room));
                    let (position, equal) = leaf.position_among(context, first, near.clone());
                    let run = left.start..position;
                    left.start = position + u64::from(equal);
                    (run, position == near.end && near.end < left.end)
                }
                Order::Descending => {
                    let near = left.start.max(left.end.saturating_sub(room))..left.end;
                    let (position, equal) = match first {
                        Some(_) => leaf.position_among(context, first, near.clone()),
                        None => (near.start, false),
                    };
                    let run = position + u64::from(equal)..left.end;
                    left.end = position;
                    (run, position == near.start && near.start > left.start && !equal)
                }
            };
            if let Some(stop) = self.take_run(context, leaf, run, any_dead) {
                return stop;
            }
            if is_cut {
                // Some of the run were deleted in place: there is still room.
                continue;
            }
            let Some(first) = first else { return Stop::LeafDone };
            newer += 1;
            if let Some(stop) = self.take(context, leaf, first.meta) {
                return stop;
            }
        }
    }

    /// Copies sorted records into the batch; says how to stop if that is due.
    #[inline(always)]
    fn take_run(
        &mut self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        run: Range<u64>,
        any_dead: bool,
    ) -> Option<Stop> {
        let shape = leaf.node.shape;
        let stride = shape.stride();
        if run.is_empty() {
            return None;
        }
        let count = run.end - run.start;
        let last = if self.order == Order::Ascending { run.end - 1 } else { run.start };
        let is_plain = stride == shape.record_bytes && shape.is_uniform() && !any_dead;
        if is_plain && !self.is_out_of_range(context, leaf, leaf.sorted_meta(context, last)) {
            // The records stand side by side, and so they may in the batch.
            let off = leaf.node.off + shape.sorted_at + run.start * stride;
            let records = context.bytes(off, count * stride);
            let value_bytes = shape.record_bytes as usize - 8;
            self.buffers.batch.push_run(records, 8, value_bytes, self.order);
            return self.stop_if_full();
        }
        let order = self.order;
        let take = |index| {
            let meta = leaf.sorted_unless_dead(context, index, any_dead);
            self.take(context, leaf, meta)
        };
        match order {
            Order::Ascending => run.into_iter().find_map(take),
            Order::Descending => run.into_iter().rev().find_map(take),
        }
    }

    #[inline(always)]
    fn stop_if_full(&self) -> Option<Stop> {
        self.buffers.batch.is_full(self.most).then_some(Stop::GoOn)
    }

    /// Copies a record into the batch if it counts; says how to stop if that is due.
    #[inline(always)]
    fn take(&mut self, context: Context<'_, '_, D>, leaf: &Leaf, meta: Meta) -> Option<Stop> {
        if self.is_out_of_range(context, leaf, meta) {
            return Some(Stop::RangeDone);
        }
        if !meta.is_visible() {
            return None;
        }
        if meta.is_pointer() {
            // If it was superseded or deleted since its metadata was read, what is there now is
            // found by looking again.
            let Some(value) = leaf.value(context, meta) else {
                return if mutant!("scan-passes-replaced") { None } else { Some(Stop::GoOn) };
            };
            self.buffers.batch.push(leaf.key(context, meta), value);
        } else {
            // Key and value stand side by side.
            let record = context.bytes(leaf.node.off + meta.offset(), meta.record_bytes());
            self.buffers.batch.push_joined(record, meta.key_bytes() as usize);
        }
        self.stop_if_full()
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
        if self.buffers.batch.is_used_up() {
            self.fill()?;
        }
        Ok(self.buffers.batch.lend())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pando_index::RangeIndex;
    use pando_pmem::{CreateOptions, Pool, Volatile};
    use pando_tree::batch::FULL_BYTES;
    use pando_tree::maps::Catalog;

    use super::*;
    use crate::{BzTrees, Options};

    /// Values in blocks of their own: a leaf has room for many.
    #[test]
    fn a_batch_is_bounded_in_bytes() {
        let create = CreateOptions { max_bytes: 1 << 30, ..CreateOptions::default() };
        let pool = Pool::<Volatile>::anonymous(&create).expect("memory");
        let catalog = Arc::new(Catalog::open(pool).expect("opens"));
        let tree =
            catalog.find_or_create_index::<BzTrees>("tree", Options::default()).expect("a tree");
        let value = vec![7; FULL_BYTES];
        for number in 0..20_u8 {
            tree.insert(&[number], &value).expect("an insert");
        }
        for order in [Order::Ascending, Order::Descending] {
            let mut cursor = TreeCursor::new(&tree, KeyRange::all(), order);
            let mut records = 0;
            while let Some((_, found)) = cursor.next().expect("a record") {
                assert!(found == value);
                let bytes = cursor.buffers.batch.bytes();
                assert!(bytes <= 2 * FULL_BYTES, "{bytes}");
                records += 1;
            }
            assert_eq!(records, 20, "{order:?}");
        }
    }
}
