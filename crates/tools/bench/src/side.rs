//! What is measured, as the harness sees it.
//!
//! An adapter implements [`Side`]. The timed slices are compiled against each of those in memory,
//! so that a call costs what it would cost that library's user; [`Subject`] is such a side with its
//! type forgotten: one virtual call a slice, none an operation. All else, and sides whose
//! operations take microseconds anyway, goes through [`AnySide`], a virtual call an operation, and
//! is compiled once.

pub use pando_index::Order;

use crate::error::Fault;
pub use crate::record::Shape;
use crate::slice::{self, Outcome, Slice};

/// Why a side did not do what it was asked to.
pub type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// An ordered map from byte strings to byte strings that many threads use at once; keys are
/// ordered bytewise.
pub trait Side: Send + Sync {
    /// Whether a get may miss a key while another thread replaces its value: a fault that the
    /// harness lives with for a peer, on record. Such misses are counted and reported, and each
    /// key has to be there when the slice is over.
    const REPLACING_HIDES_KEY: bool = false;

    /// Adds a record; false, with nothing changed, if its key is there.
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal>;

    /// Replaces the value of a key that the caller knows to be there.
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal>;

    /// Calls `visit` with the value of `key` if it is there; whether it is.
    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal>;

    /// Calls `visit` with the index and the value of each of `keys` that is there.
    fn get_many(&self, keys: &[&[u8]], mut visit: impl FnMut(usize, &[u8])) -> Result<(), Refusal> {
        for (index, key) in keys.iter().enumerate() {
            self.get(key, |value| visit(index, value))?;
        }
        Ok(())
    }

    /// Removes a record; false if its key is absent.
    fn delete(&self, key: &[u8]) -> Result<bool, Refusal>;

    /// Visits up to `limit` records from `from`, included, upwards or downwards. Refuses (an error
    /// that says so) a direction that the map has not.
    fn scan(
        &self,
        from: &[u8],
        limit: u64,
        order: Order,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Refusal>;

    /// The number of records, while nobody writes.
    fn count(&self) -> Result<u64, Refusal>;

    /// The bytes that the side takes, if it knows; otherwise the heap's growth is taken.
    fn footprint_bytes(&self) -> Option<u64> {
        None
    }

    /// The bytes that the side's files take, if it has any.
    fn file_bytes(&self) -> Option<u64> {
        None
    }
}

/// A side with its type forgotten, one operation at a time; what each does stands with [`Side`].
pub trait AnySide: Send + Sync {
    /// See [`Side::insert_new`].
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal>;

    /// See [`Side::upsert`].
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal>;

    /// See [`Side::get`].
    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Refusal>;

    /// See [`Side::delete`].
    fn delete(&self, key: &[u8]) -> Result<bool, Refusal>;

    /// See [`Side::scan`].
    fn scan(
        &self,
        from: &[u8],
        limit: u64,
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Refusal>;

    /// See [`Side::count`].
    fn count(&self) -> Result<u64, Refusal>;

    /// See [`Side::footprint_bytes`].
    fn footprint_bytes(&self) -> Option<u64>;
}

impl<S: Side> AnySide for S {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        Side::insert_new(self, key, value)
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        Side::upsert(self, key, value)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Refusal> {
        Side::get(self, key, visit)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        Side::delete(self, key)
    }

    fn scan(
        &self,
        from: &[u8],
        limit: u64,
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Refusal> {
        Side::scan(self, from, limit, order, visit)
    }

    fn count(&self) -> Result<u64, Refusal> {
        Side::count(self)
    }

    fn footprint_bytes(&self) -> Option<u64> {
        Side::footprint_bytes(self)
    }
}

/// A side with its type forgotten.
pub trait Subject: Send + Sync {
    /// Runs one slice.
    fn run(&self, slice: &Slice<'_>) -> Result<Outcome, Fault>;

    /// The side, for single operations.
    fn any(&self) -> &dyn AnySide;

    /// See [`Side::footprint_bytes`].
    fn footprint_bytes(&self) -> Option<u64>;

    /// See [`Side::file_bytes`].
    fn file_bytes(&self) -> Option<u64>;
}

impl<S: Side> Subject for S {
    fn run(&self, slice: &Slice<'_>) -> Result<Outcome, Fault> {
        slice::run(self, slice)
    }

    fn any(&self) -> &dyn AnySide {
        self
    }

    fn footprint_bytes(&self) -> Option<u64> {
        Side::footprint_bytes(self)
    }

    fn file_bytes(&self) -> Option<u64> {
        Side::file_bytes(self)
    }
}
