//! Openings of a store in a folder: its lock, what they write to the log, and logs and pages that
//! do not go together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use pando_device::simulated::{Kept, Simulated};
use pando_device::{Directory, Disk, Operation};
use pando_index::RangeIndex;
use pando_index::random::Random;
use pando_log::{LogOptions, Owner, create_files, owner_of};
use pando_store::{Error, Store, StoreOptions};

use crate::blind::{get, put, stored};
use crate::common::{large_pages, options};
use crate::logged::{Place, kill, names};

#[test]
fn bad_options_and_a_second_handle_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    for memory_bytes in [1 << 20, 4 << 20, (16 << 20) - 1] {
        let small = StoreOptions { memory_bytes, ..options() };
        let refused = Store::open(&path, &small).expect_err("too small").to_string();
        let expected = format!("memory_bytes is {memory_bytes}; allowed is 16777216 or more");
        assert_eq!(refused, expected);
    }
    let options = || StoreOptions { memory_bytes: 16 << 20, ..options() };
    let store = Store::open(&path, &options()).expect("opens");
    store.create_map("map").expect("created");
    store.map("map").expect("a map").insert(b"key", b"value").expect("inserted");
    let refused = Store::open(&path, &options()).expect_err("in use");
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    // A pool would take the same lock.
    let log = Disk::open(&path.join("log")).expect("a directory");
    assert!(log.lock().expect("answers").is_none());
    // A handle keeps the directory.
    let handle = store.map("map").expect("a map");
    store.close().expect("durable");
    let refused = Store::open(&path, &options()).expect_err("a handle is held");
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    drop(handle);
    let lock = log.lock().expect("answers").expect("free");
    let refused = Store::open(&path, &options()).expect_err("a pool has the log");
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    let refused = Store::open_unchanged(&path, &options()).expect_err("a pool has the log");
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    drop(lock);
    assert_eq!(names(&path), ["control", "lock", "log", "pages"]);
    // Left by a kill in an earlier opening.
    std::fs::write(path.join("control.new-1"), b"half").expect("written");
    let store = Store::open(&path, &options()).expect("opens");
    assert_eq!(names(&path), ["control", "lock", "log", "pages"]);
    let value = store.map("map").expect("a map").get(b"key").expect("reads");
    assert_eq!(value.as_deref(), Some(&b"value"[..]));
}

/// A kill leaves a block that is sealed and not written, and a commit behind it. The opening writes
/// both, as the log writer would have.
#[test]
fn an_opening_writes_no_old_values_to_the_log() {
    let values: [&[u8]; 3] = [b"the first value", b"the second one", b"and the third"];
    let place = Place::new();
    let store = place.open();
    store.create_map("map").expect("created");
    let map = store.map("map").expect("a map");
    map.insert(b"key", values[0]).expect("inserted");
    store.sync().expect("durable");

    let (stopped, has_stopped) = channel();
    let go_on = Arc::new(AtomicBool::new(false));
    let may_go_on = go_on.clone();
    place.log.on_operation(move |operation, _| {
        if operation == Operation::Write {
            // An error if the test goes on.
            let _ = stopped.send(());
            while !may_go_on.load(Ordering::SeqCst) {
                thread::park_timeout(Duration::from_millis(1));
            }
        }
        Ok(())
    });
    map.update(b"key", values[1]).expect("updated");
    let killed = thread::scope(|scope| {
        let writer = scope.spawn(|| store.sync());
        has_stopped.recv().expect("the log writer stops");
        map.update(b"key", values[2]).expect("updated");
        let killed = place.after_kill();
        go_on.store(true, Ordering::SeqCst);
        writer.join().expect("joins").expect("durable");
        killed
    });

    let opened = killed.open();
    let found = opened.map("map").expect("a map").get(b"key").expect("reads");
    assert_eq!(found.as_deref(), Some(values[2]));
    let mut payloads = Vec::new();
    let visit = &mut |_, payload: &[u8]| {
        payloads.push(payload.to_vec());
        Ok(())
    };
    pando_log::recover(&killed.log.after_kill(), 0, visit).expect("whole");
    let count = |value: &[u8]| {
        let has = |payload: &&Vec<u8>| payload.windows(value.len()).any(|found| found == value);
        payloads.iter().filter(has).count()
    };
    assert_eq!(values.map(count), [1; 3], "each value is in the log as a new one alone");
}

/// A store with one record, which was not closed.
fn killed() -> Place {
    let place = Place::new();
    let store = place.open();
    store.create_map("map").expect("created");
    store.map("map").expect("a map").insert(b"key", b"value").expect("inserted");
    store.checkpoint().expect("durable");
    kill(store);
    place
}

#[test]
fn a_log_that_is_missing_or_another_one_is_told() {
    let refused = |place: &Place| place.try_open(&options()).expect_err("refused").to_string();
    let (mut place, other) = (killed(), killed());
    std::fs::remove_file(&place.control).expect("removed");
    place.log = Simulated::new();
    let told = refused(&place);
    assert!(told.contains("is not that of the pages beside it: it is missing"), "{told}");
    place.log = other.log.cut_power(Kept::All, &mut Random::new(1));
    let told = refused(&place);
    assert!(told.contains("and the pages name"), "{told}");
    // With the tail of the other log too.
    std::fs::copy(&other.control, &place.control).expect("copied");
    let told = refused(&place);
    assert!(told.contains("and the pages name"), "{told}");
    // The tail of a third log.
    std::fs::copy(&killed().control, &place.control).expect("copied");
    let told = refused(&place);
    assert!(told.contains("belongs to"), "{told}");
}

/// The log's manifest, as an earlier version has written it: it does not say that the log is that
/// of a store.
fn write_manifest_of_earlier_version(log: &Simulated) {
    let mut manifest = [0; 96];
    log.open("manifest").expect("a manifest").read_at(&mut manifest, 0).expect("read");
    let id = |at: usize| u128::from_le_bytes(*manifest[at..].first_chunk().expect("whole"));
    let segment_bytes = u64::from_le_bytes(*manifest[56..].first_chunk().expect("whole"));
    assert_eq!(manifest[48..56], 1_u64.to_le_bytes(), "the first generation");
    let options = LogOptions { segment_bytes, ..LogOptions::default() };
    let earlier = Simulated::new();
    create_files(&earlier, id(16), (id(32), 0), options).expect("created");
    earlier.open("proposal").expect("it is there").read_at(&mut manifest, 0).expect("read");
    let file = log.open("manifest").expect("a manifest");
    file.write_at(&manifest, 0).and_then(|()| file.sync()).expect("written");
    assert_eq!(owner_of(log).expect("a manifest"), Owner::Pool);
}

/// A log that does not say whose it is belongs to the store if the pages name it. The next manifest
/// says it.
#[test]
fn the_log_of_a_store_of_an_earlier_version_gets_its_owner() {
    let place = killed();
    assert_eq!(owner_of(&place.log).expect("a manifest"), Owner::Store);
    write_manifest_of_earlier_version(&place.log);
    let value = |store: &Store| store.map("map").expect("a map").get(b"key").expect("reads");
    let store = place.open();
    assert_eq!(value(&store).as_deref(), Some(&b"value"[..]));
    assert_eq!(owner_of(&place.log).expect("a manifest"), Owner::Pool);
    kill(store);
    // The tail is lost, and the log begins a generation.
    std::fs::remove_file(&place.control).expect("removed");
    let store = place.open();
    assert_eq!(value(&store).as_deref(), Some(&b"value"[..]));
    assert_eq!(owner_of(&place.log).expect("a manifest"), Owner::Store);
    kill(store);
    assert_eq!(value(&place.open()).as_deref(), Some(&b"value"[..]));
}

/// Without pages that name it, such a log is that of a pool. The store's pages stay without one.
#[test]
fn the_log_of_a_pool_is_no_log_of_a_new_store() {
    let mut place = killed();
    write_manifest_of_earlier_version(&place.log);
    place.pages = Simulated::new();
    for _ in 0..2 {
        let refused = place.try_open(&options()).expect_err("the log of a pool");
        assert!(matches!(&refused, Error::OtherLog { .. }), "{refused}");
        assert!(refused.to_string().contains("it is that of a pool"), "{refused}");
    }
}

#[test]
fn pages_that_were_written_without_a_log_are_refused() {
    let place = Place::new();
    let records = crate::common::open(&place.pages);
    records.records().insert(b"key", b"value").expect("inserted");
    records.checkpoint(&[]).expect("durable");
    drop(records);
    let refused = place.try_open(&options()).expect_err("no log").to_string();
    assert!(refused.contains("written without a log"), "{refused}");
}

/// A creation that is cut off at any of its operations leaves what can be created.
#[test]
fn a_creation_that_was_cut_off_is_made_again() {
    const EIO: i32 = 5;
    let mut refused = 0;
    for number in 0.. {
        let place = Place::new();
        let failed =
            [place.pages.refuse_operation(number, EIO), place.log.refuse_operation(number, EIO)];
        let opened = place.try_open(&options());
        if failed.iter().all(|failed| !failed.load(std::sync::atomic::Ordering::Relaxed)) {
            opened.expect("no operation failed");
            break;
        }
        refused += u32::from(opened.is_err());
        drop(opened);
        for directory in [&place.pages, &place.log] {
            directory.on_operation(|_, _| Ok(()));
        }
        for is_cut in [false, true] {
            let image = match is_cut {
                true => place.after_cut(Kept::Some, &mut Random::new(number)),
                false if place.control.exists() => place.after_kill(),
                false => continue,
            };
            let store = image.open();
            store.create_map("map").expect("created");
            kill(store);
            assert_eq!(image.open().maps().expect("reads").len(), 1, "operation {number}");
        }
    }
    assert!(refused > 8, "only {refused} operations");
}

/// The page of the key 1,005 is damaged on the medium, wherever it is.
fn damage_page_of_1005(place: &Place, map: u64) {
    damage_page(place, map, &1_005_u64.to_be_bytes());
}

/// The page of a key is damaged on the medium, wherever it is.
pub fn damage_page(place: &Place, map: u64, key: &[u8]) {
    let key = [&[1, map as u8][..], key].concat();
    let mut damaged = 0;
    for name in place.pages.names().expect("names") {
        place.pages.damage(&name, |bytes| {
            let places = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(&key));
            let places: Vec<_> = places.collect();
            damaged += places.len();
            places.into_iter().for_each(|at| bytes[at] ^= 1);
        });
    }
    assert!(damaged > 0);
}

/// The store opens, its other pages are right, and the key 1,005 is an error, at each opening.
#[track_caller]
fn check_damaged(place: &Place, map: u64) {
    let place = &mut place.after_kill();
    for opening in 0..3 {
        let store = place.try_open(&large_pages()).expect("opens");
        assert_eq!(store.stat().expect("reads").recovery.damaged_pages, 1);
        let read = store.component().get(map, &1_005_u64.to_be_bytes());
        let told = read.expect_err("its page is damaged").to_string();
        assert!(told.contains("checksum is wrong"), "{told}");
        for key in 2_000..4_000 {
            assert_eq!(get(&store, map, key).as_deref(), Some(&b"first"[..]));
        }
        assert_eq!(get(&store, map, 1_999).as_deref(), Some(&b"second"[..]));
        // Other commits go on, and are there after the next opening.
        put(&store, map, 1_998, &[opening]);
        store.sync().expect("durable");
        let refused = store.checkpoint().expect_err("the log is needed").to_string();
        assert!(refused.contains("lacks commits"), "{refused}");
        let problems = store.check().expect("reads");
        assert!(problems.iter().any(|told| told.contains("is damaged")), "{problems:?}");
        assert!(problems.contains(&refused), "{problems:?}");
        *place = place.after_kill();
        drop(store);
        let store = place.try_open(&large_pages()).expect("opens");
        assert_eq!(get(&store, map, 1_998), Some(vec![opening]));
        kill(store);
    }
}

#[test]
fn blind_writes_of_a_damaged_page_do_not_keep_a_store_from_opening() {
    let (place, store, map) = stored();
    damage_page_of_1005(&place, map);
    put(&store, map, 1_999, b"second");
    for round in 0..3_u8 {
        put(&store, map, 1_005, &[round]);
        // The rounds together are longer than half a leaf.
        for number in 0..20 {
            let new = [&1_005_u64.to_be_bytes()[..], &[round, number]].concat();
            crate::logged::put_blind(&store, map, &new, &[round; 100]).expect("writes");
        }
        store.sync().expect("durable");
        store.empty_cache().expect("written");
    }
    check_damaged(&place, map);
}

#[test]
fn a_removal_in_a_damaged_page_does_not_keep_a_store_from_opening() {
    let (place, store, map) = stored();
    put(&store, map, 1_999, b"second");
    let removal = vec![(map, 1_005_u64.to_be_bytes().to_vec(), None)];
    crate::logged::commit(&store, &removal).expect("commits");
    store.sync().expect("durable");
    store.empty_cache().expect("written");
    damage_page_of_1005(&place, map);
    check_damaged(&place, map);
}
