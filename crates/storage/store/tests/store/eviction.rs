//! A store whose data is many times its memory; emptied pages; loads that fail.

use std::thread::scope;

use pando_device::Operation;
use pando_device::simulated::Simulated;
use pando_index::random::Random;
use pando_store::{DataComponent, StoreOptions};

use crate::common::{check, dump, key, large_pages, open, open_with};

/// Data of about five times the memory is written, read, scanned and overwritten by several
/// threads, in pages of the usual size, and never takes more than the memory.
#[test]
fn data_that_is_larger_than_memory() {
    const KEYS: u64 = 120_000;
    let directory = Simulated::new();
    let store = open_with(&directory, &large_pages());
    let value = |number: u64, round: u64| {
        let mut value = vec![round as u8; 160];
        value[..8].copy_from_slice(&number.to_le_bytes());
        value
    };
    let records = store.records();
    for number in 0..KEYS {
        records.upsert(&key(number), &value(number, 0)).expect("written");
    }
    let live_bytes = store.stat().expect("numbers").pages.live_bytes;
    assert!(live_bytes > 4 * (4 << 20), "{live_bytes} bytes are not much more than the memory");
    scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..10_000 {
                    // Each thread has its own keys.
                    let number = random.below(KEYS / 4) * 4 + thread;
                    match random.below(3) {
                        0 => {
                            let found = records.get(&key(number)).expect("read");
                            assert_eq!(
                                found.map(|found| found[..8].to_vec()),
                                Some(number.to_le_bytes().to_vec())
                            );
                        }
                        _ => {
                            records.upsert(&key(number), &value(number, 1)).expect("written");
                        }
                    }
                }
            });
        }
    });
    let found = dump(&store);
    assert_eq!(found.len() as u64, KEYS);
    for (number, (found_key, found_value)) in (0..).zip(&found) {
        assert_eq!(found_key, &key(number));
        assert!(*found_value == value(number, 0) || *found_value == value(number, 1));
    }
    let stat = store.stat().expect("numbers").cache;
    assert!(stat.evictions > 1000 && stat.loads > 1000, "{stat:?}");
    assert!(stat.used_bytes <= 4 << 20, "{stat:?}");
    check(&store);
    store.checkpoint(&[]).expect("durable");
    drop(store);
    assert!(dump(&open(&directory)) == found, "other records after the opening");
}

/// A store with so many records of 118 bytes, all of which are written.
fn filled(directory: &Simulated, memory_bytes: u64, keys: u64) -> DataComponent {
    let store = open_with(directory, &StoreOptions { memory_bytes, ..large_pages() });
    for number in 0..keys {
        store.records().upsert(&key(number), &[7; 110]).expect("written");
    }
    store.sync().expect("written");
    store
}

/// The pages of a growing map are longer than those that a reader loads later. The cache does not
/// keep their sizes: data that fits into it is read from the device once.
#[test]
fn a_full_cache_takes_pages_of_other_sizes() {
    const KEYS: u64 = 50_000;
    let store = filled(&Simulated::new(), 8 << 20, KEYS);
    let records = store.records();
    let loads_of_a_round = |round| {
        let before = store.stat().expect("numbers").cache.loads;
        let mut random = Random::new(round);
        for _ in 0..3 * KEYS {
            records.read(&key(random.below(KEYS)), &mut |_| {}).expect("read");
        }
        store.stat().expect("numbers").cache.loads - before
    };
    // About 700 of 1,350 pages are absent. Meanwhile others are evicted that are needed again.
    let loads = loads_of_a_round(1);
    assert!((1..1_750).contains(&loads), "{loads} loads");
    loads_of_a_round(2);
    assert_eq!(loads_of_a_round(3), 0);
}

/// Blind writes after reads: the short pages that they need are not put into blocks of whole pages.
#[test]
fn a_cache_full_of_pages_takes_many_partial_ones() {
    const KEYS: u64 = 120_000;
    let store = filled(&Simulated::new(), 6 << 20, KEYS);
    let records = store.records();
    let mut random = Random::new(1);
    for _ in 0..10_000 {
        records.read(&key(random.below(KEYS)), &mut |_| {}).expect("read");
    }
    let pages = store.stat().expect("numbers").pages.pages;
    for number in (0..KEYS).step_by(20) {
        records.put(&key(number), &[8; 110]).expect("written");
    }
    let stat = store.stat().expect("numbers").cache;
    assert!(stat.pages > pages / 2, "{stat:?}, {pages} pages");
}

/// Pages that are read are written whole, unless pages cannot be written: then they are read from
/// their parts again.
#[test]
fn pages_that_are_read_get_one_part() {
    const KEYS: u64 = 60_000;
    let directory = Simulated::new();
    let store = filled(&directory, 4 << 20, KEYS);
    let records = store.records();
    store.empty_cache().expect("written");
    for number in (0..KEYS).step_by(20) {
        records.put(&key(number), &[8; 110]).expect("written");
    }
    store.empty_cache().expect("written");
    let parts = |store: &DataComponent| store.stat().expect("numbers").pages.pages_by_parts;
    let read_all = |store: &DataComponent| {
        for number in 0..KEYS {
            let expected = if number % 20 == 0 { 8 } else { 7 };
            let found = store.records().get(&key(number)).expect("read").expect("a record");
            assert_eq!(found, [expected; 110]);
        }
    };
    let before = parts(&store);
    assert!(before[1] > 1_000, "{before:?}");
    directory.on_operation(|operation, _| match operation {
        Operation::Write | Operation::Create => Err(std::io::Error::from_raw_os_error(28)),
        _ => Ok(()),
    });
    read_all(&store);
    read_all(&store);
    assert_eq!(parts(&store), before);
    directory.on_operation(|_, _| Ok(()));
    drop(store);
    // After a failed write the page store takes no more, until it is opened again.
    let store = open_with(&directory, &large_pages());
    read_all(&store);
    store.empty_cache().expect("written");
    let after = parts(&store);
    // The last ones were not evicted for want of room.
    assert!(after[1..].iter().sum::<u64>() < before[1] / 2, "{before:?}, {after:?}");
    check(&store);
}

/// The device fails while pages have changed: what is on it is read as before, also into blocks
/// that are longer than the pages.
#[test]
fn a_device_that_takes_no_writes_is_read() {
    const KEYS: u64 = 60_000;
    let directory = Simulated::new();
    let store = filled(&directory, 6 << 20, KEYS);
    let records = store.records();
    directory.on_operation(|operation, _| match operation {
        Operation::Write => Err(std::io::Error::from_raw_os_error(5)),
        _ => Ok(()),
    });
    // About half of the cache.
    for number in (0..KEYS / 4).step_by(40) {
        records.upsert(&key(number), &[8; 110]).expect("there is room");
    }
    for round in 0..3 {
        let mut random = Random::new(round);
        for _ in 0..KEYS / 2 {
            let number = random.below(KEYS);
            let found = records.get(&key(number)).expect("read").expect("a record");
            assert!(found == [7; 110] || found == [8; 110]);
        }
    }
}

/// All records are removed, while the pages around are absent. The store has few pages then, or
/// empty ones, and takes new records.
#[test]
fn records_that_are_removed_while_their_neighbours_are_absent() {
    let store = open(&Simulated::new());
    let records = store.records();
    for round in 0..3_u8 {
        for number in 0..2000 {
            records.insert(&key(number), &[round; 20]).expect("an absent key");
        }
        store.empty_cache().expect("written");
        let mut random = Random::new(u64::from(round));
        let mut order: Vec<u64> = (0..2000).collect();
        random.shuffle(&mut order);
        for (index, number) in order.into_iter().enumerate() {
            assert!(records.remove(&key(number)).expect("removed"));
            if index % 100 == 0 {
                store.empty_cache().expect("written");
                check(&store);
            }
        }
        assert!(dump(&store).is_empty());
        check(&store);
    }
}

/// A device that cannot be read: the operation ends with its error, and the next one succeeds.
#[test]
fn a_page_that_cannot_be_read_is_an_error() {
    let directory = Simulated::new();
    let store = open(&directory);
    for number in 0..500 {
        store.records().insert(&key(number), b"value").expect("inserted");
    }
    store.empty_cache().expect("written");
    directory.on_operation(|operation, _| match operation {
        Operation::Read => Err(std::io::Error::other("the disk is gone")),
        _ => Ok(()),
    });
    let error = store.records().get(&key(250)).expect_err("no device");
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    let scan = store.records().scan(pando_index::KeyRange::all(), pando_index::Order::Ascending);
    scan.expect("a scan").next().expect_err("no device");
    directory.on_operation(|_, _| Ok(()));
    assert_eq!(store.records().get(&key(250)).expect("read"), Some(b"value".to_vec()));
    assert_eq!(dump(&store).len(), 500);
}
