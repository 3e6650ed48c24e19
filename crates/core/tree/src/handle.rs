//! The handle of an index, with which each of its operations begins.

use std::sync::Arc;

use pando_index::{Error, Limits, Result};
use pando_pmem::{Domain, Guard, Pool};

use crate::checked::{Steps, damaged, undamaged};
use crate::context::Context;
use crate::maps::Catalog;
use crate::room::{GivenBack, Tries, nothing_to_give, with_room};

/// The number of records in a range, and the key at which the next range begins.
pub type Counted = (u64, Option<Vec<u8>>);

/// The place and the options of an index. Any number of handles may be open.
#[derive(Clone, Debug)]
pub struct Handle<D: Domain, O> {
    /// The maps of the index's pool.
    pub catalog: Arc<Catalog<D>>,
    /// The offset of the entry word, from which all blocks of the index are reachable.
    pub root_off: u64,
    /// The options with which the index was created.
    pub options: O,
}

/// Lets an index be used as its field `handle`, which [`Tree`](crate::maps::Tree) requires.
#[macro_export]
macro_rules! deref_to_handle {
    ($index:ident<D $(, $style:ident)?>, $options:ty) => {
        impl<D: ::pando_pmem::Domain $(, $style)?> ::std::ops::Deref for $index<D $(, $style)?> {
            type Target = $crate::handle::Handle<D, $options>;

            #[inline(always)]
            fn deref(&self) -> &Self::Target {
                &self.handle
            }
        }
    };
}

impl<D: Domain, O> Handle<D, O> {
    /// The index's pool.
    #[inline(always)]
    pub fn pool(&self) -> &Pool<D> {
        self.catalog.pool()
    }

    /// Pins the calling thread for an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if no participant slot is free.
    #[inline(always)]
    pub fn pin(&self) -> Result<Guard<'_, D>> {
        self.pool().pin().map_err(Error::storage)
    }

    /// The context of an operation that is pinned by `guard`.
    #[inline(always)]
    pub fn context<'op>(&'op self, guard: &'op Guard<'_, D>) -> Context<'op, D> {
        Context::new(&self.catalog, guard)
    }

    /// Pins the thread and calls `attempt` until it returns a result. `None` means that another
    /// thread's change came first; then the thread unpins and pins again. If the pool has no room,
    /// it continues as [`with_room`] says; `give_back` is the index's.
    ///
    /// # Errors
    ///
    /// Those of `attempt`. [`Error::Damaged`] instead if damage was noted, or if no attempt returns
    /// a result.
    #[inline(always)]
    pub fn until_done<R>(
        &self,
        tries: Tries,
        give_back: impl FnMut() -> GivenBack,
        mut attempt: impl FnMut(&Guard<'_, D>) -> Result<Option<R>>,
    ) -> Result<R> {
        let mut steps = Steps::of_attempts();
        with_room(&self.catalog, tries, give_back, || {
            loop {
                let guard = self.pin()?;
                match attempt(&guard) {
                    Ok(Some(done)) => return Ok(done),
                    Ok(None) => steps.take(&guard, self.root_off)?,
                    // Damage may have led to the error.
                    Err(error) => return undamaged(&guard).and(Err(error)),
                }
            }
        })
    }

    /// Passes groups of at most `GROUP` keys to `read`, with the number of the first key. Each
    /// group has its own guard, so reclamation does not wait for all keys.
    ///
    /// # Errors
    ///
    /// Those of `read`. Also if a key is longer than `limits` allow, or if no participant slot is
    /// free.
    pub fn in_groups<'keys, const GROUP: usize>(
        &self,
        keys: &'keys [&'keys [u8]],
        limits: Limits,
        mut read: impl FnMut(&Guard<'_, D>, usize, &'keys [&'keys [u8]]) -> Result<()>,
    ) -> Result<()> {
        keys.iter().try_for_each(|key| limits.check_key(key))?;
        let mut groups = keys.chunks(GROUP).enumerate();
        groups.try_for_each(|(group, keys)| read(&self.pin()?, group * GROUP, keys))
    }

    /// The number of records, counted range by range. `count` is called with the lowest key of a
    /// range; it returns the number of records in that range and where the next one begins, or
    /// `None` if the range has changed meanwhile. Each range has its own guard, so reclamation does
    /// not wait for the whole count.
    ///
    /// # Errors
    ///
    /// Those of `count`. [`Error::Damaged`] if damage was noted, or if the ranges do not ascend.
    pub fn count_records(
        &self,
        mut count: impl FnMut(&Guard<'_, D>, &[u8]) -> Result<Option<Counted>>,
    ) -> Result<u64> {
        let (mut records, mut from) = (0, Vec::new());
        loop {
            let (found, next) = self.until_done(Tries::Few, nothing_to_give, |guard| {
                let counted = count(guard, &from)?;
                undamaged(guard).map(|()| counted)
            })?;
            records += found;
            match next {
                Some(next) if next <= from => {
                    return Err(damaged(self.root_off, "a range ends before it begins"));
                }
                Some(next) => from = next,
                None => return Ok(records),
            }
        }
    }
}
