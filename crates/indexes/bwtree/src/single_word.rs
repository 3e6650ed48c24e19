//! Changes of pages by single-word CAS: the Bw-tree as in sections III and IV of its paper, with
//! which the PMwCAS paper compares. For measurements, in a pool that need not survive a crash.
//!
//! # Protocol of a split
//!
//! | step | word | what other threads see before the next step |
//! | --- | --- | --- |
//! | 1. the right half gets a PID | its own, which no other thread knows | nothing |
//! | 2. the split delta is prepended | the page's | a *half split*: the right half is found only by the side link |
//! | 3. the index entry is prepended | the parent's | the split |
//!
//! The deciding word is the page's. From then on these threads complete the split: a thread that
//! takes a side link, and a thread that would split or merge one of the two pages. It checks
//! whether the parent has an entry that begins where the right sibling does, and if not, prepends
//! it. It reads the parent's word first and then the page's. If the page still has that side link,
//! its right sibling exists, and the parent as it was read has no entry for it. If another thread
//! has since prepended the entry, or begun to merge the sibling, the parent's word has changed, and
//! the CAS fails. So no entry is posted twice, and none for a removed page. If the parent says
//! instead that the entry is deleted, the sibling is being merged, and the thread completes that
//! (`single_merge.rs`).
//!
//! A page is not split again while its parent has no entry for its right sibling, and neither is a
//! page without an entry: the entry is posted first. So a page has at most one half split, and each
//! index entry ends where the next one begins.
//!
//! If the root splits, the page that takes its content and the right half are made before one CAS
//! of the root's word.
//!
//! # Blocks
//!
//! A block is activated before the CAS that publishes it, and freed after the CAS that makes it
//! unreachable. No record exists from which either would be done after a crash: the PMwCAS paper
//! calls this PCAS.

use std::sync::atomic::Ordering;

use pando_index::Result;
use pando_pmem::{Domain, mutant};
use pando_tree::context::Context;
use pando_tree::key::{Probe, Target};

use crate::context::{At, Pid};
use crate::gather::Gathered;
use crate::layout::{Kind, Link};
use crate::merge::children;
use crate::prepend::{NewDelta, Prepared};
use crate::residence::Residence;
use crate::single_merge::{self, complete_merge, deletes_any, is_deleted};
use crate::single_swap::{SingleWord, activate, exchange, given, swap, take_back};
use crate::style::{Above, Change, Collapse, Merge, Replacement, Split, Style};
use crate::table::begun_off;
use crate::tree::BwTree;

impl Residence for SingleWord {}

impl<D: Domain> Style<D> for SingleWord {
    #[inline(always)]
    fn prepend(context: Context<'_, D>, at: At, change: Change<'_, D>) -> Result<bool> {
        let Change { delta, values } = change;
        if let (Prepared::Beside(link), true) = (&delta, values.is_none()) {
            return Ok(swap(context, at.pid, at.link.0, *link));
        }
        let (link, own) = given(context, delta);
        let value = values.new.map_or(0, |block| activate(context, block));
        Ok(exchange(context, at, link, &[own, value], std::iter::once(values.old)))
    }

    fn replace(context: Context<'_, D>, at: At, new: Replacement<'_, D>) -> Result<bool> {
        let Replacement { page, link, freed, values } = new;
        let off = activate(context, page);
        let value = values.new.map_or(0, |block| activate(context, block));
        let freed = freed.iter().copied().chain([values.old]);
        let is_done = exchange(context, at, link, &[off, value], freed);
        if is_done && at.link == Link::EMPTY {
            let begun = context.pool().word(begun_off(at.pid));
            // Release: pairs with the acquire load of a thread that finds no root.
            begun.store(1, Ordering::Release);
            begun.flush();
        }
        Ok(is_done)
    }

    fn split(tree: &BwTree<D, Self>, context: Context<'_, D>, split: Split<'_, D>) -> Result<bool> {
        let Split { left, split, right, page, is_inner, above } = split;
        if !may_split(tree, context, left, &above)? {
            return Ok(false);
        }
        let page = activate(context, page);
        let right_link = Link::base(page, is_inner);
        if !swap(context, right.pid, right.word, right_link) {
            take_back(context, &[page]);
            return Ok(false);
        }
        let (link, own) = given(context, split);
        let done = match above {
            Above::Parent(parent, entry) => {
                let done = swap(context, left.pid, left.link.0, link);
                if done {
                    let (entry, block) = given(context, entry);
                    if !swap(context, parent.pid, parent.link.0, entry) {
                        take_back(context, &[block]);
                        // The parent has changed. Complete the split as any other thread would.
                        complete(tree, context, left.pid)?;
                    }
                }
                done
            }
            Above::Root(pid, root) => {
                let root = activate(context, root);
                let is_named = swap(context, pid.pid, pid.word, link);
                let done = is_named && swap(context, left.pid, left.link.0, Link::base(root, true));
                if !done {
                    take_back(context, &[root]);
                    if is_named {
                        swap(context, pid.pid, link.0, Link(pid.word));
                    }
                }
                done
            }
        };
        if !done {
            swap(context, right.pid, right_link.0, Link(right.word));
            take_back(context, &[page, own]);
        }
        Ok(done)
    }

    fn merge(tree: &BwTree<D, Self>, context: Context<'_, D>, merge: Merge<'_, D>) -> Result<bool> {
        single_merge::merge(tree, context, merge)
    }

    fn collapse(
        tree: &BwTree<D, Self>,
        context: Context<'_, D>,
        collapse: Collapse<'_>,
    ) -> Result<bool> {
        let Collapse { root, child, .. } = collapse;
        single_merge::collapse(tree, context, root, child)
    }

    fn passed_side_link(tree: &BwTree<D, Self>, context: Context<'_, D>, at: At) -> Result<()> {
        complete(tree, context, at.pid)
    }

    fn complete_removal(tree: &BwTree<D, Self>, context: Context<'_, D>, at: At) -> Result<()> {
        single_merge::complete_removal(tree, context, at)
    }

    fn settle(
        tree: &BwTree<D, Self>,
        context: Context<'_, D>,
        page: &Gathered<'_, D>,
    ) -> Result<()> {
        single_merge::settle(tree, context, page)
    }
}

/// Completes changes in progress at a page that is to be split, and among its children. Returns
/// whether the page may be split now.
fn may_split<D: Domain>(
    tree: &BwTree<D, SingleWord>,
    context: Context<'_, D>,
    left: At,
    above: &Above<'_, D>,
) -> Result<bool> {
    let page = Gathered::new(context, left.link)?;
    if page.level > 0 {
        single_merge::settle(tree, context, &page)?;
    }
    let Above::Parent(parent, _) = above else { return Ok(true) };
    let parent_page = Gathered::new(context, parent.link)?;
    if deletes_any(&parent_page) {
        tree.consolidate(context, *parent, None, tree.room(0))?;
        return Ok(false);
    }
    let is_known = page.high.is_none_or(|high| {
        parent_page.high == Some(high) || children(&parent_page).iter().any(|&(low, _)| low == high)
    });
    if !is_known {
        complete(tree, context, left.pid)?;
    }
    Ok(is_known)
}

/// Makes the parent of `pid` lead to its right sibling, or completes the merge of that sibling, if
/// it has begun.
fn complete<D: Domain>(
    tree: &BwTree<D, SingleWord>,
    context: Context<'_, D>,
    pid: Pid,
) -> Result<()> {
    loop {
        let link = Link::at(context, pid);
        if link.is_removed() || link == Link::EMPTY {
            return Ok(());
        }
        let left = Gathered::new(context, link)?;
        let Some(separator) = left.high else { return Ok(()) };
        let target = Target::Holding(Probe::new(separator));
        let Some((parent, _)) = tree.find_inner(context, target, left.level + 1)? else {
            return Ok(());
        };
        let above = Gathered::new(context, parent.link)?;
        if !mutant!("bw-cas-posted-when-deleted") && is_deleted(&above, separator) {
            return complete_merge(tree, context, left.level, separator);
        }
        let children = children(&above);
        if above.low == separator || children.iter().any(|&(low, _)| low == separator) {
            return Ok(());
        }
        if left.is_leaving {
            return single_merge::complete_removal(tree, context, At { pid, link });
        }
        if Link::at(context, pid) != link {
            continue;
        }
        let next = children.iter().map(|&(low, _)| low).find(|&low| low > separator);
        let end = next.or(above.high);
        let right = left.right.to_le_bytes();
        let mut entry = NewDelta::new(Kind::IndexEntry, separator);
        entry.value = [&right, end.unwrap_or_default(), &[], &[]];
        entry.is_endless = end.is_none();
        let Some(entry_made) = entry.prepare(context, parent.link, tree.chaining())? else {
            tree.make_room(context, parent, entry.room())?;
            continue;
        };
        let (entry, block) = given(context, entry_made);
        if swap(context, parent.pid, parent.link.0, entry) {
            return Ok(());
        }
        take_back(context, &[block]);
    }
}
