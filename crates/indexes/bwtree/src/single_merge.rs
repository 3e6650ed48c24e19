//! Merges and the root's collapse by single-word CAS: section IV.B of the Bw-tree paper.
//!
//! # Protocol of a merge of R into its left neighbour
//!
//! K is R's lowest key, P the parent of both.
//!
//! | step | word | what other threads see before the next step |
//! | --- | --- | --- |
//! | 1. the index entry delete of K is prepended | P's | R is found only by the side link, as after a half split, but P says that K is deleted; R still takes reads and writes |
//! | 2. the *remove-node* delta is prepended | R's | R is *leaving*: it changes no more, and each thread that reaches it completes its removal |
//! | 3. the node merge delta, with R's content, is prepended | that of the page before R | all of R's records, in the page before it |
//! | 4. *removed* | R's | the merge; the PID waits for its epoch |
//!
//! The deciding word is P's. From then on other threads complete the merge. They are those that
//! would take the side link to R (`complete` of `single_word.rs`) or reach R when it is leaving,
//! and those that would replace the base of P's chain, split P, or merge under P again. Each of
//! them finds the reached step by itself: it goes to the page that holds the keys right before K.
//! If that page ends at K, the merge is not complete, and its right sibling is R. If it ends behind
//! K, step 3 is done.
//!
//! Why the page right of K is R and no other: a page that is to be split at K holds K inside its
//! range. The split reads this page first, and then its parent. If the parent's chain has an index
//! entry delete of K, the chain is consolidated first. If that delta is prepended later, there was
//! a page that began at K by then, so the page that was to be split has changed, and the CAS of the
//! split fails. So while P's chain says that K is deleted, no page except R begins at K. The chain
//! says so until another base replaces it, and before that the merge must be complete. Meanwhile P
//! can neither be split between L and R, nor be merged.
//!
//! A late thread may find another page that begins at K, which has its own entry. So step 2 is done
//! only if the parent still says that K is deleted, read after R's word. Then R must still be
//! marked, or its word has changed. A page that is leaving already, whichever it is, must be
//! merged.
//!
//! Why no index entry for R is posted again: a thread that posts one has read in P that K is not
//! deleted, and P has changed since.
//!
//! Why no record of R is lost: step 3 takes the content that the remove-node delta was prepended
//! to, and from then on R's word changes only to *removed*. Why none appears twice: after step 3
//! the page before R ends behind K, and its word has changed.
//!
//! A read of R before step 2 returns the state at the time when R's word was read; after step 2 no
//! thread reads R. (A page may be split once more between steps 1 and 3. Then the page before R is
//! another one, and is found as such.)
//!
//! A completion may have to consolidate a page, for which it completes other merges first. This
//! ends: those merges are of keys before K (or below R, where the same holds). A leaving page on
//! the path to the keys before a key begins before that key. Half splits are passed by, and left to
//! other threads.
//!
//! # Protocol of the root's collapse
//!
//! | step | word | what other threads see before the next step |
//! | --- | --- | --- |
//! | 1. the remove-node delta is prepended | the only child's | it is leaving |
//! | 2. the content of the child | the root's | the collapse |
//! | 3. *removed* | the child's | the PID waits for its epoch |
//!
//! The deciding word is the child's. It is read first, and says that nothing is behind the child.
//! Then the root is read: it leads to this child alone. While the child's word is unchanged, there
//! is one page on its level, so the root stays its parent and has no other child. A thread that
//! reaches the child checks whether the root leads there, and does the remaining steps.
//!
//! # Where this differs from the paper
//!
//! The paper marks R first, and removes the index entry from the parent last. But in between the
//! parent may be split right at R. Then R's entry is the first of another page than L's, and cannot
//! be deleted unless an entry of L replaces it. Here the parent decides first.

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

/// Merges a page into its left neighbour. Returns whether the merge has begun; then it is complete.
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

/// Completes the merge of the page on `level` that begins at `key`, if it is not complete. It may
/// already be complete when this looks, and another page may begin there.
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
            // It begins before the key, so each recursion goes farther to the left, and this ends.
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
            tree.consolidate(context, left, None, tree.room(0))?;
            continue;
        }
        let bytes = content.0.to_le_bytes();
        let mut delta = NewDelta::new(Kind::NodeMerge, key);
        delta.value[0] = &bytes;
        let Some(delta) = delta.prepare(context, left.link, tree.chaining())? else {
            tree.consolidate(context, left, None, tree.room(delta.room()))?;
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
/// begins there must be merged, until it is leaving: a thread that has read its word before may
/// mark it.
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

/// The page on `level` that holds the keys right before `key`; `None` if the tree is not so high.
fn page_before<D: Domain>(
    tree: &Tree<D>,
    context: Context<'_, D>,
    level: u8,
    key: &[u8],
) -> Result<Option<At>> {
    let target = Target::Before(Probe::new(key));
    'parent: loop {
        // Not by `step_right`, which would complete changes of passed pages, and call this again.
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

/// Prepends the remove-node delta, if the page's content has one base; otherwise consolidates it
/// first. Merges in progress among its children move with the content. Returns whether the page is
/// marked now.
fn mark<D: Domain>(
    tree: &Tree<D>,
    context: Context<'_, D>,
    at: At,
    page: &Gathered<'_, D>,
) -> Result<bool> {
    let delta = NewDelta::new(Kind::RemoveNode, &[]);
    if page.parts.len() > 1 {
        tree.consolidate(context, at, None, tree.room(delta.room()))?;
        return Ok(false);
    }
    let Some(prepared) = delta.prepare(context, at.link, tree.chaining())? else {
        tree.consolidate(context, at, None, tree.room(delta.room()))?;
        return Ok(false);
    };
    let (link, own) = given(context, prepared);
    Ok(exchange(context, at, link, &[own], std::iter::empty()))
}

/// The link to the record that the remove-node delta of a page was prepended to.
fn content_of<D: Domain>(context: Context<'_, D>, at: At) -> Result<Link> {
    match Delta::of(context, at.link)? {
        Some(delta) if delta.info.kind == Kind::RemoveNode => Ok(delta.next()),
        _ => Err(damaged(at)),
    }
}

/// Frees the page's PID, when another page has its content.
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

/// Lets the root take the content of its only child; returns whether it did.
pub(crate) fn collapse<D: Domain>(
    tree: &Tree<D>,
    context: Context<'_, D>,
    root: At,
    child: At,
) -> Result<bool> {
    let page = Gathered::new(context, child.link)?;
    // Read after the child's word: the root leads to this child alone now.
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
