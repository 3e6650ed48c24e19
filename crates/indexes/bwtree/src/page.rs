//! Reads of base pages and deltas by a pinned thread.
//!
//! A link may lead anywhere, because the word that it was read from may be damaged. So its target
//! counts as a page or a delta only if the target itself agrees with the link, and lies in the pool
//! with its whole length. A walk along a chain ends after as many steps as no undamaged chain has.
//! In all other cases the caller gets [`Damaged`]. (The lengths of keys and values in such a page
//! are not checked, but no access goes past the end of its base.)

use std::ops::Range;
use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Words};
use pando_tree::context::Context;
use pando_tree::key::{Probe, SLICE_BYTES, slice_of};

use crate::context::{Damaged, Pid, Value, word_of};
use crate::layout::{
    DELTA_ALIGN, DeltaInfo, HEADER_BYTES, HIGH_SLICE_WORD, HIGH_WORD, INFO_WORD, KEY_AT, Kind,
    LOW_WORD, Link, NO_KEY, PageInfo, Place, RIGHT_WORD, SHAPE_WORD, SIZES_WORD, SLICES_AT,
    deltas_at,
};

/// No undamaged chain has more deltas, also with the two chains of a node merge.
pub(crate) const MAX_CHAIN: usize = 1024;

/// A base page.
#[derive(Clone, Copy, Debug)]
pub struct Page<'op, D: Domain> {
    context: Context<'op, D>,
    pub off: u64,
    pub info: PageInfo,
    words: Words<'op, D>,
    /// Bytes of the base, including the low and high key.
    base_bytes: u64,
    /// Bytes of each key and each value, if the page has no places.
    key_bytes: u16,
    value_bytes: u16,
}

/// The position of a key among the records of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Located {
    /// The key of this record.
    At(usize),
    /// The number of records before it.
    Before(usize),
}

/// The error of a base page that is not of the kind that was expected.
#[cold]
fn no_page(info_word: u64, off: u64, right: Pid) -> Damaged {
    match Kind::decode(info_word) {
        Some(Kind::Partial) => Damaged::unread(right),
        _ => Damaged::at(off),
    }
}

impl<'op, D: Domain> Page<'op, D> {
    /// The base of the chain that `link` leads to, which is not [`Link::EMPTY`].
    #[inline(always)]
    pub fn of(context: Context<'op, D>, link: Link) -> Result<Self, Damaged> {
        let mut chain = Chain::new(link);
        loop {
            if let Some(off) = chain.link.base_off() {
                return Self::new(context, off, link.is_inner());
            }
            chain.next(context)?;
        }
    }

    /// The base of the chain, which may be a partial page.
    pub fn any_of(context: Context<'op, D>, link: Link) -> Result<Self, Damaged> {
        match Self::of(context, link) {
            Err(unread) if unread.unread_pid().is_some() => {
                let mut chain = Chain::new(link);
                while chain.next(context)?.is_some() {}
                let base_off = chain.link.base_off().ok_or(unread)?;
                Self::of_kind(context, base_off, (false, Kind::Partial))
            }
            page => page,
        }
    }

    /// The base page at `off`, which is no partial page.
    ///
    /// # Errors
    ///
    /// [`Damaged`]; that of [`Damaged::unread`] if it is a partial page.
    #[inline(always)]
    pub fn new(context: Context<'op, D>, off: u64, is_inner: bool) -> Result<Self, Damaged> {
        let kind = if is_inner { Kind::Inner } else { Kind::Leaf };
        Self::of_kind(context, off, (is_inner, kind))
    }

    #[inline(always)]
    fn of_kind(
        context: Context<'op, D>,
        off: u64,
        (is_inner, kind): (bool, Kind),
    ) -> Result<Self, Damaged> {
        let pool = context.pool();
        let head = pool.words_within(off, HEADER_BYTES / 8).ok_or(Damaged::at(off))?;
        let word = |at| head.load(at, Ordering::Relaxed);
        let (info_word, sizes) = (word(INFO_WORD), word(SIZES_WORD));
        let info = PageInfo::decode(info_word);
        let (base_bytes, end) = (sizes & 0xFFFF_FFFF, sizes >> 32);
        let shape = if info.is_words { word(SHAPE_WORD) } else { 0 };
        let (key_bytes, value_bytes) = (shape as u16, (shape >> 16) as u16);
        let record_bytes = 8 + if info.is_words { u64::from(value_bytes) } else { 8 };
        let records_end = SLICES_AT + u64::from(info.records) * record_bytes;
        let is_page = info_word & 0xF == kind as u64
            && is_inner == (info.level > 0)
            && records_end <= base_bytes
            && deltas_at(base_bytes) <= end
            && usize::from(key_bytes) <= SLICE_BYTES
            && (!is_inner || info.records > 0 && (!info.is_words || value_bytes == 8))
            && pool.words_within(off, end.div_ceil(8)).is_some();
        if !is_page {
            return Err(no_page(info_word, off, word(RIGHT_WORD)));
        }
        let words = pool.words(off, base_bytes.div_ceil(8));
        Ok(Self { context, off, info, words, base_bytes, key_bytes, value_bytes })
    }

    /// Whether it is a partial page (`blind.rs`).
    pub fn is_partial(&self) -> bool {
        self.word(INFO_WORD) & 0xF == Kind::Partial as u64
    }

    /// The bytes of the base; none if they exceed its block.
    #[inline(always)]
    fn bytes(&self, at: u64, bytes: u64) -> &'op [u8] {
        if at + bytes <= self.base_bytes {
            self.context.published(self.off + at, bytes)
        } else {
            &[]
        }
    }

    #[inline(always)]
    fn word(&self, index: u64) -> u64 {
        // Relaxed: a base never changes, and the word that led here was read with acquire.
        self.words.load(index, Ordering::Relaxed)
    }

    #[inline(always)]
    pub fn records(&self) -> usize {
        self.info.records as usize
    }

    #[inline(always)]
    pub fn level(&self) -> u8 {
        self.info.level
    }

    pub fn base_bytes(&self) -> u64 {
        self.base_bytes
    }

    /// Bytes of its header and its records, without its low and high key.
    pub fn body_bytes(&self) -> u64 {
        self.word(LOW_WORD) & 0xFFFF_FFFF
    }

    /// Where its delta space ends.
    pub fn end(&self) -> u64 {
        self.word(SIZES_WORD) >> 32
    }

    pub fn deltas_at(&self) -> u64 {
        deltas_at(self.base_bytes())
    }

    pub fn right(&self) -> Pid {
        self.word(RIGHT_WORD)
    }

    pub fn low(&self) -> &'op [u8] {
        self.fence(self.word(LOW_WORD)).unwrap_or_default()
    }

    /// The high key: the page has the records below it.
    pub fn high(&self) -> Option<&'op [u8]> {
        self.fence(self.word(HIGH_WORD))
    }

    fn fence(&self, word: u64) -> Option<&'op [u8]> {
        let bytes = (word >> 32) as u32;
        (bytes != NO_KEY).then(|| self.bytes(word & 0xFFFF_FFFF, u64::from(bytes)))
    }

    /// Whether the key lies behind the page.
    #[inline(always)]
    pub fn is_before(&self, probe: Probe<'_>) -> bool {
        let head = self.word(HIGH_SLICE_WORD);
        if probe.slice < head { false } else { self.is_before_all_of(probe) }
    }

    /// Whether the key lies before the page. Called when no record is before the key.
    #[cold]
    pub fn begins_behind(&self, probe: Probe<'_>) -> bool {
        self.low() > probe.bytes
    }

    #[cold]
    fn is_before_all_of(&self, probe: Probe<'_>) -> bool {
        self.high().is_some_and(|high| high <= probe.bytes)
    }

    #[inline(always)]
    pub fn slice_bytes(&self, index: usize) -> [u8; 8] {
        self.word(SLICES_AT / 8 + index as u64).to_le_bytes()
    }

    #[inline(always)]
    fn slice(&self, index: usize) -> u64 {
        self.word(SLICES_AT / 8 + index as u64).swap_bytes()
    }

    #[inline(always)]
    pub fn place(&self, index: usize) -> Place {
        Place::decode(self.word(SLICES_AT / 8 + (self.records() + index) as u64))
    }

    /// The key of a record.
    #[inline(always)]
    pub fn key(&self, index: usize) -> &'op [u8] {
        if index < self.first() {
            return self.low();
        }
        if self.info.is_words {
            let at = SLICES_AT + index as u64 * 8;
            return self.context.published(self.off + at, u64::from(self.key_bytes));
        }
        let place = self.place(index);
        self.bytes(u64::from(place.at), u64::from(place.key_bytes))
    }

    /// The value of a record.
    #[inline(always)]
    pub fn value(&self, index: usize) -> Value<'op> {
        if self.info.is_words {
            let bytes = u64::from(self.value_bytes);
            let at = self.values_at() + index as u64 * bytes;
            return Value::Inline(self.context.published(self.off + at, bytes));
        }
        let place = self.place(index);
        let at = u64::from(place.at) + u64::from(place.key_bytes);
        let bytes = self.bytes(at, u64::from(place.value_bytes));
        if place.is_pointer { Value::Block(word_of(bytes)) } else { Value::Inline(bytes) }
    }

    /// The child in a record of an inner page.
    #[inline(always)]
    pub fn child(&self, index: usize) -> Pid {
        if self.info.is_words {
            return self.word(self.values_at() / 8 + index as u64);
        }
        self.value(index).child()
    }

    #[inline(always)]
    pub fn values_at(&self) -> u64 {
        SLICES_AT + self.records() as u64 * 8
    }

    /// The length of each key and of each value, if they are all the same and short.
    pub fn words_shape(&self) -> Option<(u16, u16)> {
        self.info.is_words.then_some((self.key_bytes, self.value_bytes))
    }

    /// The first record whose key is stored.
    #[inline(always)]
    pub fn first(&self) -> usize {
        usize::from(self.info.level > 0)
    }

    /// The position of the key among all records whose keys are stored.
    #[inline(always)]
    pub fn locate(&self, probe: Probe<'_>) -> Located {
        self.locate_in(self.first()..self.records(), probe)
    }

    /// The position of the key, which is known to be in `range`.
    #[inline(always)]
    pub fn locate_in(&self, range: Range<usize>, probe: Probe<'_>) -> Located {
        let prefix_bytes = usize::from(self.info.prefix_bytes);
        let slice = if prefix_bytes == 0 {
            probe.slice
        } else {
            let prefix = self.key(self.first()).get(..prefix_bytes).unwrap_or_default();
            match probe.bytes.get(..prefix_bytes) {
                Some(first) if first == prefix => slice_of(&probe.bytes[prefix_bytes..]),
                _ if probe.bytes < prefix => return Located::Before(range.start),
                _ => return Located::Before(range.end),
            }
        };
        let low = self.first_not_below(range.clone(), slice);
        if low >= range.end || self.slice(low) != slice {
            return Located::Before(low);
        }
        if self.info.is_words {
            // Keys of one length: no other key has this slice.
            return match usize::from(self.key_bytes).cmp(&probe.bytes.len()) {
                std::cmp::Ordering::Equal => Located::At(low),
                std::cmp::Ordering::Greater => Located::Before(low),
                std::cmp::Ordering::Less => Located::Before(low + 1),
            };
        }
        self.locate_among_equals(low..range.end, slice, probe)
    }

    /// The position of the key among records of which the first has its slice.
    fn locate_among_equals(&self, range: Range<usize>, slice: u64, probe: Probe<'_>) -> Located {
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low.midpoint(high);
            let order = match self.slice(middle).cmp(&slice) {
                std::cmp::Ordering::Equal => self.key(middle).cmp(probe.bytes),
                other => other,
            };
            match order {
                std::cmp::Ordering::Equal => return Located::At(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Located::Before(low)
    }

    /// The first record in `range` whose slice is not below `slice`, or the end of `range`.
    ///
    /// There is no branch on the result of a comparison: it would be mispredicted half of the time.
    /// The three loads of a step wait for their lines together.
    #[inline(always)]
    fn first_not_below(&self, range: Range<usize>, slice: u64) -> usize {
        let (mut low, mut size) = (range.start, range.end.saturating_sub(range.start));
        let is_below = |index: usize| usize::from(self.slice(index) < slice);
        let mut is_narrow = size < 16;
        while size >= 4 {
            if !is_narrow && size < 16 {
                // The places needed next are near the slices that are still searched.
                is_narrow = true;
                let at = self.off + self.values_at() + low as u64 * 8;
                self.context.pool().prefetch(at);
                self.context.pool().prefetch(at + 64);
            }
            let quarter = size / 4;
            let pivot = low + quarter - 1;
            let steps = is_below(pivot) + is_below(pivot + quarter) + is_below(pivot + 2 * quarter);
            // The last part also has the rest of the division. The other parts include slices of
            // the next part, which are not below, so this does no harm.
            (low, size) = (low + steps * quarter, size - 3 * quarter);
        }
        (0..size).fold(low, |found, index| found + is_below(low + index))
    }
}

/// A delta.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'op, D: Domain> {
    context: Context<'op, D>,
    pub off: u64,
    pub info: DeltaInfo,
}

/// A range of keys and the child that it leads to.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'op> {
    pub child: Pid,
    pub low: &'op [u8],
    pub high: Option<&'op [u8]>,
}

impl<'op, D: Domain> Delta<'op, D> {
    /// The delta that `link` leads to; `None` if it leads to a base.
    #[inline(always)]
    pub fn of(context: Context<'op, D>, link: Link) -> Result<Option<Self>, Damaged> {
        Chain::new(link).next(context)
    }

    /// The delta at `off`.
    #[inline(always)]
    pub fn new(context: Context<'op, D>, off: u64) -> Result<Self, Damaged> {
        let damaged = Damaged::at(off);
        let info = DeltaInfo::decode(context.fixed(off)).ok_or(damaged)?;
        let words = info.bytes().max(DELTA_ALIGN).div_ceil(8);
        context.pool().words_within(off, words).ok_or(damaged)?;
        Ok(Self { context, off, info })
    }

    /// The link to the record that it was prepended to.
    #[inline(always)]
    pub fn next(&self) -> Link {
        Link(self.context.fixed(self.off + 8))
    }

    #[inline(always)]
    pub fn key_slice(&self) -> u64 {
        self.context.fixed(self.off + KEY_AT).swap_bytes()
    }

    #[inline(always)]
    pub fn key(&self) -> &'op [u8] {
        self.context.published(self.off + KEY_AT, u64::from(self.info.key_bytes))
    }

    /// Whether its key is that of `probe`.
    #[inline(always)]
    pub fn is_of(&self, probe: Probe<'_>) -> bool {
        self.key_slice() == probe.slice
            && usize::from(self.info.key_bytes) == probe.bytes.len()
            && (probe.bytes.len() <= 8 || self.key() == probe.bytes)
    }

    /// Whether its key is not behind that of `probe`.
    #[inline(always)]
    pub fn is_not_behind(&self, probe: Probe<'_>) -> bool {
        probe.compare_with(self.key_slice(), || self.key()).is_le()
    }

    #[inline(always)]
    pub fn value_bytes(&self) -> &'op [u8] {
        let at = self.off + self.info.value_at();
        self.context.published(at, u64::from(self.info.value_bytes))
    }

    #[inline(always)]
    pub fn value(&self) -> Value<'op> {
        let bytes = self.value_bytes();
        if self.info.is_pointer { Value::Block(word_of(bytes)) } else { Value::Inline(bytes) }
    }

    /// The first word of its value: a PID, or a link.
    #[inline(always)]
    pub fn value_word(&self) -> u64 {
        if self.info.value_bytes < 8 {
            return 0;
        }
        self.context.fixed(self.off + self.info.value_at())
    }

    /// The range of an index entry, or of an index entry delete, with its child.
    #[inline(always)]
    pub fn entry(&self) -> Result<Entry<'op>, Damaged> {
        let damaged = Damaged::at(self.off);
        let (child, rest) = self.value_bytes().split_first_chunk::<8>().ok_or(damaged)?;
        let child = u64::from_le_bytes(*child);
        let high = |bytes| (!self.info.is_endless).then_some(bytes);
        if self.info.kind == Kind::IndexEntry {
            return Ok(Entry { child, low: self.key(), high: high(rest) });
        }
        let (length, keys) = rest.split_first_chunk::<8>().ok_or(damaged)?;
        let length = u64::from_le_bytes(*length) as usize;
        let (low, end) = keys.split_at_checked(length).ok_or(damaged)?;
        Ok(Entry { child, low, high: high(end) })
    }
}

/// A walk along a chain, from its newest record on.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// The rest of the chain.
    pub link: Link,
    steps: usize,
}

impl Chain {
    #[inline(always)]
    pub fn new(link: Link) -> Self {
        Self { link, steps: 0 }
    }

    /// The next delta; `None` at the base, to which `link` then leads.
    #[inline(always)]
    pub fn next<'op, D: Domain>(
        &mut self,
        context: Context<'op, D>,
    ) -> Result<Option<Delta<'op, D>>, Damaged> {
        if self.link.is_base() {
            return Ok(None);
        }
        self.steps += 1;
        if self.steps > MAX_CHAIN {
            return Err(Damaged::at(self.link.off()));
        }
        let delta = Delta::new(context, self.link.off())?;
        let next = delta.next();
        if next.is_inner() != self.link.is_inner() {
            return Err(Damaged::at(delta.off));
        }
        self.link = next;
        Ok(Some(delta))
    }
}

impl Located {
    /// The position with so many records before the key.
    #[inline(always)]
    pub fn position(self) -> usize {
        match self {
            Self::At(at) | Self::Before(at) => at,
        }
    }
}
