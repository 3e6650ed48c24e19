//! A process that is killed at each write of a commit, of an undo, and of the next opening.

use pando_pmem::testing::{folder, kill_after};
use pando_pmem::{CreateOptions, Domain, OpenPool, Pool};

use crate::common::{
    Component, Killed, Kind, Records, Write, abandon, bztree, check, commit, commit_at_last,
    create, dump, open, reopen, with,
};
use crate::over_each_index;

over_each_index!(Killed:
    a_kill_at_each_write_leaves_all_of_a_commit_or_nothing,
    a_kill_at_each_write_of_an_opening_leaves_the_same,
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
