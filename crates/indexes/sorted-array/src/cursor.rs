//! Scans: a batch of one array's records is copied while pinned, and lent when not. The next batch
//! begins behind the last key, in the array of that moment: so each record is one of an instant of
//! the scan, and two may be of different instants.

use std::collections::VecDeque;
use std::ops::Bound;

use pando_index::{Cursor, Error, KeyRange, Order, Record};
use pando_pmem::Domain;

use crate::index::SortedArray;

/// Records of a batch.
const BATCH: usize = 64;

pub(crate) struct ArrayCursor<'index, D: Domain> {
    index: &'index SortedArray<D>,
    range: KeyRange,
    order: Order,
    batch: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// The record that is lent.
    lent: Option<(Vec<u8>, Vec<u8>)>,
    is_over: bool,
}

impl<'index, D: Domain> ArrayCursor<'index, D> {
    pub fn new(index: &'index SortedArray<D>, range: KeyRange, order: Order) -> Self {
        Self { index, range, order, batch: VecDeque::new(), lent: None, is_over: false }
    }

    /// Copies the next records, and takes them off the range.
    fn fill(&mut self) -> Result<(), Error> {
        let guard = self.index.pin()?;
        let (_, array) = self.index.array(&guard);
        let low = match &self.range.low {
            Bound::Unbounded => 0,
            Bound::Included(low) => array.first_not(|key| key < low.as_slice()),
            Bound::Excluded(low) => array.first_not(|key| key <= low.as_slice()),
        };
        let high = match &self.range.high {
            Bound::Unbounded => array.len,
            Bound::Included(high) => array.first_not(|key| key <= high.as_slice()),
            Bound::Excluded(high) => array.first_not(|key| key < high.as_slice()),
        };
        let record = |place| (array.key(place), array.value(place));
        self.batch = match self.order {
            Order::Ascending => (low..high).take(BATCH).map(record).collect(),
            Order::Descending => (low..high).rev().take(BATCH).map(record).collect(),
        };
        self.is_over = self.batch.len() < BATCH;
        if let Some((last, _)) = self.batch.back() {
            let rest = Bound::Excluded(last.clone());
            match self.order {
                Order::Ascending => self.range.low = rest,
                Order::Descending => self.range.high = rest,
            }
        }
        Ok(())
    }
}

impl<D: Domain> Cursor for ArrayCursor<'_, D> {
    fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        if self.batch.is_empty() && !self.is_over {
            self.fill()?;
        }
        self.lent = self.batch.pop_front();
        Ok(self.lent.as_ref().map(|(key, value)| (key.as_slice(), value.as_slice())))
    }
}
