//! The records that a cursor has copied, and lends.
//!
//! A cursor copies a batch of records while it is pinned, and lends them while it is not. So its
//! caller may keep a record for any time, and delays no reclamation. All records of a batch are in
//! one vector of bytes, key and value side by side.
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

/// The place of one record in the batch's bytes.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    key_bytes: usize,
    value_bytes: usize,
}

/// A batch of records.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    places: Vec<Place>,
    /// The number of records that were lent.
    lent: usize,
}

impl Batch {
    /// An empty batch with room.
    #[must_use]
    pub fn with_capacity(records: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), places: Vec::with_capacity(records), lent: 0 }
    }

    /// Removes all records.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        self.lent = 0;
    }

    /// The number of records, including those that were lent.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it has no records.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
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
        self.lent == self.places.len()
    }

    /// Whether it has `most` records, or the most bytes of a batch.
    #[inline(always)]
    #[must_use]
    pub fn is_full(&self, most: usize) -> bool {
        self.places.len() >= most || self.bytes.len() >= FULL_BYTES
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
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.places.push(Place { at, key_bytes: key.len(), value_bytes: value.len() });
    }

    /// Adds a record whose key and value stand side by side in `record`.
    #[inline(always)]
    pub fn push_joined(&mut self, record: &[u8], key_bytes: usize) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(record);
        self.places.push(Place { at, key_bytes, value_bytes: record.len() - key_bytes });
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
        self.places.push(Place { at, key_bytes, value_bytes });
    }

    /// Adds records of one shape that stand side by side in `records`, in the scan's `order`.
    #[inline(always)]
    pub fn push_run(&mut self, records: &[u8], key_bytes: usize, value_bytes: usize, order: Order) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(records);
        let record_bytes = key_bytes + value_bytes;
        let place = |index| Place { at: at + index * record_bytes, key_bytes, value_bytes };
        let count = records.len() / record_bytes;
        match order {
            Order::Ascending => self.places.extend((0..count).map(place)),
            Order::Descending => self.places.extend((0..count).rev().map(place)),
        }
    }

    /// The first record's key.
    #[must_use]
    pub fn first_key(&self) -> Option<&[u8]> {
        self.places.first().map(|place| self.key(place))
    }

    /// The last record's key.
    #[inline]
    #[must_use]
    pub fn last_key(&self) -> Option<&[u8]> {
        self.places.last().map(|place| self.key(place))
    }

    /// The key of the record that was lent last.
    #[must_use]
    pub fn lent_key(&self) -> Option<&[u8]> {
        let last = self.lent.checked_sub(1)?;
        Some(self.key(&self.places[last]))
    }

    #[inline(always)]
    fn key(&self, place: &Place) -> &[u8] {
        &self.bytes[place.at..place.at + place.key_bytes]
    }

    /// Lends the next record.
    #[inline(always)]
    pub fn lend(&mut self) -> Option<Record<'_>> {
        let place = self.places.get(self.lent)?;
        self.lent += 1;
        let (key, value) = self.bytes[place.at..].split_at(place.key_bytes);
        Some((key, &value[..place.value_bytes]))
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
        assert_eq!((batch.len(), batch.bytes()), (7, 23));
        assert_eq!((batch.first_key(), batch.lent_key()), (Some(&b"a"[..]), None));
        assert_eq!(batch.last_key(), Some(&b"g"[..]));
        let all: [(&[u8], &[u8]); 7] = [
            (b"a", b"one"),
            (b"b", b"two"),
            (b"cc", b"three"),
            (b"e", b"5"),
            (b"d", b"4"),
            (b"f", b"6"),
            (b"g", b"7"),
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
