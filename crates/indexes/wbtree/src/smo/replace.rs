//! Copies: a node whose versions are used up, or whose free cells are claimed by threads that have
//! stopped, is replaced by a copy with the first version and no claims.
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | the copy is written | a reserved block |
//! | a free cell of the left neighbour becomes a fence that leads to the copy; one of the parent, the copy's cell | free cells |
//! | one PMwCAS: the node dead, the neighbour with the new fence, the parent (or the entry word) with the new cell; of a leaf, the pointer of the leaf to the right, which leads to the copy | before or after |
//!
//! Keys keep their blocks: the new cells name those of the old ones. If the parent or the neighbour
//! itself has no cell or version left, it is copied first. This recursion ends at the root, and at
//! the first node of the level.

use pando_index::{Error, Result};
use pando_pmem::{Domain, mutant};
use pando_pmwcas::Policy;
use pando_tree::checked::damaged;
use pando_tree::key::{Probe, Target};

use crate::build;
use crate::claim::{Claim, Refused};
use crate::layout::Cell;
use crate::node::{Context, Seen};
use crate::order::Order;
use crate::smo::{Attempt, relink};
use crate::state::State;
use crate::tree::{Found, WbTree};

/// Versions beyond those of ordinary changes, reserved for changes of a fence, and for merges. At
/// the end come as many deletes as there are cells.
pub(super) const FENCE_VERSIONS: u64 = 1000;

/// A node, and its state with one cell exchanged for a new one.
struct Exchange<'op, D: Domain> {
    seen: Seen<'op, D>,
    next: State,
    order: Order,
    _claim: Claim<'op, D>,
}

impl<D: Domain> WbTree<D> {
    /// Copies the node at `off`, on `level`, if it still is the one that holds the key.
    pub(crate) fn replace(
        &self,
        context: Context<'_, D>,
        level: u64,
        probe: Probe<'_>,
        off: u64,
    ) -> Result<Attempt> {
        let Some(found) = self.seek(context, Target::Holding(probe), level)? else {
            return Ok(Attempt::Again);
        };
        if found.node.off != off {
            return Ok(Attempt::Again);
        }
        if let Some(left) = found.crossed {
            self.post(context, left)?;
            return Ok(Attempt::Again);
        }
        let Ok(seen) = found.node.contents(context, found.state) else {
            return Ok(Attempt::Again);
        };

        let parent = match self.seek(context, Target::Holding(probe), level + 1)? {
            None => None,
            Some(found) => {
                let Ok(above) = found.node.contents(context, found.state) else {
                    return Ok(Attempt::Again);
                };
                let Some(place) = above.live().iter().position(|cell| cell.link == off) else {
                    return Ok(Attempt::Again);
                };
                Some((above, place))
            }
        };
        // The left neighbour holds the keys right below the node's range.
        let low = parent.as_ref().map_or(Cell::default(), |(above, place)| above.cells[*place]);
        let low_key = context.key(&low);
        let mut neighbour = None;
        // A key of the neighbour's range leads there: its own lowest.
        let mut neighbour_low = Cell::default();
        if low.block != 0 || low.slice != 0 {
            let before = Target::Before(Probe::new(&low_key));
            let Some(Found { node, state, low, .. }) = self.seek(context, before, level)? else {
                return Ok(Attempt::Again);
            };
            let Ok(left) = node.contents(context, state) else { return Ok(Attempt::Again) };
            if left.fence().link != off {
                return Ok(Attempt::Again);
            }
            neighbour_low = low;
            neighbour = Some(left);
        }

        let left_off = neighbour.as_ref().map_or(0, |left| left.node.off);
        let copy = build::node(context, level, seen.live(), seen.fence(), left_off);
        let copy = copy.map_err(Error::storage)?;
        let copy_off = copy.off();
        let mut exchanged = Vec::new();
        if let Some((above, place)) = parent {
            let (node, state) = (above.node, above.state);
            match Self::exchange(context, above, Some(place), copy_off) {
                Ok(parent) => exchanged.push(parent),
                Err(Refused::Changed) => return Ok(Attempt::Again),
                Err(Refused::NoRoom) => {
                    drop(copy);
                    self.make_room(context, &node, state, probe)?;
                    return Ok(Attempt::Again);
                }
            }
        }
        let is_root = exchanged.is_empty();
        if let Some(left) = neighbour {
            match Self::exchange(context, left, None, copy_off) {
                Ok(_) if mutant!("wbtree-copy-not-linked") => {}
                Ok(left) => exchanged.push(left),
                Err(Refused::Changed) => return Ok(Attempt::Again),
                Err(Refused::NoRoom) => {
                    drop((copy, exchanged));
                    let key = context.key(&neighbour_low);
                    // Each recursion goes farther to the left, so it ends.
                    if *key >= *probe.bytes {
                        return Err(damaged(left_off, "it begins behind the node to its right"));
                    }
                    return self.replace(context, level, Probe::new(&key), left_off);
                }
            }
        }

        let is_done = context.publish(|operation| {
            seen.node.expect(context, operation, seen.state, seen.state.dead())?;
            let entry = if is_root {
                operation.reserve_entry(self.root_off, off, Policy::FreeOldOnSuccess)?
            } else {
                operation.own_block(off, Policy::FreeOldOnSuccess)?
            };
            operation.activate(entry, copy);
            for Exchange { seen, next, .. } in &exchanged {
                seen.node.expect(context, operation, seen.state, *next)?;
            }
            let beyond = if mutant!("wbtree-left-of-a-copy") { 0 } else { seen.fence().link };
            relink(context, operation, level, beyond, copy_off)?;
            Ok(true)
        })?;
        if !is_done {
            return Ok(Attempt::Again);
        }
        for changed in exchanged {
            changed.seen.node.write_slots(context, changed.next, &changed.order);
        }
        Ok(Attempt::Done)
    }

    /// Writes a cell that leads to `off` in place of the one at `place` of the order, or of the
    /// fence, and builds the state with it.
    fn exchange<'op>(
        context: Context<'op, D>,
        seen: Seen<'op, D>,
        place: Option<usize>,
        off: u64,
    ) -> Result<Exchange<'op, D>, Refused> {
        let (node, state, mut order) = (seen.node, seen.state, seen.order);
        let most = context.shape.versions + if place.is_none() { FENCE_VERSIONS } else { 0 };
        if state.version() >= most {
            return Err(Refused::NoRoom);
        }
        let claim = node.claim(context, state, 1, 0)?;
        let at = claim.first();
        let old = place.map_or(seen.fence(), |place| &seen.cells[place]);
        build::write_cell(context, &node, at, &Cell { link: off, ..*old });
        build::flush_cells(context, &node, claim.cells());
        let mut live = state.live(node.kind);
        let mut fence = state.fence();
        match place {
            Some(place) => {
                live = live & !(1 << order.cell(place)) | 1 << at;
                order.set(place, at);
            }
            None => fence = at,
        }
        let next = state.next(node.kind, live, &order, fence);
        Ok(Exchange { seen, next, order, _claim: claim })
    }
}
