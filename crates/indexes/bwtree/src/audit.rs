//! The walk of a tree for `check` and `stat`: its invariants, its shape, and the blocks that it
//! reaches. Exact while no thread writes.
//!
//! Each word of a page or a delta is checked against its block before it is used. A chain is
//! checked from its newest record to its base. Only if the whole chain is undamaged, it is gathered
//! and its records are lent. The children of a damaged page are not visited; the other pages are.

use std::collections::HashSet;

use pando_index::Result;
use pando_pmem::Domain;
use pando_tree::context::Context;
use pando_tree::key::slice_of;
use pando_tree::maps::{Audit, Broken, ProblemClass, Stat};

use crate::build::{base_bytes, each_record};
use crate::context::{Pid, Value, word_of};
use crate::gather::Gathered;
use crate::layout::{
    ANCHOR_BYTES, BEGUN_AT, DELTA_ALIGN, DeltaInfo, FRESH_AT, HEADER_BYTES, HIGH_SLICE_WORD,
    HIGH_WORD, INFO_WORD, Kind, LOW_WORD, Link, NEXT_SEGMENT_AT, NO_KEY, PageInfo, Place,
    SEGMENT_BYTES, SEGMENTS_AT, SLICES_AT, SWEEP_AT, deltas_at,
};
use crate::merge::children;
use crate::page::{MAX_CHAIN, Page};
use crate::style::Style;
use crate::table::{is_cursor_valid, words_of};
use crate::tree::BwTree;

/// The end of the last page that was walked on a level.
#[derive(Clone, Debug)]
struct End {
    right: Pid,
    high: Option<Vec<u8>>,
}

/// The findings of a walk, and its position.
struct Walk<'visit> {
    found: Audit,
    anchor: u64,
    /// All mapping words.
    pids: HashSet<Pid>,
    met: HashSet<Pid>,
    /// By level.
    ends: Vec<Option<End>>,
    visit: &'visit mut dyn FnMut(&[u8], &[u8]),
}

/// What a page must be, by the page above it.
#[derive(Clone, Debug)]
struct Expected {
    /// `None` for the root, which may be on any level.
    level: Option<u8>,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl<D: Domain, S: Style<D>> BwTree<D, S> {
    /// Walks the whole tree, and lends the undamaged records to `visit`.
    pub(crate) fn walk_tree(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit> {
        let guard = self.pin()?;
        let context = self.context(&guard);
        let mut walk = Walk {
            found: Audit::default(),
            anchor: self.anchor(context),
            pids: HashSet::new(),
            met: HashSet::new(),
            ends: Vec::new(),
            visit,
        };
        if walk.table(context) {
            let root = self.root_pid(context);
            walk.pids.insert(root);
            let whole = Expected { level: None, low: Vec::new(), high: None };
            walk.page(context, root, &whole);
            walk.end(context);
        }
        Ok(walk.found)
    }
}

impl Walk<'_> {
    fn problem(&mut self, class: ProblemClass, off: u64, what: impl Into<String>) {
        self.found.problem(class, off, what);
    }

    /// Walks the anchor and the segments; returns whether there is an anchor.
    fn table<D: Domain>(&mut self, context: Context<'_, D>) -> bool {
        let (pool, anchor) = (context.pool(), self.anchor);
        if self.found.block(pool, anchor, ANCHOR_BYTES, "the anchor").is_none() {
            return false;
        }
        self.pids.extend(words_of(anchor, anchor));
        let mut segment = context.read(anchor + SEGMENTS_AT);
        while segment != 0 && self.found.block(pool, segment, SEGMENT_BYTES, "a segment").is_some()
        {
            self.pids.extend(words_of(segment, anchor));
            segment = context.read(segment + NEXT_SEGMENT_AT);
        }
        for off in [anchor + FRESH_AT, anchor + SWEEP_AT] {
            if !is_cursor_valid(context, off, anchor) {
                self.problem(ProblemClass::Structure, off, "a cursor is at no word of the table");
            }
        }
        true
    }

    /// Checks a page, and what it leads to.
    fn page<D: Domain>(&mut self, context: Context<'_, D>, pid: Pid, expected: &Expected) {
        if !self.pids.contains(&pid) {
            self.problem(ProblemClass::Structure, pid, "there is no such PID in the mapping table");
            return;
        }
        if !self.met.insert(pid) {
            self.problem(ProblemClass::Structure, pid, "two entries lead to one PID");
            return;
        }
        let link = Link::at(context, pid);
        let is_new = || context.read(self.anchor + BEGUN_AT) == 0;
        if link == Link::EMPTY && expected.level.is_none() && is_new() {
            self.found.stat.height = 1;
            return;
        }
        if link == Link::EMPTY || link.is_removed() {
            self.problem(ProblemClass::Structure, pid, "an entry leads to a PID without a page");
            return;
        }
        if link != link.content() {
            self.problem(ProblemClass::Structure, pid, "a mapping word has flags of a store");
            return;
        }
        let mut steps = 0;
        if let Err((class, what)) = check_chain(context, link, 0, &mut steps) {
            self.problem(class, link.off(), what);
            return;
        }
        let Ok(gathered) = Gathered::new(context, link) else {
            self.problem(ProblemClass::Structure, link.off(), "a chain is not put together");
            return;
        };
        let level = gathered.level;
        if link.is_inner() != (level > 0) || expected.level.is_some_and(|found| found != level) {
            self.problem(ProblemClass::Structure, link.off(), "the page is not as deep as others");
            return;
        }
        let mut bytes = 0;
        for &block in &gathered.blocks {
            let taken = self.found.block(context.pool(), block, DELTA_ALIGN, "a page or delta");
            bytes += taken.unwrap_or_default();
        }
        if gathered.low != expected.low || gathered.high != expected.high.as_deref() {
            let what = "the page's range is not that of the entry that leads to it";
            self.problem(ProblemClass::Separator, link.off(), what);
        }
        self.side_link(pid, link.off(), &gathered);
        let items = gathered.items(false);
        let (mut last, mut ascend, mut within) = (None, true, true);
        each_record(&items, |key, _| {
            ascend &= last.is_none_or(|last| last < key);
            within &= gathered.low <= key && gathered.high.is_none_or(|high| key < high);
            last = Some(key);
        });
        if !ascend {
            self.problem(ProblemClass::Order, link.off(), "the keys of a page do not ascend");
            return;
        }
        if !within {
            let what = "a key lies outside the page's range";
            self.problem(ProblemClass::Separator, link.off(), what);
        }
        let live = base_bytes(&items, level > 0);
        let stat = &mut self.found.stat;
        stat.height = stat.height.max(u64::from(level) + 1);
        if level == 0 {
            *stat = Stat {
                leaves: stat.leaves + 1,
                leaf_bytes: stat.leaf_bytes + bytes,
                live_bytes: stat.live_bytes + live - SLICES_AT,
                ..*stat
            };
            each_record(&items, |key, value| self.record(context, key, value));
        } else {
            stat.inner_nodes += 1;
            stat.inner_bytes += bytes;
            self.children(context, &gathered);
        }
    }

    fn side_link<D: Domain>(&mut self, pid: Pid, off: u64, gathered: &Gathered<'_, D>) {
        let level = usize::from(gathered.level);
        if self.ends.len() <= level {
            self.ends.resize(level + 1, None);
        }
        let end = End { right: gathered.right, high: gathered.high.map(<[u8]>::to_vec) };
        let before = self.ends[level].replace(end);
        let is_next = before.as_ref().is_none_or(|before| {
            before.right == pid && before.high.as_deref() == Some(gathered.low)
        });
        if !is_next {
            let what = "the side link of the page before does not lead here";
            self.problem(ProblemClass::Structure, off, what);
        }
    }

    fn record<D: Domain>(&mut self, context: Context<'_, D>, key: &[u8], value: Value<'_>) {
        if let Value::Block(off) = value
            && !self.found.value_block(context, off, off)
        {
            return;
        }
        let Ok(value) = value.bytes(context) else { return };
        self.found.stat.records += 1;
        (self.visit)(key, value);
    }

    fn children<D: Domain>(&mut self, context: Context<'_, D>, gathered: &Gathered<'_, D>) {
        let children = children(gathered);
        for (index, &(low, pid)) in children.iter().enumerate() {
            let next = children.get(index + 1).map(|&(next, _)| next);
            let high = next.or(gathered.high).map(<[u8]>::to_vec);
            let level = Some(gathered.level - 1);
            self.page(context, pid, &Expected { level, low: low.to_vec(), high });
        }
    }

    /// Reports what the walk did not reach.
    fn end<D: Domain>(&mut self, context: Context<'_, D>) {
        for level in 0..self.ends.len() {
            let end = self.ends[level].take();
            if end.is_some_and(|end| end.right != 0 || end.high.is_some()) {
                let what = format!("the last page of level {level} has a side link or a high key");
                self.problem(ProblemClass::Structure, self.anchor, what);
            }
        }
        if !self.found.is_consistent() {
            return;
        }
        let lost: Vec<Pid> = self
            .pids
            .iter()
            .copied()
            .filter(|&pid| {
                let link = Link::at(context, pid);
                link != Link::EMPTY && !link.is_removed() && !self.met.contains(&pid)
            })
            .collect();
        for pid in lost {
            self.problem(ProblemClass::Structure, pid, "no entry leads to the page of this PID");
        }
    }
}

/// Whether each record of the chain, with its lengths and offsets, lies where it may.
pub(crate) fn check_chain<D: Domain>(
    context: Context<'_, D>,
    link: Link,
    depth: usize,
    steps: &mut usize,
) -> Result<(), Broken> {
    const BLOCK: ProblemClass = ProblemClass::Block;
    const STRUCTURE: ProblemClass = ProblemClass::Structure;
    let mut link = link;
    let is_inner = link.is_inner();
    while !link.is_base() {
        *steps += 1;
        if *steps > MAX_CHAIN {
            return Err((STRUCTURE, "a chain does not end"));
        }
        let (off, room) = delta_place(context, link)?;
        let info = DeltaInfo::decode(context.fixed(off));
        let info = info.ok_or((STRUCTURE, "a delta is of an unknown kind"))?;
        let is_own = context.pool().active_block(off).is_some();
        if info.is_own != is_own || is_own != link.base_off().is_none() || info.bytes() > room {
            return Err((ProblemClass::Count, "a delta does not fit its place"));
        }
        let value = context.published(off + info.value_at(), u64::from(info.value_bytes));
        let is_possible = match info.kind {
            Kind::Insert | Kind::Modify => !is_inner && (!info.is_pointer || value.len() == 8),
            Kind::Delete => !is_inner,
            Kind::Split | Kind::NodeMerge => value.len() == 8,
            Kind::IndexEntry => is_inner && value.len() >= 8,
            Kind::IndexEntryDelete => {
                is_inner && value.len() >= 16 && word_of(&value[8..]) <= value.len() as u64 - 16
            }
            Kind::RemoveNode | Kind::Leaf | Kind::Inner | Kind::Partial => false,
        };
        if !is_possible {
            return Err((STRUCTURE, "a delta is not of a kind that the page can have"));
        }
        if info.kind == Kind::NodeMerge {
            let content = Link(word_of(value));
            if depth > 0
                || content.is_inner() != is_inner
                || content.is_removed()
                || content != content.content()
            {
                return Err((STRUCTURE, "a node merge leads to what is no page's content"));
            }
            check_chain(context, content, depth + 1, steps)?;
        }
        let next = Link(context.fixed(off + 8));
        if next.0 & pando_pmwcas::CONTROL_BITS != 0 || next.is_removed() || next != next.content() {
            return Err((STRUCTURE, "a delta leads to what is no record"));
        }
        if !info.is_own && next.base_off().is_some_and(|base| Some(base) != link.base_off()) {
            return Err((STRUCTURE, "a delta leads to another page's record"));
        }
        link = next;
    }
    let bytes = context.pool().active_block(link.off());
    let bytes = bytes.ok_or((BLOCK, "a page's block is not allocated"))?;
    if link.is_inner() != is_inner {
        return Err((STRUCTURE, "a chain leads to a page of another kind"));
    }
    check_page(context, link, bytes)
}

/// The place of a delta, and the bytes that it may have.
fn delta_place<D: Domain>(context: Context<'_, D>, link: Link) -> Result<(u64, u64), Broken> {
    const BLOCK: ProblemClass = ProblemClass::Block;
    let off = link.off();
    if let Some(bytes) = context.pool().active_block(off) {
        return if bytes >= 64 {
            Ok((off, bytes))
        } else {
            Err((BLOCK, "a delta's block is short"))
        };
    }
    // Beside a base: the base of the link, or farther from it than a link can say.
    let Some(base) = link.base_off() else {
        return Err((BLOCK, "a delta's block is not allocated"));
    };
    let bytes = context.pool().active_block(base);
    let bytes = bytes.ok_or((BLOCK, "the block of a delta's page is not allocated"))?;
    let sizes = context.fixed(base + 8);
    let (first, end) = (deltas_at(sizes & 0xFFFF_FFFF), sizes >> 32);
    let at = off - base;
    let is_within = at >= first && at < end && end <= bytes && end - at >= DELTA_ALIGN;
    if !is_within || !at.is_multiple_of(DELTA_ALIGN) {
        return Err((BLOCK, "a delta stands outside its page's room"));
    }
    Ok((off, end - at))
}

fn check_page<D: Domain>(context: Context<'_, D>, link: Link, bytes: u64) -> Result<(), Broken> {
    const COUNT: ProblemClass = ProblemClass::Count;
    let word = |index: u64| context.fixed(link.off() + index * 8);
    if bytes < HEADER_BYTES {
        return Err((COUNT, "a page's block is short"));
    }
    let info = PageInfo::decode(word(INFO_WORD));
    let kind = Kind::decode(word(INFO_WORD));
    let is_kind = kind == Some(if info.level == 0 { Kind::Leaf } else { Kind::Inner });
    if !is_kind || info.encode() != word(INFO_WORD) || link.is_inner() != (info.level > 0) {
        return Err((ProblemClass::Structure, "what a PID leads to is no page"));
    }
    let page = Page::new(context, link.off(), link.is_inner());
    let page = page.map_err(|_| (COUNT, "a page's sizes do not fit its records"))?;
    let (base, end) = (page.base_bytes(), page.end());
    if base % 8 != 0 || end > bytes {
        return Err((COUNT, "a page's sizes do not fit its block"));
    }
    for index in [LOW_WORD, HIGH_WORD] {
        let (at, length) = (word(index) & 0xFFFF_FFFF, (word(index) >> 32) as u32);
        if length != NO_KEY && at + u64::from(length) > base {
            return Err((COUNT, "a page's range lies outside its base"));
        }
    }
    if !info.is_words {
        check_places(context, link.off(), info, base)?;
    }
    let high_slice = page.high().map_or(u64::MAX, slice_of);
    if word(HIGH_SLICE_WORD) != high_slice {
        return Err((ProblemClass::Separator, "a page's high slice is not its high key's"));
    }
    let (first, prefix) = (page.first(), usize::from(info.prefix_bytes));
    for index in first..page.records() {
        let key = page.key(index);
        let slice = key.get(prefix..).map(slice_of).map(u64::to_be_bytes);
        let same_prefix = key.get(..prefix) == page.key(first).get(..prefix);
        if !same_prefix || slice != Some(page.slice_bytes(index)) {
            return Err((ProblemClass::Separator, "a slice is not its key's"));
        }
    }
    Ok(())
}

fn check_places<D: Domain>(
    context: Context<'_, D>,
    off: u64,
    info: PageInfo,
    base: u64,
) -> Result<(), Broken> {
    let records = u64::from(info.records);
    for index in 0..records {
        let place = Place::decode(context.fixed(off + SLICES_AT + (records + index) * 8));
        let end = u64::from(place.at) + u64::from(place.key_bytes) + u64::from(place.value_bytes);
        let is_child = info.level > 0 && (place.is_pointer || place.value_bytes != 8);
        if end > base || is_child || (place.is_pointer && place.value_bytes != 8) {
            return Err((ProblemClass::Count, "a record lies outside its page"));
        }
    }
    Ok(())
}
