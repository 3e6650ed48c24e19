//! The contract of every ordered index of Pando, its errors, and the suite that checks it.
//!
//! This crate is the lowest layer: it depends on no other crate of Pando, and every index depends
//! on it. The contract:
//!
//! * Keys and values are byte strings. Keys are ordered bytewise, as unsigned bytes; a proper
//!   prefix comes before its extensions (the order of Rust's `[u8]`).
//! * Each operation on one key is linearizable. In a durable persistence domain it is durably
//!   linearizable: after a crash, the index has the effects of all operations that had returned,
//!   and of all operations whose effects any thread had seen.
//! * A scan is no snapshot. Its keys strictly ascend (or descend), and each record was in the index
//!   at some instant of the scan; [`Cursor`] says what follows from that.
//! * No operation waits for another thread: any thread may stall forever at any instruction, and
//!   the others make progress. One exception is the process's memory allocator, which may hold a
//!   lock. A thread that stalls within it delays the threads that need the same lock. (An index
//!   allocates process memory for returned values, for the buffers of scans, and for lists of its
//!   own.)
//! * Every failure is a value of [`Error`], with the limit that was exceeded. No input causes a
//!   panic.

mod error;
pub mod random;
mod range;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use error::{Error, Result};
pub use range::{KeyRange, Order};

/// The result of an [`upsert`](RangeIndex::upsert).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upserted {
    /// The key was absent; the record was inserted.
    Inserted,
    /// The key was present; its value was replaced.
    Updated,
}

/// The condition of a [`write`](RangeIndex::write) on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent<'call> {
    /// The key must be absent.
    Insert,
    /// The key must be present.
    Update,
    /// The key may be absent or present.
    Upsert,
    /// The key must be present, with the value `expected`.
    Exchange {
        /// The expected value, compared bytewise.
        expected: &'call [u8],
    },
}

impl Intent<'_> {
    /// Refuses the write if the condition does not hold. `found` is the value of the key, or `None`
    /// if the key is absent.
    #[inline(always)]
    pub fn check(self, found: Option<&[u8]>) -> Result<(), Error> {
        match (self, found) {
            (Self::Insert, Some(_)) => Err(Error::KeyExists),
            (Self::Update | Self::Exchange { .. }, None) => Err(Error::KeyNotFound),
            (Self::Exchange { expected }, Some(found)) if found != expected => {
                Err(Error::ValueMismatch)
            }
            _ => Ok(()),
        }
    }
}

/// The function that [`modify`](RangeIndex::modify) calls with a value.
pub type Change<'call> = dyn FnMut(Option<&[u8]>, &mut Vec<u8>) -> bool + 'call;

/// A record, as far as an index knows it without a read of its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known<'value> {
    /// Its value.
    Value(&'value [u8]),
    /// The key is absent.
    Absent,
    /// The store may have the key; it was not read.
    Unread,
}

/// The function that [`write_blind`](RangeIndex::write_blind) calls with what is known.
pub type BlindChange<'call> = dyn FnMut(Known<'_>, &mut Vec<u8>) -> bool + 'call;

/// The function that [`read_many`](RangeIndex::read_many) calls with the index of each key and its
/// value, or `None` if the key is absent.
pub type VisitMany<'call> = dyn FnMut(usize, Option<&[u8]>) + 'call;

/// How often a call that reads a value and then writes, as [`modify`](RangeIndex::modify), tries
/// again, each time because another thread has changed the value. Only a damaged index reaches this
/// number ([`Error::contradiction`]): reads find records that writes do not find.
pub const ATTEMPTS: u32 = 1 << 16;

/// The longest key and value of an index, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest key in bytes; a key may also be empty, unless all keys have one length
    /// ([`Error::KeyTooShort`]).
    pub max_key_bytes: usize,
    /// Longest value in bytes; a value may also be empty, unless all values have one length
    /// ([`Error::ValueTooShort`]).
    pub max_value_bytes: usize,
}

impl Limits {
    /// Refuses a key that is longer than these limits allow.
    #[inline(always)]
    pub fn check_key(self, key: &[u8]) -> Result<(), Error> {
        if key.len() <= self.max_key_bytes {
            return Ok(());
        }
        Err(Error::KeyTooLong { found_bytes: key.len(), max_bytes: self.max_key_bytes })
    }

    /// Refuses a value that is longer than these limits allow.
    #[inline(always)]
    pub fn check_value(self, value: &[u8]) -> Result<(), Error> {
        if value.len() <= self.max_value_bytes {
            return Ok(());
        }
        Err(Error::ValueTooLong { found_bytes: value.len(), max_bytes: self.max_value_bytes })
    }
}

/// An ordered map from byte strings to byte strings that many threads use at once.
///
/// An operation that returns `Ok` is durable when it returns, as the pool's persistence domain
/// guarantees it. An operation that returns `Err` has changed nothing; a batch is many operations.
pub trait RangeIndex: Send + Sync {
    /// The longest key and value of this index.
    fn limits(&self) -> Limits;

    /// Gives `key` the value `value` if the condition `intent` holds: [`insert`](Self::insert),
    /// [`update`](Self::update), [`upsert`](Self::upsert) and
    /// [`compare_exchange`](Self::compare_exchange) in one function.
    fn write(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted, Error>;

    /// Adds a record whose key is absent; [`Error::KeyExists`] if it is present.
    #[inline]
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.write(key, value, Intent::Insert).map(drop)
    }

    /// Replaces the value of a key; [`Error::KeyNotFound`] if it is absent.
    #[inline]
    fn update(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.write(key, value, Intent::Update).map(drop)
    }

    /// Adds the record, or replaces its value if the key is present.
    #[inline]
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<Upserted, Error> {
        self.write(key, value, Intent::Upsert)
    }

    /// Upserts each of `records`, in their order, as by [`put`](Self::put): they are separate
    /// operations, and of two records with one key the later one stays. An index may overlap the
    /// memory accesses of these operations, and may be faster if keys ascend and lie behind all
    /// that it has, as in a load.
    ///
    /// An error is that of the first record that has one. The records before it are written, and
    /// those behind it are not.
    fn upsert_many(&self, records: &[Record<'_>]) -> Result<(), Error> {
        records.iter().try_for_each(|(key, value)| self.put(key, value))
    }

    /// Replaces the value of `key` by `new` if it is `expected`, bytewise, atomically.
    ///
    /// [`Error::KeyNotFound`] if the key is absent, [`Error::ValueMismatch`] if its value differs.
    #[inline]
    fn compare_exchange(&self, key: &[u8], expected: &[u8], new: &[u8]) -> Result<(), Error> {
        self.write(key, new, Intent::Exchange { expected }).map(drop)
    }

    /// Calls `visit` with the value of `key` and returns true, or returns false if the key is
    /// absent. `visit` is called at most once. It must not use the same pool for long: reclamation
    /// waits while it runs.
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Error>;

    /// Calls `visit` for each of `keys`, in their order, with the key's index in `keys` and its
    /// value, or `None` if the key is absent. Each key is read separately, like by
    /// [`read`](Self::read), whose limits hold for `visit`. An index may overlap the memory
    /// accesses of these reads. After an error, any number of the keys may have been visited.
    fn read_many(&self, keys: &[&[u8]], visit: &mut VisitMany<'_>) -> Result<(), Error> {
        for (index, key) in keys.iter().enumerate() {
            if !self.read(key, &mut |value| visit(index, Some(value)))? {
                visit(index, None);
            }
        }
        Ok(())
    }

    /// The value of `key`, copied, or `None` if the key is absent.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut value = None;
        self.read(key, &mut |bytes| value = Some(bytes.to_vec()))?;
        Ok(value)
    }

    /// Removes a record and returns true, or returns false if the key is absent.
    fn remove(&self, key: &[u8]) -> Result<bool, Error>;

    /// Removes the record of each of `keys`, in their order, as by [`remove`](Self::remove): they
    /// are separate operations. Returns how many of the keys were present; a key that occurs twice
    /// is absent the second time. An index may overlap the memory accesses of these operations.
    ///
    /// An error is that of the first key that has one. The records of the keys before it are
    /// removed, and those behind it are not.
    fn remove_many(&self, keys: &[&[u8]]) -> Result<u64, Error> {
        let mut removed = 0;
        for key in keys {
            removed += u64::from(self.remove(key)?);
        }
        Ok(removed)
    }

    /// Removes the record of `key` if its value is `expected`, bytewise, atomically.
    ///
    /// [`Error::KeyNotFound`] if the key is absent, [`Error::ValueMismatch`] if its value differs.
    fn compare_remove(&self, key: &[u8], expected: &[u8]) -> Result<(), Error>;

    /// Removes the record of `key` and returns its value, atomically; `None` if the key is absent.
    fn take(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        for _ in 0..ATTEMPTS {
            let Some(value) = self.get(key)? else { return Ok(None) };
            match self.compare_remove(key, &value) {
                Ok(()) => return Ok(Some(value)),
                Err(Error::KeyNotFound | Error::ValueMismatch) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::contradiction())
    }

    /// Reads the value of `key` and replaces it by a value that `change` computes, atomically.
    ///
    /// `change` gets the value, or `None` if the key is absent, and an empty vector. If it returns
    /// true, the content that it has put into the vector becomes the value. If it returns false,
    /// nothing changes, and the result is `None`. It may be called more than once, with the value
    /// of that time; the last call counts. It may write to other blocks of the pool, but must not
    /// use this index, and must not wait: reclamation waits while it runs.
    fn modify(&self, key: &[u8], change: &mut Change<'_>) -> Result<Option<Upserted>, Error> {
        let mut new = Vec::new();
        for _ in 0..ATTEMPTS {
            let found = self.get(key)?;
            new.clear();
            if !change(found.as_deref(), &mut new) {
                return Ok(None);
            }
            let tried = match &found {
                Some(found) => self.compare_exchange(key, found, &new).map(|()| Upserted::Updated),
                None => self.insert(key, &new).map(|()| Upserted::Inserted),
            };
            match tried {
                Ok(upserted) => return Ok(Some(upserted)),
                Err(Error::KeyExists | Error::KeyNotFound | Error::ValueMismatch) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::contradiction())
    }

    /// Gives `key` the value `value`, whether or not the key is present, and does not say whether
    /// it was: an [`upsert`](Self::upsert) that need not read. Where records may be on a disk, the
    /// record is not read first (a *blind write*).
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.upsert(key, value).map(drop)
    }

    /// As [`modify`](Self::modify), for a value of `value_bytes` bytes, but a record that is on a
    /// disk is not read first: then `change` gets [`Known::Unread`], once. If it returns true, but
    /// the record cannot be written at once, it may be called with what is known then, or not
    /// again. Returns whether the value was written.
    fn write_blind(
        &self,
        key: &[u8],
        value_bytes: usize,
        change: &mut BlindChange<'_>,
    ) -> Result<bool, Error> {
        let _ = value_bytes;
        let written = self
            .modify(key, &mut |found, new| change(found.map_or(Known::Absent, Known::Value), new));
        Ok(written?.is_some())
    }

    /// Whether the key's record is in a store alone: memory has no version of it. Then each call
    /// that returned before, and whose write may not be in the store yet, has not written the key.
    /// Reads nothing of the record's page. False if all records are in memory.
    ///
    /// # Errors
    ///
    /// If it is not known where the record is.
    fn is_only_stored(&self, key: &[u8]) -> Result<bool, Error> {
        let _ = key;
        Ok(false)
    }

    /// Visits the records of `range` in `order`, as [`Cursor`] promises.
    ///
    /// The cursor holds no resource of the index between two calls of [`Cursor::next`].
    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>, Error>;

    /// The number of records: exact while no thread writes, approximate beside concurrent writes.
    /// The cost is linear in the number of leaves.
    fn len(&self) -> Result<u64, Error>;

    /// Whether [`len`](RangeIndex::len) is zero.
    fn is_empty(&self) -> Result<bool, Error> {
        let mut cursor = self.scan(KeyRange::all(), Order::Ascending)?;
        Ok(cursor.next()?.is_none())
    }
}

/// The number of records that a scan of the whole index finds: for [`RangeIndex::len`] of an index
/// that has no cheaper way.
///
/// # Errors
///
/// Those of the scan.
pub fn scanned_len(index: &impl RangeIndex) -> Result<u64, Error> {
    let mut cursor = index.scan(KeyRange::all(), Order::Ascending)?;
    let mut records = 0;
    while cursor.next()?.is_some() {
        records += 1;
    }
    Ok(records)
}

/// A record that a cursor lends: key and value, valid until the cursor moves.
pub type Record<'cursor> = (&'cursor [u8], &'cursor [u8]);

/// A scan in progress. It may be kept for any time.
///
/// A scan that runs beside writers is no snapshot, neither of its range nor of any part of it. It
/// guarantees:
///
/// * Keys strictly ascend, or strictly descend, and lie in the range. So no key is returned twice.
/// * Each record was in the index, with this key and this value, at some instant between the call
///   of [`scan`](RangeIndex::scan) and the return of the call that returns the record. A value is
///   never a mixture of two.
/// * A key that was present all that time is returned, with one of the values that it had
///   meanwhile. For a key that is not returned, that time ends when a record beyond it, or the end
///   of the range, is returned.
/// * A key that was absent all that time is not returned.
///
/// It does not guarantee that two records are of the same instant, not even neighbours. A scan may
/// return the new value of a later write to one key, and the old value of an earlier write to
/// another key. If a value is moved from one key to another, the scan may return it twice or not at
/// all. A consistent copy of a range needs writers that pause.
pub trait Cursor: Send {
    /// Says that the caller will probably take so many records from now on. The index may then copy
    /// as many at once; otherwise it begins with a few. A record may be copied long before it is
    /// returned. The guarantees stay the same.
    fn expect(&mut self, records: usize) {
        let _ = records;
    }

    /// The next record, lent until the next call, or `None` at the end of the range.
    fn next(&mut self) -> Result<Option<Record<'_>>, Error>;
}
