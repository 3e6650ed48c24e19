//! Kills and power cuts before operations of both directories, also of an opening after a crash:
//! the store has all commits up to an LSN, and its pages are one tree. Caches that are full of
//! commits which are not durable.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pando_device::simulated::Kept;
use pando_device::{Directory, Operation};
use pando_index::random::Random;
use pando_store::{Store, StoreOptions};
use pando_tc::{Durable, DurableVersions};

use crate::common::large_pages;
use crate::logged::{Place, Random2, Shared, Writes, check, commit, read_all};

/// Images that were looked at.
static IMAGES: AtomicU64 = AtomicU64::new(0);

/// Looks at images before some operations of the directories.
fn look(place: &Arc<Place>, shared: &Shared, maps: [u64; 2], seed: u64, one_in: u64, depth: u32) {
    let random = Arc::new(Mutex::new(Random::new(seed)));
    for directory in [&place.pages, &place.log] {
        // Weak: the hooks are in the place.
        let (place, shared, random) = (Arc::downgrade(place), shared.clone(), random.clone());
        directory.on_operation(move |operation, name| {
            let random = &mut *random.lock().unwrap_or_else(PoisonError::into_inner);
            // Reads change nothing.
            if operation == Operation::Read || !random.one_in(one_in) {
                return Ok(());
            }
            let Some(place) = place.upgrade() else { return Ok(()) };
            let (image, is_kill, kept) = match random.below(4) {
                0 if place.control.exists() => (place.after_kill(), true, "all seen"),
                1 => (place.after_cut(Kept::Nothing, random), false, "nothing"),
                2 => (place.after_cut(Kept::All, random), false, "all"),
                _ => (place.after_cut(Kept::Some, random), false, "some"),
            };
            let what = format!("seed {seed}, before {operation} {name}, {kept} kept");
            let image = Arc::new(image);
            if depth > 0 && random.one_in(8) {
                // The opening is cut off too: it changes nothing of what must be there.
                look_at_opening(&image, &shared, maps, random.draw());
            }
            let store = image.open();
            IMAGES.fetch_add(1, Ordering::Relaxed);
            shared.lock().check(&store, &maps, is_kill, &what);
            check(&store);
            Ok(())
        });
    }
}

fn look_at_opening(place: &Arc<Place>, shared: &Shared, maps: [u64; 2], seed: u64) {
    let random = Arc::new(Mutex::new(Random::new(seed)));
    for directory in [&place.pages, &place.log] {
        let (place, shared, random) = (Arc::downgrade(place), shared.clone(), random.clone());
        directory.on_operation(move |operation, name| {
            let random = &mut *random.lock().unwrap_or_else(PoisonError::into_inner);
            if operation == Operation::Read || !random.one_in(6) {
                return Ok(());
            }
            let Some(place) = place.upgrade() else { return Ok(()) };
            let image = place.after_cut(Kept::Some, random);
            let store = image.open();
            IMAGES.fetch_add(1, Ordering::Relaxed);
            // What was only acknowledged may be lost now.
            let what = format!("an opening, seed {seed}, before {operation} {name}");
            shared.lock().check(&store, &maps, false, &what);
            Ok(())
        });
    }
}

fn run(seed: u64, steps: u64) {
    let place = Arc::new(Place::new());
    let store = place.open();
    let maps = ["first", "second"].map(|name| store.create_map(name).expect("created"));
    store.sync().expect("durable");
    let shared = Shared::default();
    look(&place, &shared, maps, seed, 4, 1);
    let (mut random, mut steps_of) = (Random::new(!seed), Random2(Random::new(seed)));
    for step in 0..steps {
        match random.below(1000) {
            0..8 => shared.sync(&store),
            8..12 => store.checkpoint().expect("durable"),
            12..22 => store.empty_cache().expect("written"),
            _ => {
                let writes = steps_of.writes(maps, 500, step);
                shared.commit(&store, writes).expect("commits");
            }
        }
    }
    shared.sync(&store);
    [&place.pages, &place.log].iter().for_each(|directory| directory.on_operation(|_, _| Ok(())));
    let last: Store = place.after_cut(Kept::Nothing, &mut Random::new(seed)).open();
    shared.lock().check(&last, &maps, false, "at the end");
}

#[test]
fn crashes_before_operations_of_the_devices() {
    (1..=4).for_each(|seed| run(seed, 1500));
    let images = IMAGES.load(Ordering::Relaxed);
    assert!(images > 150, "only {images} images");
}

/// During the writes of a checkpoint another commit is made, and made durable: the log from the
/// checkpoint on must have it, since its page may have been written before.
#[test]
fn a_commit_during_a_checkpoint_is_replayed() {
    let place = Place::new();
    let store = Arc::new(place.open());
    let map = store.create_map("map").expect("created");
    let put = move |store: &Store, key: u64, value: &[u8]| {
        let write = (map, key.to_be_bytes().to_vec(), Some(value.to_vec()));
        commit(store, &vec![write]).expect("commits");
    };
    (0..3_000).for_each(|key| put(&store, key, b"first"));
    store.sync().expect("durable");
    let (during, writes) = (Arc::downgrade(&store), AtomicU64::new(0));
    place.pages.on_operation(move |operation, _| {
        // Not the last writes: they are of the checkpoint itself.
        if operation == Operation::Write
            && writes.fetch_add(1, Ordering::Relaxed) == 1
            && let Some(store) = during.upgrade()
        {
            (0..3_000).step_by(10).for_each(|key| put(&store, key, b"second"));
            store.component().sync(u64::MAX).expect("durable");
        }
        Ok(())
    });
    store.checkpoint().expect("durable");
    place.pages.on_operation(|_, _| Ok(()));
    let cut = place.after_cut(Kept::Nothing, &mut Random::new(1)).open();
    let found = read_all(&cut, &[map]);
    let is_second = |key: u64| found[&(map, key.to_be_bytes().to_vec())] == b"second";
    assert!((0..3_000).all(|key| is_second(key) == key.is_multiple_of(10)));
    check(&cut);
}

/// The log is as it was at the last checkpoint until the next one is durable.
#[test]
fn the_log_is_truncated_behind_a_checkpoint_alone() {
    let place = Arc::new(Place::new());
    let store = place.open();
    let maps = ["first", "second"].map(|name| store.create_map(name).expect("created"));
    let (shared, mut random) = (Shared::default(), Random2(Random::new(3)));
    let mut commit = |steps: std::ops::Range<u64>| {
        for step in steps {
            shared.commit(&store, random.writes(maps, 2_000, step)).expect("commits");
        }
        shared.sync(&store);
    };
    commit(0..400);
    store.checkpoint().expect("durable");
    let segments = || place.log.names().expect("names").len();
    let before = segments();
    commit(400..8_000);
    assert!(segments() >= before + 3, "the log is long");
    let images = Arc::new(AtomicU64::new(0));
    place.pages.on_operation({
        let (shared, place, images) = (shared.clone(), Arc::downgrade(&place), images.clone());
        move |operation, _| {
            if matches!(operation, Operation::Write | Operation::Sync)
                && let Some(place) = place.upgrade()
                && images.fetch_add(1, Ordering::Relaxed) < 6
            {
                let cut = place.after_cut(Kept::Some, &mut Random::new(9)).open();
                shared.lock().check(&cut, &maps, false, "during a checkpoint");
            }
            Ok(())
        }
    });
    store.checkpoint().expect("durable");
    assert!(images.load(Ordering::Relaxed) > 3);
    place.pages.on_operation(|_, _| Ok(()));
    assert!(segments() <= before + 2, "the log is short again");
}

/// A tombstone that is removed before the removal is durable would take the record from a page that
/// is written meanwhile.
#[test]
fn a_removal_that_is_lost_at_a_power_cut_brings_its_record_back() {
    let place = Place::new();
    let store = place.open();
    let map = store.create_map("map").expect("created");
    let write = |key: u64, value: Option<&[u8]>| {
        let write = (map, key.to_be_bytes().to_vec(), value.map(<[u8]>::to_vec));
        commit(&store, &vec![write]).expect("commits");
    };
    (0..1_000).for_each(|key| write(key, Some(b"first")));
    store.sync().expect("durable");
    let durable = read_all(&store, &[map]);
    (0..1_000).step_by(2).for_each(|key| write(key, None));
    for round in 0..300_u64 {
        // Epochs pass, and tombstones are removed.
        write(2_000, Some(&round.to_le_bytes()));
        store.component().log().pool().reclaim().expect("a slot");
    }
    store.empty_cache().expect("written");
    let pages = place.pages.after_kill();
    let cut = place.after_cut(Kept::All, &mut Random::new(1));
    assert_eq!(pages.names().expect("names"), cut.pages.names().expect("names"));
    let cut = cut.open();
    let lost = read_all(&cut, &[map]);
    assert_eq!(lost.len(), durable.len(), "the log was not synced");
    assert!(lost == durable);
}

/// A store with 30,000 durable records, which are more than its cache has room for, and its map.
fn larger_than_its_cache() -> (Place, Store, u64) {
    let place = Place::new();
    let store = place.open_with(&large_pages());
    let map = store.create_map("map").expect("created");
    for number in 0..30_000_u64 {
        let key = number.to_be_bytes().to_vec();
        commit(&store, &vec![(map, key, Some(vec![7; 200]))]).expect("commits");
        if number % 200 == 0 {
            store.sync().expect("durable");
        }
    }
    store.sync().expect("durable");
    store.checkpoint().expect("durable");
    (place, store, map)
}

/// No thread writes the log. Then a small cache is full of pages that cannot be written in their
/// newest state: commits are refused, and undone, and nothing is lost.
#[test]
fn a_cache_full_of_commits_that_are_not_durable_refuses_more() {
    let (_place, store, map) = larger_than_its_cache();
    let value = vec![7; 200];
    let key = |number: u64| (number * 7_919 % 30_000).to_be_bytes().to_vec();
    let mut refused = None;
    let mut written = Vec::new();
    for number in 0..5_000_u64 {
        // The first ones may be installed, and must be undone then: old values are longer.
        let keys: Vec<_> = (0..6).map(|step| key(number * 6 + step * 4_001)).collect();
        let mut writes: Writes =
            keys.iter().map(|key| (map, key.clone(), Some(b"new".to_vec()))).collect();
        writes.sort();
        match commit(&store, &writes) {
            Ok(_) => written.extend(keys),
            Err(error) => {
                refused = Some((error, keys));
                break;
            }
        }
    }
    let (error, keys) = refused.expect("the cache is full");
    let told = error.to_string();
    assert!(told.contains("full") || told.contains("no room"), "{told}");
    let unwritten = || keys.iter().filter(|key| !written.contains(key));
    for key in unwritten() {
        match store.component().get(map, key) {
            Ok(found) => assert_eq!(found, Some(value.clone())),
            // Its page is absent.
            Err(error) => assert!(error.to_string().contains("no room"), "{error}"),
        }
    }
    // The log can be written, and then there is room.
    store.sync().expect("settled and durable");
    for key in unwritten() {
        assert_eq!(store.component().get(map, key).expect("reads"), Some(value.clone()));
    }
    for key in &keys {
        commit(&store, &vec![(map, key.clone(), Some(b"newer".to_vec()))]).expect("commits");
        assert_eq!(store.component().get(map, key).expect("reads"), Some(b"newer".to_vec()));
    }
    let first = &written[0];
    assert_eq!(store.component().get(map, first).expect("reads"), Some(b"new".to_vec()));
    check(&store);
}

/// Appends the record of a commit, of which the thread then stops. (`record.rs` of `pando-tc` has
/// the bytes.)
fn begin(store: &Store, map: u64, mut keys: Vec<Vec<u8>>, new: &[u8]) {
    keys.sort();
    let index = store.component().maps().index(map);
    let mut payload = vec![0; 8];
    let push = |payload: &mut Vec<u8>, number: usize| {
        payload.extend((number as u32).to_le_bytes());
    };
    [keys.len(), 0, 0, 0].into_iter().for_each(|count| push(&mut payload, count));
    for key in &keys {
        let old = index.get(key).expect("reads").expect("it is there");
        payload.extend(map.to_le_bytes());
        payload.extend(&old[..16]);
        [key.len(), new.len(), old.len() - 16, 0].iter().for_each(|&n| push(&mut payload, n));
        payload.extend([key, new, &old[16..]].concat());
    }
    let log = store.component().log();
    log.append(&log.pool().pin().expect("a slot"), &[&payload]).expect("there is room");
}

/// A thread has stopped in a commit, and later commits have filled the cache. The next one that
/// settles completes the stopped one or undoes it, in the reserve of the cache. Otherwise no commit
/// would become durable any more.
#[test]
fn a_stopped_commit_is_settled_in_a_full_cache() {
    let (_place, store, map) = larger_than_its_cache();
    let value = vec![7; 200];
    let key = |number: u64| number.to_be_bytes().to_vec();
    let keys: Vec<_> = (0..12).map(|step| key(step * 2_003 + 15)).collect();
    begin(&store, map, keys.clone(), &[8; 300]);
    let mut written = Vec::new();
    let refused = (0..30_000).step_by(30).find_map(|number| {
        let write = (map, key(number), Some(vec![number as u8; 60]));
        let refused = commit(&store, &vec![write]).err();
        written.extend(refused.is_none().then_some(number));
        refused
    });
    refused.expect("the cache is full");
    store.sync().expect("settled and durable");
    let values: Vec<_> = (keys.iter())
        .map(|key| store.component().get(map, key).expect("reads").expect("it is there"))
        .collect();
    let is_all = |value: &[u8]| values.iter().all(|found| found == value);
    assert!(is_all(&value) || is_all(&[8; 300]), "all or nothing");
    for &number in &written {
        let found = store.component().get(map, &key(number)).expect("reads");
        assert_eq!(found, Some(vec![number as u8; 60]));
    }
    commit(&store, &vec![(map, key(1), Some(b"more".to_vec()))]).expect("there is room again");
    check(&store);
}

/// A removal has failed, and before it was undone another commit has replaced its version. A page
/// as of an LSN between both has the value from before the removal.
#[test]
fn a_value_behind_a_failed_removal_survives() {
    let place = Place::new();
    let store = place.open();
    let map = store.create_map("map").expect("created");
    let put = |key: &[u8], value: &[u8]| {
        commit(&store, &vec![(map, key.to_vec(), Some(value.to_vec()))]).expect("commits")
    };
    put(b"key", b"precious");
    store.checkpoint().expect("durable");
    store.sync().expect("durable");
    store.checkpoint().expect("durable");
    // It was installed, and then its thread has stopped.
    let (lsn, off) = begin_removal(&store, map, b"key");
    let stamp = [(lsn << 2 | 1).to_le_bytes(), off.to_le_bytes()].concat();
    store.component().maps().index(map).upsert(b"key", &stamp).expect("installed");
    let log = store.component().log();
    log.record(&log.pool().pin().expect("a slot"), off).decide(pando_log::Status::Failed);
    // More than a block has, so that the last commit is in another one.
    for number in 0..150_u32 {
        put(&number.to_be_bytes(), &[7; 1_000]);
    }
    let index = store.component().maps().index(map);
    assert_eq!(index.get(b"key").expect("reads"), Some(stamp), "not undone yet");
    let last = put(b"key", b"newest");
    let durable = log.write_block(&**store.component()).expect("written");
    assert!(lsn <= durable && durable < last, "{lsn} <= {durable} < {last}");
    store.empty_cache().expect("written");
    let cut = place.after_cut(Kept::All, &mut Random::new(1)).open();
    let found = cut.component().get(map, b"key").expect("reads");
    assert_eq!(found.as_deref(), Some(&b"precious"[..]));
}

/// Appends the record of a removal, of which the thread then stops; its LSN, and its offset.
fn begin_removal(store: &Store, map: u64, key: &[u8]) -> (u64, u64) {
    let old = store.component().maps().index(map).get(key).expect("reads").expect("it is there");
    let mut payload = vec![0; 8];
    payload.extend([1_u32, 0, 0, 0].map(u32::to_le_bytes).concat());
    payload.extend(map.to_le_bytes());
    payload.extend(&old[..16]);
    let bytes = [key.len() as u32, u32::MAX, old.len() as u32 - 16, 0];
    payload.extend(bytes.map(u32::to_le_bytes).concat());
    payload.extend([key, &old[16..]].concat());
    let log = store.component().log();
    let appended =
        log.append(&log.pool().pin().expect("a slot"), &[&payload]).expect("there is room");
    (appended.lsn, appended.off)
}

/// Until a commit is undone its pages stay in the cache: one that may change too many is refused.
#[test]
fn a_commit_of_more_pages_than_can_be_undone_is_refused() {
    let place = Place::new();
    let store = place.open_with(&large_pages());
    let map = store.create_map("map").expect("created");
    let writes = |count: u64| -> Writes {
        (0..count).map(|key| (map, key.to_be_bytes().to_vec(), Some(vec![7; 20]))).collect()
    };
    let refused = commit(&store, &writes(200)).expect_err("too many").to_string();
    assert!(refused.contains("split it into several"), "{refused}");
    commit(&store, &writes(60)).expect("commits");
    store.sync().expect("durable");
    assert_eq!(read_all(&store, &[map]).len(), 60);
}

/// A page was captured with the version of a commit that has failed. Before its image is made, the
/// commit is undone and settled: the image must not have that version all the same.
#[test]
fn versions_are_as_of_a_time_before_the_page() {
    let place = Place::new();
    let store = place.open();
    let map = store.create_map("map").expect("created");
    let key = b"key".to_vec();
    commit(&store, &vec![(map, key, Some(b"precious".to_vec()))]).expect("commits");
    store.sync().expect("durable");
    let (lsn, off) = begin_removal(&store, map, b"key");
    let stamp = [(lsn << 2 | 1).to_le_bytes(), off.to_le_bytes()].concat();
    let index = store.component().maps().index(map);
    let before = index.get(b"key").expect("reads").expect("it is there");
    index.upsert(b"key", &stamp).expect("installed");
    let log = store.component().log();
    log.record(&log.pool().pin().expect("a slot"), off).decide(pando_log::Status::Failed);
    let versions = DurableVersions::now(log).expect("a slot");
    let captured = index.get(b"key").expect("reads").expect("it is there");
    store.sync().expect("undone and durable");
    assert!(log.durable_lsn() >= lsn);
    let found = versions.of(map, b"key", &captured).expect("its record stays");
    assert_eq!(found, Durable::Earlier(before));
    // As of now, the page has the version by which the commit was undone.
    let undone = index.get(b"key").expect("reads").expect("it is there");
    let now = DurableVersions::now(log).expect("a slot");
    assert_eq!(now.of(map, b"key", &undone).expect("reads"), Durable::Newest);
    now.of(map, b"key", b"short").expect_err("it has no stamp");
}

/// Threads commit many keys at the same time, in a small cache. They go on, and none hangs.
#[test]
fn commits_of_many_keys_by_several_threads_go_on() {
    let place = Place::new();
    let options = StoreOptions { memory_bytes: 16 << 20, ..large_pages() };
    let mut store = place.open_with(&options);
    store.keep().expect("threads");
    let map = store.create_map("map").expect("created");
    let key = |number: u64| number.to_be_bytes().to_vec();
    for number in 0..150_000 {
        commit(&store, &vec![(map, key(number), Some(vec![7; 200]))]).expect("commits");
    }
    store.sync().expect("durable");
    let commits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, commits) = (&store, &commits);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..20 {
                    let mut writes: Writes = (0..100)
                        .map(|_| (map, key(random.below(150_000)), Some(vec![8; 200])))
                        .collect();
                    writes.sort();
                    writes.dedup_by(|left, right| left.1 == right.1);
                    if commit(store, &writes).is_ok() {
                        commits.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(commits.load(Ordering::Relaxed) > 40, "{commits:?} of 80");
    store.sync().expect("durable");
    check(&store);
}
