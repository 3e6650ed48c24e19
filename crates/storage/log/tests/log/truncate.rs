//! Truncation: which segments go, and what becomes of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pando_device::simulated::{Kept, Simulated};
use pando_device::{Directory, Operation};
use pando_index::random::Random;
use pando_log::Log;
use pando_pmem::Process;

use crate::common::{
    SMALL, append, create, create_with, payload, read, resume, synced, with_stopped_sync,
    with_sync_stopped_at, write_all,
};

fn names(directory: &Simulated, prefix: &str) -> usize {
    let names = directory.names().expect("names");
    names.iter().filter(|name| name.starts_with(prefix)).count()
}

#[test]
fn truncated_segments_are_used_again_and_others_removed() {
    let directory = Simulated::new();
    let log: Log<Process> = create(&directory, SMALL);
    let fill = |from: u64, count: u64| {
        for number in from..from + count {
            synced(&log, &payload(number, 15_000));
        }
    };
    fill(1, 40);
    assert_eq!(names(&directory, "segment-"), 10);
    log.truncate(0).expect("truncated");
    assert_eq!(names(&directory, "segment-"), 10, "all is needed");
    let durable = log.durable_lsn();
    log.truncate(durable).expect("truncated");
    assert_eq!((names(&directory, "segment-"), names(&directory, "spare-")), (1, 2));
    directory.on_operation(|found, _| {
        assert_ne!(found, Operation::Allocate, "spares are used");
        Ok(())
    });
    fill(41, 8);
    let (records, _) = read(&directory, durable).expect("reads");
    assert_eq!(records.len(), (41..49).filter(|number| number % 7 != 0).count());
}

/// The power fails before the first sync of a segment; the log continues behind it.
#[test]
fn truncation_passes_segments_without_a_block() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    for number in 1..9 {
        synced(&log, &payload(number, 13_000));
    }
    // The power fails before the first sync of the third segment.
    append(&log, &payload(10, 13_000)).expect("appended");
    let image = Arc::new(Mutex::new(None));
    let (noted, watched) = (image.clone(), directory.clone());
    directory.on_operation(move |found, _| {
        if found == Operation::Write {
            let cut = watched.cut_power(Kept::All, &mut Random::new(1));
            noted.lock().expect("a lock").get_or_insert(cut);
        }
        Ok(())
    });
    write_all(&log).expect("written");
    let image = image.lock().expect("a lock").take().expect("cut");
    let (_, recovered) = read(&image, 0).expect("reads");
    let log = resume(&image, &recovered).expect("resumes");
    for number in 1..200 {
        let lsn = synced(&log, &payload(number, 13_000));
        log.truncate(lsn).expect("truncated");
    }
    assert!(names(&image, "segment-") < 5, "{:?}", image.names());
}

/// The first block of a segment is written and not yet synced.
#[test]
fn truncation_counts_only_durable_blocks() {
    let directory = Simulated::new();
    let log = create_with::<Process>(&directory, 4, 13_000);
    let lsn = append(&log, &payload(10, 13_000)).expect("appended");
    let wrote = AtomicBool::new(false);
    let stops = move |found| {
        wrote.fetch_or(found == Operation::Write, Ordering::SeqCst) && found == Operation::Sync
    };
    let meanwhile = || {
        let from = log.durable_lsn();
        log.truncate(from).expect("truncated");
        for seed in 0..20 {
            let image = directory.cut_power(Kept::Some, &mut Random::new(seed));
            if let Err(error) = read(&image, from) {
                panic!("seed {seed}: {error}");
            }
        }
    };
    let written = with_sync_stopped_at((&directory, &log, lsn), stops, |_| Ok(()), meanwhile);
    written.expect("written");
}

/// A writer stops before it opens the file of its segment, which is truncated meanwhile.
#[test]
fn a_writer_that_comes_late_makes_no_segment() {
    let directory = Simulated::new();
    let log = create_with::<Process>(&directory, 4, 13_000);
    let lsn = append(&log, &payload(5, 13_000)).expect("appended");
    let late = with_stopped_sync(
        (&directory, &log, lsn),
        Operation::Open,
        |_| Ok(()),
        || {
            for number in 6..40 {
                let lsn = synced(&log, &payload(number, 13_000));
                log.truncate(lsn).expect("truncated");
            }
        },
    );
    late.expect("written");
    let names = directory.names().expect("names");
    assert!(!names.contains(&"segment-0000000000000001".to_owned()));
}
