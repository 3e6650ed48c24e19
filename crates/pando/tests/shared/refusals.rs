//! What a shared pool refuses, and what it says.

use pando::{DomainChoice, Error, MapOptions, Pool, PoolOptions};

use crate::worker::Worker;
use crate::{open, shared};

fn what_is_refused<T>(refused: Result<T, Error>) -> String {
    match refused {
        Err(Error::NotShareable { what, why }) => format!("{what}: {why}"),
        Err(other) => panic!("refused for another reason: {other}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn maps_that_processes_cannot_share_are_refused_and_the_others_stay_usable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let alone = Pool::create(&path, &PoolOptions::new()).unwrap();
    drop(alone.map_with("nb", &MapOptions::new().index("nbtree")).unwrap());
    drop(alone.map("main").unwrap());
    alone.close().unwrap();

    let pool = open(&path);
    assert!(pool.is_shared());
    let refused = what_is_refused(pool.open_map("nb"));
    assert!(refused.contains("\"nb\"") && refused.contains("nbtree"), "{refused}");
    for index in ["nbtree", "wbtree", "bwtree"] {
        what_is_refused(pool.map_with("new", &MapOptions::new().index(index)));
    }
    what_is_refused(pool.map_with("new", &MapOptions::new().transactional(true)));
    assert_eq!(pool.maps().unwrap().len(), 2, "a refused map was created");
    what_is_refused(pool.drop_map("nb"));
    what_is_refused(pool.check());
    assert_eq!(pool.release_unused(u64::MAX).unwrap(), 0);
    pool.open_map("main").unwrap().upsert(b"key", b"value").unwrap();
    what_is_refused(pool.compact());
    let alone = Pool::open(&path, &PoolOptions::new()).unwrap();
    assert!(alone.processes().unwrap().is_empty());
    assert!(alone.check().unwrap().problems.is_empty());
}

#[test]
fn pools_that_processes_cannot_share_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let with_log = folder.path().join("with-log");
    let log = folder.path().join("log");
    what_is_refused(Pool::create(&with_log, &shared().log(&log)));
    assert!(!with_log.exists() && !log.exists());
    drop(Pool::create(&with_log, &PoolOptions::new().max_bytes(256 << 20).log(&log)).unwrap());
    what_is_refused(Pool::open(&with_log, &shared()));

    let transactional = folder.path().join("transactional");
    let alone = Pool::create(&transactional, &PoolOptions::new().max_bytes(256 << 20)).unwrap();
    drop(alone.map_with("main", &MapOptions::new().transactional(true)).unwrap());
    drop(alone);
    what_is_refused(Pool::open(&transactional, &shared()));
    // It is not left open.
    drop(Pool::open(&transactional, &PoolOptions::new()).unwrap());

    let adr = folder.path().join("adr");
    what_is_refused(Pool::create(&adr, &shared().domain(DomainChoice::Adr)));
    assert!(!adr.exists());
    drop(Pool::create(&adr, &PoolOptions::new().domain(DomainChoice::Adr)).unwrap());
    what_is_refused(Pool::open(&adr, &shared().domain(DomainChoice::Adr)));
    assert!(matches!(Pool::volatile(&shared()), Err(Error::Option { .. })));
}

#[test]
fn a_pool_is_open_to_one_process_alone_or_to_those_that_share_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let alone = Pool::create(&path, &PoolOptions::new().max_bytes(256 << 20)).unwrap();
    assert!(matches!(Pool::open(&path, &shared()), Err(Error::PoolBusy { .. })));
    drop(alone);
    let one = open(&path);
    let two = open(&path);
    assert!(matches!(Pool::open(&path, &PoolOptions::new()), Err(Error::PoolBusy { .. })));
    let names: Vec<_> = one.stat().unwrap().processes.into_iter().map(|seen| seen.name).collect();
    assert_eq!(names.len(), 2);
    assert!(names.iter().all(|name| !name.is_empty()));
    drop((one, two));
    drop(Pool::open(&path, &PoolOptions::new()).unwrap());
}

#[test]
fn processes_that_open_or_create_a_pool_at_once_share_it() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let path = &folder.path().join(format!("pool {round}"));
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let pool = Pool::open_or_create(path, &shared()).unwrap();
                    pool.map("main").unwrap().insert([number], b"").unwrap();
                    barrier.wait();
                    assert_eq!(pool.open_map("main").unwrap().len().unwrap(), 4);
                });
            }
        });
    }
}

/// Two processes create one map at once: both get the same.
#[test]
fn a_map_that_two_processes_create_is_one_map() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    drop(Pool::create(&path, &shared()).unwrap());
    let pools: Vec<_> = (0..4).map(|_| open(&path)).collect();
    for name in 0..20 {
        std::thread::scope(|scope| {
            for (number, pool) in (0..).zip(&pools) {
                scope.spawn(move || {
                    pool.map(&format!("map {name}")).unwrap().insert([number], b"").unwrap();
                });
            }
        });
    }
    for pool in &pools {
        assert_eq!(pool.maps().unwrap().len(), 20);
        for name in 0..20 {
            assert_eq!(pool.open_map(&format!("map {name}")).unwrap().len().unwrap(), 4);
        }
    }
}

/// A process that does not have the pool open is not killed, whatever its id.
#[test]
fn only_a_process_that_shares_the_pool_can_be_evicted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let pool = Pool::create(&path, &shared()).unwrap();
    drop(pool.map("main").unwrap());
    let worker = Worker::start(&path, 0, 1);
    let mut stranger = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    for pid in [std::process::id(), stranger.id(), 0, u32::MAX] {
        match pool.evict(pid) {
            Err(Error::ProcessNotFound { pid: found, present, .. }) => {
                assert_eq!((found, present), (pid, vec![worker.pid()]));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(stranger.try_wait().unwrap().is_none(), "it was killed");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    worker.kill();
}
