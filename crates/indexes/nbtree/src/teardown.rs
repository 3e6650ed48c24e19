//! The next unit of a tree whose map was dropped: the first leaf of the chain, with the records
//! that have blocks of their own. The entry word then names the next leaf. (`pando_tree::maps` says
//! how units are freed, and what a crash leaves.)

use std::sync::atomic::Ordering;

use pando_pmem::Domain;
use pando_tree::context::Context;
use pando_tree::maps::Unit;

use crate::layout::{
    Content, MARK_AT, NEXT_AT, REPLACED, block_bytes, content, is_pending, mark, value_at,
};

/// The next unit of the tree of leaves with so many slots whose entry word is at `root_off`.
pub(crate) fn next_unit<D: Domain>(context: Context<'_, D>, root_off: u64, slots: usize) -> Unit {
    let pool = context.pool();
    let leaf = context.read(root_off);
    let is_leaf = pool.active_block(leaf).is_some_and(|bytes| bytes >= block_bytes(slots))
        // Relaxed: the word that led here published it.
        && pool.word(leaf + MARK_AT).load(Ordering::Relaxed) == mark(slots);
    if !is_leaf {
        return Unit::passed_over(root_off, leaf);
    }
    let next = context.read(leaf + NEXT_AT);
    let next = if next & REPLACED != 0 || next == leaf { 0 } else { next };
    let record = |slot| {
        // Acquire: pairs with the swap that wrote the record's block.
        let word = pool.word(leaf + value_at(slot)).load(Ordering::Acquire);
        match content(word) {
            // An insert that a crash interrupted has no block any more.
            Content::Record(block) if !is_pending(word) => Some(block),
            _ => None,
        }
    };
    let owned = (0..slots).filter_map(record).collect();
    Unit { owned, ..Unit::of_block(root_off, leaf, next, leaf) }
}
