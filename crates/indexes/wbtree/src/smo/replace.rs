//! Copies: a node whose versions run out, or whose free cells are claimed by threads that have
//! stopped, gives way to a copy with the first version and no claims.
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | the copy is written | a reserved block |
//! | a free cell of the left neighbour becomes a fence that leads to the copy; one of the parent, the copy's cell | free cells |
//! | one PMwCAS: the node dead, the neighbour with the new fence, the parent (or the entry word) with the new cell; of a leaf, the pointer of the leaf to the right, which leads to the copy | before or after |
//!
//! Keys keep their blocks: the new cells name those of the old ones. A parent or neighbour that has
//! itself no cell or version is copied first; that ends at the root, and at the first node of the
//! level.

use pando_index::Error;
use pando_pmem::{Domain, mutant};
use pando_pmwcas::Policy;
use pando_tree::checked::damaged;

use crate::build;
use crate::claim::NoClaim;
use crate::layout::Cell;
use crate::node::{Context, Node, Probe, Seek};
use crate::order::Order;
use crate::smo::{Attempt, relink};
use crate::state::State;
use crate::tree::{Found, WbTree};

/// Versions beyond those of ordinary changes that are left to changes of a fence, and to merges. At
/// last come as many deletes as there are cells.
pub(super) const FENCE_VERSIONS: u64 = 1000;

/// A cell that leads to the node which is copied.
struct Leading<'op, D: Domain> {
    node: Node<'op, D>,
    state: State,
    order: Order,
    /// Its place in the order; `None` of the fence.
    place: Option<usize>,
    cell: Cell,
}

/// A node with such a cell exchanged for another that has been written.
struct Exchange<'op, 'pool, D: Domain> {
    node: Node<'op, D>,
    state: State,
    next: State,
    order: Order,
    _claim: crate::claim::Claim<'pool, D>,
}

/// Why there is no exchange.
enum NoExchange {
    /// Look again.
    Changed,
    /// The node has no free cell, or no version: it is to be copied first.
    NoRoom,
}

impl<D: Domain> WbTree<D> {
    /// Copies the node at `off`, of `level`, if it still is the one that holds the key.
    pub(crate) fn replace(
        &self,
        context: Context<'_, '_, D>,
        level: u64,
        probe: Probe<'_>,
        off: u64,
    ) -> Result<Attempt, Error> {
        let Some(found) = self.seek(context, Seek::Holding(probe), level)? else {
            return Ok(Attempt::Again);
        };
        if found.node.off != off {
            return Ok(Attempt::Again);
        }
        if let Some(left) = found.crossed {
            self.post(context, left)?;
            return Ok(Attempt::Again);
        }
        let (node, state) = (found.node, found.state);
        let Ok((order, cells)) = node.contents(context, state) else { return Ok(Attempt::Again) };
        let (live, fence) = cells.split_at(order.len());

        let parent = match self.seek(context, Seek::Holding(probe), level + 1)? {
            None => None,
            Some(Found { node, state, .. }) => {
                let Ok((order, cells)) = node.contents(context, state) else {
                    return Ok(Attempt::Again);
                };
                let children = &cells[..order.len()];
                let Some(place) = children.iter().position(|cell| cell.link == off) else {
                    return Ok(Attempt::Again);
                };
                let cell = children[place];
                Some(Leading { node, state, order, place: Some(place), cell })
            }
        };
        // The left neighbour is the one that holds the keys right below the node's range.
        let low = parent.as_ref().map_or(Cell::default(), |parent| parent.cell);
        let low_key = context.key(&low);
        let is_first = low.block == 0 && low.slice == 0;
        let mut neighbour = None;
        // Some key of the neighbour's range leads there: its own lowest.
        let mut neighbour_low = Cell::default();
        if !is_first {
            let below = Seek::Below(Probe::new(&low_key));
            let Some(Found { node, state, low, .. }) = self.seek(context, below, level)? else {
                return Ok(Attempt::Again);
            };
            let Ok(cell) = node.fence(context, state) else { return Ok(Attempt::Again) };
            let Ok(order) = node.order(context, state) else { return Ok(Attempt::Again) };
            if cell.link != off {
                return Ok(Attempt::Again);
            }
            neighbour_low = low;
            neighbour = Some(Leading { node, state, order, place: None, cell });
        }

        let left = neighbour.as_ref().map(|neighbour| neighbour.node);
        let left_off = left.map_or(0, |left| left.off);
        let copy = build::node(context, level, live, &fence[0], left_off);
        let copy = copy.map_err(Error::storage)?;
        let copy_off = copy.off();
        let above = parent.as_ref().map(|parent| (parent.node, parent.state));
        let parent = parent.map(|parent| Self::exchange(context, parent, copy_off));
        let parent = match (parent.transpose(), above) {
            (Ok(parent), _) => parent,
            (Err(NoExchange::NoRoom), Some((node, state))) => {
                drop(copy);
                self.make_room(context, &node, state, probe)?;
                return Ok(Attempt::Again);
            }
            (Err(_), _) => return Ok(Attempt::Again),
        };
        let neighbour = neighbour.map(|neighbour| Self::exchange(context, neighbour, copy_off));
        let neighbour = match neighbour.transpose() {
            Ok(neighbour) => neighbour,
            Err(NoExchange::NoRoom) => {
                drop((copy, parent));
                let key = context.key(&neighbour_low);
                // Ever further to the left, so that it ends.
                if *key >= *probe.bytes {
                    return Err(damaged(left_off, "it begins behind the node to its right"));
                }
                return self.replace(context, level, Probe::new(&key), left_off);
            }
            Err(NoExchange::Changed) => return Ok(Attempt::Again),
        };

        let mut operation = context.pmwcas.allocate(context.guard).map_err(Error::storage)?;
        let prepared = (|| {
            node.expect(context, &mut operation, state, state.dead())?;
            let entry = match &parent {
                Some(parent) => {
                    parent.node.expect(context, &mut operation, parent.state, parent.next)?;
                    operation.own_block(off, Policy::FreeOldOnSuccess)?
                }
                None => operation.reserve_entry(self.root_off, off, Policy::FreeOldOnSuccess)?,
            };
            operation.activate(entry, copy);
            if let Some(left) = neighbour.as_ref().filter(|_| !mutant!("wbtree-copy-not-linked")) {
                left.node.expect(context, &mut operation, left.state, left.next)?;
            }
            let beyond = if mutant!("wbtree-left-of-a-copy") { 0 } else { fence[0].link };
            relink(context, &mut operation, level, beyond, copy_off)?;
            Ok::<_, pando_pmwcas::Error>(())
        })();
        prepared.map_err(Error::storage)?;
        if !operation.execute() {
            return Ok(Attempt::Again);
        }
        for changed in [parent, neighbour].into_iter().flatten() {
            changed.node.write_slots(context, changed.next, &changed.order);
        }
        Ok(Attempt::Done)
    }

    /// Writes a cell that leads to `off` instead, and the state in which it stands for the one that
    /// leads.
    fn exchange<'op, 'pool>(
        context: Context<'op, 'pool, D>,
        leading: Leading<'op, D>,
        off: u64,
    ) -> Result<Exchange<'op, 'pool, D>, NoExchange> {
        let Leading { node, state, mut order, place, cell } = leading;
        let most = context.shape.versions + if place.is_none() { FENCE_VERSIONS } else { 0 };
        if state.version() >= most {
            return Err(NoExchange::NoRoom);
        }
        let claim = node.claim(context, state, 1, 0).map_err(|why| match why {
            NoClaim::Changed => NoExchange::Changed,
            NoClaim::NoRoom => NoExchange::NoRoom,
        })?;
        let at = claim.first();
        build::write_cell(context, &node, at, &Cell { link: off, ..cell });
        build::flush_cells(context, &node, claim.cells());
        let mut live = state.live(node.kind);
        let mut fence = state.fence();
        match place {
            Some(place) => {
                let old = order.cell(place);
                live = live & !(1 << old) | 1 << at;
                order.set(place, at);
            }
            None => fence = at,
        }
        let next = state.next(node.kind, live, &order, fence);
        Ok(Exchange { node, state, next, order, _claim: claim })
    }
}
