//! Splits of leaves.

use pando_index::Result;
use pando_inner::{Fence, InnerContent, Outcome, Parent, Path, Progress};
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
        let middle = match content {
            Content::Records(records) => middle_of(records),
            Content::Numbers(pairs) => match (wanted.number(), pairs.last()) {
                // Ascending keys: the left leaf gets no more.
                (Some(key), Some(last)) if key > last.key => {
                    (pairs.len() - 1).min(self.capacity() as usize)
                }
                _ => pairs.len() / 2,
            },
        };
        if middle == 0 || middle >= content.len() {
            return Ok(Progress::Nothing);
        }
        let (left, right) = content.split_at(middle);
        let separator = separator_before(context, &left, &right);
        let parent = match self.parent_with_room(context, path, separator.unwrap_or(&[0; 8]))? {
            Ok(parent) => parent,
            Err(progress) => return Ok(progress),
        };
        let room = self.room(wanted);
        self.install_halves(context, path, closing, parent, (&left, separator, &right), room)
    }

    /// The parent of the leaf at the end of `path`, if it has room for one more separator; `None`
    /// above the root. Otherwise what has happened instead: the parent was split, or another thread
    /// came first.
    pub(super) fn parent_with_room<'op>(
        &self,
        context: Context<'op, D>,
        path: &Path,
        separator: &[u8],
    ) -> Result<Result<Option<Parent<'op>>, Progress>> {
        self.upper().parent_with_room(context, path, separator, self.sweep.was_full())
    }

    /// Whether a full pool has no block for a copy of an inner node, but may have blocks for its
    /// halves.
    pub(super) fn is_too_large(&self, context: Context<'_, D>, content: &InnerContent<'_>) -> bool {
        self.sweep.was_full() && self.upper().is_too_large(context, content)
    }

    /// Replaces the closed leaf at the end of `path` by two with these records.
    pub(super) fn install_halves<'op>(
        &self,
        context: Context<'op, D>,
        path: &Path,
        closing: Closing,
        parent: Option<Parent<'op>>,
        (left, separator, right): (&Content, Option<&'op [u8]>, &Content),
        room: Room,
    ) -> Outcome {
        let leaf_bytes = u64::from(self.options.leaf_bytes);
        let first = match right {
            Content::Numbers(pairs) => pairs.first().map(|first| first.key.to_be_bytes()),
            Content::Records(_) => None,
        };
        let between = separator.or(first.as_ref().map(<[u8; 8]>::as_slice));
        let before = || Fence { high: between, ..path.leaf_fence(context) };
        let left = self.build(context, left, room, before, leaf_bytes)?;
        let behind = || Fence { low: between, ..path.leaf_fence(context) };
        let right = self.build(context, right, room, behind, leaf_bytes)?;
        let separator = separator.unwrap_or_else(|| separator_in(context, &right));
        self.upper().install_split(
            context,
            (path, path.height),
            path.leaf.link,
            parent,
            (left, separator, right),
            |operation| closing.seal(operation),
        )
    }
}

/// Where to split, so that both halves have about the same bytes and at least one record.
fn middle_of(records: &[LiveRecord]) -> usize {
    let extent = Extent::of(records);
    let each = extent.metadata_bytes / records.len().max(1) as u64;
    let half = extent.bytes() / 2;
    let mut bytes = 0;
    for (index, record) in records.iter().enumerate() {
        bytes += record.meta.padded_bytes() + each;
        if bytes >= half {
            // The record at the middle goes to the smaller half.
            return (index + 1).clamp(1, records.len() - 1);
        }
    }
    records.len() / 2
}
