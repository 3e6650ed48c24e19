//! What the search for a leaf needs to know: keys, and the lines of a leaf to prefetch.

use pando_inner::{Leaves, each_searched};
use pando_pmem::Domain;
use pando_tree::context::Context;
use pando_tree::value_block;

use crate::layout::LeafHint;
use crate::meta::key_hash;

/// The leaves of a BzTree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BzLeaves;

impl Leaves for BzLeaves {
    /// Of a range leaf the predicted bucket. Of any other the lines of the slots, and some of the
    /// sorted records.
    #[inline(always)]
    fn prefetch(prefetch: impl Fn(u64), hint: u16, distance: u64) {
        if let Some(bucket_at) = pando_ranged::predicted_at(hint, distance) {
            prefetch(bucket_at);
            prefetch(bucket_at + 64);
            return;
        }
        let LeafHint { searched_at, searched_bytes } = LeafHint::decode(hint);
        // Slots stand behind the slices and the equally long metadata, or begin in the first line.
        let slots_at = if searched_at == 0 { searched_bytes * 2 } else { 0 };
        prefetch(slots_at + 64);
        prefetch(slots_at + 128);
        each_searched(searched_bytes / 8, |at| prefetch(searched_at + at));
    }
}

/// A key to search for, with precomputed parts that make comparisons cheap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe<'key> {
    pub bytes: &'key [u8],
    /// The key as a number, if it has eight bytes: numbers compare as the keys do.
    pub number: Option<u64>,
    /// A hash in which most keys differ.
    pub hash: u16,
}

impl<'key> Probe<'key> {
    #[inline(always)]
    pub fn new(bytes: &'key [u8]) -> Self {
        let pando_inner::Probe { bytes, number } = pando_inner::Probe::new(bytes);
        Self { bytes, number, hash: key_hash(bytes) }
    }

    /// The key, as inner nodes are searched for it.
    #[inline(always)]
    pub fn upper(self) -> pando_inner::Probe<'key> {
        pando_inner::Probe { bytes: self.bytes, number: self.number }
    }
}

/// The bytes of a value that has a block of its own.
pub(crate) fn value_of_block<'op, D: Domain>(context: Context<'op, D>, block: u64) -> &'op [u8] {
    let bytes = context.fixed(block);
    context.published(block + value_block::HEADER_BYTES, bytes)
}
