//! Posts: the parent gets a cell for a node that so far is found only through its left
//! neighbour's fence.
//!
//! The deciding word is the parent's state. The left neighbour's fence is read after the
//! parent's state ([`smo`](super) says why). If the level has no parent, the tree grows first:
//! a new root with one child, whose deciding word is the entry word.

use pando_index::{Error, Result};
use pando_pmem::{Domain, mutant};
use pando_pmwcas::Policy;
use pando_tree::blocks::Blocks;
use pando_tree::checked::Steps;
use pando_tree::key::{Probe, Target};

use crate::build;
use crate::claim::Refused;
use crate::layout::Cell;
use crate::node::{Context, Node};
use crate::tree::WbTree;

impl<D: Domain> WbTree<D> {
    /// Posts the node that `left`'s fence leads to.
    pub(crate) fn post(&self, context: Context<'_, D>, left: Node<'_, D>) -> Result<()> {
        let Some(fence) = Self::fence_of(context, &left) else { return Ok(()) };
        let key = context.key(&fence);
        let probe = Probe::new(&key);
        let mut steps = Steps::of_attempts();
        loop {
            steps.take(context.guard, left.off)?;
            let Some(found) = self.seek(context, Target::Holding(probe), left.level + 1)? else {
                let root = self.root(context);
                // If the left node is alive, it is not above the root that was read before.
                let is_blind = mutant!("wbtree-grown-above-a-lower-root");
                if !is_blind && Self::fence_of(context, &left) != Some(fence) {
                    return Ok(());
                }
                if root.level == left.level || is_blind && root.level < left.level {
                    self.grow(context, root, left.level)?;
                }
                continue;
            };
            let (parent, state) = (found.node, found.state);
            let Ok(look) = parent.look(context, state, probe) else { continue };
            // The node was posted or merged, or its left neighbour was merged or split again. A
            // thread that passes the new fence posts the node.
            if look.found.is_some() || Self::fence_of(context, &left) != Some(fence) {
                return Ok(());
            }
            let (child, new) = build::cell(context, probe, &[], fence.link)?;
            let blocks = Blocks { new, old: 0 };
            let put = Self::put_cell(context, &parent, state, &look, &child, blocks);
            match put.map_err(|error| *error)? {
                Ok(()) => return Ok(()),
                Err(Refused::Changed) => {}
                Err(Refused::NoRoom) => self.make_room(context, &parent, state, probe)?,
            }
        }
    }

    /// The fence of a node that is alive, and has a next one.
    fn fence_of(context: Context<'_, D>, node: &Node<'_, D>) -> Option<Cell> {
        let mut steps = Steps::of_attempts();
        while steps.take(context.guard, node.off).is_ok() {
            let state = node.state(context);
            if state.is_dead() {
                return None;
            }
            if let Ok(fence) = node.fence(context, state) {
                return (fence.link != 0).then_some(fence);
            }
        }
        None
    }

    /// Puts a new root above `root`, which is on `level`, if that is still the root.
    fn grow(&self, context: Context<'_, D>, root: Node<'_, D>, level: u64) -> Result<()> {
        let child = Cell { slice: 0, block: 0, link: root.off };
        let block = build::node(context, level + 1, &[child], &Cell::default(), 0);
        let block = block.map_err(Error::storage)?;
        // A failure means that there is another root.
        context.publish(|operation| {
            let policy = Policy::FreeNewOnFailure;
            let entry = operation.reserve_entry(self.root_off, root.off, policy)?;
            operation.activate(entry, block);
            Ok(true)
        })?;
        Ok(())
    }
}
