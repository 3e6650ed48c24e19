//! Scans of a transaction, from both ends.
//!
//! A scan reads some records ahead at each end. Only the part that it has returned counts as read.
//! When it ends or is dropped, the transaction gets a range for each end: from the bound of the
//! scan to the last key that it has passed, or to the place where both ends have met.

use std::collections::VecDeque;
use std::mem;
use std::ops::Bound;

use pando_index::{KeyRange, Order};
use pando_pmem::Domain;

use crate::component::Maps;
use crate::error::Result;
use crate::record::RangeRead;
use crate::stamp::{Stamp, Version};
use crate::transaction::{Transaction, Visit};

/// Records that are read ahead at first; each time twice as many.
const FIRST_PART: usize = 8;
/// The most records that are read ahead.
const LAST_PART: usize = 256;
/// A part that has so many bytes is not continued.
const PART_BYTES: usize = 1 << 20;

/// The records of a range of a map, as a transaction sees them. A serializable transaction
/// conflicts with others that change the part that was returned, or insert into it.
pub struct TransactionRange<'tx, 'component, D: Domain, M: Maps> {
    transaction: &'tx mut Transaction<'component, D, M>,
    map: u64,
    range: KeyRange,
    /// The front and the back, by their orders.
    ends: [End; 2],
    is_over: bool,
}

/// A write of a transaction, by its map and key.
type Write<'own> = (&'own (u64, Vec<u8>), &'own Option<Vec<u8>>);

/// One end.
#[derive(Default)]
struct End {
    /// The records that are read and not returned.
    ahead: VecDeque<Ahead>,
    /// The last key that was read of the map.
    read: Option<Vec<u8>>,
    /// Whether nothing is left behind it.
    is_exhausted: bool,
    /// Records of the next part.
    most: usize,
    /// The last key that was passed.
    last: Option<Vec<u8>>,
    /// The stamps of the versions so far that have a value.
    stamps: Vec<Stamp>,
}

/// A key that is read ahead.
struct Ahead {
    key: Vec<u8>,
    /// None if the key is absent.
    value: Option<Vec<u8>>,
    /// Of the committed version, if it has a value.
    stamp: Option<Stamp>,
}

impl<'component, D: Domain, M: Maps> Transaction<'component, D, M> {
    /// The records of `range`, as this transaction sees them.
    pub fn range(&mut self, map: u64, range: KeyRange) -> TransactionRange<'_, 'component, D, M> {
        let end = || End { most: FIRST_PART, ..End::default() };
        let ends = [end(), end()];
        TransactionRange { transaction: self, map, range, ends, is_over: false }
    }

    /// Calls `visit` with each record of the range, as this transaction sees it, in `order`, until
    /// it returns `Break`.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn scan(
        &mut self,
        map: u64,
        range: KeyRange,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let mut records = self.range(map, range);
        while let Some((key, value)) = records.next(order)? {
            if visit(&key, &value).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The own writes in a range, in order.
    fn own_writes<'own>(
        &'own self,
        map: u64,
        range: &KeyRange,
        order: Order,
    ) -> Vec<(&'own [u8], Option<&'own [u8]>)> {
        let place = |key: &Vec<u8>| (map, key.clone());
        let in_range = |(place, _): &Write<'own>| place.0 == map && range.contains(&place.1);
        let record = |(place, value): Write<'own>| (place.1.as_slice(), value.as_deref());
        match order {
            Order::Ascending => {
                let from = match range.low.as_ref().map(place) {
                    Bound::Unbounded => Bound::Included((map, Vec::new())),
                    from => from,
                };
                let behind = self.writes.range((from, Bound::Unbounded));
                behind.take_while(in_range).map(record).collect()
            }
            Order::Descending => {
                let from = match (range.high.as_ref().map(place), map.checked_add(1)) {
                    (Bound::Unbounded, Some(next)) => Bound::Excluded((next, Vec::new())),
                    (from, _) => from,
                };
                let behind = self.writes.range((Bound::Unbounded, from)).rev();
                behind.take_while(in_range).map(record).collect()
            }
        }
    }

    /// Reads the first records of `range` in `order`, about `most`. Returns also the last key that
    /// was read of the map, if more may be behind it.
    fn read_ahead(
        &self,
        map: u64,
        mut range: KeyRange,
        order: Order,
        most: usize,
    ) -> Result<(VecDeque<Ahead>, Option<Vec<u8>>)> {
        let settled = self.component.settled_lsn()?;
        let index = self.component.index(map)?;
        let mut cursor = match &self.snapshot {
            Some(snapshot) => snapshot.scan(map, &*index, range.clone(), order)?,
            None => index.scan(range.clone(), order)?,
        };
        cursor.expect(most);
        let (mut stored, mut bytes, mut is_whole) = (VecDeque::new(), 0, false);
        while stored.len() < most && bytes < PART_BYTES {
            let Some((key, value)) = cursor.next()? else {
                is_whole = true;
                break;
            };
            bytes += key.len() + value.len();
            let (value, stamp) = match &self.snapshot {
                // It is not validated.
                Some(_) => (Some(value.to_vec()), None),
                None => {
                    let Version { stamp, value } =
                        self.component.version_of_copy(map, (key, value), settled)?;
                    let stamp = value.is_some().then_some(stamp);
                    (value, stamp)
                }
            };
            stored.push_back(Ahead { key: key.to_vec(), value, stamp });
        }
        let last = stored.back().filter(|_| !is_whole).map(|last| last.key.clone());
        if let Some(last) = &last {
            *ends_of(&mut range, order).1 = Bound::Included(last.clone());
        }
        let mut ahead = VecDeque::with_capacity(stored.len());
        for (key, value) in self.own_writes(map, &range, order) {
            while let Some(other) =
                stored.pop_front_if(|other| comes_before(&other.key, key, order))
            {
                ahead.push_back(other);
            }
            let replaced = stored.pop_front_if(|other| other.key == key);
            let stamp = replaced.and_then(|replaced| replaced.stamp);
            ahead.push_back(Ahead { key: key.to_vec(), value: value.map(<[u8]>::to_vec), stamp });
        }
        ahead.append(&mut stored);
        Ok((ahead, last))
    }
}

impl<D: Domain, M: Maps> TransactionRange<'_, '_, D, M> {
    /// Says that the caller will probably take so many records from now on.
    pub fn expect(&mut self, records: usize) {
        self.ends.iter_mut().for_each(|end| end.most = records.clamp(1, LAST_PART));
    }

    /// The next record: from the front if `order` is ascending, else from the back. `None` when
    /// both have met.
    ///
    /// # Errors
    ///
    /// As [`Transaction::get`].
    pub fn next(&mut self, order: Order) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let (own, other) = (order as usize, 1 - order as usize);
        while !self.is_over {
            let Some(Ahead { key, value, stamp }) = self.ends[own].ahead.pop_front() else {
                match self.ends[own].is_exhausted {
                    true => self.finish(Some(order)),
                    false => self.read_ahead(order)?,
                }
                continue;
            };
            let others_last = self.ends[other].last.as_ref();
            if others_last.is_some_and(|last| !comes_before(&key, last, order)) {
                self.finish(Some(order));
                continue;
            }
            let end = &mut self.ends[own];
            end.stamps.extend(stamp);
            end.last = Some(key.clone());
            if let Some(value) = value {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }

    fn read_ahead(&mut self, order: Order) -> Result<()> {
        let [end, other] = match (order, &mut self.ends) {
            (Order::Ascending, [front, back]) => [front, back],
            (Order::Descending, [front, back]) => [back, front],
        };
        let mut rest = self.range.clone();
        let (near, far) = ends_of(&mut rest, order);
        end.read.iter().for_each(|read| *near = Bound::Excluded(read.clone()));
        other.last.iter().for_each(|last| *far = Bound::Excluded(last.clone()));
        (end.ahead, end.read) = self.transaction.read_ahead(self.map, rest, order, end.most)?;
        end.is_exhausted = end.read.is_none();
        end.most = (2 * end.most).min(LAST_PART);
        Ok(())
    }

    /// Ends the scan, and notes the parts that count as read. `met`: the end of this order has come
    /// to the other one, or to its bound.
    fn finish(&mut self, met: Option<Order>) {
        let was_over = mem::replace(&mut self.is_over, true);
        if was_over || self.transaction.snapshot.is_some() {
            return;
        }
        for order in [Order::Ascending, Order::Descending] {
            let [own, other] = [order as usize, 1 - order as usize].map(|end| &self.ends[end].last);
            let mut range = self.range.clone();
            let far = ends_of(&mut range, order).1;
            match (met == Some(order), own, other) {
                (true, _, Some(other)) => *far = Bound::Excluded(other.clone()),
                (true, _, None) => {}
                (false, Some(own), _) => *far = Bound::Included(own.clone()),
                (false, None, _) => continue,
            }
            let stamps = mem::take(&mut self.ends[order as usize].stamps);
            self.transaction.ranges.push(RangeRead { map: self.map, range, order, stamps });
        }
    }
}

impl<D: Domain, M: Maps> Drop for TransactionRange<'_, '_, D, M> {
    fn drop(&mut self) {
        self.finish(None);
    }
}

impl<D: Domain, M: Maps> std::fmt::Debug for TransactionRange<'_, '_, D, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionRange").field("map", &self.map).finish_non_exhaustive()
    }
}

/// The bounds at which a scan in this order begins and ends.
fn ends_of(range: &mut KeyRange, order: Order) -> (&mut Bound<Vec<u8>>, &mut Bound<Vec<u8>>) {
    let KeyRange { low, high } = range;
    match order {
        Order::Ascending => (low, high),
        Order::Descending => (high, low),
    }
}

/// Whether `key` comes before `other` in a scan.
fn comes_before(key: &[u8], other: &[u8], order: Order) -> bool {
    match order {
        Order::Ascending => key < other,
        Order::Descending => key > other,
    }
}
