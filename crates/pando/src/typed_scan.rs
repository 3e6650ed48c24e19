//! The records of a typed map.

use std::marker::PhantomData;

use pando_index::Order;

use crate::Error;
use crate::key::Key;
use crate::scan::{OwnedRecord, Scan};
use crate::value::Value;

/// The records of a range of a [`TypedMap`](crate::TypedMap), as those of a [`Scan`]. For a stored
/// key that is not a `K`, or a value that is not a `V`, it yields an error, and then continues with
/// the next key.
#[must_use = "a scan reads nothing until it is asked for a record"]
pub struct TypedScan<'snapshot, K, V = Vec<u8>> {
    scan: Scan<'snapshot>,
    record: PhantomData<fn() -> (K, V)>,
}

impl<'snapshot, K: Key, V: Value> TypedScan<'snapshot, K, V> {
    pub(crate) fn new(scan: Scan<'snapshot>) -> Self {
        Self { scan, record: PhantomData }
    }

    /// As [`Scan::expecting`].
    pub fn expecting(self, records: usize) -> Self {
        Self::new(self.scan.expecting(records))
    }

    /// As [`Scan::next_record`]: the value is lent until the next call.
    ///
    /// # Errors
    ///
    /// As [`Scan::next_record`]; [`Error::Key`] and [`Error::Value`].
    pub fn next_record(&mut self) -> Result<Option<(K, V::Lent<'_>)>, Error> {
        self.next_record_in(Order::Ascending)
    }

    /// As [`Scan::next_record_back`]: the value is lent until the next call.
    ///
    /// # Errors
    ///
    /// As [`next_record`](Self::next_record).
    pub fn next_record_back(&mut self) -> Result<Option<(K, V::Lent<'_>)>, Error> {
        self.next_record_in(Order::Descending)
    }

    /// As [`Scan::next_record_in`]: the value is lent until the next call.
    ///
    /// # Errors
    ///
    /// As [`next_record`](Self::next_record).
    pub fn next_record_in(&mut self, order: Order) -> Result<Option<(K, V::Lent<'_>)>, Error> {
        let Some((key, value)) = self.scan.next_record_in(order)? else { return Ok(None) };
        Ok(Some((K::decode(key)?, V::lend(value)?)))
    }
}

impl<K: Key, V: Value> Iterator for TypedScan<'_, K, V> {
    type Item = Result<(K, V::Owned), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.scan.next()?.and_then(decoded::<K, V>))
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for TypedScan<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.scan.next_back()?.and_then(decoded::<K, V>))
    }
}

impl<K: Key, V: Value> std::iter::FusedIterator for TypedScan<'_, K, V> {}

impl<K, V> std::fmt::Debug for TypedScan<'_, K, V> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TypedScan").field("scan", &self.scan).finish()
    }
}

/// A record of these types.
pub(crate) fn decoded<K: Key, V: Value>((key, value): OwnedRecord) -> Result<(K, V::Owned), Error> {
    Ok((K::decode(&key)?, V::decode(value)?))
}
