//! The records that a cursor has copied, and lends.
//!
//! A cursor copies a batch of records while it is pinned, and lends them while it is not. So its
//! caller may keep a record for any time, and delays no reclamation. All records of a batch are in
//! one vector of bytes, key and value side by side, in the order in which they are lent. As long as
//! all have keys of one length and values of one length, their places follow from that.
//!
//! A batch is full when it has as many records as its cursor wants, or [`FULL_BYTES`]. Short scans
//! would spend a tenth of their time on allocation, so a thread keeps the memory of its last batch
//! for the next one ([`ThreadsBatch`]).

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use pando_index::{Order, Record};

/// A batch with so many bytes is full.
pub const FULL_BYTES: usize = 1 << 20;
/// More memory than this is not kept for a thread's next batch, in bytes.
const KEPT_BYTES: usize = 64 * 1024;

/// The lengths of a record's key and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shape {
    key_bytes: usize,
    value_bytes: usize,
}

/// The place of one record in the batch's bytes.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    shape: Shape,
}

impl Shape {
    #[inline(always)]
    fn bytes(self) -> usize {
        self.key_bytes + self.value_bytes
    }
}

/// A batch of records.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// The shape of all records; of the first one, if there are places.
    shape: Shape,
    /// The place of each record, if they are of several shapes.
    places: Vec<Place>,
    /// The number of records.
    count: usize,
    /// The number of records that were lent.
    lent: usize,
}

impl Batch {
    /// An empty batch with room.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Removes all records.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        self.count = 0;
        self.lent = 0;
    }

    /// The number of records, including those that were lent.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has no records.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes of all records.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether all records were lent.
    #[inline(always)]
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.lent == self.count
    }

    /// Whether it has `most` records, or the most bytes of a batch.
    #[inline(always)]
    #[must_use]
    pub fn is_full(&self, most: usize) -> bool {
        self.count >= most || self.bytes.len() >= FULL_BYTES
    }

    /// Whether its memory is small enough to be kept.
    #[inline(always)]
    #[must_use]
    pub fn is_worth_keeping(&self) -> bool {
        self.bytes.capacity() <= KEPT_BYTES
    }

    /// Adds a record.
    #[inline(always)]
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.note(1, Shape { key_bytes: key.len(), value_bytes: value.len() });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    /// Adds a record whose key and value stand side by side in `record`.
    #[inline(always)]
    pub fn push_joined(&mut self, record: &[u8], key_bytes: usize) {
        self.note(1, Shape { key_bytes, value_bytes: record.len() - key_bytes });
        self.bytes.extend_from_slice(record);
    }

    /// Adds a record whose key and value are appended to the bytes, in this order.
    #[inline(always)]
    pub fn push_with(
        &mut self,
        append_key: impl FnOnce(&mut Vec<u8>),
        append_value: impl FnOnce(&mut Vec<u8>),
    ) {
        let at = self.bytes.len();
        append_key(&mut self.bytes);
        let value_at = self.bytes.len();
        append_value(&mut self.bytes);
        let (key_bytes, value_bytes) = (value_at - at, self.bytes.len() - value_at);
        self.note_at(at, 1, Shape { key_bytes, value_bytes });
    }

    /// Adds records of one shape that stand side by side in `records`, in the scan's `order`.
    #[inline(always)]
    pub fn push_run(&mut self, records: &[u8], key_bytes: usize, value_bytes: usize, order: Order) {
        let shape = Shape { key_bytes, value_bytes };
        self.note(records.len() / shape.bytes(), shape);
        match order {
            Order::Ascending => self.bytes.extend_from_slice(records),
            Order::Descending => {
                let records = records.rchunks_exact(shape.bytes());
                records.for_each(|record| self.bytes.extend_from_slice(record));
            }
        }
    }

    /// Adds `count` records whose keys and values are numbers of eight bytes, big-endian and
    /// little-endian. `record` is called for each index below `most`, and the rest is cut off: if
    /// `most` is constant, no loop has a length that the processor cannot predict.
    #[inline(always)]
    pub fn push_numbers(
        &mut self,
        most: usize,
        count: usize,
        record: impl Fn(usize) -> (u64, u64),
    ) {
        self.note(count, Shape { key_bytes: 8, value_bytes: 8 });
        let at = self.bytes.len();
        self.bytes.resize(at + most * 16, 0);
        for (index, bytes) in self.bytes[at..].chunks_exact_mut(16).enumerate() {
            let (key, value) = record(index);
            bytes[..8].copy_from_slice(&key.to_be_bytes());
            bytes[8..].copy_from_slice(&value.to_le_bytes());
        }
        self.bytes.truncate(at + count * 16);
    }

    /// Counts records of this shape, whose bytes are added next.
    #[inline(always)]
    fn note(&mut self, count: usize, shape: Shape) {
        self.note_at(self.bytes.len(), count, shape);
    }

    #[inline(always)]
    fn note_at(&mut self, at: usize, count: usize, shape: Shape) {
        if self.count == 0 {
            self.shape = shape;
        } else if self.shape != shape || !self.places.is_empty() {
            self.note_places(at, count, shape);
        }
        self.count += count;
    }

    /// Notes the places of `count` records, and those of all before, if they were of one shape.
    #[inline(never)]
    fn note_places(&mut self, at: usize, count: usize, shape: Shape) {
        for index in self.places.len()..self.count {
            self.places.push(self.place(index));
        }
        self.places.extend((0..count).map(|index| Place { at: at + index * shape.bytes(), shape }));
    }

    #[inline(always)]
    fn place(&self, index: usize) -> Place {
        match self.places.get(index) {
            Some(place) => *place,
            None => Place { at: index * self.shape.bytes(), shape: self.shape },
        }
    }

    /// The first record's key.
    #[must_use]
    pub fn first_key(&self) -> Option<&[u8]> {
        (self.count > 0).then(|| self.record(0).0)
    }

    /// The last record's key.
    #[inline]
    #[must_use]
    pub fn last_key(&self) -> Option<&[u8]> {
        self.count.checked_sub(1).map(|last| self.record(last).0)
    }

    /// The key of the record that was lent last.
    #[must_use]
    pub fn lent_key(&self) -> Option<&[u8]> {
        self.lent.checked_sub(1).map(|last| self.record(last).0)
    }

    #[inline(always)]
    fn record(&self, index: usize) -> Record<'_> {
        let Place { at, shape } = self.place(index);
        self.bytes[at..at + shape.bytes()].split_at(shape.key_bytes)
    }

    /// Lends the next record.
    #[inline(always)]
    pub fn lend(&mut self) -> Option<Record<'_>> {
        if self.is_used_up() {
            return None;
        }
        self.lent += 1;
        Some(self.record(self.lent - 1))
    }
}

thread_local! {
    static SPARE: Cell<Option<Batch>> = const { Cell::new(None) };
}

/// A batch in the memory of the thread's last one; its memory goes to the next one.
#[derive(Debug)]
pub struct ThreadsBatch(Batch);

impl Default for ThreadsBatch {
    fn default() -> Self {
        let mut batch = SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default();
        batch.clear();
        Self(batch)
    }
}

impl Drop for ThreadsBatch {
    fn drop(&mut self) {
        if self.0.is_worth_keeping() {
            let batch = std::mem::take(&mut self.0);
            // A thread that is ending keeps nothing.
            let _ = SPARE.try_with(|spare| spare.set(Some(batch)));
        }
    }
}

impl Deref for ThreadsBatch {
    type Target = Batch;

    #[inline(always)]
    fn deref(&self) -> &Batch {
        &self.0
    }
}

impl DerefMut for ThreadsBatch {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Batch {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_lent_as_they_were_copied() {
        let mut batch = Batch::default();
        batch.push(b"a", b"one");
        batch.push_joined(b"btwo", 1);
        batch.push_with(
            |bytes| bytes.extend_from_slice(b"cc"),
            |bytes| bytes.extend_from_slice(b"three"),
        );
        batch.push_run(b"d4e5", 1, 1, Order::Descending);
        batch.push_run(b"f6g7", 1, 1, Order::Ascending);
        batch.push_numbers(3, 1, |_| (0x68, 8));
        assert_eq!((batch.len(), batch.bytes()), (8, 39));
        assert_eq!((batch.first_key(), batch.lent_key()), (Some(&b"a"[..]), None));
        assert_eq!(batch.last_key(), Some(&b"\0\0\0\0\0\0\0h"[..]));
        let all: [(&[u8], &[u8]); 8] = [
            (b"a", b"one"),
            (b"b", b"two"),
            (b"cc", b"three"),
            (b"e", b"5"),
            (b"d", b"4"),
            (b"f", b"6"),
            (b"g", b"7"),
            (b"\0\0\0\0\0\0\0h", b"\x08\0\0\0\0\0\0\0"),
        ];
        for record in all {
            assert!(!batch.is_used_up());
            assert_eq!(batch.lend(), Some(record));
            assert_eq!(batch.lent_key(), Some(record.0));
        }
        assert!(batch.is_used_up() && batch.lend().is_none());
        batch.clear();
        assert!(batch.is_empty() && batch.is_used_up() && batch.last_key().is_none());
    }

    /// Of one shape, then of another one, and of the first one again.
    #[test]
    fn records_change_their_shape() {
        for alike in 0..5 {
            let mut batch = Batch::default();
            let mut pushed = Vec::new();
            for number in 0..8_u8 {
                let key = vec![number; if number == alike { 3 } else { 2 }];
                batch.push(&key, &[number]);
                pushed.push((key, vec![number]));
            }
            let lent = std::iter::from_fn(|| {
                batch.lend().map(|(key, value)| (key.to_vec(), value.to_vec()))
            });
            assert_eq!(lent.collect::<Vec<_>>(), pushed, "{alike}");
        }
    }

    #[test]
    fn a_batch_is_full_by_records_or_by_bytes() {
        let mut batch = Batch::default();
        batch.push(b"a", b"");
        assert!(batch.is_full(1) && !batch.is_full(2));
        batch.push(b"b", &vec![0; FULL_BYTES]);
        assert!(batch.is_full(3) && !batch.is_worth_keeping());
    }

    #[test]
    fn a_threads_next_batch_has_the_room_of_its_last() {
        let mut batch = ThreadsBatch::default();
        batch.push(b"key", &[0; 1000]);
        let at = batch.last_key().expect("a record").as_ptr();
        drop(batch);
        let mut again = ThreadsBatch::default();
        assert!(again.is_empty());
        again.push(b"key", b"");
        assert_eq!(again.last_key().expect("a record").as_ptr(), at);
    }
}
