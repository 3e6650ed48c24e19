//! Appending: what enters the tail, how much of it, and that arenas come and go.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_device::simulated::Simulated;
use pando_index::random::Random;
use pando_log::{Error, LogOptions};
use pando_pmem::testing::{CutShort, active, between};
use pando_pmem::{CreateOptions, Pool, Process};

use crate::common::{
    ByFirstByte, Records, SMALL, append, create, create_in, create_with, newest, number_of,
    payload, read, synced, write_all,
};

#[test]
fn committed_records_of_any_length_are_read_in_order_and_failed_ones_are_not() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    let mut random = Random::new(1);
    let mut expected = Records::new();
    let mut last = 0;
    for number in 1..=500 {
        let bytes = random.below(if number % 50 == 0 { 30_000 } else { 200 }) as usize;
        let payload = payload(number, bytes);
        let lsn = append(&log, &payload).expect("appended");
        // A record takes its header and its payload, by words.
        assert_eq!(lsn - last, 32 + payload.len().next_multiple_of(8) as u64);
        last = lsn;
        if number % 7 != 0 {
            expected.insert(lsn, payload);
        }
        if number % 20 == 0 {
            log.sync(lsn, &ByFirstByte).expect("synced");
            assert_eq!(log.durable_lsn(), lsn);
        }
    }
    let (records, recovered) = read(&directory, 0).expect("reads");
    assert_eq!(records, expected);
    assert_eq!((recovered.end_lsn(), recovered.records), (last, expected.len() as u64));
    let middle = *expected.keys().nth(200).expect("a record");
    let (records, _) = read(&directory, middle).expect("reads");
    assert_eq!(records, expected.split_off(&(middle + 1)));
}

#[test]
fn an_empty_payload_and_a_log_without_records_are_read() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    assert_eq!(read(&directory, 0).expect("reads").1.end_lsn(), 0);
    log.sync(1_000, &ByFirstByte).expect("nothing was appended");
    let lsn = synced(&log, b"");
    assert_eq!(read(&directory, 0).expect("reads").0, [(lsn, Vec::new())].into());
}

#[test]
fn a_full_tail_refuses_before_anything_is_appended_and_takes_more_once_written() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    let payload = payload(1, 4000);
    let mut appended = 0;
    let refused = loop {
        match append(&log, &payload) {
            Ok(_) => appended += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Full { max_bytes, .. } if max_bytes == SMALL.tail_bytes));
    assert_eq!(appended, SMALL.tail_bytes / 4032);
    let before = newest(&log);
    assert!(append(&log, &payload).is_err());
    assert_eq!(newest(&log), before);
    log.write_block(&ByFirstByte).expect("a block");
    // There is room again; what is free in the pool is used, and what is not durable stays.
    while append(&log, &payload).is_ok() {
        appended += 1;
        log.pool().reclaim().expect("a slot");
    }
    write_all(&log).expect("written");
    assert_eq!(read(&directory, 0).expect("reads").0.len() as u64, appended);
}

#[test]
fn a_record_that_is_too_long_is_refused_and_the_longest_is_taken() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    let longest = log.max_record_bytes();
    let refused = append(&log, &vec![1; longest + 1]).expect_err("too long");
    assert!(matches!(refused, Error::RecordTooLong { max_bytes, .. } if max_bytes == longest));
    let expected: Records = (0..5)
        .map(|number| {
            let payload = vec![number; longest];
            (append(&log, &payload).expect("appended"), payload)
        })
        .collect();
    write_all(&log).expect("written");
    assert_eq!(read(&directory, 0).expect("reads").0, expected);
}

#[test]
fn options_out_of_range_are_refused() {
    let options = [
        LogOptions { segment_bytes: 32 << 10, ..SMALL },
        LogOptions { segment_bytes: (64 << 10) + 512, ..SMALL },
        LogOptions { segment_bytes: 2 << 30, ..SMALL },
        LogOptions { tail_bytes: 1000, ..SMALL },
    ];
    for options in options {
        let pool = pando_pmem::Pool::<Process>::anonymous(&Default::default()).expect("memory");
        let refused = crate::common::create_in(pool, &Simulated::new(), options);
        assert!(matches!(refused, Err(Error::Option { .. })), "{options:?}");
    }
}

/// Many times the tail goes through the pool: its blocks come and go.
#[test]
fn arenas_are_used_again() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    let mut most = 0;
    for number in 0..5_000 {
        let lsn = append(&log, &payload(number, 1_000)).expect("appended");
        if number % 100 == 0 {
            log.sync(lsn, &ByFirstByte).expect("synced");
            log.truncate(lsn).expect("truncated");
        }
        most = most.max(active(log.pool()).len());
    }
    // At most 100 records were not durable: four arenas, beside those that wait for their epoch.
    assert!(most <= 16, "{most} blocks");
}

/// A block covers a part of the tail. The arenas of the rest are not used again before they are
/// durable, although appends look for room all the time.
#[test]
fn arenas_with_records_that_are_not_durable_are_kept() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    let mut expected = Records::new();
    let mut append_some = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            let payload = payload(number, 2_000);
            let lsn = append(&log, &payload).expect("appended");
            if !number.is_multiple_of(7) {
                expected.insert(lsn, payload);
            }
        }
    };
    append_some(0..200);
    for round in 0..10 {
        log.write_block(&ByFirstByte).expect("a block");
        // Freed blocks can be reused when the epoch has risen.
        (0..10).for_each(|_| log.pool().pin().expect("a slot").collect());
        append_some(200 + round * 10..210 + round * 10);
    }
    write_all(&log).expect("written");
    assert_eq!(read(&directory, 0).expect("reads").0, expected);
}

#[test]
fn threads_append_and_sync_at_once() {
    const THREADS: u64 = 4;
    const EACH: u64 = 300;
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    let is_over = AtomicBool::new(false);
    let lsns: Vec<(u64, u64)> = std::thread::scope(|scope| {
        // One thread writes all the time, as a log writer in the background does.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                log.write_block(&ByFirstByte).expect("a block");
            }
        });
        let appended: Vec<_> = (0..THREADS)
            .map(|thread| {
                let log = &log;
                scope.spawn(move || {
                    let append_one = |index| {
                        let number = thread * EACH + index;
                        let lsn = append(log, &payload(number, 50)).expect("appended");
                        if index % 3 == thread % 3 {
                            log.sync(lsn, &ByFirstByte).expect("synced");
                            assert!(log.durable_lsn() >= lsn);
                        }
                        (lsn, number)
                    };
                    (0..EACH).map(append_one).collect::<Vec<_>>()
                })
            })
            .collect();
        let lsns = appended.into_iter().flat_map(|thread| thread.join().expect("joins")).collect();
        is_over.store(true, Ordering::Relaxed);
        lsns
    });
    write_all(&log).expect("written");
    let found: BTreeSet<_> = read(&directory, 0)
        .expect("reads")
        .0
        .iter()
        .map(|(lsn, payload)| (*lsn, number_of(payload).expect("whole")))
        .collect();
    let expected = lsns.into_iter().filter(|(_, number)| number % 7 != 0).collect();
    assert_eq!(found, expected);
}

/// The newest LSN is read, others append and sync, then the durable LSN is read, or the other way.
#[test]
fn an_append_beside_others_that_make_all_durable_is_not_refused() {
    for access in 0.. {
        let directory = Simulated::new();
        let log = create_with::<CutShort<true>>(&directory, 1, 10);
        let theirs = log.clone();
        let others = move || {
            for number in 2..4 {
                append(&theirs, &payload(number, 300)).expect("appended");
            }
            write_all(&theirs).expect("written");
        };
        let came_between = between(access, others, || {
            append(&log, &payload(9, 10)).expect("appended");
        });
        if !came_between {
            return;
        }
    }
}

#[test]
fn a_record_that_the_tail_could_never_hold_is_too_long() {
    let options = LogOptions { segment_bytes: 1 << 20, tail_bytes: 64 << 10, ..SMALL };
    let log = create::<Process>(&Simulated::new(), options);
    let refused = append(&log, &vec![1; 100_000]).expect_err("the tail has 64 KiB");
    assert!(matches!(refused, Error::RecordTooLong { .. }), "{refused}");
    append(&log, &vec![1; log.max_record_bytes()]).expect("the longest is taken");
}

#[test]
fn the_arenas_of_a_burst_go_back_to_the_pool() {
    let options = LogOptions { segment_bytes: 1 << 20, tail_bytes: 16 << 20, ..SMALL };
    let log = create::<Process>(&Simulated::new(), options);
    for number in 0..4_000 {
        append(&log, &payload(number, 4_000)).expect("appended");
    }
    write_all(&log).expect("written");
    let bytes: u64 = active(log.pool()).iter().map(|block| block.bytes).sum();
    assert!(bytes < 100_000, "{bytes} bytes of the pool are held");
}

/// A pool is full, but for its reserve. Then a delete has its record, once the disk has caught up.
#[test]
fn a_full_pool_takes_the_records_of_deletes() {
    let pool_options = CreateOptions { max_bytes: 8 << 20, ..CreateOptions::default() };
    let pool = Pool::<Process>::anonymous(&pool_options).expect("memory");
    let log = create_in(pool, &Simulated::new(), SMALL).expect("a log");
    append(&log, &payload(1, 10)).expect("appended");
    write_all(&log).expect("written");
    let guard = log.pool().pin().expect("a slot");
    for bytes in [32_000, 4096, 1024, 512, 256, 64] {
        while let Ok(block) = guard.without_reserve(|| guard.reserve(bytes)) {
            std::mem::forget(block);
        }
    }
    let append_one = || guard.without_reserve(|| log.append(&guard, &[&payload(2, 1_000)]));
    while append_one().is_ok() {}
    drop(guard);
    for number in 3..100 {
        write_all(&log).expect("a full pool does not stop the log");
        log.pool().reclaim().expect("a slot");
        let guard = log.pool().pin().expect("a slot");
        let appended = guard.with_reserve(|| log.append(&guard, &[&payload(number, 1_000)]));
        appended.expect("a delete gives room back");
    }
}
