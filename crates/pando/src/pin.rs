//! Values of a pool without a copy, for as long as a program keeps them.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::engine::Held;
use crate::{Error, Map, Pool};

/// Lends values of a pool without a copy. The pool reuses none of their memory while the pin, a
/// clone of it, or a value that it has lent lives ([`Pool::pin`]).
///
/// It belongs to no thread: it may be moved to another thread, and be dropped there.
#[derive(Clone)]
pub struct Pin {
    // Dropped before the pool.
    held: Arc<dyn Held>,
    pool: Pool,
}

/// A value that a [`Pin`] has lent. It derefs to its bytes, which stay as they were when they were
/// read, whatever others write meanwhile.
///
/// It keeps its map and its pool open, and the memory of the pin, also when the [`Pin`] itself was
/// dropped.
#[derive(Clone)]
pub struct PinnedValue {
    bytes: Bytes,
    // Dropped in this order: a map uses its pool.
    map: Map,
    _pin: Pin,
}

#[derive(Clone)]
enum Bytes {
    /// In the pool. No reference: the memory may be unmapped while the value is dropped.
    Lent(NonNull<[u8]>),
    /// A copy: of a value that lies in a word of its leaf, and of any value of a store.
    Copied(Arc<[u8]>),
}

// SAFETY: no thread writes to bytes that are lent, and the pin that keeps them belongs to no
// thread.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl Pool {
    /// Begins to keep the memory of values, so that they can be lent without a copy for longer than
    /// a call ([`Map::read`] lends for the time of a closure).
    ///
    /// While it lives, the pool reuses almost no removed or replaced value of any map, and grows
    /// with each write. So it should live for milliseconds, not for hours. No call on records waits
    /// for it. Transactional maps cannot be dropped meanwhile: that waits for about a second, and
    /// other threads that open or drop maps wait too; then it fails ([`Error::ThreadInside`]).
    ///
    /// A pin takes a place of the table of threads. A process has 1,024 of a pool at most, and 128
    /// of a shared one. In a full pool the table may have no more than 128 places.
    ///
    /// In a forked child, values that were lent before must not be read: the pool is not mapped
    /// there, and the child would end by a signal.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyThreads`]; [`Error::Forked`] in a forked child.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let trees = pool.map("trees")?;
    /// trees.upsert("aspen", "Populus tremuloides")?;
    /// let pin = pool.pin()?;
    /// let value = pin.get(&trees, "aspen")?.expect("it is there");
    /// trees.upsert("aspen", "Populus tremula")?;
    /// assert_eq!(&*value, b"Populus tremuloides");
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn pin(&self) -> Result<Pin, Error> {
        Ok(Pin { held: self.shared().engine.hold()?, pool: self.clone() })
    }
}

impl Pin {
    /// The value of `key` in `map`, without a copy; `None` if the key is absent. The value is
    /// copied if it has no bytes of its own in the pool: if it is a number in a leaf, or a value of
    /// at most eight bytes in a skip list; if a commit that is not decided has replaced it; and in
    /// a [`Store`](crate::Store).
    ///
    /// # Errors
    ///
    /// As [`Map::get`]; [`Error::MapOfOtherPool`].
    pub fn get(&self, map: &Map, key: impl AsRef<[u8]>) -> Result<Option<PinnedValue>, Error> {
        if !Arc::ptr_eq(map.pool(), self.pool.shared()) {
            return Err(Error::MapOfOtherPool { name: map.name().to_owned() });
        }
        let bytes = map.read(key, |value| self.keep(value))?;
        Ok(bytes.map(|bytes| PinnedValue { bytes, map: map.clone(), _pin: self.clone() }))
    }

    /// Bytes that a read has lent, for the time of the pin.
    fn keep(&self, value: &[u8]) -> Bytes {
        if !self.held.covers(value) {
            return Bytes::Copied(value.into());
        }
        Bytes::Lent(NonNull::from(value))
    }
}

impl PinnedValue {
    /// The map that it is of.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Whether it is a copy, and not lent from the memory of the pool.
    pub fn is_copied(&self) -> bool {
        matches!(self.bytes, Bytes::Copied(_))
    }
}

impl Deref for PinnedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            // SAFETY: the bytes lie in the pool, and a read has found them after the hold began.
            // While a read lends them, no thread writes there. The pool does not reuse them while
            // the hold lives (`pmem/src/hold.rs`), nor frees them with their map, which the value
            // keeps open. The reference lives no longer than the value.
            Bytes::Lent(bytes) => unsafe { bytes.as_ref() },
            Bytes::Copied(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for PinnedValue {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pin").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for PinnedValue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(formatter)
    }
}
