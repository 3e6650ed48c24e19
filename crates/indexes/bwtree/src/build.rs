//! New pages and values' blocks: written and flushed before any other thread can see them. Deltas
//! are in `prepend.rs`.

use std::ops::Range;

use pando_index::Result;
use pando_pmem::{Domain, Exclusive, mutant};
use pando_tree::blocks::NewBlock;
use pando_tree::context::Context;
use pando_tree::key::{SLICE_BYTES, alike_bytes, shortest_between, slice_of};

use crate::context::{Pid, Value};
use crate::gather::Item;
use crate::layout::{
    HIGH_SLICE_WORD, HIGH_WORD, INFO_WORD, Kind, LOW_WORD, MAX_DELTAS_END, NO_KEY, PageInfo, Place,
    RESERVED_WORD, RIGHT_WORD, SHAPE_WORD, SIZES_WORD, SLICES_AT, deltas_at,
};
use crate::page::Page;

/// A base page to be built.
#[derive(Debug)]
pub struct NewPage<'page, 'op, D: Domain> {
    pub level: u8,
    pub low: &'page [u8],
    pub high: Option<&'page [u8]>,
    pub right: Pid,
    pub items: &'page [Item<'op, D>],
    /// The least bytes of its delta space.
    pub room: u64,
    /// It is a partial page (`blind.rs`), and `right` the page's own PID.
    pub is_partial: bool,
}

/// Totals and common lengths of the records of a page.
#[derive(Clone, Copy, Debug)]
struct Totals {
    records: usize,
    /// The length of each key and of each value, if all keys have one length, all values too, and
    /// no value has a block.
    lengths: Option<(usize, usize)>,
    /// Bytes of all keys and values.
    bytes: u64,
}

impl Totals {
    fn of<D: Domain>(items: &[Item<'_, D>], is_inner: bool) -> Self {
        let mut totals = Self { records: 0, lengths: None, bytes: 0 };
        let mut is_mixed = false;
        let mut key_bytes = None;
        let mut value_bytes = None;
        let mut same = |known: &mut Option<usize>, found: usize| {
            is_mixed |= *known.get_or_insert(found) != found;
        };
        let mut has_block = false;
        for item in items {
            if let Item::Run(page, range) = item
                && let Some((keys, values)) = page.words_shape()
            {
                same(&mut key_bytes, usize::from(keys));
                same(&mut value_bytes, usize::from(values));
                totals.records += range.len();
                totals.bytes += range.len() as u64 * (u64::from(keys) + u64::from(values));
                continue;
            }
            each(item, &mut |key, value| {
                let is_lowest = is_inner && totals.records == 0;
                totals.records += 1;
                if !is_lowest {
                    same(&mut key_bytes, key.len());
                    totals.bytes += key.len() as u64;
                }
                match value {
                    Value::Inline(bytes) => {
                        same(&mut value_bytes, bytes.len());
                        totals.bytes += bytes.len() as u64;
                    }
                    Value::Block(_) => {
                        has_block = true;
                        totals.bytes += 8;
                    }
                }
            });
        }
        let lengths = (key_bytes.unwrap_or(0), value_bytes.unwrap_or(0));
        if !is_mixed && !has_block && lengths.0 <= SLICE_BYTES {
            totals.lengths = Some(lengths);
        }
        totals
    }

    /// Bytes of the slices, of the places (or of the values in their stead), and of the rest.
    fn body_bytes(&self) -> u64 {
        let records = self.records as u64;
        match self.lengths {
            Some((_, value_bytes)) => {
                (records * 8 + records * value_bytes as u64).next_multiple_of(8)
            }
            None => records * 16 + self.bytes,
        }
    }
}

fn each<'op, D: Domain>(item: &Item<'op, D>, visit: &mut dyn FnMut(&'op [u8], Value<'op>)) {
    match item {
        Item::Run(page, range) => {
            range.clone().for_each(|index| visit(page.key(index), page.value(index)));
        }
        Item::One(key, value) => visit(key, *value),
    }
}

/// All records of the items, in order.
pub(crate) fn each_record<'op, D: Domain>(
    items: &[Item<'op, D>],
    mut visit: impl FnMut(&'op [u8], Value<'op>),
) {
    items.iter().for_each(|item| each(item, &mut visit));
}

/// Bytes of a base with these records, without its low and high key.
pub(crate) fn base_bytes<D: Domain>(items: &[Item<'_, D>], is_inner: bool) -> u64 {
    SLICES_AT + Totals::of(items, is_inner).body_bytes()
}

/// The result of a cut of a page.
#[derive(Debug)]
pub struct Cut<'op, D: Domain> {
    /// The records on the right.
    pub right: Vec<Item<'op, D>>,
    /// The records from this key on are on the right.
    pub separator: &'op [u8],
}

/// Cuts the records into two halves of about the same bytes; `None` if there are too few. Each half
/// of an inner page keeps two children. With one child, it would lead nowhere that its parent does
/// not, and a root of two long keys would be cut again and again.
pub(crate) fn cut<'op, D: Domain>(items: &[Item<'op, D>], is_inner: bool) -> Option<Cut<'op, D>> {
    let least = if is_inner { 2 } else { 1 };
    let mut sizes = Vec::new();
    each_record(items, |key, value| {
        sizes.push(key.len() + if let Value::Inline(bytes) = value { bytes.len() } else { 8 } + 16);
    });
    if sizes.len() < 2 * least {
        return None;
    }
    let half = sizes.iter().sum::<usize>() / 2;
    let mut sum = 0;
    let below_half = sizes.iter().take_while(|&&bytes| {
        sum += bytes;
        sum <= half
    });
    let at = below_half.count().clamp(least, sizes.len() - least);
    let right = behind(items, at);
    let (mut index, mut below, mut above): (_, &[u8], &[u8]) = (0, &[], &[]);
    each_record(items, |key, _| {
        if index + 1 == at {
            below = key;
        } else if index == at {
            above = key;
        }
        index += 1;
    });
    // Keys of up to eight bytes are not shortened: keys of one length are found faster.
    let separator = match is_inner || above.len() <= SLICE_BYTES {
        true => above,
        false => shortest_between(below, above),
    };
    Some(Cut { right, separator })
}

/// The items from record `at` on.
fn behind<'op, D: Domain>(items: &[Item<'op, D>], at: usize) -> Vec<Item<'op, D>> {
    let mut right = Vec::new();
    let mut before = 0;
    for item in items {
        match item {
            Item::Run(page, range) => {
                let own = at.saturating_sub(before).min(range.len());
                if own < range.len() {
                    right.push(Item::Run(*page, range.start + own..range.end));
                }
                before += range.len();
            }
            one => {
                if before >= at {
                    right.push(one.clone());
                }
                before += 1;
            }
        }
    }
    right
}

/// Writes a base page.
struct Writer<'block, 'range> {
    bytes: &'range mut Exclusive<'block>,
    records: usize,
    next: usize,
    /// Where the next key or value goes, and the end of the room.
    at: usize,
    end: usize,
    /// There was more to write than was counted: the block is in use, because damaged bits named it
    /// as free.
    is_over: bool,
    lengths: Option<(usize, usize)>,
    prefix_bytes: usize,
}

impl Writer<'_, '_> {
    fn word(&mut self, at: usize, word: u64) {
        self.bytes.write_u64(at, word);
    }

    fn copy(&mut self, source: &[u8]) {
        if source.len() > self.end - self.at {
            self.is_over = true;
            return;
        }
        self.bytes.write(self.at, source);
        self.at += source.len();
    }

    fn record(&mut self, key: &[u8], value: Value<'_>) {
        let slice = slice_of(key.get(self.prefix_bytes..).unwrap_or_default());
        self.word(SLICES_AT as usize + self.next * 8, slice.swap_bytes());
        let place = Place {
            at: self.at as u32,
            key_bytes: key.len() as u16,
            value_bytes: match value {
                Value::Inline(bytes) => bytes.len() as u16,
                Value::Block(_) => 8,
            },
            is_pointer: matches!(value, Value::Block(_)),
        };
        if self.lengths.is_none() {
            self.word(SLICES_AT as usize + (self.records + self.next) * 8, place.encode());
            self.copy(key);
        }
        match value {
            Value::Inline(bytes) => self.copy(bytes),
            Value::Block(off) => self.copy(&off.to_le_bytes()),
        }
        self.next += 1;
    }

    /// Copies records of a page whose lengths are those of this page.
    fn run<D: Domain>(
        &mut self,
        context: Context<'_, D>,
        page: &Page<'_, D>,
        range: &Range<usize>,
        value_bytes: usize,
    ) {
        let (first, count) = (range.start as u64, range.len());
        let slices = context.published(page.off + SLICES_AT + first * 8, count as u64 * 8);
        let start = SLICES_AT as usize + self.next * 8;
        self.bytes.write(start, slices);
        let values_at = page.values_at() + first * value_bytes as u64;
        self.copy(context.published(page.off + values_at, (count * value_bytes) as u64));
        self.next += count;
    }
}

impl<D: Domain> NewPage<'_, '_, D> {
    /// Builds the page.
    pub fn build<'op>(&self, context: Context<'op, D>) -> Result<NewBlock<'op, D>> {
        self.build_in(context, None)
    }

    /// The same, in a block that was reserved, if it is long enough.
    pub fn build_in<'op>(
        &self,
        context: Context<'op, D>,
        reserved: Option<NewBlock<'op, D>>,
    ) -> Result<NewBlock<'op, D>> {
        let is_inner = self.level > 0;
        let totals = Totals::of(self.items, is_inner);
        let fences = (self.low.len() + self.high.map_or(0, <[u8]>::len)) as u64;
        let fences_at = SLICES_AT + totals.body_bytes();
        let base_bytes = (fences_at + fences).next_multiple_of(8);
        let deltas_at = deltas_at(base_bytes);
        let bytes = deltas_at + self.room;
        debug_assert!(reserved.as_ref().is_none_or(|block| block.bytes() >= bytes));
        let mut block = match reserved.filter(|block| block.bytes() >= bytes) {
            Some(block) => block,
            None => context.reserve(bytes)?,
        };
        let end = match self.room {
            0 => deltas_at,
            _ => block.bytes().min(MAX_DELTAS_END).max(deltas_at),
        };
        let generation = u64::from(context.pool().generation());
        let off = block.off();
        if let Some(mut bytes) = block.range_mut(0, deltas_at) {
            if !self.write(context, &mut bytes, &totals, fences_at as usize, end) {
                context.guard.note_damage(off);
            }
            let claim_at = deltas_at as usize - 8;
            bytes.zero(base_bytes as usize, claim_at - base_bytes as usize);
            bytes.write_u64(claim_at, generation << 32 | deltas_at);
        }
        if !mutant!("bw-page-not-flushed") {
            block.flush(0, deltas_at);
        }
        Ok(block)
    }

    /// Returns whether everything fitted, as counted.
    fn write(
        &self,
        context: Context<'_, D>,
        bytes: &mut Exclusive<'_>,
        totals: &Totals,
        fences_at: usize,
        end: u64,
    ) -> bool {
        let is_inner = self.level > 0;
        let prefix_bytes = match totals.lengths {
            Some(_) => 0,
            None => self.prefix_bytes(is_inner),
        };
        let places = if totals.lengths.is_some() { 1 } else { 2 };
        let mut writer = Writer {
            bytes,
            records: totals.records,
            next: 0,
            at: SLICES_AT as usize + totals.records * 8 * places,
            end: fences_at,
            is_over: false,
            lengths: totals.lengths,
            prefix_bytes,
        };
        for item in self.items {
            if let (Item::Run(page, range), Some((keys, values))) = (item, totals.lengths)
                && page.words_shape() == Some((keys as u16, values as u16))
            {
                writer.run(context, page, range, values);
                continue;
            }
            each(item, &mut |key, value| {
                let key = if is_inner && writer.next == 0 { &[] } else { key };
                writer.record(key, value);
            });
        }
        let is_whole = !writer.is_over;
        let body_end = writer.at;
        writer.bytes.zero(body_end, fences_at - body_end);
        writer.at = fences_at;
        writer.end = usize::MAX;
        let low_at = writer.at as u64;
        writer.copy(self.low);
        let high_at = writer.at as u64;
        writer.copy(self.high.unwrap_or_default());
        let base_end = writer.at.next_multiple_of(8);
        let fences_end = writer.at;
        writer.bytes.zero(fences_end, base_end - fences_end);
        let info = PageInfo {
            level: self.level,
            is_words: totals.lengths.is_some(),
            prefix_bytes: prefix_bytes as u16,
            records: totals.records as u32,
        };
        let info = match self.is_partial {
            true => info.encode_as(Kind::Partial),
            false => info.encode(),
        };
        let high_bytes = self.high.map_or(NO_KEY, |high| high.len() as u32);
        let (keys, values) = totals.lengths.unwrap_or_default();
        let words = [
            (INFO_WORD, info),
            (SIZES_WORD, end << 32 | base_end as u64),
            (RIGHT_WORD, self.right),
            (LOW_WORD, (self.low.len() as u64) << 32 | low_at),
            (HIGH_WORD, u64::from(high_bytes) << 32 | high_at),
            (SHAPE_WORD, (values as u64) << 16 | keys as u64),
            (RESERVED_WORD, 0),
            (HIGH_SLICE_WORD, self.high.map_or(u64::MAX, slice_of)),
        ];
        for (index, word) in words {
            writer.word(index as usize * 8, word);
        }
        is_whole
    }

    /// The length of the prefix that all kept keys share.
    fn prefix_bytes(&self, is_inner: bool) -> usize {
        let (mut index, mut first, mut last): (_, Option<&[u8]>, &[u8]) = (0, None, &[]);
        each_record(self.items, |key, _| {
            if index > 0 || !is_inner {
                first.get_or_insert(key);
                last = key;
            }
            index += 1;
        });
        alike_bytes(first.unwrap_or_default(), last)
    }
}
