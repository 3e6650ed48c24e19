//! Snapshots beside disks that fail or are full, pools without room, and maps that cannot be read.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

use pando_device::Operation;
use pando_device::simulated::Simulated;
use pando_index::RangeIndex;
use pando_log::{Log, LogOptions, Owner};
use pando_pmem::testing::Paused;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::{CreateOptions, Domain, Pool, layout};
use pando_tc::{Error, SnapshotOptions, TransactionalMap};

use crate::common::{
    BEFORE, Component, Killed, Kind, OTHERS, Records, Stopped, WRITES, Write, anonymous_of, bztree,
    check, commit, commit_at_last, dump, missing, open_over, with,
};
use crate::over_each_index;
use crate::snapshots::{seen, take};

over_each_index!(Killed:
    a_commit_without_room_leaves_a_snapshot_as_it_was,
);

/// A tail that a test fills.
const SMALL: LogOptions =
    LogOptions { segment_bytes: 64 << 10, tail_bytes: 64 << 10, owner: Owner::Pool };

/// Over a log in `directory`, with the records of [`BEFORE`], which are synced.
fn over<D: Domain>(directory: &Simulated) -> Component<D> {
    let create = CreateOptions { max_bytes: 8 << 20, ..CreateOptions::default() };
    let component = open_over(bztree(), Pool::anonymous(&create).expect("memory"), |pool| {
        Log::create(pool, layout::LOG_OFF, Arc::new(directory.clone()), (42, 0), SMALL)
    });
    let lsn = commit(&component, BEFORE).expect("commits");
    component.sync(lsn).expect("synced");
    component
}

fn is_stopped<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Log(pando_log::Error::Failed { .. })))
}

/// A commit pauses before each of its writes, and the log stops meanwhile.
#[test]
fn a_log_that_has_stopped_refuses_writes_and_no_snapshot() {
    let before = with(&Records::new(), BEFORE);
    let whole = with(&before, WRITES);
    let mut in_flight = 0;
    for writes in 0.. {
        let directory = Simulated::new();
        let component = Arc::new(over::<Stopped>(&directory));
        let earlier = take(&component);
        let mut over_snapshot =
            component.begin_over_snapshot(SnapshotOptions::default()).expect("begins");
        let theirs = component.clone();
        let late = Paused::start(writes, move || commit(&theirs, WRITES));
        let has_ended = late.is_done();
        let lsn = commit(&component, &[(0, b"a", Some(b"0"))]).expect("commits");
        directory.on_operation(|operation, _| match operation {
            Operation::Sync => Err(io::Error::other("the medium failed")),
            _ => Ok(()),
        });
        assert!(is_stopped(&component.sync(lsn)));
        directory.on_operation(|_, _| Ok(()));

        let place = format!("paused before write {writes}");
        assert!(is_stopped(&commit(&component, OTHERS)), "{place}");
        assert!(is_stopped(&commit(&component, &[(0, b"a", None)])), "{place}");
        let snapshot = take(&component);
        let found = seen(&component, &snapshot).expect("reads");
        let look = || {
            assert_eq!(seen(&component, &earlier).expect("reads"), before, "{place}");
            assert_eq!(seen(&component, &snapshot).expect("reads"), found, "{place}");
        };
        assert_eq!(dump(&component), found, "{place}");
        look();
        let done = late.resume();
        look();
        assert!(done.is_ok() || is_stopped(&done) && found == before, "{place}: {done:?}");
        // It may have looked whether the log has stopped before it did.
        assert_eq!(dump(&component), *if done.is_ok() { &whole } else { &before }, "{place}");
        in_flight += u64::from(found == whole && !has_ended);
        assert_eq!(over_snapshot.get(0, b"a").expect("reads").as_deref(), Some(&b"0"[..]));
        over_snapshot.put(1, b"m", b"1").expect("fits");
        assert!(is_stopped(&over_snapshot.commit()), "{place}");
        check(&component);
        if has_ended {
            break;
        }
    }
    assert!(in_flight > 0, "none was in flight when the log stopped");
}

#[test]
fn a_full_disk_refuses_commits_before_they_begin_until_it_has_room() {
    let directory = Simulated::new();
    let component = over::<Killed>(&directory);
    let mut model = with(&Records::new(), BEFORE);
    let snapshot = take(&component);
    directory.on_operation(|operation, _| match operation {
        Operation::Allocate => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    });
    let put = |key: &[u8]| {
        let mut transaction = component.begin();
        for map in 0..2 {
            transaction.put(map, key, &[7; 2_000]).expect("fits");
        }
        transaction.commit()
    };
    let refused = (0_u64..).find_map(|number| {
        let key = number.to_be_bytes();
        let refused = put(&key).err();
        if refused.is_none() {
            model.extend((0..2).map(|map| ((map, key.to_vec()), vec![7; 2_000])));
        }
        refused
    });
    let is_full = |error: &Error| matches!(error, Error::Log(pando_log::Error::Full { .. }));
    assert!(refused.as_ref().is_some_and(is_full), "{refused:?}");
    assert!(model.len() > 20, "{} records", model.len());
    // Its record is as long as the one that was refused.
    let mut removal = component.begin();
    (0..2).for_each(|map| removal.remove(map, &0_u64.to_be_bytes()).expect("fits"));
    assert!(removal.commit().is_err_and(|error| is_full(&error)));
    let newest = component.newest_lsn().expect("a slot");
    match component.sync(newest) {
        Err(Error::Log(pando_log::Error::Device(refused))) => assert!(refused.is_full()),
        other => panic!("{other:?}"),
    }
    let late = take(&component);
    assert_eq!(seen(&component, &late).expect("reads"), model);
    assert_eq!(dump(&component), model);

    directory.on_operation(|_, _| Ok(()));
    component.sync(newest).expect("there is room");
    put(b"more").expect("there is room");
    commit(&component, WRITES).expect("there is room");
    assert_eq!(seen(&component, &snapshot).expect("reads"), with(&Records::new(), BEFORE));
    assert_eq!(seen(&component, &late).expect("reads"), model);
    model.extend((0..2).map(|map| ((map, b"more".to_vec()), vec![7; 2_000])));
    assert_eq!(dump(&component), with(&model, WRITES));
    check(&component);
}

/// The disk does not answer, and as many threads as may write wait for it.
#[test]
fn a_stalled_disk_refuses_commits_before_they_begin_until_it_answers() {
    const WRITERS: u64 = 8;
    let directory = Simulated::new();
    let component = Arc::new(over::<Killed>(&directory));
    let (waiting, answers) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, has_answered) = (waiting.clone(), answers.clone());
    directory.on_operation(move |operation, _| {
        if operation == Operation::Write && !has_answered.load(Ordering::SeqCst) {
            counted.fetch_add(1, Ordering::SeqCst);
            while !has_answered.load(Ordering::SeqCst) {
                std::thread::park_timeout(std::time::Duration::from_millis(1));
            }
        }
        Ok(())
    });
    let put = |key: &[u8], value: &[u8]| {
        let mut transaction = component.begin();
        for map in 0..2 {
            transaction.put(map, key, value).expect("fits");
        }
        transaction.commit()
    };
    put(b"first", b"1").expect("the tail has room");
    let mut model = with(&Records::new(), BEFORE);
    model.extend((0..2).map(|map| ((map, b"first".to_vec()), b"1".to_vec())));
    // One after the other: of two that seal at the same time, one writes nothing.
    let writers = (1..=WRITERS).map(|writers| {
        let theirs = component.clone();
        let writer = std::thread::spawn(move || theirs.log().write_block(&*theirs).map(drop));
        while waiting.load(Ordering::SeqCst) < writers {
            std::thread::yield_now();
        }
        writer
    });
    let writers: Vec<_> = writers.collect();

    let synced = component.sync(component.newest_lsn().expect("a slot"));
    let is_stalled =
        matches!(synced, Err(Error::Log(pando_log::Error::Stalled { writers: WRITERS, .. })));
    assert!(is_stalled, "{synced:?}");
    let refused = (0_u64..).find_map(|number| {
        let key = number.to_be_bytes();
        let refused = put(&key, &[7; 2_000]).err();
        if refused.is_none() {
            model.extend((0..2).map(|map| ((map, key.to_vec()), vec![7; 2_000])));
        }
        refused
    });
    let is_full = matches!(refused, Some(Error::Log(pando_log::Error::Full { .. })));
    assert!(is_full, "{refused:?}");
    assert!(model.len() > 20, "{} records", model.len());
    assert_eq!(dump(&component), model);

    answers.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.join().expect("joins").expect("the disk has answered");
    }
    component.sync(component.newest_lsn().expect("a slot")).expect("synced");
    commit(&component, WRITES).expect("the tail has room");
    assert_eq!(dump(&component), with(&model, WRITES));
    check(&component);
}

/// The pool refuses a block in the middle of a commit, or all from then on.
fn a_commit_without_room_leaves_a_snapshot_as_it_was<D: Domain>(kind: Kind<D>) {
    // Each has a block of its own.
    const LONG: &[u8] = &[7; 3_000];
    const WRITES: &[Write] =
        &[(0, b"a", Some(LONG)), (0, b"b", None), (1, b"c", Some(LONG)), (1, b"n", Some(LONG))];
    let before = with(&Records::new(), BEFORE);
    let whole = with(&before, WRITES);
    let mut failed = 0;
    for refused in [1, u64::MAX] {
        for granted in 0.. {
            let component = anonymous_of(kind, 8 << 20);
            commit(&component, BEFORE).expect("commits");
            let snapshot = take(&component);
            let work = || commit(&component, WRITES);
            let (done, is_refused) = refuse(Resource::Block, granted, refused, work);
            let place = format!("{granted} blocks granted, then {refused} refused");
            let is_typed = matches!(
                done,
                Ok(_) | Err(Error::Index(_) | Error::Log(pando_log::Error::Pool(_)))
            );
            assert!(is_typed, "{place}: {done:?}");
            failed += u64::from(done.is_err());
            let expected = if done.is_ok() { &whole } else { &before };
            assert_eq!(dump(&component), *expected, "{place}");
            assert_eq!(seen(&component, &snapshot).expect("reads"), before, "{place}");
            // It goes on.
            commit_at_last(&component, &[(0, b"a", None), (1, b"c", None)]);
            commit_at_last(&component, OTHERS);
            assert_eq!(seen(&component, &snapshot).expect("reads"), before, "{place}");
            check(&component);
            if !is_refused {
                break;
            }
        }
    }
    assert!(failed > 0, "no commit was refused");
}

/// A commit misses the map once: when it reads the version that it has to keep, or elsewhere.
#[test]
fn a_snapshot_whose_version_cannot_be_kept_is_revoked() {
    let before = with(&Records::new(), BEFORE);
    let mut revoked = 0;
    for made in 0.. {
        let component = anonymous_of(bztree::<Killed>(), 8 << 20);
        commit(&component, BEFORE).expect("commits");
        let snapshot = take(&component);
        let (done, is_missed) = missing(made, 1, || commit(&component, WRITES));
        match seen(&component, &snapshot) {
            Ok(found) => assert_eq!(found, before, "{made} look-ups: {done:?}"),
            // Also from a scan, which passes it on.
            Err(error) => {
                assert!(error.to_string().contains("is revoked"), "{made} look-ups: {error}");
                revoked += 1;
            }
        }
        let expected = if done.is_ok() { with(&before, WRITES) } else { before.clone() };
        assert_eq!(dump(&component), expected, "{made} look-ups");
        if !is_missed {
            break;
        }
    }
    assert!(revoked > 0, "each version was kept");
}

/// A commit behind the cut cannot settle one before it, and tells the holder of the snapshot, who
/// takes long. A second commit cannot settle either. It goes on only when the snapshot is revoked.
#[test]
fn a_commit_that_cannot_settle_revokes_a_snapshot_whose_holder_is_being_told() {
    let start = |writes: u64| {
        let component = Arc::new(anonymous_of(bztree::<Stopped>(), 8 << 20));
        commit(&component, BEFORE).expect("commits");
        let theirs = component.clone();
        let first = Paused::start(writes, move || commit(&theirs, &[(0, b"a", Some(b"1"))]));
        assert!(!first.is_done(), "it was never undecided");
        (component, first)
    };
    let is_undecided = |&writes: &u64| start(writes).0.undecided().expect("a slot") == 1;
    let appended = (0..).find(is_undecided).expect("a write");
    let mut revoked = 0;
    for writes in 0.. {
        let (component, first) = start(appended);
        let ((tell, told), (go_on, wait)) = (channel(), channel::<()>());
        let (wait, end) = (Mutex::new(wait), tell.clone());
        let on_revoke = move || {
            tell.send(true).expect("the test waits");
            // Ends when the test drops its end.
            let _ = wait.lock().unwrap_or_else(PoisonError::into_inner).recv();
        };
        let on_revoke: Option<pando_tc::OnRevoke> = Some(Box::new(on_revoke));
        let options = SnapshotOptions { on_revoke, ..SnapshotOptions::default() };
        let theirs = component.clone();
        let holder = Paused::start(writes, move || theirs.snapshot(options).map(drop));
        let has_ended = holder.is_done();
        let theirs = component.clone();
        let second = std::thread::spawn(move || {
            let (done, _) = missing(0, u64::MAX, || commit(&theirs, &[(1, b"c", Some(b"2"))]));
            // After the test, or without the callback.
            let _ = end.send(false);
            done
        });
        let is_told = told.recv().expect("it is told, or the commit ends");
        if is_told {
            assert_eq!(component.snapshot_stat().count, 1, "it is told before");
            let third = || commit(&component, &[(1, b"d", Some(b"3"))]);
            missing(0, u64::MAX, third).0.expect("no write fails for a snapshot");
            assert_eq!(component.snapshot_stat().count, 0, "paused before write {writes}");
            revoked += 1;
        }
        drop(go_on);
        second.join().expect("ends").expect("no write fails for a snapshot");
        let taken = holder.resume();
        assert_eq!(matches!(taken, Err(Error::SnapshotRevoked)), is_told, "{writes}: {taken:?}");
        let is_first = first.resume().is_ok();
        let a = component.get(0, b"a").expect("reads");
        assert_eq!(a.as_deref() == Some(b"1"), is_first, "{writes}");
        check(&component);
        if has_ended {
            break;
        }
    }
    assert!(revoked > 0, "the holder was never told");
}

/// A commit pauses before each of its writes. A thread removes one of its keys, and gets no room to
/// complete it, or to undo it.
#[test]
fn a_key_of_a_commit_that_cannot_be_undone_is_removed() {
    // Each has a block of its own; a tombstone has none.
    const LONG: &[u8] = &[7; 3_000];
    const BEFORE: &[Write] = &[(0, b"a", Some(LONG)), (0, b"b", Some(LONG))];
    const WRITES: &[Write] = &[(0, b"a", Some(b"1")), (0, b"b", Some(b"1")), (1, b"c", Some(LONG))];
    let mut met = 0;
    for writes in 0.. {
        let component = Arc::new(anonymous_of(bztree::<Stopped>(), 8 << 20));
        let before = commit(&component, BEFORE).expect("commits");
        let theirs = component.clone();
        let late = Paused::start(writes, move || commit(&theirs, WRITES).is_ok());
        let has_ended = late.is_done();
        let is_appended = component.newest_lsn().expect("a slot") > before;
        let index = component.maps().shared(0);
        let map = TransactionalMap::new(component.clone(), 0, index).expect("a map");
        let (removed, is_refused) =
            refuse(Resource::Block, 0, u64::MAX, || map.remove(b"a").expect("no room is needed"));
        assert!(removed, "paused before write {writes}");
        met += u64::from(is_refused);
        let is_last = late.resume() && !is_appended;
        let found = map.get(b"a").expect("reads");
        assert_eq!(found, is_last.then(|| b"1".to_vec()), "paused before write {writes}");
        check(&component);
        if has_ended {
            break;
        }
    }
    assert!(met > 0, "it was never met");
}
