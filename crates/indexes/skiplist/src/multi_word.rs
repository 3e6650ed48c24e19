//! Links that change by PMwCAS: the skip list of section 6.1 of the paper.
//!
//! # Protocol
//!
//! Level 0 is a doubly linked list of all records. Each level above it is a singly linked list of a
//! part of the level below. Between two PMwCAS operations all of this holds:
//!
//! 1. A node that is linked on a level names its successor there, unmarked; on level 0 its
//!    successor names it back. Keys ascend. The head is behind the last node.
//! 2. A node's state has the number of levels on which it is linked: exactly the levels below that
//!    number.
//! 3. A node that is unlinked from a level is marked there, and its words of that level never
//!    change again. A node that is unlinked from level 0 is unlinked from all levels, and its state
//!    is zero.
//!
//! So readers, helpers and crashes never see a half-linked tower: a node that was to become higher
//! is just a lower node. PMwCAS is the only recovery.
//!
//! | operation | words of its PMwCAS | blocks | a crash before it leaves | after it |
//! | --- | --- | --- | --- | --- |
//! | insert of `n` between `p` and `s` | on each level, up to eight (`levels_at_once`): `p.next i` from s to n; and `s.prev 0` from p to n | n, and its value's: freed on failure | a reserved block, free again | a node |
//! | raise of `n` to level i, beyond these | `p.next i` from s to n; `n.state` from i levels to i+1 | | a lower node | a higher one |
//! | lower of `n`, by up to four levels, to three at least | on each: `p.next i` from n to s, `n.next i` marked; `n.state` to fewer levels | | a higher node | a lower one |
//! | remove of `n`, if it is on three levels at most | on each: `p.next i` from n to s, `n.next i` marked; `s.prev 0` from n to p; `n.state` to zero | n, and its value's: freed on success | a record | none |
//! | new small value of `n` | `n.state`, `n.small` | | the old value | the new one |
//! | new value of `n` in a block | `n.state` | the old and the new block: one of them freed | the old value | the new one |
//!
//! The deciding word is the status of the PMwCAS, and the helper is any thread that meets one of
//! its words. An operation fails only if another one has succeeded, so all operations are
//! lock-free. An insert, a remove and a write of a value take effect when their PMwCAS succeeds.
//! Users do not notice when a node is raised or lowered.
//!
//! Only the thread that inserted a node raises it. So the node's words of higher levels belong to
//! that thread until they are linked, and it stops raising if the state is not what it has left
//! there. A remove lowers a node from the highest level first: a thread that finds a node on some
//! level finds it on all levels below. Most nodes need neither: six in seven are on at most three
//! levels, and are linked, and removed, by one PMwCAS.
//!
//! Why `p` is linked when it gets another successor: its word is expected unmarked. Why `s` is
//! linked: `p`, which is linked, names it.
//!
//! # Where this differs from the paper
//!
//! The paper links nodes in both directions on each level. Here levels above 0 have no back
//! pointers, because nothing would read them: a reverse scan runs on level 0, and a remove has just
//! searched for its predecessors. And a tower is one block, not one node for each level. So a
//! search finds a node's lower levels in the line that it has compared, a record has one owner, and
//! its levels need not be linked one by one.

use pando_index::{Error, Result};
use pando_pmem::{Domain, mutant};
use pando_pmwcas::{MAX_VALUE, MAX_WORDS, Policy};
use pando_tree::checked::damaged;
use pando_tree::context::Context;
use pando_tree::value_block;

use crate::build;
use crate::layout::MAX_HEIGHT;
use crate::list::{MultiWord, SkipList};
use crate::node::Node;
use crate::state::{Kind, Small, State};
use crate::style::{Found, Links, MarkedNode, NewNode, Raise, Raised, Removal};

/// The most levels from which one operation removes a node and frees it: two words each, and also
/// `prev`, `state`, and two blocks.
const REMOVED_AT_ONCE: usize = (MAX_WORDS - 4) / 2;
/// The most levels by which one operation lowers a node: two words each, and `state`.
const LOWERED_AT_ONCE: usize = (MAX_WORDS - 1) / 2;

impl<D: Domain> Links<D> for MultiWord {
    const MARKED_STAY: bool = false;
    const COUNTS_LEVELS: bool = true;

    fn insert(_: &SkipList<D, Self>, context: Context<'_, D>, new: NewNode<'_, D>) -> Result<bool> {
        let NewNode { place, slice, node, value, height } = new;
        let off = Node(node.off());
        let (pred, succ) = (place.preds[0], place.succ(0));
        context.publish(|operation| {
            operation.add_word(succ.prev_off(), pred.0, off.0)?;
            for level in 1..height {
                let next = place.before(context, level, off, slice);
                let pred = place.preds[level];
                operation.add_word(pred.next_off(level), place.nexts[level].0, next.0)?;
            }
            let (word, policy) = (place.nexts[0].0, Policy::FreeNewOnFailure);
            let link = operation.reserve_entry(pred.next_off(0), word, policy)?;
            if let Some(value) = value {
                let entry = operation.own_block(0, policy)?;
                operation.activate(entry, value);
            }
            let hint = place.before(context, 0, off, slice).hint();
            operation.activate_with_hint(link, node, hint.bits());
            Ok(true)
        })
    }

    fn raise(_: &SkipList<D, Self>, context: Context<'_, D>, raised: Raised<'_>) -> Result<Raise> {
        let Raised { place, node, level } = raised;
        let state = node.state(context);
        if state.levels() != level {
            return Ok(Raise::Over);
        }
        let slice = node.slice(context);
        build::set_next(context, node, level, place.behind(context, level, slice));
        let next = place.before(context, level, node, slice);
        let state = if mutant!("skip-raised-when-lowered") { node.state(context) } else { state };
        let is_done = context.publish(|operation| {
            let pred = place.preds[level];
            operation.add_word(pred.next_off(level), place.nexts[level].0, next.0)?;
            operation.add_word(node.state_off(), state.0, state.on_levels(level + 1).0)?;
            Ok(true)
        })?;
        Ok(if is_done { Raise::Done } else { Raise::Again })
    }

    fn remove(_: &SkipList<D, Self>, context: Context<'_, D>, found: Found<'_>) -> Result<Removal> {
        let Found { node, place, .. } = found;
        loop {
            let Some(state) = found.state(context)? else { return Ok(Removal::Deleted) };
            let levels = state.levels();
            if levels > MAX_HEIGHT {
                return Err(damaged(node.0, "it says that it is on more levels than there are"));
            }
            let lowered = if levels > REMOVED_AT_ONCE {
                levels.saturating_sub(LOWERED_AT_ONCE).max(REMOVED_AT_ONCE)
            } else {
                0
            };
            let is_done = context.publish(|operation| {
                for level in lowered..levels {
                    let next = node.next(context, level);
                    // It was raised since, it has another predecessor, or it is removed.
                    if place.succ(level) != node || next.is_marked() {
                        return Ok(false);
                    }
                    let (pred, past) = (place.preds[level], place.past(context, level, node, next));
                    operation.add_word(pred.next_off(level), place.nexts[level].0, past.0)?;
                    let marked = if mutant!("skip-unmarked") { next } else { next.marked() };
                    operation.add_word(node.next_off(level), next.0, marked.0)?;
                    if level == 0 {
                        operation.add_word(next.node().prev_off(), node.0, pred.0)?;
                    }
                }
                let next = if lowered > 0 { state.on_levels(lowered) } else { State::DELETED };
                operation.add_word(node.state_off(), state.0, next.0)?;
                if lowered == 0 {
                    let value = if mutant!("skip-value-leaked") { 0 } else { state.block_off() };
                    for block in [node.0, value].into_iter().filter(|&block| block != 0) {
                        operation.own_block(block, Policy::FreeOldOnSuccess)?;
                    }
                }
                Ok(true)
            })?;
            match is_done {
                true if lowered == 0 => return Ok(Removal::Done),
                true => {}
                false => return Ok(Removal::Again),
            }
        }
    }

    fn replace(context: Context<'_, D>, node: Node, state: State, value: &[u8]) -> Result<bool> {
        if let Some(small) = Small::new(value).filter(|_| state.kind() != Some(Kind::Block)) {
            // If the word is not of that state, the operation fails.
            let word = context.read(node.small_off());
            if word == MAX_VALUE && context.pmwcas.is_damaged(context.guard, node.small_off()) {
                let what = "a word of it refers to an operation that does not exist";
                return Err(damaged(node.0, what));
            }
            return context.publish(|operation| {
                operation.add_word(node.state_off(), state.0, state.with_small(small).0)?;
                operation.add_word(node.small_off(), word, small.word)?;
                Ok(true)
            });
        }
        let block = value_block::reserve(context, value).map_err(Error::storage)?;
        let policy = match state.kind() {
            Some(Kind::Block) => Policy::FreeOne,
            _ => Policy::FreeNewOnFailure,
        };
        context.publish(|operation| {
            let entry = operation.reserve_entry(node.state_off(), state.0, policy)?;
            operation.activate_with_hint(entry, block, state.hint_of_block());
            Ok(true)
        })
    }

    /// Nothing: its words of all levels are marked already.
    fn bury(_: Context<'_, D>, _: Node) {}

    fn unlink(_: Context<'_, D>, _: MarkedNode) -> bool {
        false
    }

    fn before(context: Context<'_, D>, node: Node) -> Option<Node> {
        Some(node.prev(context))
    }
}
