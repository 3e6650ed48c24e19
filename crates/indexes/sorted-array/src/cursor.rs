//! Scans: the part of `pando_tree::cursor` that an index writes, the copy of a batch of one array's
//! records. The next batch begins behind the last key, in the array of that time. So each record
//! was in the map at some instant of the scan, and two records may be of different instants.

use std::ops::Bound;

use pando_index::{Order, Result};
use pando_pmem::{Domain, Guard};
use pando_tree::batch::ThreadsBatch;
use pando_tree::cursor::{Fill, Scan};

use crate::index::SortedArray;

impl<D: Domain> Fill for SortedArray<D> {
    type Batch = ThreadsBatch;

    const FIRST_BATCH: usize = 64;
    const LAST_BATCH: usize = 64;

    fn fill(&self, guard: &Guard<'_, D>, scan: &mut Scan, batch: &mut ThreadsBatch) -> Result<()> {
        let (off, array) = self.array(guard);
        let (low, high) = match scan.order() {
            Order::Ascending => (scan.start(), scan.end()),
            Order::Descending => (scan.end(), scan.start()),
        };
        let low = match low {
            Bound::Unbounded => 0,
            Bound::Included(low) => array.first_not(|key| key < low),
            Bound::Excluded(low) => array.first_not(|key| key <= low),
        };
        let high = match high {
            Bound::Unbounded => array.len,
            Bound::Included(high) => array.first_not(|key| key <= high),
            Bound::Excluded(high) => array.first_not(|key| key < high),
        };
        let mut places = low..high;
        while !batch.is_full(scan.most()) {
            let place = match scan.order() {
                Order::Ascending => places.next(),
                Order::Descending => places.next_back(),
            };
            let Some(place) = place else {
                scan.finish();
                return Ok(());
            };
            batch.push(&array.key(place), &array.value(place));
        }
        scan.go_behind(off, batch.last_key().unwrap_or_default())
    }
}
