//! What goes next of a tree whose map is dropped: the first leaf of the chain, with the records
//! that have blocks of their own. The entry word becomes what follows. (How units are freed, and
//! what a crash leaves, says `pando_tree::maps`.)

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
        // Relaxed: it was published by the word that led here.
        && pool.word(leaf + MARK_AT).load(Ordering::Relaxed) == mark(slots);
    if !is_leaf {
        return Unit::passed_over(root_off, leaf);
    }
    let next = context.read(leaf + NEXT_AT);
    let next = if next & REPLACED != 0 || next == leaf { 0 } else { next };
    let record = |slot| {
        // Acquire: with the swap that put it there.
        let word = pool.word(leaf + value_at(slot)).load(Ordering::Acquire);
        match content(word) {
            // An insert that a crash cut short has no block any more.
            Content::Record(block) if !is_pending(word) => Some(block),
            _ => None,
        }
    };
    let owned = (0..slots).filter_map(record).collect();
    Unit { owned, ..Unit::of_block(root_off, leaf, next, leaf) }
}
