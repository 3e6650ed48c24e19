//! Scans, forwards and backwards (paper 4.2.6).
//!
//! A cursor copies a batch of one leaf's live records while it is pinned, and lends them while it
//! is not. The range of the leaf decides where it continues, not the last key that it returned,
//! because an empty leaf has a range too. If a batch did not exhaust the leaf, the cursor continues
//! behind the batch's last key, in the leaf that has that key by then. Each record was in the tree
//! at some instant of the scan (`leaf.rs`); the records of one leaf may be of different instants.

use std::cell::Cell;
use std::cmp::Ordering as Compare;
use std::ops::{Bound, Deref, DerefMut, Range};

use pando_index::{Order, Result};
use pando_pmem::{Domain, Guard, mutant};
use pando_ranged::{Pair, RangeLeaf};
use pando_tree::batch::Batch;
use pando_tree::checked::undamaged;
use pando_tree::context::Context;
use pando_tree::cursor::{Fill, Scan};
use pando_tree::key::{self, slice_of};

use crate::candidate::Candidate;
use crate::layout::PAIR_BYTES;
use crate::leaf::Leaf;
use crate::meta::Meta;
use crate::node::Probe;
use crate::tree::BzTree;

/// Records of the first batch: short scans copy little. Later batches double, up to whole leaves.
const FIRST_BATCH: usize = 12;
/// Room for the first batch, in bytes; it grows when needed.
const FIRST_BYTES: usize = 512;

/// The batch, and the unsorted records of the current leaf.
#[derive(Debug, Default)]
struct Buffers {
    batch: Batch,
    slots: Vec<Meta>,
    unsorted: Vec<Candidate>,
    pairs: Vec<Pair>,
    run: Vec<[u8; PAIR_BYTES as usize]>,
}

thread_local! {
    static SPARE: Cell<Option<Buffers>> = const { Cell::new(None) };
}

/// The buffers of a cursor. The thread keeps those of its last cursor for the next one, because a
/// short scan would spend a tenth of its time on allocation.
#[derive(Debug)]
pub struct ThreadsBuffers(Buffers);

impl Default for ThreadsBuffers {
    #[inline]
    fn default() -> Self {
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        Self(spare.unwrap_or_else(|| Buffers {
            batch: Batch::with_capacity(FIRST_BATCH, FIRST_BYTES),
            slots: Vec::with_capacity(FIRST_BATCH * 4),
            unsorted: Vec::with_capacity(FIRST_BATCH * 4),
            pairs: Vec::with_capacity(FIRST_BATCH * 4),
            run: Vec::with_capacity(FIRST_BATCH * 4),
        }))
    }
}

impl Drop for ThreadsBuffers {
    #[inline]
    fn drop(&mut self) {
        if self.0.batch.is_worth_keeping() {
            let mut buffers = std::mem::take(&mut self.0);
            buffers.batch.clear();
            // A thread that is ending keeps nothing.
            let _ = SPARE.try_with(|spare| spare.set(Some(buffers)));
        }
    }
}

impl Deref for ThreadsBuffers {
    type Target = Batch;

    #[inline(always)]
    fn deref(&self) -> &Batch {
        &self.0.batch
    }
}

impl DerefMut for ThreadsBuffers {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Batch {
        &mut self.0.batch
    }
}

/// How the copying of a leaf ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The leaf has no more records.
    LeafDone,
    /// The range has no more records.
    RangeDone,
    /// The batch is full, or data that were read are out of date: continue behind the last copied
    /// key.
    GoOn,
}

impl<D: Domain> Fill for BzTree<D> {
    type Batch = ThreadsBuffers;

    const FIRST_BATCH: usize = FIRST_BATCH;

    fn fill(
        &self,
        guard: &Guard<'_, D>,
        scan: &mut Scan,
        batch: &mut ThreadsBuffers,
    ) -> Result<()> {
        let context = self.context(guard);
        let (key, side) = scan.place();
        let probe = key.map(Probe::new);
        let (leaf, fence) = self.find_fenced(context, probe, side);
        let ranged = leaf.ranged(context);
        let is_within_bounds = match &ranged {
            Some(leaf) => leaf.is_within_bounds(),
            None => leaf.is_within_bounds(context),
        };
        if !is_within_bounds {
            guard.note_damage(leaf.node.off);
        }
        undamaged(guard)?;
        let off = leaf.node.off;
        let mut copier = Copier { context, leaf: &leaf, scan, buffers: &mut batch.0 };
        let stop = match &ranged {
            Some(leaf) => copier.copy_buckets(leaf, probe),
            None => copier.copy_leaf(probe),
        };
        match stop {
            Stop::RangeDone => {
                scan.finish();
                Ok(())
            }
            Stop::LeafDone if mutant!("lost-scan-bound") && scan.order() == Order::Ascending => {
                scan.finish();
                Ok(())
            }
            Stop::LeafDone => scan
                .leave(off, if scan.order() == Order::Ascending { fence.high } else { fence.low }),
            Stop::GoOn => match batch.last_key() {
                Some(last) => scan.go_behind(off, last),
                // Nothing was copied before the data were found to be out of date: the same place
                // again.
                None => Ok(()),
            },
        }
    }
}

/// The copying of a leaf.
struct Copier<'fill, 'op, D: Domain> {
    context: Context<'op, D>,
    leaf: &'fill Leaf,
    scan: &'fill Scan,
    buffers: &'fill mut Buffers,
}

impl<D: Domain> Copier<'_, '_, D> {
    /// Copies records of the leaf into the batch, in the order of the scan: the sorted ones in
    /// runs, between those of slots.
    fn copy_leaf(&mut self, probe: Option<Probe<'_>>) -> Stop {
        let (context, leaf, scan) = (self.context, self.leaf, self.scan);
        leaf.prefetch_unsorted(context);
        let mut left = self.sorted_ahead(probe);
        let mut unsorted = std::mem::take(&mut self.buffers.unsorted);
        unsorted.clear();
        leaf.read_slots(context, &mut self.buffers.slots);
        let slots = &self.buffers.slots;
        let any_dead = leaf.gather_unsorted(context, slots, &mut unsorted, |candidate| {
            probe.is_none_or(|probe| scan.is_ahead(candidate.compare_probe(context, leaf, probe)))
        });
        if scan.order() == Order::Descending {
            unsorted.reverse();
        }
        let stop = self.merge(&mut left, &unsorted, any_dead);
        self.buffers.unsorted = unsorted;
        stop
    }

    /// Copies records of a range leaf into the batch, bucket by bucket.
    fn copy_buckets(&mut self, leaf: &RangeLeaf, probe: Option<Probe<'_>>) -> Stop {
        let (context, order) = (self.context, self.scan.order());
        let last = leaf.buckets() - 1;
        let start = probe.map(|probe| slice_of(probe.bytes));
        let mut bucket = match (start, order) {
            (Some(start), _) => leaf.bucket_of(context, start),
            (None, Order::Ascending) => 0,
            (None, Order::Descending) => last,
        };
        let mut start = probe.filter(|_| !matches!(self.scan.start(), Bound::Unbounded));
        let mut pairs = std::mem::take(&mut self.buffers.pairs);
        let stop = loop {
            let (is_last, next) = match order {
                Order::Ascending => (bucket == last, bucket + 1),
                Order::Descending => (bucket == 0, bucket.saturating_sub(1)),
            };
            if !is_last {
                leaf.prefetch_bucket(context, next);
            }
            pairs.clear();
            leaf.bucket_pairs(context, bucket, &mut pairs);
            // All records of the further buckets are ahead.
            match self.take_pairs(&pairs, start.take()) {
                Some(stop) => break stop,
                None if is_last => break Stop::LeafDone,
                None => bucket = next,
            }
        };
        self.buffers.pairs = pairs;
        stop
    }

    /// Copies those of the pairs into the batch that are ahead; returns how to stop, if it must
    /// stop.
    #[inline(always)]
    fn take_pairs(&mut self, pairs: &[Pair], start: Option<Probe<'_>>) -> Option<Stop> {
        let (scan, order) = (self.scan, self.scan.order());
        let is_ahead = |pair: &Pair| match start {
            None => true,
            Some(Probe { number: Some(number), .. }) => scan.is_ahead(pair.key.cmp(&number)),
            // Keys of other lengths lie between numbers.
            Some(Probe { bytes, .. }) => scan.is_ahead(pair.key.to_be_bytes()[..].cmp(bytes)),
        };
        let is_past = |pair: &Pair| scan.is_past(|end| key::compare(&pair.key.to_be_bytes(), end));
        let room = scan.most() - self.buffers.batch.len();
        let (run, is_range_done) = match order {
            Order::Ascending => {
                let ahead = &pairs[pairs.partition_point(|pair| !is_ahead(pair))..];
                let near = &ahead[..ahead.len().min(room)];
                let is_range_done = near.last().is_some_and(is_past);
                let end = match is_range_done {
                    true => near.partition_point(|pair| !is_past(pair)),
                    false => near.len(),
                };
                (&near[..end], is_range_done)
            }
            Order::Descending => {
                let ahead = &pairs[..pairs.partition_point(is_ahead)];
                let near = &ahead[ahead.len().saturating_sub(room)..];
                let is_range_done = near.first().is_some_and(is_past);
                let from = if is_range_done { near.partition_point(is_past) } else { 0 };
                (&near[from..], is_range_done)
            }
        };
        self.buffers.run.clear();
        self.buffers.run.extend(run.iter().map(|pair| pair.record()));
        self.buffers.batch.push_run(self.buffers.run.as_flattened(), 8, 8, order);
        if is_range_done { Some(Stop::RangeDone) } else { self.stop_if_full() }
    }

    /// The sorted records that were not copied yet.
    #[inline(always)]
    fn sorted_ahead(&self, probe: Option<Probe<'_>>) -> Range<u64> {
        let (context, leaf, order) = (self.context, self.leaf, self.scan.order());
        let Some(probe) = probe else { return 0..leaf.sorted() };
        let first = leaf.sorted_position(context, probe);
        if order == Order::Ascending {
            leaf.prefetch_from(context, first);
        }
        let is_there =
            first < leaf.sorted() && leaf.has_key(context, leaf.sorted_meta(context, first), probe);
        let included = self.scan.is_ahead(Compare::Equal);
        match order {
            Order::Ascending => first + u64::from(is_there && !included)..leaf.sorted(),
            Order::Descending => 0..first + u64::from(is_there && included),
        }
    }

    #[inline(always)]
    fn merge(&mut self, left: &mut Range<u64>, unsorted: &[Candidate], any_dead: bool) -> Stop {
        let (context, leaf) = (self.context, self.leaf);
        let mut newer = 0;
        loop {
            let first = unsorted.get(newer).copied();
            // At most as many as the batch takes.
            let room = (self.scan.most() - self.buffers.batch.len()) as u64;
            let (run, is_cut) = match self.scan.order() {
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
            if let Some(stop) = self.take_run(run, any_dead) {
                return stop;
            }
            if is_cut {
                // Some records of the run were deleted in place, so there is still room.
                continue;
            }
            let Some(first) = first else { return Stop::LeafDone };
            newer += 1;
            if let Some(stop) = self.take(first.meta) {
                return stop;
            }
        }
    }

    /// Copies sorted records into the batch; returns how to stop, if it must stop.
    #[inline(always)]
    fn take_run(&mut self, run: Range<u64>, any_dead: bool) -> Option<Stop> {
        let (context, leaf, order) = (self.context, self.leaf, self.scan.order());
        let shape = leaf.node.shape();
        let stride = shape.stride();
        if run.is_empty() {
            return None;
        }
        let count = run.end - run.start;
        let last = if order == Order::Ascending { run.end - 1 } else { run.start };
        let is_plain = stride == shape.record_bytes && shape.is_uniform() && !any_dead;
        if is_plain && !self.is_out_of_range(leaf.sorted_meta(context, last)) {
            // The records stand side by side, so they are copied as a whole.
            let off = leaf.node.off + shape.sorted_at + run.start * stride;
            let records = context.published(off, count * stride);
            let value_bytes = shape.record_bytes as usize - 8;
            self.buffers.batch.push_run(records, 8, value_bytes, order);
            return self.stop_if_full();
        }
        let take = |index| {
            let meta = leaf.sorted_unless_dead(context, index, any_dead);
            self.take(meta)
        };
        match order {
            Order::Ascending => run.into_iter().find_map(take),
            Order::Descending => run.into_iter().rev().find_map(take),
        }
    }

    #[inline(always)]
    fn stop_if_full(&self) -> Option<Stop> {
        self.buffers.batch.is_full(self.scan.most()).then_some(Stop::GoOn)
    }

    /// Copies a record into the batch if it is live; returns how to stop, if it must stop.
    #[inline(always)]
    fn take(&mut self, meta: Meta) -> Option<Stop> {
        let (context, leaf) = (self.context, self.leaf);
        if self.is_out_of_range(meta) {
            return Some(Stop::RangeDone);
        }
        if !meta.is_visible() {
            return None;
        }
        if meta.is_pointer() {
            // The record was superseded or deleted since its metadata was read. Another look finds
            // the present state.
            let Some(value) = leaf.value(context, meta) else {
                return if mutant!("scan-passes-replaced") { None } else { Some(Stop::GoOn) };
            };
            self.buffers.batch.push(leaf.key(context, meta), value);
        } else {
            // Key and value stand side by side.
            let record = context.published(leaf.node.off + meta.offset(), meta.record_bytes());
            self.buffers.batch.push_joined(record, meta.key_bytes() as usize);
        }
        self.stop_if_full()
    }

    #[inline(always)]
    fn is_out_of_range(&self, meta: Meta) -> bool {
        self.scan.is_past(|end| key::compare(self.leaf.key(self.context, meta), end))
    }
}

#[cfg(test)]
mod tests {
    use pando_pmem::Process;
    use pando_tree::testing::{Planted, check_batches};

    use crate::{BzTrees, Options};

    /// Values in blocks of their own: a leaf has room for many.
    #[test]
    fn a_batch_is_bounded_in_bytes() {
        check_batches(&Planted::<Process, BzTrees>::anonymous(Options::default()).index);
    }
}
