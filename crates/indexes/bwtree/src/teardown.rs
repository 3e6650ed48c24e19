//! The next unit of a tree whose map was dropped. It is the page of the first used mapping word of
//! the newest segment, with the blocks of its chain and of its values; then the segment; at last
//! the anchor. The tree is not read: each page has one mapping word. (`pando_tree::maps` says how
//! units are freed, and what a crash leaves.)

use pando_pmem::Domain;
use pando_tree::context::Context;
use pando_tree::maps::Unit;

use crate::audit::check_chain;
use crate::build::each_record;
use crate::context::Pid;
use crate::gather::Gathered;
use crate::layout::{ANCHOR_BYTES, Link, NEXT_SEGMENT_AT, ROOT_AT, SEGMENTS_AT};
use crate::table::{check_segment, words_of};

/// The next unit of the tree whose entry word is at `root_off`.
pub(crate) fn next_unit<D: Domain>(context: Context<'_, D>, root_off: u64) -> Unit {
    let anchor = context.read(root_off);
    if context.pool().active_block(anchor).is_none_or(|bytes| bytes < ANCHOR_BYTES) {
        return Unit::passed_over(root_off, anchor);
    }
    let list = anchor + SEGMENTS_AT;
    let newest = context.read(list);
    if newest != 0 && check_segment(context, newest, anchor).is_err() {
        return Unit::passed_over(list, newest);
    }
    let segment = if newest == 0 { anchor } else { newest };
    // The root's word is not among those for other pages.
    let root = (newest == 0).then_some(anchor + ROOT_AT);
    for pid in words_of(segment, anchor).chain(root) {
        let link = Link::at(context, pid);
        if link != Link::EMPTY && !link.is_removed() {
            return page(context, pid, link);
        }
    }
    if newest == 0 {
        return Unit::of_block(root_off, anchor, 0, anchor);
    }
    let next = context.read(newest + NEXT_SEGMENT_AT);
    Unit::of_block(list, newest, if next == newest { 0 } else { next }, newest)
}

/// The page of `pid`.
fn page<D: Domain>(context: Context<'_, D>, pid: Pid, link: Link) -> Unit {
    let mut unit = Unit::passed_over(pid, link.0);
    if check_chain(context, link, 0, &mut 0).is_err() {
        return unit;
    }
    let Ok(gathered) = Gathered::new(context, link) else { return unit };
    if gathered.level == 0 {
        let owned = &mut unit.owned;
        each_record(&gathered.items(false), |_, value| {
            owned.extend(Some(value.block_off()).filter(|&off| off != 0));
        });
    }
    unit.own = gathered.blocks;
    unit
}
