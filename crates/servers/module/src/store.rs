//! The pool of the module: records, directory and state (`layout.rs` has the bytes).
//!
//! Only the main thread of the server changes a map that has a name. So it reads what a write
//! replaces first, and commits the writes blindly. The thread that removes garbage changes maps
//! without a name, and the state only in its own keys.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pando::WriteBatch;
use pando::{Error, KeyRange, Map, MapOptions, Pool, PoolOptions, Scan, Snapshot, SnapshotOptions};
use self_cell::self_cell;

use crate::kill_point::{fail_point, kill_point};
use crate::layout::{
    self, Entry, FORMAT, Head, Kind, MAX_KEY_BYTES, directory_key, prefix, record_key, word,
};
use crate::payload::Edit;

/// So many numbers are reserved by one commit.
const NUMBERS: u64 = 1024;

/// Memory of the pool for a record, beside its key and value: its number, its stamp and its place.
pub const RECORD_BYTES: u64 = 40;

/// How a pool is opened.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest size of a new pool; 0 for the default.
    pub pool_bytes: u64,
    /// What snapshots may keep in process memory.
    pub snapshot_bytes: u64,
    pub snapshot_age: Duration,
}

/// Something without a name, whose records are removed in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Garbage {
    Map(u64),
    Generation(u64),
}

impl Garbage {
    fn key(self) -> Vec<u8> {
        match self {
            Self::Map(number) => [&b"map"[..], &number.to_be_bytes()].concat(),
            Self::Generation(number) => [&b"generation"[..], &number.to_be_bytes()].concat(),
        }
    }
}

/// What one command changes in one map.
#[derive(Debug, Default)]
pub struct Changes {
    /// None removes the key.
    edits: BTreeMap<(Kind, Vec<u8>), Option<Vec<u8>>>,
}

impl Changes {
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.edits.insert((Kind::Record, key.to_vec()), Some(value.to_vec()));
    }

    pub fn remove(&mut self, key: &[u8]) {
        self.edits.insert((Kind::Record, key.to_vec()), None);
    }

    pub fn add(&mut self, edit: Edit<'_>) {
        self.edits.insert((edit.kind, edit.key.to_vec()), edit.value.map(<[u8]>::to_vec));
    }

    /// The edits, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = Edit<'_>> {
        self.edits.iter().map(|((kind, key), value)| Edit {
            kind: *kind,
            key,
            value: value.as_deref(),
        })
    }
}

/// The map that a command changes.
#[derive(Clone, Copy, Debug)]
pub struct Target<'name> {
    pub database: u32,
    pub name: &'name [u8],
    /// None creates the map.
    pub existing: Option<(u64, Head)>,
}

/// What a command has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    pub number: u64,
    pub head: Head,
    /// Records that were absent before.
    pub added: u64,
    /// Records that were present before.
    pub removed: u64,
    /// Whether any record or receipt has changed.
    pub is_change: bool,
}

/// A map of the pool, a key, and its value; none removes it.
type Write<'store> = (&'store Map, Vec<u8>, Option<Vec<u8>>);

/// The pool.
#[derive(Debug)]
pub struct Store {
    pool: Pool,
    records: Map,
    directory: Map,
    meta: Map,
    id: [u8; 16],
    /// The next number, and the end of the reserved ones.
    numbers: Mutex<(u64, u64)>,
    generations: Mutex<HashMap<u32, u64>>,
    /// What is listed in the pool as garbage. [`garbage`](Self::garbage) reads it.
    listed: Mutex<HashSet<Garbage>>,
}

self_cell!(
    /// A snapshot that keeps its store.
    pub struct Pinned {
        owner: Arc<Store>,
        #[covariant]
        dependent: Snapshot,
    }
);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn damaged(key: &str) -> Error {
    Error::Option {
        option: format!("{key:?} in the map pando.meta"),
        found: "another length, or nothing".to_owned(),
        allowed: "a state that this module has written".to_owned(),
    }
}

/// The range of a part of a map.
fn range(number: u64, kind: Kind, low: Bound<&[u8]>, high: Bound<&[u8]>) -> KeyRange {
    let key = |key: &[u8]| record_key(number, kind, key);
    let whole = KeyRange::prefix(&prefix(number, kind));
    let low = match low {
        Bound::Unbounded => whole.low,
        bound => bound.map(key),
    };
    let high = match high {
        Bound::Unbounded => whole.high,
        bound => bound.map(key),
    };
    KeyRange { low, high }
}

/// All keys.
pub const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

impl Store {
    fn options(limits: Limits) -> PoolOptions {
        PoolOptions::new().snapshot_limits(limits.snapshot_age, limits.snapshot_bytes)
    }

    /// Opens an existing pool.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, Error> {
        Self::on(Pool::open(path, &Self::options(limits))?, None)
    }

    /// Creates a pool, with the identity `id` and in the state *loading*.
    pub fn create(path: &Path, limits: Limits, id: [u8; 16]) -> Result<Self, Error> {
        let options = Self::options(limits);
        let options = match limits.pool_bytes {
            0 => options,
            bytes => options.max_bytes(bytes),
        };
        Self::on(Pool::create(path, &options)?, Some(id))
    }

    fn on(pool: Pool, new_id: Option<[u8; 16]>) -> Result<Self, Error> {
        let options = MapOptions::new().transactional(true);
        // An existing pool may be another program's, and stays as it is.
        let open = |name: &str| match new_id {
            Some(_) => pool.map_with(name, &options),
            None => pool.open_map(name),
        };
        let (records, directory) = (open("pando.records")?, open("pando.directory")?);
        let meta = open("pando.meta")?;
        if let Some(id) = new_id {
            let batch = WriteBatch::new()
                .put(&meta, "format", FORMAT.to_le_bytes())
                .put(&meta, "id", id)
                .put(&meta, "state", [0])
                // The number 0 stands for no map.
                .put(&meta, "numbers", 1_u64.to_le_bytes());
            pool.write(&batch)?;
        }
        let format = meta.get("format")?;
        if format.as_deref() != Some(&FORMAT.to_le_bytes()[..]) {
            return Err(Error::Option {
                option: "the format of a pool of the Redis module".to_owned(),
                found: format.map_or("none".to_owned(), |bytes| format!("{bytes:?}")),
                allowed: format!("{FORMAT}"),
            });
        }
        let id = meta.get("id")?.and_then(|id| id.try_into().ok()).ok_or_else(|| damaged("id"))?;
        let mut generations = HashMap::new();
        for record in meta.prefix("db") {
            let (key, value) = record?;
            let database = key.last_chunk().map(|bytes| u32::from_be_bytes(*bytes));
            let generation = word(&value);
            let (Some(database), Some(generation)) = (database, generation) else {
                return Err(damaged("db"));
            };
            generations.insert(database, generation);
        }
        let (numbers, generations) = (Mutex::new((0, 0)), Mutex::new(generations));
        let listed = Mutex::default();
        Ok(Self { pool, records, directory, meta, id, numbers, generations, listed })
    }

    /// Closes the pool cleanly.
    pub fn close(self) -> Result<(), Error> {
        let Self { pool, records, directory, meta, .. } = self;
        drop((records, directory, meta));
        pool.close()
    }

    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    pub fn used_bytes(&self) -> u64 {
        self.pool.used_bytes()
    }

    pub fn size_bytes(&self) -> u64 {
        self.pool.size_bytes()
    }

    pub fn max_bytes(&self) -> u64 {
        self.pool.max_bytes()
    }

    /// Whether this process was forked from the one that has opened the pool.
    pub fn has_forked(&self) -> bool {
        self.pool.has_forked()
    }

    /// A snapshot.
    pub fn pin(self: &Arc<Self>, holder: &str) -> Result<Pinned, Error> {
        let options = SnapshotOptions::new().holder(holder);
        Pinned::try_new(self.clone(), |store| store.pool.snapshot_with(options))
    }

    /// Whether the maps of the pool are complete.
    pub fn is_complete(&self) -> Result<bool, Error> {
        Ok(self.meta.get("state")?.as_deref() == Some(&[1]))
    }

    pub fn set_complete(&self, is_complete: bool) -> Result<(), Error> {
        self.meta.put("state", [is_complete.into()])
    }

    /// The number of the latest save.
    pub fn saves(&self) -> Result<u64, Error> {
        match self.meta.get("saves")? {
            None => Ok(0),
            Some(bytes) => word(&bytes).ok_or_else(|| damaged("saves")),
        }
    }

    /// Numbers a new save.
    pub fn next_save(&self) -> Result<u64, Error> {
        let save = self.saves()? + 1;
        self.meta.put("saves", save.to_le_bytes())?;
        Ok(save)
    }

    /// The number of the last file of the pool `id` that was loaded into this one.
    pub fn loaded(&self, id: [u8; 16]) -> Result<Option<u64>, Error> {
        let found = self.meta.get([&b"from"[..], &id].concat())?;
        Ok(found.and_then(|bytes| word(&bytes)))
    }

    pub fn set_loaded(&self, id: [u8; 16], save: u64) -> Result<(), Error> {
        self.meta.put([&b"from"[..], &id].concat(), save.to_le_bytes())
    }

    /// A number that no map and no generation has had.
    fn number(&self) -> Result<u64, Error> {
        let mut numbers = locked(&self.numbers);
        if numbers.0 == numbers.1 {
            let stored = self.meta.get("numbers")?.and_then(|bytes| word(&bytes));
            let next = stored.ok_or_else(|| damaged("numbers"))?;
            self.meta.put("numbers", (next + NUMBERS).to_le_bytes())?;
            *numbers = (next, next + NUMBERS);
        }
        numbers.0 += 1;
        Ok(numbers.0 - 1)
    }

    /// The databases with a directory, ascending.
    pub fn databases(&self) -> Vec<u32> {
        let mut databases: Vec<_> = locked(&self.generations).keys().copied().collect();
        databases.sort_unstable();
        databases
    }

    fn generation(&self, database: u32) -> Result<u64, Error> {
        if let Some(&generation) = locked(&self.generations).get(&database) {
            return Ok(generation);
        }
        let generation = self.number()?;
        self.meta.put(Self::database_key(database), generation.to_le_bytes())?;
        locked(&self.generations).insert(database, generation);
        Ok(generation)
    }

    fn database_key(database: u32) -> Vec<u8> {
        [&b"db"[..], &database.to_be_bytes()].concat()
    }

    /// Empties the directories of these databases, in one commit. With `to_load` the same commit
    /// makes the pool incomplete. Returns the garbage.
    pub fn flush(&self, databases: &[u32], to_load: bool) -> Result<Vec<Garbage>, Error> {
        let mut batch = WriteBatch::new();
        if to_load {
            batch = batch.put(&self.meta, "state", [0]);
        }
        let mut replaced = Vec::new();
        for &database in databases {
            let Some(old) = locked(&self.generations).get(&database).copied() else { continue };
            let new = self.number()?;
            batch = batch.put(&self.meta, Self::database_key(database), new.to_le_bytes()).put(
                &self.meta,
                Garbage::Generation(old).key(),
                [],
            );
            replaced.push((database, old, new));
        }
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        kill_point("flush before commit");
        self.pool.write(&batch)?;
        kill_point("flush after commit");
        let mut generations = locked(&self.generations);
        for &(database, _, new) in &replaced {
            generations.insert(database, new);
        }
        let garbage: Vec<_> =
            replaced.into_iter().map(|(_, old, _)| Garbage::Generation(old)).collect();
        locked(&self.listed).extend(&garbage);
        Ok(garbage)
    }

    /// Exchanges two databases, in one commit.
    pub fn swap(&self, one: u32, other: u32) -> Result<(), Error> {
        let (of_one, of_other) = (self.generation(one)?, self.generation(other)?);
        let batch = WriteBatch::new()
            .put(&self.meta, Self::database_key(one), of_other.to_le_bytes())
            .put(&self.meta, Self::database_key(other), of_one.to_le_bytes());
        kill_point("swap before commit");
        self.pool.write(&batch)?;
        kill_point("swap after commit");
        let mut generations = locked(&self.generations);
        generations.insert(one, of_other);
        generations.insert(other, of_one);
        Ok(())
    }

    /// The entry of a name.
    pub fn entry(&self, database: u32, name: &[u8]) -> Result<Option<Entry>, Error> {
        let Some(generation) = locked(&self.generations).get(&database).copied() else {
            return Ok(None);
        };
        let found = self.directory.get(directory_key(generation, name))?;
        Ok(found.as_deref().and_then(Entry::from_bytes).map(|(entry, _)| entry))
    }

    /// The entries of a database, with their names.
    pub fn entries(
        &self,
        database: u32,
    ) -> Result<impl Iterator<Item = Result<(Vec<u8>, Entry), Error>> + use<>, Error> {
        let generation = self.generation(database)?;
        Ok(self.directory.prefix(generation.to_be_bytes()).map(|record| {
            let (_, value) = record?;
            let entry = Entry::from_bytes(&value);
            let (entry, name) = entry.ok_or_else(|| damaged("an entry of the directory"))?;
            Ok((name.to_vec(), entry))
        }))
    }

    /// Sets and removes entries, and lists maps that have lost their name as garbage, in one
    /// commit.
    pub fn set_entries<'name>(
        &self,
        entries: impl Iterator<Item = (u32, &'name [u8], Option<Entry>)>,
        garbage: &[u64],
    ) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        let mut named = Vec::new();
        for (database, name, entry) in entries {
            named.extend(entry.map(|entry| Garbage::Map(entry.number)));
            fail_point(format_args!("name {}", name.escape_ascii()))?;
            let key = directory_key(self.generation(database)?, name);
            batch = match entry {
                // A map that was loaded is garbage until it has a name.
                Some(entry) => batch
                    .put(&self.directory, key, entry.to_bytes(name))
                    .remove(&self.meta, Garbage::Map(entry.number).key()),
                None => batch.remove(&self.directory, key),
            };
        }
        for &number in garbage {
            batch = batch.put(&self.meta, Garbage::Map(number).key(), []);
        }
        kill_point("names before commit");
        fail_point("names before commit")?;
        if !batch.is_empty() {
            self.pool.write(&batch)?;
        }
        let mut listed = locked(&self.listed);
        for map in &named {
            listed.remove(map);
        }
        listed.extend(garbage.iter().map(|&number| Garbage::Map(number)));
        drop(listed);
        kill_point("names after commit");
        Ok(())
    }

    /// A new map without a name. It is garbage until [`set_entries`](Self::set_entries) names it.
    pub fn create_unnamed(&self) -> Result<u64, Error> {
        let number = self.number()?;
        self.meta.put(Garbage::Map(number).key(), [])?;
        locked(&self.listed).insert(Garbage::Map(number));
        Ok(number)
    }

    /// Adds records to a map without a name.
    pub fn fill<'bytes>(
        &self,
        number: u64,
        edits: impl Iterator<Item = Edit<'bytes>>,
    ) -> Result<(), Error> {
        kill_point("fill");
        fail_point("fill")?;
        for edit in edits {
            let value = edit.value.unwrap_or_default();
            self.records.put(record_key(number, edit.kind, edit.key), value)?;
        }
        Ok(())
    }

    /// Ends [`fill`](Self::fill).
    pub fn set_head(&self, number: u64, head: Head) -> Result<(), Error> {
        self.records.put(prefix(number, Kind::Head), head.to_bytes())
    }

    pub fn head(&self, number: u64) -> Result<Head, Error> {
        let head = self.records.get(prefix(number, Kind::Head))?;
        head.as_deref().and_then(Head::from_bytes).ok_or_else(|| damaged("the head of a map"))
    }

    /// A record. No map has one with a longer key than clients may set.
    pub fn get(&self, number: u64, kind: Kind, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if key.len() > MAX_KEY_BYTES {
            return Ok(None);
        }
        self.records.get(record_key(number, kind, key))
    }

    /// The records or receipts of a map as they are now.
    pub fn scan(
        &self,
        number: u64,
        kind: Kind,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Scan<'static> {
        self.records.range(range(number, kind, low, high))
    }

    /// Changes maps, in one commit. `Changed` is in the order of the targets, and says for each map
    /// the figures that it has then. A map that becomes empty loses its entry.
    pub fn change(&self, targets: &[(Target<'_>, &Changes)]) -> Result<Vec<Changed>, Error> {
        let mut writes: Vec<Write<'_>> = Vec::new();
        let mut all = Vec::with_capacity(targets.len());
        for (target, changes) in targets {
            let (number, old_head) = match target.existing {
                Some(existing) => existing,
                None => (self.number()?, Head::default()),
            };
            let mut changed = Changed { number, head: old_head, ..Changed::default() };
            let Changed { head, added, removed, is_change, .. } = &mut changed;
            for edit in changes.iter() {
                let key = record_key(number, edit.kind, edit.key);
                let old = match target.existing {
                    Some(_) => self.records.get(&key)?,
                    None => None,
                };
                if old.as_deref() == edit.value {
                    continue;
                }
                *is_change = true;
                let lengths = |value: &[u8]| (edit.key.len() + value.len()) as u64;
                head.bytes -= old.as_deref().map_or(0, lengths).min(head.bytes);
                head.bytes += edit.value.map_or(0, lengths);
                let (gained, lost) = (old.is_none(), edit.value.is_none());
                let count = match edit.kind {
                    Kind::Receipt => &mut head.receipts,
                    _ => {
                        *added += u64::from(gained);
                        *removed += u64::from(lost);
                        &mut head.records
                    }
                };
                *count = (*count + u64::from(gained)).saturating_sub(lost.into());
                writes.push((&self.records, key, edit.value.map(<[u8]>::to_vec)));
            }
            if changed.head != old_head {
                let is_gone = changed.head.is_empty();
                let head = (!is_gone).then(|| changed.head.to_bytes().to_vec());
                writes.push((&self.records, prefix(number, Kind::Head).to_vec(), head));
                let key = || -> Result<_, Error> {
                    Ok(directory_key(self.generation(target.database)?, target.name))
                };
                if is_gone {
                    writes.push((&self.directory, key()?, None));
                } else if target.existing.is_none() {
                    let entry = Entry { number, expiry_ms: layout::NEVER }.to_bytes(target.name);
                    writes.push((&self.directory, key()?, Some(entry)));
                }
            }
            all.push(changed);
        }
        kill_point("change before commit");
        fail_point("change before commit")?;
        match writes.as_slice() {
            [] => {}
            // A commit of one key is cheaper than a batch.
            [(map, key, Some(value))] => map.put(key, value)?,
            _ => self.pool.transaction(|transaction| {
                writes.iter().try_for_each(|(map, key, value)| match value {
                    Some(value) => transaction.put(map, key, value),
                    None => transaction.remove(map, key),
                })
            })?,
        }
        kill_point("change after commit");
        Ok(all)
    }

    /// How much is to be removed: maps, and directories of databases.
    pub fn garbage_count(&self) -> usize {
        locked(&self.listed).len()
    }

    /// All that is to be removed, as the pool has it. Called once, at the start.
    pub fn garbage(&self) -> Result<Vec<Garbage>, Error> {
        let mut found = Vec::new();
        let of = |key: &[u8]| key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        for record in self.meta.prefix("map") {
            found.extend(of(&record?.0).map(Garbage::Map));
        }
        for record in self.meta.prefix("generation") {
            found.extend(of(&record?.0).map(Garbage::Generation));
        }
        *locked(&self.listed) = found.iter().copied().collect();
        Ok(found)
    }

    /// Removes up to `most` records of some garbage. Returns true at its end. The maps of a
    /// generation become garbage of their own, which `found` gets.
    pub fn remove_some(
        &self,
        garbage: Garbage,
        most: usize,
        found: &mut Vec<Garbage>,
    ) -> Result<bool, Error> {
        kill_point("garbage");
        fail_point("garbage")?;
        let mut removed = 0;
        match garbage {
            Garbage::Map(number) => {
                let low = prefix(number, Kind::Head).to_vec();
                let high = prefix(number + 1, Kind::Head).to_vec();
                let scan = self.records.range(low..high).expecting(most).take(most);
                for record in scan {
                    self.records.remove(record?.0)?;
                    removed += 1;
                }
            }
            Garbage::Generation(number) => {
                let scan = self.directory.prefix(number.to_be_bytes()).expecting(most).take(most);
                for record in scan {
                    let (key, value) = record?;
                    let mut batch = WriteBatch::new().remove(&self.directory, key);
                    if let Some((entry, _)) = Entry::from_bytes(&value) {
                        let map = Garbage::Map(entry.number);
                        batch = batch.put(&self.meta, map.key(), []);
                        locked(&self.listed).insert(map);
                        found.push(map);
                    }
                    self.pool.write(&batch)?;
                    removed += 1;
                }
            }
        }
        if removed < most {
            self.meta.remove(garbage.key())?;
            locked(&self.listed).remove(&garbage);
        }
        Ok(removed < most)
    }

    /// Returns free room of the file to the system; how many bytes.
    pub fn release_room(&self) -> Result<u64, Error> {
        self.pool.release_unused(1 << 20)
    }
}

impl Pinned {
    pub fn get(&self, number: u64, kind: Kind, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if key.len() > MAX_KEY_BYTES {
            return Ok(None);
        }
        let records = &self.borrow_owner().records;
        self.borrow_dependent().get(records, record_key(number, kind, key))
    }

    /// The records or receipts of a map as they were.
    pub fn scan(
        &self,
        number: u64,
        kind: Kind,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Scan<'_> {
        let records = &self.borrow_owner().records;
        self.borrow_dependent().range(records, range(number, kind, low, high))
    }
}
