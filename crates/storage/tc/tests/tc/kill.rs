//! A process that is killed at each write of a commit, of an undo, and of the next opening.

use std::sync::Arc;

use pando_index::RangeIndex;
use pando_pmem::testing::{folder, kill_after};
use pando_pmem::{CreateOptions, Domain, OpenPool, Pool};
use pando_tc::TransactionalMap;

use crate::common::{
    Component, Killed, Kind, Records, Write, abandon, anonymous, bztree, check, commit,
    commit_at_last, create, dump, open, reopen, with,
};
use crate::over_each_index;

over_each_index!(Killed:
    a_kill_at_each_write_leaves_all_of_a_commit_or_nothing,
    a_kill_at_each_write_of_an_opening_leaves_the_same,
    a_kill_at_each_write_of_a_write_of_one_key_leaves_it_or_nothing,
    a_write_of_one_key_that_finds_the_pool_full_leaves_nothing,
);

const BEFORE: &[Write] =
    &[(0, b"ash", Some(b"1")), (0, b"elm", Some(b"2")), (1, b"oak", Some(b"3"))];
const WRITES: &[Write] = &[
    (0, b"ash", Some(b"a longer value, which needs more room than the one before")),
    (0, b"elm", None),
    (0, b"fir", Some(b"5")),
    (1, b"oak", Some(b"")),
];
const AFTER: &[Write] = &[(0, b"elm", Some(b"7")), (0, b"fir", None), (1, b"oak", None)];

fn check_and_go_on<D: Domain>(component: &Component<D>, found: &Records) {
    check(component);
    commit_at_last(component, AFTER);
    assert_eq!(dump(component), with(found, AFTER));
}

fn a_kill_at_each_write_leaves_all_of_a_commit_or_nothing<D: Domain>(kind: Kind<D>) {
    let before = with(&Records::new(), BEFORE);
    let after = with(&before, WRITES);
    let folder = folder();
    let (mut seen, mut writes) = ([false; 2], 0);
    loop {
        let path = folder.path().join("pool");
        let component = create(kind, &path);
        commit(&component, BEFORE).expect("commits");
        let has_ended = kill_after(writes, || commit(&component, WRITES).expect("commits"));
        abandon(component);
        let component = reopen(kind, &path);
        let found = dump(&component);
        assert!(found == before || found == after, "after {writes} writes: {found:?}");
        // Acknowledged, so it is there.
        assert!(has_ended.is_none() || found == after);
        seen[usize::from(found == after)] = true;
        check_and_go_on(&component, &found);
        drop(component);
        std::fs::remove_file(&path).expect("removed");
        if has_ended.is_some() {
            break;
        }
        writes += 1;
    }
    assert_eq!(seen, [true; 2]);
}

/// The commit is left undecided in the middle of its installs; the opening that undoes it is killed
/// at each of its writes, and repeated.
fn a_kill_at_each_write_of_an_opening_leaves_the_same<D: Domain>(kind: Kind<D>) {
    let before = with(&Records::new(), BEFORE);
    let folder = folder();
    let [pool, image] = ["pool", "image"].map(|name| folder.path().join(name));
    // The last kill that leaves the commit undone leaves most to undo.
    for writes in 0.. {
        let component = create(kind, &pool);
        commit(&component, BEFORE).expect("commits");
        let has_ended = kill_after(writes, || commit(&component, WRITES)).is_some();
        abandon(component);
        let killed = std::fs::read(&pool).expect("read");
        if dump(&reopen(kind, &pool)) == before {
            std::fs::write(&image, killed).expect("written");
        }
        std::fs::remove_file(&pool).expect("removed");
        if has_ended {
            break;
        }
    }
    for writes in 0.. {
        std::fs::copy(&image, &pool).expect("copied");
        let opening = Pool::<D>::open(&pool, &OpenPool::default()).expect("opens");
        let opened = kill_after(writes, || open(kind, opening.clone()));
        let has_ended = opened.is_some();
        opening.abandon();
        drop(opened);
        let component = reopen(kind, &pool);
        let found = dump(&component);
        assert_eq!(found, before, "after {writes} writes of the opening");
        check_and_go_on(&component, &found);
        drop(component);
        std::fs::remove_file(&pool).expect("removed");
        if has_ended {
            break;
        }
    }
}

/// And so does a kill at each write of the opening that follows.
fn a_kill_at_each_write_of_a_write_of_one_key_leaves_it_or_nothing<D: Domain>(kind: Kind<D>) {
    let before = with(&Records::new(), BEFORE);
    let folder = folder();
    let [pool, image] = ["pool", "image"].map(|name| folder.path().join(name));
    let long = Some(&b"a longer value, which needs more room than the one before"[..]);
    let mut seen = [false; 2];
    for (key, value) in [(&b"ash"[..], long), (b"ash", None), (b"fir", Some(b"5"))] {
        let after = with(&before, &[(0, key, value)]);
        for writes in 0.. {
            let component = Arc::new(create(kind, &pool));
            commit(&component, BEFORE).expect("commits");
            let index = component.maps().shared(0);
            let map = TransactionalMap::new(component.clone(), 0, index).expect("a map");
            let write = || match value {
                Some(value) => map.put(key, value),
                None => map.remove(key).map(drop),
            };
            let has_ended = kill_after(writes, || write().expect("writes")).is_some();
            component.log().pool().clone().abandon();
            drop((map, component));
            std::fs::rename(&pool, &image).expect("renamed");
            for of_opening in 0.. {
                std::fs::copy(&image, &pool).expect("copied");
                let opening = Pool::<D>::open(&pool, &OpenPool::default()).expect("opens");
                let opened = kill_after(of_opening, || open(kind, opening.clone()));
                let has_opened = opened.is_some();
                opening.abandon();
                drop(opened);
                let component = reopen(kind, &pool);
                let found = dump(&component);
                assert!(found == before || found == after, "{writes}, {of_opening}: {found:?}");
                assert!(!has_ended || found == after, "{writes}, {of_opening}: {found:?}");
                seen[usize::from(found == after)] = true;
                check_and_go_on(&component, &found);
                drop(component);
                std::fs::remove_file(&pool).expect("removed");
                if has_opened {
                    break;
                }
            }
            if has_ended {
                break;
            }
        }
    }
    assert_eq!(seen, [true; 2]);
}

/// In a pool that refuses one block, or all from some point on.
fn a_write_of_one_key_that_finds_the_pool_full_leaves_nothing<D: Domain>(kind: Kind<D>) {
    use pando_pmem::testing::refusal::{Resource, refuse};

    let long = vec![7_u8; 1_000];
    for op in 0..3 {
        for (granted, refused) in (0..).flat_map(|granted| [(granted, 1), (granted, u64::MAX)]) {
            let component = Arc::new(anonymous(kind));
            commit(&component, BEFORE).expect("commits");
            let before = dump(&component);
            let index = component.maps().shared(0);
            let map = TransactionalMap::new(component.clone(), 0, index).expect("a map");
            let work = || match op {
                0 => map.put(b"ash", &long),
                1 => map.put(b"fir", &long),
                _ => map.remove(b"elm").map(drop),
            };
            let (done, is_refused) = refuse(Resource::Block, granted, refused, work);
            let found = dump(&component);
            match done {
                Ok(()) => assert_ne!(found, before, "{op}: {granted} granted"),
                Err(error) => assert_eq!(found, before, "{op}: {granted} granted, {error}"),
            }
            check_and_go_on(&component, &found);
            if !is_refused {
                break;
            }
        }
    }
}

/// In a pool that refuses a block at any point of a commit, all of it takes place or nothing.
#[test]
fn a_commit_that_finds_the_pool_full_leaves_nothing() {
    use pando_pmem::testing::refusal::{Resource, refuse};

    let long = vec![7_u8; 3_000];
    for granted in 0.. {
        let create = CreateOptions { max_bytes: 1 << 26, ..CreateOptions::default() };
        let pool = Pool::<Killed>::anonymous(&create).expect("memory");
        let component = open(bztree::<Killed>(), pool);
        commit(&component, BEFORE).expect("commits");
        let before = dump(&component);
        let work = || {
            let mut transaction = component.begin();
            transaction.put(0, b"ash", &long)?;
            transaction.put(0, b"yew", &long)?;
            transaction.remove(1, b"oak")?;
            transaction.commit()
        };
        let (done, is_refused) = refuse(Resource::Block, granted, u64::MAX, work);
        let found = dump(&component);
        match done {
            Ok(_) => assert_eq!((found.len(), found[&(0, b"yew".to_vec())].len()), (3, 3_000)),
            Err(error) => assert_eq!(found, before, "{error}"),
        }
        check_and_go_on(&component, &found);
        if !is_refused {
            break;
        }
    }
}
