//! A store with its log, on simulated directories, and what it must have after a crash: all commits
//! up to an LSN, and none behind it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pando_device::Directory;
use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_store::{Error, Store, StoreOptions};
use pando_tc::TransactionalMap;
use tempfile::TempDir;

use crate::common::options;

/// Where a store is.
#[derive(Debug)]
pub struct Place {
    folder: Arc<TempDir>,
    pub pages: Simulated,
    pub log: Simulated,
    pub control: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let folder = Arc::new(tempfile::tempdir_in("/dev/shm").expect("a folder"));
        Self::of(folder, Simulated::new(), Simulated::new())
    }

    fn of(folder: Arc<TempDir>, pages: Simulated, log: Simulated) -> Self {
        static PLACES: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only different from all others.
        let name = format!("control {}", PLACES.fetch_add(1, Ordering::Relaxed));
        Self { control: folder.path().join(name), folder, pages, log }
    }

    pub fn open(&self) -> Store {
        self.open_with(&options())
    }

    pub fn open_with(&self, options: &StoreOptions) -> Store {
        self.try_open(options).expect("opens")
    }

    pub fn try_open(&self, options: &StoreOptions) -> Result<Store, Error> {
        let log: Arc<dyn Directory> = Arc::new(self.log.clone());
        Store::open_in(Arc::new(self.pages.clone()), &log, &self.control, options)
    }

    /// What a kill leaves now.
    pub fn after_kill(&self) -> Self {
        let image = self.copy_after_cut();
        std::fs::copy(&self.control, &image.control).expect("copied");
        image
    }

    /// A copy of what a power cut has left.
    pub fn copy_after_cut(&self) -> Self {
        Self::of(self.folder.clone(), self.pages.after_kill(), self.log.after_kill())
    }

    /// What a power cut leaves now.
    pub fn after_cut(&self, kept: Kept, random: &mut Random) -> Self {
        let (pages, log) = (self.pages.cut_power(kept, random), self.log.cut_power(kept, random));
        Self::of(self.folder.clone(), pages, log)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.control);
    }
}

/// Marks the pool of the tail as in use, as a kill leaves it, and drops the store.
pub fn kill(store: Store) {
    store.component().log().pool().clone().abandon();
    drop(store);
}

/// The records of both maps.
pub type Model = BTreeMap<(u64, Vec<u8>), Vec<u8>>;
/// Writes of a commit: map, key, and the new value, or none to remove the key.
pub type Writes = Vec<(u64, Vec<u8>, Option<Vec<u8>>)>;

pub fn commit(store: &Store, writes: &Writes) -> pando_tc::Result<u64> {
    let body = |transaction: &mut pando_tc::Transaction<'_, _, _>| {
        writes.iter().try_for_each(|(map, key, value)| match value {
            Some(value) => transaction.put(*map, key, value),
            None => transaction.remove(*map, key),
        })
    };
    store.component().transaction(body).map(|(_, lsn)| lsn)
}

/// A blind write; its LSN, if no other thread commits.
pub fn put_blind(store: &Store, map: u64, key: &[u8], value: &[u8]) -> pando_tc::Result<u64> {
    let component = store.component();
    let index = component.maps().index(map);
    TransactionalMap::new(component.clone(), map, index)?.put(key, value)?;
    component.newest_lsn()
}

/// All records of the maps, as a transaction reads them.
pub fn read_all(store: &Store, maps: &[u64]) -> Model {
    let body = |transaction: &mut pando_tc::Transaction<'_, _, _>| {
        let mut records = Model::new();
        for &map in maps {
            transaction.scan(map, KeyRange::all(), Order::Ascending, &mut |key, value| {
                records.insert((map, key.to_vec()), value.to_vec());
                ControlFlow::Continue(())
            })?;
        }
        Ok::<_, pando_tc::Error>(records)
    };
    store.component().transaction(body).expect("reads").0
}

#[track_caller]
pub fn check(store: &Store) {
    let problems = store.check().expect("written");
    assert!(problems.is_empty(), "{problems:#?}");
}

/// What was committed, and what must survive.
#[derive(Debug, Default)]
pub struct Commits {
    done: Vec<(u64, Writes)>,
    /// The commit that a thread has begun.
    begun: Option<Writes>,
    synced: u64,
}

/// Commits that a hook of a directory looks at.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<Mutex<Commits>>);

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, Commits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn commit(&self, store: &Store, writes: Writes) -> pando_tc::Result<u64> {
        self.lock().begun = Some(writes.clone());
        let lsn = match writes.as_slice() {
            // Half of the single writes are blind.
            [(map, key, Some(value))] if key.last().is_some_and(|last| last % 2 == 0) => {
                put_blind(store, *map, key, value)
            }
            _ => commit(store, &writes),
        };
        let mut commits = self.lock();
        commits.begun = None;
        if let Ok(lsn) = &lsn {
            commits.done.push((*lsn, writes));
        }
        lsn
    }

    pub fn sync(&self, store: &Store) {
        self.try_sync(store).expect("durable");
    }

    pub fn try_sync(&self, store: &Store) -> Result<(), Error> {
        let lsn = store.sync()?;
        self.lock().synced = lsn;
        Ok(())
    }
}

impl Commits {
    /// Checks what an opening has found after a crash.
    #[track_caller]
    pub fn check(&self, store: &Store, maps: &[u64], is_kill: bool, what: &str) {
        let end = store.stat().expect("reads").recovery.end_lsn;
        let newest = self.done.last().map_or(0, |(lsn, _)| *lsn);
        assert!(end >= self.synced, "{what}: it ends at {end}, and {} was synced", self.synced);
        assert!(!is_kill || end >= newest, "{what}: it ends at {end}, before {newest}");
        let mut expected = Model::new();
        for (_, writes) in self.done.iter().filter(|(lsn, _)| *lsn <= end) {
            apply(&mut expected, writes);
        }
        let found = read_all(store, maps);
        // It may have been decided, or not.
        if end > newest
            && let Some(begun) = &self.begun
            && found != expected
        {
            apply(&mut expected, begun);
        }
        assert!(found == expected, "{what}, up to {end}: {}", difference(&found, &expected));
    }
}

fn apply(model: &mut Model, writes: &Writes) {
    for (map, key, value) in writes {
        match value {
            Some(value) => model.insert((*map, key.clone()), value.clone()),
            None => model.remove(&(*map, key.clone())),
        };
    }
}

fn difference(found: &Model, expected: &Model) -> String {
    let keys = found.keys().chain(expected.keys());
    let other = keys.filter(|key| found.get(*key) != expected.get(*key));
    let shown = other.take(4).map(|key| {
        format!("{key:?} is {:?} and should be {:?}", found.get(key), expected.get(key))
    });
    format!(
        "{} and {} records; {}",
        found.len(),
        expected.len(),
        shown.collect::<Vec<_>>().join("; ")
    )
}

/// Random commits to two maps.
pub struct Random2(pub Random);

impl Random2 {
    pub fn writes(&mut self, maps: [u64; 2], keys: u64, step: u64) -> Writes {
        let random = &mut self.0;
        let count = if random.one_in(4) { 1 + random.below(12) } else { 1 };
        let removes = if (step / 400).is_multiple_of(2) { 2 } else { 7 };
        let mut writes = BTreeMap::new();
        for _ in 0..count {
            let map = maps[random.below(2) as usize];
            let key = random.below(keys).to_be_bytes().to_vec();
            let length = random.below(40) as usize;
            let value = (random.below(10) >= removes)
                .then(|| [&step.to_le_bytes()[..], &vec![7; length]].concat());
            writes.insert((map, key), value);
        }
        writes.into_iter().map(|((map, key), value)| (map, key, value)).collect()
    }
}

/// Commits of one thread, each acknowledged one is there after a kill, and after a power cut each
/// one that was synced.
#[test]
fn acknowledged_commits_survive_a_kill_and_synced_ones_a_power_cut() {
    let place = Place::new();
    let store = place.open();
    let maps = ["first", "second"].map(|name| store.create_map(name).expect("created"));
    let (shared, mut random) = (Shared::default(), Random2(Random::new(5)));
    for step in 0..3_000 {
        shared.commit(&store, random.writes(maps, 900, step)).expect("commits");
        match step % 100 {
            17 => shared.sync(&store),
            57 if step % 700 < 100 => store.checkpoint().expect("durable"),
            _ => {}
        }
    }
    assert_eq!(store.find_map("first").expect("reads"), Some(maps[0]));
    let cut = place.after_cut(Kept::Nothing, &mut Random::new(1));
    kill(store);
    let store = place.open();
    shared.lock().check(&store, &maps, true, "after a kill");
    check(&store);
    assert!(!store.stat().expect("reads").recovery.was_lost);
    let of_cut = cut.open();
    shared.lock().check(&of_cut, &maps, false, "after a power cut");
    check(&of_cut);
    assert!(of_cut.stat().expect("reads").recovery.was_lost);
    // Both go on, and are closed: then there is nothing to replay.
    for (store, place) in [(store, &place), (of_cut, &cut)] {
        commit(&store, &vec![(maps[0], b"more".to_vec(), Some(b"1".to_vec()))]).expect("commits");
        let before = read_all(&store, &maps);
        store.close().expect("durable");
        let store = place.open();
        assert_eq!(store.stat().expect("reads").recovery.commits, 0);
        assert!(read_all(&store, &maps) == before);
    }
}

/// The names in a folder.
pub fn names(path: &Path) -> Vec<String> {
    let names = std::fs::read_dir(path).expect("a folder");
    let mut names: Vec<_> = names
        .map(|entry| entry.expect("a name").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}
