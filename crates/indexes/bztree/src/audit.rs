//! The leaves of a tree for `check` and `stat`: their invariants, and the blocks that they reach.
//! Exact while no thread writes. Each field of a leaf is checked before it is used.

use pando_index::Result;
use pando_inner::Fence;
use pando_pmem::Domain;
use pando_ranged::RangeLeaf;
use pando_tree::context::Context;
use pando_tree::maps::{Audit, ProblemClass};

use crate::build::Extent;
use crate::layout::PAIR_BYTES;
use crate::leaf::Leaf;
use crate::meta::Meta;
use crate::node::Probe;
use crate::tree::BzTree;

/// The audit of one leaf.
struct Look<'op, 'call, D: Domain> {
    context: Context<'op, D>,
    audit: &'call mut Audit,
    visit: &'call mut dyn FnMut(&[u8], &[u8]),
}

impl<D: Domain> BzTree<D> {
    /// Walks the whole tree, and lends the live records of undamaged leaves to `visit`.
    pub(crate) fn walk_tree(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit> {
        let guard = self.pin()?;
        let context = self.context(&guard);
        Ok(pando_inner::walk(context, self.root_off, &mut |audit, leaf, fence| {
            Look { context, audit, visit }.leaf(Leaf::new(leaf), fence);
        }))
    }
}

impl<D: Domain> Look<'_, '_, D> {
    fn problem(&mut self, class: ProblemClass, off: u64, what: impl Into<String>) {
        self.audit.problem(class, off, what);
    }

    fn leaf(&mut self, leaf: Leaf, fence: Fence<'_>) {
        let (context, off) = (self.context, leaf.node.off);
        let wrong_before = self.audit.problems.len();
        let node_bytes = leaf.node.header().node_bytes;
        self.audit.stat.leaves += 1;
        self.audit.stat.leaf_bytes += node_bytes;
        if let Some(leaf) = leaf.ranged(context) {
            return self.range_leaf(&leaf, fence);
        }
        let Some(storage_bytes) = leaf.stored(context) else {
            self.problem(ProblemClass::Count, off, "the leaf counts more than it holds");
            return;
        };
        if !leaf.holds_its_records(context, node_bytes - storage_bytes) {
            let what = "a record leaves the place of the leaf's records";
            self.problem(ProblemClass::Structure, off, what);
            return;
        }
        if !is_open_or_closed(context, &leaf) {
            let what = "a leaf that is in place in a state that none is in";
            self.problem(ProblemClass::Structure, off, what);
        }
        let mut last: Option<&[u8]> = None;
        for index in 0..leaf.sorted() {
            let key = leaf.key(context, leaf.sorted_meta(context, index));
            if last.is_some_and(|last| last >= key) {
                let what = format!("sorted record {index} does not ascend");
                self.problem(ProblemClass::Order, off, what);
            }
            last = Some(key);
        }
        if !leaf.slices_match(context) {
            self.problem(ProblemClass::Order, off, "a slice is not that of its key");
        }
        let mut slots = Vec::new();
        leaf.read_slots(context, &mut slots);
        for &meta in slots.iter().filter(|meta| meta.is_settled()) {
            let probe = Probe::new(leaf.key(context, meta));
            if !meta.may_match(Meta::pattern(probe.hash, probe.bytes.len() as u64)) {
                self.problem(ProblemClass::Order, off, "a fingerprint is not that of its key");
            }
        }
        let live = leaf.live_records(context);
        if !live.is_sorted_by(|left, right| left.key(context) < right.key(context)) {
            self.problem(ProblemClass::Order, off, "live records do not ascend");
        }
        for record in &live {
            let key = record.key(context);
            if !fence.holds(key) {
                self.problem(ProblemClass::Separator, off, "a key lies outside the leaf's range");
            }
            if record.meta.is_pointer() {
                self.audit.value_block(context, off, context.read(record.off));
            }
        }
        self.audit.stat.records += live.len() as u64;
        let extent = Extent::of(&live);
        self.audit.stat.live_bytes += extent.bytes();
        self.audit.stat.deleted_bytes += storage_bytes.saturating_sub(extent.storage_bytes);
        if self.audit.problems.len() == wrong_before {
            for record in &live {
                // `None`: it was deleted meanwhile.
                if let Some(value) = leaf.value(context, record.meta) {
                    (self.visit)(record.key(context), value);
                }
            }
        }
    }

    fn range_leaf(&mut self, leaf: &RangeLeaf, fence: Fence<'_>) {
        let (context, off) = (self.context, leaf.node.off);
        let problems = leaf.problems(context);
        let is_consistent = problems.is_empty();
        for problem in problems {
            self.problem(ProblemClass::Structure, off, problem);
        }
        if !is_consistent {
            return;
        }
        let (pairs, count) = (leaf.pairs(context), leaf.count(context));
        self.audit.stat.records += pairs.len() as u64;
        self.audit.stat.live_bytes += pairs.len() as u64 * PAIR_BYTES;
        self.audit.stat.deleted_bytes += count.deleted * PAIR_BYTES;
        for pair in pairs {
            let key = pair.key.to_be_bytes();
            if !fence.holds(&key) {
                self.problem(ProblemClass::Separator, off, "a key lies outside the leaf's range");
                continue;
            }
            (self.visit)(&key, &pair.value.to_le_bytes());
        }
    }
}

/// Whether a reachable leaf is consistent: it is not marked as replaced, only its last claimed slot
/// or its gate may close it, and it has dead bits only if all slots are claimed.
fn is_open_or_closed<D: Domain>(context: Context<'_, D>, leaf: &Leaf) -> bool {
    let mut slots = Vec::new();
    leaf.read_slots(context, &mut slots);
    let full = slots.len() as u64 == leaf.slots();
    let closes_early = slots.iter().rev().skip(1).any(|meta| meta.is_closed());
    let is_replaced = slots.last().is_some_and(|last| last.is_closed() && *last != Meta::CLOSED);
    let gate = leaf.gate(context);
    !closes_early
        && !is_replaced
        && !gate.is_replaced()
        && (full || (!gate.is_closed() && leaf.dead(context) == 0))
}
