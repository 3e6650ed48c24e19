//! Scans, forwards and backwards (paper 4.2.6).
//!
//! A cursor copies a batch of live records while it is pinned, and lends them while it is not. The
//! range of the leaf decides where it continues, not the last key that it returned, because an
//! empty leaf has a range too. If the batch wants more, it continues in the next leaf below the
//! same parent, without a descent. If a batch did not exhaust the leaf, the cursor continues behind
//! the batch's last key, in the leaf that has that key by then. Each record was in the tree at some
//! instant of the scan (`leaf.rs`); the records of one leaf may be of different instants.

use std::cell::Cell;
use std::cmp::Ordering as Compare;
use std::ops::{Deref, DerefMut, Range};

use pando_index::{Order, Result};
use pando_pmem::{Domain, Guard, mutant};
use pando_ranged::Copied;
use pando_tree::batch::Batch;
use pando_tree::checked::undamaged;
use pando_tree::context::Context;
use pando_tree::cursor::{Fill, Scan};
use pando_tree::key::{self, Side};

use crate::candidate::Candidate;
use crate::leaf::Leaf;
use crate::meta::Meta;
use crate::node::Probe;
use crate::tree::BzTree;

/// Records of the first batch: short scans copy little. Later batches double, up to whole leaves.
const FIRST_BATCH: usize = 12;
/// Room for the first batch, in bytes; it grows when needed.
const FIRST_BYTES: usize = 512;
/// If a batch takes more records, the next leaf is prefetched while one is copied.
const NEAR_RECORDS: usize = 32;

/// The batch, and the unsorted records of the current leaf.
#[derive(Debug, Default)]
struct Buffers {
    batch: Batch,
    slots: Vec<Meta>,
    unsorted: Vec<Candidate>,
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
            batch: Batch::with_capacity(FIRST_BYTES),
            slots: Vec::with_capacity(FIRST_BATCH * 4),
            unsorted: Vec::with_capacity(FIRST_BATCH * 4),
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
        let mut found = self.find_fenced(context, key.map(Probe::new), side);
        let ahead = match scan.order() {
            Order::Ascending => Side::Holding,
            Order::Descending => Side::Before,
        };
        loop {
            let (leaf, fence) = (Leaf::new(found.leaf), found.fence);
            if scan.most() - batch.len() > NEAR_RECORDS {
                found.prefetch_beside(context, ahead);
            }
            let copied_before = batch.len();
            match self.copy_leaf(context, &leaf, scan, &mut batch.0)? {
                Stop::RangeDone => scan.finish(),
                Stop::LeafDone if mutant!("lost-scan-bound") && ahead == Side::Holding => {
                    scan.finish();
                }
                Stop::LeafDone => {
                    let edge = if ahead == Side::Holding { fence.high } else { fence.low };
                    scan.leave(leaf.node.off, edge)?;
                }
                // Nothing was copied before the data were found to be out of date: the same place
                // again.
                Stop::GoOn if batch.len() == copied_before => return Ok(()),
                Stop::GoOn => {
                    let last = batch.last_key().unwrap_or_default();
                    return scan.go_behind(leaf.node.off, last);
                }
            }
            if !scan.wants_more(batch.len()) || batch.is_full(scan.most()) {
                return Ok(());
            }
            let Some(beside) = found.beside(context, ahead) else { return Ok(()) };
            found = beside;
        }
    }
}

impl<D: Domain> BzTree<D> {
    /// Copies records of a leaf into the batch, from the start of the scan on.
    #[inline(always)]
    fn copy_leaf(
        &self,
        context: Context<'_, D>,
        leaf: &Leaf,
        scan: &Scan,
        buffers: &mut Buffers,
    ) -> Result<Stop> {
        let ranged = leaf.ranged(context);
        let is_within_bounds = match &ranged {
            Some(leaf) => leaf.is_within_bounds(),
            None => leaf.is_within_bounds(context),
        };
        if !is_within_bounds {
            context.guard.note_damage(leaf.node.off);
        }
        undamaged(context.guard)?;
        Ok(match ranged {
            Some(leaf) => match leaf.copy(context, scan, &mut buffers.batch) {
                Copied::Leaf => Stop::LeafDone,
                Copied::Range => Stop::RangeDone,
                Copied::Full => Stop::GoOn,
            },
            None => Copier { context, leaf, scan, buffers }.copy_leaf(),
        })
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
    fn copy_leaf(&mut self) -> Stop {
        let probe = self.scan.place().0.map(Probe::new);
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
    use pando_tree::testing::{Fixture, check_batches};

    use crate::{BzTrees, Options};

    /// Values in blocks of their own: a leaf has room for many.
    #[test]
    fn a_batch_is_bounded_in_bytes() {
        check_batches(&Fixture::<Process, BzTrees>::anonymous(Options::default()).index);
    }
}
