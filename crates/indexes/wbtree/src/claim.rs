//! Claims of cells: which free cells of a node a thread may write.
//!
//! The claims word has a bit for each claimed cell, and the generation of the claims. Its content
//! is volatile although it lies in the pool: it is never written back on purpose, and is void in
//! the next generation.
//!
//! | step | what it ensures |
//! | --- | --- |
//! | read the claims, then the state | a cell that another thread has published is still claimed in the claims, or live in the state |
//! | add free cells to the claims by a CAS | no other thread writes them |
//! | read the state again | cells that were claimed, published and released in between, which the CAS cannot notice, are live: the claim is released |
//! | write the cells; a state publishes them, or does not | |
//! | release the claim | cells that are not live are free again |
//!
//! A thread that stops for ever keeps its cells. A node that has no room for that reason is copied
//! (`smo/replace.rs`), and the copy has no claims.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Pool, mutant};

use crate::layout::{CLAIMS_AT, MAX_CELLS};
use crate::node::{Changed, Context, Node};
use crate::search::ones;
use crate::state::State;

const CELLS: u64 = (1 << MAX_CELLS) - 1;

/// Cells that this thread may write; released when dropped.
#[derive(Debug)]
pub(crate) struct Claim<'op, D: Domain> {
    pool: &'op Pool<D>,
    node_off: u64,
    cells: u64,
}

/// Why a node is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The state is not the one that was read.
    Changed,
    /// Too few cells are free, or no version is left.
    NoRoom,
}

impl From<Changed> for Refused {
    fn from(Changed: Changed) -> Self {
        Self::Changed
    }
}

impl<D: Domain> Claim<'_, D> {
    /// The claimed cells, from the first.
    pub fn cells(&self) -> impl Iterator<Item = u8> + use<D> {
        let mut left = self.cells;
        std::iter::from_fn(move || {
            let cell = (left != 0).then(|| left.trailing_zeros() as u8)?;
            left &= left - 1;
            Some(cell)
        })
    }

    /// The first claimed cell.
    #[inline(always)]
    pub fn first(&self) -> u8 {
        self.cells.trailing_zeros() as u8
    }
}

impl<D: Domain> Drop for Claim<'_, D> {
    #[inline]
    fn drop(&mut self) {
        // Release: the next thread that claims such a cell sees whether it is live.
        self.pool.word(self.node_off + CLAIMS_AT).fetch_and(!self.cells);
    }
}

impl<D: Domain> Node<'_, D> {
    /// Claims the lowest `count` free cells of the node in `state`, and leaves `spare` others free.
    /// Near cells are taken only if no others are left, because puts need them.
    #[inline]
    pub fn claim<'op>(
        &self,
        context: Context<'op, D>,
        state: State,
        count: u32,
        spare: u32,
    ) -> Result<Claim<'op, D>, Refused> {
        let near = context.shape.near(self.kind);
        match self.claim_among(context, state, CELLS & !near, count, spare) {
            Err(Refused::NoRoom) if near != 0 => {
                self.claim_among(context, state, CELLS, count, spare)
            }
            claimed => claimed,
        }
    }

    /// The same, among the cells that have a bit in `among`; the spare ones may be others.
    #[inline]
    pub fn claim_among<'op>(
        &self,
        context: Context<'op, D>,
        state: State,
        among: u64,
        count: u32,
        spare: u32,
    ) -> Result<Claim<'op, D>, Refused> {
        let pool = context.pool();
        let generation = u64::from(pool.generation()) << MAX_CELLS;
        let all = (1 << self.cells(context)) - 1;
        let word = pool.word(self.off + CLAIMS_AT);
        loop {
            let found = word.load(Ordering::Acquire);
            let claimed = if found & !CELLS == generation { found & CELLS } else { 0 };
            self.still(context, state)?;
            let claimed = if mutant!("wbtree-unclaimed") { 0 } else { claimed };
            let free = all & !(state.used(self.kind) | claimed);
            let mut wanted = free & among;
            if ones(wanted) < count as usize || ones(free) < (count + spare) as usize {
                return Err(Refused::NoRoom);
            }
            let mut cells = 0;
            for _ in 0..count {
                cells |= wanted & wanted.wrapping_neg();
                wanted &= wanted - 1;
            }
            if word.compare_exchange(found, generation | claimed | cells).is_ok() {
                let claim = Claim { pool, node_off: self.off, cells };
                if !mutant!("wbtree-claim-not-rechecked") {
                    self.still(context, state)?;
                }
                return Ok(claim);
            }
        }
    }
}
