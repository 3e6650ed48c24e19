//! A transactional map as an index: each operation on one key is a commit of its own.

use std::sync::Arc;

use pando_index::{
    Change, Cursor, Error as IndexError, Intent, KeyRange, Limits, Order, RangeIndex, Record,
    Result, Upserted, scanned_len,
};
use pando_pmem::Domain;

use crate::component::{Maps, TransactionComponent};
use crate::error::Error;
use crate::one_key::{Decide, Decision, Replaced};
use crate::stamp::STAMP_BYTES;
use crate::transaction::{ATTEMPTS, back_off};

/// A map of a transaction component, without the stamps of its values. Its operations on one key
/// are linearizable, and take their place among the transactions.
pub struct TransactionalMap<D: Domain, M> {
    component: Arc<TransactionComponent<D, M>>,
    number: u64,
    index: Arc<dyn RangeIndex>,
    limits: Limits,
}

impl<D: Domain, M: Maps> TransactionalMap<D, M> {
    /// The map with this number, whose records are in `index`.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownMap`], [`Error::NoRoomForStamp`].
    pub fn new(
        component: Arc<TransactionComponent<D, M>>,
        number: u64,
        index: Arc<dyn RangeIndex>,
    ) -> Result<Self, Error> {
        let limits = component.limits(number)?;
        Ok(Self { component, number, index, limits })
    }

    /// Commits what `decide` decides about `key`. Returns whether the key was present, and whether
    /// it has a new version; neither is known if the write was `blind`.
    fn replace(
        &self,
        key: &[u8],
        gives_room: bool,
        blind: Option<usize>,
        decide: &mut Decide<'_>,
    ) -> Result<(bool, bool)> {
        self.limits().check_key(key)?;
        for attempt in 0..ATTEMPTS {
            let place = (self.number, key);
            match self.component.replace(&*self.index, place, gives_room, blind, decide) {
                Ok(Replaced { was_present, lsn }) => {
                    lsn.into_iter().for_each(|lsn| self.component.clean_up_after(lsn));
                    return Ok((was_present, lsn.is_some()));
                }
                Err(Error::Conflict { .. }) => back_off(attempt),
                Err(error) => return Err(refused(error)),
            }
        }
        Err(refused(Error::Conflict { map: self.number, key: key.to_vec() }))
    }
}

/// An error of the component, as an error of an index.
fn refused(error: Error) -> IndexError {
    match error {
        Error::Index(error) => error,
        other => IndexError::storage(other),
    }
}

impl<D: Domain, M> std::fmt::Debug for TransactionalMap<D, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionalMap").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<D: Domain, M: Maps> RangeIndex for TransactionalMap<D, M> {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn write(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted> {
        self.limits().check_value(value)?;
        let (was_present, _) = self.replace(key, false, None, &mut |found, new| {
            intent.check(found)?;
            new.extend_from_slice(value);
            Ok(Decision::Put)
        })?;
        Ok(if was_present { Upserted::Updated } else { Upserted::Inserted })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.limits().check_value(value)?;
        let put = &mut |_: Option<&[u8]>, new: &mut Vec<u8>| {
            new.extend_from_slice(value);
            Ok(Decision::Put)
        };
        let blind = Some(STAMP_BYTES + value.len());
        self.replace(key, false, blind, put).map(drop)
    }

    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.limits().check_key(key)?;
        self.component.read(&*self.index, self.number, key, visit).map_err(refused)
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        let decide: &mut Decide<'_> = &mut |found, _| match found {
            Some(_) => Ok(Decision::Remove),
            None => Ok(Decision::Keep),
        };
        self.replace(key, true, None, decide).map(|(_, is_removed)| is_removed)
    }

    fn take(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut taken = None;
        self.replace(key, true, None, &mut |found, _| {
            taken = found.map(<[u8]>::to_vec);
            Ok(if found.is_some() { Decision::Remove } else { Decision::Keep })
        })?;
        Ok(taken)
    }

    fn compare_remove(&self, key: &[u8], expected: &[u8]) -> Result<()> {
        let decide: &mut Decide<'_> = &mut |found, _| {
            Intent::Exchange { expected }.check(found)?;
            Ok(Decision::Remove)
        };
        self.replace(key, true, None, decide).map(drop)
    }

    fn modify(&self, key: &[u8], change: &mut Change<'_>) -> Result<Option<Upserted>> {
        let limits = self.limits();
        let mut value = Vec::new();
        let (was_present, is_changed) = self.replace(key, false, None, &mut |found, new| {
            value.clear();
            if !change(found, &mut value) {
                return Ok(Decision::Keep);
            }
            limits.check_value(&value)?;
            new.extend_from_slice(&value);
            Ok(Decision::Put)
        })?;
        let upserted = if was_present { Upserted::Updated } else { Upserted::Inserted };
        Ok(is_changed.then_some(upserted))
    }

    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>> {
        let settled = self.component.settled_lsn().map_err(refused)?;
        let cursor = self.index.scan(range, order)?;
        let (key, value) = Default::default();
        Ok(Box::new(Committed { map: self, settled, cursor, key, value }))
    }

    /// Linear in the number of records: each is visited.
    fn len(&self) -> Result<u64> {
        scanned_len(self)
    }
}

/// A scan of the committed versions.
struct Committed<'index, D: Domain, M> {
    map: &'index TransactionalMap<D, M>,
    /// The settled LSN before the scan.
    settled: u64,
    cursor: Box<dyn Cursor + 'index>,
    /// The record that is lent.
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<D: Domain, M: Maps> Cursor for Committed<'_, D, M> {
    fn expect(&mut self, records: usize) {
        self.cursor.expect(records);
    }

    fn next(&mut self) -> Result<Option<Record<'_>>> {
        while let Some(record) = self.cursor.next()? {
            let TransactionalMap { component, number, .. } = self.map;
            let version = component.version_of_copy(*number, record, self.settled);
            let Some(value) = version.map_err(refused)?.value else { continue };
            self.key.clear();
            self.key.extend_from_slice(record.0);
            self.value = value;
            return Ok(Some((&self.key, &self.value)));
        }
        Ok(None)
    }
}
