//! A thread pauses before any write of any operation or structure modification, and continues after
//! other threads have changed the tree around it. Its installation must not undo their changes
//! (BzTree: merge with a closed sibling, merge racing split; trap 7).
//!
//! For each scenario and each n a thread runs the operation and pauses before its n-th write.
//! Another thread updates and removes records of the same leaf and its neighbours, and inserts
//! between them; once with room, once in a full pool, where a closed leaf is opened again. Then the
//! first continues. The tree must have the effects of both, and no block may be leaked.

use std::sync::Arc;

use crate::common::scenario::{self, Answer, Op, Scenario};
use crate::common::watchdog::within_bounds;
use crate::common::{Fixture, Records, check, dump, take_all};
use pando_index::RangeIndex;
use pando_pmem::testing::{CutShort, Paused};
use pando_pmem::{CreateOptions, Domain, Pool};

/// Like `Adr`: with dirty bits.
type WithWriteBack = CutShort<true>;

/// Records on each side of the key that the other thread changes.
const AROUND: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Plenty,
    None,
}

fn prepared<D: Domain>(scenario: &Scenario) -> Fixture<D> {
    let create = CreateOptions { max_bytes: 1 << 20, ..CreateOptions::default() };
    let fixture = Fixture::of(Pool::anonymous(&create).expect("memory"), scenario.options);
    scenario.prepare(&fixture.index);
    fixture
}

/// The other thread's operations around `key`, in order, on the records `before`.
fn around(before: &Records, key: &[u8]) -> Vec<Op> {
    let below = before.range(..key.to_vec()).rev().take(AROUND);
    let above = before.range(key.to_vec()..).filter(|(found, _)| *found != key).take(AROUND);
    let mut ops = Vec::new();
    for (index, (found, value)) in below.chain(above).enumerate() {
        let other = if index % 2 == 0 { scenario::inline(7) } else { scenario::pointed(7) };
        ops.push(match index % 4 {
            0 | 1 => Op::Remove(found.clone()),
            2 => Op::Exchange(found.clone(), value.clone(), other.clone()),
            _ => Op::Update(found.clone(), other.clone()),
        });
        ops.push(Op::Insert([found.as_slice(), b"~"].concat(), other));
    }
    ops
}

/// Pauses the operation, on the records `before`, before its write `writes`; returns whether it had
/// finished before.
fn pause<D: Domain>(scenario: &Scenario, before: &Records, writes: u64, room: Room) -> bool {
    let label = format!("{}, paused before write {writes}, room: {room:?}", scenario.name);
    let mut records = before.clone();
    let expected = scenario.act.apply(&mut records.clone());
    let fixture = Arc::new(prepared::<D>(scenario));
    let (its, act) = (fixture.clone(), scenario.act.clone());
    let victim = Paused::start(writes, move || act.run(&its.index));
    let done = victim.is_done();
    let guard = fixture.pool.pin().expect("a slot");
    let taken = if room == Room::None { take_all(&guard) } else { Vec::new() };
    for op in around(before, scenario.act.key()) {
        match op.try_run(&fixture.index) {
            Ok(answer) => assert_eq!(answer, op.apply(&mut records), "{label}: {op:?}"),
            Err(error) => {
                assert_eq!(room, Room::None, "{label}: {op:?}: {error}");
                assert!(!matches!(op, Op::Remove(_)), "{label}: {op:?}: {error}");
            }
        }
    }
    drop(taken);
    drop(guard);
    assert_eq!(victim.resume(), expected, "{label}");
    assert_eq!(scenario.act.apply(&mut records), expected, "{label}: the keys are others'");
    assert!(dump(&fixture.index) == records, "{label}: something was undone");
    check(&fixture);
    done
}

fn explore(test: &str, scenarios: Vec<Scenario>) {
    let mut total = 0;
    for scenario in scenarios {
        total += within_bounds(scenario.name, move || {
            let (before, ..) = scenario.expected();
            let count = |paused: fn(&Scenario, &Records, u64, Room) -> bool, room| {
                (0..).find(|&writes| paused(&scenario, &before, writes, room)).unwrap_or_default()
            };
            let pauses = count(pause::<CutShort>, Room::Plenty)
                + count(pause::<CutShort>, Room::None)
                + count(pause::<WithWriteBack>, Room::Plenty);
            println!("{:36} {pauses:5} pauses", scenario.name);
            pauses
        });
    }
    println!("{test}: {total} pauses");
}

#[test]
fn a_paused_operation_undoes_nothing() {
    explore("operations", scenario::operations());
}

#[test]
fn a_paused_leaf_modification_undoes_nothing() {
    explore("leaf modifications", scenario::leaf_modifications());
}

#[test]
fn a_paused_change_of_a_range_leaf_undoes_nothing() {
    explore("ranges", scenario::ranges());
}

/// Two values of a range leaf that differ in their class alone. A thread is about to exchange the
/// first one, in a slot whose class has changed before, when another thread writes the second.
#[test]
fn a_value_that_has_come_back_with_another_class_is_not_exchanged() {
    let scenarios = scenario::ranges();
    let found = scenarios.into_iter().find(|scenario| scenario.name == "range exchange, versioned");
    let scenario = found.expect("it is there");
    let key = scenario.act.key().to_vec();
    let (before, ..) = scenario.expected();
    let mut other = before[&key].clone();
    *other.last_mut().expect("eight bytes") ^= 0x80;
    let mut missed = 0;
    for writes in 0.. {
        let fixture = Arc::new(prepared::<CutShort>(&scenario));
        let (its, act) = (fixture.clone(), scenario.act.clone());
        let victim = Paused::start(writes, move || act.run(&its.index));
        let is_done = victim.is_done();
        assert_eq!(Op::Update(key.clone(), other.clone()).run(&fixture.index), Answer::Done);
        match victim.resume() {
            Answer::Mismatch => missed += 1,
            answer => assert_eq!(answer, Answer::Done, "paused before write {writes}"),
        }
        let found = fixture.index.get(&key).expect("a read");
        assert_eq!(found.as_ref(), Some(&other), "paused before write {writes}");
        if is_done {
            break;
        }
    }
    assert!(missed > 0, "the exchange never came late");
}

#[test]
fn a_paused_inner_modification_undoes_nothing() {
    explore("inner modifications", scenario::inner_modifications());
}

/// The harness itself: a paused operation has not happened, or has happened before.
#[test]
fn a_pause_comes_before_the_end() {
    let insert = Op::Insert(b"key".into(), scenario::inline(1));
    let alone = scenario::exactly("insert", crate::common::small_nodes(), Vec::new(), insert);
    let (before, _, expected) = alone.expected();
    assert_eq!(expected, Answer::Done);
    assert!(!pause::<CutShort>(&alone, &before, 0, Room::Plenty));
    assert!(pause::<CutShort>(&alone, &before, 1_000, Room::Plenty));
}
