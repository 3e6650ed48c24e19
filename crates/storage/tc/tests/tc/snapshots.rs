//! Snapshots: one moment, while others write; limits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pando_index::random::Random;
use pando_index::{KeyRange, Order};
use pando_pmem::Domain;
use pando_pmem::testing::Paused;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_tc::{Error, Maps, Snapshot, SnapshotLimits, SnapshotOptions};

use crate::common::{
    BEFORE, Component, Killed, Kind, OTHERS, Records, Stopped, TwoMaps, WRITES, Write, anonymous,
    anonymous_of, bztree, check, churn, commit, commit_at_last, dump, with,
};
use crate::over_each_index;

mod alone {
    use super::*;
    over_each_index!(Killed:
        a_snapshot_stays_as_it_was,
        a_write_in_a_full_pool_revokes_what_holds_room,
    );
}

mod stopped {
    use super::*;
    over_each_index!(Stopped:
        a_commit_that_stops_is_there_whole_or_not_at_all,
        a_commit_behind_the_cut_comes_after_those_before_it,
    );
}

pub fn take<D: Domain>(component: &Component<D>) -> Snapshot<'_, D, TwoMaps<D>> {
    component.snapshot(SnapshotOptions::default()).expect("a snapshot")
}

/// All records of a snapshot, by scans in both directions and by gets.
pub fn seen<D: Domain>(
    component: &Component<D>,
    snapshot: &Snapshot<'_, D, TwoMaps<D>>,
) -> pando_tc::Result<Records> {
    let mut found = [Records::new(), Records::new()];
    for (order, found) in [Order::Ascending, Order::Descending].into_iter().zip(&mut found) {
        for map in 0..2 {
            let index = component.maps().map(map).expect("the map");
            let mut cursor = snapshot.scan(map, index, KeyRange::all(), order)?;
            let mut last = None;
            while let Some((key, value)) = cursor.next()? {
                let key = key.to_vec();
                let is_next = |last: &Vec<u8>| (*last < key) == (order == Order::Ascending);
                assert!(last.as_ref().is_none_or(is_next), "{key:?} comes behind {last:?}");
                found.insert((map, key.clone()), value.to_vec());
                last = Some(key);
            }
        }
    }
    let [found, backwards] = found;
    assert_eq!(found, backwards);
    for ((map, key), value) in &found {
        assert_eq!(snapshot.get(*map, key)?.as_ref(), Some(value));
    }
    Ok(found)
}

/// Several snapshots of different times, each against a copy of the model.
fn a_snapshot_stays_as_it_was<D: Domain>(kind: Kind<D>) {
    let component = anonymous(kind);
    let mut random = Random::new(25);
    let mut model = Records::new();
    let mut snapshots = VecDeque::new();
    for step in 0..600 {
        let key = |random: &mut Random| (random.below(2), vec![b'k', random.below(24) as u8]);
        let mut transaction = component.begin();
        for _ in 0..1 + random.below(3) {
            let (map, key) = key(&mut random);
            if random.one_in(3) {
                transaction.remove(map, &key).expect("fits");
                model.remove(&(map, key));
            } else {
                let value = [&u64::to_le_bytes(step)[..], &[7; 20][..random.below(20) as usize]];
                transaction.put(map, &key, &value.concat()).expect("fits");
                model.insert((map, key), value.concat());
            }
        }
        transaction.commit().expect("it is alone");
        if random.one_in(8) {
            snapshots.push_back((take(&component), model.clone()));
            if snapshots.len() > 4 {
                let at = random.below(snapshots.len() as u64) as usize;
                snapshots.remove(at);
            }
        }
        if random.one_in(16) {
            component.settle().expect("settles");
            component.log().pool().reclaim().expect("a slot");
        }
        if !snapshots.is_empty() {
            let at = random.below(snapshots.len() as u64) as usize;
            let (snapshot, expected) = &snapshots[at];
            assert_eq!(seen(&component, snapshot).expect("reads"), *expected);
            let (map, key) = key(&mut random);
            let found = snapshot.get(map, &key).expect("reads");
            assert_eq!(found.as_ref(), expected.get(&(map, key)));
        }
    }
    // What was removed meanwhile is still there.
    let (snapshot, expected) = snapshots.pop_back().expect("a snapshot");
    drop(snapshots);
    for (map, key) in expected.keys() {
        let mut transaction = component.begin();
        transaction.remove(*map, key).expect("fits");
        transaction.commit().expect("it is alone");
    }
    churn(&component);
    assert_eq!(seen(&component, &snapshot).expect("reads"), expected);
    let stat = component.snapshot_stat();
    assert!(stat.count == 1 && stat.kept_bytes >= expected.len() as u64 * 128, "{stat:?}");

    // And goes with the snapshot.
    let tombstones = || {
        let raw = |map| component.maps().map(map).expect("the map").len().expect("counts");
        raw(0) + raw(1)
    };
    assert!(tombstones() >= expected.len() as u64);
    drop(snapshot);
    assert_eq!(component.snapshot_stat().count, 0);
    churn(&component);
    // A scan notes those that the tables of threads have not.
    dump(&component);
    churn(&component);
    let left = tombstones() - dump(&component).len() as u64;
    assert!(left <= 3, "{left} tombstones are left");
    check(&component);
}

/// A commit stops before each of its writes, and goes on late, beside a snapshot from before it and
/// one that is taken meanwhile.
fn a_commit_that_stops_is_there_whole_or_not_at_all<D: Domain>(kind: Kind<D>) {
    let before = with(&Records::new(), BEFORE);
    let whole = with(&before, WRITES);
    for writes in 0.. {
        let component = Arc::new(anonymous(kind));
        commit(&component, BEFORE).expect("commits");
        let earlier = take(&component);
        let theirs = component.clone();
        let late = Paused::start(writes, move || commit(&theirs, WRITES));
        let has_ended = late.is_done();
        let snapshot = take(&component);
        let found = seen(&component, &snapshot).expect("reads");
        let place = format!("stopped before write {writes}");
        assert!(found == before || found == whole, "{place}: {found:?}");
        let look = || {
            assert_eq!(seen(&component, &earlier).expect("reads"), before, "{place}");
            assert_eq!(seen(&component, &snapshot).expect("reads"), found, "{place}");
        };
        look();
        if !has_ended {
            commit_at_last(&component, OTHERS);
        }
        look();
        let is_committed = late.resume().is_ok();
        assert!(is_committed || found == before, "{place}: it failed, and is there");
        look();
        commit_at_last(&component, BEFORE);
        churn(&component);
        look();
        check(&component);
        if has_ended {
            break;
        }
    }
}

/// A commit has its LSN and has written nothing. A thread takes a snapshot, and stops while it
/// takes that commit to its end. Another one, behind the cut, reads what the first one replaces.
fn a_commit_behind_the_cut_comes_after_those_before_it<D: Domain>(kind: Kind<D>) {
    for writes in 0.. {
        let mut has_ended = false;
        // Every second one, the others in the next round.
        for more in (writes % 2..).step_by(2) {
            let component = Arc::new(anonymous_of(kind, 8 << 20));
            commit(&component, BEFORE).expect("commits");
            let theirs = component.clone();
            let first = Paused::start(writes, move || commit(&theirs, &[(0, b"a", Some(b"1"))]));
            has_ended = first.is_done();
            let (theirs, cut) = (component.clone(), Arc::new(AtomicU64::new(0)));
            let told = cut.clone();
            let reader = Paused::start(more, move || {
                let snapshot = take(&theirs);
                told.store(snapshot.lsn(), Ordering::Relaxed);
                seen(&theirs, &snapshot).expect("reads")
            });
            let has_read = reader.is_done();
            let mut second = component.begin();
            let read = second.get(0, b"a").expect("reads");
            second.put(1, b"d", b"2").expect("fits");
            let is_second = second.commit().is_ok();
            let is_first = first.resume().is_ok();
            let found = reader.resume();
            let [a, d] = [(0, b"a".to_vec()), (1, b"d".to_vec())].map(|key| found.get(&key));
            let has_first = a.is_some_and(|value| value == b"1");
            let read_before = read.as_deref() == Some(b"0");
            assert!(
                !(is_second && read_before && has_first) || d.is_some(),
                "stopped before writes {writes} and {more}: the second comes before the first, and \
                 the snapshot has only the first: {found:?}"
            );
            assert!(is_first || !has_first, "{writes}, {more}: it failed, and is there");
            check(&component);
            if has_read || has_ended {
                break;
            }
        }
        if has_ended {
            break;
        }
    }
}

/// A snapshot that counts how often its holder is told.
fn counted(told: &Arc<AtomicU64>, limits: SnapshotLimits) -> SnapshotOptions {
    let told = told.clone();
    let on_revoke = move || {
        told.fetch_add(1, Ordering::Relaxed);
        panic!("a holder panics");
    };
    SnapshotOptions { limits, holder: "backup".into(), on_revoke: Some(Box::new(on_revoke)) }
}

#[test]
fn the_oldest_snapshot_is_revoked_at_the_limit_of_bytes_and_no_write_fails() {
    let limits = SnapshotLimits { max_bytes: 20_000, ..SnapshotLimits::default() };
    let component = anonymous(bztree::<Killed>());
    let put = |key: u64, value: u8| {
        let mut transaction = component.begin();
        transaction.put(0, &key.to_be_bytes(), &[value; 100]).expect("fits");
        transaction.commit().expect("commits");
    };
    (0..400).for_each(|key| put(key, 0));
    let told = Arc::new(AtomicU64::new(0));
    let oldest = component.snapshot(counted(&told, limits)).expect("a snapshot");
    (0..10).for_each(|key| put(key, 1));
    let stat = component.snapshot_stat();
    assert_eq!((stat.count, stat.oldest_holder.as_str()), (1, "backup"));
    assert_eq!(stat.kept_bytes, 10 * (8 + 8 + 100 + 128));
    // It keeps nothing yet.
    let options = SnapshotOptions { limits, ..SnapshotOptions::default() };
    let newer = component.snapshot(options).expect("a snapshot");
    assert_eq!(oldest.get(0, &1_u64.to_be_bytes()).expect("reads"), Some(vec![0; 100]));
    assert_eq!(told.load(Ordering::Relaxed), 0);
    (10..90).for_each(|key| put(key, 2));
    assert_eq!(told.load(Ordering::Relaxed), 1, "told once, and a panic is caught");
    for key in [1, 50, 300_u64] {
        assert!(matches!(oldest.get(0, &key.to_be_bytes()), Err(Error::SnapshotRevoked)));
    }
    let refused = seen(&component, &oldest).expect_err("it is revoked");
    assert!(refused.to_string().contains("take a new one"), "{refused}");
    assert_eq!(newer.get(0, &50_u64.to_be_bytes()).expect("reads"), Some(vec![0; 100]));
    assert_eq!(component.snapshot_stat().count, 1);
    // The other one follows.
    (0..400).for_each(|key| put(key, 3));
    assert!(matches!(newer.get(0, &50_u64.to_be_bytes()), Err(Error::SnapshotRevoked)));
    assert_eq!(component.snapshot_stat(), Default::default());
    drop((oldest, newer));
    check(&component);
}

#[test]
fn a_snapshot_beyond_its_age_is_revoked_after_a_commit() {
    let component = anonymous(bztree::<Killed>());
    commit(&component, BEFORE).expect("commits");
    let limits = SnapshotLimits { max_age: Duration::ZERO, ..SnapshotLimits::default() };
    let options = SnapshotOptions { limits, ..SnapshotOptions::default() };
    let snapshot = component.snapshot(options).expect("a snapshot");
    assert_eq!(snapshot.get(0, b"a").expect("reads").as_deref(), Some(&b"0"[..]));
    commit(&component, WRITES).expect("commits");
    assert!(matches!(snapshot.get(0, b"a"), Err(Error::SnapshotRevoked)));
}

/// A commit pauses; a thread that takes a snapshot has to complete it, and gets no more blocks.
#[test]
fn a_snapshot_that_finds_no_room_leaves_the_commit_whole_or_not_at_all() {
    // Each has a block of its own.
    const LONG: &[u8] = &[7; 3_000];
    const WRITES: &[Write] = &[(0, b"a", Some(LONG)), (0, b"b", Some(b"1")), (1, b"n", Some(LONG))];
    let before = with(&Records::new(), BEFORE);
    let mut refusals = 0;
    for writes in 0.. {
        let mut has_ended = false;
        for granted in 0.. {
            let component = Arc::new(anonymous_of(bztree::<Stopped>(), 8 << 20));
            commit(&component, BEFORE).expect("commits");
            let theirs = component.clone();
            let late = Paused::start(writes, move || commit(&theirs, WRITES));
            has_ended = late.is_done();
            let take = || component.snapshot(SnapshotOptions::default());
            let (snapshot, is_refused) = refuse(Resource::Block, granted, u64::MAX, take);
            let place = format!("stopped before write {writes}, {granted} blocks granted");
            let found = match &snapshot {
                Ok(snapshot) => Some(seen(&component, snapshot).expect("reads")),
                Err(error) => {
                    assert!(is_refused, "{place}: {error}");
                    assert_eq!(component.snapshot_stat().count, 0, "{place}");
                    None
                }
            };
            refusals += u64::from(is_refused);
            let is_committed = late.resume().is_ok();
            let now = dump(&component);
            let whole = with(&before, WRITES);
            assert_eq!(now, if is_committed { whole.clone() } else { before.clone() }, "{place}");
            if let (Ok(snapshot), Some(found)) = (&snapshot, found) {
                assert!(found == before || found == whole, "{place}: {found:?}");
                commit_at_last(&component, OTHERS);
                assert_eq!(seen(&component, snapshot).expect("reads"), found, "{place}");
            }
            drop(snapshot);
            check(&component);
            if !is_refused {
                break;
            }
        }
        if has_ended {
            break;
        }
    }
    assert!(refusals > 0, "no block was refused");
}

/// Another thread revokes the snapshot at twice the limit.
#[test]
fn a_callback_that_lasts_does_not_hold_memory_for_ever() {
    let component = anonymous(bztree::<Killed>());
    let put = &|key: u64, value: u8| {
        let mut transaction = component.begin();
        transaction.put(0, &key.to_be_bytes(), &[value; 100]).expect("fits");
        transaction.commit().expect("commits");
    };
    (0..400).for_each(|key| put(key, 0));
    let ((tell, told), (go_on, wait)) = (channel(), channel::<()>());
    let (wait, end) = (Mutex::new(wait), tell.clone());
    let on_revoke = move || {
        tell.send("told").expect("the test waits");
        // Ends when the test drops its end.
        let _ = wait.lock().unwrap_or_else(PoisonError::into_inner).recv();
    };
    let limits = SnapshotLimits { max_bytes: 20_000, ..SnapshotLimits::default() };
    let on_revoke: Option<pando_tc::OnRevoke> = Some(Box::new(on_revoke));
    let options = SnapshotOptions { limits, on_revoke, ..SnapshotOptions::default() };
    let snapshot = component.snapshot(options).expect("a snapshot");
    std::thread::scope(|scope| {
        // It stays in the callback.
        scope.spawn(move || {
            (0..90).for_each(|key| put(key, 1));
            // After the test, or without the callback.
            let _ = end.send("not told");
        });
        assert_eq!(told.recv(), Ok("told"));
        assert_eq!(snapshot.get(0, &1_u64.to_be_bytes()).expect("reads"), Some(vec![0; 100]));
        (100..200).for_each(|key| put(key, 1));
        assert!(matches!(snapshot.get(0, &1_u64.to_be_bytes()), Err(Error::SnapshotRevoked)));
        assert_eq!(component.snapshot_stat().kept_bytes, 0);
        drop(go_on);
    });
    drop(snapshot);
    check(&component);
}

/// Keys that come and go behind the cut cost nothing; a tombstone stays once for each key that the
/// snapshot has.
#[test]
fn a_queue_beside_a_snapshot_leaves_no_tombstones() {
    let component = anonymous(bztree::<Killed>());
    commit(&component, BEFORE).expect("commits");
    let snapshot = take(&component);
    let put = |key: &[u8], value: Option<&[u8]>| {
        let mut transaction = component.begin();
        match value {
            Some(value) => transaction.put(0, key, value).expect("fits"),
            None => transaction.remove(0, key).expect("fits"),
        }
        transaction.commit().expect("it is alone");
    };
    for turn in 0..2_000_u64 {
        for key in [&turn.to_be_bytes()[..], b"a"] {
            put(key, Some(b"1"));
            put(key, None);
        }
    }
    churn(&component);
    let raw = component.maps().map(0).expect("the map").len().expect("counts");
    assert!(raw <= 4, "{raw} keys are left of 2 with values and 1 that was removed");
    let stat = component.snapshot_stat();
    assert!(stat.kept_bytes < 400, "{stat:?}");
    assert_eq!(seen(&component, &snapshot).expect("reads"), with(&Records::new(), BEFORE));
    // A thread that never writes releases it.
    std::thread::scope(|scope| scope.spawn(|| drop(snapshot)).join()).expect("drops it");
    churn(&component);
    assert_eq!(component.maps().map(0).expect("the map").len().expect("counts"), 1);
    check(&component);
}

/// Room that a snapshot holds by tombstones is given back before a write is refused.
fn a_write_in_a_full_pool_revokes_what_holds_room<D: Domain>(kind: Kind<D>) {
    let component = anonymous_of(kind, 4 << 20);
    let key = |number: u64| [&[b'k'; 200][..], &number.to_be_bytes()].concat();
    let put = |number: u64| {
        let mut transaction = component.begin();
        transaction.put(0, &key(number), b"").and_then(|()| transaction.commit())
    };
    let there = (0..).find(|&number| put(number).is_err()).expect("it is full once");
    assert!(there > 1_000, "{there} fit");
    let snapshot = take(&component);
    for number in 0..there {
        let removed = component.transaction(|transaction| transaction.remove(0, &key(number)));
        removed.unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    let other = take(&component);
    let mut put_again = 0;
    for number in there..there + there / 2 {
        put_again += u64::from(put(number).or_else(|_| put(number)).is_ok());
    }
    assert!(put_again >= there / 2 - 2, "{put_again} of {there}");
    assert!(matches!(snapshot.get(0, &key(0)), Err(Error::SnapshotRevoked)));
    // It holds no room.
    assert_eq!(other.get(0, &key(there)).expect("reads"), None);
    check(&component);
}

#[test]
fn a_transaction_over_a_snapshot_conflicts_only_with_writes_of_its_keys() {
    let component = anonymous(bztree::<Killed>());
    commit(&component, BEFORE).expect("commits");
    let begin = || component.begin_over_snapshot(SnapshotOptions::default()).expect("begins");
    // Each reads what the other writes: no conflict.
    let (mut first, mut second) = (begin(), begin());
    assert_eq!(first.get(0, b"a").expect("reads").as_deref(), Some(&b"0"[..]));
    first.put(0, b"b", b"1").expect("fits");
    second.put(0, b"a", b"2").expect("fits");
    second.commit().expect("nobody has written it");
    assert_eq!(first.get(0, b"a").expect("reads").as_deref(), Some(&b"0"[..]), "as it was");
    assert_eq!(first.get(0, b"b").expect("reads").as_deref(), Some(&b"1"[..]), "its own");
    first.commit().expect("nobody has written it");

    // The same key: the first committer wins, also if the key is as it was.
    for writes in
        [&[(1, &b"n"[..], Some(&b"1"[..]))][..], &[(1, b"n", Some(b"1")), (1, b"n", None)]]
    {
        let mut late = begin();
        assert_eq!(late.get(1, b"n").expect("reads"), None);
        late.put(1, b"n", b"late").expect("fits");
        for write in writes {
            commit(&component, &[*write]).expect("commits");
        }
        churn(&component);
        assert!(matches!(late.commit(), Err(Error::Conflict { map: 1, .. })));
        commit(&component, &[(1, b"n", None)]).expect("commits");
    }
    check(&component);
}
