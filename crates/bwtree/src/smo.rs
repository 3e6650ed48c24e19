//! When pages are split and merged, and what with; how that is made one step, or several, says the style.
//!
//! A split or a merge is prepared from what the mapping table had of each of its pages, and takes place only
//! if it still has that. Its parent is looked up anew each time, by the page's lowest key: nothing that was
//! remembered on the way down can be out of date. If the parent does not lead to the page, another change is
//! under way, or was made since, and this one is left.
//!
//! # What stays
//!
//! A merge is tried when a remove finds its leaf small, with one neighbour of the same parent, and not again by
//! itself. So a tree whose records are all removed keeps some empty leaves, and inner pages with one child,
//! until writes come there again; it is dropped like any other.

use pando_index::Error;
use pando_pmem::Domain;

use crate::build::{Cut, NewDelta, NewPage, base_bytes, cut, each_record};
use crate::context::{Context, Pid, Probe, Target, Value};
use crate::gather::{Gathered, Item};
use crate::layout::{HEADER_BYTES, Kind, Link};
use crate::page::word_of;
use crate::search::At;
use crate::style::{Above, Merge, Split, Style};
use crate::tree::BwTree;

/// Children that an inner page has at least that is split.
const LEAST_SPLIT: usize = 4;
/// How often a change is prepared anew before it is left to others.
const ATTEMPTS: usize = 8;

/// The child that a value of an inner page's record is.
fn child_of(value: Value<'_>) -> Pid {
    match value {
        Value::Inline(bytes) => word_of(bytes),
        Value::Block(_) => 0,
    }
}

impl<D: Domain, S: Style> BwTree<D, S> {
    /// Splits the page, if it is too large; and then its ancestors, if they are.
    pub(crate) fn split(&self, context: Context<'_, '_, D>, pid: Pid) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            let left = At { pid, link: context.link(pid) };
            if left.link.is_removed() || left.link == Link::EMPTY {
                return Ok(());
            }
            let gathered = Gathered::new(context, left.link);
            let items = gathered.items(false);
            let is_inner = gathered.level > 0;
            if base_bytes(&items, is_inner) <= self.max_bytes(gathered.level) {
                return Ok(());
            }
            let Some(halves) = cut(&items, is_inner) else { return Ok(()) };
            if self.split_at(context, left, &gathered, &halves)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Splits the page there; whether it is done with.
    fn split_at(
        &self,
        context: Context<'_, '_, D>,
        left: At,
        gathered: &Gathered<'_, '_, D>,
        halves: &Cut<'_, '_, D>,
    ) -> Result<bool, Error> {
        let (separator, is_inner) = (halves.separator, gathered.level > 0);
        let right = self.free_pid(context)?;
        let right_pid = right.pid.to_le_bytes();
        let mut delta = NewDelta::new(Kind::Split, separator);
        delta.value[0] = &right_pid;
        let is_root = left.pid == self.root_pid(context);
        let parent = match is_root {
            true => None,
            false => {
                let target = Target::Holding(Probe::new(separator));
                match self.find_inner(context, target, gathered.level + 1)? {
                    Some((parent, child)) if child == left.pid => Some(parent),
                    _ => return Ok(true),
                }
            }
        };
        let above = match parent {
            Some(parent) => {
                let mut entry = NewDelta::new(Kind::IndexEntry, separator);
                entry.value[0] = &right_pid;
                entry.value[1] = gathered.high.unwrap_or_default();
                entry.is_endless = gathered.high.is_none();
                match context.prepare(parent.link, &entry, self.chaining())? {
                    Some(entry) => Above::Parent(parent, entry),
                    None => {
                        self.make_room(context, parent, entry.room())?;
                        return Ok(false);
                    }
                }
            }
            None => {
                let own = self.free_pid(context)?;
                let own_pid = own.pid.to_le_bytes();
                let items = [
                    Item::One(&[][..], Value::Inline(&own_pid)),
                    Item::One(separator, Value::Inline(&right_pid)),
                ];
                let page = NewPage {
                    level: gathered.level + 1,
                    low: &[],
                    high: None,
                    right: 0,
                    lsn: 0,
                    items: &items,
                    room: self.room(0),
                };
                Above::Root(own, page.build(context)?)
            }
        };
        let Some(split) = context.prepare(left.link, &delta, self.chaining())? else {
            drop(above);
            self.consolidate(context, left, None, delta.room())?;
            return Ok(false);
        };
        let page = NewPage {
            level: gathered.level,
            low: separator,
            high: gathered.high,
            right: gathered.right,
            lsn: gathered.lsn,
            items: &halves.right,
            room: self.room(0),
        };
        let page = page.build(context)?;
        let split = Split { left, split, right, page, is_inner, above };
        S::split(self, context, split)
    }

    /// Consolidates an inner page so that it has room for a delta, and splits it if it is too large then.
    pub(crate) fn make_room(
        &self,
        context: Context<'_, '_, D>,
        at: At,
        room: u64,
    ) -> Result<(), Error> {
        let Some(bytes) = self.consolidate(context, at, None, room)? else { return Ok(()) };
        // Inner pages are of level 1 at least.
        if bytes > self.max_bytes(1) {
            self.split(context, at.pid)?;
        }
        Ok(())
    }

    /// Merges the page on `level` whose lowest key is not above `key`, with a neighbour of the same
    /// parent, if both are small, or with `anyway` whatever they are. Then the parent, if it is small.
    pub(crate) fn merge(
        &self,
        context: Context<'_, '_, D>,
        pid: Pid,
        level: u8,
        key: &[u8],
        anyway: bool,
    ) -> Result<bool, Error> {
        for _ in 0..ATTEMPTS {
            let target = Target::Holding(Probe::new(key));
            let Some((parent, child)) = self.find_inner(context, target, level + 1)? else {
                return Ok(false);
            };
            if child != pid {
                return Ok(false);
            }
            let above = Gathered::new(context, parent.link);
            let mut children = Vec::new();
            each_record(&above.items(false), |low, value| children.push((low, child_of(value))));
            let Some(place) = children.iter().position(|&(_, found)| found == pid) else {
                return Ok(false);
            };
            if children.len() == 1 {
                return self.merge_only_child(context, parent, &above, pid, anyway);
            }
            let left = place.saturating_sub(1);
            // Where the entry of the right one ends.
            let end = children.get(left + 2).map(|&(low, _)| low).or(above.high);
            let pair = &children[left..left + 2];
            match self.merge_neighbours(context, parent, pair, end, level, anyway)? {
                Merging::Done => {
                    let bytes = base_bytes(&above.items(false), true);
                    let is_small = bytes < u64::from(self.options().merge_bytes);
                    if parent.pid == self.root_pid(context) && children.len() == 2 {
                        let (low, pid) = children[left];
                        let _ = self.merge(context, pid, level, low, anyway);
                    } else if is_small || children.len() == 2 {
                        let _ = self.merge(context, parent.pid, level + 1, above.low, anyway);
                    }
                    return Ok(true);
                }
                Merging::NotDue => return Ok(false),
                Merging::Again => {}
            }
        }
        Ok(false)
    }

    /// The page is its parent's only child: the root goes, or the parent is merged first.
    fn merge_only_child(
        &self,
        context: Context<'_, '_, D>,
        parent: At,
        above: &Gathered<'_, '_, D>,
        pid: Pid,
        anyway: bool,
    ) -> Result<bool, Error> {
        if parent.pid != self.root_pid(context) {
            return self.merge(context, parent.pid, above.level, above.low, anyway);
        }
        let child = At { pid, link: context.link(pid) };
        if child.link.is_removed() {
            return Ok(false);
        }
        let content = Gathered::new(context, child.link);
        if content.high.is_some() {
            // It was split, and its right sibling is not known to the root as it was read.
            return Ok(false);
        }
        S::collapse(context, parent, child, &above.blocks)
    }

    fn merge_neighbours(
        &self,
        context: Context<'_, '_, D>,
        parent: At,
        neighbours: &[(&[u8], Pid)],
        end: Option<&[u8]>,
        level: u8,
        anyway: bool,
    ) -> Result<Merging, Error> {
        let &[(left_low, left), (separator, right)] = neighbours else {
            return Ok(Merging::NotDue);
        };
        let [left, right] = [left, right].map(|pid| At { pid, link: context.link(pid) });
        if left.link.is_removed() || right.link.is_removed() {
            return Ok(Merging::Again);
        }
        let chains = [left, right].map(|at| Gathered::new(context, at.link));
        let are_whole = chains[0].right == right.pid
            && chains[0].high == Some(separator)
            && chains[1].high == end;
        if !are_whole {
            // One was split since the parent was read, or the parent does not know it yet.
            return Ok(Merging::Again);
        }
        let bytes = chains.each_ref().map(|chain| base_bytes(&chain.items(false), level > 0));
        // Of what a page may have beside its header, three quarters at most: else it is split again soon.
        let both = bytes.iter().sum::<u64>() - 2 * HEADER_BYTES;
        let mut records = 0;
        chains.iter().for_each(|chain| each_record(&chain.items(false), |_, _| records += 1));
        // Nor is one split of so few children, however long their keys are.
        let stays = records < if level > 0 { LEAST_SPLIT } else { 1 };
        if !anyway && !stays && both > (self.max_bytes(level) - HEADER_BYTES) / 4 * 3 {
            return Ok(Merging::NotDue);
        }
        // So the chain that comes of it has few blocks, and is no deeper than one node merge.
        for (at, chain) in [left, right].into_iter().zip(&chains) {
            if chain.blocks.len() > 1 {
                self.consolidate(context, at, None, 0)?;
                return Ok(Merging::Again);
            }
        }
        let (content, left_pid) = (right.link.0.to_le_bytes(), left.pid.to_le_bytes());
        let mut delta = NewDelta::new(Kind::NodeMerge, separator);
        delta.value[0] = &content;
        let Some(merge) = context.prepare(left.link, &delta, self.chaining())? else {
            self.consolidate(context, left, None, delta.room())?;
            return Ok(Merging::Again);
        };
        let low_bytes = (left_low.len() as u64).to_le_bytes();
        let high = chains[1].high;
        let mut delete = NewDelta::new(Kind::IndexEntryDelete, separator);
        delete.value = [&left_pid, &low_bytes, left_low, high.unwrap_or_default()];
        delete.is_endless = high.is_none();
        let Some(delete) = context.prepare(parent.link, &delete, self.chaining())? else {
            self.make_room(context, parent, delete.room())?;
            return Ok(Merging::Again);
        };
        let merge = Merge { left, right, merge, parent, delete };
        if !S::merge(self, context, merge)? {
            return Ok(Merging::Again);
        }
        // The two chains become one page, and the right one's blocks are free.
        let left = At { pid: left.pid, link: context.link(left.pid) };
        if !left.link.is_removed() {
            let _ = self.consolidate(context, left, None, 0);
        }
        Ok(Merging::Done)
    }
}

/// What became of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merging {
    Done,
    NotDue,
    /// Something has come between, or was to be done first.
    Again,
}
