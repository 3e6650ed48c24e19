//! The store: clients' keys in an ordered map of a pool.
//!
//! * `layout.rs`: what records are called and what stands in them.
//! * `stripes.rs`: the locks that make commands atomic to each other.
//! * `transaction.rs`: what a command reads and writes.
//! * `writes.rs`: its writes, until they are made. `change.rs`: the only write of a command, at
//!   once.
//! * `intents.rs`: how several writes become durable as one.
//! * `pieces.rs`: long strings.
//! * `counts.rs`: how many fields collections have that are changed one element at a time.
//! * `sweep.rs`: what is removed in the background: what has expired, what was flushed or dropped.
//! * `memory.rs`: a limit on memory, and what goes when it is reached.
//! * `room.rs`: room that no record uses goes back to the system.
//! * `snapshot.rs`: copies of a moment, written while commands go on. `salvage.rs`: what can be
//!   read of a pool that cannot be trusted.
//! * `known.rs`: how many keys there are.
//! * `heads.rs`: visits to heads, copies of them, changes of when they expire.
//! * `clock.rs`: a clock that no step moves.
//!
//! All is in one map, `server`. Besides heads and elements (`layout.rs`):
//!
//! ```text
//! key                                        value
//! 0xA0  when it expires (8)  head's key      empty                       for the sweep
//! 0xC0  collection (7)                       empty                       to be removed by the sweep
//! 0xD0  intent's number (8), or all ones     zeros                       room, see `intents.rs`
//! 0xE0  "clock" | "spaces" | "ids" | ...     as below                    the store's own
//! 0xF0  intent's number (8)                  writes to be made           see `intents.rs`
//! ```
//!
//! * `clock`: see [`clock`].
//! * `spaces`: a byte for each database, its space. A space that no database has is swept.
//! * `ids`: numbers of collections below it may be in use, and starts of the server below its upper
//!   half have been (8 bytes each).
//! * `restoring`: nothing; it stands as long as a snapshot is being loaded.

pub(crate) mod change;
pub(crate) mod clock;
mod counts;
mod heads;
mod intents;
pub(crate) mod known;
pub(crate) mod layout;
pub(crate) mod memory;
mod pieces;
mod room;
mod salvage;
pub(crate) mod snapshot;
pub(crate) mod stripes;
mod sweep;
#[cfg(test)]
pub(crate) mod tests;
mod transaction;
mod writes;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use pando::{KeyRange, Map, MapOptions, Order, Pool, PoolOptions};
use parking_lot::Mutex;
use smallvec::SmallVec;

use self::clock::Clock;
use self::counts::Counts;
use self::layout::{CollectionId, HASH_BITS, SPACES, head_prefix};
use self::memory::Memory;
use self::pieces::Drafts;
use self::room::Room;
use self::snapshot::Snapshots;
use self::stripes::{Access, Held, StripeIndex, Stripes, Wanted, hashes_of};
pub(crate) use self::transaction::Transaction;
use crate::failure::{Failure, Result, said};

/// Databases, as SELECT counts them.
pub(crate) const DATABASES: u8 = 16;
/// Longest key of a client's, and longest field, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 32_000;

/// The name of the map in which a store keeps its keys.
pub const MAP_NAME: &str = "server";
const RESTORING: &str = "restoring";
const EXPIRY: u8 = 0xA0;
const GARBAGE: u8 = 0xC0;
const BALLAST: u8 = 0xD0;
const OWN: u8 = 0xE0;
const INTENT: u8 = 0xF0;
/// Numbers of collections that are taken from the medium at once.
const IDS_AT_ONCE: u64 = 1 << 20;

/// Keys in the map `server` that are no clients'.
pub(crate) mod own_keys {
    use super::{BALLAST, EXPIRY, GARBAGE, INTENT, OWN};
    use crate::store::layout::CollectionId;

    pub(crate) fn expiry(at_ms: u64, head_key: &[u8]) -> Vec<u8> {
        [&[EXPIRY][..], &at_ms.to_be_bytes(), head_key].concat()
    }

    /// When, and the head's key.
    pub(crate) fn split_expiry(key: &[u8]) -> Option<(u64, &[u8])> {
        let (at_ms, head_key) = key.strip_prefix(&[EXPIRY])?.split_first_chunk::<8>()?;
        Some((u64::from_be_bytes(*at_ms), head_key))
    }

    pub(crate) fn garbage(id: CollectionId) -> Vec<u8> {
        (u64::from(GARBAGE) << 56 | id).to_be_bytes().to_vec()
    }

    pub(crate) fn split_garbage(key: &[u8]) -> Option<CollectionId> {
        let word = u64::from_be_bytes(key.try_into().ok()?);
        (word >> 56 == u64::from(GARBAGE)).then_some(word & ((1 << 56) - 1))
    }

    pub(crate) fn own(name: &str) -> Vec<u8> {
        [&[OWN][..], name.as_bytes()].concat()
    }

    pub(crate) fn intent(number: u64) -> Vec<u8> {
        [&[INTENT][..], &number.to_be_bytes()].concat()
    }

    pub(crate) fn intent_reserve(number: u64) -> Vec<u8> {
        [&[BALLAST][..], &number.to_be_bytes()].concat()
    }

    pub(crate) const EXPIRIES: &[u8] = &[EXPIRY];
    pub(crate) const GARBAGES: &[u8] = &[GARBAGE];
    pub(crate) const BALLASTS: &[u8] = &[BALLAST];
    pub(crate) const INTENTS: &[u8] = &[INTENT];
}

/// How a store is opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreOptions {
    /// The pool's options.
    pub pool: PoolOptions,
    /// The kind of index of a new store.
    pub index: Option<String>,
}

/// Clients' keys in a pool; see the module.
pub(crate) struct Store {
    map: Map,
    pool: Pool,
    clock: Clock,
    /// When it was opened, by its clock.
    opened_at_ms: u64,
    stripes: Stripes,
    /// The space of each database; changes only while all stripes are held.
    spaces: [AtomicU8; DATABASES as usize],
    ids: Mutex<Ids>,
    drafts: Drafts,
    counts: Counts,
    /// How often the store has been opened, this time included.
    starts: u64,
    next_cas: AtomicU64,
    next_intent: AtomicU64,
    /// An intent stands that could not be carried out yet.
    is_behind: AtomicBool,
    /// The sweep has work besides what expires.
    has_garbage: AtomicBool,
    /// Whether the server ends, and with it what takes long in the background.
    is_ending: AtomicBool,
    snapshots: Snapshots,
    memory: Memory,
    room: Room,
    #[cfg(test)]
    refusals: tests::Refusals,
}

/// Numbers for collections and long strings.
#[derive(Debug)]
struct Ids {
    next: CollectionId,
    /// What the medium says: below it.
    end: CollectionId,
}

/// The keys of all heads of a stripe in `space`.
fn stripe_range(space: u8, index: StripeIndex) -> KeyRange {
    let (first, last) = hashes_of(index);
    // Spaces end below the first byte's last values, so there is a next one.
    let end = u64::from_be_bytes(head_prefix(space, last)) + 1;
    KeyRange::between(&head_prefix(space, first), &end.to_be_bytes())
}

impl Store {
    /// Opens the store in the pool `path`, or in anonymous memory; a new one if there is none.
    pub(crate) fn open(path: Option<&Path>, options: &StoreOptions) -> Result<Self> {
        let pool = match path {
            Some(path) => Pool::open_or_create(path, &options.pool)?,
            None => Pool::volatile(&options.pool)?,
        };
        let mut map_options = MapOptions::new();
        if let Some(kind) = &options.index {
            map_options = map_options.kind(kind);
        }
        let map = pool.map_with(MAP_NAME, &map_options)?;
        if map.get(&own_keys::own(RESTORING))?.is_some() {
            return Err(said(
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
            refusals: tests::Refusals::default(),
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
            return Err(said("ERR all numbers for collections were used"));
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
    pub(crate) fn new_cas(&self) -> u64 {
        // Relaxed: only its being new matters.
        self.next_cas.fetch_add(1, Ordering::Relaxed)
    }

    /// The store's clock.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The pool beneath.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// How often the store has been opened, this time included.
    pub(crate) fn starts(&self) -> u64 {
        self.starts
    }

    /// Waits for stripes, which may stand in any order and more than once. Held alone, they may be
    /// written.
    pub(crate) fn lock(&self, wanted: Wanted, access: Access) -> Result<Held<'_>> {
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
    fn set_spaces(&self, spaces: [u8; DATABASES as usize]) {
        for (kept, space) in self.spaces.iter().zip(spaces) {
            kept.store(space, Ordering::Release);
        }
        self.has_garbage.store(true, Ordering::Release);
        self.room.look_now();
    }

    fn spaces(&self) -> [u8; DATABASES as usize] {
        std::array::from_fn(|database| self.space(database as u8))
    }

    /// How many keys `database` has; those that have expired and were not removed yet count. The
    /// first time it reads all keys.
    pub(crate) fn count(&self, database: u8) -> Result<u64> {
        let mut sum = 0;
        for index in 0..stripes::STRIPES as StripeIndex {
            // Relaxed: who sees it late counts a stripe more.
            if self.is_ending.load(Ordering::Relaxed) {
                return Err(said("ERR the server is being shut down"));
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
    pub(crate) fn end_long_work(&self) {
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

    /// A transaction under locks that are held, at this moment.
    pub(crate) fn begin<'store>(
        &'store self,
        held: Held<'store>,
        now_ms: u64,
    ) -> Transaction<'store> {
        Transaction::new(self, held, now_ms)
    }

    /// Closes the pool in order.
    pub(crate) fn close(self) -> Result<()> {
        self.close_all();
        drop(self.map);
        Ok(self.pool.close()?)
    }
}
