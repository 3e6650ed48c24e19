//! A scan in progress.

use pando_index::{Cursor, Order, Record};

use crate::Error;

/// A copied record: key and value.
pub type OwnedRecord = (Vec<u8>, Vec<u8>);

/// The records of a range, one after the other.
///
/// A scan of a [`Snapshot`](crate::Snapshot) returns the records of one moment. The rest of this
/// page is about a scan of a [`Map`](crate::Map). While other threads write, it is not a snapshot,
/// neither of its range nor of a part of it. It guarantees:
///
/// * Keys strictly ascend, or strictly descend. So no key is returned twice.
/// * Each record was in the map, with this key and this value, at some instant between the call of
///   [`Map::scan`](crate::Map::scan) and the return of the call that returns the record.
/// * A key that was present all that time is returned. A key that was absent all that time is not.
///
/// Two records may be of different instants, in any order. A scan may return the result of a later
/// write for one key, and for another key a value that an earlier write has replaced.
///
/// As an iterator a scan yields copies; [`next_record`](Scan::next_record) lends each record
/// instead. The scan ends after an error. Keys that do not ascend (or descend) are an error: only
/// damage puts them out of order.
pub struct Scan<'map> {
    map: &'map str,
    cursor: Option<Box<dyn Cursor + 'map>>,
    order: Order,
    /// The key of the last record, if there was one.
    last: Vec<u8>,
    has_last: bool,
}

impl<'map> Scan<'map> {
    /// `cursor` is none if there are no records.
    pub(crate) fn new(
        map: &'map str,
        cursor: Option<Box<dyn Cursor + 'map>>,
        order: Order,
    ) -> Self {
        Self { map, cursor, order, last: Vec::new(), has_last: false }
    }

    /// Says that the caller will probably take so many records, for example those of a page. The
    /// scan may then copy as many at once, up to about 1 MiB; otherwise it begins with a few. More
    /// or fewer records may be taken, and the guarantees stay the same.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// use pando::{KeyRange, Order};
    ///
    /// let map = pool.map("letters")?;
    /// let page = map.scan(KeyRange::all(), Order::Ascending)?.expecting(100).take(100);
    /// assert_eq!(page.count(), 0);
    /// # Ok::<(), pando::Error>(())
    /// ```
    #[must_use]
    pub fn expecting(mut self, records: usize) -> Self {
        if let Some(cursor) = &mut self.cursor {
            cursor.expect(records);
        }
        self
    }

    /// The next record, lent until the next call, or `None` at the end of the range.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// use pando::{KeyRange, Order};
    ///
    /// let map = pool.map("letters")?;
    /// map.insert(b"a", b"first")?;
    /// let mut scan = map.scan(KeyRange::all(), Order::Ascending)?;
    /// while let Some((key, value)) = scan.next_record()? {
    ///     assert_eq!((key, value), (&b"a"[..], &b"first"[..]));
    /// }
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, Error> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        let Some((key, value)) = cursor.next().map_err(|error| Error::of_index(self.map, error))?
        else {
            return Ok(None);
        };
        let goes_on = match self.order {
            Order::Ascending => *self.last < *key,
            Order::Descending => *self.last > *key,
        };
        if self.has_last && !goes_on {
            return Err(Error::KeysOutOfOrder { map: self.map.to_owned(), key: key.to_vec() });
        }
        self.has_last = true;
        self.last.clear();
        self.last.extend_from_slice(key);
        Ok(Some((key, value)))
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<OwnedRecord, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = match self.next_record() {
            Ok(Some((key, value))) => return Some(Ok((key.to_vec(), value.to_vec()))),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        };
        self.cursor = None;
        step
    }
}

impl std::iter::FusedIterator for Scan<'_> {}
