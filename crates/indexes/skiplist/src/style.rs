//! How links change: what the two styles of section 7.2 of the paper have to say.
//!
//! All else is the same code: nodes, search, values, scans. In which domain a style runs is another
//! type, so the paper's four primitives are four types:
//!
//! | primitive | style | domain |
//! | --- | --- | --- |
//! | CAS | `SingleWord` (feature `papers`) | `Volatile` |
//! | MwCAS | [`MultiWord`](crate::MultiWord) | `Volatile` |
//! | PCAS | `SingleWord` (feature `papers`) | `Adr`, for measuring: a crash may leave what no code repairs |
//! | PMwCAS | [`MultiWord`](crate::MultiWord) | any |

use std::fmt::Debug;

use pando_index::Result;
use pando_pmem::{Domain, mutant};
use pando_tree::blocks::NewBlock;
use pando_tree::context::Context;

use crate::hint::Hint;
use crate::layout::MAX_HEIGHT;
use crate::list::SkipList;
use crate::node::{Next, Node};
use crate::state::State;

/// Where a key stands on each level.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub head: Node,
    /// The last node before it.
    pub preds: [Node; MAX_HEIGHT],
    /// The word that leads from there to the first that is not; unmarked.
    pub nexts: [Next; MAX_HEIGHT],
    /// Nodes that the search has gone to on the level.
    pub passed: [u8; MAX_HEIGHT],
    /// The node of the key, which stands on level 0 behind `preds[0]`.
    pub found: Option<Node>,
}

impl Place {
    /// The first node on `level` that is not before the key.
    pub fn succ(&self, level: usize) -> Node {
        self.nexts[level].node()
    }

    /// The word for a new node of the key, whose slice is `slice`, that leads from it on `level`.
    pub fn behind<D: Domain>(&self, context: Context<'_, D>, level: usize, slice: u64) -> Next {
        let (pred, next) = (self.preds[level], self.nexts[level]);
        let hint = next.hint().behind(pred.slice(context), slice);
        let hint = hint.unwrap_or_else(|| next.node().hint_from(context, slice, self.head));
        Next::to(next.node(), hint)
    }

    /// The word that leads on `level` to the new node of the key, whose slice is `slice`.
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

/// What became of a remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// This thread has removed the record.
    Done,
    /// Another thread has.
    Deleted,
    /// Something has come between: look again.
    Again,
}

/// What became of linking a node on one more level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    /// It is linked.
    Done,
    /// Something has come between: look again.
    Again,
    /// The node is being removed.
    Over,
}

/// How links change.
pub trait Links: Sized + Copy + Debug + Send + Sync + 'static {
    /// A node whose successor is marked may still be linked, and where that word leads may be in
    /// use for something else: a search begins again, and on its way unlinks what is marked.
    const MARKED_STAY: bool;

    /// A node's state says on how many levels it is linked, and an insert may link several at once.
    const COUNTS_LEVELS: bool;

    /// Links the new node `node`, of that slice and height, with its value's block at `place`,
    /// where its own words lead already, on as many levels as is done at once. Whether it did: not,
    /// if something has come between.
    fn insert<'op, D: Domain>(
        list: &SkipList<D, Self>,
        context: Context<'op, D>,
        place: &Place,
        slice: u64,
        height: usize,
        node: NewBlock<'op, D>,
        value: Option<NewBlock<'op, D>>,
    ) -> Result<bool>;

    /// Links `node`, which is linked on the levels below `level`, on that one too, at `place`.
    fn raise<D: Domain>(
        list: &SkipList<D, Self>,
        context: Context<'_, D>,
        place: &Place,
        node: Node,
        level: usize,
    ) -> Result<Raise>;

    /// Removes the node that `place` has found.
    fn remove<D: Domain>(
        list: &SkipList<D, Self>,
        context: Context<'_, D>,
        place: &Place,
        node: Node,
    ) -> Result<Removal>;

    /// Replaces the value of `node`, which is in `state`. Whether it did: not, if the state is
    /// another by now. `Err` without a change if the pool is full.
    fn replace<D: Domain>(
        context: Context<'_, D>,
        node: Node,
        state: State,
        value: &[u8],
    ) -> Result<bool>;

    /// Does for `node`, whose record was found deleted, what lets an insert of the same key go on.
    fn bury<D: Domain>(context: Context<'_, D>, node: Node);

    /// Takes the node that `next` leads to, whose own word on `level` is `behind` and marked, out
    /// of the list of that level, behind `node`. Whether the search may go on from `node`.
    fn unlink<D: Domain>(
        context: Context<'_, D>,
        head: Node,
        node: Node,
        level: usize,
        next: Next,
        behind: Next,
    ) -> bool;

    /// The node before `node` on level 0, as a scan that goes backwards needs it; `None` if it is
    /// to be searched for.
    fn before<D: Domain>(context: Context<'_, D>, node: Node) -> Option<Node>;
}
