//! `Pool::used_bytes` follows the allocated and freed blocks, and finds the figure again when a
//! pool is opened.

use pando::{Map, Pool, PoolOptions};

fn exact(pool: &Pool) -> u64 {
    pool.stat().expect("it does").allocator.used_bytes
}

/// Calls it until it has read the whole pool.
fn settled(pool: &Pool) -> u64 {
    (0..pool.size_bytes() >> 20).for_each(|_| {
        let _ = pool.used_bytes();
    });
    pool.used_bytes()
}

fn fill(map: &Map, keys: std::ops::Range<u64>, value_bytes: usize) {
    for key in keys {
        map.upsert(key.to_be_bytes(), vec![7; value_bytes]).expect("it does");
    }
}

#[test]
fn it_follows_what_one_thread_does() {
    let pool = Pool::volatile(&PoolOptions::new()).expect("it does");
    let map = pool.map("main").expect("it does");
    assert_eq!(pool.used_bytes(), exact(&pool));
    fill(&map, 0..2000, 100);
    assert_eq!(pool.used_bytes(), exact(&pool));
    let before = pool.used_bytes();
    // Of a slab, and of spans.
    fill(&map, 2000..2100, 20_000);
    fill(&map, 2100..2110, 200_000);
    let filled = pool.used_bytes();
    assert_eq!(filled, exact(&pool));
    assert!(filled >= before + 100 * 20_000 + 10 * 200_000);
    for key in 2000..2110_u64 {
        map.remove(key.to_be_bytes()).expect("it does");
    }
    assert_eq!(pool.used_bytes(), exact(&pool));
    assert!(pool.used_bytes() < before + 200_000);
}

#[test]
fn it_is_near_whatever_threads_do() {
    let pool = Pool::volatile(&PoolOptions::new()).expect("it does");
    let map = pool.map("main").expect("it does");
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|thread| {
                let map = &map;
                scope.spawn(move || {
                    for round in 0..5 {
                        let keys = thread * 1000..(thread + 1) * 1000;
                        fill(map, keys.clone(), 100 + 700 * round);
                        for key in keys.step_by(2) {
                            map.remove(key.to_be_bytes()).expect("it does");
                        }
                    }
                })
            })
            .collect();
        while !writers.iter().all(|writer| writer.is_finished()) {
            assert!(pool.used_bytes() <= pool.size_bytes());
        }
    });
    let (told, exact) = (settled(&pool), exact(&pool));
    assert!(told.abs_diff(exact) <= exact / 100, "{told} told, {exact} allocated");
}

#[test]
fn a_pool_that_was_opened_is_estimated_first_and_then_known() {
    let folder = tempfile::tempdir().expect("it does");
    let path = folder.path().join("used.pool");
    let pool = Pool::create(&path, &PoolOptions::new()).expect("it does");
    fill(&pool.map("main").expect("it does"), 0..6000, 15_000);
    let before = exact(&pool);
    pool.close().expect("it does");

    let pool = Pool::open(&path, &PoolOptions::new()).expect("it does");
    let estimated = pool.used_bytes();
    assert!(estimated.abs_diff(before) < before / 4, "{estimated} estimated, {before} allocated");
    assert_eq!(settled(&pool), exact(&pool));
    let map = pool.open_map("main").expect("it does");
    for key in 0..3000_u64 {
        map.remove(key.to_be_bytes()).expect("it does");
    }
    assert_eq!(pool.used_bytes(), exact(&pool));
    assert!(pool.used_bytes() < before * 6 / 10);
}
