//! Trap: a split races the merges of its nodes. A thread stops between the split of the root and
//! the growth above it, and meanwhile other threads reduce the whole tree to one leaf.

use pando_index::RangeIndex;
use pando_pmem::testing::{CutShort, Paused};
use pando_tree::maps::Tree;
use pando_wbtree::Options;

use crate::common::{Fixture, check, dump, small_trees};

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn filled(options: Options, records: u64) -> Fixture<CutShort> {
    let fixture = Fixture::<CutShort>::anonymous(options);
    for number in 0..records {
        fixture.index.insert(&key(number), &key(number)).expect("an insert");
    }
    fixture
}

/// The first insert, in order of keys, that gives the tree a third level.
fn brink(options: Options) -> u64 {
    let fixture = filled(options, 0);
    for number in 0.. {
        fixture.index.insert(&key(number), &key(number)).expect("an insert");
        if fixture.index.audit().expect("audits").stat.height == 3 {
            return number;
        }
    }
    unreachable!("some insert splits a root")
}

/// Before each of its writes, an insert that splits the root waits until all other records are
/// removed. So its remaining steps meet a tree of one leaf.
#[test]
fn a_root_that_came_down_meanwhile_is_not_grown_above() {
    for options in small_trees() {
        let last = brink(options);
        for writes in 0.. {
            let label = format!("{options:?}, paused before write {writes}");
            let fixture = filled(options, last);
            let tree = fixture.index.clone();
            let insert = Paused::start(writes, move || tree.insert(&key(last), &key(last)));
            let is_over = insert.is_done();
            for number in 0..last {
                assert!(fixture.index.remove(&key(number)).expect(&label), "{label}");
            }
            insert.resume().expect(&label);
            check(&fixture);
            assert_eq!(dump(&fixture.index).len(), 1, "{label}");
            assert!(fixture.index.remove(&key(last)).expect(&label), "{label}");
            for number in 0..40 {
                fixture.index.insert(&key(number), &key(number)).expect(&label);
            }
            check(&fixture);
            assert_eq!(dump(&fixture.index).len(), 40, "{label}");
            if is_over {
                break;
            }
        }
    }
}
