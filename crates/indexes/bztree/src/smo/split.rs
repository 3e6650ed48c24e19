//! Splits of leaves.

use pando_index::Result;
use pando_inner::{
    Fence, InnerContent, MOST_MORE, Outcome, Parent, Path, Progress, separator_bytes,
};
use pando_pmem::Domain;
use pando_tree::context::Context;

use crate::build::{Extent, Room, Wanted};
use crate::candidate::LiveRecord;
use crate::closing::Closing;
use crate::content::{Content, separator_before, separator_in};
use crate::tree::BzTree;

impl<D: Domain> BzTree<D> {
    pub(super) fn split_leaf(
        &self,
        context: Context<'_, D>,
        path: &Path,
        closing: Closing,
        content: &Content,
        wanted: Wanted,
    ) -> Outcome {
        let middle = match (content, wanted.number()) {
            // Ascending keys: the left leaf gets no more.
            (Content::Numbers(pairs), Some(key))
                if pairs.last().is_some_and(|last| key > last.key) =>
            {
                (pairs.len() - 1).min(self.capacity() as usize)
            }
            _ => middle_of(content),
        };
        if middle == 0 || middle >= content.len() {
            return Ok(Progress::Nothing);
        }
        let (left, right) = content.split_at(middle);
        let separator = separator_before(context, &left, &right);
        let others = [(separator, &right)];
        let parent = match self.parent_with_room(context, path, &others)? {
            Ok(parent) => parent,
            Err(progress) => return Ok(progress),
        };
        self.install_leaves(context, path, closing, parent, (&left, &others), self.room(wanted))
    }

    /// The parent of the leaf at the end of `path`, if it has room for the separators of these
    /// leaves; `None` above the root. Otherwise what has happened instead: the parent was split, or
    /// another thread came first.
    pub(super) fn parent_with_room<'op>(
        &self,
        context: Context<'op, D>,
        path: &Path,
        others: &[Other<'op, '_>],
    ) -> Result<Result<Option<Parent<'op>>, Progress>> {
        let more_bytes = others.iter().map(separator_bytes_of).sum();
        self.upper().parent_with_room(context, path, more_bytes, self.sweep.was_full())
    }

    /// Whether a full pool has no block for a copy of an inner node, but may have blocks for its
    /// halves.
    pub(super) fn is_too_large(&self, context: Context<'_, D>, content: &InnerContent<'_>) -> bool {
        self.sweep.was_full() && self.upper().is_too_large(context, content)
    }

    /// Replaces the closed leaf at the end of `path` by leaves with these records.
    pub(super) fn install_leaves<'op>(
        &self,
        context: Context<'op, D>,
        path: &Path,
        closing: Closing,
        parent: Option<Parent<'op>>,
        (first, others): (&Content, &[Other<'op, '_>]),
        room: Room,
    ) -> Outcome {
        let leaf_bytes = u64::from(self.options.leaf_bytes);
        // The first keys of those whose separators can be told only when they are built.
        let mut keys = [[0; 8]; MOST_MORE];
        for (key, (_, content)) in keys.iter_mut().zip(others) {
            if let Content::Numbers(pairs) = content
                && let Some(first) = pairs.first()
            {
                *key = first.key.to_be_bytes();
            }
        }
        let low_of =
            |at: usize| others.get(at).map(|(separator, _)| separator.unwrap_or(&keys[at]));
        let fence = || Fence { high: low_of(0), ..path.leaf_fence(context) };
        let first = self.build(context, first, room, fence, leaf_bytes)?;
        let mut built = Vec::with_capacity(others.len());
        for (at, (separator, content)) in others.iter().enumerate() {
            let fence = || {
                let of_path = path.leaf_fence(context);
                Fence { low: low_of(at), high: low_of(at + 1).or(of_path.high) }
            };
            let leaf = self.build(context, content, room, fence, leaf_bytes)?;
            built.push((separator.unwrap_or_else(|| separator_in(context, &leaf)), leaf));
        }
        self.upper().install_split(
            context,
            (path, path.height),
            path.leaf.link,
            parent,
            (first, built),
            |operation| closing.seal(operation),
        )
    }
}

/// The records of a further leaf, and the separator before it, if it can be told before the leaf is
/// built ([`separator_before`]).
pub(super) type Other<'op, 'call> = (Option<&'op [u8]>, &'call Content);

/// Bytes that the separator takes in the parent.
pub(super) fn separator_bytes_of((separator, _): &Other<'_, '_>) -> u64 {
    separator_bytes(separator.unwrap_or(&[0; 8]))
}

/// Where to split, so that both halves have about the same bytes and, of two records, one each.
pub(super) fn middle_of(content: &Content) -> usize {
    match content {
        Content::Records(records) => middle_of_records(records),
        Content::Numbers(pairs) => pairs.len() / 2,
    }
}

fn middle_of_records(records: &[LiveRecord]) -> usize {
    let extent = Extent::of(records);
    let each = extent.metadata_bytes / records.len().max(1) as u64;
    let half = extent.bytes() / 2;
    let mut bytes = 0;
    for (index, record) in records.iter().enumerate() {
        bytes += record.meta.padded_bytes() + each;
        if bytes >= half {
            // The record at the middle goes to the smaller half.
            return (index + 1).min(records.len() - 1);
        }
    }
    records.len() / 2
}
