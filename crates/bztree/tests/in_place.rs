//! Deletes in place: in a leaf all of whose slots are claimed, in a pool without room for another.
//!
//! An operation on the same key that paused when it had claimed its slot must not settle after the
//! delete, which saw the key without it.

mod common;

use std::sync::Arc;

use common::scenario::{Answer, Op, inline, pointed, short};
use common::watchdog::within_bounds;
use common::{check, dump, plant, small_nodes, take_all};
use pando_index::{Error, RangeIndex};
use pando_pmem::testing::{CutShort, Paused};
use pando_pmem::{CreateOptions, Domain, Pool};

/// As `Adr`: with dirty bits.
type WithWriteBack = CutShort<true>;

/// A thread pauses in `act` before its write `writes`; another fills the leaf of `act`'s key, and
/// deletes the key. Whether the first was done before.
fn delete_under<D: Domain>(act: &Op, writes: u64) -> bool {
    let label = format!("{act:?}, paused before write {writes}");
    let create = CreateOptions { max_bytes: 4 << 20, ..CreateOptions::default() };
    let pool = Pool::anonymous(&create).expect("memory");
    let planted = Arc::new(plant::<D>(pool, small_nodes()));
    for (key, value) in [(short(1), inline(1)), (short(2), inline(2)), (short(3), pointed(3))] {
        planted.tree.insert(&key, &value).expect("there is room");
    }
    let (its, op) = (planted.clone(), act.clone());
    let victim = Paused::start(writes, move || op.try_run(&its.tree));
    let done = victim.is_done();
    let guard = planted.pool.pin().expect("a slot");
    let taken = take_all(&guard);
    let refused = (0..100).find_map(|_| planted.tree.update(&short(2), &inline(4)).err());
    assert!(matches!(refused, Some(Error::Storage(_))), "{label}: {refused:?}");
    let is_there = planted.tree.remove(act.key()).expect("a remove in a full pool");
    assert!(is_there, "{label}");
    assert_eq!(planted.tree.get(act.key()).expect("a get"), None, "{label}");
    drop(taken);
    drop(guard);
    let answer = victim.resume().expect("there is room again");
    assert!(matches!(answer, Answer::Done | Answer::Missing), "{label}: {answer:?}");
    let left = dump(&planted.tree);
    assert!(!left.contains_key(act.key()), "{label}: the key came back");
    assert_eq!(left.len(), 2, "{label}");
    check(&planted);
    done
}

#[test]
fn an_update_in_progress_does_not_bring_back_what_is_deleted_in_place() {
    let updates = [
        Op::Update(short(1), inline(9)),
        Op::Exchange(short(1), inline(1), inline(9)),
        Op::Update(short(1), pointed(9)),
        Op::Update(short(3), inline(9)),
    ];
    for update in updates {
        within_bounds("a delete in place", move || {
            let count = |run: fn(&Op, u64) -> bool| {
                (0..).find(|&writes| run(&update, writes)).unwrap_or_default()
            };
            assert!(count(delete_under::<CutShort>) > 1);
            assert!(count(delete_under::<WithWriteBack>) > 1);
        });
    }
}
