//! Structure modifications: consolidation, split, merge, growth and collapse of the root (paper
//! 4.3, 5).
//!
//! # Protocol
//!
//! A leaf is closed first (`claim.rs`). Then its records are final, and any thread may copy them.
//! Its replacement is built from the copy and installed by one PMwCAS ([`pando_inner`] has all its
//! words), which changes the word that closed the leaf, its seal, from *closed* to *replaced*. The
//! first installation wins; the other threads look again. A crash between closing and installing
//! leaves a closed leaf, or an open one. The next writer at a closed leaf replaces it. If there is
//! no room to replace it, the writer opens it again, so that a full pool still takes deletes and
//! records that fit its leaves. A range leaf is never opened again: `pando_ranged` changes its
//! closed words.
//!
//! A thread whose leaf needs a modification does one step of it first (paper 5.1), and starts again
//! from the root. A parent that is too large is split before its child.
//!
//! This file has the start of modifications, and the replacement of a leaf by one leaf. Splits are
//! in [`split`], and leaves of records that come at once in [`bulk`]; merges, and the collapse of
//! the root, in [`merge`]; the modifications that only a full pool needs in [`sweep`](mod@sweep).

mod bulk;
mod merge;
mod split;
mod sweep;

use pando_index::{Error, Result};
use pando_inner::{Outcome, Path, Progress};
use pando_pmem::Domain;
use pando_ranged::RangeLeaf;
use pando_tree::checked::undamaged;
use pando_tree::context::Context;

pub(crate) use self::merge::Merging;
use self::merge::{Fit, Partner};
use crate::build::{Room, Wanted};
use crate::closing::Closing;
use crate::content::Content;
use crate::layout::{HEADER_BYTES, PAIR_BYTES};
use crate::leaf::Leaf;
use crate::node::Probe;
use crate::tree::BzTree;

impl<D: Domain> BzTree<D> {
    /// Makes room for the `wanted` records in the leaf of `probe`, if there is none. One step; the
    /// caller starts again.
    #[cold]
    pub(crate) fn restructure(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
        wanted: Wanted,
    ) -> Result<()> {
        let path = self.find_path(context, probe);
        let leaf = Leaf::new(path.leaf);
        let ranged = leaf.ranged(context).map(|leaf| (leaf, leaf.count(context)));
        let (is_closed, has_room) = match &ranged {
            Some((leaf, count)) => {
                let has_room = wanted.number().is_some_and(|key| leaf.has_room(context, key));
                (count.is_closed, has_room)
            }
            None => {
                let look = leaf.look(context, probe, None);
                (look.closing.is_some(), leaf.has_room(&look, wanted.record_bytes))
            }
        };
        if !is_closed {
            if has_room {
                return Ok(());
            }
            // Room for a copy is reserved before the leaf is closed: attempts that a full pool
            // refuses repeatedly must leave no trace in the leaf.
            let live = match &ranged {
                Some((_, count)) => count.live * PAIR_BYTES,
                None => leaf.estimate(context).live_bytes,
            };
            let least = HEADER_BYTES + self.room(wanted).least_bytes();
            let is_range = ranged.is_some() && wanted.number().is_some();
            let is_to_split = match is_range {
                true => live / PAIR_BYTES >= self.capacity(),
                false => self.is_to_split(live),
            };
            let copies = if is_to_split { 2 } else { 1 };
            let bytes = match is_range {
                true => self.range_bytes(live / PAIR_BYTES / copies + 1),
                // The estimate counts updated records twice.
                false => (least + live / copies).min(path.leaf.header().node_bytes).max(least),
            };
            let reserve = |copies: u64, bytes| {
                let blocks =
                    (0..copies).map(|_| context.guard.reserve(bytes).map_err(Error::storage));
                blocks.collect::<Result<Vec<_>>>().map(drop)
            };
            // Two smaller blocks may be enough.
            reserve(copies, bytes).or_else(|error| match copies {
                1 if self.may_be_halved(live, wanted) => reserve(2, least + live / 2),
                _ => Err(error),
            })?;
        }
        self.rebuild(context, &path, wanted).map(|_| ())
    }

    /// Replaces the leaf of `probe`, if that still is `closed`, a closed range leaf.
    ///
    /// # Errors
    ///
    /// The pool has no room for that; the leaf stays closed.
    #[cold]
    pub(crate) fn replace_closed(
        &self,
        context: Context<'_, D>,
        closed: &RangeLeaf,
        probe: Probe<'_>,
        wanted: Wanted,
    ) -> Result<()> {
        let path = self.find_path(context, probe);
        // As below: an operation that wants room for a record does not merge.
        let wanted = Wanted { records: wanted.records.max(1), ..wanted };
        match path.leaf.off == closed.node.off {
            true => self.rebuild(context, &path, wanted).map(drop),
            false => Ok(()),
        }
    }

    /// Replaces the leaf of `probe`, if it is closed, or opens it. If there is no room to replace
    /// it, that is no error of the operation that found it closed.
    ///
    /// It closes nothing. If it closed the leaf again that another thread has opened meanwhile, or
    /// a neighbour for a merge, two operations could exclude each other for ever.
    #[cold]
    pub(crate) fn settle_closed(&self, context: Context<'_, D>, probe: Probe<'_>, wanted: Wanted) {
        let path = self.find_path(context, probe);
        let leaf = Leaf::new(path.leaf);
        // A range leaf is here since the caller's was replaced.
        if leaf.ranged(context).is_some() {
            return;
        }
        let Some(closing) = leaf.look(context, probe, None).closing else { return };
        // An operation that wants room for a record does not merge.
        let wanted = Wanted { records: wanted.records.max(1), ..wanted };
        let content = self.content(context, &leaf);
        let replaced = undamaged(context.guard)
            .and_then(|()| self.replace(context, &path, closing, content, wanted));
        if replaced.is_err() {
            closing.reopen(context);
        }
    }

    /// Closes the leaf at the end of `path` and replaces it by one leaf, by two, or together with a
    /// neighbour by one, depending on its content. Opens it if there is no room for that.
    pub(super) fn rebuild(&self, context: Context<'_, D>, path: &Path, wanted: Wanted) -> Outcome {
        let (closing, content) = self.close(context, &Leaf::new(path.leaf))?;
        self.replace(context, path, closing, content, wanted)
            .inspect_err(|_| closing.reopen(context))
    }

    fn replace(
        &self,
        context: Context<'_, D>,
        path: &Path,
        closing: Closing,
        content: Content,
        wanted: Wanted,
    ) -> Outcome {
        let options = &self.options;
        let live = content.bytes();
        // A record that needs more than the usual room gets it, but does not cause a split of the
        // other records. When it is in the leaf, the split finds the right place.
        if self.is_too_much(&content, live, wanted) && content.len() >= 2 {
            return self.split_leaf(context, path, closing, &content, wanted);
        }
        if (live == 0 || live < u64::from(options.merge_bytes))
            && wanted.records == 0
            && let Some(Partner { index, .. }) = self.partner(context, path, live, Fit::Usual)
            && self.merge_leaves(context, path, closing, &content, index, Fit::Usual)?
                == Progress::Merged
        {
            return Ok(Progress::Merged);
        }
        let replaced = self.consolidate(context, path, closing, &content, self.room(wanted));
        if replaced.is_err() && self.may_be_halved(live, wanted) && content.len() >= 2 {
            return self.split_leaf(context, path, closing, &content, wanted);
        }
        replaced
    }

    /// Whether to split a leaf for whose copy a full pool has no block, since smaller blocks may be
    /// free. Not for a delete, which can be done in place.
    fn may_be_halved(&self, live: u64, wanted: Wanted) -> bool {
        wanted.records > 0 && live >= u64::from(self.options.merge_bytes)
    }

    /// Bytes of a range leaf with so many records.
    pub(super) fn range_bytes(&self, records: u64) -> u64 {
        pando_ranged::bytes_for(records, u64::from(self.options.leaf_bytes))
    }

    pub(super) fn room(&self, wanted: Wanted) -> Room {
        Room { free_bytes: u64::from(self.options.free_bytes), wanted }
    }

    fn consolidate(
        &self,
        context: Context<'_, D>,
        path: &Path,
        closing: Closing,
        content: &Content,
        room: Room,
    ) -> Outcome {
        let upper = self.upper();
        let Some(anchor) = upper.anchor(context, path, path.height, path.leaf.link) else {
            return Ok(Progress::Raced);
        };
        let fence = || path.leaf_fence(context);
        let leaf_bytes = u64::from(self.options.leaf_bytes);
        let copy = self.build(context, content, room, fence, leaf_bytes)?;
        upper.install_copy(context, path, anchor, copy, |operation| closing.seal(operation))
    }
}

#[cfg(test)]
mod tests {
    use pando_index::RangeIndex;
    use pando_pmem::Process;
    use pando_pmem::testing::refusal::{Resource, refuse};
    use pando_tree::testing::Fixture;

    use super::*;
    use crate::index::BzTrees;
    use crate::meta::Meta;
    use crate::options::{Numbers, Options};

    fn tree() -> BzTree<Process> {
        let options = Options {
            leaf_bytes: 512,
            inner_bytes: 256,
            free_bytes: 128,
            merge_bytes: 128,
            numbers: Numbers::Sorted,
            ..Options::default()
        };
        Fixture::<Process, BzTrees>::anonymous(options).index
    }

    /// Otherwise two operations in a full pool could for ever close each other's leaf, or the leaf
    /// that the other one has just opened.
    #[test]
    fn who_meets_a_closed_leaf_closes_nothing() {
        let tree = tree();
        let key = |number: u64| number.to_be_bytes();
        let mut count = 0;
        while pando_tree::maps::Tree::audit(&tree).expect("audits").stat.leaves < 2 {
            tree.insert(&key(count), &[1; 8]).expect("room");
            count += 1;
        }
        let guard = tree.pin().expect("a slot");
        let context = tree.context(&guard);
        let (first, last) = (key(0), key(count - 1));
        let (small, other) = (Probe::new(&first), Probe::new(&last));
        // One record is left in the first leaf, which is not merged, since there is no room.
        let fence = |number: u64| tree.find_leaf(context, Probe::new(&key(number))).node.off;
        let of_small = (1..count).filter(|&number| fence(number) == fence(0));
        refuse(Resource::Block, 0, u64::MAX, || {
            for number in of_small {
                assert!(tree.remove(&key(number)).expect("removes are not refused"));
            }
        });
        let (leaf, neighbour) = (tree.find_leaf(context, small), tree.find_leaf(context, other));
        assert_ne!(leaf.node.off, neighbour.node.off);
        let path = tree.find_path(context, small);
        let live = leaf.estimate(context).live_bytes;
        assert!(tree.partner(context, &path, live, Fit::Usual).is_some(), "it could be merged");
        let slots = |leaf: &Leaf| -> Vec<Meta> {
            (0..leaf.slots()).map(|slot| leaf.slot(context, slot)).collect()
        };
        let before = slots(&neighbour);
        assert_eq!(before.last(), Some(&Meta::EMPTY), "the neighbour takes more");
        leaf.close(context);
        let closed = slots(&leaf);
        refuse(Resource::Block, 0, u64::MAX, || {
            tree.settle_closed(context, small, Wanted::NONE);
        });
        assert!(leaf.look(context, small, None).closing.is_none(), "it is open again");
        assert_eq!(slots(&neighbour), before, "its neighbour was closed, too");
        let changed = slots(&leaf).iter().zip(&closed).filter(|(now, then)| now != then).count();
        assert!(changed <= 1, "{changed} slots were used up");
        // With room it is replaced.
        leaf.close(context);
        tree.settle_closed(context, small, Wanted::NONE);
        assert_ne!(tree.find_leaf(context, small).node.off, leaf.node.off);
        assert_eq!(tree.get(&first).expect("a get"), Some(vec![1; 8]));
    }

    /// In a full pool a closed range leaf cannot be replaced, and its records are changed where
    /// they are. A copy that was made before must not take its place.
    #[test]
    fn a_change_of_a_closed_range_leaf_makes_older_copies_fail() {
        // The last leaf of a tree has no versions; the first of several has.
        for count in [40, 400] {
            check_changes_of_a_closed_leaf(count);
        }
    }

    fn check_changes_of_a_closed_leaf(count: u64) {
        let options = Options { numbers: Numbers::Ranged, ..Options::default() };
        let tree = Fixture::<Process, BzTrees>::anonymous(options).index;
        let key = |number: u64| (number << 20).to_be_bytes();
        for number in 0..count {
            tree.insert(&key(number), &[1; 8]).expect("room");
        }
        let guard = tree.pin().expect("a slot");
        let context = tree.context(&guard);
        let probe_key = key(7);
        let path = tree.find_path(context, Probe::new(&probe_key));
        let leaf = Leaf::new(path.leaf);
        assert!(leaf.ranged(context).is_some(), "it is a range leaf");
        let (closing, content) = tree.close(context, &leaf).expect("undamaged");
        refuse(Resource::Block, 0, u64::MAX, || {
            let updated = tree.update(&probe_key, &[0xF0; 8]);
            assert_eq!(updated.is_ok(), count > 40, "without versions another class needs a slot");
            tree.update(&probe_key, &[1, 1, 1, 1, 1, 1, 9, 1]).expect("it takes no room");
            assert!(tree.remove(&key(8)).expect("removes are not refused"));
            let near = ((7_u64 << 20) + 1).to_be_bytes();
            tree.insert(&near, &[1; 8]).expect_err("the pool is full");
        });
        let room = tree.room(Wanted::NONE);
        let replaced = tree.consolidate(context, &path, closing, &content, room);
        assert_eq!(replaced.expect("room"), Progress::Raced);
        assert_eq!(tree.get(&probe_key).expect("a get"), Some(vec![1, 1, 1, 1, 1, 1, 9, 1]));
        tree.update(&probe_key, &[0xF0; 8]).expect("the leaf is replaced now");
        assert_eq!(tree.get(&probe_key).expect("a get"), Some(vec![0xF0; 8]));
        assert_eq!(tree.get(&key(8)).expect("a get"), None);
        assert_eq!(tree.len().expect("counted"), count - 1);
    }
}
