//! Failing, full and slow disks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pando_device::Operation;
use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_log::{Error, Record, Result, Settle, Status};
use pando_pmem::{Guard, Process};

use crate::common::{
    ByFirstByte, SMALL, append, create, create_with, newest, open, payload, read, synced,
    with_stopped_sync,
};

#[test]
fn a_failed_sync_stops_the_log_and_the_next_opening_writes_all_anew() {
    for operation in [Operation::Write, Operation::Sync] {
        let directory = Simulated::new();
        let log = create::<Process>(&directory, SMALL);
        let first = synced(&log, &payload(1, 10));
        let second = append(&log, &payload(2, 10)).expect("appended");
        let third = append(&log, &payload(3, 10)).expect("appended");
        let may_fail = AtomicBool::new(true);
        directory.on_operation(move |found, _| {
            let fails = found == operation && may_fail.swap(false, Ordering::Relaxed);
            if fails { Err(io::Error::other("the medium failed")) } else { Ok(()) }
        });
        let failed = log.sync(second, &ByFirstByte).expect_err("the device fails");
        assert!(matches!(failed, Error::Failed { .. }), "{failed}");
        // Trap: a failed sync retried. The device would take it.
        for refused in [log.sync(third, &ByFirstByte), append(&log, b"r").map(drop)] {
            assert!(matches!(refused, Err(Error::Failed { .. })), "{operation}");
        }
        assert_eq!(log.durable_lsn(), first);
        let image = directory.cut_power(Kept::All, &mut Random::new(1));
        assert!(read(&image, 0).expect("reads").1.end_lsn() >= first);

        let pool = log.pool().clone();
        drop(log);
        let log = open(&pool, &directory).expect("a new generation");
        assert_eq!((log.durable_lsn(), newest(&log)), (first, third));
        let fourth = synced(&log, &payload(4, 10));
        let image = directory.cut_power(Kept::Nothing, &mut Random::new(1));
        let lsns: Vec<_> = read(&image, 0).expect("reads").0.into_keys().collect();
        assert_eq!(lsns, [first, second, third, fourth], "{operation}");
    }
}

#[test]
fn a_full_disk_stops_nothing_and_is_told() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    let lsn = append(&log, &payload(1, 10)).expect("appended");
    for operation in [Operation::Allocate, Operation::Create] {
        directory.on_operation(move |found, _| {
            if found == operation { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        });
        let full = log.sync(lsn, &ByFirstByte).expect_err("the disk is full");
        assert!(matches!(&full, Error::Device(error) if error.is_full()), "{full}");
    }
    directory.on_operation(|_, _| Ok(()));
    log.sync(lsn, &ByFirstByte).expect("there is room again");
    assert_eq!(read(&directory, 0).expect("reads").0.len(), 1);
}

/// Two threads write the same block. The sync of one fails, and so the kernel drops the pages. Then
/// that of the other has nothing to write, and succeeds.
#[test]
fn a_failed_sync_counts_for_all_writers_of_the_block() {
    let directory = Simulated::new();
    let log = create_with::<Process>(&directory, 1, 10);
    let lsn = append(&log, &payload(2, 10)).expect("appended");
    let fails = |found| match found {
        Operation::Sync => Err(io::Error::other("the medium failed")),
        _ => Ok(()),
    };
    let first = with_stopped_sync((&directory, &log, lsn), Operation::Sync, fails, || {
        log.sync(lsn, &ByFirstByte).expect_err("the other writer's sync fails");
    });
    let image = directory.cut_power(Kept::Nothing, &mut Random::new(1));
    let records = read(&image, 0).expect("reads").0.len();
    assert!(first.is_err() && log.durable_lsn() < lsn, "{first:?}, {records} records");
}

/// Trap: a failed sync retried, here that of a directory.
#[test]
fn a_failed_sync_of_the_directory_stops_the_log() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    let lsn = append(&log, &payload(1, 10)).expect("appended");
    let fails = AtomicBool::new(true);
    directory.on_operation(move |found, _| {
        if found == Operation::SyncDirectory && fails.swap(false, Ordering::Relaxed) {
            return Err(io::Error::other("EIO"));
        }
        Ok(())
    });
    for _ in 0..2 {
        let failed = log.sync(lsn, &ByFirstByte).expect_err("the directory was not synced");
        assert!(matches!(failed, Error::Failed { .. }), "{failed}");
    }
    assert_eq!(log.durable_lsn(), 0);
}

struct LeavesUndecided;

impl Settle<Process> for LeavesUndecided {
    fn settle(&self, _: &Guard<'_, Process>, record: Record<'_, Process>) -> Result<Status> {
        Ok(record.status())
    }
}

#[test]
fn a_record_that_is_left_undecided_is_not_passed_over() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    let lsn = append(&log, b"r").expect("appended");
    let unsettled = log.sync(lsn, &LeavesUndecided).expect_err("it cannot be sealed");
    assert!(matches!(unsettled, Error::Unsettled(_)), "{unsettled}");
    log.sync(lsn, &ByFirstByte).expect("synced");
    assert_eq!(read(&directory, 0).expect("reads").0.len(), 1);
}

#[test]
fn waits_end_when_all_writers_have_stopped() {
    let directory = Simulated::new();
    let log = Arc::new(create::<Process>(&directory, SMALL));
    let lsn = append(&log, &payload(1, 10)).expect("appended");
    let stopped = Arc::new(AtomicU64::new(0));
    let counted = stopped.clone();
    directory.on_operation(move |found, _| {
        if found == Operation::Write {
            counted.fetch_add(1, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
        Ok(())
    });
    // One after the other: of two that seal at the same time, one writes nothing.
    for writers in 1..=8 {
        let theirs = log.clone();
        std::thread::spawn(move || theirs.write_block(&ByFirstByte));
        while stopped.load(Ordering::SeqCst) < writers {
            std::thread::yield_now();
        }
    }
    let stalled = log.sync(lsn, &ByFirstByte).expect_err("no more threads may write");
    assert!(matches!(stalled, Error::Stalled { writers: 8, .. }), "{stalled}");
}

/// A sync that takes several times as long as threads wait for a leader.
#[test]
fn a_slow_disk_is_written_few_times_more() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    let writes = Arc::new(AtomicU64::new(0));
    let counted = writes.clone();
    directory.on_operation(move |found, _| {
        match found {
            Operation::Write => {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Operation::Sync => std::thread::sleep(Duration::from_millis(300)),
            _ => {}
        }
        Ok(())
    });
    std::thread::scope(|scope| {
        for number in 0..16 {
            let log = &log;
            scope.spawn(move || {
                let lsn = append(log, &payload(number, 10)).expect("appended");
                log.sync(lsn, &ByFirstByte).expect("synced");
            });
        }
    });
    // Few blocks for 16 threads, each written by no more threads than may take over.
    let writes = writes.load(Ordering::Relaxed);
    assert!(writes <= 12, "{writes} writes");
}
