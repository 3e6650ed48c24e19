//! Transactional maps of Pando as systems, by the public API: without a log, and with one.
//!
//! | system | log | a write returns |
//! | --- | --- | --- |
//! | `:transactional` | none | when it has taken effect |
//! | `:buffered` | `Acknowledge::Buffered` | the same; another thread writes the log |
//! | `:synced` | `Acknowledge::Synced` | when it survives a power cut |
//! | `:store` | that of a store, `Acknowledge::Buffered` | when it has taken effect |
//! | `:store-synced` | the same, `Acknowledge::Synced` | when it survives a power cut |
//! | `:pipelined` | `Acknowledge::Buffered` | when it has taken effect, and all writes of its thread but the last 32 survive a power cut |
//!
//! The pool lies in the folder for pools, the log in the folder for logs. So does a store, whose
//! pages may take as much memory as the cache of each durable peer.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;

use pando::{Acknowledge, Error, Map, MapOptions, Pool, PoolOptions, Store, Transaction};

use super::entry::{BuildError, BuildOptions};
use super::folder::{Place, allocated_bytes};
use crate::system::{Refusal, Scan, System};

/// The one map of each pool.
const MAP: &str = "bench";
/// The pool's file.
pub const POOL: &str = "bench.pando";
/// The store's directory.
const STORE: &str = "bench.store";
/// The log's directory.
const LOG: &str = "bench.log";
/// Commits of a thread that are not waited for yet, in a pipelined system.
const IN_FLIGHT: usize = 32;

thread_local! {
    /// The LSNs of these commits. Each thread of a slice is new.
    static UNSYNCED: RefCell<VecDeque<u64>> = const { RefCell::new(VecDeque::new()) };
}

/// When a write returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In a pool without a log.
    NoLog,
    /// When it has taken effect.
    Buffered,
    /// When it survives a power cut.
    Synced,
    /// When all writes of its thread but the last 32 survive a power cut.
    Pipelined,
    /// In a store, when it has taken effect.
    Store,
    /// In a store, when it survives a power cut.
    StoreSynced,
}

/// A transactional map with a pool of its own.
pub struct TransactionalMap {
    // Dropped first: the pool is closed before its folders are removed.
    map: Map,
    pool: Pool,
    is_pipelined: bool,
    places: Vec<Place>,
}

impl TransactionalMap {
    /// The map of the index `index`, empty, in new folders that are removed with it. Or that in
    /// `folder`, which is created if it is not there, and stays.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub fn open(
        index: &str,
        mode: Mode,
        options: &BuildOptions,
        folder: Option<&Path>,
    ) -> Result<Self, BuildError> {
        if matches!(mode, Mode::Store | Mode::StoreSynced) {
            return Self::open_store(index, mode, options, folder);
        }
        let mut places = match folder {
            Some(folder) => vec![Place::Kept(folder.to_owned())],
            None => vec![Place::temporary_in(&options.pool_dir)?],
        };
        let path = places[0].path().join(POOL);
        let mut pool_options = PoolOptions::new().max_bytes(options.max_pool_bytes);
        if mode != Mode::NoLog {
            if folder.is_none() {
                places.push(Place::temporary_in(options.log_dir())?);
            }
            let log = places[places.len() - 1].path().join(LOG);
            pool_options = pool_options.log(log);
        }
        if mode == Mode::Synced {
            pool_options = pool_options.acknowledge(Acknowledge::Synced);
        }
        let pool = Pool::open_or_create(path, &pool_options)?;
        let map = pool.map_with(MAP, &MapOptions::new().index(index).transactional(true))?;
        Ok(Self { map, pool, is_pipelined: mode == Mode::Pipelined, places })
    }

    fn open_store(
        index: &str,
        mode: Mode,
        options: &BuildOptions,
        folder: Option<&Path>,
    ) -> Result<Self, BuildError> {
        let place = match folder {
            Some(folder) => Place::Kept(folder.to_owned()),
            None => Place::temporary_in(options.log_dir())?,
        };
        let acknowledge = match mode {
            Mode::StoreSynced => Acknowledge::Synced,
            _ => Acknowledge::Buffered,
        };
        let pool_options = PoolOptions::new().acknowledge(acknowledge);
        let path = place.path().join(STORE);
        let pool = Store::open_with(path, options.cache_bytes, &pool_options)?.into_pool();
        let map = pool.map_with(MAP, &MapOptions::new().index(index))?;
        Ok(Self { map, pool, is_pipelined: false, places: vec![place] })
    }

    /// Commits the writes of `body` without a wait, and then waits for an earlier commit of this
    /// thread, if too many are in flight.
    fn pipelined<R>(
        &self,
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<R, Error>,
    ) -> Result<R, Refusal> {
        let (answer, lsn) = loop {
            let mut transaction = self.pool.begin()?;
            let answer = body(&mut transaction)?;
            match transaction.commit() {
                Ok(lsn) => break (answer, lsn),
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let due = UNSYNCED.with_borrow_mut(|lsns| {
            lsns.push_back(lsn);
            (lsns.len() > IN_FLIGHT).then(|| lsns.pop_front()).flatten()
        });
        if let Some(lsn) = due {
            self.pool.sync_to(lsn)?;
        }
        Ok(answer)
    }
}

impl System for TransactionalMap {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        if self.is_pipelined {
            return self.pipelined(|transaction| {
                let is_new = transaction.get(&self.map, key)?.is_none();
                if is_new {
                    transaction.put(&self.map, key, value)?;
                }
                Ok(is_new)
            });
        }
        match self.map.insert(key, value) {
            Ok(()) => Ok(true),
            Err(Error::KeyExists) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        if self.is_pipelined {
            return self.pipelined(|transaction| transaction.put(&self.map, key, value));
        }
        self.map.put(key, value)?;
        Ok(())
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        Ok(self.map.read(key, visit)?.is_some())
    }

    fn get_many(&self, keys: &[&[u8]], mut visit: impl FnMut(usize, &[u8])) -> Result<(), Refusal> {
        self.map.read_many(keys, |index, value| {
            if let Some(value) = value {
                visit(index, value);
            }
        })?;
        Ok(())
    }

    fn upsert_many(&self, records: &[(&[u8], &[u8])]) -> Result<(), Refusal> {
        if self.is_pipelined {
            return records.iter().try_for_each(|(key, value)| self.upsert(key, value));
        }
        self.map.upsert_many(records)?;
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        if self.is_pipelined {
            return self.pipelined(|transaction| {
                let is_there = transaction.get(&self.map, key)?.is_some();
                if is_there {
                    transaction.remove(&self.map, key)?;
                }
                Ok(is_there)
            });
        }
        Ok(self.map.remove(key)?)
    }

    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let mut records = self.map.range(scan.range()).expecting(scan.limit as usize);
        for _ in 0..scan.limit {
            let Some((key, value)) = records.next_record_in(scan.order)? else { break };
            visit(key, value);
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.map.len()?)
    }

    fn footprint_bytes(&self) -> Option<u64> {
        Some(self.pool.used_bytes())
    }

    /// Those of the pool and of its log.
    fn file_bytes(&self) -> Option<u64> {
        self.places.iter().map(|place| allocated_bytes(place.path()).ok()).sum()
    }
}
