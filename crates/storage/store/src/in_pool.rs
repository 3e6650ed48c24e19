//! A store in one pool, for the crash lab. The pool has the tail of the log, which is in the file
//! `control` elsewhere, and the cache.
//!
//! The pool of the cache ends with the process. So each opening makes a new tree in the pool, and
//! lets the earlier ones lie: the pool must have room for all openings.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_device::Directory;
use pando_pmem::layout::LOG_OFF;
use pando_pmem::{Domain, Pool};
use pando_tc::{TransactionComponent, TransactionalMap};

use crate::checkpoint;
use crate::data_component::{DataComponent, StoreOptions};
use crate::error::Result;
use crate::maps::StoreMaps;
use crate::opening::{Opened, Opening};

/// A store whose cache and tail are in one pool. No thread writes the log or makes checkpoints but
/// those that call.
#[derive(Debug)]
pub struct InPool<D: Domain> {
    data: DataComponent<D>,
    component: Arc<TransactionComponent<D, StoreMaps<D>>>,
}

impl<D: Domain> InPool<D> {
    /// Opens the store, or creates it. A pool without a tail gets one: then the log is recovered
    /// from its files. `maps` are the numbers of its maps: it has no catalog.
    ///
    /// # Errors
    ///
    /// As [`Store::open_in`](crate::Store::open_in).
    pub fn open(
        pool: Arc<Pool<D>>,
        pages: Arc<dyn Directory>,
        log: &Arc<dyn Directory>,
        maps: &[u64],
        options: &StoreOptions,
    ) -> Result<Self> {
        let name = format!("records {}", pool.generation());
        let data = DataComponent::open_in((pool.clone(), &name), pages, options)?;
        let mut opening = Opening::new(data, log, options)?;
        let has_tail = pool.word(LOG_OFF).load(Ordering::Acquire) != 0;
        let log = match has_tail {
            true => opening.with_tail(pool)?,
            false => {
                let id = opening.named()?.unwrap_or(1);
                let log = opening.without_tail(pool, id)?;
                log.forget_former_pool()?;
                log
            }
        };
        let Opened { data, component, .. } = opening.finish(log)?;
        maps.iter().for_each(|&number| component.maps().add(number));
        Ok(Self { data, component })
    }

    /// The transactions over its maps.
    pub fn component(&self) -> &TransactionComponent<D, StoreMaps<D>> {
        &self.component
    }

    /// The map with this number, whose operations on one key are commits of their own.
    ///
    /// # Errors
    ///
    /// The pool of the store has no such map.
    pub fn map(&self, number: u64) -> Result<TransactionalMap<D, StoreMaps<D>>> {
        let index = self.component.maps().index(number);
        Ok(TransactionalMap::new(self.component.clone(), number, index)?)
    }

    /// As [`Store::checkpoint`](crate::Store::checkpoint). One thread at a time may call it.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn checkpoint(&self) -> Result<()> {
        checkpoint::make(&self.component, self.data.cache()).map(drop)
    }

    /// As [`Store::empty_cache`](crate::Store::empty_cache).
    ///
    /// # Errors
    ///
    /// The same.
    pub fn empty_cache(&self) -> Result<()> {
        self.data.empty_cache()
    }

    /// Writes and evicts one page that has changed: number `nth` of them, counted over again. A
    /// page with a version above the durable LSN stays, as in a full cache.
    ///
    /// # Errors
    ///
    /// What the page store answers.
    pub fn evict_changed(&self, nth: usize) -> Result<()> {
        self.data.cache().evict_changed(nth)
    }

    /// As [`Store::check`](crate::Store::check).
    ///
    /// # Errors
    ///
    /// The same.
    pub fn check(&self) -> Result<Vec<String>> {
        self.data.check()
    }
}
