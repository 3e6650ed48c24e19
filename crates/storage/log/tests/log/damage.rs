//! Damaged and foreign files.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pando_device::simulated::{Kept, Simulated};
use pando_device::{Directory, Operation};
use pando_index::random::Random;
use pando_log::{Error, Log, recover};
use pando_pmem::{CreateOptions, Pool, Process, layout};

use crate::common::{
    ByFirstByte, SMALL, append, create, create_in, open, payload, read, resume, synced, write_all,
};

/// A log of some blocks over several segments; the LSNs at which blocks end.
fn written(directory: &Simulated) -> (Log<Process>, Vec<u64>) {
    let log = create(directory, SMALL);
    let mut ends = vec![0];
    for number in 1..=12 {
        let lsn = synced(&log, &payload(number, 13_000));
        ends.push(lsn);
    }
    (log, ends)
}

fn segments(directory: &Simulated) -> Vec<String> {
    let mut names = directory.names().expect("names");
    names.retain(|name| name.starts_with("segment-"));
    names.sort();
    names
}

#[test]
fn a_damaged_block_is_reported_unless_it_is_the_last() {
    let directory = Simulated::new();
    let (_log, ends) = written(&directory);
    let names = segments(&directory);
    assert!(names.len() >= 3, "{names:?}");
    // Blocks of 16 KiB, four a segment.
    for block in 0..12_u64 {
        let image = directory.cut_power(Kept::All, &mut Random::new(block));
        let name = &names[block as usize / 4];
        let at = block as usize % 4 * (16 << 10) + 60;
        assert!(image.damage(name, |bytes| bytes[at] ^= 1));
        match read(&image, 0) {
            Ok((_, recovered)) => {
                assert_eq!(block, 11, "only the last block may be torn");
                assert_eq!(recovered.end_lsn(), ends[11]);
            }
            Err(Error::Damaged { what, .. }) => assert!(block < 11, "{what}"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_missing_segment_is_reported() {
    let directory = Simulated::new();
    let (_log, ends) = written(&directory);
    let names = segments(&directory);
    let image = directory.cut_power(Kept::All, &mut Random::new(1));
    image.remove(&names[0]).expect("removed");
    let missing = read(&image, 0).expect_err("its beginning is missing");
    assert!(matches!(missing, Error::Missing { from: 0, .. }), "{missing}");
    read(&image, ends[4]).expect("the rest is there");
    image.remove(&names[1]).expect("removed");
    let missing = read(&image, ends[5]).expect_err("its beginning is missing");
    assert!(matches!(missing, Error::Missing { .. }), "{missing}");
    let image = directory.cut_power(Kept::All, &mut Random::new(1));
    image.remove(&names[1]).expect("removed");
    let damaged = read(&image, 0).expect_err("its middle is missing");
    assert!(matches!(damaged, Error::Damaged { .. }), "{damaged}");
}

/// A reader of a log in use lists a segment that has its name and not yet its first block. The
/// block is written when the reader is in the segment before, which has room left.
#[test]
fn a_segment_that_gets_its_first_block_while_the_log_is_read_is_not_damaged() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    for number in 1..=3 {
        synced(&log, &payload(number, 13_000));
    }
    let early = Arc::new(Mutex::new(None));
    let (noted, watched, renamed) = (early.clone(), directory.clone(), AtomicU64::new(0));
    directory.on_operation(move |operation, _| {
        match operation {
            Operation::Rename => drop(renamed.fetch_add(1, Ordering::Relaxed)),
            Operation::Write if renamed.load(Ordering::Relaxed) > 0 => {
                noted.lock().expect("a lock").get_or_insert_with(|| watched.after_kill());
            }
            _ => {}
        }
        Ok(())
    });
    // Longer than the room that is left in the first segment.
    let last = synced(&log, &payload(4, 20_000));
    directory.on_operation(|_, _| Ok(()));
    let early = early.lock().expect("a lock").take().expect("a second segment");
    let names = segments(&early);
    assert_eq!(names, segments(&directory));
    let write_block = || {
        let mut bytes = vec![0; SMALL.segment_bytes as usize];
        let file = directory.open(&names[1]).expect("the segment");
        file.read_at(&mut bytes, 0).expect("reads");
        early.open(&names[1]).expect("the segment").write_at(&bytes, 0).expect("writes");
    };
    let mut records = 0;
    let recovered = recover(&early, 0, &mut |_, _| {
        if records == 0 {
            write_block();
        }
        records += 1;
        Ok(())
    });
    assert_eq!((records, recovered.expect("undamaged").end_lsn()), (4, last));
}

/// Trap: replay that stops at the first bad checksum in the middle of the log and reports success.
#[test]
fn any_flipped_bit_is_reported_or_lies_behind_the_log() {
    let directory = Simulated::new();
    let (_log, _) = written(&directory);
    let names = segments(&directory);
    let (expected, _) = read(&directory, 0).expect("reads");
    let mut random = Random::new(5);
    for _ in 0..300 {
        let image = directory.cut_power(Kept::All, &mut random);
        let name = random.pick(&names);
        let at = random.below(64 << 10) as usize;
        assert!(image.damage(name, |bytes| bytes[at] ^= 1 << (at % 8)));
        match read(&image, 0) {
            Ok((records, _)) => assert!(
                records == expected || *name == names[2],
                "a bit of byte {at} of {name} was not noticed"
            ),
            Err(error) => assert!(matches!(error, Error::Damaged { .. } | Error::Missing { .. })),
        }
    }
}

/// A block of an earlier generation is whole, and continues the log; but the log was recovered
/// without it, and went on.
#[test]
fn a_stale_block_of_an_earlier_generation_is_not_read() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    let first = synced(&log, &payload(1, 100));
    // The second block is written and never synced: two power cuts find it and do not.
    let without = directory.cut_power(Kept::All, &mut Random::new(1));
    synced(&log, &payload(2, 100));

    let (_, recovered) = read(&without, 0).expect("reads");
    assert_eq!(recovered.end_lsn(), first);
    let resumed = resume(&without, &recovered).expect("the log continues");
    let third = append(&resumed, &payload(3, 100)).expect("appended");
    resumed.sync(third, &ByFirstByte).expect("synced");
    // The stale block appears in its place.
    let mut stale = Vec::new();
    directory.damage("segment-0000000000000000", |bytes| stale.clone_from(bytes));
    assert!(without.damage("segment-0000000000000000", |bytes| *bytes = stale));
    let (records, recovered) = read(&without, 0).expect("reads");
    let numbers: Vec<_> = records.values().map(|payload| payload[1]).collect();
    assert_eq!(numbers, [1, 3]);
    assert_eq!(recovered.end_lsn(), third);
}

#[test]
fn the_log_of_another_pool_and_a_directory_without_one_are_refused() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    let other = Simulated::new();
    let folder = pando_pmem::testing::folder();
    let pool = Pool::<Process>::create(&folder.path().join("pool"), &CreateOptions::default());
    create_in(pool.expect("a pool"), &other, SMALL).expect("a log");
    let foreign = open(log.pool(), &other).expect_err("another pool's");
    assert!(matches!(foreign, Error::Foreign { field: "the pool", .. }), "{foreign}");
    let none = open(log.pool(), &Simulated::new()).expect_err("no log");
    assert!(matches!(none, Error::NotALog { .. }), "{none}");
    append(&log, &payload(1, 10)).expect("appended");
    log.write_block(&ByFirstByte).expect("a block");
    let pool = Pool::<Process>::anonymous(&CreateOptions::default()).expect("memory");
    let taken = create_in(pool, &directory, SMALL).expect_err("the directory has a log");
    assert!(matches!(taken, Error::NotEmpty { .. }), "{taken}");
    // The log was recovered into another pool meanwhile.
    let (_, recovered) = read(&directory, 0).expect("reads");
    resume(&directory, &recovered).expect("the log continues");
    let late = open(log.pool(), &directory).expect_err("it has another generation");
    assert!(matches!(late, Error::Foreign { .. }), "{late}");
}

/// Any value in any word of the control block: errors, and no panic.
#[test]
fn damaged_words_in_the_pool_are_errors() {
    for at in (64..152).step_by(8).chain([256, 264]) {
        for value in [u64::MAX, 1 << 63, u64::MAX - 15, 0x1234_5670, 1] {
            let directory = Simulated::new();
            let log = create::<Process>(&directory, SMALL);
            append(&log, &payload(1, 10)).expect("appended");
            write_all(&log).expect("written");
            append(&log, &payload(2, 10)).expect("appended");
            let pool = log.pool().clone();
            let control = pool.word(layout::LOG_OFF).load(Ordering::SeqCst);
            drop(log);
            pool.word(control + at).store(value, Ordering::SeqCst);
            let Ok(log) = open(&pool, &directory) else { continue };
            let lsn = append(&log, &payload(3, 10));
            let _ = append(&log, &payload(3, 30_000));
            let synced = lsn.and_then(|lsn| log.sync(lsn, &ByFirstByte));
            if synced.is_ok() {
                let (records, _) = read(&directory, 0).expect("reads");
                let found = records.values().any(|found| *found == payload(3, 10));
                assert!(found, "{value:#x} at {at}: synced, and not in the log");
            }
            let _ = log.truncate(u64::MAX);
        }
    }
}

#[test]
fn files_that_the_log_has_not_named_are_ignored() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    synced(&log, &payload(1, 10));
    for name in ["segment-ffffffffffffffff", "segment-+00000000000000f", "lost+found"] {
        directory.create(name).expect("created");
        assert_eq!(read(&directory, 0).expect("reads").0.len(), 1, "{name}");
        open(log.pool(), &directory).expect("opens");
    }
}

/// The missing records were durable: the caller has them in an image, for example.
#[test]
fn a_log_that_ends_before_the_lsn_that_is_asked_for_is_refused() {
    let directory = Simulated::new();
    let (_log, ends) = written(&directory);
    let names = segments(&directory);
    assert!(directory.damage(&names[2], |bytes| bytes[3 * (16 << 10) + 60] ^= 1));
    assert_eq!(read(&directory, 0).expect("reads").1.end_lsn(), ends[11]);
    let missing = read(&directory, ends[12]).expect_err("its last block is damaged");
    assert!(matches!(missing, Error::Missing { .. }), "{missing}");
}

/// The block that a reopened log wrote anew is damaged. The block that was given up takes its
/// place.
#[test]
fn a_block_that_was_given_up_hides_no_damage() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    synced(&log, &payload(1, 10));
    let second = append(&log, &payload(2, 10)).expect("appended");
    let may_fail = AtomicBool::new(true);
    directory.on_operation(move |found, _| {
        let fails = found == Operation::Sync && may_fail.swap(false, Ordering::Relaxed);
        if fails { Err(io::Error::other("the medium failed")) } else { Ok(()) }
    });
    log.sync(second, &ByFirstByte).expect_err("fails");
    let pool = log.pool().clone();
    drop(log);
    let log = open(&pool, &directory).expect("opens");
    log.sync(second, &ByFirstByte).expect("synced");
    let third = synced(&log, &payload(3, 10));
    assert_eq!(read(&directory, 0).expect("reads").1.end_lsn(), third);
    assert!(directory.damage("segment-0000000000000001", |bytes| bytes[60] ^= 1));
    let damaged = read(&directory, 0).expect_err("a synced block is missing");
    assert!(matches!(damaged, Error::Damaged { .. }), "{damaged}");
}
