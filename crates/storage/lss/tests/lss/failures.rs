//! Operations that the device refuses.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pando_device::simulated::{Kept, Simulated};
use pando_device::{Directory, Operation};
use pando_index::random::Random;
use pando_lss::{Error, Group, PageStore, PageStoreOptions};

use crate::common::{Model, Pages, SMALL, create, open, pages_of, small};

const EIO: i32 = 5;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

/// Groups, syncs, checkpoints and cleaning until one of them fails. The states of the pages after
/// each group, and the number of groups that were durable before.
fn use_it(store: &PageStore, seed: u64) -> (Vec<Pages>, usize) {
    let mut random = Random::new(seed);
    let mut model = Model::default();
    let mut states = vec![Pages::new()];
    let mut synced = 0;
    for round in 0..60 {
        let group = model.group(&mut random, 16, 5000);
        states.push(model.pages());
        if store.append(group).is_err() {
            return (states, synced);
        }
        let done = match round % 12 {
            3 | 7 => store.sync(),
            9 => store.checkpoint(b"x"),
            11 => store.clean().map(drop),
            _ => continue,
        };
        if done.is_err() {
            return (states, synced);
        }
        synced = states.len() - 1;
    }
    (states, synced)
}

#[test]
fn each_operation_that_fails_loses_nothing_that_was_durable() {
    for number in 0.. {
        let directory = Simulated::new();
        let store = create(&directory, SMALL);
        let failed = directory.refuse_operation(number, EIO);
        let (states, synced) = use_it(&store, 7);
        if !failed.load(Ordering::Relaxed) {
            assert!(number > 100, "only {number} operations");
            break;
        }
        // Pages that were written can be read.
        let unread = store.check_pages();
        assert!(unread.is_empty(), "operation {number}: {unread:?}");
        for kept in [Kept::Nothing, Kept::Some, Kept::All] {
            let image = directory.cut_power(kept, &mut Random::new(number));
            let (store, _) = open(&image).unwrap_or_else(|error| panic!("{number}: {error}"));
            let pages = pages_of(&store);
            let found = states[synced..].contains(&pages);
            assert!(found, "operation {number}, {kept:?} kept: not a state since {synced}");
        }
    }
}

#[test]
fn each_operation_of_an_opening_that_fails_changes_nothing() {
    let (directory, store) = small();
    let (states, _) = use_it(&store, 8);
    store.sync().expect("synced");
    for number in 0.. {
        let image = directory.after_kill();
        let failed = image.refuse_operation(number, EIO);
        let opened = open(&image);
        image.on_operation(|_, _| Ok(()));
        let (store, _) = opened.unwrap_or_else(|error| {
            assert!(matches!(error, Error::Device(_)), "{error}");
            open(&image).expect("a store")
        });
        assert_eq!(Some(&pages_of(&store)), states.last());
        if !failed.load(Ordering::Relaxed) {
            break;
        }
    }
}

#[test]
fn a_failed_sync_is_not_tried_again() {
    let (directory, store) = small();
    let (states, _) = use_it(&store, 9);
    store.sync().expect("synced");
    let mut model = Model::default();
    store.append(model.group(&mut Random::new(1), 8, 1000)).expect("open");
    directory.on_operation(|operation, _| match operation {
        Operation::Sync => Err(io::Error::from_raw_os_error(EIO)),
        _ => Ok(()),
    });
    let failed = store.sync().expect_err("refused");
    assert!(matches!(failed, Error::Failed { .. }), "{failed}");
    directory.on_operation(|operation, name| match operation {
        Operation::Write | Operation::Sync => panic!("{operation} {name} after a failed sync"),
        _ => Ok(()),
    });
    for failed in [
        store.sync().expect_err("it has failed"),
        store.checkpoint(b"").expect_err("it has failed"),
        store.append(model.group(&mut Random::new(1), 8, 1000)).expect_err("it has failed"),
    ] {
        assert!(matches!(failed, Error::Failed { .. }), "{failed}");
    }
    assert!(store.check_pages().is_empty());
    let image = directory.cut_power(Kept::Nothing, &mut Random::new(2));
    assert_eq!(Some(&pages_of(&open(&image).expect("a store").0)), states.last());
}

/// Lets the first operation of that kind fail.
fn fail_once(directory: &Simulated, failing: Operation) {
    let has_failed = AtomicBool::new(false);
    directory.on_operation(move |operation, _| {
        match operation == failing && !has_failed.swap(true, Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(EIO)),
            false => Ok(()),
        }
    });
}

/// The kernel has dropped the pages of a failed sync, and shows them until they leave the cache.
#[test]
fn what_a_failed_sync_has_dropped_is_written_again_by_the_next_process() {
    let (directory, store) = small();
    store.wait(&store.append(Group::new().base(1, "dropped")).expect("open")).expect("room");
    fail_once(&directory, Operation::Sync);
    assert!(matches!(store.sync(), Err(Error::Failed { .. })));
    let directory = directory.after_kill();
    let (store, found) = open(&directory).expect("a store");
    assert_eq!(found.blocks, 1);
    store.append(Group::new().base(2, "next")).expect("open");
    store.sync().expect("synced");
    let pages = pages_of(&store);
    let image = directory.cut_power(Kept::Nothing, &mut Random::new(3));
    assert_eq!(pages_of(&open(&image).expect("a store").0), pages);
}

#[test]
fn no_group_is_written_behind_one_that_failed() {
    let (directory, store) = small();
    store.append(Group::new().base(1, "before")).expect("open");
    store.sync().expect("synced");
    let first = store.append(Group::new().base(1, "first")).expect("open");
    let is_first = AtomicBool::new(true);
    directory.on_operation(move |operation, _| {
        match operation == Operation::Write && is_first.swap(false, Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(EIO)),
            false => Ok(()),
        }
    });
    let second = std::thread::scope(|scope| {
        let waits = scope.spawn(|| store.wait(&first));
        assert!(matches!(waits.join().expect("no panic"), Err(Error::Failed { .. })));
        store.append(Group::new().delta(1, "second"))
    });
    assert!(matches!(second, Err(Error::Failed { .. })));
    assert!(matches!(store.clean(), Err(Error::Failed { .. })));
    let (store, _) = open(&directory.after_kill()).expect("a store");
    assert_eq!(store.read(1).expect("read"), Some(vec![b"before".to_vec()]));
}

#[test]
fn a_checkpoint_without_room_fails_no_group() {
    let directory = Simulated::new();
    let store = create(&directory, PageStoreOptions { checkpoint_bytes: 0, ..SMALL });
    directory.on_operation(|operation, name| {
        match operation == Operation::Create && name.starts_with("checkpoint-") {
            true => Err(io::Error::from_raw_os_error(ENOSPC)),
            false => Ok(()),
        }
    });
    for pid in 0..20 {
        store.append(Group::new().base(pid, "x")).expect("open");
        store.sync().expect("synced");
    }
    assert!(matches!(store.checkpoint(b""), Err(Error::Full { .. })));
    let image = directory.cut_power(Kept::Nothing, &mut Random::new(3));
    assert_eq!(open(&image).expect("a store").0.pids().count(), 20);
}

/// Whether the operation takes room of the file system.
fn takes_room(operation: Operation) -> bool {
    matches!(operation, Operation::Create | Operation::Allocate)
}

#[test]
fn a_full_file_system_refuses_groups_and_has_room_again() {
    let (directory, store) = small();
    let is_full = Arc::new(AtomicBool::new(false));
    let full = is_full.clone();
    directory.on_operation(move |operation, _| {
        match takes_room(operation) && full.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(ENOSPC)),
            false => Ok(()),
        }
    });
    let mut random = Random::new(11);
    let mut model = Model::default();
    let mut refused = 0;
    for round in 0..400 {
        is_full.store(round % 80 > 40, Ordering::Relaxed);
        let before = model.clone();
        let ticket = store.append(model.group(&mut random, 200, 3000)).expect("open");
        match store.wait(&ticket) {
            Ok(()) => {}
            Err(Error::Full { .. }) => {
                refused += 1;
                model = before;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 10, "only {refused} groups were refused");
    assert_eq!(pages_of(&store), model.pages());
    is_full.store(false, Ordering::Relaxed);
    store.sync().expect("synced");
    let image = directory.cut_power(Kept::Nothing, &mut random);
    assert_eq!(pages_of(&open(&image).expect("a store").0), model.pages());
}

/// The process has no descriptor left for one operation. Groups may be refused; no later one is.
#[test]
fn a_lack_of_descriptors_passes() {
    for failing in [Operation::Create, Operation::Open, Operation::List] {
        for passed in [0, 1, 5] {
            let (directory, store) = small();
            let count = Arc::new(AtomicU32::new(0));
            let counted = count.clone();
            directory.on_operation(move |operation, _| {
                let fails =
                    operation == failing && counted.fetch_add(1, Ordering::Relaxed) == passed;
                match fails {
                    true => Err(io::Error::from_raw_os_error(EMFILE)),
                    false => Ok(()),
                }
            });
            let (mut random, mut model) = (Random::new(11), Model::default());
            let mut refused = 0;
            for _ in 0..600 {
                let before = model.clone();
                let ticket = store.append(model.group(&mut random, 60, 3000)).expect("open");
                match store.wait(&ticket) {
                    Ok(()) => {}
                    Err(Error::Full { .. }) => {
                        refused += 1;
                        model = before;
                    }
                    Err(error) => panic!("{failing}: {error}"),
                }
            }
            assert!(count.load(Ordering::Relaxed) > passed, "{failing} {passed}");
            assert!(refused <= 1, "{failing} {passed}: {refused} groups were refused");
            assert_eq!(pages_of(&store), model.pages());
            store.sync().expect("synced");
            let image = directory.cut_power(Kept::Nothing, &mut random);
            assert_eq!(pages_of(&open(&image).expect("a store").0), model.pages());
        }
    }
}

#[test]
fn a_store_at_its_limit_takes_frees_and_then_writes() {
    let options = PageStoreOptions { max_bytes: 10 * SMALL.segment_bytes, ..SMALL };
    let directory = Simulated::new();
    let store = create(&directory, options);
    let mut random = Random::new(13);
    let write = |random: &mut Random, pid| {
        let bytes = crate::common::bytes(random, 3000);
        store.wait(&store.append(Group::new().base(pid, bytes)).expect("open"))
    };
    for round in 0..20 {
        let mut pids = 0;
        let full = loop {
            match write(&mut random, pids) {
                Ok(()) => pids += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::Full { .. }), "{full}");
        // At most three of ten segments are kept for cleaning, and a twentieth is lost at ends.
        assert!(pids > 130, "round {round}: {pids} pages of 3,000 bytes");
        assert!(store.stat().expect("open").segments <= 10);
        // Overwrites are refused too, or take the place of what they replace.
        for pid in 0..20 {
            match write(&mut random, pid) {
                Ok(()) | Err(Error::Full { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        for pid in 0..pids {
            let ticket = store.append(Group::new().free(pid)).expect("open");
            store.wait(&ticket).unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        assert_eq!(store.pids().count(), 0);
        assert!(store.stat().expect("open").segments <= 10, "round {round}");
    }
}

/// Pages that fill their segments leave nothing to clean, and each free is a block of its own.
#[test]
fn single_frees_go_on_in_a_full_store() {
    let options = PageStoreOptions { max_bytes: 4 * SMALL.segment_bytes, ..SMALL };
    let store = create(&Simulated::new(), options);
    let mut pids = 0;
    loop {
        let group = (0..200).fold(Group::new(), |group, pid| group.base(pids + pid, "x"));
        let ticket = store.append(group).expect("open");
        if let Err(error) = store.wait(&ticket) {
            assert!(matches!(error, Error::Full { .. }), "{error}");
            break;
        }
        pids += 200;
    }
    assert!(pids > 1000, "{pids} pages");
    for pid in 0..pids {
        store.wait(&store.append(Group::new().free(pid)).expect("open")).expect("room");
    }
    store.wait(&store.append(Group::new().base(1, "again")).expect("open")).expect("room");
}

/// Lets the first such operation behind an allocation fail.
fn fail_making(directory: &Simulated, failing: Operation) {
    let (is_armed, has_failed) = (AtomicBool::new(false), AtomicBool::new(false));
    directory.on_operation(move |operation, _| {
        is_armed.fetch_or(operation == Operation::Allocate, Ordering::Relaxed);
        let fails = operation == failing && is_armed.load(Ordering::Relaxed);
        match fails && !has_failed.swap(true, Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(EIO)),
            false => Ok(()),
        }
    });
}

/// The file of a segment is made, and a sync of that fails. The next process finds a whole file.
/// If it was made again, the checkpoint says that its segment is free: its file was removed because
/// there were many, or because a full device had no room for that checkpoint.
#[test]
fn a_file_that_is_perhaps_not_durable_is_not_used() {
    for failing in [Operation::Sync, Operation::SyncDirectory] {
        for removed_by in ["nothing", "a surplus", "a full device"] {
            let directory = Simulated::new();
            let options = PageStoreOptions { checkpoint_bytes: u64::MAX, ..SMALL };
            let store = create(&directory, options);
            let page = |pid: u32| Group::new().base(pid, vec![pid as u8; 3972]);
            if removed_by != "nothing" {
                for pid in 0..400 {
                    store.wait(&store.append(page(pid)).expect("open")).expect("room");
                }
                store.append((1..400).fold(Group::new(), Group::free)).expect("open");
                let files = || directory.names().expect("names").len();
                let before = files();
                while files() == before {
                    store.clean().expect("cleaned");
                }
            }
            if removed_by == "a full device" {
                store.checkpoint(b"").expect("a checkpoint");
                let has_failed = AtomicBool::new(false);
                directory.on_operation(move |operation, name| {
                    let fails = operation == Operation::Create && name.starts_with("checkpoint-");
                    match fails && !has_failed.swap(true, Ordering::Relaxed) {
                        true => Err(io::Error::from_raw_os_error(ENOSPC)),
                        false => Ok(()),
                    }
                });
                let before = directory.names().expect("names").len();
                store.checkpoint(b"").expect("a checkpoint");
                assert_eq!(directory.names().expect("names").len(), before - 1);
            }
            fail_making(&directory, failing);
            let is_written = |pid| {
                let ticket = store.append(page(pid));
                ticket.and_then(|ticket| store.wait(&ticket)).is_ok()
            };
            let written = (0..400).take_while(|&pid| is_written(pid)).count();
            assert!(written < 400, "{failing} has not failed");
            let directory = directory.after_kill();
            let (store, _) = open(&directory).expect("a store");
            for pid in 0..200 {
                store.append(page(pid)).expect("open");
            }
            store.sync().expect("synced");
            let pages = pages_of(&store);
            let image = directory.cut_power(Kept::Nothing, &mut Random::new(3));
            let found = pages_of(&open(&image).expect("a store").0);
            assert_eq!(found, pages, "{failing}, removed before by {removed_by}");
        }
    }
}
