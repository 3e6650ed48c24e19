//! A log that is replaced by a new one.

use pando_device::Directory;
use pando_device::simulated::Simulated;
use pando_log::{Error, Log, create_files};
use pando_pmem::{Process, layout};

use crate::common::{SMALL, append, create, newest, open, payload, read, synced, write_all};

#[test]
fn a_new_log_goes_on_behind_the_newest_record_and_the_former_blocks_are_freed() {
    let [former, new] = [(); 2].map(|()| Simulated::new());
    let log = create::<Process>(&former, SMALL);
    let pool = log.pool().clone();
    let blocks_of = |log: &Log<Process>| log.blocks(&pool.pin().expect("a slot")).len() as u64;
    let active = || pool.usage().expect("a slot").active_blocks;
    let others = active() - blocks_of(&log);
    for number in 1..200 {
        synced(&log, &payload(number, 100));
    }
    for number in 200..400 {
        append(&log, &payload(number, 1_000)).expect("appended");
    }
    let lsn = newest(&log);
    drop(log);

    let tail = Log::open_tail(pool.clone(), layout::LOG_OFF, SMALL).expect("a tail");
    assert!(newest(&tail) == lsn && !tail.has_files());
    drop(tail);
    create_files(&new, pool.pool_id(), (43, lsn), SMALL).expect("created");
    create_files(&new, pool.pool_id(), (43, lsn), SMALL).expect("created again");
    for _ in 0..2 {
        Log::replace(&pool, layout::LOG_OFF, &new, 43).expect("replaced");
    }
    let log = open(&pool, &new).expect("opens");
    assert_eq!((newest(&log), log.durable_lsn(), log.log_id()), (lsn, lsn, 43));
    assert_eq!(active() - blocks_of(&log), others, "blocks of the former log are left");
    // The empty log can be read from where it begins, and from nowhere else.
    assert_eq!(read(&new, lsn).expect("a log").1.end_lsn(), lsn);
    assert!(matches!(read(&new, 0), Err(Error::Missing { .. })));
    let first = synced(&log, &payload(401, 100));
    assert!(first > lsn);
    append(&log, &payload(402, 100)).expect("appended");
    write_all(&log).expect("written");
    let (records, recovered) = read(&new, lsn).expect("a log");
    assert_eq!(records.len(), 2);
    assert_eq!((records.keys().next(), recovered.end_lsn()), (Some(&first), newest(&log)));
    drop(log);
    let refused = open(&pool, &former).expect_err("the former log");
    assert!(matches!(refused, Error::Foreign { .. }), "{refused}");
}

#[test]
fn only_an_empty_directory_becomes_a_new_log_and_only_the_new_log_is_put_in_place() {
    let [former, other] = [(); 2].map(|()| Simulated::new());
    let log = create::<Process>(&former, SMALL);
    synced(&log, &payload(1, 100));
    let pool = log.pool().clone();
    drop(log);
    for (directory, name) in [(&former, None), (&other, Some("spare-0000000000000001"))] {
        name.into_iter().for_each(|name| drop(directory.create(name).expect("created")));
        let before = directory.names().expect("listed").len();
        let refused = create_files(directory, pool.pool_id(), (43, 0), SMALL).expect_err("used");
        assert!(matches!(refused, Error::NotEmpty { .. }), "{refused}");
        assert_eq!(directory.names().expect("listed").len(), before);
    }
    let refused = Log::replace(&pool, layout::LOG_OFF, &former, 43).expect_err("another");
    assert!(matches!(refused, Error::Foreign { .. }), "{refused}");
    let refused = Log::replace(&pool, layout::LOG_OFF, &Simulated::new(), 43).expect_err("none");
    assert!(matches!(refused, Error::NotALog { .. }), "{refused}");
    open(&pool, &former).expect("opens");
}
