//! Sessions and snapshots beside a log that stops, and in pools without room.

use pando::{Acknowledge, Error, Map, MapOptions, Outcome, Pool, PoolOptions, WriteBatch};
use pando_pmem::testing::refusal::{Resource, refuse};

use crate::broken_disk::{break_disk, mend_disk};
use crate::place::{Place, transactional};

/// Applied twice, its condition would fail.
fn once(map: &Map, key: &[u8], value: &[u8]) -> WriteBatch {
    WriteBatch::new().require(map, key, None).put(map, key, value)
}

fn applied(batch: &WriteBatch) -> Outcome {
    Outcome::Applied { digest: batch.digest() }
}

/// Calls `attempt` until it returns true. It returns false if the log had stopped before the first
/// commit: a thread may still write an earlier block when the disk breaks.
fn at_last(attempt: impl Fn() -> bool) {
    assert!((0..20).any(|_| attempt()), "the log always stops before the first commit");
}

fn is_refused<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::LogStopped { .. }))
}

fn is_not_durable(result: &Result<Outcome, Error>) -> bool {
    matches!(result, Err(Error::AppliedNotDurable { .. }))
}

#[test]
fn no_outcome_is_told_that_a_stopped_log_may_lose() {
    for is_power_cut in [false, true] {
        at_last(|| {
            let place = Place::new();
            let options = place.options().acknowledge(Acknowledge::Synced);
            let pool = Pool::create(place.pool(), &options).expect("a pool");
            let map = transactional(&pool, "trees");
            let session = pool.new_session().expect("a session");
            let id = session.id();
            let first = once(&map, b"a", b"1");
            assert_eq!(session.apply(1, &first).expect("applies"), applied(&first));
            let snapshot = pool.snapshot().expect("a snapshot");

            break_disk(&place.log(), &place.path("kept"));
            let second = once(&map, b"b", b"2");
            let done = session.apply(2, &second);
            if is_refused(&done) {
                assert_eq!(map.get(b"b").expect("reads"), None);
                return false;
            }
            for found in [done, session.outcome(2), session.apply(2, &second)] {
                assert!(is_not_durable(&found), "{found:?}");
            }
            // It has taken place.
            let late = pool.snapshot().expect("a snapshot");
            let b = || map.get(b"b").expect("reads");
            assert_eq!(b().as_deref(), Some(&b"2"[..]));
            assert_eq!(late.get(&map, b"b").expect("reads"), b());
            assert_eq!(snapshot.get(&map, b"b").expect("reads"), None);
            assert_eq!(snapshot.get(&map, b"a").expect("reads").as_deref(), Some(&b"1"[..]));
            // And nothing else does.
            let third = once(&map, b"c", b"3");
            let again = pool.session(id).expect("it is known");
            for refused in [
                again.apply(3, &third).map(drop),
                again.outcome(3).map(drop),
                pool.write(&third).map(drop),
                map.remove(b"a").map(drop),
                pool.new_session().map(drop),
                again.end(),
            ] {
                assert!(is_refused(&refused), "{refused:?}");
            }
            assert_eq!(map.get(b"c").expect("reads"), None);
            assert_eq!(
                snapshot.get(&map, b"a").expect("reads"),
                late.get(&map, b"a").expect("reads")
            );
            drop((snapshot, late, session, first, second, third, map));

            mend_disk(&place.log(), &place.path("kept"));
            match is_power_cut {
                true => place.go_down(pool),
                false => drop(pool),
            }
            let pool = place.open();
            let map = pool.open_map("trees").expect("the map");
            let session = pool.session(id).expect("it is known");
            let second = once(&map, b"b", b"2");
            let outcome = session.outcome(2).expect("an outcome");
            if is_power_cut {
                assert_eq!((outcome, map.get(b"b").expect("reads")), (Outcome::NotApplied, None));
                assert!(matches!(session.apply(2, &second), Err(Error::SequenceUsed { .. })));
                assert_eq!(session.apply(3, &second).expect("applies"), applied(&second));
            } else {
                assert_eq!(outcome, applied(&second));
                assert_eq!(session.apply(2, &second).expect("an outcome"), outcome);
            }
            assert_eq!(map.get(b"b").expect("reads").as_deref(), Some(&b"2"[..]));
            assert_eq!(session.outcome(1).expect("an outcome"), applied(&once(&map, b"a", b"1")));
            session.end().expect("ends");
            true
        });
    }
}

/// A power cut may undo that a sequence was closed. So that is not told before: a client would send
/// the batch under another sequence, and both could be applied.
#[test]
fn a_closed_sequence_is_told_only_when_that_is_durable() {
    at_last(|| {
        let place = Place::new();
        let pool = place.create();
        let map = transactional(&pool, "trees");
        let session = pool.new_session().expect("a session");
        let id = session.id();
        pool.sync().expect("synced");
        break_disk(&place.log(), &place.path("kept"));
        let batch = once(&map, b"a", b"1");
        let closed = session.outcome(1);
        let has_closed = !is_refused(&closed);
        if has_closed {
            for found in [closed, session.outcome(1), session.apply(1, &batch)] {
                assert!(is_not_durable(&found), "{found:?}");
            }
        }
        drop((session, batch, map));
        mend_disk(&place.log(), &place.path("kept"));
        place.go_down(pool);
        let pool = place.open();
        let batch = once(&pool.open_map("trees").expect("the map"), b"a", b"1");
        let session = pool.session(id).expect("it is known");
        assert_eq!(session.apply(1, &batch).expect("applies"), applied(&batch));
        has_closed
    });
}

/// The records before the refused one are written, as by single calls.
#[test]
fn the_done_part_of_a_refused_batch_is_synced() {
    let place = Place::new();
    let options = place.options().acknowledge(Acknowledge::Synced);
    let pool = Pool::create(place.pool(), &options).expect("a pool");
    let map = transactional(&pool, "trees");
    let long = vec![0; map.limits().max_key_bytes + 1];
    for key in [b"a", b"b", b"c"] {
        map.upsert(key, b"1").expect("written");
    }
    let before = pool.durable_lsn().expect("a log");
    let refused = map.upsert_many(&[(b"a", b"2"), (&long, b"2"), (b"b", b"2")]);
    let between = pool.durable_lsn().expect("a log");
    assert!(between > before, "durable to {before}, and then to {between}");
    assert!(matches!(refused, Err(Error::KeyTooLong { .. })), "{refused:?}");
    let refused = map.remove_many(&[b"c", &long, b"b"]).map(drop);
    let behind = pool.durable_lsn().expect("a log");
    assert!(behind > between, "durable to {between}, and then to {behind}");
    drop(map);
    place.go_down(pool);
    let map = place.open().open_map("trees").expect("the map");
    let found = [b"a", b"b", b"c"].map(|key| map.get(key).expect("reads"));
    // A key that is too long is absent: a remove may go on behind it.
    let b = refused.is_err().then(|| b"1".to_vec());
    assert_eq!(found, [Some(b"2".to_vec()), b, None]);
}

fn small(max_bytes: u64) -> (Pool, Map) {
    let options = PoolOptions::new().max_bytes(max_bytes).initial_bytes(0);
    let pool = Pool::volatile(&options).expect("memory");
    let map = transactional(&pool, "trees");
    (pool, map)
}

/// The pool refuses a block in the middle of a batch, or all from then on.
#[test]
fn a_batch_that_a_full_pool_refuses_is_applied_when_it_is_sent_again() {
    let mut failed = 0;
    for refused in [1, u64::MAX] {
        for granted in 0.. {
            let (pool, map) = small(8 << 20);
            map.insert(b"old", [1; 500]).expect("fits");
            let session = pool.new_session().expect("a session");
            let snapshot = pool.snapshot().expect("a snapshot");
            // Each value has a block of its own.
            let batch = once(&map, b"a", &[7; 3_000]).put(&map, b"n", [7; 3_000]);
            let batch = batch.remove(&map, b"old");
            let apply = || session.apply(1, &batch);
            let (done, is_refused) = refuse(Resource::Block, granted, refused, apply);
            let place = format!("{granted} blocks granted, then {refused} refused");
            let found = || [&b"a"[..], b"n", b"old"].map(|key| map.get(key).expect("reads"));
            match done {
                Err(Error::PoolFull { .. }) => {
                    failed += 1;
                    assert_eq!(found(), [None, None, Some(vec![1; 500])], "{place}");
                }
                done => assert_eq!(done.expect("an outcome"), applied(&batch), "{place}"),
            }
            assert_eq!(session.apply(1, &batch).expect("applies"), applied(&batch), "{place}");
            let value = Some(vec![7; 3_000]);
            assert_eq!(found(), [value.clone(), value, None], "{place}");
            assert_eq!(session.outcome(1).expect("an outcome"), applied(&batch), "{place}");
            assert_eq!(snapshot.get(&map, b"a").expect("reads"), None, "{place}");
            assert_eq!(snapshot.get(&map, b"old").expect("reads"), Some(vec![1; 500]), "{place}");
            if !is_refused {
                break;
            }
        }
    }
    assert!(failed > 0, "no batch was refused");
}

#[test]
fn a_full_pool_beside_a_session_takes_removes() {
    let (pool, map) = small(4 << 20);
    let session = pool.new_session().expect("a session");
    let batch = |number: u64| once(&map, &number.to_be_bytes(), &[7; 1_000]);
    let is_refused = |&number: &u64| match session.apply(number, &batch(number)) {
        Err(Error::PoolFull { .. }) => true,
        outcome => {
            assert_eq!(outcome.expect("an outcome"), applied(&batch(number)));
            false
        }
    };
    let refused = (1..).find(is_refused).expect("it is full once");
    assert!(refused > 1_000, "{refused} fit");
    let snapshot = pool.snapshot().expect("a snapshot");
    assert_eq!(map.get(refused.to_be_bytes()).expect("reads"), None);
    let removal = WriteBatch::new().remove(&map, 1_u64.to_be_bytes());
    assert_eq!(session.apply(refused + 1, &removal).expect("gives room"), applied(&removal));
    for number in 1..refused {
        map.remove(number.to_be_bytes()).expect("gives room");
    }
    assert!(map.is_empty().expect("counts"));
    let kept = snapshot.get(&map, 1_u64.to_be_bytes()).expect("it holds no room that is needed");
    assert_eq!(kept, Some(vec![7; 1_000]));
    assert_eq!(session.apply(refused, &batch(refused)).expect("room"), applied(&batch(refused)));
    assert!(pool.check().expect("checks").is_consistent());
}

/// The maps that exist can be opened and read, and no change of the catalog is begun.
#[test]
fn a_stopped_log_leaves_the_catalog_as_it_is() {
    at_last(|| {
        let place = Place::new();
        let pool = place.create();
        let map = transactional(&pool, "trees");
        map.insert(b"a", b"1").expect("written");
        pool.map("plain").expect("a map").insert(b"a", b"1").expect("written");
        drop(map);
        // After this the catalog has a version that the log does not list.
        pool.map("dropped").expect("a map");
        pool.drop_map("dropped").expect("dropped");
        pool.sync().expect("synced");

        break_disk(&place.log(), &place.path("kept"));
        let map = pool.open_map("trees").expect("opened beside a broken disk");
        let stopped = map.clone().acknowledge(Acknowledge::Synced).expect("a log");
        if is_refused(&stopped.insert(b"b", b"2")) {
            return false;
        }
        drop(stopped);
        let created = || pool.map_with("new", &MapOptions::new().transactional(true)).map(drop);
        let plain = || pool.map("also new").map(drop);
        let renamed = || pool.rename_map("plain", "renamed");
        for change in [&created as &dyn Fn() -> Result<(), Error>, &plain, &renamed] {
            assert!(is_refused(&change()));
        }
        assert!(is_refused(&pool.drop_map("plain")));
        let names: Vec<_> = pool.maps().expect("listed").into_iter().map(|map| map.name).collect();
        assert_eq!(names, ["plain", "trees"]);
        for name in names {
            let found = pool.open_map(&name).and_then(|map| map.get(b"a")).expect("read");
            assert_eq!(found.as_deref(), Some(&b"1"[..]));
        }
        drop(map);
        let closed = pool.close();
        assert!(matches!(closed, Err(Error::AppliedNotDurable { .. })), "{closed:?}");
        mend_disk(&place.log(), &place.path("kept"));
        let map = place.open().open_map("trees").expect("a map");
        assert_eq!(map.get(b"b").expect("read").as_deref(), Some(&b"2"[..]));
        true
    });
}
