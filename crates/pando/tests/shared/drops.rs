//! Maps that a process drops while others share the pool. A second handle of the pool stands for a
//! second process where nothing is killed.

use pando::{Error, Pool};

use crate::worker::Worker;
use crate::{check_alone, open, shared, wait_until};

#[test]
fn a_map_that_another_process_has_open_is_not_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared.pool");
    let one = Pool::create(&path, &shared()).unwrap();
    let other = open(&path);
    let map = other.map("main").unwrap();
    let empty_bytes = one.stat().unwrap().allocator.used_bytes;
    (0..2_000_u32).for_each(|key| map.upsert(key.to_be_bytes(), [7; 100]).map(drop).unwrap());

    let second = other.open_map("main").unwrap();
    drop(map);
    assert!(matches!(one.drop_map("main"), Err(Error::MapOpenElsewhere { .. })));
    assert!(matches!(other.drop_map("main"), Err(Error::MapInUse { handles: 1, .. })));
    assert_eq!(second.len().unwrap(), 2_000);
    drop(second);
    one.drop_map("main").unwrap();
    assert!(matches!(other.open_map("main"), Err(Error::MapNotFound { .. })));
    assert!(matches!(other.drop_map("main"), Err(Error::MapNotFound { .. })));

    // The name is free, and so are the blocks.
    let again = other.map("main").unwrap();
    assert!(again.is_empty().unwrap());
    wait_until("the blocks of the dropped map are not given back", || {
        one.stat().unwrap().allocator.used_bytes == empty_bytes
    });
    // A worker has the map open when it dies.
    drop(again);
    let worker = Worker::start(&path, 0, 1);
    assert!(matches!(one.drop_map("main"), Err(Error::MapOpenElsewhere { .. })));
    worker.kill();
    one.drop_map("main").unwrap();
    drop((one, other));
    check_alone(&path);
}

/// One process drops a map and creates it again, while another opens it and writes to it.
#[test]
fn a_dropped_map_is_not_used() {
    const ROUNDS: u64 = 300;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared.pool");
    let one = Pool::create(&path, &shared()).unwrap();
    let other = open(&path);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let map = other.map("main").unwrap();
                for key in 0..20 {
                    map.upsert((round << 8 | key).to_be_bytes(), [round as u8; 300]).unwrap();
                }
            }
        });
        let mut drops = 0;
        while drops < ROUNDS / 4 {
            match one.drop_map("main") {
                Ok(()) => drops += 1,
                Err(Error::MapOpenElsewhere { .. } | Error::MapNotFound { .. }) => {
                    drop(one.map("main").unwrap());
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    let map = one.map("main").unwrap();
    assert!(one.check_online().unwrap().is_consistent());
    drop((map, one, other));
    check_alone(&path);
}

/// A process is killed while it drops maps; another one frees what it has left.
#[test]
fn a_process_that_dies_while_it_drops_a_map_leaves_no_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared.pool");
    let pool = Pool::create(&path, &shared()).unwrap();
    drop(pool.map("main").unwrap());
    for first in 0..12 {
        let worker = Worker::start_to_drop_maps(&path, 0);
        std::thread::sleep(std::time::Duration::from_millis(20 + first * 3));
        worker.kill();
        wait_until("dead processes stay", || pool.processes().unwrap().len() == 1);
        // The map that the worker had is there, or it is gone.
        match pool.drop_map("dropped-0") {
            Ok(()) | Err(Error::MapNotFound { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        wait_until("the blocks of a dropped map stay", || {
            pool.stat().unwrap().allocator.used_blocks < 10
        });
    }
    drop(pool);
    check_alone(&path);
}
