//! A stand-in for the real engine, until the crates below are in place: maps in memory under a
//! lock, each change appended to a file before it returns. It survives `kill -9`, so that
//! everything above it can be tested; it is nothing else than that.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use pando_index::{Cursor, KeyRange, Limits, Order, RangeIndex, Record, Upserted};

use super::Engine;
use crate::report::{CheckReport, MapInfo, MapStat, PoolStat, RecoveryStat};
use crate::{DomainChoice, Error, IndexKind, MapOptions, PoolOptions, ValueMode};

const MAGIC: &[u8; 16] = b"PANDO-STANDIN-1\n";
const BATCH_RECORDS: usize = 64;

#[derive(Clone, Copy, PartialEq)]
#[repr(u8)]
enum Change {
    CreateMap = 1,
    DropMap = 2,
    Put = 3,
    Remove = 4,
}

type Tree = RwLock<BTreeMap<Vec<u8>, Vec<u8>>>;

struct Standin {
    path: Option<PathBuf>,
    log: Arc<Log>,
    maps: Mutex<BTreeMap<String, Arc<Tree>>>,
    domain: DomainChoice,
    recovery: RecoveryStat,
}

/// The file, or nothing for a volatile pool.
struct Log(Option<Mutex<File>>);

impl Log {
    fn append(
        &self,
        change: Change,
        map: &str,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), std::io::Error> {
        let Some(file) = &self.0 else { return Ok(()) };
        let mut entry = vec![change as u8];
        for part in [map.as_bytes(), key, value] {
            entry.extend_from_slice(&(part.len() as u32).to_le_bytes());
        }
        for part in [map.as_bytes(), key, value] {
            entry.extend_from_slice(part);
        }
        file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&entry)
    }
}

pub(super) fn create(path: &Path, options: &PoolOptions) -> Result<Box<dyn Engine>, Error> {
    let io = |action| move |source| Error::Io { action, path: path.to_owned(), source };
    let mut file = match OpenOptions::new().read(true).append(true).create_new(true).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Error::PoolExists { path: path.to_owned() });
        }
        opened => opened.map_err(io("create"))?,
    };
    lock(&file, path)?;
    file.write_all(MAGIC).map_err(io("write"))?;
    start(Some(path), Some(file), BTreeMap::new(), options, RecoveryStat::default())
}

pub(super) fn open(path: &Path, options: &PoolOptions) -> Result<Box<dyn Engine>, Error> {
    let start_of_open = Instant::now();
    let io = |action| move |source| Error::Io { action, path: path.to_owned(), source };
    let mut file = match OpenOptions::new().read(true).append(true).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::PoolNotFound { path: path.to_owned() });
        }
        opened => opened.map_err(io("open"))?,
    };
    lock(&file, path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(io("read"))?;
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        let message = format!("{} is not a pool: its first bytes are not a pool's", path.display());
        return Err(Error::Storage(message.into()));
    };
    let mut maps = BTreeMap::new();
    while let Some(entry) = replay(&mut maps, rest) {
        rest = entry;
    }
    file.set_len((bytes.len() - rest.len()) as u64).map_err(io("truncate"))?;
    let duration_ns = start_of_open.elapsed().as_nanos() as u64;
    let recovery = RecoveryStat { was_clean: rest.is_empty(), duration_ns };
    start(Some(path), Some(file), maps, options, recovery)
}

pub(super) fn volatile(options: &PoolOptions) -> Result<Box<dyn Engine>, Error> {
    start(None, None, BTreeMap::new(), options, RecoveryStat::default())
}

fn lock(file: &File, path: &Path) -> Result<(), Error> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Error::PoolBusy { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => {
            Err(Error::Io { action: "lock", path: path.to_owned(), source })
        }
    }
}

fn start(
    path: Option<&Path>,
    file: Option<File>,
    maps: BTreeMap<String, Arc<Tree>>,
    options: &PoolOptions,
    recovery: RecoveryStat,
) -> Result<Box<dyn Engine>, Error> {
    let volatile = DomainChoice::Volatile;
    let process = DomainChoice::Process;
    Ok(Box::new(Standin {
        domain: match (options.domain, &file) {
            (DomainChoice::Auto, Some(_)) => process,
            (DomainChoice::Auto, None) => volatile,
            (chosen, _) => chosen,
        },
        path: path.map(Path::to_owned),
        log: Arc::new(Log(file.map(Mutex::new))),
        maps: Mutex::new(maps),
        recovery,
    }))
}

/// Applies one entry of the log and returns what is behind it, or none if it is cut off.
fn replay<'log>(maps: &mut BTreeMap<String, Arc<Tree>>, log: &'log [u8]) -> Option<&'log [u8]> {
    let (&change, mut rest) = log.split_first()?;
    let mut lengths = [0usize; 3];
    for length in &mut lengths {
        let (bytes, behind) = rest.split_first_chunk::<4>()?;
        *length = u32::from_le_bytes(*bytes) as usize;
        rest = behind;
    }
    let (name, rest) = rest.split_at_checked(lengths[0])?;
    let (key, rest) = rest.split_at_checked(lengths[1])?;
    let (value, rest) = rest.split_at_checked(lengths[2])?;
    let name = String::from_utf8_lossy(name).into_owned();
    if change == Change::DropMap as u8 {
        maps.remove(&name);
        return Some(rest);
    }
    let tree = maps.entry(name).or_default();
    let mut tree = tree.write().unwrap_or_else(PoisonError::into_inner);
    if change == Change::Put as u8 {
        tree.insert(key.to_vec(), value.to_vec());
    } else if change == Change::Remove as u8 {
        tree.remove(key);
    }
    Some(rest)
}

impl Standin {
    fn with_maps<T>(&self, use_maps: impl FnOnce(&mut BTreeMap<String, Arc<Tree>>) -> T) -> T {
        use_maps(&mut self.maps.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn append(&self, change: Change, map: &str) -> Result<(), Error> {
        self.log.append(change, map, &[], &[]).map_err(|error| Error::Storage(error.into()))
    }
}

impl Engine for Standin {
    fn max_map_name_bytes(&self) -> usize {
        64
    }

    fn map_options(&self, name: &str) -> Result<Option<MapOptions>, Error> {
        let options = MapOptions::new().kind(IndexKind::BzTree).value_mode(ValueMode::Inline);
        let options = options.leaf_bytes(1024);
        Ok(self.with_maps(|maps| maps.contains_key(name)).then_some(options))
    }

    fn create_map(&self, name: &str, _options: &MapOptions) -> Result<(), Error> {
        self.append(Change::CreateMap, name)?;
        self.with_maps(|maps| maps.insert(name.to_owned(), Arc::default()));
        Ok(())
    }

    fn open_map(&self, name: &str) -> Result<Arc<dyn RangeIndex>, Error> {
        let tree = self.with_maps(|maps| Arc::clone(maps.entry(name.to_owned()).or_default()));
        Ok(Arc::new(StandinMap { name: name.to_owned(), log: Arc::clone(&self.log), tree }))
    }

    fn maps(&self) -> Result<Vec<MapInfo>, Error> {
        let info = |name: &String| MapInfo { name: name.clone(), kind: IndexKind::BzTree };
        Ok(self.with_maps(|maps| maps.keys().map(info).collect()))
    }

    fn drop_map(&self, name: &str) -> Result<(), Error> {
        self.append(Change::DropMap, name)?;
        self.with_maps(|maps| maps.remove(name));
        Ok(())
    }

    fn stat(&self) -> Result<PoolStat, Error> {
        let maps = self.with_maps(|maps| {
            maps.iter()
                .map(|(name, tree)| MapStat {
                    name: name.clone(),
                    kind: IndexKind::BzTree,
                    value_mode: ValueMode::Inline,
                    height: 1,
                    inner_nodes: 0,
                    leaves: 1,
                    records: tree.read().unwrap_or_else(PoisonError::into_inner).len() as u64,
                    leaf_fill: 0.0,
                    bytes_a_record: 0.0,
                })
                .collect()
        });
        Ok(PoolStat {
            path: self.path.clone(),
            domain: self.domain.to_string(),
            medium: "a stand-in".to_owned(),
            guarantee: "what has returned survives the death of the process".to_owned(),
            recovery: self.recovery.clone(),
            maps,
            ..PoolStat::default()
        })
    }

    fn check(&self) -> Result<CheckReport, Error> {
        let maps = self.maps()?.len() as u64;
        Ok(CheckReport { maps, ..CheckReport::default() })
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

struct StandinMap {
    name: String,
    log: Arc<Log>,
    tree: Arc<Tree>,
}

type IndexError = pando_index::Error;

impl StandinMap {
    /// Writes the value that `decide` makes of the one that is there.
    fn put<'value>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&Vec<u8>>) -> Result<&'value [u8], IndexError>,
    ) -> Result<Upserted, IndexError> {
        let Limits { max_key_bytes, max_value_bytes } = self.limits();
        if key.len() > max_key_bytes {
            let found_bytes = key.len();
            return Err(IndexError::KeyTooLong { found_bytes, max_bytes: max_key_bytes });
        }
        let mut tree = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        let value = decide(tree.get(key))?;
        if value.len() > max_value_bytes {
            let found_bytes = value.len();
            return Err(IndexError::ValueTooLong { found_bytes, max_bytes: max_value_bytes });
        }
        self.log
            .append(Change::Put, &self.name, key, value)
            .map_err(|error| IndexError::Storage(error.into()))?;
        match tree.insert(key.to_vec(), value.to_vec()) {
            Some(_) => Ok(Upserted::Updated),
            None => Ok(Upserted::Inserted),
        }
    }
}

impl RangeIndex for StandinMap {
    fn limits(&self) -> Limits {
        Limits { max_key_bytes: 32 << 10, max_value_bytes: 1 << 30 }
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), IndexError> {
        self.put(
            key,
            |there| if there.is_some() { Err(IndexError::KeyExists) } else { Ok(value) },
        )?;
        Ok(())
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<(), IndexError> {
        self.put(key, |there| there.map(|_| value).ok_or(IndexError::KeyNotFound))?;
        Ok(())
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<Upserted, IndexError> {
        self.put(key, |_| Ok(value))
    }

    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, IndexError> {
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        Ok(tree.get(key).map(|value| visit(value)).is_some())
    }

    fn remove(&self, key: &[u8]) -> Result<bool, IndexError> {
        let mut tree = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        if !tree.contains_key(key) {
            return Ok(false);
        }
        self.log
            .append(Change::Remove, &self.name, key, &[])
            .map_err(|error| IndexError::Storage(error.into()))?;
        Ok(tree.remove(key).is_some())
    }

    fn compare_exchange(&self, key: &[u8], expected: &[u8], new: &[u8]) -> Result<(), IndexError> {
        self.put(key, |there| match there {
            None => Err(IndexError::KeyNotFound),
            Some(value) if value != expected => Err(IndexError::ValueMismatch),
            Some(_) => Ok(new),
        })?;
        Ok(())
    }

    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>, IndexError> {
        let rest = Some(range);
        Ok(Box::new(StandinCursor { tree: &self.tree, rest, order, batch: Vec::new(), next: 0 }))
    }

    fn len(&self) -> Result<u64, IndexError> {
        Ok(self.tree.read().unwrap_or_else(PoisonError::into_inner).len() as u64)
    }
}

struct StandinCursor<'tree> {
    tree: &'tree Tree,
    rest: Option<KeyRange>,
    order: Order,
    batch: Vec<(Vec<u8>, Vec<u8>)>,
    next: usize,
}

impl StandinCursor<'_> {
    fn fill(&mut self) {
        self.next = 0;
        self.batch.clear();
        let Some(range) = &mut self.rest else { return };
        if is_empty(range) {
            return;
        }
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        let bounds = (range.low.clone(), range.high.clone());
        let records = tree.range::<Vec<u8>, _>(bounds);
        let copy = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        self.batch = match self.order {
            Order::Ascending => records.map(copy).take(BATCH_RECORDS).collect(),
            Order::Descending => records.rev().map(copy).take(BATCH_RECORDS).collect(),
        };
        match (self.batch.last(), self.order) {
            (None, _) => self.rest = None,
            (Some((key, _)), Order::Ascending) => range.low = Bound::Excluded(key.clone()),
            (Some((key, _)), Order::Descending) => range.high = Bound::Excluded(key.clone()),
        }
    }
}

/// Whether no key lies in the range: `BTreeMap::range` panics on these.
fn is_empty(range: &KeyRange) -> bool {
    match (&range.low, &range.high) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (
            Bound::Included(low) | Bound::Excluded(low),
            Bound::Included(high) | Bound::Excluded(high),
        ) => low >= high,
    }
}

impl Cursor for StandinCursor<'_> {
    fn next(&mut self) -> Result<Option<Record<'_>>, IndexError> {
        if self.next == self.batch.len() {
            self.fill();
        }
        let record = self.batch.get(self.next);
        self.next += 1;
        if record.is_none() {
            self.next = self.batch.len();
        }
        Ok(record.map(|(key, value)| (key.as_slice(), value.as_slice())))
    }
}
