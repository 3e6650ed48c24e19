//! A damaged page of the list of maps: the store opens with the maps that can be read.

use std::collections::BTreeSet;

use pando_index::RangeIndex;
use pando_store::{Error, ReadableMaps, Store};

use crate::common::large_pages;
use crate::logged::{Place, kill};
use crate::openings::damage_page;

/// The number of the map that is the list.
const LIST: u64 = 1;

fn list_key(name: &str) -> Vec<u8> {
    [b"m", name.as_bytes()].concat()
}

fn create(store: &Store, name: &str, records: u64) -> u64 {
    let number = store.create_map(name).expect("created");
    let map = store.map(name).expect("a map");
    for key in 0..records {
        map.insert(&key.to_be_bytes(), &number.to_be_bytes()).expect("inserted");
    }
    number
}

/// The keys that can be read of a map, and the damage.
fn lent(store: &Store, number: u64) -> (Vec<u64>, Vec<String>) {
    let mut keys = Vec::new();
    let damage = store.lend_readable(number, &mut |key, value| {
        assert_eq!(value, number.to_be_bytes());
        keys.push(u64::from_be_bytes(key.try_into().expect("a key")));
    });
    assert!(keys.is_sorted());
    (keys, damage.expect("reads"))
}

#[track_caller]
fn check_told(error: &Error) {
    let told = error.to_string();
    assert!(told.contains("page ") && told.contains("restore it from a backup"), "{told}");
}

/// The list has several pages, and one of them is damaged.
#[test]
fn maps_whose_names_are_in_a_damaged_page_are_found_by_number() {
    let place = Place::new();
    let store = place.open_with(&large_pages());
    let name = |number: u64| format!("{number:060}");
    let numbers: Vec<u64> = (0..400).map(|number| create(&store, &name(number), 1)).collect();
    store.sync().expect("durable");
    store.checkpoint().expect("durable");
    kill(store);
    damage_page(&place, LIST, &list_key(&name(205)));
    let store = place.try_open(&large_pages()).expect("opens");
    let ReadableMaps { maps, unnamed, damage, .. } = store.readable_maps().expect("reads");
    assert!(maps.len() > 200 && unnamed.len() > 20, "{} and {}", maps.len(), unnamed.len());
    assert!(damage.len() == 1 && damage[0].contains("is damaged"), "{damage:?}");
    let named: Vec<u64> = maps.iter().map(|(_, number)| *number).collect();
    assert!(unnamed.contains(&numbers[205]));
    let all: BTreeSet<u64> = named.iter().chain(&unnamed).copied().collect();
    assert!(all.iter().eq(&numbers) && named.len() + unnamed.len() == numbers.len());
    // Those with names are maps like any other.
    for (name, number) in &maps {
        let map = store.map(name).expect("a map");
        assert_eq!(map.get(&[0; 8]).expect("reads").as_deref(), Some(&number.to_be_bytes()[..]));
        map.insert(b"new", b"").expect("inserted");
        map.remove(b"new").expect("removed");
    }
    // The others are not taken for maps that do not exist.
    check_told(&store.map(&name(205)).expect_err("its name is unread"));
    check_told(&store.create_map(&name(205)).expect_err("its name is unread"));
    check_told(&store.drop_map(&name(205)).expect_err("its name is unread"));
    check_told(&store.maps().expect_err("some names are unread"));
    for &number in &unnamed {
        assert_eq!(lent(&store, number), (vec![0], Vec::new()));
    }
    assert!(!all.contains(&create(&store, "new", 1)));
    assert!(!store.check().expect("reads").is_empty());
    store.close().expect("durable");
    let store = place.try_open(&large_pages()).expect("opens");
    assert_eq!(store.readable_maps().expect("reads").unnamed, unnamed);
}

/// All of the list is in one page, together with the first records of a map; and the log has writes
/// of both.
#[test]
fn a_store_opens_without_its_list_of_maps() {
    let place = Place::new();
    let store = place.open_with(&large_pages());
    let [trees, birds] = ["trees", "birds"].map(|name| create(&store, name, 2_000));
    store.sync().expect("durable");
    store.checkpoint().expect("durable");
    store.empty_cache().expect("written");
    let fish = create(&store, "fish", 2_000);
    store.map("trees").expect("a map").remove(&[0; 8]).expect("removed");
    store.sync().expect("durable");
    kill(store);
    damage_page(&place, LIST, &list_key("trees"));
    let store = place.try_open(&large_pages()).expect("opens");
    assert!(store.stat().expect("reads").recovery.damaged_pages > 0);
    let ReadableMaps { maps, unnamed, damage, .. } = store.readable_maps().expect("reads");
    assert_eq!((maps, unnamed), (Vec::new(), vec![trees, birds, fish]));
    assert_eq!(damage.len(), 1, "{damage:?}");
    for number in [birds, fish] {
        assert_eq!(lent(&store, number), ((0..2_000).collect(), Vec::new()));
    }
    let (keys, damage) = lent(&store, trees);
    assert!(keys.len() > 1_500 && keys.last() == Some(&1_999), "{}", keys.len());
    assert!(damage.len() == 1 && damage[0].contains("page "), "{damage:?}");
    check_told(&store.map("trees").expect_err("its name is unread"));
    store.close().expect("durable");
}
