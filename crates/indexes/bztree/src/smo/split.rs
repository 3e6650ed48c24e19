//! Splits of leaves.

use pando_index::{Error, Result};
use pando_inner::{InnerContent, Outcome, Parent, Path, Progress, separator_between};
use pando_pmem::Domain;
use pando_tree::context::Context;

use crate::build::{self, Extent, Room, Wanted};
use crate::candidate::LiveRecord;
use crate::closing::Closing;
use crate::tree::BzTree;

impl<D: Domain> BzTree<D> {
    pub(super) fn split_leaf(
        &self,
        context: Context<'_, D>,
        path: &Path,
        closing: Closing,
        records: &[LiveRecord],
        wanted: Wanted,
    ) -> Outcome {
        let (left, right) = records.split_at(middle_of(records));
        let (Some(last), Some(first)) = (left.last(), right.first()) else {
            return Ok(Progress::Nothing);
        };
        let separator = separator_between(last.key(context), first.key(context));
        let parent = match self.parent_with_room(context, path, separator)? {
            Ok(parent) => parent,
            Err(progress) => return Ok(progress),
        };
        let room = self.room(wanted);
        self.install_halves(context, path, closing, parent, (left, separator, right), room)
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
        (left, separator, right): (&[LiveRecord], &'op [u8], &[LiveRecord]),
        room: Room,
    ) -> Outcome {
        let left = build::leaf(context, left, room).map_err(Error::storage)?;
        let right = build::leaf(context, right, room).map_err(Error::storage)?;
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
