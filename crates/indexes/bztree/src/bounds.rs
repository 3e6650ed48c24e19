//! Checks that the counts and offsets of a node stay inside the node, before the whole node is
//! copied, merged or scanned.
//!
//! A get does not do this: each of its accesses is bounded ([`pando_tree::checked`]).

use pando_pmem::Domain;
use pando_tree::context::Context;

use crate::layout::MAX_KEY_BYTES;
use crate::leaf::Leaf;
use crate::meta::{Kind, MAX_LEAF_BYTES, Meta};

impl Leaf {
    /// Whether the sorted records, and those of the slots that are claimed now, lie in the leaf.
    /// Other threads may claim slots meanwhile.
    pub fn is_within_bounds<D: Domain>(&self, context: Context<'_, D>) -> bool {
        let storage_at = self.records_at();
        self.holds_its_places()
            && self.sorted_lie_within(context, storage_at)
            && self.claimed_within(context, storage_at).is_some()
    }

    /// The number of claimed slots, if all of their records lie in the leaf, from `storage_at` on.
    #[inline(always)]
    fn claimed_within<D: Domain>(&self, context: Context<'_, D>, storage_at: u64) -> Option<u64> {
        for slot in 0..self.slots() {
            let meta = self.slot(context, slot);
            if meta == Meta::EMPTY {
                return Some(slot);
            }
            if meta.is_settled() && !self.lies_within(meta, storage_at) {
                return None;
            }
        }
        Some(self.slots())
    }

    /// Whether the areas before the records leave room for them, and the number of sorted records
    /// is as counted.
    fn holds_its_places(&self) -> bool {
        let (header, shape) = (self.node.header(), self.node.shape());
        let sorted_bytes = header.node_bytes.checked_sub(shape.sorted_at);
        self.records_at() <= shape.sorted_at
            && header.node_bytes <= MAX_LEAF_BYTES
            && self.slots() > 0
            && shape.sorted_at.is_multiple_of(8)
            && match sorted_bytes {
                Some(bytes) if shape.is_uniform() => {
                    shape.record_bytes >= 8 && bytes == self.sorted() * shape.stride()
                }
                sorted => sorted.is_some(),
            }
    }

    /// Bytes that the records of a leaf take; `None` if a record, or an area before the records,
    /// exceeds the leaf.
    pub fn stored<D: Domain>(&self, context: Context<'_, D>) -> Option<u64> {
        let (header, shape) = (self.node.header(), self.node.shape());
        if !self.holds_its_places() {
            return None;
        }
        let claimed = (0..self.slots()).map(|slot| self.slot(context, slot).padded_bytes());
        let stored = header.node_bytes - shape.sorted_at + claimed.sum::<u64>();
        (stored <= header.node_bytes - self.records_at()).then_some(stored)
    }

    /// Whether the records of a leaf lie from `storage_at` on, and its slots are claimed in order.
    /// Exact while no thread writes.
    pub fn holds_its_records<D: Domain>(&self, context: Context<'_, D>, storage_at: u64) -> bool {
        let is_empty = |slot| self.slot(context, slot).kind() == Kind::Empty;
        storage_at.is_multiple_of(8)
            && self.sorted_lie_within(context, storage_at)
            && self
                .claimed_within(context, storage_at)
                .is_some_and(|claimed| (claimed..self.slots()).all(is_empty))
    }

    fn sorted_lie_within<D: Domain>(&self, context: Context<'_, D>, storage_at: u64) -> bool {
        let mut bytes = 0;
        let mut lies_within = |meta: Meta| {
            bytes += meta.padded_bytes();
            meta.is_visible() && self.lies_within(meta, storage_at)
        };
        // Records of equal length lie where the shape says.
        let lie_within = self.node.shape().is_uniform()
            || (0..self.sorted()).all(|index| lies_within(self.sorted_meta(context, index)));
        lie_within && bytes <= self.node.header().node_bytes
    }

    fn lies_within(&self, meta: Meta, storage_at: u64) -> bool {
        let least_bytes = meta.key_bytes() + if meta.is_pointer() { 8 } else { 0 };
        let record_bytes = if meta.is_visible() { meta.record_bytes() } else { meta.key_bytes() };
        meta.offset() >= storage_at
            && meta.offset() + record_bytes <= self.node.header().node_bytes
            && record_bytes >= least_bytes
            && meta.key_bytes() <= MAX_KEY_BYTES as u64
    }
}
