//! The store: clients' keys in an ordered map of a pool, or of a record store on a disk
//! ([`pando::Store`]), which may be larger than memory.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use pando::{Map, MapOptions, Pool, PoolOptions, Store as RecordStore};
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::drafts::Drafts;
use crate::failure::{Failure, Result, fail};
use crate::head_counts::KeyCounts;
use crate::layout::{
    CollectionId, DATABASES, HASH_BITS, LONG_ABOVE_BYTES, LONG_ABOVE_BYTES_ON_DISK, SPACES,
};
use crate::log_sync::{LogSync, SyncMode};
use crate::memory::Memory;
use crate::open_counts::Counts;
use crate::own_keys::{self, RESTORING};
#[cfg(test)]
use crate::refusals::Refusals;
use crate::room::{self, Room};
use crate::snapshot_state::Snapshots;
use crate::stripes::{Access, Held, Stripes, Wanted};
use crate::unreadable::Unreadable;

/// The name of the map with the store's records.
pub const MAP_NAME: &str = "server";
/// Numbers of collections that are reserved on the medium at once.
const IDS_AT_ONCE: u64 = 1 << 20;

/// Options for opening a store.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// The pool's options.
    pub pool: PoolOptions,
    /// The index of a new pool.
    pub index: Option<String>,
    /// The memory for the pages of a record store, in bytes. If it is set, the path is that of the
    /// record store's directory, not of a pool.
    pub page_bytes: Option<u64>,
    /// When replies to writes are sent, if the pool has a log.
    pub sync: SyncMode,
}

/// Clients' keys in a pool; see the module's documentation.
pub struct Store {
    pub(crate) map: Map,
    /// The pool; or the record store, which has the same interface.
    pub(crate) pool: Pool,
    /// The memory for the pages of a record store; `None` for a pool.
    page_bytes: Option<u64>,
    /// A longer string is stored in pieces.
    pub(crate) long_above_bytes: usize,
    /// The syncs of the pool's log, if it has one.
    pub(crate) log: Option<LogSync>,
    pub(crate) clock: Clock,
    /// The time of opening, by its clock.
    pub(crate) opened_at_ms: u64,
    pub(crate) stripes: Stripes,
    pub(crate) key_counts: KeyCounts,
    /// The space of each database; changes only while all stripes are held.
    spaces: [AtomicU8; DATABASES as usize],
    ids: Mutex<Ids>,
    pub(crate) drafts: Drafts,
    pub(crate) counts: Counts,
    /// The number of openings, with this one.
    starts: u64,
    next_cas: AtomicU64,
    pub(crate) next_intent: AtomicU64,
    /// Whether there are pending writes of an intent.
    pub(crate) has_pending_writes: AtomicBool,
    /// Whether the sweep has work besides expired keys.
    pub(crate) has_garbage: AtomicBool,
    /// Whether the server ends; then long work in the background stops.
    pub(crate) is_ending: AtomicBool,
    pub(crate) unreadable: Mutex<Unreadable>,
    pub(crate) snapshots: Snapshots,
    pub(crate) memory: Memory,
    room: Room,
    #[cfg(test)]
    pub(crate) refusals: Refusals,
}

/// Numbers for collections and long strings.
#[derive(Debug)]
struct Ids {
    next: CollectionId,
    /// The upper bound on the medium.
    end: CollectionId,
}

impl Store {
    /// Opens the store in the pool `path`, or in anonymous memory; or in the record store `path`,
    /// if the options say so. Creates it if it does not exist.
    pub fn open(path: Option<&Path>, options: &StoreOptions) -> Result<Self> {
        let page_bytes = options.page_bytes.filter(|_| path.is_some());
        let pool = match (path, page_bytes) {
            (Some(path), Some(bytes)) => {
                RecordStore::open_with(path, bytes, &options.pool)?.into_pool()
            }
            (Some(path), None) => Pool::open_or_create(path, &options.pool)?,
            (None, _) => Pool::volatile(&options.pool)?,
        };
        let log = LogSync::of_pool(&pool, options.sync)?;
        let mut map_options = MapOptions::new();
        if log.is_some() {
            // Only such maps are in the log.
            map_options = map_options.transactional(true);
        }
        if let Some(kind) = &options.index {
            map_options = map_options.index(kind);
        }
        let map = pool.map_with(MAP_NAME, &map_options)?;
        if map.get(own_keys::own(RESTORING))?.is_some() {
            return Err(fail(
                "ERR the restore of a snapshot was cut short, so there are only some of the keys; delete the pool, \
                 with its log if it has one, or the store, and restore the snapshot again",
            ));
        }
        let clock = Clock::continue_or_begin(map.get(own_keys::own("clock"))?.as_deref());
        let mut store = Self {
            map,
            pool,
            page_bytes,
            long_above_bytes: page_bytes.map_or(LONG_ABOVE_BYTES, |_| LONG_ABOVE_BYTES_ON_DISK),
            log,
            clock,
            opened_at_ms: clock.now_ms(),
            stripes: Stripes::new(),
            key_counts: KeyCounts::default(),
            spaces: Default::default(),
            ids: Mutex::new(Ids { next: 0, end: 0 }),
            drafts: Drafts::default(),
            counts: Counts::default(),
            starts: 0,
            next_cas: AtomicU64::new(0),
            next_intent: AtomicU64::new(0),
            has_pending_writes: AtomicBool::new(false),
            has_garbage: AtomicBool::new(true),
            is_ending: AtomicBool::new(false),
            unreadable: Mutex::default(),
            snapshots: Snapshots::default(),
            memory: Memory::default(),
            room: Room::default(),
            #[cfg(test)]
            refusals: Refusals::default(),
        };
        // First, because pending writes may include the records that are read next.
        store.finish_intents()?;
        store.take_up()?;
        store.keep_intent_reserve();
        if store.starts == 1 {
            store.count_none()?;
        }
        // The first round makes the number of starts durable: no later start has the same one, so
        // no cas is used twice.
        store.log.as_mut().map_or(Ok(()), LogSync::begin)?;
        Ok(store)
    }

    /// Reads the store's own records, and writes new ones.
    fn take_up(&mut self) -> Result<()> {
        let get = |name: &str| self.map.get(own_keys::own(name));
        if get("clock")?.as_deref() != Some(&self.clock.encode()) {
            let put = || self.write(&own_keys::own("clock"), Some(&self.clock.encode()));
            self.apply_with_reserve(put)?;
        }
        let spaces: [u8; DATABASES as usize] = match get("spaces")? {
            Some(kept) => kept.try_into().map_err(|_| Failure::Damaged)?,
            None => std::array::from_fn(|database| database as u8),
        };
        if spaces.iter().any(|&space| space >= SPACES) {
            return Err(Failure::Damaged);
        }
        let (next, starts) = match get("ids")? {
            Some(kept) => {
                let word = |at: usize| Some(u64::from_le_bytes(*kept.get(at..)?.first_chunk()?));
                let next = word(0).ok_or(Failure::Damaged)?;
                (next, word(8).ok_or(Failure::Damaged)?)
            }
            None => (1, 0),
        };
        self.starts = starts + 1;
        self.next_cas = AtomicU64::new(self.starts << 40 | 1);
        self.spaces = spaces.map(AtomicU8::new);
        self.ids = Mutex::new(Ids { next, end: next });
        self.apply_with_reserve(|| self.reserve_ids(&mut self.ids.lock()))
    }

    fn reserve_ids(&self, ids: &mut Ids) -> Result<()> {
        let end = ids.end + IDS_AT_ONCE;
        if end >> HASH_BITS != 0 {
            return Err(fail("ERR all collection IDs are used"));
        }
        let value = [end.to_le_bytes(), self.starts.to_le_bytes()].concat();
        self.write(&own_keys::own("ids"), Some(&value))?;
        ids.end = end;
        Ok(())
    }

    /// A new number for a collection or long string.
    pub(crate) fn new_id(&self) -> Result<CollectionId> {
        let mut ids = self.ids.lock();
        if ids.next == ids.end {
            self.reserve_ids(&mut ids)?;
        }
        ids.next += 1;
        Ok(ids.next - 1)
    }

    /// A new cas.
    pub fn new_cas(&self) -> u64 {
        // Relaxed: the number must only be unique.
        self.next_cas.fetch_add(1, Ordering::Relaxed)
    }

    /// The store's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The pool, or the record store.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The memory for the pages of a record store, in bytes; `None` for a pool.
    pub fn page_bytes(&self) -> Option<u64> {
        self.page_bytes
    }

    /// The syncs of the pool's log; `None` if the pool has none.
    #[inline]
    pub fn log(&self) -> Option<&LogSync> {
        self.log.as_ref()
    }

    /// Whether writes are refused, because the log cannot be written.
    pub fn refuses_writes(&self) -> bool {
        self.log.as_ref().is_some_and(LogSync::has_failed)
    }

    /// The number of openings, with this one.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// An error if writes are refused, because the log cannot be written.
    #[inline]
    pub fn check_writes(&self) -> Result<()> {
        self.log.as_ref().map_or(Ok(()), LogSync::check)
    }

    /// Locks stripes, in any order and with repetitions allowed. Exclusively locked stripes may be
    /// written. If the log cannot be written, exclusive access is refused.
    pub fn lock(&self, wanted: Wanted, access: Access) -> Result<Held<'_>> {
        if access == Access::Exclusive {
            self.check_writes()?;
        }
        self.lock_unchecked(wanted, access)
    }

    /// Locks stripes exclusively, also if the log cannot be written. The caller changes watchers;
    /// before it writes a record, it calls [`check_writes`](Self::check_writes).
    pub fn lock_to_watch(&self, wanted: Wanted) -> Result<Held<'_>> {
        self.lock_unchecked(wanted, Access::Exclusive)
    }

    /// As [`lock`](Self::lock), also if the log cannot be written.
    pub(crate) fn lock_unchecked(&self, wanted: Wanted, access: Access) -> Result<Held<'_>> {
        loop {
            let mut held = self.stripes.lock(wanted.clone(), access);
            if !self.has_pending_writes() && self.save_before_writes(&mut held) {
                return Ok(held);
            }
            drop(held);
            let _all = self.stripes.lock_all(Access::Exclusive);
            self.finish_intents()?;
        }
    }

    /// The space of a database. It does not change while any stripe is held.
    #[inline]
    pub(crate) fn space(&self, database: u8) -> u8 {
        // Acquire: with the store in `set_spaces`. For a holder of a stripe the lock orders it,
        // too.
        self.spaces[usize::from(database)].load(Ordering::Acquire)
    }

    /// Sets the spaces of databases, after they are on the medium; all stripes must be held
    /// exclusively.
    pub(crate) fn set_spaces(&self, spaces: [u8; DATABASES as usize]) {
        for (kept, space) in self.spaces.iter().zip(spaces) {
            kept.store(space, Ordering::Release);
        }
        self.has_garbage.store(true, Ordering::Release);
        self.room.look_now();
    }

    pub(crate) fn spaces(&self) -> [u8; DATABASES as usize] {
        std::array::from_fn(|database| self.space(database as u8))
    }

    /// Stops long work in the background, such as counting keys, without a result. Later work does
    /// not begin.
    pub fn end_long_work(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// An error if the server ends.
    pub(crate) fn check_not_ending(&self) -> Result<()> {
        match self.is_ending() {
            false => Ok(()),
            true => Err(fail("ERR the server is being shut down")),
        }
    }

    /// Whether the server ends, so that long work stops.
    pub(crate) fn is_ending(&self) -> bool {
        // Relaxed: a late view only works a little longer.
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Bytes that the pool takes of its file system, or of memory.
    pub fn occupied_bytes(&self) -> Result<u64> {
        Ok(self.pool.occupied_bytes()?)
    }

    /// Returns some unused room to the system, for a sweep.
    pub fn return_some_room(&self) -> Result<()> {
        self.room.return_some(&self.pool)
    }

    /// Whether the caller may return all room: only one thread does so at a time.
    pub fn begin_return_of_all_room(&self) -> bool {
        self.room.begin_return_of_all()
    }

    /// Ends what [`begin_return_of_all_room`](Self::begin_return_of_all_room) has begun.
    pub fn end_return_of_all_room(&self) {
        self.room.end_return_of_all();
    }

    /// Returns all unused room to the system, until the server ends; returns the bytes.
    pub fn return_all_room(&self) -> Result<u64> {
        room::return_all(&self.pool, &self.is_ending)
    }

    /// Closes the store and its pool.
    pub fn close(self) -> Result<()> {
        self.close_all();
        drop((self.map, self.log));
        Ok(self.pool.close()?)
    }
}
