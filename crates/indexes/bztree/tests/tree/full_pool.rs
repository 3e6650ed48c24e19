//! Deletes in a full pool make room: leaves without records are merged, and leaves with more room
//! than their records need are made smaller before a write is refused.

use std::path::Path;

use pando_tree::maps::Tree;

use crate::common::watchdog::seed;
use crate::common::{Fixture, NAME, check, folder_and_pool, small_nodes};
use pando_bztree::{BzTree, BzTrees, Options};
use pando_index::random::Random;
use pando_index::{Error, RangeIndex};
use pando_pmem::Process;
use pando_pmem::testing::refusal::{Resource, refuse};

/// The first number whose key is behind those of all smaller numbers.
const IN_ORDER: u64 = 1 << 40;

/// The key of `number`: scattered for small numbers, ascending for larger ones.
fn key(number: u64) -> [u8; 8] {
    if number >= IN_ORDER {
        return number.to_be_bytes();
    }
    (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// Whether the record was inserted; panics if it was refused for another reason than a full pool.
fn inserted(tree: &BzTree<Process>, number: u64, value: &[u8]) -> bool {
    match tree.insert(&key(number), value) {
        Ok(()) => true,
        Err(Error::Storage(cause)) if cause.to_string().starts_with("the pool is full") => false,
        Err(error) => panic!("record {number}: {error}"),
    }
}

/// Inserts records from `number` on, until the pool is full; returns the first number that was
/// refused.
fn fill(tree: &BzTree<Process>, number: u64, value: &[u8]) -> u64 {
    (number..).find(|&number| !inserted(tree, number, value)).expect("a full pool")
}

fn leaves(tree: &BzTree<Process>) -> u64 {
    tree.audit().expect("audits").stat.leaves
}

/// Fills a pool, overwrites some records, removes two thirds, and fills it again. Returns the
/// numbers of the records.
fn fill_twice(fixture: &Fixture<Process>, from: u64) -> Vec<u64> {
    let tree = &fixture.index;
    let first = fill(tree, from, &[1; 300]);
    for number in (from..first).step_by(17) {
        // Refused, if the pool is full.
        let _ = tree.update(&key(number), &[2; 300]);
    }
    for number in (from..first).filter(|number| number % 3 > 0) {
        assert!(tree.remove(&key(number)).expect("removes are not refused"));
    }
    let last = fill(tree, first, &[3; 300]);
    (from..last).filter(|&number| number >= first || number % 3 == 0).collect()
}

/// A pool that was full and is now empty has room for new maps and records, and the map can be
/// dropped.
fn expect_room(path: &Path, fixture: Fixture<Process>, is_reopened: bool) {
    let fixture = if is_reopened {
        drop(fixture);
        Fixture::reopen(path)
    } else {
        fixture
    };
    check(&fixture);
    fixture.index.insert(b"key", &[4; 500]).expect("room for a record");
    let catalog = &fixture.index.catalog;
    let other = catalog
        .find_or_create_index::<BzTrees>("other", Options::default())
        .expect("room for a map");
    other.insert(b"key", &[5; 500]).expect("room for a record");
    for name in [NAME, "other"] {
        fixture.drop_map(name);
    }
    assert_eq!(fixture.pool.used_bytes(), 0);
}

#[test]
fn a_tree_that_is_emptied_in_a_full_pool_keeps_no_leaves() {
    for (is_reopened, from) in [(false, 0), (true, 0), (false, IN_ORDER), (true, IN_ORDER)] {
        let (_folder, path) = folder_and_pool();
        let fixture = Fixture::<Process>::create(&path, 8 << 20, Options::default());
        for number in fill_twice(&fixture, from) {
            assert!(fixture.index.remove(&key(number)).expect("removes are not refused"));
        }
        assert_eq!(leaves(&fixture.index), 1, "keys from {from:#x} on");
        expect_room(&path, fixture, is_reopened);
    }
}

/// What one shape of records has occupied is room for any other, so that no leaf stays of a kind
/// that cannot take them.
#[test]
fn an_emptied_tree_has_room_for_records_of_every_shape() {
    let shapes: [&[u8]; 4] = [&[1; 8], &[2; 300], &[3; 8], &[4; 60]];
    let filled = |fixture: &Fixture<Process>, value| {
        let count = fill(&fixture.index, 0, value);
        for number in 0..count {
            assert!(fixture.index.remove(&key(number)).expect("removes are not refused"));
        }
        check(fixture);
        count
    };
    let create = || {
        let (folder, path) = folder_and_pool();
        (folder, Fixture::<Process>::create(&path, 2 << 20, Options::default()))
    };
    let (_folder, fixture) = create();
    for value in shapes.iter().chain(&shapes[..2]) {
        let count = filled(&fixture, value);
        let (_folder, new) = create();
        let at_first = filled(&new, value);
        let bytes = value.len();
        assert!(count * 10 >= at_first * 9, "{bytes} bytes: {count} records, {at_first} at first");
    }
}

/// A tree that was emptied in a full pool takes a record of any shape.
#[test]
fn an_emptied_leaf_has_room_for_a_record_of_every_shape() {
    for value in [&[2; 8][..], &[2; 9], &[2; 100]] {
        let fixture = Fixture::<Process>::anonymous(Options::default());
        let tree = &fixture.index;
        for number in 0..2_000 {
            tree.insert(&key(number), &[1; 8]).expect("room");
        }
        for number in 0..2_000 {
            assert!(tree.remove(&key(number)).expect("removes are not refused"));
        }
        assert_eq!(leaves(tree), 1);
        let insert = || tree.insert(&key(7), value);
        refuse(Resource::Block, 0, u64::MAX, insert).0.expect("the leaf has room");
        check(&fixture);
    }
}

/// While a thread is stopped no room becomes free, so no leaf is merged. The merge happens when a
/// write needs the room, also through another handle.
#[test]
fn leaves_whose_merge_found_no_room_are_merged_when_a_write_is_refused() {
    for is_reopened in [false, true] {
        let (_folder, path) = folder_and_pool();
        let fixture = Fixture::<Process>::create(&path, 8 << 20, Options::default());
        let records = fill_twice(&fixture, 0);
        std::thread::scope(|scope| {
            let (release, released) = std::sync::mpsc::channel::<()>();
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            let pool = &fixture.pool;
            scope.spawn(move || {
                let _guard = pool.pin().expect("a slot");
                stop.send(()).expect("the other waits");
                let _ = released.recv();
            });
            stopped.recv().expect("it is pinned");
            for &number in &records {
                assert!(fixture.index.remove(&key(number)).expect("removes are not refused"));
            }
            drop(release);
        });
        assert!(leaves(&fixture.index) > 1000, "{} leaves", leaves(&fixture.index));
        let fixture = if is_reopened {
            drop(fixture);
            Fixture::reopen(&path)
        } else {
            fixture
        };
        let count = records.len() as u64;
        let fitted = fill(&fixture.index, 1 << 32, &[6; 300]) - (1 << 32);
        assert!(fitted > count / 10 * 8, "{fitted} records fit where {count} were");
        for number in (0..fitted).map(|number| number + (1 << 32)) {
            assert!(fixture.index.remove(&key(number)).expect("removes are not refused"));
        }
        expect_room(&path, fixture, false);
    }
}

/// Random deletes leave many leaves, none of which is small. Merges of neighbours free blocks. (Of
/// leaves with two records each, few have a neighbour with which they fit into one block.)
#[test]
fn what_is_deleted_at_random_is_room_for_others() {
    let usual = Options::default();
    let in_blocks = Options { inline_bytes: 512, ..usual };
    let cases = [(300, usual, 50), (1000, usual, 20), (1100, usual, 50), (1000, in_blocks, 50)];
    for (value_bytes, options, percent) in cases {
        let (_folder, path) = folder_and_pool();
        let fixture = Fixture::<Process>::create(&path, 16 << 20, options);
        let tree = &fixture.index;
        let full = fill(tree, 0, &vec![1; value_bytes]);
        let deleted = full * 132 / 1000;
        let mut random = Random::new(seed("what is deleted"));
        let mut left = deleted;
        while left > 0 {
            left -= u64::from(tree.remove(&key(random.below(full))).expect("removes"));
        }
        let before = leaves(tree);
        let refused = 20;
        let count = (full..).scan(0, |refusals, number| {
            *refusals += u64::from(!inserted(tree, number, &vec![2; value_bytes]));
            (*refusals < refused).then_some(())
        });
        let fitted = count.count() as u64 - (refused - 1);
        println!(
            "{value_bytes} bytes: {full} records, {deleted} deleted, {fitted} fit; {before} leaves, then {}",
            leaves(tree)
        );
        assert!(
            fitted * 100 >= deleted * percent,
            "{value_bytes} bytes: {fitted} of {deleted} fit"
        );
        check(&fixture);
    }
}

/// Any request may be refused while records are removed: the next refused write finds the room that
/// was left.
#[test]
fn the_nth_refusal_during_removes_leaves_no_leaf_behind() {
    for count in [1, 8, u64::MAX] {
        for granted in 0.. {
            let (_folder, path) = folder_and_pool();
            let fixture = Fixture::<Process>::create(&path, 1 << 20, small_nodes());
            let tree = &fixture.index;
            let records = 150;
            for number in 0..records {
                tree.insert(&key(number), &[1; 40]).expect("room");
            }
            let remove =
                |number| assert!(tree.remove(&key(number)).expect("removes are not refused"));
            let removes = || (0..records).for_each(remove);
            let was_refused = refuse(Resource::Block, granted, count, removes).1;
            check(&fixture);
            let last = fill(tree, records, &[2; 100]);
            (records..last).for_each(remove);
            assert_eq!(leaves(tree), 1, "{granted} granted, then {count} refused");
            check(&fixture);
            if !was_refused {
                break;
            }
        }
    }
}
