//! Decides when pages are split, and prepares the splits. The style installs them, in one step or
//! in several: see [`Style::split`] in `multi_word.rs` and `single_word.rs`. Merges are in
//! `merge.rs`.
//!
//! A split is prepared from the links in the mapping words of its pages, and takes place only if
//! these words are unchanged. Each attempt searches the parent again, by the separator, so no
//! remembered path can be out of date. If the parent does not lead to the page, the page was split
//! since, or it is a right half for which the parent has no entry yet. Then the style completes
//! that split, if needed, and the next attempt looks at the page again.

use pando_index::Result;
use pando_pmem::Domain;
use pando_tree::context::Context;
use pando_tree::key::{Probe, Target};

use crate::build::{Cut, NewPage, base_bytes, cut};
use crate::context::{At, Pid, Value};
use crate::gather::{Gathered, Item};
use crate::layout::{Kind, Link};
use crate::prepend::NewDelta;
use crate::races::Race;
use crate::style::{Above, Split, Style};
use crate::table::FreePid;
use crate::tree::BwTree;

/// An inner page with fewer children is not split.
pub(crate) const LEAST_SPLIT: usize = 4;
/// How often a change is prepared again before it is left to other threads.
pub(crate) const ATTEMPTS: usize = 8;

impl<D: Domain, S: Style<D>> BwTree<D, S> {
    /// Splits the page, if it is too large, and then its ancestors, if they are.
    pub(crate) fn split(&self, context: Context<'_, D>, pid: Pid) -> Result<()> {
        for _ in 0..ATTEMPTS {
            if !S::may_change(self) {
                return Ok(());
            }
            let left = At::now(context, pid);
            if left.link.is_removed() || left.link == Link::EMPTY {
                return Ok(());
            }
            let gathered = Gathered::new(context, left.link)?;
            if gathered.is_leaving {
                return Ok(());
            }
            let items = gathered.items(false);
            let is_inner = gathered.level > 0;
            if base_bytes(&items, is_inner) <= self.max_bytes(gathered.level) {
                return Ok(());
            }
            let Some(halves) = cut(&items, is_inner) else { return Ok(()) };
            let right = self.free_pid(context)?;
            let done = self.split_at(context, left, &gathered, &halves, right);
            if S::MAY_BE_ABSENT && !matches!(done, Ok(true)) {
                self.give_back_pid(context, right);
            }
            if done? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Splits the page `left`; the right half gets the PID `right`. Returns false if the page must
    /// be looked at again.
    fn split_at(
        &self,
        context: Context<'_, D>,
        left: At,
        gathered: &Gathered<'_, D>,
        halves: &Cut<'_, D>,
        right: FreePid,
    ) -> Result<bool> {
        let (separator, is_inner) = (halves.separator, gathered.level > 0);
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
                    Some((_, pid)) => {
                        let before = At::now(context, pid);
                        S::passed_side_link(self, context, before)?;
                        return Ok(false);
                    }
                    None => return Ok(false),
                }
            }
        };
        let above = match parent {
            Some(parent) => {
                if S::MAY_BE_ABSENT && self.is_split_due(&Gathered::new(context, parent.link)?) {
                    self.split(context, parent.pid)?;
                    return Ok(false);
                }
                let mut entry = NewDelta::new(Kind::IndexEntry, separator);
                entry.value[0] = &right_pid;
                entry.value[1] = gathered.high.unwrap_or_default();
                entry.is_endless = gathered.high.is_none();
                match entry.prepare(context, parent.link, self.chaining())? {
                    Some(entry) => Above::Parent(parent, entry),
                    None => {
                        self.make_room(context, parent, entry.room())?;
                        return Ok(false);
                    }
                }
            }
            None => {
                let own = self.other_free_pid(context, right.pid)?;
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
                    items: &items,
                    room: self.room(0),
                    is_partial: false,
                };
                Above::Root(own, page.build(context)?)
            }
        };
        let Some(split) = delta.prepare(context, left.link, self.chaining())? else {
            drop(above);
            self.consolidate(context, left, None, self.room(delta.room()))?;
            return Ok(false);
        };
        let page = NewPage {
            level: gathered.level,
            low: separator,
            high: gathered.high,
            right: gathered.right,
            items: &halves.right,
            room: self.room(0),
            is_partial: false,
        };
        let page = page.build(context)?;
        let split = Split { left, split, right, page, is_inner, above };
        Ok(self.counted(Race::Split, S::split(self, context, split)?))
    }

    /// Whether a page should have been split before. In a store a split is often left to later
    /// operations: the pool is full, or the parent is absent. Then a leaf is split before a record
    /// is put into it, and an inner page before it gets an entry. Otherwise a page would grow each
    /// time that it is loaded, changed and evicted.
    pub(crate) fn is_split_due(&self, page: &Gathered<'_, D>) -> bool {
        let (max_bytes, is_inner) = (self.max_bytes(page.level), page.level > 0);
        if page.parts.iter().all(|part| part.page.body_bytes() <= max_bytes) {
            return false;
        }
        let items = page.items(false);
        base_bytes(&items, is_inner) > max_bytes && cut(&items, is_inner).is_some()
    }

    /// Consolidates an inner page so that it has room for a delta, and splits it if it is too large
    /// then.
    pub(crate) fn make_room(&self, context: Context<'_, D>, at: At, room: u64) -> Result<()> {
        let Some(bytes) = self.consolidate(context, at, None, self.room(room))? else {
            return Ok(());
        };
        // Inner pages are at least on level 1.
        if bytes > self.max_bytes(1) {
            self.split(context, at.pid)?;
        }
        Ok(())
    }
}
