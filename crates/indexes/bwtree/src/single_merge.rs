//! Merges and the root's collapse by single-word CAS: section IV.B of `bwtree.txt`.
//!
//! # Protocol of a merge of R into its left neighbour
//!
//! K is where R begins, P the parent of both.
//!
//! | step | word | what others see before the next |
//! | --- | --- | --- |
//! | 1. the index entry delete of K is prepended | P's | what a half split looks like, but that P says so: R is found by the side link alone, and takes reads and writes still |
//! | 2. the *remove-node* delta is prepended | R's | R is *leaving*: it changes no more, and who comes to it completes its removal |
//! | 3. the node merge delta, with R's content, is prepended | that of the page before R | all of R's records, in the page before it |
//! | 4. *removed* | R's | the merge; the PID waits for its epoch |
//!
//! The deciding word is P's. From then on anyone completes it: who would take the side link to R
//! (`complete` of `single_word.rs`), who comes to R when it is leaving, and who would put another
//! base in the place of P's chain, split P, or merge under P again. Each finds out by itself how
//! far it is: it goes to the page that holds what is right before K. If that page ends at K, the
//! merge is not over, and its right sibling is R; if it ends behind K, step 3 is done.
//!
//! Why the page right of K is R and no other: a page that is to be split at K holds K within. It is
//! read first, and its parent then; if K's index entry delete stands in the parent's chain, the
//! chain is consolidated first. If that is prepended later, there was a page that began at K by
//! then, so the page that was to be split has changed, and its CAS fails. So while P's chain says
//! that K is deleted, no page begins at K but R. And the chain says so until another base takes its
//! place, for which the merge must be over: P can neither be split between L and R, nor be merged,
//! meanwhile.
//!
//! Who comes late may find another page that begins at K, which has its entry. So step 2 is made
//! only if the parent still says, after R's word was read, that K is deleted; then R is still to be
//! marked, or its word has changed. And a page that is leaving already, whichever it is, is to be
//! merged.
//!
//! Why no index entry for R is posted again: who posts one has read of P that K is not deleted, and
//! P has changed since.
//!
//! Why nothing is lost of R: step 3 takes the content that the remove-node delta was prepended to,
//! and from then on R's word changes only to *removed*. And not twice: the page before R ends
//! behind K after step 3, and its word has changed.
//!
//! What is read in R before step 2 was so when R's word was read; after that nobody reads R. (A
//! page may be split once more between 1 and 3: then the page before R is another, and is found as
//! such.)
//!
//! Completing may have to consolidate a page, for which other merges are completed. That comes to
//! an end: those are of keys before K (or below R, of which this holds again), and a page that is
//! met on the way to what is right before a key, and is leaving itself, begins before that key.
//! Half splits are passed by, and left to others.
//!
//! # Protocol of the root's collapse
//!
//! | step | word | what others see before the next |
//! | --- | --- | --- |
//! | 1. the remove-node delta is prepended | the only child's | it is leaving |
//! | 2. the content of the child | the root's | the collapse |
//! | 3. *removed* | the child's | the PID waits for its epoch |
//!
//! The deciding word is the child's. It was read first, and says that nothing is behind the child;
//! then the root, that it leads to this child alone. While the child's word is unchanged there is
//! one page on its level, so the root stays that child's parent, and stays alone. Who comes to the
//! child looks whether the root leads there, and does what is left.
//!
//! # Where we leave the paper
//!
//! It marks R first, and takes the index entry out of the parent last. But between the two the
//! parent may be split right at R, whose entry is then the first of another page than L's, and
//! cannot be deleted without one of L's taking its place. Here the parent decides first.

use pando_index::Result;
use pando_pmem::{Domain, mutant};
use pando_tree::context::Context;
use pando_tree::key::{Probe, Target};

use crate::context::{At, damaged};
use crate::gather::Gathered;
use crate::layout::{Kind, Link};
use crate::merge::children;
use crate::page::Delta;
use crate::prepend::NewDelta;
use crate::search::Route;
use crate::single_swap::{SingleWord, exchange, free, given, swap};
use crate::style::Merge;
use crate::table::stamp;
use crate::tree::BwTree;

type Tree<D> = BwTree<D, SingleWord>;

/// Merges a page into its left neighbour; whether that has begun, and then it is done.
pub(crate) fn merge<D: Domain>(
    tree: &Tree<D>,
    context: Context<'_, D>,
    merge: Merge<'_, D>,
) -> Result<bool> {
    let Merge { separator, parent, delete, level, .. } = merge;
    settle(tree, context, &Gathered::new(context, parent.link)?)?;
    let (link, own) = given(context, delete);
    if !exchange(context, parent, link, &[own], std::iter::empty()) {
        return Ok(false);
    }
    complete_merge(tree, context, level, separator)?;
    Ok(true)
}

/// Completes the merges of children whose index entries are deleted in this page's chain.
pub(crate) fn settle<D: Domain>(
    tree: &Tree<D>,
    context: Context<'_, D>,
    page: &Gathered<'_, D>,
) -> Result<()> {
    for edit in
        page.edits.iter().filter(|edit| !mutant!("bw-cas-unsettled") && edit.value.is_none())
    {
        complete_merge(tree, context, page.level - 1, edit.key)?;
    }
    Ok(())
}

/// Completes the merge of the page on `level` that begins at `key`, if it is not over. By the time
/// that this looks, it may be over, and another page may begin there.
pub(crate) fn complete_merge<D: Domain>(
    tree: &Tree<D>,
    context: Context<'_, D>,
    level: u8,
    key: &[u8],
) -> Result<()> {
    loop {
        let Some(left) = page_before(tree, context, level, key)? else { return Ok(()) };
        let before = Gathered::new(context, left.link)?;
        if before.is_leaving {
            // It begins before the key, so that this goes ever further to the left, and ends.
            if before.low >= key {
                return Err(damaged(left));
            }
            complete_removal(tree, context, left)?;
            continue;
        }
        if before.high != Some(key) {
            return Ok(());
        }
        let Some(right) = tree.arrive(context, left, before.right)? else { continue };
        let page = Gathered::new(context, right.link)?;
        if !page.is_leaving {
            if !mutant!("bw-cas-marked-late") && !is_still_deleted(tree, context, level, key)? {
                return Ok(());
            }
            mark(tree, context, right, &page)?;
            continue;
        }
        let content = content_of(context, right)?;
        if before.parts.len() > 1 {
            tree.consolidate(context, left, None, 0)?;
            continue;
        }
        let bytes = content.0.to_le_bytes();
        let mut delta = NewDelta::new(Kind::NodeMerge, key);
        delta.value[0] = &bytes;
        let Some(delta) = delta.prepare(context, left.link, tree.chaining())? else {
            tree.consolidate(context, left, None, delta.room())?;
            continue;
        };
        let (link, own) = given(context, delta);
        if exchange(context, left, link, &[own], std::iter::empty()) {
            retire(context, right);
            return Ok(());
        }
    }
}

/// Whether the parent's chain says now that the entry at `key` is deleted. If so, the page that
/// begins there is to be merged, and it stays so until that page is leaving: whoever has read its
/// word before may mark it.
fn is_still_deleted<D: Domain>(
    tree: &Tree<D>,
    context: Context<'_, D>,
    level: u8,
    key: &[u8],
) -> Result<bool> {
    let target = Target::Before(Probe::new(key));
    match tree.find_inner_by(context, target, level + 1, Tree::pass_side_link)? {
        Some((parent, _)) => Ok(is_deleted(&Gathered::new(context, parent.link)?, key)),
        None => Ok(false),
    }
}

/// The page on `level` that holds what is right before `key`; `None` if the tree is not so high.
fn page_before<D: Domain>(
    tree: &Tree<D>,
    context: Context<'_, D>,
    level: u8,
    key: &[u8],
) -> Result<Option<At>> {
    let target = Target::Before(Probe::new(key));
    'parent: loop {
        // Not by `step_right`, which would complete what is passed, and come here again.
        let found = tree.find_inner_by(context, target, level + 1, Tree::pass_side_link)?;
        let Some((parent, pid)) = found else { return Ok(None) };
        let Some(mut at) = tree.arrive(context, parent, pid)? else { continue };
        while let Route::Right(right) = at.link.route(context, target)? {
            let Some(next) = tree.pass_side_link(context, at, right)? else { continue 'parent };
            at = next;
        }
        return Ok(Some(at));
    }
}

/// Prepends the remove-node delta, if the page's content is of one base; else it is consolidated
/// first. Merges under way among its children go over with it. Whether it is marked now.
fn mark<D: Domain>(
    tree: &Tree<D>,
    context: Context<'_, D>,
    at: At,
    page: &Gathered<'_, D>,
) -> Result<bool> {
    let delta = NewDelta::new(Kind::RemoveNode, &[]);
    if page.parts.len() > 1 {
        tree.consolidate(context, at, None, delta.room())?;
        return Ok(false);
    }
    let Some(prepared) = delta.prepare(context, at.link, tree.chaining())? else {
        tree.consolidate(context, at, None, delta.room())?;
        return Ok(false);
    };
    let (link, own) = given(context, prepared);
    Ok(exchange(context, at, link, &[own], std::iter::empty()))
}

/// What the remove-node delta of a page was prepended to.
fn content_of<D: Domain>(context: Context<'_, D>, at: At) -> Result<Link> {
    match Delta::of(context, at.link)? {
        Some(delta) if delta.info.kind == Kind::RemoveNode => Ok(delta.next()),
        _ => Err(damaged(at)),
    }
}

/// Takes the page's PID out of use, when its content is another's.
fn retire<D: Domain>(context: Context<'_, D>, at: At) {
    let own = match Delta::of(context, at.link) {
        Ok(Some(delta)) if delta.info.is_own => delta.off,
        _ => 0,
    };
    let removed = Link::removed_now(context);
    if swap(context, at.pid, at.link.0, removed) {
        free(context, std::iter::once(own));
        stamp(context, at.pid, removed);
    }
}

/// Completes the removal of a page that is leaving.
pub(crate) fn complete_removal<D: Domain>(
    tree: &Tree<D>,
    context: Context<'_, D>,
    at: At,
) -> Result<()> {
    let page = Gathered::new(context, at.link)?;
    match page.low {
        [] => complete_collapse(tree, context, at)?,
        low => complete_merge(tree, context, page.level, low)?,
    }
    retire(context, at);
    Ok(())
}

/// Lets the root take the content of its only child; whether it did.
pub(crate) fn collapse<D: Domain>(
    tree: &Tree<D>,
    context: Context<'_, D>,
    root: At,
    child: At,
) -> Result<bool> {
    let page = Gathered::new(context, child.link)?;
    // Looked at behind the child's word: it leads to this child alone, now.
    if Link::at(context, root.pid) != root.link || page.high.is_some() {
        return Ok(false);
    }
    if !mark(tree, context, child, &page)? {
        return Ok(false);
    }
    let child = At::now(context, child.pid);
    if !child.link.is_removed() {
        complete_removal(tree, context, child)?;
    }
    Ok(true)
}

fn complete_collapse<D: Domain>(tree: &Tree<D>, context: Context<'_, D>, child: At) -> Result<()> {
    let content = content_of(context, child)?;
    loop {
        let root = tree.root(context)?;
        if !root.link.is_inner() {
            return Ok(());
        }
        let page = Gathered::new(context, root.link)?;
        if !matches!(children(&page).as_slice(), [(_, only)] if *only == child.pid) {
            return Ok(());
        }
        if exchange(context, root, content, &[], page.blocks.into_iter()) {
            return Ok(());
        }
    }
}

/// Whether the page's chain says that the entry of the child that begins at `key` is deleted.
pub(crate) fn is_deleted<D: Domain>(page: &Gathered<'_, D>, key: &[u8]) -> bool {
    page.edits.iter().any(|edit| edit.key == key && edit.value.is_none())
}

/// Whether the page's chain deletes any child's entry.
pub(crate) fn deletes_any<D: Domain>(page: &Gathered<'_, D>) -> bool {
    page.edits.iter().any(|edit| edit.value.is_none())
}
