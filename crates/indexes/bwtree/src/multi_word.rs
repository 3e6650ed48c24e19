//! Changes of pages by PMwCAS: section 6.2 of the PMwCAS paper.
//!
//! # Protocol
//!
//! The mapping table defines the tree, and each change is one PMwCAS over the mapping words that it
//! concerns. So between two changes all of this holds:
//!
//! 1. Every page except the root has one entry in one page of the level above. The range of the
//!    entry is the page's own: from its lowest key to its high key.
//! 2. The side link of a page leads to the page whose range begins where its own ends.
//! 3. A word that belongs to no page is free, or waits for its epoch (`table.rs`).
//!
//! | operation | words of its PMwCAS | blocks | a crash before the PMwCAS leaves | a crash after it |
//! | --- | --- | --- | --- | --- |
//! | insert, modify, delete of a record | the page: from its newest record to the delta. One word, and no blocks: a single-word persistent CAS | long values: the new one freed on failure, the old one on success | a claimed place in a delta space, void | the change |
//! | the same, with deltas in blocks | the same, by PMwCAS | the delta, freed on failure | a reserved block, free again | the change |
//! | consolidation, perhaps with a change of a record | the page: from its newest record to the new base; with a tree's first record, `begun` | the new base, freed on failure; those of the chain, on success | a reserved block | the same records in one base |
//! | split of P | P: to the split delta; a free PID: to the right half; the parent: to the index entry | the right half | the page as it was | two pages |
//! | split of the root | a free PID: to the split delta, behind it the root's content; another: to the right half; the root: to a page with these two children | the right half, the new root | the same | one level more |
//! | merge of R into L | L: to the node merge delta, which leads to R's content; R: to *removed*; the parent: to the index entry delete | none: R's blocks now belong to L | two pages | one |
//! | root collapse | the root: to the content of its only child; the child: to *removed* | the root's, freed on success | the same | one level less |
//!
//! The order in which the code adds the words does not matter: a PMwCAS installs them by
//! ascending address. Before it, a split moves the cursor of free PIDs (`table.rs`), and an insert
//! claims room for its delta (`prepend.rs`): these files say what a crash leaves of that.
//!
//! The deciding word is the status of the PMwCAS (or the page's own mapping word, if it is the only
//! one). The helper is any thread that meets one of its words. Readers, helpers and crashes never
//! see a half-done structure change. So no change must be completed or posted later, and PMwCAS is
//! the only recovery.
//!
//! Why it is enough that the words are as they were read: a mapping word never holds the same link
//! twice while a thread that has read it is pinned. A delta's place is claimed by one thread and
//! published once, and a block is not reused while a thread that has seen it is pinned. So an
//! unchanged word says that nothing of the page has changed since it was read: its records, its
//! range, its side link. An unchanged word of the parent says that it still has the same entry. Two
//! structure changes of one page, or under one parent, share a word, and one of them fails. The
//! word of a removed parent or page has changed too, so no entry for a removed page is ever posted.
//!
//! A change fails only if another one has succeeded, so all operations are lock-free. A failed
//! write is tried again. A failed consolidation, split or merge is left to the next thread that
//! finds it due.
//!
//! # The order of reads
//!
//! A search reads the parent's word and then the child's. In between, the child may have been
//! split. So the search compares its key with the child's high key, and takes the side link if the
//! key lies behind it. Or the child may have been removed. Then the search starts again, because
//! the parent's word has changed too. It cannot reach a page that begins behind its key: low keys
//! never change, and a PID is not used for another page while the thread is pinned. (The root's PID
//! always belongs to the root.)
//!
//! # Where this differs from the paper
//!
//! The paper uses PMwCAS also for a change of one word, since a persistent allocation must pass its
//! block to the word. Here a delta stands beside its base, in room that was allocated with the
//! base. So there is no block to pass, and a single-word persistent CAS is enough; `delta_bytes` 0
//! is the paper's design. The paper's remove-node delta is the word *removed* itself: no thread can
//! see a page that is removed and not merged.

use pando_index::Result;
use pando_pmem::{Domain, mutant};
use pando_pmwcas::{Descriptor, Policy};
use pando_tree::blocks::{Blocks, NewBlock};
use pando_tree::context::Context;

use crate::context::{At, Pid, damaged};
use crate::gather::Gathered;
use crate::layout::{Kind, Link};
use crate::prepend::{NewDelta, Prepared};
use crate::residence::{Noted, Residence};
use crate::style::{Above, Change, Collapse, Merge, Replacement, Split, Style};
use crate::table::{begun_off, stamp};
use crate::tree::{BwTree, MultiWord};

/// Adds the word of `pid`, from `expected` to the delta.
fn add_delta<'op, D: Domain>(
    operation: &mut Descriptor<'_, 'op, D>,
    pid: Pid,
    expected: u64,
    delta: Prepared<'op, D>,
) -> pando_pmwcas::Result<()> {
    match delta {
        Prepared::Beside(link) => operation.add_word(pid, expected, link.0),
        Prepared::Block(link, block) => add_block(operation, pid, expected, link, block),
    }
}

/// Adds the word of `pid`, from `expected` to the link of the block.
pub(crate) fn add_block<'op, D: Domain>(
    operation: &mut Descriptor<'_, 'op, D>,
    pid: Pid,
    expected: u64,
    link: Link,
    block: NewBlock<'op, D>,
) -> pando_pmwcas::Result<()> {
    let entry = operation.reserve_entry(pid, expected, Policy::FreeNewOnFailure)?;
    operation.activate_with_hint(entry, block, link.hint());
    Ok(())
}

pub(crate) fn add_freed<D: Domain>(
    operation: &mut Descriptor<'_, '_, D>,
    freed: &[u64],
) -> pando_pmwcas::Result<()> {
    freed
        .iter()
        .try_for_each(|&block| operation.own_block(block, Policy::FreeOldOnSuccess).map(drop))
}

/// Forgets what was noted for a change that did not take place.
fn forget_unless<D: Domain, S: Residence>(
    done: &Result<bool>,
    tree: &BwTree<D, S>,
    noted: Option<Noted>,
) {
    if let (Ok(false) | Err(_), Some(noted)) = (done, noted) {
        S::forget(tree, noted);
    }
}

/// A style by PMwCAS.
pub(crate) trait ByPmwcas: Residence {}

impl Residence for MultiWord {}

impl ByPmwcas for MultiWord {}

impl<D: Domain, S: ByPmwcas> Style<D> for S {
    #[inline(always)]
    fn prepend(context: Context<'_, D>, at: At, change: Change<'_, D>) -> Result<bool> {
        let Change { delta, values } = change;
        if let (Prepared::Beside(link), true) = (&delta, values.is_none()) {
            // The delta is durable before a word leads to it.
            if !mutant!("bw-delta-not-fenced") {
                D::fence();
            }
            return Ok(context
                .pmwcas
                .compare_exchange(context.guard, at.pid, at.link.0, link.0)
                .is_ok());
        }
        context.publish(|operation| {
            add_delta(operation, at.pid, at.link.0, delta)?;
            values.give_to(operation)?;
            Ok(true)
        })
    }

    fn replace(context: Context<'_, D>, at: At, new: Replacement<'_, D>) -> Result<bool> {
        let Replacement { page, link, freed, values } = new;
        let is_base = link.is_base();
        context.publish(|operation| {
            if is_base {
                add_block(operation, at.pid, at.link.0, link, page)?;
            } else {
                operation.add_word(at.pid, at.link.0, link.0)?;
                Blocks { new: Some(page), old: 0 }.give_to(operation)?;
            }
            if at.link == Link::EMPTY {
                // Only the root of a new tree is empty.
                operation.add_word(begun_off(at.pid), 0, 1)?;
            }
            values.give_to(operation)?;
            add_freed(operation, freed)?;
            Ok(true)
        })
    }

    fn split(tree: &BwTree<D, Self>, context: Context<'_, D>, split: Split<'_, D>) -> Result<bool> {
        let Split { left, split, right, page, is_inner, above } = split;
        let mut noted = None;
        let done = context.publish(|operation| {
            let link = Link::base(page.off(), is_inner);
            add_block(operation, right.pid, right.word, link, page)?;
            let other = match above {
                Above::Parent(parent, entry) => {
                    add_delta(operation, left.pid, left.link.0, split)?;
                    add_delta(operation, parent.pid, parent.link.0, entry)?;
                    parent.pid
                }
                Above::Root(pid, root) => {
                    add_delta(operation, pid.pid, pid.word, split)?;
                    let link = Link::base(root.off(), true);
                    add_block(operation, left.pid, left.link.0, link, root)?;
                    pid.pid
                }
            };
            noted = S::note(tree, context, operation, &[left.pid, right.pid, other])?;
            Ok(noted.is_some())
        });
        forget_unless(&done, tree, noted);
        done
    }

    fn merge(tree: &BwTree<D, Self>, context: Context<'_, D>, merge: Merge<'_, D>) -> Result<bool> {
        let Merge { left, right, separator, parent, delete, .. } = merge;
        let content = right.link.content().0.to_le_bytes();
        let mut delta = NewDelta::new(Kind::NodeMerge, separator);
        delta.value[0] = &content;
        let Some(merge) = delta.prepare(context, left.link, tree.chaining())? else {
            tree.consolidate(context, left, None, tree.room(delta.room()))?;
            return Ok(false);
        };
        let removed = Link::removed_now(context);
        let parent = if mutant!("bw-parent-of-another-time") {
            At::now(context, parent.pid)
        } else {
            parent
        };
        let mut noted = None;
        let done = context.publish(|operation| {
            add_delta(operation, left.pid, left.link.0, merge)?;
            let left_behind = mutant!("bw-left-behind");
            let expected = if left_behind { Link::at(context, right.pid) } else { right.link };
            operation.add_word(right.pid, expected.0, removed.0)?;
            if !mutant!("bw-merge-forgets-parent") {
                add_delta(operation, parent.pid, parent.link.0, delete)?;
            }
            noted = S::note(tree, context, operation, &[left.pid, right.pid, parent.pid])?;
            Ok(noted.is_some())
        });
        forget_unless(&done, tree, noted);
        let done = done?;
        if done {
            stamp(context, right.pid, removed);
        }
        Ok(done)
    }

    fn collapse(
        tree: &BwTree<D, Self>,
        context: Context<'_, D>,
        collapse: Collapse<'_>,
    ) -> Result<bool> {
        let Collapse { root, child, freed } = collapse;
        let removed = Link::removed_now(context);
        let mut noted = None;
        let done = context.publish(|operation| {
            operation.add_word(root.pid, root.link.0, child.link.content().0)?;
            if !mutant!("bw-collapse-torn") {
                operation.add_word(child.pid, child.link.0, removed.0)?;
            }
            if !mutant!("bw-root-leaked") {
                add_freed(operation, freed)?;
            }
            noted = S::note(tree, context, operation, &[root.pid, child.pid])?;
            Ok(noted.is_some())
        });
        forget_unless(&done, tree, noted);
        let done = done?;
        if done {
            stamp(context, child.pid, removed);
        }
        Ok(done)
    }

    /// Nothing: the parent already has the right sibling.
    fn passed_side_link(_: &BwTree<D, Self>, _: Context<'_, D>, _: At) -> Result<()> {
        Ok(())
    }

    /// An undamaged tree has no removal in progress.
    fn complete_removal(_: &BwTree<D, Self>, _: Context<'_, D>, at: At) -> Result<()> {
        Err(damaged(at))
    }

    /// Nothing: changes among the children are complete.
    #[inline(always)]
    fn settle(_: &BwTree<D, Self>, _: Context<'_, D>, _: &Gathered<'_, D>) -> Result<()> {
        Ok(())
    }
}
