//! The fast descent.
//!
//! It is a loop of its own that only goes down, so that its variables stay in registers. If it
//! meets anything else, it gives up, and the descent of [`tree`](crate::tree) starts again from the
//! root.
//!
//! It needs no pin, only an [`OptimisticRead`], which waits for none of the thread's
//! write-backs. It uses an offset only if the read was still valid after the load: then the node
//! that held the offset was linked at that time, and so was the node at the offset. Before that
//! check any other loaded word may have any value, and is treated so. A search in a tree of fixed
//! records ends here, with the value. A search whose value is in a block pins, since it lends the
//! block. A write pins after the descent; if the read is still valid then, the pin protects as if
//! it had been taken before.
//!
//! A search of fixed records that does not find its key descends again, pinned. Only then it checks
//! whether the key lies beyond the leaf.

use std::sync::atomic::Ordering;

use pando_index::{Error, Result};
use pando_pmem::{Domain, Guard, OptimisticRead, Pool};
use pando_pmwcas::CONTROL_BITS;
use pando_tree::key::Probe;

use crate::durable::settled;
use crate::layout::{HEADER_AT, Header, Shape};
use crate::node::fetch;
use crate::search::{cell_at, compare_all, ones};
use crate::tree::WbTree;

impl<D: Domain> WbTree<D> {
    /// The leaf that the path of live cells leads to; the key may lie beyond it. `None` if the
    /// descent met anything else than a way down.
    #[inline(always)]
    pub(crate) fn descend(
        &self,
        pool: &Pool<D>,
        read: OptimisticRead<'_, D>,
        slice: u64,
    ) -> Option<u64> {
        match self.shape.is_variable {
            true => self.descend_by::<3>(pool, read, slice),
            false => self.descend_by::<2>(pool, read, slice),
        }
    }

    #[inline(always)]
    fn descend_by<const CELL_WORDS: usize>(
        &self,
        pool: &Pool<D>,
        read: OptimisticRead<'_, D>,
        slice: u64,
    ) -> Option<u64> {
        let Shape { node_bytes, inner: kind, .. } = self.shape;
        let is_variable = CELL_WORDS == Shape::cell_words_if(true) as usize;
        let first = kind.cells_at() / 8;
        // Acquire, here and below: pairs with the swap that wrote the offset.
        let mut off = pool.word(self.root_off).load(Ordering::Acquire);
        if off & CONTROL_BITS != 0 || !read.is_valid() {
            return None;
        }
        // The expected header of the next node. Nothing is known of the root.
        const UNKNOWN: u64 = u64::MAX - 1;
        let mut expected = UNKNOWN;
        loop {
            fetch(pool, off, node_bytes);
            let words = pool.words_within(off, node_bytes / 8)?;
            let word = words.at(0, Ordering::Acquire);
            let state = settled(&words, word)?;
            if state.is_dead() {
                return None;
            }
            let top = Header::top_of(words.at(HEADER_AT / 8, Ordering::Relaxed));
            if top != expected && expected != UNKNOWN {
                return None;
            }
            if top == Header::LEAF_TOP {
                return Some(off);
            }
            // It goes down, and therefore ends: a top has 16 bits. Below a damaged root no node is
            // as expected.
            expected = top.wrapping_sub(1);
            let (live, compared) =
                (state.live(kind), compare_all::<D, CELL_WORDS>(&words, kind, slice, u64::MAX));
            if is_variable && compared.equal & live != 0 {
                return None;
            }
            let last = ones(compared.not_above & live).max(1) - 1;
            let cell = cell_at(&words, kind, state, last)?;
            let link = first + (u64::from(cell) + 1) * CELL_WORDS as u64 - 1;
            off = words.get(link, Ordering::Acquire)?;
            // Keys beyond the node are above all its keys.
            let fence = state.fence();
            let is_beyond = || {
                let link = first + (u64::from(fence) + 1) * CELL_WORDS as u64 - 1;
                compared.not_above >> fence & 1 != 0
                    && words.get(link, Ordering::Acquire).is_none_or(|next| next != 0)
            };
            if is_beyond() || words.at(0, Ordering::Acquire) != word || !read.is_valid() {
                return None;
            }
        }
    }

    /// The value of the key in a tree with fixed records, if the fast descent finds it.
    #[inline(always)]
    pub(crate) fn peek(&self, probe: Probe<'_>) -> Result<Option<u64>> {
        let pool = self.pool();
        let read = pool.optimistic_read().map_err(Error::storage)?;
        Ok(self.peek_under(pool, read, probe))
    }

    #[inline(always)]
    fn peek_under(
        &self,
        pool: &Pool<D>,
        read: OptimisticRead<'_, D>,
        probe: Probe<'_>,
    ) -> Option<u64> {
        const CELL_WORDS: u64 = Shape::cell_words_if(false);
        let off = self.descend_by::<{ CELL_WORDS as usize }>(pool, read, probe.slice)?;
        let Shape { node_bytes, leaf: kind, .. } = self.shape;
        let words = pool.words_within(off, node_bytes / 8)?;
        let word = words.at(0, Ordering::Acquire);
        let state = settled(&words, word).filter(|state| !state.is_dead())?;
        let compared =
            compare_all::<D, { CELL_WORDS as usize }>(&words, kind, probe.slice, state.live(kind));
        let equal = compared.equal & state.live(kind);
        if equal == 0 {
            return None;
        }
        let cell = u64::from(equal.trailing_zeros());
        let value = words.at(kind.cells_at() / 8 + cell * CELL_WORDS + 1, Ordering::Acquire);
        (words.at(0, Ordering::Acquire) == word && read.is_valid()).then_some(value)
    }

    /// Pins the thread; returns the leaf that was found before, if the pin protects it.
    #[inline(always)]
    pub(crate) fn pin_at_leaf(&self, probe: Probe<'_>) -> Result<(Guard<'_, D>, Option<u64>)> {
        let pool = self.pool();
        let read = pool.optimistic_read().map_err(Error::storage)?;
        let leaf = self.descend(pool, read, probe.slice);
        let guard = self.pin()?;
        Ok((guard, leaf.filter(|_| read.is_valid())))
    }
}
