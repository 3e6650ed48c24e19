//! Blind writes, whose commits are not durable when their pages are written.

use std::sync::atomic::{AtomicBool, Ordering};

use pando_device::Operation;
use pando_device::simulated::Kept;
use pando_index::RangeIndex;
use pando_index::random::Random;
use pando_store::Store;
use pando_tc::TransactionalMap;

use crate::common::large_pages;
use crate::logged::{Place, check, put_blind, read_all};

pub fn get(store: &Store, map: u64, key: u64) -> Option<Vec<u8>> {
    store.component().get(map, &key.to_be_bytes()).expect("reads")
}

pub fn put(store: &Store, map: u64, key: u64, value: &[u8]) {
    put_blind(store, map, &key.to_be_bytes(), value).expect("writes");
}

/// A store with 4,000 records that are durable, and in the store alone.
pub fn stored() -> (Place, Store, u64) {
    let place = Place::new();
    let store = place.open_with(&large_pages());
    let map = store.create_map("map").expect("created");
    (0..4_000).for_each(|key| put(&store, map, key, b"first"));
    store.sync().expect("durable");
    store.checkpoint().expect("durable");
    store.empty_cache().expect("written");
    (place, store, map)
}

fn loads(store: &Store) -> u64 {
    store.stat().expect("reads").data.cache.loads
}

/// What a power cut leaves now, in which the page of a key was written.
#[track_caller]
fn after_cut(place: &Place, map: u64, key: u64) -> Option<Vec<u8>> {
    let cut = place.after_cut(Kept::Nothing, &mut Random::new(1));
    let store = cut.open_with(&large_pages());
    assert_eq!(read_all(&store, &[map]).len(), 4_000);
    check(&store);
    get(&store, map, key)
}

#[test]
fn a_page_says_of_a_blind_write_what_the_store_has_until_it_is_durable() {
    let (place, store, map) = stored();
    let before = loads(&store);
    put(&store, map, 7, b"second");
    store.empty_cache().expect("written");
    assert_eq!(after_cut(&place, map, 7).as_deref(), Some(&b"first"[..]));
    assert_eq!(get(&store, map, 7).as_deref(), Some(&b"second"[..]), "it is still there");
    assert_eq!(loads(&store), before, "nothing was read");
    // Another write of the same key, which knows what it replaces.
    put(&store, map, 7, b"third");
    store.empty_cache().expect("written");
    assert_eq!(after_cut(&place, map, 7).as_deref(), Some(&b"first"[..]));
    store.sync().expect("durable");
    store.empty_cache().expect("written");
    assert_eq!(after_cut(&place, map, 7).as_deref(), Some(&b"third"[..]));
}

/// Also pages of which memory has only what was written: their parts are read for that.
#[test]
fn pages_are_written_whole_if_it_is_asked() {
    let (place, store, map) = stored();
    let written = || {
        store.sync().expect("durable");
        store.checkpoint().expect("durable");
        let pages = store.stat().expect("numbers").data.pages;
        pages.pages - pages.pages_by_parts[0]
    };
    put(&store, map, 7, b"second");
    assert_eq!(written(), 1, "a delta");
    store.empty_cache().expect("written");
    store.write_whole_pages();
    let before = loads(&store);
    (0..4_000).step_by(10).for_each(|key| put(&store, map, key, b"third"));
    assert_eq!(loads(&store), before, "nothing was read");
    assert_eq!(written(), 0);
    assert!(loads(&store) > before);
    assert_eq!(after_cut(&place, map, 10).as_deref(), Some(&b"third"[..]));
}

/// The page is loaded and split meanwhile, so it is written whole.
#[test]
fn a_page_that_is_written_whole_has_what_a_blind_write_has_replaced() {
    let (place, store, map) = stored();
    put(&store, map, 7, b"second");
    put(&store, map, 8, b"second");
    store.component().sync(store.component().newest_lsn().expect("a slot")).expect("durable");
    put(&store, map, 9, b"second");
    for key in 0..40 {
        let _ = get(&store, map, key);
    }
    // Each of these is longer than the page's records.
    for key in 10..30 {
        let long = vec![b'l'; 1_000];
        let write = |transaction: &mut pando_tc::Transaction<'_, _, _>| {
            transaction.put(map, &u64::to_be_bytes(key), &long)
        };
        store.component().transaction(write).expect("writes");
    }
    store.empty_cache().expect("written");
    for (key, value) in [(7, b"second"), (8, b"second"), (9, b"first ")] {
        let found = after_cut(&place, map, key).expect("a record");
        assert_eq!(found, value.trim_ascii_end(), "key {key}");
    }
    assert_eq!(get(&store, map, 9).as_deref(), Some(&b"second"[..]));
}

/// A page cannot be read, though it must be written whole: that is an error, the other pages are
/// written, and nothing is lost.
#[test]
fn a_page_below_a_blind_write_that_cannot_be_read_is_an_error() {
    let (place, store, map) = stored();
    for round in 0..4_u8 {
        put(&store, map, 7, &[round]);
        store.sync().expect("durable");
        if round < 3 {
            store.empty_cache().expect("written");
        }
    }
    // In another page.
    put(&store, map, 3_900, b"other");
    store.sync().expect("durable");
    place.pages.on_operation(|operation, _| match operation {
        Operation::Read => Err(std::io::Error::other("the device does not answer")),
        _ => Ok(()),
    });
    let changed = || store.stat().expect("reads").data.cache.changed_pages;
    assert_eq!(changed(), 2);
    let error = store.checkpoint().expect_err("a page is not written").to_string();
    assert!(error.contains("does not answer"), "{error}");
    assert_eq!((changed(), get(&store, map, 7)), (1, Some(vec![3])));
    place.pages.on_operation(|_, _| Ok(()));
    store.checkpoint().expect("durable");
    store.empty_cache().expect("written");
    assert_eq!((changed(), get(&store, map, 7)), (0, Some(vec![3])));
    assert_eq!(after_cut(&place, map, 3_900).as_deref(), Some(&b"other"[..]));
}

/// From now on no page can be read.
fn refuse_reads(place: &Place) {
    place.pages.on_operation(|operation, _| match operation {
        Operation::Read => Err(std::io::Error::other("the device does not answer")),
        _ => Ok(()),
    });
}

/// Commits of another page, so that tombstones are removed.
fn go_on(store: &Store, map: u64) {
    for round in 0..8 {
        put(store, map, 3_900, &[round]);
        store.sync().expect("durable");
        // Raises the epoch, as many commits do.
        store.component().log().pool().reclaim().expect("a slot");
    }
}

/// Two keys in one transaction, which reads what it replaces.
fn put_both(store: &Store, map: u64, keys: [u64; 2], value: &[u8]) -> pando_tc::Result<u64> {
    let writes = keys.map(|key| (map, key.to_be_bytes().to_vec(), Some(value.to_vec())));
    crate::logged::commit(store, &writes.to_vec())
}

/// Keys of a page that cannot be read are removed and written, until memory has no room for more of
/// them: commits fail then, are undone, and hold up no other commit.
#[test]
fn a_removal_above_a_page_that_cannot_be_read_stops_no_commit() {
    let (place, store, map) = stored();
    refuse_reads(&place);
    put(&store, map, 7, &[1; 100]);
    let component = store.component();
    let keys = TransactionalMap::new(component.clone(), map, component.maps().index(map));
    keys.expect("a map").remove(&7_u64.to_be_bytes()).expect("removes");
    store.sync().expect("durable");
    go_on(&store, map);
    let mut value = None;
    for round in 0..100_u8 {
        let new = vec![round; 100];
        if put_blind(&store, map, &8_u64.to_be_bytes(), &new).is_ok() {
            value = Some(new);
        }
    }
    go_on(&store, map);
    assert_eq!((get(&store, map, 7), get(&store, map, 8)), (None, value.clone()));
    let newest = store.sync().expect("durable");
    assert_eq!(store.stat().expect("reads").durable_lsn, newest);
    place.pages.on_operation(|_, _| Ok(()));
    assert_eq!(get(&store, map, 9).as_deref(), Some(&b"first"[..]));
    check(&store);
    crate::logged::kill(store);
    let store = place.open_with(&large_pages());
    assert_eq!((get(&store, map, 7), get(&store, map, 8)), (None, value));
}

#[test]
fn longer_values_above_a_page_that_cannot_be_read_stop_no_commit() {
    let (place, store, map) = stored();
    refuse_reads(&place);
    // Nearly half a leaf.
    let keys = 1..26;
    keys.clone().for_each(|key| put(&store, map, key, &[1; 100]));
    let (mut refused, mut both_refused) = (0, 0);
    for round in 0..60_u8 {
        for key in [7, 8] {
            let long = vec![round; 100 + usize::from(round) * 20];
            refused += u32::from(put_blind(&store, map, &u64::to_be_bytes(key), &long).is_err());
        }
        let long = vec![round; 1_000];
        both_refused += u32::from(put_both(&store, map, [7, 9], &long).is_err());
    }
    assert!(refused > 10 && both_refused > 50, "{refused} and {both_refused} were refused");
    let expected: Vec<_> = keys.clone().map(|key| get(&store, map, key)).collect();
    go_on(&store, map);
    let newest = store.sync().expect("durable");
    assert_eq!(store.stat().expect("reads").durable_lsn, newest);
    place.pages.on_operation(|_, _| Ok(()));
    let found: Vec<_> = keys.map(|key| get(&store, map, key)).collect();
    assert!(found == expected);
    assert_eq!(get(&store, map, 30).as_deref(), Some(&b"first"[..]));
    check(&store);
}

/// Threads write their own keys blindly and read them again, while another one writes pages, evicts
/// them and makes commits durable.
#[test]
fn threads_read_what_they_have_written_blindly() {
    const THREADS: u64 = 3;
    const KEYS: u64 = 150;
    let (place, store, map) = stored();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cleaner = scope.spawn(|| {
            let mut random = Random::new(1);
            // Relaxed: it orders nothing.
            while !is_over.load(Ordering::Relaxed) {
                if random.one_in(2) {
                    store.sync().expect("durable");
                }
                store.empty_cache().expect("written");
            }
        });
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    let component = store.component();
                    let index = component.maps().index(map);
                    let map = TransactionalMap::new(component.clone(), map, index).expect("a map");
                    let mut random = Random::new(thread);
                    let mut last = vec![b"first".to_vec(); KEYS as usize];
                    for step in 0..4_000_u64 {
                        let number = random.below(KEYS) as usize;
                        let key = (number as u64 * 20 + thread).to_be_bytes();
                        if random.one_in(3) {
                            let found = map.get(&key).expect("reads");
                            assert_eq!(found.as_ref(), Some(&last[number]), "{thread}, {step}");
                        } else {
                            last[number] = step.to_le_bytes().to_vec();
                            map.put(&key, &last[number]).expect("writes");
                        }
                    }
                    last
                })
            })
            .collect();
        let last: Vec<_> = writers.into_iter().map(|writer| writer.join().expect("ends")).collect();
        is_over.store(true, Ordering::Relaxed);
        cleaner.join().expect("ends");
        for (thread, last) in (0..).zip(&last) {
            for (number, value) in (0..).zip(last) {
                let found = get(&store, map, number * 20 + thread);
                assert_eq!(found.as_ref(), Some(value), "{thread}, {number}");
            }
        }
    });
    let records = read_all(&store, &[map]);
    check(&store);
    crate::logged::kill(store);
    let store = place.open_with(&large_pages());
    assert!(read_all(&store, &[map]) == records, "other records after a kill");
    check(&store);
}
