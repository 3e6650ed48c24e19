//! Range leaves as a pinned thread reads them.
//!
//! A key's slots are taken in a fixed order: those of its bucket, then those of the overflow lines,
//! from a line on that depends on the bucket. No slot is ever free again, and none is skipped. So a
//! pass in this order ends at the first free slot: at the time when that was read, the key had no
//! slot behind it. (A get reads its whole bucket: see there.) The distance in a key word that is
//! taken never changes.
//!
//! The first slot of the key that is not *moved* is its current one, and its value word says
//! whether the key is present. Of a versioned value, the key word and the value word are read as
//! they were at one point in time (`taken`). *Moved* is final, and no other slot of the key is
//! present. So what the current slot says held when its value word was read. After a moved slot,
//! the slots behind it are read, again if they were read before: the key has one of them.
//!
//! A reader checks nothing else of the leaf. The words of a closed leaf hold its last state, and a
//! leaf that was replaced was in place after the reader's descent began ([`pando_inner`]).

use std::sync::atomic::Ordering;

use pando_inner::Node;
use pando_pmem::{Domain, Words, mutant};
use pando_pmwcas::CONTROL_BITS;
use pando_tree::context::Context;

use crate::layout::{
    BUCKET_LINES, FREE, Geometry, KEY_CLOSED, KeyWords, LINE_BYTES, LINE_SLOTS, LINE_WORDS, LOW_AT,
    MAX_DISTANCE, MAX_OVERFLOW_SLOTS, MAX_SLOTS, Map, Pair, RangeShape, SEPARATORS_AT, State,
    ValueWord, is_same_class, is_taken,
};

/// A range leaf.
#[derive(Clone, Copy, Debug)]
pub struct RangeLeaf {
    /// Its fixed part.
    pub node: Node,
    pub(crate) shape: RangeShape,
    /// The lowest key that it may have.
    pub low: u64,
}

/// The key and value words of a line.
pub(crate) type Line = [u64; LINE_WORDS as usize];

/// A slot, by the index of its key word among the words of the leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(pub u64);

impl Slot {
    pub fn new(line: u64, at: u64) -> Self {
        Self(line * LINE_WORDS + at)
    }

    /// Its line in the leaf.
    pub fn line(self) -> u64 {
        self.0 / LINE_WORDS
    }
}

/// A slot of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub slot: Slot,
    pub key_word: u64,
    pub word: ValueWord,
}

/// Where a pass over a key's slots may end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// At the current slot.
    Current,
    /// At the current slot, if that can take this value.
    Takes(u64),
    /// At a free slot.
    Free,
}

/// The result of a pass over a key's slots.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub bucket: u64,
    /// The first slot of the key that is not moved.
    pub current: Option<Taken>,
    /// The empty slots behind it.
    pub behind: Vec<Taken>,
    /// The first free slot, and the index of its line in the key's order.
    pub free: Option<(Slot, u64)>,
    /// The leaf is closed: a word behind the current slot says so.
    pub is_closed: bool,
}

impl Taken {
    /// Its value, if it is present.
    pub fn value(self) -> Option<u64> {
        self.word.value(self.key_word)
    }
}

/// The number of slots in each state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Records.
    pub live: u64,
    /// Slots of deleted records.
    pub deleted: u64,
    /// Whether it is closed, at least in part.
    pub is_closed: bool,
}

impl RangeLeaf {
    /// The leaf, if `node` is a range leaf.
    #[inline(always)]
    pub fn of<D: Domain>(context: Context<'_, D>, node: Node) -> Option<Self> {
        let shape = RangeShape::decode(node.shape())?;
        // Relaxed: the word that names the node published it, and was read with acquire.
        let low = node.words(context).load(LOW_AT / 8, Ordering::Relaxed).swap_bytes();
        Some(Self { node, shape, low })
    }

    /// The lowest key that the leaf may have, as it lies in the leaf.
    pub fn low_bytes<'op, D: Domain>(&self, context: Context<'op, D>) -> &'op [u8] {
        context.published(self.node.off + LOW_AT, 8)
    }

    /// Whether all lines lie in the leaf. A leaf for which this is false is damaged.
    pub fn is_within_bounds(&self) -> bool {
        self.shape.geometry.bytes() <= self.node.header().node_bytes
            && self.shape.geometry.slots() as usize <= MAX_SLOTS
            && self.shape.geometry.overflow_slots() <= MAX_OVERFLOW_SLOTS
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.shape.geometry
    }

    #[inline(always)]
    pub(crate) fn key_words(&self) -> KeyWords {
        self.shape.key_words
    }

    /// The number of slots.
    pub fn slots(&self) -> u64 {
        self.geometry().slots()
    }

    /// The distance of a key, if the leaf may have it.
    #[inline(always)]
    pub(crate) fn distance(&self, key: u64) -> Option<u64> {
        let distance = key.wrapping_sub(self.low);
        (distance <= self.key_words().most()).then_some(distance)
    }

    /// The bucket of a distance.
    #[inline(always)]
    pub(crate) fn bucket<D: Domain>(&self, words: Words<'_, D>, distance: u64) -> u64 {
        let bucket = match self.shape.map {
            Map::Even { multiplier, shift } => Map::even_bucket(multiplier, shift, distance),
            Map::Uneven { shift } => {
                Self::uneven_bucket(words, self.geometry().buckets, distance >> shift)
            }
        };
        bucket.min(self.geometry().buckets - 1)
    }

    #[cold]
    pub(crate) fn uneven_bucket<D: Domain>(words: Words<'_, D>, buckets: u64, slice: u64) -> u64 {
        let separator = |index: u64| {
            let both = words.load(SEPARATORS_AT / 8 + index / 2, Ordering::Relaxed);
            both >> (index % 2 * 32) & 0xFFFF_FFFF
        };
        (1..buckets).take_while(|index| separator(index - 1) <= slice).count() as u64
    }

    /// A line's words, each read with acquire, the first one first.
    #[inline(always)]
    pub(crate) fn line<D: Domain>(words: Words<'_, D>, line: u64) -> Line {
        // Acquire: what the writer of a value did before is seen; and a later slot is read later.
        words.load_eight(line * LINE_WORDS, Ordering::Acquire)
    }

    /// A line's words again, after a slot of it was found moved: the later slot of its key may be
    /// in the same line, whose key words were read before the value word.
    #[cold]
    pub(crate) fn line_after_move<D: Domain>(words: Words<'_, D>, line: u64, found: Line) -> Line {
        if mutant!("range-line-not-read-again") { found } else { Self::line(words, line) }
    }

    /// Where the key word of a slot is in the pool.
    #[inline(always)]
    pub(crate) fn key_off(&self, slot: Slot) -> u64 {
        self.node.off + slot.0 * 8
    }

    /// Where the value word of a slot is.
    #[inline(always)]
    pub(crate) fn value_off(&self, slot: Slot) -> u64 {
        self.key_off(slot) + LINE_SLOTS * 8
    }

    /// Where a line is.
    pub(crate) fn line_off(&self, line: u64) -> u64 {
        self.node.off + line * LINE_BYTES
    }

    /// The key word of a slot that is being changed, durable.
    #[cold]
    pub(crate) fn key<D: Domain>(&self, context: Context<'_, D>, slot: Slot) -> u64 {
        let key_word = context.read(self.key_off(slot));
        if key_word == KEY_CLOSED {
            // A damaged word reads as the greatest value, and no closed word is ever changed.
            context.guard.note_damage(self.key_off(slot));
        }
        key_word
    }

    /// Key and value word of a slot, as they were at one point in time, the value durable.
    /// `key_word` was read before `found`.
    ///
    /// The words are read one after the other, and both may change in between. But no key word
    /// comes twice: if it is the same afterwards, it was there all the time. And a value word that
    /// is not versioned belongs to the first key word.
    #[inline(always)]
    pub(crate) fn taken<D: Domain>(
        &self,
        context: Context<'_, D>,
        slot: Slot,
        key_word: u64,
        found: u64,
    ) -> Taken {
        let word = self.settled(context, slot, found);
        let mut taken = Taken { slot, key_word, word };
        if word.has_version() {
            taken = self.consistent(context, taken);
        }
        self.make_durable(context, slot.line()..slot.line() + 1);
        taken
    }

    fn consistent<D: Domain>(&self, context: Context<'_, D>, mut taken: Taken) -> Taken {
        let words = self.node.words(context);
        loop {
            // Acquire: the value word was read before this, and may be read again after it.
            let mut again = words.load(taken.slot.0, Ordering::Acquire);
            if again & CONTROL_BITS != 0 {
                again = self.key(context, taken.slot);
            }
            if again == taken.key_word {
                return taken;
            }
            // Another thread has made progress.
            taken.key_word = again;
            taken.word = self.value(context, taken.slot);
        }
    }

    /// The value word of a slot; `found` is the word that was read. Durable, unless a write of it
    /// is still counted ([`make_durable`](Self::make_durable)).
    #[inline(always)]
    pub(crate) fn settled<D: Domain>(
        &self,
        context: Context<'_, D>,
        slot: Slot,
        found: u64,
    ) -> ValueWord {
        if found & CONTROL_BITS == 0 || mutant!("range-dirty-read") {
            return ValueWord(found & !CONTROL_BITS);
        }
        self.value(context, slot)
    }

    /// The value word of a slot, as [`settled`](Self::settled) says.
    #[cold]
    pub(crate) fn value<D: Domain>(&self, context: Context<'_, D>, slot: Slot) -> ValueWord {
        let value = ValueWord(context.read(self.value_off(slot)));
        if value.state() == State::Moved && value.opened() != ValueWord::MOVED {
            // No code writes it: a damaged word reads as the greatest value.
            context.guard.note_damage(self.value_off(slot));
        }
        value
    }

    /// One pass over the slots of a key.
    #[inline]
    pub(crate) fn look<D: Domain>(
        &self,
        context: Context<'_, D>,
        distance: u64,
        until: Until,
    ) -> Look {
        let words = self.node.words(context);
        let bucket = self.bucket(words, distance);
        let mut look = Look { bucket, ..Look::default() };
        for index in 0..self.geometry().key_lines() {
            let number = self.geometry().line_of(bucket, index);
            let mut line = Self::line(words, number);
            for at in 0..LINE_SLOTS {
                let slot = Slot::new(number, at);
                let key_word = self.key_in(context, slot, &mut line);
                if self.key_words().is_of(key_word, distance) {
                    let found = line[(at + LINE_SLOTS) as usize];
                    let taken = self.taken(context, slot, key_word, found);
                    match look.current {
                        _ if taken.word.state() == State::Moved => {
                            line = Self::line_after_move(words, number, line);
                        }
                        None => {
                            look.current = Some(taken);
                            let is_last = match until {
                                Until::Current => true,
                                Until::Takes(value) => self.word_for(taken, value).is_some(),
                                Until::Free => false,
                            };
                            if is_last {
                                return look;
                            }
                        }
                        Some(_) => {
                            look.is_closed |= taken.word.is_closed();
                            look.behind.push(taken);
                        }
                    }
                } else if key_word == FREE {
                    look.free = Some((slot, index));
                    return look;
                } else if key_word == KEY_CLOSED {
                    look.is_closed = true;
                    return look;
                }
            }
        }
        look
    }

    /// The key word of a slot in `line`. If it is being changed, it is settled, and the line is
    /// read again, so that value words are read after it.
    #[inline(always)]
    fn key_in<D: Domain>(&self, context: Context<'_, D>, slot: Slot, line: &mut Line) -> u64 {
        let found = line[(slot.0 % LINE_WORDS) as usize];
        if found & CONTROL_BITS == 0 {
            return found;
        }
        let key_word = self.key(context, slot);
        *line = Self::line(self.node.words(context), slot.line());
        key_word
    }

    /// The key word with which the slot takes `value`: its own, or the next one if the value is of
    /// another class. `None` if no version is left for that.
    #[inline(always)]
    pub(crate) fn word_for(&self, taken: Taken, value: u64) -> Option<u64> {
        let first = self.key_words().first(0, value);
        if is_same_class(taken.key_word, first) {
            return Some(taken.key_word);
        }
        self.key_words().next(taken.key_word, first)
    }

    /// Appends the records of a bucket to `pairs`, ascending.
    ///
    /// Each was present at some instant of the call, and one that was present throughout is there:
    /// the slots of a key are read in their order, so that a record that moves is met.
    pub(crate) fn bucket_pairs<D: Domain>(
        &self,
        context: Context<'_, D>,
        bucket: u64,
        pairs: &mut Vec<Pair>,
    ) {
        let start = pairs.len();
        self.slot_pairs(context, bucket, pairs);
        // Equal keys stay in order.
        pairs[start..].sort_by_key(|pair| pair.key);
        // Of those with one key the last one counts: the record moved while its slots were read.
        let mut kept = start;
        for at in start + 1..pairs.len() {
            if pairs[at].key != pairs[kept].key {
                kept += 1;
            }
            pairs[kept] = pairs[at];
        }
        pairs.truncate(pairs.len().min(kept + 1));
    }

    /// Appends the records of a bucket, in any order. A key may be there twice; then the last one
    /// counts.
    fn slot_pairs<D: Domain>(&self, context: Context<'_, D>, bucket: u64, pairs: &mut Vec<Pair>) {
        let words = self.node.words(context);
        for index in 0..self.geometry().key_lines() {
            let number = self.geometry().line_of(bucket, index);
            let mut line = Self::line(words, number);
            for at in 0..LINE_SLOTS {
                let slot = Slot::new(number, at);
                let key_word = self.key_in(context, slot, &mut line);
                if !is_taken(key_word) {
                    return;
                }
                let distance = self.key_words().distance(key_word);
                if index >= BUCKET_LINES && self.bucket(words, distance) != bucket {
                    continue;
                }
                let taken = self.taken(context, slot, key_word, line[(at + LINE_SLOTS) as usize]);
                if taken.word.state() == State::Moved {
                    line = Self::line_after_move(words, number, line);
                }
                if let Some(value) = taken.value() {
                    pairs.push(Pair { key: self.low.wrapping_add(distance), value });
                }
            }
        }
    }

    /// The bucket of `key`, or the one nearest to it.
    pub(crate) fn bucket_of<D: Domain>(&self, context: Context<'_, D>, key: u64) -> u64 {
        let distance = key.saturating_sub(self.low).min(MAX_DISTANCE);
        self.bucket(self.node.words(context), distance)
    }

    /// The number of buckets.
    pub fn buckets(&self) -> u64 {
        self.geometry().buckets
    }

    /// Prefetches the lines of a bucket.
    #[inline(always)]
    pub(crate) fn prefetch_bucket<D: Domain>(&self, context: Context<'_, D>, bucket: u64) {
        let line = self.geometry().bucket_line(bucket.min(self.geometry().buckets - 1));
        context.pool().prefetch(self.line_off(line));
        context.pool().prefetch(self.line_off(line + 1));
    }

    /// All records, ascending; of an open leaf, each at its own instant.
    pub fn pairs<D: Domain>(&self, context: Context<'_, D>) -> Vec<Pair> {
        let mut pairs = Vec::with_capacity(self.slots() as usize);
        if !self.is_within_bounds() {
            context.guard.note_damage(self.node.off);
            return pairs;
        }
        for bucket in 0..self.buckets() {
            self.bucket_pairs(context, bucket, &mut pairs);
        }
        if !pairs.is_sorted_by(|left, right| left.key < right.key) {
            // Separators, or keys of a bucket, are damaged.
            context.guard.note_damage(self.node.off);
            pairs.clear();
        }
        pairs
    }

    /// Counts the slots.
    pub fn count<D: Domain>(&self, context: Context<'_, D>) -> Count {
        let words = self.node.words(context);
        let mut count = Count::default();
        for number in self.geometry().slot_lines() {
            let line = Self::line(words, number);
            for at in 0..LINE_SLOTS as usize {
                let key_word = line[at];
                if !is_taken(key_word) {
                    count.is_closed |= key_word != FREE;
                    continue;
                }
                let slot = Slot::new(number, at as u64);
                let value = self.settled(context, slot, line[at + LINE_SLOTS as usize]);
                count.is_closed |= value.is_closed();
                count.live += u64::from(value.state() == State::Present);
                count.deleted += u64::from(value.state() == State::Deleted);
            }
        }
        count
    }

    /// Records in the lines of the bucket of `key`, without those in the overflow lines.
    pub fn count_beside<D: Domain>(&self, context: Context<'_, D>, key: u64) -> u64 {
        let words = self.node.words(context);
        let first = self.geometry().bucket_line(self.bucket_of(context, key));
        let values = (first..first + BUCKET_LINES).flat_map(|line| {
            let [.., a, b, c, d] = Self::line(words, line);
            [a, b, c, d]
        });
        // An operation in progress counts as another state: the result is only a hint.
        values.filter(|value| ValueWord(value & !CONTROL_BITS).state() == State::Present).count()
            as u64
    }
}
