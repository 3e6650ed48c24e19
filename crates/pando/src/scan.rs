//! A scan in progress.

use std::mem;
use std::ops::Bound;
use std::sync::Arc;

use pando_index::{KeyRange, Order, Record};

use crate::Error;
use crate::engine::AnySnapshot;
use crate::map_cursors::MapCursors;
use crate::shared::MapShared;

/// A copied record: key and value.
pub type OwnedRecord = (Vec<u8>, Vec<u8>);

/// The records of a range of keys, from the front, from the back, or from both ends.
///
/// A scan of a [`Map`](crate::Map) holds a handle of the map and borrows nothing: it may be kept
/// for any time, and be sent to another thread. Between two records it holds up no other thread,
/// and keeps no memory of the pool from reuse. It copies a few records at once, and finds its place
/// again by the last key.
///
/// A scan of a [`Snapshot`](crate::Snapshot) borrows the snapshot, and returns the records of its
/// moment. The rest of this page is about a scan of a map. While other threads write, it is not a
/// snapshot, neither of its range nor of a part of it. It guarantees:
///
/// * Keys from the front strictly ascend. Keys from the back strictly descend. The scan ends when
///   both meet. So no key is returned twice.
/// * Each record was in the map, with this key and this value, at some instant between the first
///   call for a record and the return of the call that returns the record.
/// * A key that was present all that time is returned. A key that was absent all that time is not.
///
/// Two records may be of different instants, in any order. A scan may return the result of a later
/// write for one key, and for another key a value that an earlier write has replaced.
///
/// As an iterator a scan yields copies; [`next_record`](Scan::next_record) and
/// [`next_record_back`](Scan::next_record_back) lend each record instead. The scan ends after an
/// error. Keys that do not ascend (or descend) are an error: only damage puts them out of order.
///
/// ```
/// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
/// let map = pool.map("letters")?;
/// for key in ["a", "b", "c", "d"] {
///     map.insert(key, "")?;
/// }
/// let mut scan = map.range("a".."d");
/// assert_eq!(scan.next().transpose()?.map(|record| record.0), Some(b"a".to_vec()));
/// assert_eq!(scan.next_back().transpose()?.map(|record| record.0), Some(b"c".to_vec()));
/// let rest = std::thread::spawn(move || scan.count()).join();
/// assert_eq!(rest.ok(), Some(1));
/// # Ok::<(), pando::Error>(())
/// ```
#[must_use = "a scan reads nothing until it is asked for a record"]
pub struct Scan<'snapshot> {
    cursors: MapCursors<'snapshot>,
    snapshot: Option<&'snapshot dyn AnySnapshot>,
    /// The scan returns it in the place of the first record.
    refused: Option<Error>,
    /// The range, except for the bounds at which a cursor is open.
    range: KeyRange,
    front: Last,
    back: Last,
    expected: Option<usize>,
    is_over: bool,
}

/// The key of the last record of an end, if there was one.
#[derive(Default)]
struct Last {
    key: Vec<u8>,
    is_there: bool,
}

impl Last {
    #[inline(always)]
    fn note(&mut self, key: &[u8]) {
        self.is_there = true;
        self.key.clear();
        self.key.extend_from_slice(key);
    }

    /// Whether `key` is this key, or lies before it in `order`.
    #[inline(always)]
    fn is_past(&self, key: &[u8], order: Order) -> bool {
        self.is_there
            && match order {
                Order::Ascending => key <= self.key.as_slice(),
                Order::Descending => key >= self.key.as_slice(),
            }
    }
}

impl<'snapshot> Scan<'snapshot> {
    /// The records of the map.
    pub(crate) fn of_map(map: Arc<MapShared>, range: KeyRange) -> Self {
        let (snapshot, refused, front, back, expected) = Default::default();
        let cursors = MapCursors::new(map);
        Self { cursors, snapshot, refused, range, front, back, expected, is_over: false }
    }

    /// The records of the map in a snapshot; none if there is no snapshot of its pool's maps.
    pub(crate) fn of_snapshot(
        map: Arc<MapShared>,
        snapshot: Option<&'snapshot dyn AnySnapshot>,
        range: KeyRange,
    ) -> Self {
        Self { snapshot, is_over: snapshot.is_none(), ..Self::of_map(map, range) }
    }

    /// A scan that returns this error.
    pub(crate) fn refused(map: Arc<MapShared>, error: Error) -> Self {
        Self { refused: Some(error), ..Self::of_map(map, KeyRange::all()) }
    }

    /// Says that the caller will probably take so many records, for example those of a page. The
    /// scan may then copy as many at once, up to about 1 MiB; otherwise it begins with a few. More
    /// or fewer records may be taken, and the guarantees stay the same.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("letters")?;
    /// assert_eq!(map.range(..).expecting(100).take(100).count(), 0);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn expecting(mut self, records: usize) -> Self {
        self.expected = Some(records);
        self.cursors.expect(records);
        self
    }

    /// The next record from the front, lent until the next call, or `None` at the end.
    ///
    /// # Errors
    ///
    /// Those of [`Map::range`](crate::Map::range), or of
    /// [`Snapshot::range`](crate::Snapshot::range). The scan ends with the error.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("letters")?;
    /// map.insert("a", "first")?;
    /// let mut scan = map.range(..);
    /// while let Some((key, value)) = scan.next_record()? {
    ///     assert_eq!((key, value), (&b"a"[..], &b"first"[..]));
    /// }
    /// # Ok::<(), pando::Error>(())
    /// ```
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, Error> {
        self.next_record_in(Order::Ascending)
    }

    /// The next record from the back, lent until the next call, or `None` at the end.
    ///
    /// # Errors
    ///
    /// As [`next_record`](Self::next_record).
    #[inline]
    pub fn next_record_back(&mut self) -> Result<Option<Record<'_>>, Error> {
        self.next_record_in(Order::Descending)
    }

    /// The next record: from the front if `order` is ascending, else from the back.
    ///
    /// # Errors
    ///
    /// As [`next_record`](Self::next_record).
    #[inline]
    pub fn next_record_in(&mut self, order: Order) -> Result<Option<Record<'_>>, Error> {
        if self.is_over {
            return Ok(None);
        }
        // Until a record is found.
        self.is_over = true;
        let (last, other, others_order) = match order {
            Order::Ascending => (&mut self.front, &self.back, Order::Descending),
            Order::Descending => (&mut self.back, &self.front, Order::Ascending),
        };
        if !self.cursors.is_open(order) {
            if let Some(error) = self.refused.take() {
                return Err(error);
            }
            let range = rest(&mut self.range, other, order);
            let opened = self.cursors.open(self.snapshot, range, order);
            opened.map_err(|error| Error::of_index(self.cursors.name(), error))?;
            self.expected.into_iter().for_each(|records| self.cursors.expect(records));
        }
        let (name, found) = self.cursors.next(order);
        let found = found.map_err(|error| Error::of_index(name, error))?;
        let Some((key, value)) = found else { return Ok(None) };
        if other.is_past(key, others_order) {
            return Ok(None);
        }
        if last.is_past(key, order) {
            return Err(Error::KeysOutOfOrder { map: name.to_owned(), key: key.to_vec() });
        }
        last.note(key);
        self.is_over = false;
        Ok(Some((key, value)))
    }

    fn copy(&mut self, order: Order) -> Option<Result<OwnedRecord, Error>> {
        let step = match self.next_record_in(order) {
            Ok(Some((key, value))) => return Some(Ok((key.to_vec(), value.to_vec()))),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        };
        // Their memory is not needed any more.
        self.cursors.close();
        step
    }
}

/// The range of a cursor that is opened at an end. The scan does not need its bound there any more:
/// if the cursor finds no record, the scan is over.
fn rest(range: &mut KeyRange, other: &Last, order: Order) -> KeyRange {
    let (own, far) = match order {
        Order::Ascending => (&mut range.low, &range.high),
        Order::Descending => (&mut range.high, &range.low),
    };
    let own = mem::replace(own, Bound::Unbounded);
    let far = match other.is_there {
        true => Bound::Excluded(other.key.clone()),
        false => far.clone(),
    };
    match order {
        Order::Ascending => KeyRange { low: own, high: far },
        Order::Descending => KeyRange { low: far, high: own },
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<OwnedRecord, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.copy(Order::Ascending)
    }
}

impl DoubleEndedIterator for Scan<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.copy(Order::Descending)
    }
}

impl std::iter::FusedIterator for Scan<'_> {}

impl std::fmt::Debug for Scan<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Scan").field("map", &self.cursors.name()).finish_non_exhaustive()
    }
}
