//! The context of an operation, through which it reads and writes.

use std::sync::atomic::Ordering;

use pando_index::{Error, Result};
use pando_pmem::{Domain, Guard, Pool};
use pando_pmwcas::{Descriptor, Pmwcas};

use crate::blocks::NewBlock;

/// The PMwCAS, the guard and the pool of one operation.
#[derive(Clone, Copy, Debug)]
pub struct Context<'op, D: Domain> {
    /// Changes words of the pool.
    pub pmwcas: &'op Pmwcas<D>,
    /// The operation's pin.
    pub guard: &'op Guard<'op, D>,
    /// The guard's pool, kept here because each step of a search needs it.
    pool: &'op Pool<D>,
}

impl<'op, D: Domain> Context<'op, D> {
    /// The context of an operation that is pinned by `guard`.
    #[inline(always)]
    pub fn new(pmwcas: &'op Pmwcas<D>, guard: &'op Guard<'op, D>) -> Self {
        Self { pmwcas, guard, pool: guard.pool() }
    }

    /// The pool.
    #[inline(always)]
    pub fn pool(self) -> &'op Pool<D> {
        self.pool
    }

    /// The durable value of a word that changes by PMwCAS.
    #[inline(always)]
    pub fn read(self, off: u64) -> u64 {
        self.pmwcas.read(self.guard, off)
    }

    /// A word that does not change while it is reachable.
    #[inline(always)]
    pub fn fixed(self, off: u64) -> u64 {
        // Relaxed: the word that led here published its block, and was read with acquire.
        self.pool.word(off).load(Ordering::Relaxed)
    }

    /// Bytes that do not change while they are reachable: of a key, a value or a node. The words
    /// that led to `off` were read through this context.
    #[inline(always)]
    pub fn published(self, off: u64, bytes: u64) -> &'op [u8] {
        // SAFETY: indexes write such bytes before the word that leads to them, and never after;
        // later writes beside them go to other bytes. The guard prevents the reuse of all that was
        // reachable since it was taken.
        unsafe { self.pool.bytes(off, bytes) }
    }

    /// A block with room for `bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if the pool is full.
    #[inline]
    pub fn reserve(self, bytes: u64) -> Result<NewBlock<'op, D>> {
        self.guard.reserve(bytes).map_err(Error::storage)
    }

    /// Runs one PMwCAS with the words that `prepare` adds, unless `prepare` returns false. Returns
    /// whether it succeeded. If not, one of its words had another value.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if it could not be prepared; then nothing has changed.
    #[inline(always)]
    pub fn publish(
        self,
        prepare: impl FnOnce(&mut Descriptor<'op, 'op, D>) -> pando_pmwcas::Result<bool>,
    ) -> Result<bool> {
        let mut operation = self.pmwcas.allocate(self.guard).map_err(Error::storage)?;
        Ok(prepare(&mut operation).map_err(Error::storage)? && operation.execute())
    }
}
