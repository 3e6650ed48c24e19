//! What is measured, as the harness sees it.
//!
//! An adapter implements [`System`]. The timed slices are compiled against each of those in memory,
//! so that a call costs what it would cost that library's user (`subject.rs`). All else, and
//! systems whose operations take microseconds anyway, goes through [`AnySystem`], a virtual call an
//! operation, and is compiled once.

pub use pando_index::Order;

/// Why a system did not do what it was asked to.
pub type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// Which records a scan visits.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'key> {
    /// The key that it begins at, included if it is there.
    pub from: &'key [u8],
    /// The most records.
    pub limit: u64,
    /// Upwards or downwards.
    pub order: Order,
}

impl<'key> Scan<'key> {
    /// All records from `from` upwards.
    pub fn upwards(from: &'key [u8]) -> Self {
        Self { from, limit: u64::MAX, order: Order::Ascending }
    }
}

/// An ordered map from byte strings to byte strings that many threads use at once; keys are
/// ordered bytewise.
pub trait System: Send + Sync {
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

    /// Visits records in the order of `scan`. Refuses (an error that says so) a direction that the
    /// map has not.
    fn scan(&self, scan: Scan<'_>, visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal>;

    /// The number of records, while nobody writes.
    fn count(&self) -> Result<u64, Refusal>;

    /// The bytes that the system takes, if it knows; otherwise the heap's growth is taken.
    fn footprint_bytes(&self) -> Option<u64> {
        None
    }

    /// The bytes that the system's files take, if it has any.
    fn file_bytes(&self) -> Option<u64> {
        None
    }
}

/// A system with its type forgotten, one operation at a time; what each does stands with
/// [`System`].
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
