//! The records of a leaf of either kind, for copies into new leaves of either kind.

use std::borrow::Cow;

use pando_index::{Error, Result};
use pando_inner::{Fence, NewNode, Node, separator_between};
use pando_pmem::Domain;
use pando_ranged::{Bounds, Pair};
use pando_tree::blocks::NewBlock;
use pando_tree::checked::undamaged;
use pando_tree::context::Context;
use pando_tree::key::slice_of;

use crate::build::{self, Extent, RecordKind, Room, Wanted};
use crate::candidate::LiveRecord;
use crate::closing::Closing;
use crate::layout::{HEADER_BYTES, PAIR_BYTES};
use crate::leaf::Leaf;
use crate::meta::Meta;
use crate::options::{Numbers, ValueMode};
use crate::tree::BzTree;

/// Live records, ascending.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// All keys and values have eight bytes.
    Numbers(Vec<Pair>),
    /// Records of leaves, or of a block that the thread has reserved.
    Records(Vec<LiveRecord>),
}

/// Records, and the block in which they lie, if they were written for a copy.
type WithBlock<'call, 'op, D> = (Cow<'call, [LiveRecord]>, Option<NewBlock<'op, D>>);

impl Content {
    pub fn len(&self) -> usize {
        match self {
            Self::Numbers(pairs) => pairs.len(),
            Self::Records(records) => records.len(),
        }
    }

    /// Bytes of the records in a leaf that is not a range leaf.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Numbers(pairs) => pairs.len() as u64 * PAIR_BYTES,
            Self::Records(records) => Extent::of(records).bytes(),
        }
    }

    /// Whether the key is behind all records.
    pub fn is_before<D: Domain>(&self, context: Context<'_, D>, key: &[u8]) -> bool {
        match self {
            Self::Numbers(pairs) => {
                pairs.last().is_none_or(|last| last.key.to_be_bytes()[..] < *key)
            }
            Self::Records(records) => records.last().is_none_or(|last| last.key(context) < key),
        }
    }

    /// The records with keys and values as they lie in a leaf. Those of `Numbers` are written into
    /// a block that the caller keeps until they are copied.
    fn records<'op, D: Domain>(&self, context: Context<'op, D>) -> Result<WithBlock<'_, 'op, D>> {
        let pairs = match self {
            Self::Records(records) => return Ok((Cow::Borrowed(records), None)),
            Self::Numbers(pairs) => pairs,
        };
        let mut block = context.reserve(pairs.len() as u64 * PAIR_BYTES)?;
        let mut records = Vec::with_capacity(pairs.len());
        for (at, pair) in (0..).step_by(PAIR_BYTES as usize).zip(pairs) {
            block.write(at, &pair.record());
            let meta = Meta::visible(at, 0, 8, PAIR_BYTES, false);
            records.push(LiveRecord { meta, off: block.off() + at });
        }
        Ok((Cow::Owned(records), Some(block)))
    }

    /// The first `middle` records, and the others.
    pub fn split_at(&self, middle: usize) -> (Self, Self) {
        match self {
            Self::Numbers(pairs) => {
                let (left, right) = pairs.split_at(middle);
                (Self::Numbers(left.to_vec()), Self::Numbers(right.to_vec()))
            }
            Self::Records(records) => {
                let (left, right) = records.split_at(middle);
                (Self::Records(left.to_vec()), Self::Records(right.to_vec()))
            }
        }
    }

    /// These records, then those of `right`, which lie behind them. The blocks are to be kept until
    /// the records are copied.
    pub fn join<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        right: &Self,
    ) -> Result<(Self, [Option<NewBlock<'op, D>>; 2])> {
        if let (Self::Numbers(left), Self::Numbers(right)) = (self, right) {
            return Ok((Self::Numbers([&left[..], right].concat()), [None, None]));
        }
        let (left, left_block) = self.records(context)?;
        let (right, right_block) = right.records(context)?;
        Ok((Self::Records([&left[..], &right].concat()), [left_block, right_block]))
    }
}

impl<D: Domain> BzTree<D> {
    /// Whether range leaves are used for records of eight bytes.
    pub(crate) fn has_ranges(&self) -> bool {
        let Numbers::Ranged = self.options.numbers else { return false };
        self.options.value_mode == ValueMode::Inline && self.capacity() > 0
    }

    /// The most records of a range leaf when it is built.
    pub(crate) fn capacity(&self) -> u64 {
        pando_ranged::capacity(u64::from(self.options.leaf_bytes))
    }

    /// Whether a new leaf with `content` may be a range leaf. An empty leaf is one only for a
    /// wanted number: a record of another shape would replace it, and a full pool has no room for
    /// that.
    pub(crate) fn is_for_ranges(&self, content: &Content, wanted: Wanted) -> bool {
        let Content::Numbers(pairs) = content else { return false };
        wanted.kind != RecordKind::Other && (!pairs.is_empty() || wanted.number().is_some())
    }

    /// The records of a leaf. Final, if it is closed.
    pub(crate) fn content(&self, context: Context<'_, D>, leaf: &Leaf) -> Content {
        if let Some(ranged) = leaf.ranged(context) {
            return Content::Numbers(ranged.pairs(context));
        }
        self.content_of(context, leaf.live_records(context))
    }

    /// The records as numbers, if they are.
    pub(crate) fn content_of(&self, context: Context<'_, D>, records: Vec<LiveRecord>) -> Content {
        if !self.has_ranges() {
            return Content::Records(records);
        }
        let pair = |record: &LiveRecord| {
            let LiveRecord { meta, off } = *record;
            let is_pair =
                meta.key_bytes() == 8 && meta.record_bytes() == PAIR_BYTES && !meta.is_pointer();
            let number = |at| context.fixed(off + at);
            is_pair.then(|| Pair { key: number(0).swap_bytes(), value: number(8) })
        };
        match records.iter().map(pair).collect() {
            Some(pairs) => Content::Numbers(pairs),
            None => Content::Records(records),
        }
    }

    /// Closes a leaf, and reads its records, which are final.
    ///
    /// # Errors
    ///
    /// The leaf is damaged. Then it is open again, if it can be.
    pub(crate) fn close(&self, context: Context<'_, D>, leaf: &Leaf) -> Result<(Closing, Content)> {
        if let Some(ranged) = leaf.ranged(context) {
            let (closed, pairs) = ranged.close(context)?;
            undamaged(context.guard)?;
            return Ok((Closing::Ranged(closed), Content::Numbers(pairs)));
        }
        let closing = leaf.close(context);
        let content = self.content_of(context, leaf.live_records(context));
        undamaged(context.guard).inspect_err(|_| closing.reopen(context))?;
        Ok((closing, content))
    }

    /// Whether to split a leaf with these records, which have `live` bytes.
    pub(crate) fn is_too_much(&self, content: &Content, live: u64, wanted: Wanted) -> bool {
        if self.is_for_ranges(content, wanted) {
            let next = u64::from(wanted.number().is_some());
            return content.len() as u64 + next > self.capacity();
        }
        self.is_to_split(live)
    }

    /// Whether to split a leaf with so many bytes of live records, which is not a range leaf.
    pub(crate) fn is_to_split(&self, live: u64) -> bool {
        let options = &self.options;
        HEADER_BYTES + live + u64::from(options.free_bytes) > u64::from(options.leaf_bytes)
    }

    /// Bytes of the range leaf that [`build`](Self::build) makes of `content`, if it makes one.
    pub(crate) fn range_bytes_of(&self, content: &Content, fence: Fence<'_>) -> Option<u64> {
        let Content::Numbers(pairs) = content else { return None };
        let leaf_bytes = u64::from(self.options.leaf_bytes);
        pando_ranged::bytes_of(pairs, bounds_of(fence), leaf_bytes)
    }

    /// Builds a leaf of `content`, whose keys lie in the `fence`: a range leaf of at most
    /// `leaf_bytes`, if that is possible.
    pub(crate) fn build<'op, 'key>(
        &self,
        context: Context<'op, D>,
        content: &Content,
        room: Room,
        fence: impl FnOnce() -> Fence<'key>,
        leaf_bytes: u64,
    ) -> Result<NewNode<'op, D>> {
        if self.is_for_ranges(content, room.wanted)
            && let Content::Numbers(pairs) = content
        {
            let fence = fence();
            let bounds = bounds_of(fence);
            let next = room.wanted.number().filter(|next| {
                *next >= bounds.low && fence.high.is_none_or(|high| next.to_be_bytes()[..] < *high)
            });
            // Without a block for it, a leaf of the other kind may be smaller.
            if let Ok(Some(built)) = pando_ranged::build(context, pairs, bounds, leaf_bytes, next) {
                return Ok(built);
            }
        }
        let (records, _room) = content.records(context)?;
        build::leaf(context, &records, room).map_err(Error::storage)
    }
}

fn bounds_of(fence: Fence<'_>) -> Bounds {
    Bounds { low: fence.low.map_or(0, slice_of), high: fence.high.map(slice_of) }
}

/// The separator between two parts of a leaf's records, if it can be told before the right one has
/// its new leaf; otherwise it is that leaf's ([`separator_in`]), and has eight bytes.
pub(crate) fn separator_before<'op, D: Domain>(
    context: Context<'op, D>,
    left: &Content,
    right: &Content,
) -> Option<&'op [u8]> {
    let Content::Records(right) = right else { return None };
    let first = right.first()?.key(context);
    Some(match left {
        Content::Numbers(pairs) => separator_between(&pairs.last()?.key.to_be_bytes(), first),
        Content::Records(left) => separator_between(left.last()?.key(context), first),
    })
}

/// The first key of the new leaf `right`, which has eight bytes. It lies in the leaf.
pub(crate) fn separator_in<'op, D: Domain>(
    context: Context<'op, D>,
    right: &NewNode<'op, D>,
) -> &'op [u8] {
    let leaf = Leaf::new(Node::at(context, right.link));
    match leaf.ranged(context) {
        Some(ranged) => ranged.low_bytes(context),
        None => leaf.key(context, leaf.sorted_meta(context, 0)),
    }
}
