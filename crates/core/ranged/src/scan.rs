//! Scans of a range leaf: copies of its records in the order of the keys.
//!
//! The records of a bucket lie in the order in which their slots were taken. A scan sorts them
//! without a branch that depends on the data: it puts a key's place and its slot into one number,
//! and sorts eight of these. Slots without a record have the greatest numbers.
//!
//! The *place* of a key is its distance from the leaf's lower bound plus one, as in its key word.
//! In a descending scan all bits of it are inverted. So each scan ascends in places.
//!
//! The overflow lines are read behind the first full bucket, and their records are sorted. (They
//! are read again only while one of their slots is moved or being changed.) They are merged into
//! those of the buckets by their places alone; no bucket has to be found for them. A record that
//! moves to an overflow line is not missed: in the first full bucket its slots are read in their
//! order, and in a later bucket its slot is found moved. Then all slots of the bucket are read once
//! more, in their order (`leaf.rs`). If a record is found in the bucket and in an overflow line,
//! that of the bucket is taken.

use std::sync::atomic::Ordering;

use pando_index::Order;
use pando_pmem::{Domain, Part, Words, mutant};
use pando_pmwcas::CONTROL_BITS;
use pando_tree::batch::Batch;
use pando_tree::context::Context;
use pando_tree::cursor::Scan;

use crate::layout::{
    BUCKET_LINES, BUCKET_SLOTS, FREE, KeyWords, LINE_SLOTS, LINE_WORDS, MAX_OVERFLOW_SLOTS,
    PLACE_MASK, Pair, State, ValueWord, is_taken,
};
use crate::leaf::RangeLeaf;

/// Why the copying of a leaf ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// The leaf has no more records.
    Leaf,
    /// The range of the scan has no more records.
    Range,
    /// The batch is full.
    Full,
}

const BUCKET: usize = BUCKET_SLOTS as usize;
const LINE: usize = LINE_SLOTS as usize;
const OVERFLOW: usize = MAX_OVERFLOW_SLOTS as usize;
/// Bits below a key's place for the index of its key word.
const INDEX_BITS: u32 = (BUCKET * 2).ilog2();
/// The numbers of slots without a record are not below this; no two of them have one place.
const NO_RECORD: u64 = u64::MAX << 32;

/// A record that a scan has read: the place of its key, and its value.
type Placed = (u64, u64);

/// Slots as they were read, in `WORDS / 8` lines.
struct Slots<const WORDS: usize, const SLOTS: usize> {
    /// The words of the lines.
    words: [u64; WORDS],
    /// For each slot with a record the place of its key, and below it the index of its key word.
    numbers: [u64; SLOTS],
    /// The number of records.
    count: usize,
}

type Bucket = Slots<{ BUCKET * 2 }, BUCKET>;

/// The records of the overflow lines, ascending in places.
struct Overflow {
    /// With [`END`](Self::END) behind them.
    records: [Placed; OVERFLOW + 1],
    count: usize,
    /// The index of the next one.
    next: usize,
}

impl Overflow {
    const END: Placed = (u64::MAX, 0);
}

impl<const WORDS: usize, const SLOTS: usize> Slots<WORDS, SLOTS> {
    #[inline(always)]
    fn none() -> Self {
        Self { words: [0; WORDS], numbers: [NO_RECORD; SLOTS], count: 0 }
    }

    /// Reads the slots in lines of a leaf. False if one of them is moved or being changed, or if a
    /// value was not read with the key word of its time.
    #[inline(always)]
    fn read<D: Domain>(
        &mut self,
        lines: Part<'_, D, WORDS>,
        key_words: KeyWords,
        inversion: u64,
    ) -> bool {
        // Acquire: what the writer of a value did before is seen; and a later slot is read later.
        let load = |index| lines.load(index as u64, Ordering::Acquire);
        for index in 0..WORDS {
            self.words[index] = load(index);
        }
        let (mut unsettled, mut count) = (0, 0);
        for slot in 0..SLOTS {
            let index = key_index(slot);
            let (key_word, value) = (self.words[index], ValueWord(self.words[index + LINE]));
            unsettled |= key_word & CONTROL_BITS | value.unsettled_bits();
            // A slot may be taken between the two reads.
            let is_taken = key_word != FREE || mutant!("range-scan-key-before-value");
            let is_record = is_taken & value.is_present();
            count += usize::from(is_record);
            let number = (key_words.place(key_word) ^ inversion) << INDEX_BITS | index as u64;
            let none = NO_RECORD | (slot as u64) << INDEX_BITS;
            self.numbers[slot] = if is_record { number } else { none };
        }
        self.count = count;
        if unsettled == 0 {
            return true;
        }
        let is_settled = |slot: usize| {
            let (key_word, value) =
                (self.words[key_index(slot)], self.words[key_index(slot) + LINE]);
            (key_word | value) & CONTROL_BITS == 0
                && ValueWord(value).state() != State::Moved
                // Read again after the value (`RangeLeaf::taken`).
                && (load(key_index(slot)) == key_word
                    || mutant!("range-scan-class-of-another-value"))
        };
        (0..SLOTS).all(is_settled)
    }

    /// The record with this number.
    #[inline(always)]
    fn record(&self, number: u64) -> Placed {
        let index = number as usize % WORDS;
        let value = ValueWord(self.words[index | LINE]).whole(self.words[index & !LINE]);
        (number >> INDEX_BITS, value)
    }
}

impl Bucket {
    /// The place of the key of record `at`.
    #[inline(always)]
    fn place(&self, at: usize) -> u64 {
        self.numbers[at % BUCKET] >> INDEX_BITS
    }

    /// Whether two of the sorted records are of one key: it moved while its slots were read.
    #[inline(always)]
    fn have_one_place(&self) -> bool {
        let mut have = false;
        for at in 1..BUCKET {
            have |= (self.numbers[at - 1] ^ self.numbers[at]) >> INDEX_BITS == 0;
        }
        have
    }

    /// Whether all slots are taken.
    #[inline(always)]
    fn is_full(&self) -> bool {
        is_taken(self.words[key_index(BUCKET - 1)])
    }
}

/// The index of a slot's key word among the words of its lines.
const fn key_index(slot: usize) -> usize {
    slot / LINE * LINE * 2 + slot % LINE
}

/// The copying of a leaf's records.
struct Copying<'scan, 'op, D: Domain> {
    leaf: &'scan RangeLeaf,
    context: Context<'op, D>,
    words: Words<'op, D>,
    batch: &'scan mut Batch,
    /// The most records of the batch.
    most: usize,
    /// Inverts places in a descending scan.
    inversion: u64,
    /// The first place that the scan wants.
    start: u64,
    /// The first place that is wanted, and was not copied yet.
    first: u64,
    /// The last place that is wanted.
    last: u64,
    overflow: Option<Overflow>,
}

impl RangeLeaf {
    /// Copies those records of the leaf that are ahead of the scan, in its order, until the batch
    /// is full.
    ///
    /// Each was present at some instant of the call, and one that was present throughout is there.
    #[inline]
    pub fn copy<D: Domain>(
        &self,
        context: Context<'_, D>,
        scan: &Scan,
        batch: &mut Batch,
    ) -> Copied {
        let Some((low, high)) = scan.numbers() else { return Copied::Leaf };
        // No key has the place zero.
        let (from, to) = (self.place(low).max(1), self.place(high));
        let (first_bucket, inversion, first, last) = match scan.order() {
            Order::Ascending => (self.bucket_of(context, low), 0, from, to),
            Order::Descending => {
                (self.bucket_of(context, high), PLACE_MASK, to ^ PLACE_MASK, from ^ PLACE_MASK)
            }
        };
        let mut copying = Copying {
            leaf: self,
            context,
            words: self.node.words(context),
            batch,
            most: scan.most(),
            inversion,
            start: first,
            first,
            last,
            overflow: None,
        };
        copying.prefetch(first_bucket);
        let copied = match scan.order() {
            Order::Ascending => {
                (first_bucket..self.buckets()).find_map(|bucket| copying.bucket(bucket))
            }
            Order::Descending => {
                (0..first_bucket + 1).rev().find_map(|bucket| copying.bucket(bucket))
            }
        };
        copied.or_else(|| copying.rest()).unwrap_or(Copied::Leaf)
    }

    /// The place of a key; zero if it is below those of the leaf, and greater than their places if
    /// it is far above.
    #[inline(always)]
    fn place(&self, key: u64) -> u64 {
        key.checked_sub(self.low).map_or(0, |distance| distance.min(PLACE_MASK - 1) + 1)
    }
}

impl<D: Domain> Copying<'_, '_, D> {
    /// Prefetches the buckets from which the batch probably gets its records.
    #[inline(always)]
    fn prefetch(&self, first: u64) {
        // At least half of the slots have records.
        let wanted = (self.most - self.batch.len()).div_ceil(BUCKET / 2) as u64;
        let buckets = match self.inversion {
            0 => first..self.leaf.buckets().min(first + wanted),
            _ => (first + 1).saturating_sub(wanted)..first + 1,
        };
        buckets.for_each(|bucket| self.leaf.prefetch_bucket(self.context, bucket));
    }

    /// Copies the records of a bucket, and of the overflow lines before their last one. Returns how
    /// to stop, if it must stop.
    #[inline(always)]
    fn bucket(&mut self, bucket: u64) -> Option<Copied> {
        let mut slots = Slots::none();
        let mut is_settled = self.read_bucket(bucket, &mut slots);
        if slots.is_full() && self.overflow.is_none() {
            self.overflow = self.read_overflow();
            is_settled &= self.overflow.is_some() || mutant!("range-scan-overflow-passed");
        }
        if !is_settled {
            return self.unsettled_bucket(bucket);
        }
        let count = slots.count;
        if count == 0 {
            return None;
        }
        sort(&mut slots.numbers);
        if slots.have_one_place() && !mutant!("range-scan-record-twice") {
            return self.unsettled_bucket(bucket);
        }
        let (first, last) = (slots.place(0), slots.place(count - 1));
        if self.next_overflow().0 < last {
            self.check_order(first, last);
            let records = slots.numbers.map(|number| slots.record(number));
            return self.merge(&records[..count]);
        }
        let room = self.most - self.batch.len();
        let (from, end) = if self.first <= first && last <= self.last && count <= room {
            (0, count)
        } else {
            self.check_order(first, last);
            self.wanted(count, |at| slots.place(at))
        };
        self.push(BUCKET, end - from, |at| slots.record(slots.numbers[(from + at) % BUCKET]));
        self.stop_behind(last, end == count)
    }

    /// Notes damage if records of a bucket, from the first to the last place, lie before those of
    /// an earlier bucket, or have a place that no key has.
    #[inline(never)]
    fn check_order(&self, first: u64, last: u64) {
        let is_possible = |place: u64| (1..PLACE_MASK).contains(&(place ^ self.inversion));
        let is_behind = self.first == self.start || first >= self.first;
        if !is_behind || !is_possible(first) || !is_possible(last) {
            self.context.guard.note_damage(self.leaf.node.off);
        }
    }

    /// Which of the records with these ascending places are wanted, and have room in the batch.
    #[inline(never)]
    fn wanted(&self, count: usize, place: impl Fn(usize) -> u64) -> (usize, usize) {
        let from = (0..count).filter(|&at| place(at) < self.first).count();
        let end = (0..count).filter(|&at| place(at) <= self.last).count();
        (from, end.clamp(from, from.saturating_add(self.most - self.batch.len())))
    }

    /// How to stop after records up to the place `last`, if it must stop.
    #[inline(always)]
    fn stop_behind(&mut self, last: u64, are_all: bool) -> Option<Copied> {
        self.first = self.first.max(last + 1);
        if self.batch.is_full(self.most) {
            return Some(Copied::Full);
        }
        (!are_all).then_some(Copied::Range)
    }

    /// Reads the slots of a bucket, as [`Slots::read`] does.
    #[inline(always)]
    fn read_bucket(&self, bucket: u64, slots: &mut Bucket) -> bool {
        let first = self.leaf.geometry().bucket_line(bucket);
        let Some(lines) = self.words.part(first * LINE_WORDS) else { return true };
        let is_settled = slots.read(lines, self.leaf.key_words(), self.inversion);
        self.leaf.make_durable(self.context, first..first + BUCKET_LINES);
        is_settled
    }

    /// The records of the overflow lines; `None` if one of them moves or is being changed.
    #[inline(never)]
    fn read_overflow(&self) -> Option<Overflow> {
        let (mut records, mut count) = ([Overflow::END; OVERFLOW + 1], 0);
        for line in self.leaf.geometry().overflow_lines_at() {
            let lines = self.words.part(line * LINE_WORDS)?;
            if lines.load(0, Ordering::Acquire) == FREE {
                continue;
            }
            let mut slots = Slots::<{ LINE * 2 }, LINE>::none();
            if !slots.read(lines, self.leaf.key_words(), self.inversion) {
                return None;
            }
            self.leaf.make_durable(self.context, line..line + 1);
            for &number in slots.numbers.iter().filter(|&&number| number < NO_RECORD) {
                records[count] = slots.record(number);
                count += 1;
            }
        }
        let (found, _) = records.split_at_mut(count);
        found.sort_unstable();
        // Two of one key: it moved while its slots were read.
        let is_settled = found.is_sorted_by(|left, right| left.0 < right.0)
            || mutant!("range-scan-overflow-twice");
        is_settled.then_some(Overflow { records, count, next: 0 })
    }

    /// Copies the records of a bucket with a slot that is moved or being changed.
    #[cold]
    #[inline(never)]
    fn unsettled_bucket(&mut self, bucket: u64) -> Option<Copied> {
        let mut pairs = Vec::new();
        self.leaf.bucket_pairs(self.context, bucket, &mut pairs);
        if self.inversion != 0 {
            pairs.reverse();
        }
        let placed = |pair: &Pair| (self.leaf.place(pair.key) ^ self.inversion, pair.value);
        let records: Vec<_> = pairs.iter().map(placed).collect();
        if let (Some(first), Some(last)) = (records.first(), records.last()) {
            self.check_order(first.0, last.0);
        }
        self.merge(&records)
    }

    /// Copies records of a bucket, which ascend in places, and those of the overflow lines before
    /// the last of them.
    #[inline(never)]
    fn merge(&mut self, records: &[Placed]) -> Option<Copied> {
        let mut merged = [(0, 0); BUCKET + 2 * OVERFLOW];
        let (mut at, mut count) = (0, 0);
        while let Some(&own) = records.get(at) {
            let other = self.next_overflow();
            let is_other = other.0 < own.0;
            merged[count] = if is_other { other } else { own };
            count += 1;
            at += usize::from(!is_other);
            // Of two with one place, that of the bucket is taken.
            self.pass_overflow(other.0 <= own.0);
        }
        self.push_wanted(&merged[..count])
    }

    /// Copies those of the records that are wanted.
    #[inline(always)]
    fn push_wanted(&mut self, records: &[Placed]) -> Option<Copied> {
        let &(last, _) = records.last()?;
        let (from, end) = self.wanted(records.len(), |at| records[at].0);
        let wanted = &records[from..end];
        self.push(wanted.len(), wanted.len(), |at| wanted[at]);
        self.stop_behind(last, end == records.len())
    }

    /// Copies `count` records, as [`Batch::push_numbers`] does.
    #[inline(always)]
    fn push(&mut self, most: usize, count: usize, record: impl Fn(usize) -> Placed) {
        let (below, inversion) = (self.leaf.low.wrapping_sub(1), self.inversion);
        self.batch.push_numbers(most, count, |at| {
            let (place, value) = record(at);
            (below.wrapping_add(place ^ inversion), value)
        });
    }

    /// Copies the records of the overflow lines that are behind those of all buckets.
    fn rest(&mut self) -> Option<Copied> {
        let overflow = self.overflow.take()?;
        self.push_wanted(&overflow.records[overflow.next..overflow.count])
    }

    /// The next record of the overflow lines.
    #[inline(always)]
    fn next_overflow(&self) -> Placed {
        let overflow = self.overflow.as_ref();
        overflow.map_or(Overflow::END, |overflow| overflow.records[overflow.next])
    }

    #[inline(always)]
    fn pass_overflow(&mut self, is_passed: bool) {
        if let Some(overflow) = &mut self.overflow {
            overflow.next += usize::from(is_passed);
        }
    }
}

/// Sorts eight numbers, by exchanges whose places do not depend on them.
#[inline(always)]
fn sort(numbers: &mut [u64; BUCKET]) {
    #[inline(always)]
    fn exchange(low: &mut u64, high: &mut u64) {
        (*low, *high) = ((*low).min(*high), (*low).max(*high));
    }
    let [a, b, c, d, e, f, g, h] = numbers;
    exchange(a, c);
    exchange(b, d);
    exchange(e, g);
    exchange(f, h);
    exchange(a, e);
    exchange(b, f);
    exchange(c, g);
    exchange(d, h);
    exchange(a, b);
    exchange(c, d);
    exchange(e, f);
    exchange(g, h);
    exchange(c, e);
    exchange(d, f);
    exchange(b, e);
    exchange(d, g);
    exchange(b, c);
    exchange(d, e);
    exchange(f, g);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exchanges that sort all zeros and ones sort everything.
    #[test]
    fn eight_numbers_are_sorted() {
        for bits in 0..1 << BUCKET {
            let mut numbers: [u64; BUCKET] = std::array::from_fn(|at| bits >> at & 1);
            sort(&mut numbers);
            assert!(numbers.is_sorted(), "{bits:b}");
        }
    }
}
