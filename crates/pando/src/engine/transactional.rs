//! The transactional maps of a pool, and the transaction component over them.

use std::marker::PhantomData;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::{ArcSwapOption, Guard};
use pando_index::{Cursor, KeyRange, Order, RangeIndex};
use pando_log::{Log, LogOptions};
use pando_pmem::layout::{CATALOG_SLOTS, LOG_OFF, LOGGED_VERSION_OFF};
use pando_pmem::{Domain, Pool, mutant};
use pando_tc::{
    MapList, Maps, Snapshot, SnapshotOptions, Transaction, TransactionComponent, TransactionRange,
    TransactionalMap,
};
use pando_tree::maps::Catalog;

use super::keeper::Keeper;
use super::log_directory::LogDirectory;
use super::map_list::{catalog_version, map_list};
use super::{OpenedMap, Stamped};
use crate::Error;
use crate::report::{LogProgress, LogStat, TransactionStat};

/// A transaction of a pool whose domain is not known.
pub(crate) trait AnyTransaction: Send {
    fn get(&mut self, map: u64, key: &[u8]) -> pando_tc::Result<Option<Vec<u8>>>;

    fn put(&mut self, map: u64, key: &[u8], value: &[u8]) -> pando_tc::Result<()>;

    fn remove(&mut self, map: u64, key: &[u8]) -> pando_tc::Result<()>;

    fn range<'tx>(&'tx mut self, map: u64, range: KeyRange) -> Box<dyn AnyRange + 'tx>;

    fn commit(self: Box<Self>) -> pando_tc::Result<u64>;
}

impl<D: Domain, M: Maps> AnyTransaction for Transaction<'_, D, M> {
    fn get(&mut self, map: u64, key: &[u8]) -> pando_tc::Result<Option<Vec<u8>>> {
        self.get(map, key)
    }

    fn put(&mut self, map: u64, key: &[u8], value: &[u8]) -> pando_tc::Result<()> {
        self.put(map, key, value)
    }

    fn remove(&mut self, map: u64, key: &[u8]) -> pando_tc::Result<()> {
        self.remove(map, key)
    }

    fn range<'tx>(&'tx mut self, map: u64, range: KeyRange) -> Box<dyn AnyRange + 'tx> {
        Box::new(self.range(map, range))
    }

    fn commit(self: Box<Self>) -> pando_tc::Result<u64> {
        (*self).commit()
    }
}

/// A scan of such a transaction.
pub(crate) trait AnyRange: Send {
    fn expect(&mut self, records: usize);

    fn next(&mut self, order: Order) -> pando_tc::Result<Option<(Vec<u8>, Vec<u8>)>>;
}

impl<D: Domain, M: Maps> AnyRange for TransactionRange<'_, '_, D, M> {
    fn expect(&mut self, records: usize) {
        self.expect(records);
    }

    fn next(&mut self, order: Order) -> pando_tc::Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.next(order)
    }
}

/// A snapshot of a pool whose domain is not known.
pub(crate) trait AnySnapshot: Send + Sync {
    fn lsn(&self) -> u64;

    fn get(&self, map: u64, key: &[u8]) -> pando_tc::Result<Option<Vec<u8>>>;

    fn scan<'scan>(
        &'scan self,
        map: &'scan Stamped,
        range: KeyRange,
        order: Order,
    ) -> pando_tc::Result<Box<dyn Cursor + 'scan>>;
}

impl<D: Domain, M: Maps> AnySnapshot for Snapshot<'_, D, M> {
    fn lsn(&self) -> u64 {
        self.lsn()
    }

    fn get(&self, map: u64, key: &[u8]) -> pando_tc::Result<Option<Vec<u8>>> {
        self.get(map, key)
    }

    fn scan<'scan>(
        &'scan self,
        map: &'scan Stamped,
        range: KeyRange,
        order: Order,
    ) -> pando_tc::Result<Box<dyn Cursor + 'scan>> {
        self.scan(map.number, &*map.index, range, order)
    }
}

/// The indexes of transactional maps by their numbers. A thread that looks for one waits for no
/// other. Indexes are added and taken out by one thread at a time.
///
/// A table of as many places as a pool may have maps, with open addressing: the place of a map is
/// the first that was empty from its number on.
pub(super) struct Numbered {
    places: Box<[ArcSwapOption<Entry>]>,
    /// All maps of the catalog, if a commit waits to be undone: where a map is not listed, it need
    /// not be undone.
    listed: ArcSwapOption<MapList>,
}

struct Entry {
    number: u64,
    index: Arc<dyn RangeIndex>,
}

/// An index, lent.
pub(super) struct Lent<'maps> {
    entry: Guard<Option<Arc<Entry>>>,
    lifetime: PhantomData<&'maps ()>,
}

impl<'maps> Deref for Lent<'maps> {
    type Target = dyn RangeIndex + 'maps;

    fn deref(&self) -> &Self::Target {
        match &*self.entry {
            Some(entry) => &*entry.index,
            None => unreachable!("a place without an entry is not lent"),
        }
    }
}

impl Maps for Numbered {
    type Lent<'maps> = Lent<'maps>;

    fn map(&self, number: u64) -> Option<Lent<'_>> {
        self.places_from(number).find_map(|place| {
            let entry = place.load();
            let is_found = entry.as_ref().is_some_and(|entry| entry.number == number);
            is_found.then_some(Lent { entry, lifetime: PhantomData })
        })
    }

    fn is_gone(&self, number: u64) -> bool {
        let listed = self.listed.load();
        let is_gone = |list: &Arc<MapList>| {
            // A number is the version of the catalog that has created the map.
            number <= list.version && list.maps.iter().all(|map| map.number != number)
        };
        listed.as_ref().is_some_and(is_gone)
    }
}

impl FromIterator<(u64, Arc<dyn RangeIndex>)> for Numbered {
    fn from_iter<I: IntoIterator<Item = (u64, Arc<dyn RangeIndex>)>>(maps: I) -> Self {
        let numbered = Self::new();
        maps.into_iter().for_each(|(number, index)| numbered.add(number, index));
        numbered
    }
}

impl Numbered {
    fn new() -> Self {
        let places = (0..CATALOG_SLOTS).map(|_| ArcSwapOption::empty()).collect();
        Self { places, listed: ArcSwapOption::empty() }
    }

    /// All places, from the one where the map would lie in an empty table.
    fn places_from(&self, number: u64) -> impl Iterator<Item = &ArcSwapOption<Entry>> {
        let first = number as usize % self.places.len();
        self.places[first..].iter().chain(&self.places[..first])
    }

    fn find(&self, number: u64) -> Option<Arc<dyn RangeIndex>> {
        let lent = self.map(number)?;
        lent.entry.as_ref().map(|entry| entry.index.clone())
    }

    fn add(&self, number: u64, index: Arc<dyn RangeIndex>) {
        // A pool has no more maps than places.
        let empty = self.places_from(number).find(|place| place.load().is_none());
        if let Some(place) = empty {
            place.store(Some(Arc::new(Entry { number, index })));
        }
    }

    fn take_out(&self, number: u64) {
        let is_it = |place: &&ArcSwapOption<Entry>| {
            place.load().as_ref().is_some_and(|entry| entry.number == number)
        };
        if let Some(place) = self.places_from(number).find(is_it) {
            place.store(None);
        }
    }
}

/// The transaction component of a pool: from its opening on if it has a log with files, else from
/// its first transactional map on. One thread at a time adds maps and takes them out.
pub(super) struct Transactions<D: Domain> {
    // Dropped first: its threads use the others.
    keeper: Mutex<Option<Keeper<D, Numbered>>>,
    component: OnceLock<Arc<TransactionComponent<D, Numbered>>>,
    /// Of the log's files, if it has any.
    directory: Option<LogDirectory>,
}

impl<D: Domain> Transactions<D> {
    /// Of a pool whose component is not needed yet.
    pub fn none() -> Self {
        Self::with(None)
    }

    fn with(directory: Option<LogDirectory>) -> Self {
        Self { keeper: Mutex::new(None), component: OnceLock::new(), directory }
    }

    /// Opens the component of `pool`, if it has one, over the maps that `maps` returns. Undoes the
    /// commits that a crash left undecided. If the log has files, in `directory`, the tail is
    /// written to them.
    pub fn open(
        pool: &Arc<Pool<D>>,
        directory: Option<LogDirectory>,
        maps: impl FnOnce() -> Result<Numbered, Error>,
    ) -> Result<Self, Error> {
        let transactions = Self::with(directory);
        if has_log(pool) || transactions.directory.is_some() {
            transactions.begin_with(pool, maps()?)?;
        }
        Ok(transactions)
    }

    /// The component of a rebuilt pool, over its log.
    pub fn resumed(
        log: Log<D>,
        directory: LogDirectory,
        maps: impl IntoIterator<Item = (u64, Arc<dyn RangeIndex>)>,
    ) -> Result<Self, Error> {
        let transactions = Self::with(Some(directory));
        let component = TransactionComponent::open(log, maps.into_iter().collect::<Numbered>())?;
        let component = Arc::new(component);
        transactions.component.get_or_init(|| component);
        Ok(transactions)
    }

    /// Writes down in the directory of the log, if there is one, where the pool is.
    pub fn remember_pool(&self, pool: &Path) {
        if let Some(directory) = &self.directory {
            directory.remember_pool(pool);
        }
    }

    fn begin_with(
        &self,
        pool: &Arc<Pool<D>>,
        maps: Numbered,
    ) -> pando_tc::Result<&Arc<TransactionComponent<D, Numbered>>> {
        let options = LogOptions::default();
        let log = match self.directory.as_ref().zip(pool.log_name()) {
            None => Log::without_files(pool.clone(), LOG_OFF, options)?,
            Some((directory, name)) if has_log(pool) => {
                let files = directory.files();
                // If a reset was cut short at its deciding step, or after it. No commit may be
                // acknowledged by a log that the superblock does not name durably.
                let is_in_place = Log::has_id(pool, LOG_OFF, name.id)?;
                if !is_in_place && !mutant!("log-adopted-before-named") {
                    pool.secure_log_name().map_err(pando_log::Error::from)?;
                }
                Log::replace(pool, LOG_OFF, files.as_ref(), name.id)?;
                Log::open(pool.clone(), LOG_OFF, files, options)?
            }
            // A new pool.
            Some((directory, name)) => {
                Log::create(pool.clone(), LOG_OFF, directory.files(), (name.id, 0), options)?
            }
        };
        let component = TransactionComponent::open(log, maps)?;
        Ok(self.component.get_or_init(|| Arc::new(component)))
    }

    /// The component, if it has a log with files.
    fn logged(&self) -> Option<&Arc<TransactionComponent<D, Numbered>>> {
        self.component.get().filter(|component| component.log().has_files())
    }

    /// Starts the threads that write the log and its images, if the log has files.
    pub fn keep(&self, catalog: &Arc<Catalog<D>>) -> Result<(), Error> {
        *self.keeper() = self.new_keeper(catalog)?;
        Ok(())
    }

    fn new_keeper(&self, catalog: &Arc<Catalog<D>>) -> Result<Option<Keeper<D, Numbered>>, Error> {
        let Some(component) = self.logged() else { return Ok(None) };
        let catalog = catalog.clone();
        Ok(Some(Keeper::begin(component.clone(), Box::new(move || map_list(&catalog)))?))
    }

    fn keeper(&self) -> MutexGuard<'_, Option<Keeper<D, Numbered>>> {
        // Each change is whole.
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `work` while these threads do not run: they allocate and free blocks of the pool.
    pub fn without_keeper<R>(
        &self,
        catalog: &Arc<Catalog<D>>,
        work: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut keeper = self.keeper();
        drop(keeper.take());
        let result = work();
        *keeper = self.new_keeper(catalog)?;
        result
    }

    /// Appends the list of the maps to a log with files, if the catalog has changed since the last
    /// list. One thread at a time calls it, after each change and before a write to a new map.
    pub fn log_maps(&self, catalog: &Catalog<D>) -> Result<(), Error> {
        let Some(component) = self.logged() else { return Ok(()) };
        let logged = catalog.pool().word(LOGGED_VERSION_OFF);
        // Relaxed: changed only by this function.
        if logged.load(Ordering::Relaxed) != catalog_version(catalog)? {
            let list = map_list(catalog)?;
            component.log_maps(&list)?;
            // After a crash before this store, the next opening logs the list again.
            logged.store(list.version, Ordering::Release);
            logged.flush();
            D::fence();
        }
        Ok(())
    }

    /// Logs the list of the maps, if it has no map of this number yet. A map that is not
    /// transactional, with the number zero, need not be in the list.
    pub fn log_map(&self, catalog: &Catalog<D>, number: u64) -> Result<(), Error> {
        // A map's number is the version of the catalog that has created it. Relaxed: as there.
        match number > catalog.pool().word(LOGGED_VERSION_OFF).load(Ordering::Relaxed) {
            true => self.log_maps(catalog),
            false => Ok(()),
        }
    }

    /// Logs the list of the maps, which has changed: what has changed stays if that fails.
    pub fn log_changed_maps(&self, catalog: &Catalog<D>) -> Result<(), Error> {
        let cause = |error: Error| Error::AppliedNotDurable { cause: error.to_string() };
        self.log_maps(catalog).map_err(cause)
    }

    /// Refuses a change of the catalog, if the log has stopped.
    pub fn check_log(&self) -> Result<(), Error> {
        match self.logged() {
            Some(component) if component.log().has_stopped() => {
                Err(Error::LogStopped { path: component.log().path().into() })
            }
            _ => Ok(()),
        }
    }

    /// Waits until all commits up to `lsn` survive a power cut, or all so far. Returns that LSN.
    /// The caller holds no guard.
    pub fn sync(&self, lsn: Option<u64>) -> Result<u64, Error> {
        let component = self.logged().ok_or(Error::NoLog)?;
        // The caller's commit has taken place, even if this fails.
        let newest = component.newest_lsn().map_err(Error::of_sync)?;
        let lsn = lsn.unwrap_or(newest).min(newest);
        component.sync(lsn).map_err(Error::of_sync)?;
        Ok(lsn)
    }

    /// How far a log with files is durable.
    pub fn log_progress(&self) -> Result<Option<LogProgress>, Error> {
        let Some(component) = self.logged() else { return Ok(None) };
        Ok(Some(LogProgress {
            newest_lsn: component.newest_lsn()?,
            durable_lsn: component.log().durable_lsn(),
            has_stopped: component.log().has_stopped(),
            tail_bytes: component.log().options().tail_bytes,
        }))
    }

    /// Writes an image before the pool has its name, and the threads run.
    pub fn write_first_image(&self, catalog: &Catalog<D>) -> Result<(), Error> {
        let component = self.logged().ok_or(Error::NoLog)?;
        component.write_image(|| map_list(catalog), &AtomicBool::new(false)).map(drop)
    }

    /// Removes the lost pool from the log's manifest: the rebuilt pool has its name now.
    pub fn forget_former_pool(&self) -> Result<(), Error> {
        let forgotten = self.logged().map_or(Ok(()), |logged| logged.log().forget_former_pool());
        Ok(forgotten.map_err(pando_tc::Error::from)?)
    }

    /// Writes an image.
    pub fn write_image(&self) -> Result<(), Error> {
        self.keeper().as_ref().ok_or(Error::NoLog)?.write_image()
    }

    /// The figures of a log with files.
    pub fn log_stat(&self) -> Result<Option<LogStat>, Error> {
        let Some(component) = self.logged() else { return Ok(None) };
        let image = component.newest_image()?.unwrap_or_default();
        // It is locked while an image is written that was asked for.
        let keeper = self.keeper.try_lock().ok();
        let image_error = keeper.and_then(|keeper| keeper.as_ref()?.image_error());
        Ok(Some(LogStat {
            path: component.log().path().into(),
            newest_lsn: component.newest_lsn()?,
            durable_lsn: component.log().durable_lsn(),
            image_lsn: image.from_lsn,
            image_bytes: image.bytes,
            has_stopped: component.log().has_stopped(),
            image_error,
        }))
    }

    /// The map of this number, whose records are in `index`; that is called if it is not open.
    pub fn map(
        &self,
        pool: &Arc<Pool<D>>,
        number: u64,
        open: impl FnOnce() -> Result<Arc<dyn RangeIndex>, Error>,
    ) -> Result<OpenedMap, Error> {
        let component = match self.component.get() {
            Some(component) => component,
            None => self.begin_with(pool, Numbered::new())?,
        };
        let index = match component.maps().find(number) {
            Some(index) => index,
            None => {
                let index = open()?;
                component.maps().add(number, index.clone());
                index
            }
        };
        let map = TransactionalMap::new(component.clone(), number, index.clone())?;
        Ok(OpenedMap {
            index: Arc::new(map),
            stamped: Some(Stamped { number, index }),
            in_use: None,
        })
    }

    /// Begins a transaction, over a snapshot if there are options of one; `None` if the pool has no
    /// transactional map.
    pub fn begin(
        &self,
        snapshot: Option<SnapshotOptions>,
    ) -> pando_tc::Result<Option<Box<dyn AnyTransaction + '_>>> {
        let Some(component) = self.component.get() else { return Ok(None) };
        let begun = match snapshot {
            None => component.begin(),
            Some(options) => component.begin_over_snapshot(options)?,
        };
        Ok(Some(Box::new(begun)))
    }

    /// Takes a snapshot; `None` if the pool has no transactional map.
    pub fn snapshot(
        &self,
        options: SnapshotOptions,
    ) -> pando_tc::Result<Option<Box<dyn AnySnapshot + '_>>> {
        let Some(component) = self.component.get() else { return Ok(None) };
        Ok(Some(Box::new(component.snapshot(options)?)))
    }

    /// The figures of transactions; `None` if the pool has no transactional map.
    pub fn stat(&self) -> pando_tc::Result<Option<TransactionStat>> {
        self.component.get().map(|component| transaction_stat(component)).transpose()
    }

    /// Takes each commit to its end that has begun before the call.
    pub fn settle(&self) -> pando_tc::Result<()> {
        self.component.get().map_or(Ok(()), |component| component.settle())
    }

    /// Prepares the drop of a map of which no handle is held. A thread may still be inside a call
    /// that helps a commit at one of its keys, or removes a tombstone; whether all such threads
    /// have left.
    pub fn give_up(&self, number: u64) -> pando_tc::Result<bool> {
        let Some(component) = self.component.get() else { return Ok(true) };
        let maps = component.maps();
        // It was not used since the pool was opened; perhaps it cannot be opened.
        let Some(index) = maps.find(number) else { return Ok(true) };
        component.settle()?;
        // From here on no record of the tail names the map. A thread that has found one before is
        // inside a call.
        if !component.have_left()? {
            return Ok(false);
        }
        // From here on no thread finds the map. One that has found it for a tombstone is inside a
        // call.
        maps.take_out(number);
        let have_left = component.have_left();
        if !matches!(have_left, Ok(true)) {
            maps.add(number, index);
        }
        have_left
    }

    /// After the opening, and after a drop: if a commit waits to be undone, it waits no longer for
    /// maps that are not in the catalog any more.
    pub fn forget_dropped(&self, catalog: &Catalog<D>) {
        let Some(component) = self.component.get().filter(|component| component.is_undo_due())
        else {
            return;
        };
        // If a header is damaged, that map may have any number.
        if let Ok(list) = map_list(catalog) {
            component.maps().listed.store(Some(Arc::new(list)));
        }
    }

    /// Ends the threads, and takes each commit to its end. If the log has files, the tail is
    /// written to them.
    ///
    /// # Errors
    ///
    /// [`Error::AppliedNotDurable`]: the log is not written. The pool has its tail, so the next
    /// opening writes it.
    pub fn end(self) -> Result<(), Error> {
        self.settle_at_end()
    }

    fn settle_at_end(&self) -> Result<(), Error> {
        drop(self.keeper().take());
        match (self.settle(), self.logged()) {
            (Err(error), Some(_)) => Err(Error::of_sync(error)),
            // The next opening settles it.
            _ => Ok(()),
        }
    }

    /// The blocks that the component uses, while no other thread commits; `None` if that is not
    /// known, because the pool is open for salvage.
    pub fn blocks(&self, pool: &Pool<D>) -> pando_pmem::Result<Option<Vec<u64>>> {
        let Some(component) = self.component.get() else {
            return Ok((!has_log(pool)).then(Vec::new));
        };
        Ok(Some(component.log().blocks(&pool.pin()?)))
    }
}

impl<D: Domain> Drop for Transactions<D> {
    fn drop(&mut self) {
        // As a `close` whose error nobody would see.
        let _ = self.settle_at_end();
    }
}

/// The figures of the transactions of a component.
pub(super) fn transaction_stat<D: Domain, M: Maps>(
    component: &TransactionComponent<D, M>,
) -> pando_tc::Result<TransactionStat> {
    let snapshots = component.snapshot_stat();
    Ok(TransactionStat {
        undecided: component.undecided()?,
        snapshots: snapshots.count,
        kept_bytes: snapshots.kept_bytes,
        oldest_holder: snapshots.oldest_holder,
        oldest_age_ns: snapshots.oldest_age.as_nanos() as u64,
    })
}

/// Whether the pool has a log, with or without files.
fn has_log<D: Domain>(pool: &Pool<D>) -> bool {
    pool.word(LOG_OFF).load(Ordering::Acquire) != 0
}

#[cfg(test)]
mod tests {
    use pando_index::conformance::Reference;

    use super::*;

    #[test]
    fn maps_of_one_place_are_told_apart() {
        let (maps, index) = (Numbered::new(), Arc::new(Reference::default()));
        let numbers = [3, 3 + 1024, 3 + 2048, 1023, 2047];
        numbers.iter().for_each(|&number| maps.add(number, index.clone()));
        let found = |number| maps.map(number).is_some() && maps.find(number).is_some();
        assert!(numbers.iter().all(|&number| found(number)));
        assert!(!found(4) && maps.map(3 + 4096).is_none());
        maps.take_out(3);
        assert!(!found(3) && found(3 + 2048));
        maps.add(3 + 4096, index.clone());
        assert!(found(3 + 4096) && found(3 + 1024));
    }
}
