//! The interface of a measured system.
//!
//! An adapter implements [`System`]. The timed slices are compiled for each adapter of a map in
//! memory, so that a call costs what it costs a user of that library (`subject.rs`). Pando's own
//! indexes are called through `pando-index`'s trait object, as the public API calls them. All other
//! code, and the durable peers, whose operations take microseconds, use [`AnySystem`]: one virtual
//! call per operation, compiled once.

use std::ops::Bound;

use pando_index::KeyRange;
pub use pando_index::Order;

/// The error of a system.
pub type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// The records of a scan.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'key> {
    /// The first key, included if it is present.
    pub from: &'key [u8],
    /// The maximum number of records.
    pub limit: u64,
    /// The order.
    pub order: Order,
}

impl<'key> Scan<'key> {
    /// All records from `from` upwards.
    pub fn upwards(from: &'key [u8]) -> Self {
        Self { from, limit: u64::MAX, order: Order::Ascending }
    }

    /// Its keys.
    pub fn range(self) -> KeyRange {
        match self.order {
            Order::Ascending => KeyRange::from(self.from..),
            Order::Descending => {
                KeyRange { low: Bound::Unbounded, high: Bound::Included(self.from.to_vec()) }
            }
        }
    }
}

/// An ordered map from byte strings to byte strings that many threads use at the same time; keys
/// are ordered bytewise.
pub trait System: Send + Sync {
    /// Whether a get may miss a key while another thread replaces its value: a known fault of a
    /// peer. Such misses are counted and reported, and each of these keys must be present at the
    /// end of the slice.
    const REPLACING_HIDES_KEY: bool = false;

    /// Adds a record; false, without a change, if its key is present.
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal>;

    /// Replaces the value of a key. The caller knows that the key is present.
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal>;

    /// Calls `visit` with the value of `key` if it is present; returns whether it is.
    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal>;

    /// Calls `visit` with the index and the value of each of `keys` that is present.
    fn get_many(&self, keys: &[&[u8]], mut visit: impl FnMut(usize, &[u8])) -> Result<(), Refusal> {
        for (index, key) in keys.iter().enumerate() {
            self.get(key, |value| visit(index, value))?;
        }
        Ok(())
    }

    /// Replaces the values of keys. The caller knows that they are present.
    fn upsert_many(&self, records: &[(&[u8], &[u8])]) -> Result<(), Refusal> {
        records.iter().try_for_each(|(key, value)| self.upsert(key, value))
    }

    /// Removes a record; false if its key is absent.
    fn delete(&self, key: &[u8]) -> Result<bool, Refusal>;

    /// Visits records in the order of `scan`; an error if the map cannot scan in this order.
    fn scan(&self, scan: Scan<'_>, visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal>;

    /// The number of records, while no thread writes.
    fn count(&self) -> Result<u64, Refusal>;

    /// The bytes of the system, if it knows them; otherwise, the growth of the heap is used.
    fn footprint_bytes(&self) -> Option<u64> {
        None
    }

    /// The bytes of the system's files, if it has any.
    fn file_bytes(&self) -> Option<u64> {
        None
    }
}

/// A system behind a trait object, for single operations; [`System`] describes them.
pub trait AnySystem: Send + Sync {
    /// See [`System::insert_new`].
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal>;

    /// See [`System::upsert`].
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal>;

    /// See [`System::get`].
    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Refusal>;

    /// See [`System::delete`].
    fn delete(&self, key: &[u8]) -> Result<bool, Refusal>;

    /// See [`System::scan`].
    fn scan(&self, scan: Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Refusal>;

    /// See [`System::count`].
    fn count(&self) -> Result<u64, Refusal>;

    /// See [`System::footprint_bytes`].
    fn footprint_bytes(&self) -> Option<u64>;
}

impl<S: System> AnySystem for S {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        System::insert_new(self, key, value)
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        System::upsert(self, key, value)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Refusal> {
        System::get(self, key, visit)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        System::delete(self, key)
    }

    fn scan(&self, scan: Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        System::scan(self, scan, visit)
    }

    fn count(&self) -> Result<u64, Refusal> {
        System::count(self)
    }

    fn footprint_bytes(&self) -> Option<u64> {
        System::footprint_bytes(self)
    }
}
