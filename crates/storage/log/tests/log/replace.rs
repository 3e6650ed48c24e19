//! A log that is replaced by a new one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_device::Directory;
use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_log::{Error, Log, adopt, check_owner, copy, create_files, log_id_of};
use pando_pmem::{Pool, Process, layout};

use crate::common::{
    SMALL, append, create, create_in, newest, open, payload, read, synced, write_all,
};

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

#[test]
fn a_proposal_is_no_log_until_its_pool_names_it() {
    let directory = Simulated::new();
    let pool = Pool::<Process>::anonymous(&Default::default()).expect("memory");
    let own = pool.pool_id();
    let propose = |pool_id, log_id| create_files(&directory, pool_id, (log_id, 640), SMALL);
    let proposed = || match log_id_of(&directory).expect_err("no log") {
        Error::Proposed { log_id, pool_id, .. } => (log_id, pool_id),
        other => panic!("{other}"),
    };
    propose(own, 43).expect("proposed");
    assert_eq!(proposed(), (43, own));
    // It is neither read nor written over.
    let refused = [
        read(&directory, 640).map(drop),
        check_owner(&directory, 43, own),
        copy(&directory, 640, &Simulated::new(), &|_| true).map(drop),
        create_in(pool.clone(), &directory, SMALL).map(drop),
        adopt(&directory, 44, own).and_then(|()| log_id_of(&directory).map(drop)),
        adopt(&directory, 43, own + 1).and_then(|()| log_id_of(&directory).map(drop)),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        let refused = refused.expect_err("no log");
        assert!(matches!(refused, Error::Proposed { .. }), "{number}: {refused}");
        assert!(refused.to_string().contains("with its former log"), "{refused}");
    }
    let other = Simulated::new();
    create::<Process>(&other, SMALL);
    let refused = copy(&other, 0, &directory, &|_| true).expect_err("no empty directory");
    assert!(matches!(refused, Error::Proposed { .. }), "{refused}");
    // Another pool does not replace it, and its own one does.
    let refused = propose(own + 1, 43).expect_err("of another pool");
    assert!(matches!(refused, Error::NotEmpty { .. }), "{refused}");
    assert_eq!(proposed(), (43, own));
    propose(own, 44).expect("replaced");
    assert_eq!(proposed(), (44, own));

    for _ in 0..2 {
        adopt(&directory, 44, own).expect("adopted");
        assert_eq!(log_id_of(&directory).expect("a log"), 44);
    }
    assert_eq!(directory.names().expect("listed"), ["manifest"]);
    for log_id in [44, 45] {
        let refused = propose(own, log_id).expect_err("a log");
        assert!(matches!(refused, Error::NotEmpty { .. }), "{refused}");
    }
    // A damaged one is told apart from none.
    let damaged = Simulated::new();
    create_files(&damaged, own, (43, 640), SMALL).expect("proposed");
    assert!(damaged.damage("proposal", |bytes| bytes[20] ^= 1));
    for refused in [
        log_id_of(&damaged).map(drop),
        create_files(&damaged, own, (43, 640), SMALL),
        create_in(pool, &damaged, SMALL).map(drop),
    ] {
        let refused = refused.expect_err("it is damaged");
        assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    }
}

/// A log that is in use has a durable manifest, whatever failed before.
#[test]
fn a_replacement_that_failed_at_any_operation_is_made_again() {
    let mut failed = 0;
    for granted in 0.. {
        let [former, new] = [(); 2].map(|()| Simulated::new());
        let log = create::<Process>(&former, SMALL);
        synced(&log, &payload(1, 100));
        let (pool, lsn) = (log.pool().clone(), newest(&log));
        drop(log);
        create_files(&new, pool.pool_id(), (43, lsn), SMALL).expect("proposed");
        let left = Arc::new(AtomicU64::new(granted));
        new.on_operation(move |_, _| {
            let count = |left: u64| left.checked_sub(1);
            match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) {
                Ok(_) => Ok(()),
                Err(_) => Err(io::Error::other("the medium failed")),
            }
        });
        let replaced = Log::replace(&pool, layout::LOG_OFF, &new, 43);
        new.on_operation(|_, _| Ok(()));
        let has_ended = replaced.is_ok();
        failed += u64::from(!has_ended);
        if !has_ended {
            assert!(!Log::has_id(&pool, layout::LOG_OFF, 43).expect("a log"), "{granted}");
            Log::replace(&pool, layout::LOG_OFF, &new, 43).expect("replaced");
        }
        let image = new.cut_power(Kept::Nothing, &mut Random::new(1));
        assert_eq!(log_id_of(&image).expect("a log"), 43, "{granted}");
        synced(&open(&pool, &new).expect("opens"), &payload(2, 100));
        let image = new.cut_power(Kept::Nothing, &mut Random::new(1));
        assert_eq!(read(&image, lsn).expect("reads").0.len(), 1, "{granted}");
        if has_ended {
            break;
        }
    }
    assert!(failed > 8, "{failed} failures");
}
