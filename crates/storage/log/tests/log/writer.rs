//! Log writers that stop, are replaced, and come late.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use pando_device::Operation;
use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_pmem::Process;
use pando_pmem::testing::{CutShort, Paused, written_back};

use crate::common::{
    ByFirstByte, Records, append, create_with, payload, read, synced, with_stopped_sync, write_all,
};

/// How often the calling thread has given its core away to wait: for a time to pass, or for another
/// thread.
fn waits() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux has it");
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.expect("Linux counts them").trim().parse().expect("a number")
}

/// Trap: a timer that delays group commit. No other thread writes or syncs.
#[test]
fn a_thread_that_syncs_writes_its_block_at_once() {
    const SYNCS: u64 = 200;
    let directory = Simulated::new();
    let log = create_with::<Process>(&directory, 1, 10);
    let blocks = Arc::new(AtomicU64::new(0));
    let counted = blocks.clone();
    directory.on_operation(move |operation, _| {
        counted.fetch_add(u64::from(operation == Operation::Write), Ordering::Relaxed);
        Ok(())
    });
    let before = waits();
    for number in 0..SYNCS {
        synced(&log, &payload(number, 10));
    }
    // Tests that run beside this one may make it wait for memory now and then.
    let waited = waits() - before;
    assert!(waited < SYNCS / 2, "{waited} waits in {SYNCS} syncs");
    assert_eq!(blocks.load(Ordering::Relaxed), SYNCS);
}

/// Records that no thread waits for are appended while a block is written. They have one block.
#[test]
fn records_that_no_thread_waits_for_share_a_block() {
    let directory = Simulated::new();
    let log = create_with::<Process>(&directory, 1, 10);
    append(&log, &payload(2, 10)).expect("appended");
    let (tell, told) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let (blocks, may_go_on) = (Arc::new(AtomicU64::new(0)), Mutex::new(may_go_on));
    let counted = blocks.clone();
    directory.on_operation(move |operation, _| {
        if operation == Operation::Write && counted.fetch_add(1, Ordering::Relaxed) == 0 {
            tell.send(()).expect("the test waits");
            // An error if the test has ended.
            let _ = may_go_on.lock().expect("a lock").recv();
        }
        Ok(())
    });
    let is_enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let go_on = go_on;
        let writer = scope.spawn(|| log.write_until(&ByFirstByte, &is_enough));
        told.recv().expect("it writes");
        let mut last = 0;
        for number in 3..100 {
            last = append(&log, &payload(number, 10)).expect("appended");
            log.wake_writer(last);
        }
        go_on.send(()).expect("it waits");
        while log.durable_lsn() < last {
            std::thread::yield_now();
        }
        is_enough.store(true, Ordering::Relaxed);
        writer.thread().unpark();
    });
    assert_eq!(blocks.load(Ordering::Relaxed), 2);
}

#[test]
fn a_writer_that_stops_is_replaced() {
    for operation in [Operation::Write, Operation::Sync] {
        let directory = Simulated::new();
        let log = create_with::<Process>(&directory, 1, 10);
        let lsn = append(&log, &payload(2, 10)).expect("appended");
        let first = with_stopped_sync(
            (&directory, &log, lsn),
            operation,
            |_| Ok(()),
            || {
                log.sync(lsn, &ByFirstByte).expect("another thread writes");
                assert!(log.durable_lsn() >= lsn);
                let image = directory.cut_power(Kept::Nothing, &mut Random::new(1));
                assert_eq!(read(&image, 0).expect("reads").0.len(), 2, "{operation}");
            },
        );
        first.expect("it was written");
    }
}

/// The writer stops before its write, another takes its place, and the segment is truncated and
/// written again as another one. Then the late write takes place.
#[test]
fn a_late_writer_does_no_harm() {
    let directory = Simulated::new();
    let log = create_with::<Process>(&directory, 1, 10);
    let lsn = append(&log, &payload(2, 10)).expect("appended");
    let mut expected = (0, Records::new());
    let late = with_stopped_sync(
        (&directory, &log, lsn),
        Operation::Write,
        |_| Ok(()),
        || {
            log.sync(lsn, &ByFirstByte).expect("another thread writes");
            // Far enough that each spare is used again.
            for number in 3..200 {
                synced(&log, &payload(number, 3_000));
                if number % 10 == 0 {
                    log.truncate(log.durable_lsn().saturating_sub(30_000)).expect("truncated");
                }
            }
            let from = log.durable_lsn() - 30_000;
            expected = (from, read(&directory, from).expect("reads").0);
        },
    );
    late.expect("it was written long ago");
    let (from, expected) = expected;
    assert_eq!(read(&directory, from).expect("reads").0, expected);
}

/// A writer pauses before it announces its segment. Others write its block and go on, and a
/// truncation finds no announcement. Then the writer continues, before the segment becomes a spare.
#[test]
fn a_writer_that_announces_late_writes_nothing() {
    for writes in 0.. {
        let directory = Simulated::new();
        let log = create_with::<CutShort>(&directory, 1, 10);
        append(&log, &payload(2, 10)).expect("appended");
        let theirs = log.clone();
        let paused = Paused::start(writes, move || theirs.write_block(&ByFirstByte).map(drop));
        if paused.is_done() {
            return;
        }
        write_all(&log).expect("others write");
        for number in 3..60 {
            append(&log, &payload(number, 3_000)).expect("appended");
            write_all(&log).expect("written");
        }
        // Lets the late writer go on at the first rename, and stop again before its write.
        let (tell, told) = channel();
        let (go_on, may_go_on) = channel::<()>();
        let late = Mutex::new(Some((paused, told)));
        let writer = Arc::new(Mutex::new(Some((tell.clone(), may_go_on))));
        let threads = Arc::new(Mutex::new(Vec::new()));
        let (started, stops) = (threads.clone(), writer.clone());
        directory.on_operation(move |operation, _| {
            let (mut renamed, mut written) = (None, None);
            match operation {
                Operation::Rename => renamed = late.lock().expect("a lock").take(),
                Operation::Write => written = stops.lock().expect("a lock").take(),
                _ => {}
            }
            if let Some((paused, told)) = renamed {
                let tell = tell.clone();
                started.lock().expect("a lock").push(std::thread::spawn(move || {
                    let written = paused.resume();
                    let _ = tell.send(());
                    written
                }));
                told.recv().expect("it stops or is done");
            }
            if let Some((tell, may_go_on)) = written {
                let _ = tell.send(());
                let _ = may_go_on.recv();
            }
            Ok(())
        });
        let from = log.durable_lsn() - 30_000;
        log.truncate(from).expect("truncated");
        // The writes of this thread do not stop.
        drop(writer.lock().expect("a lock").take());
        let mut last = 0;
        for number in 60..120 {
            last = append(&log, &payload(number, 3_000)).expect("appended");
            write_all(&log).expect("written");
        }
        drop(go_on);
        for thread in threads.lock().expect("a lock").drain(..) {
            thread.join().expect("joins").expect("it was written long ago");
        }
        let (records, recovered) = read(&directory, from).expect("reads");
        assert_eq!(recovered.end_lsn(), last, "paused before write {writes}");
        assert!(records.len() > 50);
    }
}

/// A thread stops while it appends a record, perhaps before the medium has it. A thread that finds
/// the record may settle it, so it makes the record durable before.
#[test]
fn a_record_that_others_find_is_durable() {
    for writes in 0.. {
        let log = create_with::<CutShort<true>>(&Simulated::new(), 1, 10);
        let theirs = log.clone();
        let paused = Paused::start(writes, move || append(&theirs, &payload(2, 10)));
        let is_done = paused.is_done();
        let (found, lines) = written_back(|| {
            let guard = log.pool().pin().expect("a slot");
            let records = log.records_behind(&guard, 0).expect("an undamaged tail");
            records.last().map(|record| record.off())
        });
        if let Some(off) = found {
            let has_it = lines.values().any(|line| line[0] == off);
            assert!(has_it, "the append has stopped before write {writes}");
        }
        paused.resume().expect("appended");
        if is_done {
            assert!(found.is_some(), "the record is in the tail");
            break;
        }
    }
}
