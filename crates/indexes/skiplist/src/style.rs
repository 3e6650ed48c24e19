//! How links change: the interface of the two styles of section 7.2 of the PMwCAS paper.
//!
//! Everything else is common code: nodes, search, values, scans. The domain is another type
//! parameter, so the paper's four primitives are four types:
//!
//! | primitive | style | domain |
//! | --- | --- | --- |
//! | CAS | `SingleWord` (feature `papers`) | `Process` |
//! | MwCAS | [`MultiWord`](crate::MultiWord) | `Process` |
//! | PCAS | `SingleWord` (feature `papers`) | `Adr`, for measurements: a crash may leave a state that no code repairs |
//! | PMwCAS | [`MultiWord`](crate::MultiWord) | `Adr` |

use std::fmt::Debug;

use pando_index::{Error, Result};
use pando_pmem::{Domain, mutant};
use pando_tree::blocks::NewBlock;
use pando_tree::context::Context;

use crate::hint::Hint;
use crate::layout::MAX_HEIGHT;
use crate::list::SkipList;
use crate::node::{Next, Node};
use crate::state::State;

/// The place of a key on each level.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub head: Node,
    /// The last node before it.
    pub preds: [Node; MAX_HEIGHT],
    /// The word that leads from it to the first node that is not before the key; unmarked.
    pub nexts: [Next; MAX_HEIGHT],
    /// Nodes that the search has visited on the level.
    pub passed: [u8; MAX_HEIGHT],
    /// The node of the key, which is behind `preds[0]` on level 0.
    pub found: Option<Node>,
}

impl Place {
    /// The first node on `level` that is not before the key.
    pub fn succ(&self, level: usize) -> Node {
        self.nexts[level].node()
    }

    /// The word on `level` of a new node of the key, whose slice is `slice`.
    pub fn behind<D: Domain>(&self, context: Context<'_, D>, level: usize, slice: u64) -> Next {
        let (pred, next) = (self.preds[level], self.nexts[level]);
        let hint = next.hint().behind(pred.slice(context), slice);
        let hint = hint.unwrap_or_else(|| next.node().hint_from(context, slice, self.head));
        Next::to(next.node(), hint)
    }

    /// The word on `level` that leads to the new node of the key, whose slice is `slice`.
    pub fn before<D: Domain>(
        &self,
        context: Context<'_, D>,
        level: usize,
        node: Node,
        slice: u64,
    ) -> Next {
        Next::to(node, Hint::between(self.preds[level].slice(context), slice))
    }

    /// The word that leads on `level` past the node of the key, whose own word there is `next`.
    pub fn past<D: Domain>(
        &self,
        context: Context<'_, D>,
        level: usize,
        node: Node,
        next: Next,
    ) -> Next {
        past(context, self.head, self.preds[level], node, next)
    }
}

/// The word that leads from `pred` past `node`, whose own word on that level is `next`.
pub(crate) fn past<D: Domain>(
    context: Context<'_, D>,
    head: Node,
    pred: Node,
    node: Node,
    next: Next,
) -> Next {
    let from = pred.slice(context);
    let hint = if mutant!("skip-hint-of-another") {
        Some(next.hint())
    } else {
        next.hint().over(from, node.slice(context))
    };
    Next::to(next.node(), hint.unwrap_or_else(|| next.node().hint_from(context, from, head)))
}

/// A new node of a key, to which no link leads yet.
#[derive(Debug)]
pub struct NewNode<'op, D: Domain> {
    /// The place of its key, to which its own words lead.
    pub place: &'op Place,
    pub slice: u64,
    pub height: usize,
    pub node: NewBlock<'op, D>,
    /// Its value, if that is a block.
    pub value: Option<NewBlock<'op, D>>,
}

/// A node that is to be linked on `level` too.
#[derive(Clone, Copy, Debug)]
pub struct Raised<'op> {
    pub place: &'op Place,
    pub node: Node,
    pub level: usize,
}

/// A node that was found at a place.
#[derive(Clone, Copy, Debug)]
pub struct Found<'op> {
    pub place: &'op Place,
    pub node: Node,
    /// The value that the record must have, if one is given.
    pub expected: Option<&'op [u8]>,
}

impl Found<'_> {
    /// The state of the node; `None` if it is deleted. An error if it has another value than the
    /// expected one.
    pub fn state<D: Domain>(self, context: Context<'_, D>) -> Result<Option<State>> {
        let Some(expected) = self.expected else {
            let state = self.node.state(context);
            return Ok((!state.is_deleted()).then_some(state));
        };
        match self.node.value(context) {
            Some((_, found)) if found.as_bytes() != expected => Err(Error::ValueMismatch),
            found => Ok(found.map(|(state, _)| state)),
        }
    }
}

/// A marked node, which is linked on `level` behind `node`.
#[derive(Clone, Copy, Debug)]
pub struct MarkedNode {
    pub head: Node,
    pub node: Node,
    pub level: usize,
    /// The word of `node` that leads to it.
    pub next: Next,
    /// Its own word.
    pub behind: Next,
}

/// The result of a remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// This thread has removed the record.
    Done,
    /// Another thread has removed it.
    Deleted,
    /// Another change came first: look again.
    Again,
}

/// The result of an attempt to link a node on one more level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    /// It is linked.
    Done,
    /// Another change came first: look again.
    Again,
    /// The node is being removed.
    Over,
}

/// How links change.
pub trait Links<D: Domain>: Sized + Copy + Debug + Send + Sync + 'static {
    /// A node with a marked successor word may still be linked, and the block where that word leads
    /// may have been reused. So a search starts again there, and on its way unlinks marked nodes.
    const MARKED_STAY: bool;

    /// A node's state has the number of its levels, and an insert may link several at once.
    const COUNTS_LEVELS: bool;

    /// Links the new node on as many levels as one step can. Returns whether it did; it did not if
    /// another change came first.
    fn insert(
        list: &SkipList<D, Self>,
        context: Context<'_, D>,
        new: NewNode<'_, D>,
    ) -> Result<bool>;

    /// Links a node, which is linked on the levels below, on one more.
    fn raise(
        list: &SkipList<D, Self>,
        context: Context<'_, D>,
        raised: Raised<'_>,
    ) -> Result<Raise>;

    /// Removes the node.
    fn remove(
        list: &SkipList<D, Self>,
        context: Context<'_, D>,
        found: Found<'_>,
    ) -> Result<Removal>;

    /// Replaces the value of `node`, which is in `state`. Returns whether it did; it did not if the
    /// state has changed. `Err` without a change if the pool is full.
    fn replace(context: Context<'_, D>, node: Node, state: State, value: &[u8]) -> Result<bool>;

    /// Called for `node`, whose record was found deleted, so that an insert of the same key can
    /// continue.
    fn bury(context: Context<'_, D>, node: Node);

    /// Unlinks a marked node from the list of one level. Returns whether the search may continue
    /// from the node before it.
    fn unlink(context: Context<'_, D>, marked: MarkedNode) -> bool;

    /// The node before `node` on level 0, for a scan backwards; `None` if it must be searched.
    fn before(context: Context<'_, D>, node: Node) -> Option<Node>;
}
