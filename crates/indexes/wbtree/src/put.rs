//! The choice of the cell for a put.
//!
//! A cell must be durable before a state names it. If it is *far* from the state, that takes a
//! write-back and a fence of its own, and the swap of the state waits for it. A *near* cell lies in
//! the state's own line, whose stores reach the medium in order: it is stored, then the state
//! is swapped, and one write-back and one fence make both durable. So a put takes a near cell if
//! one is free.
//!
//! If none is free, the put takes far cells: one for itself and one for each live near cell. It
//! copies the near cells there, and the swap that names its own cell also names the copies instead
//! of the originals. The next puts have near cells again. With two near cells, two of three puts
//! take one fence. If there is no room for that, the put takes any cell.
//!
//! | step | near | far |
//! | --- | --- | --- |
//! | cells are claimed | one near cell | the new one's and the copies' |
//! | they are written | | and written back; **fence** |
//! | the state is swapped | a crash leaves it and the cell, or not the state | a crash leaves the state or not |
//! | the state is made durable (`durable.rs`) | | |
//!
//! A copy holds what its original held in the state that was swapped, since a live cell is not
//! written. The original may be written as soon as the later state is in place, like any free cell.
//! An update leaves out the cell that it replaces. Claims for other purposes (fences, merges) get
//! far cells.
//!
//! In a domain without write-backs no cell is near, because no fence is saved.

use pando_index::Error;
use pando_pmem::{Domain, mutant};
use pando_tree::blocks::Blocks;

use crate::build;
use crate::claim::{Claim, Refused};
use crate::commit::commit;
use crate::layout::{Cell, NodeKind};
use crate::node::{Context, Node};
use crate::search::Look;
use crate::state::State;
use crate::tree::WbTree;

/// Cells for a put.
struct Place<'op, D: Domain> {
    claim: Claim<'op, D>,
    is_near: bool,
    /// A bit for each near cell that must be copied to the claimed cells behind the first.
    copied: u64,
}

impl<'op, D: Domain> Place<'op, D> {
    /// Claims the cells of a put, which replaces `old`.
    #[inline]
    fn claim(
        context: Context<'op, D>,
        node: &Node<'_, D>,
        state: State,
        old: Option<u8>,
        is_swap: bool,
    ) -> Result<Self, Refused> {
        let near = if D::needs_write_back() && is_swap { context.shape.near(node.kind) } else { 0 };
        // One cell of each kind stays free for the fence of a split.
        if near != 0 {
            match node.claim_among(context, state, near, 1, 1) {
                Ok(claim) => return Ok(Self { claim, is_near: true, copied: 0 }),
                Err(Refused::Changed) => return Err(Refused::Changed),
                Err(Refused::NoRoom) => {}
            }
            let old = old.filter(|_| !mutant!("wbtree-copy-of-another"));
            let copied = near & state.live(node.kind) & !old.map_or(0, |old| 1 << old);
            match node.claim_among(context, state, !near, 1 + copied.count_ones(), 1) {
                Ok(claim) => return Ok(Self { claim, is_near: false, copied }),
                Err(Refused::Changed) => return Err(Refused::Changed),
                Err(Refused::NoRoom) => {}
            }
        }
        let claim = node.claim(context, state, 1, 1)?;
        Ok(Self { claim, is_near: false, copied: 0 })
    }
}

impl<D: Domain> WbTree<D> {
    /// Puts a cell into a node, in place of the one that was found.
    ///
    /// `Err` means an error of the pool; a refusal is part of the result.
    #[inline]
    pub(crate) fn put_cell<'op>(
        context: Context<'op, D>,
        node: &Node<'_, D>,
        state: State,
        look: &Look,
        cell: &Cell,
        blocks: Blocks<'op, D>,
    ) -> Result<Result<(), Refused>, Box<Error>> {
        if state.version() >= context.shape.versions {
            return Ok(Err(Refused::NoRoom));
        }
        let old = look.found.map(|(old, _)| old);
        let place = match Place::claim(context, node, state, old, blocks.is_none()) {
            Ok(place) => place,
            Err(refused) => return Ok(Err(refused)),
        };
        let Place { claim, is_near, mut copied } = place;
        let is_ordered = node.kind != NodeKind::BitmapOnly;
        let mut order = look.order;
        let mut live = state.live(node.kind) & !old.map_or(0, |old| 1 << old);
        let mut cells = claim.cells();
        let at = cells.next().unwrap_or(0);
        build::write_cell(context, node, at, cell);
        live |= 1 << at;
        if is_ordered {
            if old.is_some() {
                order.remove(look.place);
            }
            order.insert(look.place, at);
        }
        for to in cells {
            let from = copied.trailing_zeros() as u8;
            copied &= copied - 1;
            build::write_cell(context, node, to, &node.cell(context, from));
            if !mutant!("wbtree-original-stays") {
                live &= !(1 << from);
            }
            live |= 1 << to;
            if is_ordered {
                order.replace(from, to);
            }
        }
        let is_near = is_near || mutant!("wbtree-far-as-near");
        if !is_near {
            build::flush_cells(context, node, claim.cells());
        }
        let next = state.next(node.kind, live, &order, state.fence());
        let is_done = commit(context, node, state, next, &order, Some((claim, is_near)), blocks)?;
        Ok(if is_done { Ok(()) } else { Err(Refused::Changed) })
    }
}
