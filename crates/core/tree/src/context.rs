//! What an operation reads and writes with.

use std::sync::atomic::Ordering;

use pando_index::{Error, Result};
use pando_pmem::{Domain, Guard, Pool};
use pando_pmwcas::{Descriptor, Pmwcas};

use crate::blocks::NewBlock;

/// The PMwCAS, the guard and the pool of one operation.
#[derive(Clone, Copy, Debug)]
pub struct Context<'op, D: Domain> {
    /// By which words of the pool change.
    pub pmwcas: &'op Pmwcas<D>,
    /// The operation's.
    pub guard: &'op Guard<'op, D>,
    /// The guard's pool: kept here, since each step of a search needs it.
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

    /// The value of a word that changes by PMwCAS, durable.
    #[inline(always)]
    pub fn read(self, off: u64) -> u64 {
        self.pmwcas.read(self.guard, off)
    }

    /// A word that never changes while it can be reached.
    #[inline(always)]
    pub fn fixed(self, off: u64) -> u64 {
        // Relaxed: its block was published by the word that led here, which was read with acquire.
        self.pool.word(off).load(Ordering::Relaxed)
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

    /// Makes one PMwCAS of what `prepare` adds to it, unless that returns false. Whether it took
    /// place. If not, one of its words had another value.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if it could not be prepared; nothing has changed then.
    #[inline(always)]
    pub fn publish(
        self,
        prepare: impl FnOnce(&mut Descriptor<'op, 'op, D>) -> pando_pmwcas::Result<bool>,
    ) -> Result<bool> {
        let mut operation = self.pmwcas.allocate(self.guard).map_err(Error::storage)?;
        Ok(prepare(&mut operation).map_err(Error::storage)? && operation.execute())
    }
}
