//! Values that a pin has lent.

use std::collections::BTreeMap;

use pando::{Error, PinnedValue, Pool, PoolOptions};

use crate::common::{Kept, kinds};

/// A value of the key with this number, in this round.
fn value(number: usize, round: u8) -> Vec<u8> {
    let lengths = [0, 1, 8, 9, 100, 600, 3000];
    vec![round; lengths[number % lengths.len()]]
}

fn key(number: usize) -> String {
    format!("key {number:04}")
}

#[test]
fn a_lent_value_stays_as_it_was_while_others_replace_and_remove_it() {
    const KEYS: usize = 140;
    for kind in kinds() {
        let Kept { name, map, pool, .. } = &kind();
        let is_fixed = map.limits().max_value_bytes == 8;
        let value = |number, round| match is_fixed {
            true => vec![round; 8],
            false => value(number, round),
        };
        let put_all = |round| {
            (0..KEYS).for_each(|number| {
                map.upsert(key(number), value(number, round)).expect("room");
            });
        };
        put_all(1);
        let pin = pool.pin().expect("a slot");
        let mut lent: BTreeMap<(u8, usize), PinnedValue> = BTreeMap::new();
        for round in 2..30 {
            for number in (0..KEYS).filter(|number| number % 29 == usize::from(round) % 29) {
                let found = pin.get(map, key(number)).expect("reads").expect("it is there");
                lent.insert((round - 1, number), found);
            }
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    (0..KEYS).step_by(3).for_each(|number| {
                        map.remove(key(number)).expect("removes");
                    });
                    put_all(round);
                });
            });
        }
        assert!(lent.len() >= KEYS / 2, "{name}: {}", lent.len());
        // The values keep what they need, also without the pin itself.
        drop(pin);
        put_all(30);
        for ((round, number), found) in &lent {
            assert_eq!(**found, value(*number, *round), "{name}: key {number} in round {round}");
        }
        // Any thread may drop them.
        std::thread::scope(|scope| {
            scope.spawn(move || drop(lent));
        });
        assert_eq!(map.len().expect("counts"), KEYS as u64, "{name}");
    }
}

#[test]
fn a_value_is_lent_from_the_pool_if_it_has_bytes_there() {
    let pool = Pool::volatile(&PoolOptions::new()).expect("memory");
    let map = pool.map("map").expect("a map");
    map.upsert("long", [7; 100]).expect("room");
    map.upsert("empty", "").expect("room");
    let pin = pool.pin().expect("a slot");
    let long = pin.get(&map, "long").expect("reads").expect("it is there");
    assert!(!long.is_copied());
    assert_eq!(long.map().name(), "map");
    let empty = pin.get(&map, "empty").expect("reads").expect("it is there");
    assert!(empty.is_empty());
    assert!(pin.get(&map, "absent").expect("reads").is_none());
    let folder = tempfile::tempdir().expect("a folder");
    let store = pando::Store::open(folder.path().join("store"), 16 << 20).expect("opens");
    let stored = store.map("map").expect("a map");
    stored.put("long", [7; 100]).expect("room");
    let pin = store.pin().expect("a pin");
    let long = pin.get(&stored, "long").expect("reads").expect("it is there");
    assert!(long.is_copied() && *long == [7; 100]);
}

#[test]
fn a_lent_value_keeps_its_map_and_its_pool() {
    let pool = Pool::volatile(&PoolOptions::new()).expect("memory");
    let (map, other) = (pool.map("map").expect("a map"), pool.map("other").expect("a map"));
    map.upsert("ash", [1; 100]).expect("room");
    let pin = pool.pin().expect("a slot");
    let lent = pin.get(&map, "ash").expect("reads").expect("it is there");
    drop((pin, map, other));
    assert!(matches!(pool.drop_map("map"), Err(Error::MapInUse { .. })));
    pool.drop_map("other").expect("only its map is kept");
    let closed = pool.clone().close();
    assert!(matches!(closed, Err(Error::PoolInUse { maps: 1, .. })), "{closed:?}");
    drop(pool);
    assert_eq!(*lent, [1; 100]);
}

#[test]
fn a_pin_is_refused_a_map_of_another_pool() {
    let pool = Pool::volatile(&PoolOptions::new()).expect("memory");
    let other = Pool::volatile(&PoolOptions::new()).expect("memory");
    let map = other.map("map").expect("a map");
    let pin = pool.pin().expect("a slot");
    let refused = pin.get(&map, "ash");
    assert!(matches!(refused, Err(Error::MapOfOtherPool { .. })), "{refused:?}");
}

/// A transactional map is dropped when no thread can be inside a call with it.
#[test]
fn a_transactional_map_is_dropped_after_the_pin() {
    let pool = Pool::volatile(&PoolOptions::new()).expect("memory");
    let options = pando::MapOptions::new().transactional(true);
    let map = pool.map_with("map", &options).expect("a map");
    map.upsert("ash", "1").expect("room");
    drop(map);
    let pin = pool.pin().expect("a slot");
    let refused = pool.drop_map("map");
    assert!(matches!(refused, Err(Error::ThreadInside { .. })), "{refused:?}");
    drop(pin);
    pool.drop_map("map").expect("no thread is inside");
}

#[test]
fn the_memory_of_values_is_used_again_after_the_last_of_them() {
    let pool = Pool::volatile(&PoolOptions::new().max_bytes(16 << 20)).expect("memory");
    let map = pool.map("map").expect("a map");
    let fill = |rounds: usize| {
        (0..rounds).try_for_each(|round| map.upsert("key", vec![round as u8; 100_000]).map(drop))
    };
    fill(1000).expect("the memory is used again");
    let pin = pool.pin().expect("a slot");
    let lent = pin.get(&map, "key").expect("reads").expect("it is there");
    let first = lent[0];
    drop(pin);
    let full = fill(1000);
    assert!(matches!(full, Err(Error::PoolFull { .. })), "{full:?}");
    assert!(lent.iter().all(|byte| *byte == first));
    drop(lent);
    fill(1000).expect("the memory is used again");
}
