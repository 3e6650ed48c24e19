//! Structure modifications: splits, merges, copies, and the growth and collapse of the root.
//!
//! The paper logs what a split changes and writes it back when the log is durable. Here each step
//! is one swap of a state, or one PMwCAS of the states concerned, and leaves a tree in which
//! everything is found: so there is no log, and no recovery.
//!
//! | step | words | what is true afterwards |
//! | --- | --- | --- |
//! | *split* (`split.rs`): the upper half goes to a new node, to which a new fence leads | the node; R | keys of the new node are found through the fence |
//! | *post* (`post.rs`): the new node gets a cell in the parent | the parent | and directly |
//! | *growth*: a new root above the root | the entry word | the root's level has a parent |
//! | *merge* (`merge.rs`): a node takes over its right neighbour's cells and fence | both, the parent; R | the neighbour is dead, and linked from nowhere |
//! | *collapse*: a root with one child | the entry word, both | the child is the root |
//! | *copy* (`replace.rs`): a node whose versions or cells run out gives way to a copy | the node, its left neighbour, the parent; R | the node is dead, and linked from nowhere |
//!
//! R: of leaves, the pointer to the left of the leaf to the right of all these.
//!
//! # The way back
//!
//! A leaf has a pointer to the leaf to its left, so that scans go backwards as they go forwards.
//! *While a leaf is alive, its pointer leads to the leaf whose fence leads to it*, and is zero if
//! there is none. Nothing but a split, a merge or a copy changes which leaf that is; each changes
//! the state of that leaf, or makes it dead, and each changes the pointer by the same PMwCAS. So
//! the leaf to the right need not be compared: as long as the state stands whose fence leads to it,
//! it is alive, and nobody else changes its pointer. A record that is written changes no pointer.
//!
//! The pointer of a dead leaf is that of the moment at which it died. Who reads it held a guard
//! before that moment, or would not know the leaf, and the leaf that it leads to was alive then:
//! its block is not allocated anew before that guard is dropped. A reader sees pointer and fence at
//! two moments, and believes the fence ([`Node::left`]). What it expects in the pointer it has read
//! there, so a pointer that damage has changed is mended by the next of these that passes; one that
//! is no value of a word lets it fail, and says so.
//!
//! Whoever writes and comes to a node through a fence posts it, so it does not matter who split; a
//! reader goes on. A split that a crash cut short is posted by the next writer that passes.
//!
//! Why a post names no dead node: it reads the parent's state, and then looks whether the left
//! node's fence still leads to the right one, which is alive then. Only a merge through the
//! parent's cell for that node makes it dead; there is no such cell in the parent's state, and
//! another state lets the post fail.
//!
//! Why a merge loses nothing: it compares the states of both nodes and of the parent, so whatever
//! changed since it copied the cells lets it fail.
//!
//! Every PMwCAS of this tree owns a block, so none is *plain* ([`pando_pmwcas`]): a recovery lets
//! it succeed by its durable status, never by the references that it finds. This matters because
//! the state that an operation failed to put in place and the one of who interrupted it are of one
//! version. A plain operation that was let fail can still succeed by recovery while the other's
//! state is not durable; then only that slot words and the durable version lie in the state's line
//! would keep them from being believed of the wrong one. As it is, of all states of one version
//! only one is put in place, and after it at most the same, dead; and slot words are written only
//! after `execute` is true.
//!
//! Nobody's help is needed for any of this to end: each failure is another's change.

mod merge;
mod post;
mod replace;
mod split;

use pando_index::Result;
use pando_pmem::Domain;
use pando_pmwcas::Descriptor;
use pando_tree::key::Probe;

pub(crate) use self::merge::Merged;
use crate::claim::Refused;
use crate::layout::LEFT_AT;
use crate::node::{Changed, Context, Node};
use crate::state::State;
use crate::tree::WbTree;

/// A node is looked at for a merge when a delete leaves less than one of this many of its cells
/// live.
pub(crate) const MERGE_BELOW: u64 = 4;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    Done,
    /// Something changed meanwhile, or is in the way that was cleared: look again.
    Again,
    /// It cannot be done as things are.
    Not,
}

impl From<Changed> for Attempt {
    fn from(Changed: Changed) -> Self {
        Self::Again
    }
}

impl From<Refused> for Attempt {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Changed => Self::Again,
            Refused::NoRoom => Self::Not,
        }
    }
}

/// Makes the operation change the pointer of the leaf at `right_off`, if there is one, so that it
/// leads to the one at `left_off`. Inner nodes, of other levels, have no such pointer.
fn relink<D: Domain>(
    context: Context<'_, D>,
    operation: &mut Descriptor<'_, '_, D>,
    level: u64,
    right_off: u64,
    left_off: u64,
) -> pando_pmwcas::Result<()> {
    if level > 0 || right_off == 0 {
        return Ok(());
    }
    // A damaged offset need not leave room for another.
    let at = right_off.wrapping_add(LEFT_AT);
    let found = context.read(at);
    if found >= pando_pmwcas::MAX_VALUE {
        // A damaged word, which would let every attempt fail for ever.
        return Err(pando_pmwcas::Error::ControlBits { value: found });
    }
    operation.add_word(at, found, left_off)
}

impl<D: Domain> WbTree<D> {
    /// Makes room in a node that had none in `state`, by a split or a copy. The caller looks again.
    pub(crate) fn make_room(
        &self,
        context: Context<'_, D>,
        node: &Node<'_, D>,
        state: State,
        probe: Probe<'_>,
    ) -> Result<()> {
        let count = state.count(node.kind) as u64;
        // A node with few live cells is full of claims of threads that have stopped, or has no
        // versions.
        let is_full = count >= 2 && 2 * (count + 2) >= node.cells(context);
        if is_full && state.version() < context.shape.versions {
            match self.split(context, node, state)? {
                Attempt::Done => {
                    self.help(context, *node);
                    return Ok(());
                }
                Attempt::Again => return Ok(()),
                Attempt::Not => {}
            }
        }
        self.replace(context, node.level, probe, node.off).map(drop)
    }

    /// Posts the node that `left`'s fence leads to, if that is possible: without it everything is
    /// found, too.
    pub(crate) fn help(&self, context: Context<'_, D>, left: Node<'_, D>) {
        let _ = self.post(context, left);
    }

    /// Merges the leaf that holds the key with a neighbour, and what then is nearly empty above it,
    /// as far as that is possible: without it nothing is lost but room.
    pub(crate) fn merge_underfull(&self, context: Context<'_, D>, probe: Probe<'_>) {
        // An only child has neighbours when its parent is merged, so after that the leaf is looked
        // at again.
        for _ in 0..2 {
            let (mut level, mut was_alone) = (0, false);
            loop {
                match self.merge(context, probe, level) {
                    Ok(Merged::Done { parent_is_small: true }) => {}
                    Ok(Merged::OnlyChild) => was_alone = true,
                    Ok(Merged::Done { .. } | Merged::Not) | Err(_) => break,
                }
                level += 1;
            }
            if !was_alone {
                break;
            }
        }
        let _ = self.collapse(context);
    }
}
