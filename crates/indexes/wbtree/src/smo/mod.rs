//! Structure modifications: splits, merges, copies, and the growth and collapse of the root.
//!
//! The paper logs what a split changes, and writes it back when the log is durable. Here each step
//! is one swap of a state, or one PMwCAS of the states concerned, and leaves a tree in which every
//! record is found. So there is no log, and no recovery.
//!
//! | step | words | the result |
//! | --- | --- | --- |
//! | *split* (`split.rs`): the upper half goes to a new node, to which a new fence leads | the node; R | keys of the new node are found through the fence |
//! | *post* (`post.rs`): the new node gets a cell in the parent | the parent | they are also found directly |
//! | *growth*: a new root above the root | the entry word | the root's level has a parent |
//! | *merge* (`merge.rs`): a node takes over its right neighbour's cells and fence | both, the parent; R | the neighbour is dead, and no word leads to it |
//! | *collapse*: a root with one child | the entry word, both | the child is the root |
//! | *copy* (`replace.rs`): a copy replaces a node whose versions or cells are used up | the node, its left neighbour, the parent; R | the node is dead, and no word leads to it |
//!
//! R: for leaves, the pointer to the left of the leaf to the right of all these.
//!
//! # The pointers to the left
//!
//! A leaf has a pointer to the leaf to its left, for scans backwards. *While a leaf is alive, its
//! pointer leads to the leaf whose fence leads to it*, and is zero if there is none. Only a split,
//! a merge or a copy changes which leaf that is. Each of them changes the state of that leaf, or
//! makes it dead, and changes the pointer by the same PMwCAS. So the leaf to the right need not be
//! compared: as long as the state whose fence leads to it is unchanged, the leaf is alive, and no
//! other thread changes its pointer. A write of a record changes no pointer.
//!
//! The pointer of a dead leaf is that of the time when it died. A thread that reads it has held a
//! guard since before that time, otherwise it could not know the leaf. The leaf that the pointer
//! leads to was alive then, so its block is not allocated again before that guard is dropped. A
//! reader reads pointer and fence at two different times, and the fence decides ([`Node::left`]). A
//! modification expects the pointer that it has read. So the next modification repairs a damaged
//! pointer; if the pointer is no valid word, the modification fails with an error that says so.
//!
//! A writer that reaches a node through a fence posts it, no matter which thread split the node; a
//! reader just continues. If a crash interrupts a split, the next writer that passes posts it.
//!
//! Why a post names no dead node: it reads the parent's state, and then checks whether the left
//! node's fence still leads to the right one, which is then alive. Only a merge through the
//! parent's cell for that node makes it dead. The parent's state has no such cell, and
//! another state makes the post fail.
//!
//! Why a merge loses nothing: it compares the states of both nodes and of the parent, so any change
//! since it copied the cells makes it fail.
//!
//! Every PMwCAS of this tree owns a block, so none is *plain* ([`pando_pmwcas`]): recovery lets it
//! succeed by its durable status, never by the references that it finds. This matters because two
//! states may have one version: the state that a failed operation could not install, and the state
//! of the thread that interrupted it. Recovery can still let a failed plain operation succeed while
//! the other state is not durable. Then slot words and durable version, which lie in the
//! state's line, could count for the wrong state. Since no operation is plain, only one state
//! of each version is ever installed, and after it at most the same state, dead. And slot words are
//! written only after `execute` has returned true.
//!
//! None of this needs help to end: each failure is a change by another thread.

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

/// After a delete, a node is considered for a merge if less than one of this many of its cells is
/// live.
pub(crate) const MERGE_BELOW: u64 = 4;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    Done,
    /// Something changed meanwhile, or an obstacle was removed: look again.
    Again,
    /// It is not possible at present.
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
/// leads to the leaf at `left_off`. Inner nodes have no such pointer.
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
    // Adding to a damaged offset may overflow.
    let at = right_off.wrapping_add(LEFT_AT);
    let found = context.read(at);
    if found >= pando_pmwcas::MAX_VALUE {
        // A damaged word, which would make every attempt fail.
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
        // A node with few live cells has claims of threads that have stopped, or no versions left.
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

    /// Posts the node that `left`'s fence leads to, if that is possible. Without a post
    /// everything is found too.
    pub(crate) fn help(&self, context: Context<'_, D>, left: Node<'_, D>) {
        let _ = self.post(context, left);
    }

    /// Merges the leaf that holds the key with a neighbour, and then the nearly empty nodes above
    /// it, as far as that is possible. Without a merge only room is lost.
    pub(crate) fn merge_underfull(&self, context: Context<'_, D>, probe: Probe<'_>) {
        // An only child gets neighbours when its parent is merged. So the leaf is looked at once
        // more after that.
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
