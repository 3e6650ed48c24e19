//! A store, as its users see it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pando_device::{Directory, DirectoryLock, Disk, Operation};
use pando_index::{KeyRange, Order, RangeIndex};
use pando_lss::Space;
use pando_pmem::{Process, mutant};
use pando_tc::{Maps, TransactionComponent, TransactionalMap};

use crate::catalog::{self, Listed};
use crate::checkpoint;
use crate::data_component::{DataComponent, DataStat, StoreOptions, check};
use crate::error::{Error, Result};
use crate::maps::StoreMaps;
use crate::opening::{self, Component, Control, Recovery};
use crate::readable::lend_readable;

/// The least memory of a store, in bytes: with less, a few commits of many keys fill it.
pub const MIN_MEMORY_BYTES: u64 = 16 << 20;
/// Records of a dropped map that are removed under one cursor.
const CLEARED_AT_ONCE: usize = 256;
/// How often a thread looks whether a checkpoint is due.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The longest time between two attempts that fail.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Numbers of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStat {
    /// The cache, and the page store.
    pub data: DataStat,
    /// The LSN of the newest commit.
    pub newest_lsn: u64,
    /// The LSN up to which all commits survive a power cut.
    pub durable_lsn: u64,
    /// The LSN from which the next opening replays the log.
    pub redo_lsn: u64,
    /// Dropped maps whose records are not all removed.
    pub dropped_maps: u64,
    /// What the opening has done.
    pub recovery: Recovery,
}

/// The maps of a store, some of whose names may be in a damaged page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadableMaps {
    /// Names with their numbers, ascending by name.
    pub maps: Vec<(String, u64)>,
    /// Numbers of the maps with records whose names cannot be read. A dropped map whose records
    /// were not removed yet may be among them.
    pub unnamed: Vec<u64>,
    /// Why; empty if all names can be read.
    pub damage: Vec<String>,
}

/// A map: its number, its handle, and its index.
pub type StoreMap = (u64, TransactionalMap<Process, StoreMaps>, Arc<dyn RangeIndex>);

/// What the threads of a store share.
#[derive(Debug)]
struct Shared {
    component: Arc<Component>,
    data: DataComponent,
    options: StoreOptions,
    recovery: Recovery,
    /// The LSN from which the next opening replays the log.
    redo_lsn: AtomicU64,
    /// Held during a checkpoint.
    checkpointing: Mutex<()>,
    /// Dropped maps that may have records yet.
    dropped: Mutex<Vec<Dropped>>,
    /// Held while their records are removed.
    clearing: Mutex<()>,
    /// They are removed now, also if that has failed a short time ago.
    is_clearing_due: AtomicBool,
    /// The indexes in the handles of maps, by number.
    handles: Mutex<HashMap<u64, Weak<dyn RangeIndex>>>,
    is_over: AtomicBool,
}

/// A dropped map that may have records.
#[derive(Clone, Copy, Debug)]
struct Dropped {
    number: u64,
    /// The LSN of the drop, if threads may still use the map.
    lsn: Option<u64>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A store. Any number of threads may use it at once. See [the crate](crate) for what survives.
#[derive(Debug)]
pub struct Store {
    /// They end when this is dropped.
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Store {
    /// Opens the store in the directory `path`, and creates it if there is none. The directory is
    /// created too; its parent must be there.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`], [`Error::Option`], [`Error::OtherLog`], [`Error::Damaged`], or what the
    /// device answers.
    pub fn open(path: &Path, options: &StoreOptions) -> Result<Self> {
        check("memory_bytes", options.memory_bytes, MIN_MEMORY_BYTES)?;
        crate::data_component::check_options(options)?;
        let disk = Disk::open_or_create(path)?;
        let in_use = || Error::InUse { path: path.display().to_string() };
        let lock = disk.lock()?.ok_or_else(in_use)?;
        // Left by a kill.
        for name in disk.names()?.iter().filter(|name| name.starts_with("control.new-")) {
            disk.remove(name)?;
        }
        let [pages, log] =
            ["pages", "log"].map(|name| Ok::<_, Error>(Disk::open_or_create(&path.join(name))?));
        let (pages, log) = (pages?, log?);
        let log_lock = log.lock()?.ok_or_else(in_use)?;
        let (pages, log): (Arc<dyn Directory>, Arc<dyn Directory>) =
            (Arc::new(pages), Arc::new(log));
        disk.sync()?;
        let mut store = Self::open_in(pages, &log, &path.join("control"), options)?;
        store.hold([log_lock, lock]);
        store.keep()?;
        Ok(store)
    }

    /// Keeps the locks of the directories as long as a handle of a map is held: each has the cache.
    /// That of the store is the last: it is taken first, and dropped last.
    pub(crate) fn hold(&self, locks: [DirectoryLock; 2]) {
        // Set once.
        let _ = self.shared.data.cache().locks.set(locks);
    }

    /// The same in other directories, and with another file for the tail of the log, which nothing
    /// else may use at the same time. No thread writes the log, makes checkpoints or clears dropped
    /// maps but those that call [`sync`](Self::sync), [`checkpoint`](Self::checkpoint) and
    /// [`clear_dropped`](Self::clear_dropped).
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), without [`Error::InUse`].
    pub fn open_in(
        pages: Arc<dyn Directory>,
        log: &Arc<dyn Directory>,
        control: &Path,
        options: &StoreOptions,
    ) -> Result<Self> {
        Self::open_with(pages, log, Control::In(control), options)
    }

    pub(crate) fn open_with(
        pages: Arc<dyn Directory>,
        log: &Arc<dyn Directory>,
        control: Control<'_>,
        options: &StoreOptions,
    ) -> Result<Self> {
        let opened = opening::open(pages, log, control, options)?;
        let dropped = opened.dropped.into_iter().map(|number| Dropped { number, lsn: None });
        let shared = Arc::new(Shared {
            component: opened.component,
            data: opened.data,
            options: options.clone(),
            recovery: opened.recovery,
            redo_lsn: opened.redo.lsn.into(),
            checkpointing: Mutex::default(),
            dropped: Mutex::new(dropped.collect()),
            clearing: Mutex::default(),
            is_clearing_due: AtomicBool::new(false),
            handles: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        Ok(Self { threads: Vec::new(), shared })
    }

    /// Starts the thread that writes the log, and the one that makes checkpoints.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if a thread cannot be started.
    pub fn keep(&mut self) -> Result<()> {
        let start = |name: &str, run: fn(&Shared)| {
            let shared = self.shared.clone();
            thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared)).map_err(
                |source| pando_device::Error {
                    operation: Operation::Open,
                    path: format!("the thread {name}"),
                    source,
                },
            )
        };
        let log = start("pando-log", |shared| {
            shared.component.log().write_until(&*shared.component, &shared.is_over);
        })?;
        self.threads.push(log);
        let checkpoints = start("pando-store", Shared::tend)?;
        self.threads.push(checkpoints);
        self.shared.component.maps().wait_for_tail(self.shared.options.memory_bytes);
        Ok(())
    }

    /// The transactions over the store's maps, by number. The map with number 1 is the catalog, and
    /// must not be written.
    pub fn component(&self) -> &Arc<TransactionComponent<Process, StoreMaps>> {
        &self.shared.component
    }

    /// Creates the map `name`; its number. On return it survives a kill.
    ///
    /// # Errors
    ///
    /// [`Error::MapExists`], [`Error::Name`], [`Error::Transactions`].
    pub fn create_map(&self, name: &str) -> Result<u64> {
        catalog::create(&self.shared.component, name)
    }

    /// The number of the map `name`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Transactions`], [`Error::Damaged`].
    pub fn find_map(&self, name: &str) -> Result<Option<u64>> {
        catalog::find(&self.shared.component, name)
    }

    /// The map `name`. Each of its operations is a transaction of its own: on return it survives a
    /// kill, and a power cut after [`sync`](Self::sync).
    ///
    /// # Errors
    ///
    /// [`Error::MapNotFound`], [`Error::Transactions`], [`Error::Damaged`].
    pub fn map(&self, name: &str) -> Result<TransactionalMap<Process, StoreMaps>> {
        Ok(self.map_and_index(name)?.1)
    }

    /// The same with its number, and with the index whose values have the stamps of transactions.
    ///
    /// # Errors
    ///
    /// As [`map`](Self::map).
    pub fn map_and_index(&self, name: &str) -> Result<StoreMap> {
        let not_found = || Error::MapNotFound { name: name.to_owned() };
        // It may wait for the disk, so the lock is not held.
        let number = self.find_map(name)?.ok_or_else(not_found)?;
        let component = &self.shared.component;
        let mut handles = locked(&self.shared.handles);
        let is_dropped = locked(&self.shared.dropped).iter().any(|other| other.number == number);
        if is_dropped || component.maps().is_gone(number) {
            return Err(not_found());
        }
        // The opening may not have found its name, in a page that it could not read.
        component.maps().add(number);
        let held = handles.get(&number).and_then(Weak::upgrade);
        let index = held.unwrap_or_else(|| component.maps().index(number));
        handles.insert(number, Arc::downgrade(&index));
        drop(handles);
        let map = TransactionalMap::new(component.clone(), number, index.clone())?;
        Ok((number, map, index))
    }

    /// Bytes of memory that pages may take.
    pub fn memory_bytes(&self) -> u64 {
        self.shared.options.memory_bytes
    }

    /// The names of the maps with their numbers, ascending by name.
    ///
    /// # Errors
    ///
    /// [`Error::Transactions`], [`Error::Damaged`].
    pub fn maps(&self) -> Result<Vec<(String, u64)>> {
        Ok(catalog::list(&self.shared.component)?.maps)
    }

    /// The maps as far as their names can be read: if a page with names is damaged, without those.
    ///
    /// # Errors
    ///
    /// [`Error::Transactions`], [`Error::Index`], [`Error::Damaged`].
    pub fn readable_maps(&self) -> Result<ReadableMaps> {
        let Listed { maps, mut unnamed, damage, .. } =
            catalog::list_readable(&self.shared.component)?;
        let dropped = locked(&self.shared.dropped);
        unnamed.retain(|number| dropped.iter().all(|other| other.number != *number));
        Ok(ReadableMaps { maps, unnamed, damage })
    }

    /// Lends each record of the map `number` that can be read to `visit`, ascending; returns the
    /// damage that it has met. Between two damaged pages it reads nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Transactions`] if there is no such map, [`Error::Index`].
    pub fn lend_readable(
        &self,
        number: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Vec<String>> {
        let component = &self.shared.component;
        let index = component.maps().index(number);
        lend_readable(&TransactionalMap::new(component.clone(), number, index)?, visit)
    }

    /// Gives the map `from` the name `to`, in one transaction: on return it survives a kill, and a
    /// power cut after [`sync`](Self::sync). Handles of the map stay as they are.
    ///
    /// # Errors
    ///
    /// [`Error::MapNotFound`]; [`Error::MapExists`] if there is a map `to`; [`Error::Name`];
    /// [`Error::Transactions`].
    pub fn rename_map(&self, from: &str, to: &str) -> Result<()> {
        catalog::rename(&self.shared.component, from, to).map(drop)
    }

    /// Drops the map `name`, durably. Its records are removed later. Transactions that use its
    /// number fail from then on.
    ///
    /// # Errors
    ///
    /// [`Error::MapNotFound`]; [`Error::HandleHeld`]; [`Error::Transactions`]. With
    /// [`Error::ThreadInside`], or if the log cannot be synced, the map is dropped, and its records
    /// are removed when the thread has left, or after the next opening.
    pub fn drop_map(&self, name: &str) -> Result<()> {
        let component = &self.shared.component;
        // It may wait for the disk. Under the lock the same page is in memory.
        catalog::find(component, name)?;
        let mut handles = locked(&self.shared.handles);
        let found = catalog::find(component, name)?;
        let held = found.and_then(|number| handles.remove(&number)).and_then(|held| held.upgrade());
        if let (Some(number), Some(held)) = (found, held) {
            handles.insert(number, Arc::downgrade(&held));
            return Err(Error::HandleHeld { name: name.to_owned() });
        }
        let (number, lsn) = catalog::mark_dropped(component, name)?;
        locked(&self.shared.dropped).push(Dropped { number, lsn: Some(lsn) });
        drop(handles);
        match self.shared.take_out(number, lsn)? {
            true => Ok(()),
            false => Err(Error::ThreadInside { name: name.to_owned() }),
        }
    }

    /// Removes what is left of the maps that were dropped before the call, as a thread does in the
    /// background. A map that cannot be cleared holds up no other one.
    ///
    /// # Errors
    ///
    /// The first one, after all maps were tried: as [`checkpoint`](Self::checkpoint), and
    /// [`Error::Index`] if a page cannot be read. Then [`StoreStat::dropped_maps`] has the number
    /// of those that are left. It has those too that a thread may still use, which is no error.
    pub fn clear_dropped(&self) -> Result<()> {
        self.shared.clear_dropped()
    }

    /// Wakes the thread that clears dropped maps, without a wait. It tries those too that it could
    /// not clear before.
    pub fn wake_clearing(&self) {
        // Relaxed: the thread looks again after a while; the list of dropped maps has a lock.
        self.shared.is_clearing_due.store(true, Ordering::Relaxed);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
    }

    /// Returns when all commits before the call survive a power cut; the LSN of the last of them.
    ///
    /// # Errors
    ///
    /// [`Error::Transactions`] if the log has stopped: whether they survive is then open.
    pub fn sync(&self) -> Result<u64> {
        let lsn = self.shared.component.newest_lsn()?;
        self.shared.component.sync(lsn)?;
        Ok(lsn)
    }

    /// Writes all pages that have changed, and releases the log before: the next opening replays
    /// what comes after. A thread does the same when the log is long.
    ///
    /// # Errors
    ///
    /// [`Error::NotReplayed`], or what the page store or the log answers.
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.checkpoint()
    }

    /// From now on pages are written whole, and never as deltas: what the papers' experiments
    /// compare with.
    #[cfg(feature = "papers")]
    pub fn write_whole_pages(&self) {
        // Relaxed: one delta more or less.
        self.shared.data.cache().writes_whole_pages.store(true, Ordering::Relaxed);
    }

    /// Writes all pages that have changed, and evicts all that have no version above the durable
    /// LSN.
    ///
    /// # Errors
    ///
    /// As [`checkpoint`](Self::checkpoint).
    pub fn empty_cache(&self) -> Result<()> {
        self.shared.data.empty_cache()
    }

    /// Checks all pages as the device has them, after all changed ones are written: each is
    /// readable, and together they are a tree. Returns what is wrong, and over which pages the log
    /// could not be replayed. No other thread may write meanwhile.
    ///
    /// # Errors
    ///
    /// As [`checkpoint`](Self::checkpoint).
    pub fn check(&self) -> Result<Vec<String>> {
        self.sync()?;
        let _locks = (locked(&self.shared.clearing), locked(&self.shared.checkpointing));
        self.shared.data.check()
    }

    /// Bytes of records that may wait for the disk; then commits wait for it.
    pub fn tail_bytes(&self) -> u64 {
        let component = &self.shared.component;
        component.maps().most_tail_bytes().min(component.log().options().tail_bytes)
    }

    /// The LSN behind which an opening replays the log.
    pub fn redo_lsn(&self) -> u64 {
        // Relaxed: only the number matters.
        self.shared.redo_lsn.load(Ordering::Relaxed)
    }

    /// The room that its pages take on the disk; see [`PageStore::space`](pando_lss::PageStore).
    pub fn space(&self) -> Space {
        self.shared.data.space()
    }

    /// Numbers of the store. Reads the table of pages.
    ///
    /// # Errors
    ///
    /// What the page store answers.
    pub fn stat(&self) -> Result<StoreStat> {
        let Shared { component, data, recovery, .. } = &*self.shared;
        // The durable one first, so that it is not above the newest.
        let durable_lsn = component.log().durable_lsn();
        Ok(StoreStat {
            data: data.stat()?,
            newest_lsn: component.newest_lsn()?,
            durable_lsn,
            redo_lsn: self.redo_lsn(),
            dropped_maps: locked(&self.shared.dropped).len() as u64,
            recovery: *recovery,
        })
    }

    /// Closes the store with a checkpoint, so that the next opening has nothing to replay. A store
    /// that is only dropped, or killed, loses nothing either. If the log could not be replayed over
    /// a page, there is no checkpoint, and the next opening replays the log again. Of a store that
    /// is open for reading alone, nothing is written.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync) and [`checkpoint`](Self::checkpoint), without
    /// [`Error::NotReplayed`].
    pub fn close(self) -> Result<()> {
        if self.shared.component.is_read_only() {
            return Ok(());
        }
        self.sync()?;
        match self.checkpoint() {
            // The caller has not caused it, and can do nothing: all commits are durable.
            Err(Error::NotReplayed { .. }) => Ok(()),
            closed => closed,
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Relaxed: it orders nothing; the threads are joined.
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // It panics only because of a bug, and the panic was reported.
            let _ = thread.join();
        }
    }
}

/// When something is tried again, after errors.
struct Retry {
    at: Instant,
    pause: Duration,
}

impl Retry {
    fn new() -> Self {
        Self { at: Instant::now(), pause: LOOK_EVERY }
    }

    /// Does it, if it is time. Nothing is lost by an error.
    fn run(&mut self, work: impl FnOnce() -> Result<()>) {
        if Instant::now() < self.at {
            return;
        }
        self.pause = if work().is_ok() { LOOK_EVERY } else { (self.pause * 2).min(MAX_PAUSE) };
        self.at = Instant::now() + self.pause;
    }
}

impl Shared {
    /// An error if the store is open for reading alone.
    fn check_writable(&self) -> Result<()> {
        match self.component.is_read_only() {
            true => Err(pando_tc::Error::ReadOnly.into()),
            false => Ok(()),
        }
    }

    fn checkpoint(&self) -> Result<()> {
        self.check_writable()?;
        let _lock = locked(&self.checkpointing);
        let redo = checkpoint::make(&self.component, self.data.cache())?;
        self.redo_lsn.store(redo.lsn, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the log has so many bytes that a checkpoint is due.
    fn is_checkpoint_due(&self) -> bool {
        let redo_lsn = self.redo_lsn.load(Ordering::Relaxed);
        self.component.log().durable_lsn().saturating_sub(redo_lsn)
            >= self.options.checkpoint_log_bytes
    }

    /// Makes checkpoints when they are due, and clears dropped maps, until the store is closed.
    fn tend(&self) {
        let (mut checkpoints, mut clearings) = (Retry::new(), Retry::new());
        // Relaxed: it orders nothing.
        while !self.is_over.load(Ordering::Relaxed) {
            thread::park_timeout(LOOK_EVERY);
            // If it fails, the log grows.
            checkpoints.run(|| match self.is_checkpoint_due() {
                true => self.checkpoint(),
                false => Ok(()),
            });
            // Relaxed: as in `wake_clearing`.
            if self.is_clearing_due.swap(false, Ordering::Relaxed) {
                clearings = Retry::new();
            }
            // If it fails, dropped maps keep their room.
            clearings.run(|| self.clear_dropped());
        }
    }

    /// After the drop of a map at this LSN: waits until no thread can use it; false if a thread
    /// stays inside a call.
    fn take_out(&self, number: u64, lsn: u64) -> Result<bool> {
        let component = &self.component;
        component.sync(lsn)?;
        component.settle()?;
        // From here on the tail names the map only by commits of transactions that had read it
        // before; they fail. A thread that has found the map is inside a call.
        if !component.have_left()? {
            return Ok(false);
        }
        component.maps().take_out(number);
        if !component.have_left()? {
            return Ok(false);
        }
        for dropped in locked(&self.dropped).iter_mut().filter(|other| other.number == number) {
            dropped.lsn = None;
        }
        Ok(true)
    }

    fn clear_dropped(&self) -> Result<()> {
        self.check_writable()?;
        let _lock = locked(&self.clearing);
        let (mut has_cleared, mut first) = (false, None);
        // A thread that stays inside a call is waited for once.
        let mut may_wait = true;
        let dropped = locked(&self.dropped).clone();
        for map in dropped {
            if map.lsn.is_some() && !may_wait {
                continue;
            }
            // Relaxed: it orders nothing.
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            match self.clear_one(map) {
                Ok(is_cleared) => {
                    has_cleared |= is_cleared;
                    may_wait &= is_cleared;
                }
                Err(error) => {
                    first.get_or_insert(error);
                    if mutant!("store-clearing-ends-at-damage") {
                        break;
                    }
                }
            }
        }
        let given_back = if has_cleared { self.give_files_back() } else { Ok(()) };
        first.map_or(given_back, Err)
    }

    /// Removes what is left of a dropped map; false if something is left, because a thread stays
    /// inside a call, or the store is closed.
    fn clear_one(&self, Dropped { number, lsn }: Dropped) -> Result<bool> {
        if let Some(lsn) = lsn
            && !self.take_out(number, lsn)?
        {
            return Ok(false);
        }
        if !self.clear(number)? {
            return Ok(false);
        }
        if mutant!("store-forgotten-before-checkpoint") {
            catalog::forget(&self.component, number)?;
        }
        // The log that would be replayed has none of its records any more.
        self.component.sync(self.component.newest_lsn()?)?;
        self.checkpoint()?;
        catalog::forget(&self.component, number)?;
        locked(&self.dropped).retain(|other| other.number != number);
        Ok(true)
    }

    /// Cleans, if pages have been freed and the files are many.
    fn give_files_back(&self) -> Result<()> {
        let pages = &self.data.cache().pages;
        // Each pass empties a segment, and not all of them leave fewer files.
        for _ in 0..pages.stat()?.segments {
            // Relaxed: it orders nothing.
            if self.is_over.load(Ordering::Relaxed) || !pages.clean_surplus()? {
                break;
            }
        }
        Ok(())
    }

    /// Removes the records of a dropped map; false if the store is closed meanwhile.
    fn clear(&self, number: u64) -> Result<bool> {
        let index = self.component.maps().index(number);
        loop {
            // Relaxed: it orders nothing.
            if self.is_over.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let mut keys = Vec::new();
            let mut cursor = index.scan(KeyRange::all(), Order::Ascending)?;
            cursor.expect(CLEARED_AT_ONCE);
            while keys.len() < CLEARED_AT_ONCE
                && let Some((key, _)) = cursor.next()?
            {
                keys.push(key.to_vec());
            }
            if keys.is_empty() {
                return Ok(true);
            }
            // Other threads commit meanwhile.
            if self.is_checkpoint_due() {
                self.checkpoint()?;
            }
            for key in keys {
                index.remove(&key)?;
            }
        }
    }
}
