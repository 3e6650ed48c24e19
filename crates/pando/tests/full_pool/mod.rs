//! Pools that are full, or nearly full, with maps of every kind. A new kind is tested without a
//! change here.

use pando::{Error, Map, MapOptions, Pool, PoolOptions, indexes};

#[test]
fn a_full_pool_says_so_and_takes_removes() {
    let options = PoolOptions::new().max_bytes(1 << 20).initial_bytes(0);
    let map = Pool::volatile(&options).unwrap().map("main").unwrap();
    let full =
        (0u32..).find_map(|number| map.insert(number.to_be_bytes(), [7; 1000]).err()).unwrap();
    assert!(matches!(full, Error::PoolFull { max_bytes: 0x10_0000 }), "{full}");
    assert!(map.remove(0u32.to_be_bytes()).unwrap());
}

/// A write that replaces a value, and how often it is done.
type Replace = fn(&Map, &[u8], u8);

const KEY: &[u8] = b"key";

/// Each write takes room for its value and frees the room of the value before.
const REPLACEMENTS: [(&str, Replace); 5] = [
    ("insert", |map, value, _| {
        map.remove(KEY).unwrap();
        map.insert(KEY, value).unwrap();
    }),
    ("update", |map, value, _| map.update(KEY, value).unwrap()),
    ("upsert", |map, value, _| {
        map.upsert(KEY, value).unwrap();
    }),
    ("compare_exchange", |map, value, turn| {
        let expected = vec![turn - 1; value.len()];
        map.compare_exchange(KEY, &expected, value).unwrap();
    }),
    ("modify", |map, value, _| {
        let change = &mut |_: Option<&[u8]>, new: &mut Vec<u8>| {
            new.extend_from_slice(value);
            true
        };
        map.modify(KEY, change).unwrap();
    }),
];

/// Two values have room at a time. A third finds room when the first is freed.
#[test]
fn a_value_of_almost_half_a_pool_is_replaced_again_and_again() {
    const VALUE_BYTES: usize = 10 << 20;
    for kind in indexes() {
        let options = PoolOptions::new().max_bytes(24 << 20).initial_bytes(0);
        let pool = Pool::volatile(&options).unwrap();
        let map = pool.map_with("main", &MapOptions::new().index(kind.name)).unwrap();
        let mut turn = 0;
        map.insert(KEY, vec![turn; VALUE_BYTES]).unwrap();
        for (name, replace) in REPLACEMENTS {
            for _ in 0..4 {
                turn += 1;
                println!("{}: {name}, value {turn}", kind.name);
                replace(&map, &vec![turn; VALUE_BYTES], turn);
                let is_new = map.read(KEY, |value| value.iter().all(|&byte| byte == turn));
                assert_eq!(is_new.unwrap(), Some(true), "{}: {name}", kind.name);
            }
        }
        assert!(pool.check().unwrap().is_consistent());
    }
}

/// Room that a map frees is room for maps of all kinds. An insert into one map does not take the
/// room that another map needs to merge its nodes.
#[test]
fn a_full_pool_with_two_kinds_of_maps_has_room_when_one_is_emptied() {
    for (kind, other) in
        [("bztree", "skiplist"), ("bztree", "wbtree"), ("wbtree", "skiplist"), ("bztree", "bwtree")]
    {
        let folder = tempfile::tempdir().unwrap();
        let options = PoolOptions::new().max_bytes(8 << 20).initial_bytes(0);
        let pool = Pool::create(folder.path().join("full.pool"), &options).unwrap();
        let emptied = pool.map_with("emptied", &MapOptions::new().index(kind)).unwrap();
        let filled = pool.map_with("filled", &MapOptions::new().index(other)).unwrap();
        for number in 0..30_000u32 {
            emptied.insert(number.to_be_bytes(), [1; 40]).unwrap();
        }
        let mut records = 0u32;
        let mut fill = |value_bytes: usize| loop {
            match filled.insert(records.to_be_bytes(), vec![2; value_bytes]) {
                Ok(()) => records += 1,
                Err(Error::PoolFull { .. }) => return records,
                Err(error) => panic!("{error}"),
            }
        };
        // Blocks of each size, until there is no room.
        let [.., full_records] = [4000, 2000, 1000, 400, 200, 100, 40, 8].map(&mut fill);
        let used = || pool.stat().unwrap().allocator.used_bytes;
        let full = used();
        for number in 0..30_000u32 {
            assert!(emptied.remove(number.to_be_bytes()).unwrap());
        }
        let left = used();
        assert!(left + (1 << 20) < full, "{kind}, {other}: {left} bytes of {full} are used");
        assert!(fill(40) > full_records + 1000, "{kind}, {other}");
        assert!(pool.check().unwrap().is_consistent());
    }
}
