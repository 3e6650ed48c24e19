//! Threads that are killed or stopped at each write to the pool.

use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_log::LogOptions;
use pando_pmem::testing::{
    CutShort, active, between_each, count_writes, folder, folder_and_pool, kill_after,
    run_until_stopped, stamped,
};
use pando_pmem::{CreateOptions, OpenPool, Pool};

use std::sync::{Arc, OnceLock};

use crate::common::{
    ByFirstByte, Records, SMALL, append, create, create_in, newest, open, payload, read, write_all,
};

type Tested = CutShort<false>;

/// Writes over blocks that are free, and that a record should not lie in.
fn overwrite_free_blocks(pool: &Pool<Tested>) {
    let guard = pool.pin().expect("a slot");
    let blocks: Vec<_> = (0..8).map(|_| stamped(&guard, 32_512, 0xEE)).collect();
    drop(blocks);
}

/// A process is killed at each write of an append and of a block. The pool is opened again: all
/// that was appended is there, each record is whole, and the log continues.
#[test]
fn a_kill_at_each_write_leaves_whole_records() {
    let folder = folder();
    let create_options = CreateOptions { max_bytes: 1 << 26, ..CreateOptions::default() };
    let work = |log: &pando_log::Log<Tested>, appended: &mut Records| {
        for number in 2..5 {
            let payload = payload(number, 100);
            appended.insert(append(log, &payload).expect("appended"), payload);
            write_all(log).expect("written");
        }
    };
    for writes in 0.. {
        let path = folder.path().join(format!("pool-{writes}"));
        let directory = Simulated::new();
        let pool = Pool::<Tested>::create(&path, &create_options).expect("a pool");
        let log = create_in(pool, &directory, SMALL).expect("a log");
        // The arena has room for two more records: the third one wants another arena.
        let first_payload = payload(1, 32_144);
        let first = append(&log, &first_payload).expect("appended");
        let mut appended = Records::from([(first, first_payload)]);
        let has_ended = kill_after(writes, || work(&log, &mut appended)).is_some();
        let durable = log.durable_lsn();
        log.pool().clone().abandon();
        drop(log);

        let image = directory.cut_power(Kept::Nothing, &mut Random::new(writes));
        assert!(read(&image, 0).expect("reads").1.end_lsn() >= durable);
        let pool = Pool::<Tested>::open(&path, &OpenPool::default()).expect("opens");
        overwrite_free_blocks(&pool);
        let log = open(&pool, &directory).expect("opens");
        let last = append(&log, &payload(9, 100)).expect("appended");
        appended.insert(last, payload(9, 100));
        log.sync(last, &ByFirstByte).expect("synced");
        let (found, _) = read(&directory, 0).expect("reads");
        // One record may have been appended whose append had not returned.
        let more: Vec<_> = found.iter().filter(|(lsn, _)| !appended.contains_key(lsn)).collect();
        assert!(more.len() <= 1, "{more:?}");
        appended.extend(more.into_iter().map(|(lsn, payload)| (*lsn, payload.clone())));
        assert_eq!(found, appended, "killed before write {writes}");
        std::fs::remove_file(&path).expect("removed");
        if has_ended {
            return;
        }
    }
}

/// A thread stops for ever at each write of an append and of a block; others append and sync.
#[test]
fn a_thread_that_stops_at_any_write_holds_up_nobody() {
    let (_, writes) = count_writes(|| {
        let log = create::<Tested>(&Simulated::new(), SMALL);
        count_writes(|| {
            append(&log, &payload(1, 100)).expect("appended");
            write_all(&log).expect("written");
        })
        .1
    });
    for stop in 0..writes {
        let directory = Simulated::new();
        let log = Arc::new(create::<Tested>(&directory, SMALL));
        let theirs = log.clone();
        run_until_stopped(stop, move || {
            append(&theirs, &payload(1, 100)).expect("appended");
            write_all(&theirs).expect("written");
        });
        let mut appended = Records::new();
        for number in 2..6 {
            let payload = payload(number, 100);
            let lsn = append(&log, &payload).expect("appended");
            appended.insert(lsn, payload);
            log.sync(lsn, &ByFirstByte).expect("synced");
        }
        let (mut found, _) = read(&directory, 0).expect("reads");
        found.retain(|_, found| *found != payload(1, 100));
        assert_eq!(found, appended, "stopped before write {stop}");
        assert_eq!(log.durable_lsn(), newest(&log));
    }
}

/// Each place of the table has an arena. The log writer stops when all records are durable and
/// before it frees an arena, so the log has nothing to write that would free one.
#[test]
fn a_log_writer_that_stops_before_it_frees_arenas_takes_no_room_of_the_tail() {
    const ARENAS: u64 = 2_048;
    // One block has all records.
    let options = LogOptions { segment_bytes: 1 << 20, ..SMALL };
    let directory = Simulated::new();
    let mut log = create::<Tested>(&directory, options);
    let mut last = append(&log, &payload(1, 10)).expect("appended");
    for number in 2..=ARENAS {
        // Each opening begins with an arena of its own, as each slot of a thread does.
        log = open(log.pool(), &directory).expect("opens");
        last = append(&log, &payload(number, 10)).expect("appended");
    }
    let log = Arc::new(log);
    let used = active(log.pool()).len() as u64;
    let appended = Arc::new(OnceLock::new());
    let (noted, theirs) = (appended.clone(), log.clone());
    let append_when_durable = move || {
        if theirs.durable_lsn() < last {
            return true;
        }
        noted.set((active(theirs.pool()).len() as u64, append(&theirs, &payload(1, 10)))).is_err()
    };
    between_each(0, 0, append_when_durable, || {
        log.sync(last, &ByFirstByte).expect("synced");
    });
    let (found, lsn) = appended.get().expect("the log writer has stopped there");
    assert!(*found >= used && used > ARENAS, "{found} blocks, {used} before");
    let lsn = *lsn.as_ref().expect("no record waits in the tail");
    log.sync(lsn, &ByFirstByte).expect("synced");
}

/// What kills leave of arenas is free again after the next opening and some use.
#[test]
fn kills_leak_no_blocks() {
    let (_folder, path) = folder_and_pool();
    let directory = Simulated::new();
    let create_options = CreateOptions { max_bytes: 1 << 26, ..CreateOptions::default() };
    let pool = Pool::<Tested>::create(&path, &create_options).expect("a pool");
    drop(create_in(pool.clone(), &directory, SMALL).expect("a log"));
    drop(pool);
    let mut random = Random::new(4);
    for _ in 0..60 {
        let pool = Pool::<Tested>::open(&path, &OpenPool::default()).expect("opens");
        let log = open(&pool, &directory).expect("opens");
        let writes = random.below(6_000);
        kill_after(writes, || {
            for number in 1..40 {
                let lsn = append(&log, &payload(number, 2_000)).expect("appended");
                if number % 5 == 0 {
                    log.sync(lsn, &ByFirstByte).expect("synced");
                }
            }
        });
        log.pool().clone().abandon();
    }
    let pool = Pool::<Tested>::open(&path, &OpenPool::default()).expect("opens");
    let log = open(&pool, &directory).expect("opens");
    for number in 0..2_000 {
        let lsn = append(&log, &payload(number, 1_000)).expect("appended");
        if number % 500 == 499 {
            log.sync(lsn, &ByFirstByte).expect("synced");
            log.truncate(lsn).expect("truncated");
        }
    }
    for _ in 0..4 {
        pool.reclaim().expect("a slot");
    }
    let sizes: Vec<_> = active(&pool).iter().map(|block| block.bytes).collect();
    // The control block, a seal, and the arena of the newest record.
    assert_eq!(sizes.len(), 3, "{sizes:?}");
}
