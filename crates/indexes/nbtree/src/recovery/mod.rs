//! Recovery: the layers in process memory, rebuilt from the chain of blocks (paper 3.2, "crash
//! consistency").
//!
//! When a tree is opened, PMwCAS has already settled which links exist, and the pool has settled
//! which records' blocks belong to a value word. So the chain holds each record once, and this code
//! only has to read:
//!
//! 1. Walk the chain, block by block, and survey the blocks: which slots are live, their
//!    fingerprints, the lowest and the highest key (`survey.rs`). With many blocks, several threads
//!    do this (`runs.rs`). Nothing is changed before the whole chain is known to be undamaged: a
//!    damaged one may lead into another map.
//! 2. Open value words that were closed, and clear the counts of changing threads.
//! 3. Take out leaves without a live slot, except for the first.
//! 4. Build the inner nodes, level by level, from the lowest keys.
//!
//! After a kill, the caches still have the changes that a dead thread has not written back. Other
//! threads do not show such a record before they have written it back; they know of it by counts in
//! process memory, which are lost. So step 1 writes back every block that it surveys: what a reader
//! finds later, a power cut cannot take back. That the pool was closed cleanly does not help: the
//! process that closed it may not have opened this map.
//!
//! Step 2 opens words by stores that no recovery needs to find. Step 3 takes leaves out by the same
//! PMwCAS that drops them at other times. So recovery may be interrupted anywhere, and started
//! again. Claimed slots stay lost until their leaf is replaced. Recovery reads each line of the
//! tree once: its time is linear in the records, and no other index takes that long to open. If a
//! leaf's block is none, the tree refuses every operation, with an error that says so; `walk` shows
//! what can be read.

mod runs;
mod survey;

use pando_pmem::{Domain, Guard};
use pando_pmwcas::{Pmwcas, Policy};

use crate::layers::{Damaged, Layers};
use crate::layout::{NEXT_AT, REPLACED};
use crate::options::Options;
use crate::separator::Separator;
use crate::volatile::leaf::Control;
use crate::volatile::node::{Node, Root};
use crate::volatile::nodes::{Inner, Leaf};
use runs::{Surveyed, survey_all};
use survey::settle;
pub(crate) use survey::survey;

/// Rebuilds the layers in process memory of the tree whose entry word is at `root_off`.
pub(crate) fn build<D: Domain>(pmwcas: &Pmwcas<D>, root_off: u64, options: &Options) -> Layers {
    let built = pmwcas
        .pool()
        .pin()
        .map_err(|_| Damaged { off: root_off, what: "no participant slot is free" });
    let built = built.and_then(|guard| build_pinned(pmwcas, &guard, root_off, options));
    match built {
        Ok(root) => Layers { root, damage: None },
        Err(damage) => {
            let leaf = Leaf::new::<D>(0, Separator::lowest(), Control::new(0), &[]);
            Layers { root: Root::new(Node::of_leaf(Box::new(leaf))), damage: Some(damage) }
        }
    }
}

fn build_pinned<D: Domain>(
    pmwcas: &Pmwcas<D>,
    guard: &Guard<'_, D>,
    root_off: u64,
    options: &Options,
) -> Result<Root, Damaged> {
    let runs = survey_all(pmwcas, guard, root_off, options.leaf_slots as usize)?;
    let mut leaves: Vec<Box<Leaf>> =
        Vec::with_capacity(runs.iter().map(|run| run.leaves.len()).sum());
    let mut lows = Vec::with_capacity(runs.len());
    let mut highest: Option<&Vec<u8>> = None;
    for run in &runs {
        lows.push(match (highest, &run.ends) {
            (Some(highest), Some((lowest, _))) if highest >= lowest => {
                let off = run.leaves[0].leaf.block_off;
                let what = "keys from here on are not above those of the leaf before";
                return Err(Damaged { off, what });
            }
            (Some(highest), Some((lowest, _))) => Some(Separator::between(highest, lowest)),
            (None, Some((lowest, _))) => Some(Separator::new(lowest)),
            (_, None) => None,
        });
        highest = run.ends.as_ref().map(|(_, highest)| highest).or(highest);
    }
    let unsettled = runs.iter().flat_map(|run| &run.unsettled);
    unsettled.for_each(|&off| settle(guard, off, options.leaf_slots as usize));
    for (run, mut low) in runs.into_iter().zip(lows) {
        for Surveyed { mut leaf, is_empty } in run.leaves {
            match leaves.last() {
                // The first leaf stays, and its range has no lower end.
                None if is_empty => {}
                None => low = None,
                Some(previous) if is_empty => {
                    if !drop_leaf(pmwcas, guard, previous.block_off, leaf.block_off) {
                        let what = "it is empty, and cannot be dropped";
                        return Err(Damaged { off: leaf.block_off, what });
                    }
                    continue;
                }
                Some(_) => {
                    if let Some(low) = low.take() {
                        leaf.low = low;
                    }
                }
            }
            leaves.push(leaf);
        }
    }
    Ok(Root::new(build_inner(leaves, options)))
}

/// Takes the empty leaf at `off` out of the chain; returns whether that was possible.
pub(crate) fn drop_leaf<D: Domain>(
    pmwcas: &Pmwcas<D>,
    guard: &Guard<'_, D>,
    previous: u64,
    off: u64,
) -> bool {
    let next = pmwcas.read(guard, off + NEXT_AT);
    let Ok(mut drop) = pmwcas.allocate(guard) else { return false };
    drop.add_word(previous + NEXT_AT, off, next).is_ok()
        && drop.add_word(off + NEXT_AT, next, next | REPLACED).is_ok()
        && drop.own_block(off, Policy::FreeOldOnSuccess).is_ok()
        && drop.execute()
}

/// Builds the inner nodes over the leaves; returns the root.
#[expect(clippy::vec_box, reason = "a leaf stays where it is from the beginning")]
fn build_inner(leaves: Vec<Box<Leaf>>, options: &Options) -> Node<'static> {
    // Each node has room for later children.
    let most = (options.inner_children as usize * 3 / 4).max(2);
    let mut lows: Vec<Separator> = leaves.iter().map(|leaf| leaf.low.clone()).collect();
    let mut nodes: Vec<Node<'static>> = leaves.into_iter().map(Node::of_leaf).collect();
    let mut level = 1;
    while nodes.len() > 1 {
        let parts = nodes.chunks(most).zip(lows.chunks(most));
        let above = parts.map(|(children, lows)| {
            let inner = Inner::new(level, children, lows[1..].iter().cloned().collect());
            (Node::of_inner(inner), lows[0].clone())
        });
        (nodes, lows) = above.unzip();
        level += 1;
    }
    nodes[0]
}
