//! Decides when pages are merged, and when the root collapses.
//!
//! # When a merge is due
//!
//! | a page | is merged with a neighbour of the same parent |
//! | --- | --- |
//! | that is *bare*: a leaf without records, an inner page with one child | always; if the two are too large for a page, they are split again, in halves |
//! | that is *small*: below `merge_bytes` | if the two fill at most three quarters of a page, so that they are not split again soon; or if they are inner pages with so few children that they would not be split |
//! | any other | never |
//!
//! The left neighbour is tried first, then the right one. A bare page without a neighbour is its
//! parent's only child. So the parent is bare too, and its merge is due first. If the parent is the
//! root, it *collapses*: the content of its only child moves to the root's PID, and the tree is one
//! level lower.
//!
//! # Protocol
//!
//! Each merge, of leaves and of inner pages alike, and each collapse is one change of the style.
//! With PMwCAS it is one step over the words of both pages and of their parent, or of the root and
//! its only child. Between two changes the tree is complete, and no helping is needed.
//! `multi_word.rs` says which words decide and what a crash leaves; `single_merge.rs` has the
//! sequence of single words. This file decides which change is next:
//!
//! | where | state | next |
//! | --- | --- | --- |
//! | a remove | its leaf may be small | it consolidates the leaf, and starts here with it |
//! | here | the merge of the page is not due | continues with its parent, if anything was merged; otherwise ends |
//! | | no neighbour under the parent | merges the parent first, or lets the root collapse; looks at the page again |
//! | | a neighbour, and the merge is due | merges; consolidates, splits if that is due; looks at the page again, which may still be due |
//! | | a word has changed since it was read | looks at the page again |
//!
//! The thread that makes a merge due also does it: the remove that leaves a small leaf, the merge
//! that removed the parent's last child but one, or that made one small page of two. Each thread
//! looks after its own change, so the last of several that change a page at once sees all of their
//! changes, and no page that is due is forgotten. A bare page is tried many times: nothing will be
//! removed from it any more, so the next visit would be an insert. Each failed attempt means that
//! the change of another thread has succeeded. A small page is left, after some attempts, to its
//! next remove.
//!
//! # What remains
//!
//! When all records are removed, one leaf at the root remains. There are exceptions: a merge that a
//! full pool refused, that a crash interrupted, or that other threads prevented 256 times. Such a
//! page remains due, and is merged when the merge of its neighbour is due, or when a record of it
//! is removed. Segments of the mapping table remain, for later PIDs.

use pando_index::Result;
use pando_pmem::Domain;
use pando_tree::context::Context;
use pando_tree::key::{Probe, Target};

use crate::build::{base_bytes, each_record};
use crate::context::{At, Pid, damaged};
use crate::gather::Gathered;
use crate::layout::{HEADER_BYTES, Kind, Link};
use crate::prepend::NewDelta;
use crate::races::Race;
use crate::smo::{ATTEMPTS, LEAST_SPLIT};
use crate::style::{Collapse, Merge, Style};
use crate::tree::BwTree;

/// How often the merge of a bare page is tried, while other threads change it or its neighbours
/// each time.
const BARE_ATTEMPTS: usize = 256;

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Done,
    NotDue,
    /// Another change came first, or was needed first. The field says whether the page is bare.
    Again(bool),
    /// The parent, which has this lowest key, must be merged first.
    ParentFirst(Vec<u8>),
}

/// The lowest keys and the PIDs of a page's children.
pub(crate) fn children<'op, D: Domain>(page: &Gathered<'op, D>) -> Vec<(&'op [u8], Pid)> {
    let mut children = Vec::new();
    each_record(&page.items(false), |low, value| children.push((low, value.child())));
    children
}

/// Again, if one of the pages has changed since it was read. Otherwise they contradict each other:
/// one is damaged.
fn changed<D: Domain>(context: Context<'_, D>, pages: &[At], is_bare: bool) -> Result<Step> {
    match pages.iter().all(|at| Link::at(context, at.pid) == at.link) {
        true => Err(damaged(pages[0])),
        false => Ok(Step::Again(is_bare)),
    }
}

fn records<D: Domain>(page: &Gathered<'_, D>) -> usize {
    let mut records = 0;
    each_record(&page.items(false), |_, _| records += 1);
    records
}

/// Whether the page is merged in any case, whatever its neighbour has.
fn is_bare<D: Domain>(page: &Gathered<'_, D>) -> bool {
    records(page) <= usize::from(page.level > 0)
}

fn live_bytes<D: Domain>(page: &Gathered<'_, D>) -> u64 {
    base_bytes(&page.items(false), page.level > 0)
}

impl<D: Domain, S: Style<D>> BwTree<D, S> {
    /// Merges the page on `level` that holds `key` as long as that is due, and then the pages above
    /// it.
    pub(crate) fn merge(&self, context: Context<'_, D>, level: u8, key: &[u8]) -> Result<()> {
        let (mut attempts, mut is_changed) = (0, false);
        loop {
            match self.merge_once(context, level, key)? {
                Step::Done => is_changed = true,
                Step::NotDue => break,
                Step::Again(is_bare) => {
                    attempts += 1;
                    if attempts == if is_bare { BARE_ATTEMPTS } else { ATTEMPTS } {
                        break;
                    }
                }
                // The recursion is as deep as the tree is high.
                Step::ParentFirst(low) => self.merge(context, level + 1, &low)?,
            }
        }
        match is_changed {
            true => self.merge(context, level + 1, key),
            false => Ok(()),
        }
    }

    fn merge_once(&self, context: Context<'_, D>, level: u8, key: &[u8]) -> Result<Step> {
        if !S::may_change(self) {
            return Ok(Step::NotDue);
        }
        let target = Target::Holding(Probe::new(key));
        let Some((parent, pid)) = self.find_inner(context, target, level.saturating_add(1))? else {
            // The page is the root, or was.
            return self.collapse_once(context);
        };
        let Some(at) = self.arrive(context, parent, pid)? else { return Ok(Step::Again(true)) };
        let page = Gathered::new(context, at.link)?;
        if page.is_leaving {
            S::complete_removal(self, context, at)?;
            return Ok(Step::Again(true));
        }
        if !page.holds(key) {
            // It was split since the parent was read, or the parent has no entry for it yet.
            S::passed_side_link(self, context, at)?;
            return changed(context, &[parent, at], true);
        }
        let is_bare = is_bare(&page);
        if !is_bare && live_bytes(&page) >= u64::from(self.options.merge_bytes) {
            return Ok(Step::NotDue);
        }
        let above = Gathered::new(context, parent.link)?;
        let children = children(&above);
        let place = children.iter().position(|&(_, found)| found == pid);
        let place = place.ok_or_else(|| damaged(parent))?;
        if children.len() == 1 {
            return match parent.pid == self.root_pid(context) {
                true => self.collapse_once(context),
                false => Ok(Step::ParentFirst(above.low.to_vec())),
            };
        }
        for left in [place.checked_sub(1), Some(place)].into_iter().flatten() {
            let Some(pair) = children.get(left..left + 2) else { continue };
            // The end of the right one's entry.
            let end = children.get(left + 2).map(|&(low, _)| low).or(above.high);
            match self.merge_pair(context, parent, pair, end, is_bare)? {
                Step::NotDue => {}
                step => return Ok(step),
            }
        }
        Ok(Step::NotDue)
    }

    /// Merges the second of two neighbours into the first, if they may be one page. With `is_bare`,
    /// in any case.
    fn merge_pair(
        &self,
        context: Context<'_, D>,
        parent: At,
        pair: &[(&[u8], Pid)],
        end: Option<&[u8]>,
        is_bare: bool,
    ) -> Result<Step> {
        let &[(left_low, left), (separator, right)] = pair else { return Ok(Step::NotDue) };
        let again = Step::Again(is_bare);
        let mut places = [parent; 2];
        for (place, pid) in places.iter_mut().zip([left, right]) {
            let Some(at) = self.arrive(context, parent, pid)? else { return Ok(again) };
            *place = at;
        }
        let chains =
            [Gathered::new(context, places[0].link)?, Gathered::new(context, places[1].link)?];
        for (&at, chain) in places.iter().zip(&chains) {
            if chain.is_leaving {
                S::complete_removal(self, context, at)?;
                return Ok(again);
            }
        }
        let [left, right] = places;
        let are_whole = chains[0].right == right.pid
            && chains[0].high == Some(separator)
            && chains[1].high == end;
        if !are_whole {
            // One was split since the parent was read, or the parent has no entry for it yet.
            S::passed_side_link(self, context, left)?;
            S::passed_side_link(self, context, right)?;
            return changed(context, &[parent, left, right], is_bare);
        }
        let level = chains[0].level;
        let most = self.max_bytes(level);
        // As one page, which may be larger than the two, if the keys of each have one length, but
        // not the same.
        let items: Vec<_> = chains.iter().flat_map(|chain| chain.items(false)).collect();
        let both = base_bytes(&items, level > 0) - HEADER_BYTES;
        let fits = both <= (most - HEADER_BYTES) / 4 * 3;
        let are_few = level > 0 && chains.iter().map(records).sum::<usize>() < LEAST_SPLIT;
        if !(is_bare || fits || are_few) {
            return Ok(Step::NotDue);
        }
        // So the chain of the merged page has few blocks, and is no deeper than one node merge.
        for (at, chain) in places.into_iter().zip(&chains) {
            if chain.blocks.len() > 1 {
                self.consolidate(context, at, None, self.room(0))?;
                return Ok(again);
            }
        }
        let (left_pid, low_bytes) = (left.pid.to_le_bytes(), (left_low.len() as u64).to_le_bytes());
        let mut delete = NewDelta::new(Kind::IndexEntryDelete, separator);
        delete.value = [&left_pid, &low_bytes, left_low, end.unwrap_or_default()];
        delete.is_endless = end.is_none();
        let Some(delete) = delete.prepare(context, parent.link, self.chaining())? else {
            self.make_room(context, parent, delete.room())?;
            return Ok(again);
        };
        let merge = Merge { left, right, separator, parent, delete, level };
        if !self.counted(Race::Merge, S::merge(self, context, merge)?) {
            return Ok(again);
        }
        // The two chains become one page, and the right one's blocks are freed.
        let left = At::now(context, left.pid);
        if !left.link.is_removed() {
            let bytes = self.consolidate(context, left, None, self.room(0));
            if let Ok(Some(bytes)) = bytes
                && bytes > most
            {
                let _ = self.split(context, left.pid);
            }
        }
        Ok(Step::Done)
    }

    /// Lets the root collapse, if it has one child.
    fn collapse_once(&self, context: Context<'_, D>) -> Result<Step> {
        let root = self.root(context)?;
        if !root.link.is_inner() {
            return Ok(Step::NotDue);
        }
        let page = Gathered::new(context, root.link)?;
        let &[(_, pid)] = children(&page).as_slice() else { return Ok(Step::NotDue) };
        let Some(child) = self.arrive(context, root, pid)? else { return Ok(Step::Again(true)) };
        let content = Gathered::new(context, child.link)?;
        if content.is_leaving {
            S::complete_removal(self, context, child)?;
            return Ok(Step::Again(true));
        }
        if content.high.is_some() {
            // It was split, and the root as it was read does not have its right sibling.
            S::passed_side_link(self, context, child)?;
            return changed(context, &[root, child], true);
        }
        match S::collapse(self, context, Collapse { root, child, freed: &page.blocks })? {
            true => Ok(Step::Done),
            false => Ok(Step::Again(true)),
        }
    }
}
