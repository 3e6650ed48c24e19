//! One transaction after the other, against a model; limits, and errors.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_log::{Log, LogOptions};
use pando_pmem::testing::kill_after;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::{CreateOptions, Domain, OpenPool, Pool, layout};
use pando_tc::{Error, Maps, Transaction, TransactionComponent, TransactionalMap};
use pando_tree::testing::Fixture;
use pando_wbtree::{RecordBytes, WbTree, WbTrees};

use crate::common::{
    Component, Killed, Kind, Records, TwoMaps, Write, abandon, anonymous, anonymous_of, bztree,
    check, commit, create, dump, missing, open_over, open_with, reopen,
};
use crate::over_each_index;

over_each_index!(Killed:
    a_transaction_sees_its_own_writes_and_others_see_them_at_the_commit,
    random_transactions_do_what_a_model_does,
    conflicts_and_bad_input_are_told,
    a_commit_that_a_full_pool_refuses_is_undone,
);

fn a_transaction_sees_its_own_writes_and_others_see_them_at_the_commit<D: Domain>(kind: Kind<D>) {
    let component = anonymous(kind);
    commit(&component, &[(0, b"ash", Some(b"1")), (1, b"ash", Some(b"2"))]).expect("commits");
    let mut transaction = component.begin();
    assert_eq!(transaction.get(0, b"ash").expect("reads").as_deref(), Some(&b"1"[..]));
    transaction.put(0, b"ash", b"3").expect("fits");
    transaction.remove(1, b"ash").expect("fits");
    transaction.put(1, b"elm", b"").expect("fits");
    assert_eq!(transaction.get(0, b"ash").expect("reads").as_deref(), Some(&b"3"[..]));
    assert_eq!(transaction.get(1, b"ash").expect("reads"), None);
    assert_eq!(component.get(0, b"ash").expect("reads").as_deref(), Some(&b"1"[..]));
    assert_eq!(component.get(1, b"elm").expect("reads"), None);
    transaction.commit().expect("nothing else was written");
    let expected = [((0, b"ash".to_vec()), b"3".to_vec()), ((1, b"elm".to_vec()), Vec::new())];
    assert_eq!(dump(&component), Records::from(expected.clone()));

    // Dropped, it has done nothing.
    let mut dropped = component.begin();
    dropped.put(0, b"oak", b"4").expect("fits");
    drop(dropped);
    assert_eq!(dump(&component), Records::from(expected));
    check(&component);
}

/// A key of few, so that transactions come back to them.
fn key(random: &mut Random) -> Vec<u8> {
    vec![b'k'; 1 + random.below(3) as usize].into_iter().chain([random.below(20) as u8]).collect()
}

fn bound(random: &mut Random) -> Bound<Vec<u8>> {
    match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(random)),
        _ => Bound::Excluded(key(random)),
    }
}

/// Scans some of a range, and compares it with the model.
fn scan<D: Domain>(
    transaction: &mut Transaction<'_, D, TwoMaps<D>>,
    model: &Records,
    random: &mut Random,
) {
    let map = random.below(2);
    let range = KeyRange { low: bound(random), high: bound(random) };
    let order = if random.one_in(2) { Order::Ascending } else { Order::Descending };
    let most = 1 + random.below(30) as usize;
    let mut found = Vec::new();
    transaction
        .scan(map, range.clone(), order, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .expect("scans");
    let in_range = model.iter().filter(|((of, key), _)| *of == map && range.contains(key));
    let mut expected: Vec<_> =
        in_range.map(|((_, key), value)| (key.clone(), value.clone())).collect();
    if order == Order::Descending {
        expected.reverse();
    }
    expected.truncate(most);
    assert_eq!(found, expected, "{range:?} {order:?}");
}

fn random_transactions_do_what_a_model_does<D: Domain>(kind: Kind<D>) {
    let component = anonymous(kind);
    let mut random = Random::new(7);
    let mut model = Records::new();
    for number in 0..600_u64 {
        let mut transaction = component.begin();
        let mut next = model.clone();
        for step in 0..random.below(8) {
            let (map, key) = (random.below(2), key(&mut random));
            match random.below(5) {
                0 => scan(&mut transaction, &next, &mut random),
                1 => {
                    let found = transaction.get(map, &key).expect("reads");
                    assert_eq!(found.as_ref(), next.get(&(map, key)));
                }
                2 => {
                    transaction.remove(map, &key).expect("fits");
                    next.remove(&(map, key));
                }
                _ => {
                    let value = [number, step].map(u64::to_le_bytes).concat();
                    transaction.put(map, &key, &value).expect("fits");
                    next.insert((map, key), value);
                }
            }
        }
        if random.one_in(4) {
            drop(transaction);
        } else {
            transaction.commit().expect("nothing else is written");
            model = next;
        }
    }
    assert_eq!(dump(&component), model);
    check(&component);
}

fn conflicts_and_bad_input_are_told<D: Domain>(kind: Kind<D>) {
    let component = anonymous(kind);
    let mut first = component.begin();
    assert_eq!(first.get(1, b"oak").expect("reads"), None);
    first.put(0, b"elm", b"1").expect("fits");
    commit(&component, &[(1, b"oak", Some(b"2"))]).expect("commits");
    let conflict = first.commit().expect_err("what it read has changed");
    assert!(matches!(&conflict, Error::Conflict { map: 1, key } if key == b"oak"), "{conflict}");
    assert_eq!(
        conflict.to_string(),
        "the transaction conflicts with another one at the key \"oak\" of map 1; run it again"
    );

    let mut second = component.begin();
    second.get(0, b"elm").expect("reads");
    second.put(0, b"elm", b"3").expect("fits");
    commit(&component, &[(0, b"elm", Some(b"4"))]).expect("commits");
    let conflict = second.commit().expect_err("what it replaces has changed");
    assert!(matches!(&conflict, Error::Conflict { map: 0, key } if key == b"elm"), "{conflict}");

    let mut third = component.begin();
    assert!(matches!(third.get(2, b""), Err(Error::UnknownMap { map: 2 })));
    assert!(matches!(third.put(2, b"", b""), Err(Error::UnknownMap { map: 2 })));
    let limits = component.limits(0).expect("the map");
    let too_long = vec![0; limits.max_value_bytes + 1];
    let refused = third.put(0, b"elm", &too_long).expect_err("the value is too long");
    let says = format!("longer than the {} bytes", limits.max_value_bytes);
    assert!(refused.to_string().contains(&says), "{refused}");
    third.put(0, &vec![0; limits.max_key_bytes + 1], b"").expect_err("the key is too long");
    third.remove(0, &vec![0; limits.max_key_bytes + 1]).expect_err("the key is too long");
    third.commit().expect("it has read and written nothing");
}

/// The pool becomes full in the middle of commits. Nothing of them is seen; when there is room
/// again, they are undone, and the next commits succeed.
fn a_commit_that_a_full_pool_refuses_is_undone<D: Domain>(kind: Kind<D>) {
    const KEYS: u64 = 16;
    let component = anonymous_of(kind, 4 << 20);
    let catalog = &component.maps().catalog;
    let plain = (kind.find_or_create)(catalog, "plain");
    (0..60_u8).for_each(|key| plain.insert(&[key], &[key; 8192]).expect("room"));
    drop(plain);
    let mut model = Records::new();
    let mut refused = 0;
    for number in 0.. {
        let mut transaction = component.begin();
        let mut next = model.clone();
        for key in 0..KEYS {
            // Some are new, some replace the values of earlier commits by longer ones.
            let key = (key % 2, [number / 2, key].map(u64::to_be_bytes).concat());
            let value = vec![number as u8; 200 + 300 * (number % 2) as usize];
            transaction.put(key.0, &key.1, &value).expect("fits");
            next.insert(key, value);
        }
        match transaction.commit() {
            Ok(_) => model = next,
            Err(Error::Index(_) | Error::Log(pando_log::Error::Pool(_))) => {
                refused += 1;
                assert_eq!(dump(&component), model);
            }
            // Meanwhile an earlier one was undone, of which this one has seen the versions.
            Err(Error::Conflict { .. }) if refused > 0 => {}
            Err(error) => panic!("{error}"),
        }
        if refused == 20 {
            break;
        }
    }
    assert!(model.len() > 100, "{} records fit", model.len());
    (kind.drop)(catalog, "plain");
    component.settle().expect("there is room to undo what was refused");
    assert_eq!(dump(&component), model);
    while !model.is_empty() {
        let mut transaction = component.begin();
        for _ in 0..KEYS {
            let Some(((map, key), _)) = model.pop_first() else { break };
            transaction.remove(map, &key).expect("fits");
        }
        transaction.commit().expect("it gives room back");
    }
    assert_eq!(dump(&component), Records::new());
    commit(&component, &[(0, b"a", Some(&[1; 500])), (1, b"b", Some(&[2; 500]))]).expect("fits");
    check(&component);
}

/// A pool that is full from some moment of a commit on has no room to undo it. It is opened
/// nevertheless, and shows the records from before.
#[test]
fn a_full_pool_opens_with_what_it_has_no_room_to_undo() {
    let mut is_left = false;
    for granted in 0.. {
        let (_folder, path) = pando_pmem::testing::folder_and_pool();
        let component = create(bztree::<Killed>(), &path);
        let writes = |component: &Component<Killed>, value: &[u8]| {
            let mut transaction = component.begin();
            for key in 0..8 {
                transaction.put(u64::from(key % 2), &[key], value).expect("fits");
            }
            transaction.commit().is_ok()
        };
        assert!(writes(&component, &[1; 300]));
        let before = dump(&component);
        let commit = || writes(&component, &[2; 500]);
        let (is_committed, is_refused) = refuse(Resource::Block, granted, u64::MAX, commit);
        let settle = || component.settle().is_err();
        is_left |= refuse(Resource::Block, 0, u64::MAX, settle).0 && !is_committed;
        let after = dump(&component);
        assert!(is_committed || after == before, "{granted} blocks were granted");
        abandon(component);
        let open = || reopen(bztree::<Killed>(), &path);
        let (component, _) = refuse(Resource::Block, 0, u64::MAX, open);
        assert_eq!(dump(&component), after, "{granted} blocks were granted");
        component.settle().expect("there is room");
        assert_eq!(dump(&component), after, "{granted} blocks were granted");
        assert!(writes(&component, &[3; 500]));
        check(&component);
        if !is_refused {
            break;
        }
    }
    assert!(is_left, "there always was room to undo");
}

/// Two commits are killed. The opening cannot undo the first one, since its map is missing. The
/// second one fails all the same, and no later settling lets it commit.
#[test]
fn an_opening_decides_what_is_behind_a_commit_that_it_cannot_undo() {
    let kind = bztree::<Killed>;
    for first in [0, 10, 16, 22] {
        for second in 0.. {
            let (_folder, path) = pando_pmem::testing::folder_and_pool();
            let component = Arc::new(create(kind(), &path));
            let old = b"old".as_slice();
            let writes: [Write; 4] =
                [(0, b"a", Some(old)), (0, b"b", Some(old)), (1, b"c", Some(old)), (1, b"d", None)];
            commit(&component, &writes).expect("commits");
            let new = b"new".as_slice();
            let of_missing: [Write; 2] = [(0, b"a", Some(new)), (0, b"b", Some(new))];
            let _ = kill_after(first, || commit(&component, &of_missing));
            let has_ended = match second % 2 {
                0 => {
                    let both: [Write; 2] = [(1, b"c", Some(new)), (1, b"d", Some(new))];
                    kill_after(second / 2, || commit(&component, &both).expect("commits")).is_some()
                }
                _ => {
                    let index = component.maps().shared(1);
                    let map = TransactionalMap::new(component.clone(), 1, index).expect("a map");
                    kill_after(second / 2, || map.put(b"c", new).expect("writes")).is_some()
                }
            };
            component.log().pool().clone().abandon();
            drop(component);
            let (component, _) = missing(0, u64::MAX, || reopen(kind(), &path));
            let shown = dump(&component);
            component.settle().expect("the map is there");
            assert_eq!(dump(&component), shown, "killed after {first} and {second} writes");
            check(&component);
            if has_ended && second % 2 == 0 {
                break;
            }
        }
    }
}

/// A map whose values have eight bytes cannot be transactional.
#[test]
fn a_map_without_room_for_stamps_is_refused() {
    struct Narrow(WbTree<Killed>);

    impl Maps for Narrow {
        type Lent<'maps> = &'maps dyn RangeIndex;

        fn map(&self, _: u64) -> Option<&dyn RangeIndex> {
            Some(&self.0)
        }
    }

    let options = pando_wbtree::Options { records: RecordBytes::Fixed, ..Default::default() };
    let fixture = Fixture::<Killed, WbTrees>::anonymous(options);
    let (pool, options) = (fixture.pool.clone(), LogOptions::default());
    let log = Log::without_files(pool, layout::LOG_OFF, options).expect("a log");
    let narrow = Narrow(fixture.another_handle());
    let component = TransactionComponent::open(log, narrow).expect("opens");
    let refused = component.begin().put(7, &[1; 8], &[2; 8]).expect_err("no room");
    assert!(matches!(refused, Error::NoRoomForStamp { map: 7, max_value_bytes: 8 }), "{refused}");
}

/// The tail of the log is settled on the way: it needs little room, however many commits there are.
#[test]
fn many_commits_need_little_room_in_the_tail() {
    let (_folder, path) = pando_pmem::testing::folder_and_pool();
    drop(create(bztree::<Killed>(), &path));
    let pool = Pool::open(&path, &OpenPool::default()).expect("opens");
    // Smaller than what has to be settled before a thread does it unasked.
    let component = open_with(bztree::<Killed>(), pool, 64 << 10);
    for _ in 0..3_000 {
        commit(&component, &[(0, b"oak", Some(&[7; 100])), (1, b"oak", Some(&[8; 100]))])
            .expect("commits");
    }
    drop(component);
    let component = reopen(bztree::<Killed>(), &path);
    assert_eq!(dump(&component).len(), 2);
    let usage = component.log().pool().usage().expect("a slot");
    assert!(usage.active_bytes < 1 << 20, "{usage:?}");
}

/// After a power cut the log has each transaction that was synced, and none that failed.
#[test]
fn a_log_with_files_has_what_was_committed() {
    let directory = Simulated::new();
    let options = LogOptions::default();
    let log_directory = Arc::new(directory.clone());
    let pool = Pool::anonymous(&CreateOptions { max_bytes: 1 << 28, ..Default::default() });
    let component = open_over(bztree::<Killed>(), pool.expect("memory"), |pool| {
        Log::create(pool, layout::LOG_OFF, log_directory, (42, 0), options)
    });
    let first = commit(&component, &[(0, b"a", Some(b"1"))]).expect("commits");
    let mut failed = component.begin();
    failed.get(0, b"a").expect("reads");
    failed.put(0, b"a", b"2").expect("fits");
    failed.put(1, b"b", b"2").expect("fits");
    let second = commit(&component, &[(0, b"a", None), (1, b"c", Some(b"3"))]).expect("commits");
    failed.commit().expect_err("what it has read has changed");
    component.sync(second).expect("synced");
    commit(&component, &[(1, b"d", Some(b"4"))]).expect("commits");

    let image = directory.cut_power(Kept::Nothing, &mut Random::new(1));
    let mut lsns = Vec::new();
    let mut note = |lsn, _: &[u8]| {
        lsns.push(lsn);
        Ok(())
    };
    pando_log::recover(&image, 0, &mut note).expect("reads");
    assert_eq!(lsns, [first, second]);
}
