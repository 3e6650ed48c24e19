//! Deletes in place: in a leaf whose slots are all claimed, in a pool without room for another
//! leaf.
//!
//! An operation on the same key that paused after its claim of a slot must not settle after the
//! delete, which saw the key without it.

use std::sync::Arc;

use crate::common::scenario::{Answer, Op, inline, pointed, short};
use crate::common::watchdog::within_bounds;
use crate::common::{Fixture, check, dump, in_arena, power_cut, small_nodes, take_all};
use pando_bztree::Options;
use pando_index::{Error, RangeIndex};
use pando_pmem::testing::{CutShort, Paused, written_back};
use pando_pmem::{CreateOptions, Domain, Pool};

/// Like `Adr`: with dirty bits.
type WithWriteBack = CutShort<true>;

/// A thread pauses in `act` before its write `writes`; another fills the leaf of `act`'s key, and
/// deletes the key. Returns whether the first thread had finished before.
fn delete_under<D: Domain>(act: &Op, writes: u64) -> bool {
    let label = format!("{act:?}, paused before write {writes}");
    let create = CreateOptions { max_bytes: 4 << 20, ..CreateOptions::default() };
    let pool = Pool::anonymous(&create).expect("memory");
    let fixture = Arc::new(Fixture::<D>::of(pool, small_nodes()));
    for (key, value) in [(short(1), inline(1)), (short(2), inline(2)), (short(3), pointed(3))] {
        fixture.index.insert(&key, &value).expect("there is room");
    }
    let (its, op) = (fixture.clone(), act.clone());
    let victim = Paused::start(writes, move || op.try_run(&its.index));
    let done = victim.is_done();
    let guard = fixture.pool.pin().expect("a slot");
    let taken = take_all(&guard);
    let refused = (0..100).find_map(|_| fixture.index.update(&short(2), &inline(4)).err());
    assert!(matches!(refused, Some(Error::Storage(_))), "{label}: {refused:?}");
    let is_there = fixture.index.remove(act.key()).expect("a remove in a full pool");
    assert!(is_there, "{label}");
    assert_eq!(fixture.index.get(act.key()).expect("a get"), None, "{label}");
    drop(taken);
    drop(guard);
    let answer = victim.resume().expect("there is room again");
    assert!(matches!(answer, Answer::Done | Answer::Missing), "{label}: {answer:?}");
    let left = dump(&fixture.index);
    assert!(!left.contains_key(act.key()), "{label}: the key came back");
    assert_eq!(left.len(), 2, "{label}");
    check(&fixture);
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

/// An update behind another thread's slot has a PMwCAS of two words. If another thread let it fail,
/// and deleted its key in place, recovery must not find its references on the medium and take them
/// for a success.
#[test]
fn an_update_that_was_let_fail_does_not_come_back_after_a_power_cut() {
    const POOL_BYTES: u64 = 4 << 20;
    let key = |number: u64| number.to_be_bytes();
    let mut undone = 0;
    for writes in 0.. {
        let (arena, fixture) = in_arena::<WithWriteBack>(POOL_BYTES);
        for number in 1..=5 {
            fixture.index.insert(&key(number), &key(100 + number)).expect("there is room");
        }
        // After the writes of a thread's first use of the pool, whose number a get shows.
        let get_is_done_after = |&writes: &u64| {
            let its = fixture.clone();
            let get = Paused::start(writes, move || its.index.get(&key(1)).is_ok());
            let is_done = get.is_done();
            assert!(get.resume(), "a get");
            is_done
        };
        let first_use = (0..).find(get_is_done_after).unwrap_or_default();
        let update = |writes, value: u64| {
            let its = fixture.clone();
            Paused::start(first_use + writes, move || {
                let _ = its.index.get(&key(1));
                its.index.update(&key(1), &key(value)).is_ok()
            })
        };
        // It has pinned and claimed its slot, and no more.
        let first = update(2, 7);
        assert!(!first.is_done(), "it pauses");
        let second = update(writes, 9);
        if second.is_done() {
            assert!(writes > 10, "the second update met the first");
            first.resume();
            break;
        }
        let guard = fixture.pool.pin().expect("a slot");
        let taken = take_all(&guard);
        let before = arena.read(0, POOL_BYTES as usize);
        let (removed, lines) = written_back(|| {
            let refused = (0..200).find_map(|_| fixture.index.update(&key(2), &key(4)).err());
            assert!(matches!(refused, Some(Error::Storage(_))), "{refused:?}");
            fixture.index.remove(&key(1)).expect("a remove in a full pool")
        });
        let is_gone = fixture.index.get(&key(1)).expect("a get").is_none();
        assert!(removed && is_gone, "before write {writes}");
        let cut = power_cut(&arena, &before, &lines);
        let recovered =
            Fixture::<WithWriteBack>::of(Pool::open_in(&cut).expect("opens"), Options::default());
        let found = recovered.index.get(&key(1)).expect("a get");
        assert_eq!(found, None, "before write {writes}: the update came back behind the delete");
        check(&recovered);
        undone += u64::from(recovered.index.catalog.recovered().rolled_back > 0);
        drop(taken);
        drop(guard);
        first.resume();
        second.resume();
    }
    assert!(undone > 0, "some cut fell into the second update's operation");
}
