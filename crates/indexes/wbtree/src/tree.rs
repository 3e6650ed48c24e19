//! The tree: its handle, and the descent from the root.
//!
//! A descent goes from a child in one state of its parent to that child. The child was alive when
//! the parent had that state, so the lower bound of its range was not above the key. The lower
//! bound never changes while the node is alive, since splits and merges move only the upper end. If
//! the key lies beyond the upper end, the fence leads to the next node, which is alive as long as
//! the fence names it. At a dead node the descent starts again from the root. So the node in which
//! a descent ends has the key in its range, in the state that the descent returns.
//!
//! # Why a descent ends
//!
//! *A live node and the entry word lead only to nodes that are alive.* A node dies by one PMwCAS
//! that changes all words that lead to it. A merge changes the state of the parent and that of the
//! left neighbour. A copy changes both too; for the first node of a level only the parent's
//! state, for the root the entry word. A collapse, and the drop of the map, change the entry word.
//! So if a thread has seen a dead node, and reads the words that led there after that, it finds
//! another state or another entry word.
//!
//! In an undamaged tree no descent reaches the same dead node twice, since the node's block is
//! not allocated again while the guard is held. If that happens, the node's state is damaged,
//! or PMwCAS cannot read it, which reads as dead; the descent ends with [`Error::Damaged`]. The
//! other loops that read a node again check the same: a merge checks whether the parent that leads
//! to a dead child has changed; a collapse checks whether the dead root still is the root.

use pando_index::{Error, Result};
use pando_pmem::{Domain, Guard, mutant};
use pando_tree::checked::{Steps, damaged};
use pando_tree::deref_to_handle;
use pando_tree::handle::Handle;
use pando_tree::key::{Probe, Target};

use crate::layout::{Cell, Shape};
use crate::node::{Changed, Context, Node};
use crate::options::Options;
use crate::state::State;

/// A wB+-Tree in a pool. All its state is in the pool. Any number of handles may be open.
#[derive(Clone, Debug)]
pub struct WbTree<D: Domain> {
    pub(crate) handle: Handle<D, Options>,
    pub(crate) shape: Shape,
}

deref_to_handle!(WbTree<D>, Options);

/// A live node or the entry word leads to a dead node.
#[cold]
pub(crate) fn dead(off: u64) -> Error {
    damaged(off, "it is marked as replaced, and still linked")
}

/// Where a descent has ended.
#[derive(Debug)]
pub(crate) struct Found<'op, D: Domain> {
    pub node: Node<'op, D>,
    pub state: State,
    /// A cell whose key is not above the lowest of the node's range; all zero for the smallest
    /// key.
    pub low: Cell,
    /// A node whose fence was followed, so that the next node may have no cell in its parent.
    pub crossed: Option<Node<'op, D>>,
}

/// Where to go from a node.
enum Step {
    /// The node has the target in its range.
    Here,
    /// To the next of the level, beyond this fence.
    Next(Cell),
    /// To this child.
    Down(Cell),
}

impl<D: Domain> WbTree<D> {
    #[inline(always)]
    pub(crate) fn context<'op>(&'op self, guard: &'op Guard<'_, D>) -> Context<'op, D> {
        Context { context: self.handle.context(guard), shape: self.shape }
    }

    #[inline(always)]
    pub(crate) fn root<'op>(&self, context: Context<'op, D>) -> Node<'op, D> {
        context.node(context.read(self.root_off))
    }

    /// The node of `level` with the target in its range; `None` if the tree is not that high.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if a node on the path is dead each time: its state is damaged.
    #[inline]
    pub(crate) fn seek<'op>(
        &self,
        context: Context<'op, D>,
        target: Target<'_>,
        level: u64,
    ) -> Result<Option<Found<'op, D>>> {
        // The dead node because of which the descent last started again.
        let mut last_dead = 0;
        let mut steps = Steps::of_attempts();
        'root: loop {
            let (mut low, mut crossed) = (Cell::default(), None);
            let mut node = self.root(context);
            if node.level < level {
                return Ok(None);
            }
            loop {
                steps.take(context.guard, node.off)?;
                let state = node.state(context);
                if state.is_dead() {
                    if last_dead == node.off {
                        return Err(dead(node.off));
                    }
                    last_dead = node.off;
                    continue 'root;
                }
                match Self::step(context, &node, state, target, level) {
                    Err(Changed) => {}
                    Ok(Step::Here) => return Ok(Some(Found { node, state, low, crossed })),
                    Ok(Step::Next(fence)) => {
                        crossed = Some(node);
                        low = fence;
                        node = Self::entered(context, fence.link, node.level)?;
                    }
                    Ok(Step::Down(cell)) => {
                        low = cell;
                        node = Self::entered(context, cell.link, node.level - 1)?;
                    }
                }
            }
        }
    }

    /// The node at `off`, which is of `level`.
    #[inline(always)]
    fn entered<'op>(context: Context<'op, D>, off: u64, level: u64) -> Result<Node<'op, D>> {
        let node = context.node(off);
        if node.level == level {
            Ok(node)
        } else {
            Err(damaged(off, "it is no node of the level that leads there"))
        }
    }

    #[inline(always)]
    fn step(
        context: Context<'_, D>,
        node: &Node<'_, D>,
        state: State,
        target: Target<'_>,
        level: u64,
    ) -> Result<Step, Changed> {
        if node.level == level {
            let fence = node.is_beyond(context, state, target)?;
            return Ok(fence.map_or(Step::Here, Step::Next));
        }
        Self::step_down(context, node, state, target)
    }

    fn step_down(
        context: Context<'_, D>,
        node: &Node<'_, D>,
        state: State,
        target: Target<'_>,
    ) -> Result<Step, Changed> {
        let (child, is_last) = node.child(context, state, target)?;
        let child = node.cell(context, child);
        // Keys beyond the node are beyond its last child.
        if is_last && let Some(fence) = node.is_beyond(context, state, target)? {
            return Ok(Step::Next(fence));
        }
        node.still(context, state)?;
        Ok(Step::Down(child))
    }

    /// The leaf that holds the key. If there is a `hint`, the search begins there: an earlier
    /// descent for the key ended at it.
    #[inline]
    pub(crate) fn seek_leaf<'op>(
        &self,
        context: Context<'op, D>,
        probe: Probe<'_>,
        hint: Option<u64>,
    ) -> Result<Found<'op, D>> {
        if let Some(off) = hint {
            let node = context.fetched_node(off);
            let state = node.state(context);
            if !state.is_dead()
                && (mutant!("wbtree-writer-passes-fence-over")
                    || node.is_beyond(context, state, Target::Holding(probe)) == Ok(None))
            {
                let low = Cell::default();
                return Ok(Found { node, state, low, crossed: None });
            }
        }
        let mut steps = Steps::of_attempts();
        loop {
            if let Some(found) = self.seek(context, Target::Holding(probe), 0)? {
                return Ok(found);
            }
            steps.take(context.guard, self.root_off)?;
        }
    }

    /// The record of the key, at `hint`, or found from the root.
    #[inline(always)]
    pub(crate) fn lookup(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
        hint: Option<u64>,
    ) -> Result<Option<Cell>> {
        if let Some(off) = hint {
            let leaf = context.fetched_node(off);
            let state = leaf.state(context);
            if !state.is_dead()
                && let Ok(Some((_, cell))) = leaf.search(context, state, probe)
            {
                return Ok(Some(cell));
            }
            if mutant!("wbtree-fence-passed-over") {
                return Ok(None);
            }
        }
        self.lookup_among(context, probe, hint)
    }

    /// The same, for an absent record, or if the leaf was not found at once.
    #[inline(never)]
    fn lookup_among(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
        mut hint: Option<u64>,
    ) -> Result<Option<Cell>> {
        let mut steps = Steps::of_attempts();
        loop {
            let found = self.seek_leaf(context, probe, hint.take())?;
            if let Ok(found) = found.node.search(context, found.state, probe) {
                return Ok(found.map(|(_, cell)| cell));
            }
            steps.take(context.guard, found.node.off)?;
        }
    }
}
