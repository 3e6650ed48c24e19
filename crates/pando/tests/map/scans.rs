//! Scans own their map, find their place again, and tell errors.

use pando::{Error, MapOptions, Pool, PoolOptions, Scan, TypedScan};

use crate::common::kinds;

#[test]
fn a_scan_goes_to_another_thread_and_outlives_its_handle() {
    fn is_send<T: Send + 'static>() {}
    is_send::<Scan<'static>>();
    is_send::<TypedScan<'static, String>>();
    for kind in kinds() {
        let kept = kind();
        (0..200_u8).for_each(|number| kept.map.put([number], [number]).expect("fits"));
        let mut scan = kept.map.range([50]..);
        assert_eq!(scan.next().expect("a record").expect("reads").0, [50]);
        let handle = kept.map.clone();
        drop(kept.map);
        drop(handle);
        let refused = kept.pool.drop_map("map").expect_err("the scan is a handle");
        assert!(matches!(refused, Error::MapInUse { handles: 1, .. }), "{refused}");
        let rest = std::thread::spawn(move || {
            assert_eq!(scan.next_back().expect("a record").expect("reads").0, [199]);
            scan.map(|record| record.expect("reads").0[0]).collect::<Vec<_>>()
        });
        assert_eq!(rest.join().expect("no panic"), (51..199).collect::<Vec<_>>(), "{}", kept.name);
        kept.pool.drop_map("map").expect("no handle is left");
    }
}

/// It holds no place in the map: the records around its last key may go, and new ones are found.
#[test]
fn a_scan_goes_on_behind_its_last_key_whatever_has_changed() {
    for kind in kinds() {
        let kept = kind();
        let map = &kept.map;
        let key = |number: u32| number.to_be_bytes();
        (0..2_000).for_each(|number| map.put(key(number), [1; 40]).expect("fits"));
        let mut scan = map.range(..);
        let front = |scan: &mut Scan<'_>| scan.next().expect("a record").expect("reads").0;
        let back = |scan: &mut Scan<'_>| scan.next_back().expect("a record").expect("reads").0;
        (0..100).for_each(|number| assert_eq!(front(&mut scan), key(number)));
        (1_900..2_000).rev().for_each(|number| assert_eq!(back(&mut scan), key(number)));
        // Beyond what was copied, on both sides.
        (0..2_000).filter(|number| number % 500 != 250).for_each(|number| {
            assert!(map.remove(key(number)).expect("removes"));
        });
        (2_000..2_100).for_each(|number| map.put(key(number), "").expect("fits"));
        let rest: Vec<_> = scan.map(|record| record.expect("reads").0).collect();
        for number in [250, 750, 1_250, 1_750] {
            assert!(rest.contains(&key(number).to_vec()), "{}: {number}", kept.name);
        }
        let between = key(100).to_vec()..key(1_900).to_vec();
        assert!(rest.iter().all(|found| between.contains(found)), "{}", kept.name);
        assert!(rest.is_sorted_by(|left, right| left < right), "{}", kept.name);
    }
}

#[test]
fn errors_come_in_the_place_of_a_record_and_end_a_scan() {
    let pool = Pool::volatile(&PoolOptions::new()).expect("memory");
    let plain = pool.map("plain").expect("a map");
    let options = MapOptions::new().transactional(true);
    let map = pool.map_with("map", &options).expect("a map");
    map.insert("key", "value").expect("fits");
    let other_pool = Pool::volatile(&PoolOptions::new()).expect("memory");
    let other = other_pool.map_with("map", &options).expect("a map");
    let snapshot = pool.snapshot().expect("taken");
    let mut transaction = pool.begin().expect("begins");
    for is_back in [false, true] {
        let mut scan = snapshot.range(&plain, ..);
        let refused = if is_back { scan.next_back() } else { scan.next() };
        assert!(matches!(refused, Some(Err(Error::NotTransactional { .. }))));
        assert!(scan.next().is_none() && scan.next_back().is_none());
        assert!(matches!(snapshot.last(&other), Err(Error::MapOfOtherPool { .. })));
        let mut scan = transaction.range(&other, ..);
        let refused = if is_back { scan.next_back() } else { scan.next() };
        assert!(matches!(refused, Some(Err(Error::MapOfOtherPool { .. }))));
        assert!(scan.next().is_none() && scan.next_back().is_none());
    }
    assert_eq!(transaction.range(&map, "a"..).count(), 1);
}

/// A transaction conflicts with a change of the part that it has scanned, and not with others.
#[test]
fn only_the_part_that_was_returned_conflicts() {
    let pool = Pool::volatile(&PoolOptions::new()).expect("memory");
    let map = pool.map_with("map", &MapOptions::new().transactional(true)).expect("a map");
    let key = |number: u8| [number];
    let reset = || {
        map.clear().expect("removes");
        (10..100).step_by(10).for_each(|number| map.put(key(number), "").expect("fits"));
    };
    // Taken from the front and from the back; all, or not; the key that another one inserts.
    for (front, back, is_all, inserted, conflicts) in [
        (2, 0, false, 5, true),
        (2, 0, false, 15, true),
        (2, 0, false, 25, false),
        (2, 0, false, 95, false),
        (0, 2, false, 95, true),
        (0, 2, false, 75, false),
        (1, 1, false, 5, true),
        (1, 1, false, 95, true),
        (1, 1, false, 55, false),
        (1, 1, true, 55, true),
        (9, 0, false, 95, false),
        (9, 0, true, 95, true),
        (0, 9, true, 5, true),
        (0, 0, true, 5, true),
        (0, 0, false, 5, false),
    ] {
        reset();
        let mut transaction = pool.begin().expect("begins");
        let mut scan = transaction.range(&map, ..);
        (0..front).for_each(|_| drop(scan.next().expect("a record").expect("reads")));
        (0..back).for_each(|_| drop(scan.next_back().expect("a record").expect("reads")));
        if is_all {
            assert_eq!(scan.by_ref().rev().count(), 9 - front - back);
        }
        drop(scan);
        transaction.put(&map, "own", "").expect("fits");
        map.put(key(inserted), "").expect("fits");
        let committed = transaction.commit();
        let case = (front, back, is_all, inserted);
        match conflicts {
            true => assert!(matches!(committed, Err(Error::Conflict { .. })), "{case:?}"),
            false => assert!(committed.is_ok(), "{case:?}"),
        }
    }
}
