//! Operations that the device refuses.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pando_device::Operation;
use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_store::{DataComponent, Error, Store, StoreOptions};

use crate::common::{History, Records, check, dump, large_pages, open, open_with, options};
use crate::logged::{self, Place, Random2, Shared, kill};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const KEYS: u64 = 300;

/// Uses the store, and goes on after errors. What it may have on the device then.
fn use_it(store: &DataComponent, seed: u64) -> (History, u64) {
    let (mut random, mut records) = (Random::new(!seed), Records::new(seed));
    let (mut history, mut errors) = (History::default(), 0);
    for step in 0..700 {
        let done = match random.below(60) {
            0 => store.sync().inspect(|()| history.synced()),
            1 => store.checkpoint(&[]).inspect(|()| history.synced()),
            2 => store.empty_cache(),
            _ => {
                let (key, value) = records.draw(KEYS, step);
                let done = records.apply(store.records(), key, value.as_deref());
                if done.is_ok() {
                    history.may_become(key, value);
                }
                done.map_err(Error::from)
            }
        };
        errors += u64::from(done.is_err());
    }
    (history, errors)
}

#[test]
fn each_operation_that_fails_loses_nothing_that_was_durable() {
    let mut refused = 0;
    for number in (0..).step_by(3) {
        let directory = Simulated::new();
        let store = open(&directory);
        let failed = directory.refuse_operation(number, EIO);
        let (history, errors) = use_it(&store, 7);
        if !failed.load(Ordering::Relaxed) {
            assert!(number > 50, "only {number} operations");
            break;
        }
        refused += errors;
        for kept in [Kept::Nothing, Kept::Some, Kept::All] {
            let store = open(&directory.cut_power(kept, &mut Random::new(number)));
            check(&store);
            history.check(&dump(&store), &format!("operation {number}, {kept:?} kept"));
        }
    }
    assert!(refused > 0, "no call told a failure");
}

/// No file can be made any more; later there is room again.
#[test]
fn a_full_device_is_an_error_and_takes_writes_again_later() {
    let directory = Simulated::new();
    let store = open(&directory);
    let (mut history, _) = use_it(&store, 3);
    store.sync().expect("durable");
    history.synced();
    directory.on_operation(|operation, _| match operation {
        Operation::Create | Operation::Allocate => Err(io::Error::from_raw_os_error(ENOSPC)),
        _ => Ok(()),
    });
    let mut records = Records::new(4);
    let (mut puts_refused, mut refused) = (0, None);
    for step in 0..40_000 {
        let (key, value) = records.draw(KEYS, step);
        match records.apply(store.records(), key, value.as_deref()) {
            Ok(()) => history.may_become(key, value),
            // A page that must be split first.
            Err(error) => {
                assert!(value.is_some(), "a remove was refused: {error}");
                assert!(error.to_string().contains("has no room"), "{error}");
                puts_refused += 1;
            }
        }
        if step % 50 == 49
            && let Err(error) = store.empty_cache()
        {
            refused = Some(error);
            if puts_refused > 0 {
                break;
            }
        }
    }
    let refused = refused.expect("the device is full").to_string();
    assert!(refused.contains("has no room"), "{refused}");
    // Records in memory can be read.
    history.check(&dump(&store), "in memory");
    directory.on_operation(|_, _| Ok(()));
    let (key, value) = records.draw(KEYS, 40_001);
    history.may_become(key, value.clone());
    records.apply(store.records(), key, value.as_deref()).expect("there is memory");
    store.sync().expect("there is room");
    history.synced();
    check(&store);
    let there = open(&directory.cut_power(Kept::Nothing, &mut Random::new(1)));
    check(&there);
    assert!(dump(&there) == dump(&store));
}

/// Commits, syncs, checkpoints and evictions, after each of which the thread goes on. Returns how
/// many calls failed.
fn use_with_log(store: &Store, maps: [u64; 2], shared: &Shared, seed: u64) -> u64 {
    let (mut random, mut writes) = (Random::new(!seed), Random2(Random::new(seed)));
    let mut errors = 0;
    for step in 0..260 {
        let done = match random.below(40) {
            0 => store.checkpoint(),
            1 => store.empty_cache(),
            2..4 => shared.try_sync(store),
            _ => shared
                .commit(store, writes.writes(maps, 200, step))
                .map(drop)
                .map_err(Error::Transactions),
        };
        errors += u64::from(done.is_err());
    }
    errors
}

/// A commit that was refused has not taken place; one that was acknowledged is there after a kill,
/// and a synced one after a power cut.
#[test]
fn each_operation_that_fails_under_commits_loses_nothing_that_was_acknowledged() {
    for (is_log, errno) in [(false, EIO), (false, ENOSPC), (true, EIO), (true, ENOSPC)] {
        let mut refused = 0;
        for number in (0..).step_by(7) {
            let what = format!("operation {number}, of the log: {is_log}, error {errno}");
            let place = Place::new();
            let store = place.open();
            let maps = ["first", "second"].map(|name| store.create_map(name).expect("created"));
            store.sync().expect("durable");
            let directory = if is_log { &place.log } else { &place.pages };
            let failed = directory.refuse_operation(number, errno);
            let shared = Shared::default();
            let errors = use_with_log(&store, maps, &shared, 11);
            let is_over = !failed.load(Ordering::Relaxed);
            refused += errors;
            let cut = [Kept::Nothing, Kept::Some, Kept::All]
                .map(|kept| (kept, place.after_cut(kept, &mut Random::new(number))));
            directory.on_operation(|_, _| Ok(()));
            kill(store);
            let store = place.open();
            shared.lock().check(&store, &maps, true, &format!("{what}, a kill"));
            logged::check(&store);
            for (kept, image) in cut {
                let store = image.open();
                shared.lock().check(&store, &maps, false, &format!("{what}, {kept:?} kept"));
                logged::check(&store);
            }
            if is_over {
                assert!(number > 20, "only {number} operations");
                break;
            }
        }
        assert!(refused > 0, "no call told a failure");
    }
}

/// An opening that fails is made again, and finds all that was acknowledged.
#[test]
fn each_operation_that_fails_in_an_opening_loses_nothing() {
    for is_cut in [false, true] {
        let place = Place::new();
        let store = place.open();
        let maps = ["first", "second"].map(|name| store.create_map(name).expect("created"));
        let shared = Shared::default();
        assert_eq!(use_with_log(&store, maps, &shared, 3), 0);
        let cut = place.after_cut(Kept::Some, &mut Random::new(1));
        kill(store);
        let place = if is_cut { cut } else { place };
        for is_log in [false, true] {
            for number in 0.. {
                let what = format!("operation {number}, of the log: {is_log}, a cut: {is_cut}");
                let image = if is_cut { place.copy_after_cut() } else { place.after_kill() };
                let directory = if is_log { &image.log } else { &image.pages };
                let failed = directory.refuse_operation(number, EIO);
                let refused = image.try_open(&options());
                if !failed.load(Ordering::Relaxed) {
                    refused.expect("no operation failed");
                    assert!(number > 5, "only {number} operations");
                    break;
                }
                drop(refused);
                directory.on_operation(|_, _| Ok(()));
                let store = image.open();
                shared.lock().check(&store, &maps, !is_cut, &what);
                logged::check(&store);
            }
        }
    }
}

/// The device takes no pages: an operation that finds no room in memory is refused after a limited
/// number of attempts, or after the first one if it may not wait.
#[test]
fn an_operation_without_room_is_refused_after_a_limited_number_of_attempts() {
    for (room_wait, most_attempts) in [(Duration::ZERO, 1), (Duration::MAX, 1_000)] {
        let directory = Simulated::new();
        let value = |key: u64| vec![key as u8; 1_000];
        let store = open_with(&directory, &large_pages());
        for key in 0..10_000 {
            store.records().insert(&u64::to_be_bytes(key), &value(key)).expect("inserted");
        }
        store.checkpoint(&[]).expect("durable");
        drop(store);
        let store = open_with(&directory, &StoreOptions { room_wait, ..large_pages() });
        directory.on_operation(|operation, _| match operation {
            Operation::Create | Operation::Allocate | Operation::Write => {
                Err(io::Error::from_raw_os_error(ENOSPC))
            }
            _ => Ok(()),
        });
        let attempts = || store.stat().expect("reads").cache.room_attempts;
        let (mut key, mut refused) = (0, 0);
        // Each is refused after a second.
        while refused < 2 {
            let before = attempts();
            let changed = store.records().upsert(&u64::to_be_bytes(key), &value(key + 1));
            assert!(attempts() - before <= most_attempts, "{} attempts", attempts() - before);
            if let Err(error) = changed {
                assert!(error.to_string().contains("the cache has no room"), "{error}");
                refused += 1;
            }
            key = (key + 7_919) % 10_000;
        }
    }
}
