//! The maps of a store: their names, ranges, and what a drop leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_device::Operation;
use pando_device::simulated::Kept;
use pando_index::conformance::Subject;
use pando_index::random::Random;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_store::{Error, Store};

use crate::common::large_pages;
use crate::logged::{Place, check, kill};
use crate::openings::damage_page;

fn put(store: &Store, map: &str, keys: std::ops::Range<u32>) {
    let map = store.map(map).expect("a map");
    for key in keys {
        map.upsert(&key.to_be_bytes(), b"value").expect("written");
    }
}

fn count(map: &dyn RangeIndex) -> usize {
    let mut cursor = map.scan(KeyRange::all(), Order::Descending).expect("a scan");
    let mut records = 0;
    while cursor.next().expect("a record").is_some() {
        records += 1;
    }
    records
}

#[test]
fn maps_have_names_and_records_of_their_own() {
    let place = Place::new();
    let store = place.open();
    assert_eq!(store.maps().expect("reads"), []);
    // Numbers with prefixes of two lengths.
    let names: Vec<String> = (0..300).map(|number| format!("map {number:03}")).collect();
    for name in &names {
        store.create_map(name).expect("created");
        put(&store, name, 0..3);
    }
    let listed = store.maps().expect("reads");
    assert!(listed.iter().map(|(name, _)| name).eq(&names));
    for name in &names {
        assert_eq!(count(&store.map(name).expect("a map")), 3);
    }
    let map = store.map("map 255").expect("a map");
    let mut cursor =
        map.scan(KeyRange::from(&1_u32.to_be_bytes()..), Order::Ascending).expect("a scan");
    assert_eq!(
        cursor.next().expect("a record").map(|(key, _)| key.to_vec()),
        Some(vec![0, 0, 0, 1])
    );
    for (found, allowed) in [("", false), (&"x".repeat(65), false), (&"x".repeat(64), true)] {
        assert_eq!(store.create_map(found).is_ok(), allowed, "{found:?}");
    }
    let refused = store.create_map("map 007").expect_err("it is there");
    assert!(matches!(refused, Error::MapExists { .. }), "{refused}");
    let refused = store.map("none").expect_err("it is not there");
    assert!(matches!(refused, Error::MapNotFound { .. }), "{refused}");
    check(&store);
}

#[test]
fn a_dropped_map_is_gone_and_its_records_are_cleared() {
    let place = Place::new();
    let store = place.open();
    for name in ["kept", "dropped"] {
        store.create_map(name).expect("created");
        put(&store, name, 0..2_000);
    }
    let handle = store.map("dropped").expect("a map");
    let refused = store.drop_map("dropped").expect_err("a handle is held");
    assert!(matches!(refused, Error::HandleHeld { .. }), "{refused}");
    let number = store.find_map("dropped").expect("reads").expect("it is there");
    drop(handle);
    store.drop_map("dropped").expect("dropped");
    let mut late = store.component().begin();
    let refused = late.put(number, b"late", b"value").expect_err("it is gone");
    assert!(matches!(refused, pando_tc::Error::UnknownMap { .. }), "{refused}");
    drop(late);
    let refused = store.drop_map("dropped").expect_err("it is gone");
    assert!(matches!(refused, Error::MapNotFound { .. }), "{refused}");
    // Before the records are cleared, a power cut: the next opening clears them.
    let cut = place.after_cut(Kept::Nothing, &mut Random::new(1));
    for (store, place) in [(store, &place), (cut.open(), &cut)] {
        let records = || store.component().maps().index(3);
        assert_eq!(count(&*records()), 2_000);
        store.clear_dropped().expect("cleared");
        assert_eq!(count(&*records()), 0);
        // The name can be used again, by another map.
        store.create_map("dropped").expect("created");
        assert_eq!(count(&store.map("dropped").expect("a map")), 0);
        assert_eq!(count(&store.map("kept").expect("a map")), 2_000);
        check(&store);
        kill(store);
        let store = place.open();
        let records = store.component().maps().index(3);
        assert_eq!(count(&*records), 0, "the log has none of them any more");
        assert_eq!(store.maps().expect("reads").len(), 2);
    }
}

/// A power cut at any operation of the clearing leaves a store that clears the rest.
#[test]
fn a_clearing_that_is_cut_off_is_made_again() {
    let place = Arc::new(Place::new());
    let store = place.open();
    let [_, dropped] = ["kept", "dropped"].map(|name| store.create_map(name).expect("created"));
    for name in ["kept", "dropped"] {
        put(&store, name, 0..1_000);
    }
    store.drop_map("dropped").expect("dropped");
    let images = Arc::new(AtomicU64::new(0));
    for directory in [&place.pages, &place.log] {
        let (place, images) = (Arc::downgrade(&place), images.clone());
        directory.on_operation(move |operation, name| {
            if operation == Operation::Read {
                return Ok(());
            }
            let Some(place) = place.upgrade() else { return Ok(()) };
            let number = images.fetch_add(1, Ordering::Relaxed);
            let kept = if number.is_multiple_of(2) { Kept::All } else { Kept::Some };
            let cut = place.after_cut(kept, &mut Random::new(number));
            let store = cut.open();
            store.clear_dropped().expect("cleared");
            let records = count(&*store.component().maps().index(dropped));
            assert_eq!(records, 0, "image {number}, before {operation} {name}");
            assert_eq!(count(&store.map("kept").expect("a map")), 1_000);
            Ok(())
        });
    }
    store.clear_dropped().expect("cleared");
    store.sync().expect("durable");
    store.checkpoint().expect("durable");
    assert!(images.load(Ordering::Relaxed) > 10, "{images:?}");
    for directory in [&place.pages, &place.log] {
        directory.on_operation(|_, _| Ok(()));
    }
}

/// A dropped map with a damaged page stays, and the other ones are cleared: one that was dropped
/// before it, and one after it.
#[test]
fn a_damaged_dropped_map_holds_up_no_other() {
    let place = Place::new();
    let store = place.open();
    let names = ["first", "damaged", "last"];
    for name in names {
        store.create_map(name).expect("created");
        put(&store, name, 0..2_000);
    }
    let numbers = names.map(|name| store.find_map(name).expect("reads").expect("it is there"));
    store.checkpoint().expect("durable");
    kill(store);
    damage_page(&place, numbers[1], &1_005_u32.to_be_bytes());
    let store = place.open();
    names.iter().for_each(|name| store.drop_map(name).expect("dropped"));
    for _ in 0..2 {
        let refused = store.clear_dropped().expect_err("a page is damaged");
        assert!(refused.to_string().contains("is damaged"), "{refused}");
        for number in [numbers[0], numbers[2]] {
            assert_eq!(count(&*store.component().maps().index(number)), 0, "map {number}");
        }
        assert_eq!(store.stat().expect("reads").dropped_maps, 1);
    }
    kill(store);
    assert_eq!(place.open().stat().expect("reads").dropped_maps, 1);
}

/// A transaction has read a map, and commits after the map was dropped: it fails, and the log goes
/// on.
#[test]
fn a_commit_to_a_map_that_was_dropped_meanwhile_fails() {
    let place = Place::new();
    let store = place.open();
    let [kept, dropped] = ["kept", "dropped"].map(|name| store.create_map(name).expect("created"));
    put(&store, "dropped", 0..10);
    put(&store, "kept", 0..10);
    let mut late = store.component().begin();
    let key = 1_u32.to_be_bytes();
    late.get(dropped, &key).expect("reads");
    late.put(dropped, &key, b"late").expect("it is there");
    late.put(kept, &key, b"late").expect("it is there");
    store.drop_map("dropped").expect("dropped");
    let refused = late.commit().expect_err("it is gone");
    assert!(matches!(refused, pando_tc::Error::UnknownMap { .. }), "{refused}");
    store.sync().expect("durable");
    store.clear_dropped().expect("cleared");
    let found = store.map("kept").expect("a map").get(&key).expect("reads");
    assert_eq!(found.as_deref(), Some(&b"value"[..]));
    put(&store, "kept", 0..10);
    store.sync().expect("durable");
    check(&store);
}

#[test]
fn numbers_that_no_map_has_are_refused() {
    let place = Place::new();
    let store = place.open();
    let number = store.create_map("map").expect("created");
    for unknown in [0, number + 1, u64::MAX] {
        let refused = store.component().begin().put(unknown, b"key", b"value").expect_err("none");
        assert!(matches!(refused, pando_tc::Error::UnknownMap { .. }), "{refused}");
    }
}

/// A map of a store, for the conformance suite.
struct OneMap {
    store: Store,
    map: Box<dyn RangeIndex>,
    _place: Place,
}

fn one_map() -> OneMap {
    let place = Place::new();
    let mut store = place.open();
    store.keep().expect("threads");
    store.create_map("before").expect("created");
    put(&store, "before", 0..100);
    store.create_map("map").expect("created");
    store.create_map("behind").expect("created");
    put(&store, "behind", 0..100);
    let map = Box::new(store.map("map").expect("a map"));
    OneMap { store, map, _place: place }
}

impl Subject for OneMap {
    fn index(&self) -> &dyn RangeIndex {
        &*self.map
    }

    fn check(&self) {
        check(&self.store);
        assert_eq!(count(&self.store.map("behind").expect("a map")), 100);
    }

    fn scale(&self) -> f64 {
        0.05
    }
}

mod conformance {
    use super::*;
    pando_index::conformance_suite!(one_map);
}

/// The records of a dropped map were in all segments, beside those of another map.
#[test]
fn files_go_when_a_map_is_dropped() {
    let place = Place::new();
    let store = place.open_with(&large_pages());
    for name in ["large", "small"] {
        store.create_map(name).expect("created");
    }
    let maps = ["large", "small"].map(|name| store.map(name).expect("a map"));
    for key in 0..12_000_u32 {
        maps[0].put(&key.to_be_bytes(), &[1; 4_000]).expect("written");
        if key % 10 == 0 {
            maps[1].put(&key.to_be_bytes(), &[2; 1_000]).expect("written");
        }
        if key % 100 == 0 {
            store.sync().expect("durable");
        }
    }
    store.checkpoint().expect("durable");
    drop(maps);
    let segments = || store.stat().expect("reads").data.pages.segments;
    let before = segments();
    store.drop_map("large").expect("dropped");
    store.clear_dropped().expect("cleared");
    assert!(before > 12 && segments() <= 8, "{before} and then {} files", segments());
    assert_eq!(count(&store.map("small").expect("a map")), 1_200);
    check(&store);
}
