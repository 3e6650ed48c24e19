//! Settled records, sorted for scans and for new leaves.

use std::cmp::Ordering as Compare;

use pando_inner::slices::{search_numbers, search_range};
use pando_pmem::Domain;
use pando_tree::context::Context;
use pando_tree::key::slice_of;

use crate::leaf::Leaf;
use crate::meta::Meta;
use crate::node::Probe;

/// A settled record of a leaf, with the data that decide most comparisons of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// The key's slice from its first byte on, as a number.
    slice: u64,
    pub meta: Meta,
    /// Its index among the sorted records and, behind them, the slots.
    index: u64,
}

impl Candidate {
    #[inline(always)]
    pub fn new<D: Domain>(context: Context<'_, D>, leaf: &Leaf, meta: Meta) -> Self {
        let slice = if meta.key_bytes() == 8 {
            leaf.key_number(context, meta)
        } else {
            slice_of(leaf.key(context, meta))
        };
        Self { slice, meta, index: 0 }
    }

    #[inline(always)]
    pub fn compare<D: Domain>(self, context: Context<'_, D>, leaf: &Leaf, other: Self) -> Compare {
        match self.slice.cmp(&other.slice) {
            Compare::Equal => self.compare_keys(context, leaf, other),
            apart => apart,
        }
    }

    /// Compares two records with the same slice. Not inlined, so that the rest of
    /// [`compare`](Self::compare) is small enough to be inlined into each sort.
    #[inline(never)]
    fn compare_keys<D: Domain>(self, context: Context<'_, D>, leaf: &Leaf, other: Self) -> Compare {
        if self.meta.key_bytes() == 8 && other.meta.key_bytes() == 8 {
            return Compare::Equal;
        }
        leaf.key(context, self.meta).cmp(leaf.key(context, other.meta))
    }

    #[inline(always)]
    pub fn compare_probe<D: Domain>(
        self,
        context: Context<'_, D>,
        leaf: &Leaf,
        probe: Probe<'_>,
    ) -> Compare {
        match probe.number {
            Some(number) if self.meta.key_bytes() == 8 => self.slice.cmp(&number),
            _ => leaf.key(context, self.meta).cmp(probe.bytes),
        }
    }
}

impl Leaf {
    /// Puts those records in `slots` that `wanted` selects into `newest`, which is empty: of each
    /// key the newest settled one, ascending. `slots` has the claimed slots as they were read.
    /// Returns whether records were deleted in place.
    #[inline]
    pub(crate) fn gather_unsorted<D: Domain>(
        &self,
        context: Context<'_, D>,
        slots: &[Meta],
        newest: &mut Vec<Candidate>,
        wanted: impl Fn(Candidate) -> bool,
    ) -> bool {
        for (slot, &meta) in slots.iter().enumerate().filter(|(_, meta)| meta.is_settled()) {
            let candidate = Candidate::new(context, self, meta);
            if wanted(candidate) {
                newest.push(Candidate { index: self.sorted() + slot as u64, ..candidate });
            }
        }
        // From newest to oldest, then sorted stably: the first of equal keys is the newest.
        newest.reverse();
        newest.sort_by(|&left, &right| left.compare(context, self, right));
        newest.dedup_by(|later, first| later.compare(context, self, *first).is_eq());
        let any_dead = slots.len() as u64 == self.slots() && self.dead(context) > 0;
        if any_dead {
            for candidate in newest {
                candidate.meta = self.unless_dead(context, candidate.index, candidate.meta);
            }
        }
        any_dead
    }

    /// The sorted record `index`, even if it was deleted in place.
    #[inline(always)]
    fn sorted_candidate<D: Domain>(&self, context: Context<'_, D>, index: u64) -> Candidate {
        Candidate { index, ..Candidate::new(context, self, self.sorted_meta(context, index)) }
    }

    /// The live records, ascending: of each key the newest settled record, if it is visible.
    ///
    /// Each is the record of some instant of the call. If the leaf was closed before, the records
    /// are final.
    pub(crate) fn live_records<D: Domain>(&self, context: Context<'_, D>) -> Vec<LiveRecord> {
        if !self.is_within_bounds(context) {
            context.guard.note_damage(self.node.off);
            return Vec::new();
        }
        let mut slots = Vec::with_capacity(self.slots() as usize);
        self.read_slots(context, &mut slots);
        let mut unsorted = Vec::with_capacity(slots.len());
        let any_dead = self.gather_unsorted(context, &slots, &mut unsorted, |_| true);
        let mut live = Vec::with_capacity((self.sorted() + self.slots()) as usize);
        let record = |meta: Meta| LiveRecord { meta, off: self.node.off + meta.offset() };
        let mut next = 0;
        // Between two records of slots, the sorted ones are copied in one run: most records are
        // sorted.
        for newer in unsorted {
            let (position, equal) = self.position_among(context, Some(newer), next..self.sorted());
            self.push_sorted(context, &mut live, next..position, any_dead);
            next = position + u64::from(equal);
            if newer.meta.is_visible() {
                live.push(record(newer.meta));
            }
        }
        self.push_sorted(context, &mut live, next..self.sorted(), any_dead);
        live
    }

    /// The first sorted record in `range` that is not before `candidate` (the end of `range` if
    /// there is none, or no candidate), and whether it is of the same key.
    #[inline(always)]
    pub(crate) fn position_among<D: Domain>(
        &self,
        context: Context<'_, D>,
        candidate: Option<Candidate>,
        range: std::ops::Range<u64>,
    ) -> (u64, bool) {
        let Some(candidate) = candidate else { return (range.end, false) };
        let shape = self.node.shape();
        let std::ops::Range { start, end } = range;
        if shape.is_uniform() && candidate.meta.key_bytes() == 8 {
            let words = self.node.words(context);
            let (first, stride) = (shape.sorted_at / 8, shape.stride() / 8);
            let (at, count) = (first + start * stride, end - start);
            let found = search_numbers(words, at, stride, count, candidate.slice, false, |_| {});
            let position = start + found;
            let equal =
                position < end && self.sorted_candidate(context, position).slice == candidate.slice;
            return (position, equal);
        }
        let compare =
            |index| self.sorted_candidate(context, index).compare(context, self, candidate);
        if !shape.is_uniform() {
            let key = self.key(context, candidate.meta);
            let position = self.sliced_position(context, start..end, key);
            return (position, position < end && compare(position).is_eq());
        }
        let position = search_range(start..end, |at| compare(at).is_lt());
        (position, position < end && compare(position).is_eq())
    }

    #[inline(always)]
    fn push_sorted<D: Domain>(
        &self,
        context: Context<'_, D>,
        live: &mut Vec<LiveRecord>,
        range: std::ops::Range<u64>,
        any_dead: bool,
    ) {
        let record = |index| {
            let meta = self.sorted_unless_dead(context, index, any_dead);
            LiveRecord { meta, off: self.node.off + meta.offset() }
        };
        if any_dead {
            live.extend(range.map(record).filter(|record| record.meta.is_visible()));
        } else {
            live.extend(range.map(record));
        }
    }
}

/// A live record of an existing leaf, to be copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveRecord {
    pub meta: Meta,
    /// Offset of the record in the pool.
    pub off: u64,
}

impl LiveRecord {
    /// The record's key.
    pub fn key<'op, D: Domain>(&self, context: Context<'op, D>) -> &'op [u8] {
        context
            .published(self.off + (self.meta.key_at() - self.meta.offset()), self.meta.key_bytes())
    }
}
