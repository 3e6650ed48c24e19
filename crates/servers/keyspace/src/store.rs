//! The store: clients' keys in an ordered map of a pool.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use pando::{Map, MapOptions, Order, Pool, PoolOptions};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::clock::Clock;
use crate::drafts::Drafts;
use crate::failure::{Failure, Result, fail};
use crate::layout::{CollectionId, DATABASES, HASH_BITS, SPACES};
use crate::memory::Memory;
use crate::open_counts::Counts;
use crate::own_keys::{self, RESTORING};
#[cfg(test)]
use crate::refusals::Refusals;
use crate::room::{self, Room};
use crate::snapshot_state::Snapshots;
use crate::stripes::{self, Access, Held, StripeIndex, Stripes, Wanted, stripe_range};

/// The name of the map in which a store keeps its keys.
pub const MAP_NAME: &str = "server";
/// Numbers of collections that are taken from the medium at once.
const IDS_AT_ONCE: u64 = 1 << 20;

/// How a store is opened.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// The pool's options.
    pub pool: PoolOptions,
    /// The kind of index of a new store.
    pub index: Option<String>,
}

/// Clients' keys in a pool; see the module.
pub struct Store {
    pub(crate) map: Map,
    pub(crate) pool: Pool,
    pub(crate) clock: Clock,
    /// When it was opened, by its clock.
    pub(crate) opened_at_ms: u64,
    pub(crate) stripes: Stripes,
    /// The space of each database; changes only while all stripes are held.
    spaces: [AtomicU8; DATABASES as usize],
    ids: Mutex<Ids>,
    pub(crate) drafts: Drafts,
    pub(crate) counts: Counts,
    /// How often the store has been opened, this time included.
    starts: u64,
    next_cas: AtomicU64,
    pub(crate) next_intent: AtomicU64,
    /// An intent stands that could not be carried out yet.
    pub(crate) is_behind: AtomicBool,
    /// The sweep has work besides what expires.
    pub(crate) has_garbage: AtomicBool,
    /// Whether the server ends, and with it what takes long in the background.
    pub(crate) is_ending: AtomicBool,
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
    /// What the medium says: below it.
    end: CollectionId,
}

impl Store {
    /// Opens the store in the pool `path`, or in anonymous memory; a new one if there is none.
    pub fn open(path: Option<&Path>, options: &StoreOptions) -> Result<Self> {
        let pool = match path {
            Some(path) => Pool::open_or_create(path, &options.pool)?,
            None => Pool::volatile(&options.pool)?,
        };
        let mut map_options = MapOptions::new();
        if let Some(kind) = &options.index {
            map_options = map_options.index(kind);
        }
        let map = pool.map_with(MAP_NAME, &map_options)?;
        if map.get(&own_keys::own(RESTORING))?.is_some() {
            return Err(fail(
                "ERR the snapshot that was being restored into this store was cut short, so it has only \
                 some of the keys; delete the pool and restore again",
            ));
        }
        let clock = Clock::continue_or_begin(map.get(&own_keys::own("clock"))?.as_deref());
        let mut store = Self {
            map,
            pool,
            clock,
            opened_at_ms: clock.now_ms(),
            stripes: Stripes::new(),
            spaces: Default::default(),
            ids: Mutex::new(Ids { next: 0, end: 0 }),
            drafts: Drafts::default(),
            counts: Counts::default(),
            starts: 0,
            next_cas: AtomicU64::new(0),
            next_intent: AtomicU64::new(0),
            is_behind: AtomicBool::new(false),
            has_garbage: AtomicBool::new(true),
            is_ending: AtomicBool::new(false),
            snapshots: Snapshots::default(),
            memory: Memory::default(),
            room: Room::default(),
            #[cfg(test)]
            refusals: Refusals::default(),
        };
        // First, since among the writes that are owed may be what is read now.
        store.finish_intents()?;
        store.take_up()?;
        store.keep_intent_reserve();
        if store.starts == 1 {
            store.count_none()?;
        }
        Ok(store)
    }

    /// Takes up what the store has written down about itself.
    fn take_up(&mut self) -> Result<()> {
        let get = |name: &str| self.map.get(&own_keys::own(name));
        if get("clock")?.as_deref() != Some(&self.clock.encode()) {
            let put = || self.write(&own_keys::own("clock"), Some(&self.clock.encode()));
            self.at_all_costs(put)?;
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
        self.at_all_costs(|| self.reserve_ids(&mut self.ids.lock()))
    }

    fn reserve_ids(&self, ids: &mut Ids) -> Result<()> {
        let end = ids.end + IDS_AT_ONCE;
        if end >> HASH_BITS != 0 {
            return Err(fail("ERR all numbers for collections were used"));
        }
        let value = [end.to_le_bytes(), self.starts.to_le_bytes()].concat();
        self.write(&own_keys::own("ids"), Some(&value))?;
        ids.end = end;
        Ok(())
    }

    /// A number that no collection and no long string has had.
    pub(crate) fn new_id(&self) -> Result<CollectionId> {
        let mut ids = self.ids.lock();
        if ids.next == ids.end {
            self.reserve_ids(&mut ids)?;
        }
        ids.next += 1;
        Ok(ids.next - 1)
    }

    /// A cas that no value has had.
    pub fn new_cas(&self) -> u64 {
        // Relaxed: only its being new matters.
        self.next_cas.fetch_add(1, Ordering::Relaxed)
    }

    /// The store's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The pool beneath.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// How often the store has been opened, this time included.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Waits for stripes, which may stand in any order and more than once. Held alone, they may be
    /// written.
    pub fn lock(&self, wanted: Wanted, access: Access) -> Result<Held<'_>> {
        loop {
            let mut held = self.stripes.lock(wanted.clone(), access);
            if !self.is_behind() {
                match self.save_before_writes(&mut held) {
                    // Somebody has fallen behind meanwhile.
                    Err(_) if self.is_behind() => {}
                    saved => return saved.map(|()| held),
                }
            }
            drop(held);
            let _all = self.stripes.lock_all(Access::Alone);
            self.finish_intents()?;
        }
    }

    /// The space of a database. It stays so while any stripe is held.
    #[inline]
    pub(crate) fn space(&self, database: u8) -> u8 {
        // Acquire: with the store in `set_spaces`; who holds a stripe has it from the lock, too.
        self.spaces[usize::from(database)].load(Ordering::Acquire)
    }

    /// Gives databases other spaces, as the medium has it already; all stripes must be held alone.
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

    /// How many keys `database` has; those that have expired and were not removed yet count. The
    /// first time it reads all keys.
    pub fn count(&self, database: u8) -> Result<u64> {
        let mut sum = 0;
        for index in 0..stripes::STRIPES as StripeIndex {
            // Relaxed: who sees it late counts a stripe more.
            if self.is_ending.load(Ordering::Relaxed) {
                return Err(fail("ERR the server is being shut down"));
            }
            let held = self.stripes.lock(SmallVec::from_slice(&[index]), Access::Shared);
            let counted = held.stripe(index).and_then(|stripe| stripe.counts.as_ref().cloned());
            drop(held);
            let counts = match counted {
                Some(counts) => counts,
                None => self.count_stripe(index)?,
            };
            let space = self.space(database);
            sum += counts.iter().find(|(of, _)| *of == space).map_or(0, |(_, count)| *count);
        }
        Ok(sum)
    }

    /// Counts of keys, and what else takes long in the background, end without a result; later ones
    /// do not begin.
    pub fn end_long_work(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    fn count_stripe(&self, index: StripeIndex) -> Result<SmallVec<[(u8, u64); 2]>> {
        let mut held = self.lock(SmallVec::from_slice(&[index]), Access::Alone)?;
        let mut counts = SmallVec::new();
        for space in self.spaces() {
            let mut count = 0;
            let mut scan = self.map.scan(stripe_range(space, index), Order::Ascending)?;
            while scan.next_record()?.is_some() {
                count += 1;
            }
            if count > 0 {
                counts.push((space, count));
            }
        }
        if let Some(stripe) = held.stripe_mut(index) {
            stripe.counts = Some(counts.clone());
        }
        Ok(counts)
    }

    /// Bytes that the pool takes of its file system, or of memory.
    pub fn occupied_bytes(&self) -> Result<u64> {
        Ok(self.pool.occupied_bytes()?)
    }

    /// Returns some of the room that is not used to the system, for a sweep.
    pub fn return_some_room(&self) -> Result<()> {
        self.room.return_some(&self.pool)
    }

    /// Whether the caller is to return all room; not if another thread is at it.
    pub fn begin_return_of_all_room(&self) -> bool {
        self.room.begin_return_of_all()
    }

    /// Gives up what [`begin_return_of_all_room`](Self::begin_return_of_all_room) has begun.
    pub fn end_return_of_all_room(&self) {
        self.room.end_return_of_all();
    }

    /// Returns all room that is not used to the system, unless the server ends; how many bytes.
    pub fn return_all_room(&self) -> Result<u64> {
        room::return_all(&self.pool, &self.is_ending)
    }

    /// Closes the pool in order.
    pub fn close(self) -> Result<()> {
        self.close_all();
        drop(self.map);
        Ok(self.pool.close()?)
    }
}
