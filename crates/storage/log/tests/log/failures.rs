//! Failing, full and slow disks.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pando_device::simulated::{Kept, Simulated};
use pando_device::{Directory, Disk, Operation};
use pando_index::random::Random;
use pando_log::{Error, Log, Record, Result, Settle, Status};
use pando_pmem::testing::folder;
use pando_pmem::{CreateOptions, Guard, Pool, Process, layout};
use rustix::thread::{Uid, set_thread_uid};

use crate::common::{
    ByFirstByte, Records, SMALL, append, create, create_with, newest, open, payload, read, synced,
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

/// Sets who may change the names in the directory.
fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("its owner may");
}

/// The directory becomes read-only while its log is used, and while it is closed.
fn use_read_only_directory(folder: &Path) {
    let [path, other] = ["log", "other"].map(|name| folder.join(name));
    let is_refused = |error: &Error| match error {
        Error::Device(error) => error.source.kind() == io::ErrorKind::PermissionDenied,
        _ => false,
    };
    let disk = |path| Arc::new(Disk::open_or_create(path).expect("a directory"));
    let pool = || Pool::<Process>::anonymous(&CreateOptions::default()).expect("memory");
    let log = Log::create(pool(), layout::LOG_OFF, disk(&path), (42, 0), SMALL).expect("a log");
    let mut appended = Records::new();
    let mut put = |log: &Log<Process>, number| {
        let payload = payload(number, 30_000);
        let lsn = append(log, &payload).expect("appended");
        appended.insert(lsn, payload);
        log.sync(lsn, &ByFirstByte)
    };
    put(&log, 1).expect("synced");
    disk(&other);
    for path in [&path, &other] {
        set_mode(path, 0o555);
    }
    if fs::write(path.join("file"), b"").is_ok() {
        println!("note: skipped, this process may write to a read-only directory");
        return;
    }
    let refused = disk(&other).lock().expect_err("it cannot have a file `lock`");
    assert_eq!(refused.source.kind(), io::ErrorKind::PermissionDenied, "{refused}");
    let refused = Log::create(pool(), layout::LOG_OFF, disk(&other), (43, 0), SMALL);
    assert!(refused.as_ref().is_err_and(is_refused), "{refused:?}");
    assert!(disk(&other).names().expect("names").is_empty());

    // The segment has room for one more.
    put(&log, 2).expect("synced");
    let durable = log.durable_lsn();
    let refused = put(&log, 3);
    assert!(refused.as_ref().is_err_and(is_refused), "{refused:?}");
    assert_eq!((log.durable_lsn(), read(&*disk(&path), 0).expect("reads").0.len()), (durable, 2));
    let pool = log.pool().clone();
    drop(log);
    let log = Log::open(pool, layout::LOG_OFF, disk(&path), SMALL).expect("opens");
    let refused = put(&log, 4);
    assert!(refused.as_ref().is_err_and(is_refused), "{refused:?}");

    set_mode(&path, 0o755);
    put(&log, 5).expect("the directory takes new segments");
    assert_eq!(read(&*disk(&path), 0).expect("reads").0, appended);
}

#[test]
fn a_read_only_directory_stops_nothing_and_is_told() {
    let folder = folder();
    set_mode(folder.path(), 0o777);
    std::thread::scope(|scope| {
        let user = scope.spawn(|| {
            // Root may write to any directory; other users need not change.
            let _ = set_thread_uid(Uid::from_raw(65_534));
            match fs::read_dir(folder.path()) {
                Ok(_) => use_read_only_directory(folder.path()),
                Err(error) => println!("note: skipped, another user's folder: {error}"),
            }
        });
        user.join().expect("joins");
    });
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

    fn push_redo(&self, payload: &[u8], bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(payload);
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
