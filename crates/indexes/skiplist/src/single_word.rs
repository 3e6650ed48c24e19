//! Changes of links by single-word CAS, with which section 7.2 of the PMwCAS paper compares.
//!
//! For measurements. It is latch-free and linearizable, but no code repairs what a crash may leave,
//! so no map of a user has this style. In a volatile domain each change is one CAS of the
//! processor; in a domain with write-backs it is the paper's persistent CAS (its section 3).
//!
//! # Protocol
//!
//! No step changes two words, so most words may be out of date:
//!
//! | word | what it says |
//! | --- | --- |
//! | `state` | zero: the record is deleted. This word decides |
//! | `next i` of a node | marked after the record is deleted, from the highest level down; then it never changes again, and the node must be unlinked from that level |
//! | `prev` | a hint: a thread that finds it out of date searches |
//!
//! *Insert*: the predecessor's `next 0` from s to n, where it takes effect; then the same on each
//! level above, and `s.prev` is set. *Remove*: `state` to zero, where it takes effect; then all
//! `next` words of all levels are marked. A search for the key unlinks the node from each level, as
//! every search does that meets a marked node. Then the successor's `prev` is set, and the node is
//! freed.
//!
//! Where PMwCAS has one step, this protocol has three races:
//!
//! * *An insert links a level of a node after the node's remove has searched that level.* The
//!   insert checks for the mark after each link, and if there is one, searches too.
//! * *A search stands on an unlinked node.* Its word leads to a node that may be unlinked as well,
//!   and freed before this thread has pinned. So a marked word is never followed. A marked node is
//!   unlinked before its successor is, since no thread can change a marked word. So a marked node
//!   that is still linked leads to one that is linked.
//! * *Two threads set one `prev`, and the later one is late.* A thread that has set it checks
//!   whether it was right, and if not sets it again.
//!
//! No thread waits: a thread that finds a deleted record of its key marks the node and searches
//! again.
//!
//! # When a node may be reused
//!
//! A thread that has found n linked may write n into a word later: it may link a level, or set a
//! `prev`. It takes this back, as above, before it unpins. If it is pinned in epoch e, n is
//! unlinked in e or later, and reused three epochs later at the earliest. A thread that has seen
//! the word that it wrote is pinned in e + 1 at the latest, and keeps the epoch below e + 3 until
//! it unpins.

use pando_index::{Error, Order, Result};
use pando_pmem::Domain;
use pando_tree::blocks::NewBlock;
use pando_tree::context::Context;
use pando_tree::index_kind;
use pando_tree::key::Probe;
use pando_tree::value_block;

use crate::layout::{MARK, next_at};
use crate::list::SkipList;
use crate::node::Node;
use crate::options::Options;
use crate::search::Aim;
use crate::state::State;
use crate::style::{Found, Links, MarkedNode, NewNode, Place, Raise, Raised, Removal, past};

/// Links change by CAS, one word after the other.
#[derive(Clone, Copy, Debug)]
pub enum SingleWord {}

index_kind! {
    /// Skip lists whose links change by single-word CAS: for measurements, in a pool that need not
    /// survive a crash.
    pub enum CasSkipLists = 0xFFFF_0002, "skiplist-cas",
    "for measuring: the skip list by single-word CAS, which no crash may interrupt",
    SkipList<D, SingleWord>, Options;
}

/// Replaces `old` by `new`, durably in a domain with write-backs; returns whether it did.
#[inline(always)]
fn swap<D: Domain>(context: Context<'_, D>, off: u64, old: u64, new: u64) -> bool {
    context.pmwcas.compare_exchange(context.guard, off, old, new).is_ok()
}

/// Activates a block for the list.
fn take<D: Domain>(context: Context<'_, D>, block: NewBlock<'_, D>) -> u64 {
    let off = block.into_logged();
    context.pool().activate_logged(off);
    off
}

/// Takes back a block that no other thread has seen.
fn give_back<D: Domain>(context: Context<'_, D>, off: u64) {
    if off != 0 && context.pool().deactivate(off).is_ok() {
        context.pool().reuse(context.guard, off);
    }
}

/// Frees a block that other threads may read.
fn free<D: Domain>(context: Context<'_, D>, off: u64) {
    if off != 0 && context.pool().deactivate(off).is_ok() {
        context.guard.retire(off);
    }
}

/// The node before `node`; `None` if that is not linked.
fn search_before<D: Domain>(
    list: &SkipList<D, SingleWord>,
    context: Context<'_, D>,
    node: Node,
) -> Option<Node> {
    if node == list.head(context) {
        return Some(list.find_end(context));
    }
    let mut key = Vec::new();
    node.key(context).copy_to(&mut key);
    let (pred, found) = list.find_gap(context, Probe::new(&key), Aim::Before, Order::Descending);
    (found == node).then_some(pred)
}

/// Whether `node` follows `pred`; then `pred` is linked.
fn follows<D: Domain>(context: Context<'_, D>, pred: Node, node: Node) -> bool {
    let next = pred.next(context, 0);
    !next.is_marked() && next.node() == node
}

/// Sets `prev` of `node`; `hint` was its predecessor shortly before.
fn set_prev<D: Domain>(
    list: &SkipList<D, SingleWord>,
    context: Context<'_, D>,
    node: Node,
    hint: Node,
) {
    loop {
        let set = node.prev(context);
        let pred = match follows(context, hint, node) {
            true => hint,
            false => match search_before(list, context, node) {
                Some(pred) => pred,
                None => return,
            },
        };
        // It may have become wrong before it was set.
        if (set == pred || swap(context, node.prev_off(), set.0, pred.0))
            && follows(context, pred, node)
        {
            return;
        }
    }
}

/// Searches for the key of `node`, which is marked: after this no level names it.
fn unlink_all<D: Domain>(
    list: &SkipList<D, SingleWord>,
    context: Context<'_, D>,
    node: Node,
) -> Place {
    let mut key = Vec::new();
    node.key(context).copy_to(&mut key);
    list.find_place(context, Probe::new(&key), |_| ())
}

impl<D: Domain> Links<D> for SingleWord {
    const MARKED_STAY: bool = true;
    const COUNTS_LEVELS: bool = false;

    fn insert(
        list: &SkipList<D, Self>,
        context: Context<'_, D>,
        new: NewNode<'_, D>,
    ) -> Result<bool> {
        let NewNode { place, slice, node, value, .. } = new;
        let (pred, succ) = (place.preds[0], place.succ(0));
        let value = value.map_or(0, |value| take(context, value));
        let node = Node(take(context, node));
        D::fence();
        let next = place.before(context, 0, node, slice);
        if !swap(context, pred.next_off(0), place.nexts[0].0, next.0) {
            give_back(context, node.0);
            give_back(context, value);
            return Ok(false);
        }
        set_prev(list, context, succ, node);
        Ok(true)
    }

    fn raise(
        list: &SkipList<D, Self>,
        context: Context<'_, D>,
        raised: Raised<'_>,
    ) -> Result<Raise> {
        let Raised { place, node, level } = raised;
        let slice = node.slice(context);
        let own = node.next(context, level);
        if own.is_marked() {
            return Ok(Raise::Over);
        }
        let behind = place.behind(context, level, slice);
        if own != behind && !swap(context, node.next_off(level), own.0, behind.0) {
            return Ok(Raise::Again);
        }
        let next = place.before(context, level, node, slice);
        if !swap(context, place.preds[level].next_off(level), place.nexts[level].0, next.0) {
            return Ok(Raise::Again);
        }
        if node.next(context, level).is_marked() {
            unlink_all(list, context, node);
            return Ok(Raise::Over);
        }
        Ok(Raise::Done)
    }

    fn remove(
        list: &SkipList<D, Self>,
        context: Context<'_, D>,
        found: Found<'_>,
    ) -> Result<Removal> {
        let Found { node, .. } = found;
        let Some(state) = found.state(context)? else { return Ok(Removal::Deleted) };
        if !swap(context, node.state_off(), state.0, State::DELETED.0) {
            return Ok(Removal::Again);
        }
        Self::bury(context, node);
        let place = unlink_all(list, context, node);
        set_prev(list, context, place.succ(0), place.preds[0]);
        free(context, node.0);
        free(context, state.block_off());
        Ok(Removal::Done)
    }

    fn replace(context: Context<'_, D>, node: Node, state: State, value: &[u8]) -> Result<bool> {
        let block = value_block::reserve(context, value).map_err(Error::storage)?;
        let block = take(context, block);
        D::fence();
        let replaced = swap(context, node.state_off(), state.0, State::block(block).0);
        match replaced {
            true => free(context, state.block_off()),
            false => give_back(context, block),
        }
        Ok(replaced)
    }

    /// Marks the words of all levels, the lowest last: an insert of the same key goes behind it.
    fn bury(context: Context<'_, D>, node: Node) {
        for level in (0..node.info(context).height).rev() {
            let off = node.0 + next_at(level);
            loop {
                let next = context.read(off);
                if next & MARK != 0 || swap(context, off, next, next | MARK) {
                    break;
                }
            }
        }
    }

    #[inline(never)]
    fn unlink(context: Context<'_, D>, marked: MarkedNode) -> bool {
        let MarkedNode { head, node, level, next, behind } = marked;
        let past = past(context, head, node, next.node(), behind);
        swap(context, node.next_off(level), next.0, past.0)
    }

    fn before(context: Context<'_, D>, node: Node) -> Option<Node> {
        if node.next(context, 0).is_marked() {
            return None;
        }
        let pred = node.prev(context);
        follows(context, pred, node).then_some(pred)
    }
}
