//! The return of unused room in leaves, when the pool is full.
//!
//! A leaf may have more room than it needs, for three reasons. A merge may have found no room for
//! its copies, because a stopped thread prevented the reuse of blocks of earlier merges. Deletes
//! leave a leaf as large as it was, until it is small enough for a merge. And a new leaf has room
//! for later records. While the pool has room, none of that is worth a write. When it has none, a
//! refused write (`pando_tree::room`) sweeps some leaves:
//!
//! | leaf | what is done: the first of these for which there is room |
//! | --- | --- |
//! | small, or under a parent with one child | it is merged (`merge.rs`), and so are the nodes above it that have become small |
//! | its records and those of a neighbour fit into the larger one's block | both are merged, with little free room |
//! | there is a block that is smaller by an eighth or more | it is copied into that block, with little free room |
//! | closed, or any other | nothing: the thread that has closed it replaces it |
//!
//! A merge may find no room because leaves are in the only blocks that are large enough for a
//! parent. Therefore, after a merge that finds no room, the sweep still tries the copy, which frees
//! such a block. And a changed leaf is visited again when its old blocks are free: the merged leaf
//! may be in a block that is too large for it.
//!
//! Each is a modification of its own, by the PMwCAS that `mod.rs` describes; a crash leaves the
//! tree before it or after it. No word in the pool says that a leaf needs a sweep. The content of
//! the leaf says so, also after a crash.
//!
//! # Which leaves
//!
//! The leaves of a tree share the numbers from 0 to 2^64 as its inner nodes divide them: each child
//! of a node has an equal part of the node's range. A sweep continues at the number where the last
//! one ended. So it needs no key, and the next sweep visits other leaves. It stops when it has
//! changed [`ENOUGH`] leaves, or has visited [`MOST_LEAVES`].
//!
//! A handle *owes* a round if the tree may have a leaf whose merge found no room: a handle that has
//! met such a leaf, and a new handle, since it cannot know. Then a sweep that finds nothing
//! continues until it has visited every leaf once. A sweep ends when [`MOST_REFUSED`] leaves found
//! no room; the round stays owed.
//!
//! # Room that a write leaves
//!
//! A split takes more blocks than it frees; a merge frees more, but takes two before. If writes
//! took the last blocks, nothing could be merged any more. Therefore, once a handle has found the
//! pool full, each write that needs blocks first reserves those of a merge, as far as there are
//! any, and drops them when it has its own. A new leaf that got a block of a larger class, since
//! there was none of its own, has no more slots than in its own class (`build.rs`). Otherwise its
//! records would grow with the block, and no copy could give that back.
//!
//! The largest block of a modification is the copy of a parent. If a full pool has none, the parent
//! is split first, and smaller blocks are enough (`split.rs`). The same holds for a leaf that is
//! not small, if there is no block for its copy with a write's record.
//!
//! # The cost of a refusal
//!
//! When sweeps have visited all leaves and found nothing, there is no further sweep until a record
//! is deleted or a leaf waits for its merge. So a pool that stays full refuses writes without a
//! visit to leaves.
//!
//! At worst, sweeps of several threads visit the same leaves. All of this state is in process
//! memory; its loss costs a round.

use std::sync::atomic::Ordering;

use pando_index::Result;
use pando_inner::{Outcome, Progress};
use pando_pmem::{Domain, block_bytes, mutant};
use pando_tree::blocks::NewBlock;
use pando_tree::context::Context;
use pando_tree::room::GivenBack;

use super::merge::TIGHT_BYTES;
use crate::build::{Room, Wanted};
use crate::layout::HEADER_BYTES;
use crate::leaf::Leaf;
use crate::node::Probe;
use crate::tree::BzTree;

/// Leaves that one sweep changes at most.
const ENOUGH: usize = 32;
/// Leaves that one sweep visits, if no round is owed.
const MOST_LEAVES: usize = 256;
/// A leaf is copied if the copy is smaller by at least one part of this many.
const LEAST_PART: u64 = 8;
/// A merge reserves blocks for a leaf and a parent.
const BLOCKS_OF_A_MERGE: usize = 2;
/// The number of leaves without room for their copies after which a sweep ends.
const MOST_REFUSED: usize = 16;

/// A leaf that a sweep visits.
struct Visited<'op> {
    leaf: Leaf,
    /// The lowest key that the leaf may hold; `None` for the first leaf.
    low: Option<&'op [u8]>,
    /// Whether it has no neighbour under its parent.
    is_alone: bool,
    /// The end of its numbers; zero for the last leaf.
    end: u64,
}

impl<D: Domain> BzTree<D> {
    /// Reserves the room that a write must leave in a full pool: blocks for the next merge, as far
    /// as there are any.
    #[inline]
    pub(crate) fn leave_for_merges<'op>(&self, context: Context<'op, D>) -> Vec<NewBlock<'op, D>> {
        if self.sweep.was_full() { self.reserve_for_merges(context) } else { Vec::new() }
    }

    #[cold]
    fn reserve_for_merges<'op>(&self, context: Context<'op, D>) -> Vec<NewBlock<'op, D>> {
        let reserve = |_| context.guard.reserve(u64::from(self.options.inner_bytes)).ok();
        context.guard.with_reserve(|| (0..BLOCKS_OF_A_MERGE).map_while(reserve).collect())
    }

    /// Gives back some unused room of leaves. The caller holds no guard.
    #[cold]
    pub(crate) fn give_back(&self) -> GivenBack {
        self.sweep.was_full.store(true, Ordering::Relaxed);
        let before = self.sweep.passed.load(Ordering::Relaxed);
        if mutant!("merge-forgotten") || before == u64::MAX {
            return GivenBack::Nothing;
        }
        let owed = self.sweep.owes.swap(false, Ordering::Relaxed);
        let (mut changed, mut looked_at, mut refused, mut passed) = (0, 0, 0, 0_u128);
        while passed < 1 << 64 {
            let is_enough =
                changed >= ENOUGH || (looked_at >= MOST_LEAVES && (!owed || changed > 0));
            if is_enough || refused == MOST_REFUSED {
                break;
            }
            let at = self.sweep.at.load(Ordering::Relaxed);
            let Ok((mut outcome, end)) = self.visit(at) else { break };
            if outcome.is_err() && self.pool().reclaim().is_ok() {
                // The blocks that the last visit released become free when this thread drops its
                // guard.
                let Ok((again, _)) = self.visit(at) else { break };
                outcome = again;
            }
            match outcome {
                Ok(Progress::Merged | Progress::Replaced) => {
                    changed += 1;
                    looked_at += 1;
                    // The new leaf may be in a block that is too large for it, and fit into one
                    // that it released.
                    if self.pool().reclaim().is_err() {
                        break;
                    }
                    continue;
                }
                Ok(Progress::Raced | Progress::Nothing) => {}
                Err(_) => refused += 1,
            }
            self.sweep.at.store(end, Ordering::Relaxed);
            looked_at += 1;
            passed += u128::from(end.wrapping_sub(at).wrapping_sub(1)) + 1;
        }
        if refused > 0 || (owed && passed < 1 << 64) {
            self.sweep.owes.store(true, Ordering::Relaxed);
        }
        let passed = if changed > 0 { 0 } else { u128::from(before) + passed };
        self.sweep.passed.store(passed.min(u128::from(u64::MAX)) as u64, Ordering::Relaxed);
        // Other leaves may have more to give back.
        let is_cut_short = refused == MOST_REFUSED;
        if changed > 0 || is_cut_short { GivenBack::Some } else { GivenBack::Nothing }
    }

    /// Modifies the leaf at number `at`, if needed; returns the end of its numbers.
    fn visit(&self, at: u64) -> Result<(Outcome, u64)> {
        let guard = self.pin()?;
        let context = self.context(&guard);
        let visited = self.leaf_at(context, at);
        let outcome = guard.with_reserve(|| self.slim(context, &visited));
        Ok((outcome, visited.end))
    }

    fn slim(&self, context: Context<'_, D>, visited: &Visited<'_>) -> Outcome {
        let leaf = &visited.leaf;
        if leaf.estimate(context).is_closed {
            return Ok(Progress::Nothing);
        }
        let probe = Probe::new(visited.low.unwrap_or_default());
        let content = self.content(context, leaf);
        let live = content.bytes();
        let mut refused = None;
        let mut is_changed = |outcome: Outcome| match outcome {
            Ok(progress) => (progress != Progress::Nothing).then_some(progress),
            Err(error) => {
                refused = Some(error);
                None
            }
        };
        let is_due = live == 0 || live < u64::from(self.options.merge_bytes) || visited.is_alone;
        if is_due && let Some(progress) = is_changed(self.merge_underfull_again(context, probe)) {
            return Ok(progress);
        }
        if let Some(progress) = is_changed(self.merge_tightly(context, probe)) {
            return Ok(progress);
        }
        let nothing = || refused.map_or(Ok(Progress::Nothing), Err);
        let room = Room { free_bytes: TIGHT_BYTES, wanted: Wanted::NONE };
        let path = self.find_path(context, probe);
        if path.leaf.link != leaf.node.link {
            return Ok(Progress::Raced);
        }
        // The size that the copy will have: otherwise the leaf would be copied again and again.
        let copy = match self.range_bytes_of(&content, path.leaf_fence(context)) {
            Some(bytes) => bytes,
            // It has more records than a new one would get.
            None if leaf.ranged(context).is_some() => return nothing(),
            None => HEADER_BYTES + live + room.bytes(content.len() as u64),
        };
        let held = leaf.node.header().node_bytes;
        let is_smaller = |bytes| bytes + held / LEAST_PART <= held;
        if !is_smaller(block_bytes(copy)) {
            return nothing();
        }
        // Only larger blocks may be free.
        if !context.guard.reserve(copy).is_ok_and(|block| is_smaller(block.bytes())) {
            return nothing();
        }
        let early = mutant!("sweep-reads-open-leaf").then(|| self.content(context, leaf));
        let (closing, content) = self.close(context, leaf)?;
        let content = early.unwrap_or(content);
        let replaced = self.consolidate(context, &path, closing, &content, room);
        if !matches!(replaced, Ok(Progress::Replaced)) {
            closing.reopen(context);
        }
        replaced
    }

    /// The leaf at number `at`.
    fn leaf_at<'op>(&self, context: Context<'op, D>, at: u64) -> Visited<'op> {
        let (mut start, mut count) = (0_u128, 1_u128 << 64);
        let (mut low, mut is_alone) = (None, false);
        let leaf = self.upper().descend(context, None, |inner, _| {
            let children = u128::from(inner.children()).max(1);
            // Below 2^64 times 2^16: a node has fewer children than that.
            let child = ((u128::from(at) - start) * children / count).min(children - 1);
            let (first, end) = (count * child / children, count * (child + 1) / children);
            (start, count) = (start + first, (end - first).max(1));
            if child > 0 {
                low = Some(inner.separator(context, child as u64 - 1));
            }
            is_alone = children == 1;
            child as u64
        });
        let end = (start + count).max(u128::from(at) + 1) as u64;
        Visited { leaf: Leaf::new(leaf), low, is_alone, end }
    }
}
