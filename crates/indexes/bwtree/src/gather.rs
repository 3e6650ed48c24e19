//! The content of a chain, for consolidation, splits, merges and scans.
//!
//! A chain has one or two base pages (two under a node merge delta), whose records below a bound
//! count, and *edits*: the newest delta of each key, in order of keys. Records of a base without an
//! edit are taken in runs.

use std::ops::Range;

use pando_pmem::{Domain, mutant};
use pando_tree::context::Context;
use pando_tree::key::{Probe, compare};

use crate::context::{Damaged, Pid, Value};
use crate::layout::{Kind, Link, NO_POSITION};
use crate::page::{Chain, Delta, Located, Page};

/// The effect of the newest delta of a key on its record.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'op> {
    pub key: &'op [u8],
    /// The value; `None` if the record is deleted.
    pub value: Option<Value<'op>>,
    /// The number of records of its base before the key, if known.
    pub position: u16,
}

/// The records of a base that count.
#[derive(Debug)]
pub struct Part<'op, D: Domain> {
    pub page: Page<'op, D>,
    /// Their number, from the first on.
    pub end: usize,
}

/// Records of a chain, in order of keys.
#[derive(Clone, Debug)]
pub enum Item<'op, D: Domain> {
    /// Records of a base.
    Run(Page<'op, D>, Range<usize>),
    One(&'op [u8], Value<'op>),
}

/// The content of a chain.
#[derive(Debug)]
pub struct Gathered<'op, D: Domain> {
    pub level: u8,
    pub low: &'op [u8],
    pub high: Option<&'op [u8]>,
    pub right: Pid,
    /// In order of keys.
    pub parts: Vec<Part<'op, D>>,
    pub edits: Vec<Edit<'op>>,
    /// The blocks of the chain, without values' blocks.
    pub blocks: Vec<u64>,
    pub deltas: usize,
    /// The page is about to be removed.
    pub is_leaving: bool,
    /// Only a partial page is there (`blind.rs`). Its range is not known; `right` is its own
    /// PID.
    pub is_partial: bool,
}

impl<'op, D: Domain> Gathered<'op, D> {
    /// Gathers the chain that `link` leads to.
    ///
    /// # Errors
    ///
    /// [`Damaged`]; that of [`Damaged::unread`] if only a partial page is there.
    pub fn new(context: Context<'op, D>, link: Link) -> Result<Self, Damaged> {
        let gathered = Self::any(context, link)?;
        match gathered.is_partial {
            true => Err(Damaged::unread(gathered.right)),
            false => Ok(gathered),
        }
    }

    /// Gathers the chain, which may be that of a partial page.
    pub fn any(context: Context<'op, D>, link: Link) -> Result<Self, Damaged> {
        let mut gathered = Self {
            level: 0,
            low: &[],
            high: None,
            right: 0,
            parts: Vec::with_capacity(2),
            edits: Vec::new(),
            blocks: Vec::with_capacity(2),
            deltas: 0,
            is_leaving: false,
            is_partial: false,
        };
        if let Some(newest) = Delta::of(context, link)? {
            gathered.edits.reserve(usize::from(newest.info.deltas) + 1);
        }
        if link != Link::EMPTY {
            gathered.chain(context, link, None, 0)?;
            gathered.low = gathered.parts.first().map_or(&[], |part| part.page.low());
        }
        Ok(gathered)
    }

    /// Whether `key` lies in the page's range.
    pub fn holds(&self, key: &[u8]) -> bool {
        self.low <= key && self.high.is_none_or(|high| key < high)
    }

    /// Whether the keys right before `key` lie in the page's range.
    pub fn holds_before(&self, key: &[u8]) -> bool {
        (self.low < key || key.is_empty()) && self.high.is_none_or(|high| key <= high)
    }

    /// Adds the chain at `link`, of which the keys below `bound` count, and the deltas newer than
    /// those that it found. `depth` is the number of node merges above.
    fn chain(
        &mut self,
        context: Context<'op, D>,
        link: Link,
        bound: Option<&'op [u8]>,
        depth: usize,
    ) -> Result<(), Damaged> {
        let (mut chain, mut bound, mut right) = (Chain::new(link), bound, None);
        let mut merged = None;
        while let Some(delta) = chain.next(context)? {
            self.deltas += 1;
            if delta.info.is_own {
                self.blocks.push(delta.off);
            }
            let key = delta.key();
            let counts = bound.is_none_or(|bound| key < bound);
            match delta.info.kind {
                Kind::Insert | Kind::Modify if counts => {
                    self.edit(key, Some(delta.value()), delta.info.position);
                }
                Kind::IndexEntry if counts => {
                    let child = delta.value_bytes().get(..8);
                    let child = Value::Inline(child.ok_or(Damaged::at(delta.off))?);
                    self.edit(key, Some(child), NO_POSITION);
                }
                Kind::Delete | Kind::IndexEntryDelete if counts => {
                    self.edit(key, None, delta.info.position);
                }
                Kind::Split if counts => {
                    bound = Some(key);
                    right = Some(delta.value_word());
                }
                // No undamaged tree has a second level.
                Kind::NodeMerge if depth > 0 => return Err(Damaged::at(delta.off)),
                Kind::NodeMerge => {
                    merged = Some((Link(delta.value_word()), bound, right));
                    // A newer split may have moved all records of that page away, and more.
                    bound = Some(bound.map_or(key, |bound| bound.min(key)));
                    right = None;
                }
                Kind::RemoveNode => self.is_leaving = true,
                _ => {}
            }
        }
        let page = Page::any_of(context, chain.link)?;
        self.is_partial |= page.is_partial();
        if !mutant!("bw-merged-page-leaked") || depth == 0 {
            self.blocks.push(page.off);
        }
        self.level = page.level();
        let end = match bound {
            Some(bound) if bound <= page.low() => 0,
            Some(bound) => page.locate(Probe::new(bound)).position(),
            None => page.records(),
        };
        self.parts.push(Part { page, end });
        let Some((link, bound, newer)) = merged else {
            self.right = right.unwrap_or_else(|| page.right());
            self.high = bound.or_else(|| page.high());
            return Ok(());
        };
        self.chain(context, link, bound, depth + 1)?;
        if let Some(newer) = newer {
            self.right = newer;
        }
        Ok(())
    }

    fn find_edit(&self, key: &[u8]) -> Result<usize, usize> {
        self.edits.binary_search_by(|edit| compare(edit.key, key))
    }

    /// Adds the effect of a delta, unless there is a newer one of its key.
    pub fn edit(&mut self, key: &'op [u8], value: Option<Value<'op>>, position: u16) {
        if let Err(at) = self.find_edit(key) {
            self.edits.insert(at, Edit { key, value, position });
        }
    }

    /// Adds a change that is newer than the whole chain.
    pub fn change(&mut self, key: &'op [u8], value: Option<Value<'op>>) {
        match self.find_edit(key) {
            Ok(at) => self.edits[at].value = value,
            Err(at) => self.edits.insert(at, Edit { key, value, position: NO_POSITION }),
        }
    }

    /// The records, in order: runs of the bases, and the edits between them. With `by_records`,
    /// each record is an item.
    pub fn items(&self, by_records: bool) -> Vec<Item<'op, D>> {
        let mut items = Vec::with_capacity(self.edits.len() * 2 + 4);
        let mut edits = self.edits.as_slice();
        for (index, part) in self.parts.iter().enumerate() {
            let next = self.parts.get(index + 1).map(|next| next.page.low());
            let own =
                next.map_or(edits.len(), |next| edits.partition_point(|edit| edit.key < next));
            let (mine, rest) = edits.split_at(own);
            edits = rest;
            part.items(mine, &mut items);
        }
        for edit in edits {
            items.extend(edit.value.map(|value| Item::One(edit.key, value)));
        }
        if by_records {
            items = items.into_iter().flat_map(one_by_one).collect();
        }
        items
    }
}

fn one_by_one<'op, D: Domain>(item: Item<'op, D>) -> Vec<Item<'op, D>> {
    match item {
        Item::Run(page, range) => {
            range.map(|index| Item::One(page.key(index), page.value(index))).collect()
        }
        one => vec![one],
    }
}

impl<'op, D: Domain> Part<'op, D> {
    /// The position of an edit's key.
    fn place(&self, edit: &Edit<'_>) -> Located {
        let probe = Probe::new(edit.key);
        let position = usize::from(edit.position);
        if edit.position == NO_POSITION || self.page.level() > 0 {
            return self.page.locate(probe);
        }
        // Its own record is the next one, if it exists.
        self.page.locate_in(position..self.page.records().min(position + 1), probe)
    }

    /// Appends the records, changed by the edits.
    fn items(&self, edits: &[Edit<'op>], items: &mut Vec<Item<'op, D>>) {
        let mut from = 0;
        if self.page.first() == 1 && self.end > 0 {
            // Its key is the page's lowest one. An edit with this key replaces or removes the
            // child.
            let key = self.page.low();
            if edits.first().is_none_or(|edit| edit.key != key) {
                items.push(Item::One(key, self.page.value(0)));
            }
            from = 1;
        }
        for edit in edits {
            let (to, behind) = match self.place(edit) {
                Located::At(at) => (at, at + 1),
                Located::Before(before) => (before, before),
            };
            let (to, behind) = (to.min(self.end), behind.min(self.end));
            if from < to {
                items.push(Item::Run(self.page, from..to));
            }
            from = from.max(behind);
            items.extend(edit.value.map(|value| Item::One(edit.key, value)));
        }
        if from < self.end {
            items.push(Item::Run(self.page, from..self.end));
        }
    }
}
