//! A thread that stops for ever before any write of any operation or structure modification delays
//! no other thread (traps: waiting for a dead owner's reservation, a merge with a closed sibling).
//!
//! For each scenario and each n a thread runs the operation and stops before its n-th write. Two
//! other threads then do a bounded number of operations on the same key, on the same leaf, over
//! splits and merges around it, and scans in both directions. All must return, within a time that a
//! watchdog limits, and leave the untouched records as they were. Each n has a pool of its own,
//! which is leaked with the thread that holds it.

use std::sync::Arc;

use pando_tree::maps::Tree;

use crate::common::scenario::{self, Answer, Op, Scenario};
use crate::common::watchdog::within_bounds;
use crate::common::{Fixture, Records, dump};
use pando_index::{KeyRange, Order, RangeIndex};
use pando_pmem::testing::{CutShort, run_until_stopped};
use pando_pmem::{CreateOptions, Domain, Pool};

/// Neighbours that each other thread inserts and removes: enough to split the leaf and merge it.
const NEIGHBOURS: u8 = 40;

/// Like `Adr`: with dirty bits that helpers must clear.
type WithWriteBack = CutShort<true>;

fn prepared<D: Domain>(scenario: &Scenario) -> Fixture<D> {
    let create = CreateOptions { max_bytes: 64 << 20, ..CreateOptions::default() };
    let fixture = Fixture::of(Pool::anonymous(&create).expect("memory"), scenario.options);
    scenario.prepare(&fixture.index);
    fixture
}

/// Keys right behind `key`, for one of the two threads.
fn neighbours(key: &[u8], thread: u8) -> impl Iterator<Item = Vec<u8>> {
    let key = key.to_vec();
    (0..NEIGHBOURS).map(move |index| [key.as_slice(), &[index, thread]].concat())
}

/// The operations of the other threads; each does all of them.
fn meddle<D: Domain>(tree: &Fixture<D>, key: &[u8], thread: u8) {
    let tree = &tree.index;
    let value = |tag| if thread == 0 { scenario::inline(tag) } else { scenario::pointed(tag) };
    for tag in [1, 2] {
        let _ = Op::Insert(key.to_vec(), value(tag)).run(tree);
        let _ = Op::Update(key.to_vec(), value(tag ^ 0x10)).run(tree);
        let _ = Op::Exchange(key.to_vec(), value(tag ^ 0x10), value(tag)).run(tree);
        tree.get(key).expect("reads");
        let _ = Op::Remove(key.to_vec()).run(tree);
        let _ = Op::Upsert(key.to_vec(), value(tag)).run(tree);
    }
    for near in neighbours(key, thread) {
        assert_eq!(Op::Insert(near, value(3)).run(tree), Answer::Done);
    }
    for order in [Order::Ascending, Order::Descending] {
        let mut cursor = tree.scan(KeyRange::all(), order).expect("a scan");
        while cursor.next().expect("the next record").is_some() {}
    }
    for near in neighbours(key, thread) {
        assert_eq!(tree.get(&near).expect("reads"), Some(value(3)));
        assert_eq!(Op::Remove(near).run(tree), Answer::Done);
    }
    let _ = Op::Remove(key.to_vec()).run(tree);
}

/// Stops the operation before its write `writes`; returns whether it had finished before.
fn stop<D: Domain>(scenario: &Scenario, before: &Records, writes: u64) -> bool {
    let name = scenario.name;
    let tree = Arc::new(prepared::<D>(scenario));
    let victim = (tree.clone(), scenario.act.clone());
    let done = run_until_stopped(writes, move || {
        victim.1.run(&victim.0.index);
    });
    let label = format!("{name}, a thread stopped before write {writes}");
    let others: Vec<_> = (0..2)
        .map(|thread| {
            let (tree, key) = (tree.clone(), scenario.act.key().to_vec());
            std::thread::spawn(move || meddle(&tree, &key, thread))
        })
        .collect();
    let records = within_bounds(&label, move || {
        for other in others {
            other.join().expect("the others go on");
        }
        let audit = tree.index.audit().expect("audits");
        assert_eq!(audit.problems, [], "violated invariants");
        dump(&tree.index)
    });
    let untouched = |records: &Records| {
        let mut records = records.clone();
        records.remove(scenario.act.key());
        records
    };
    assert!(untouched(&records) == untouched(before), "{label}: other records changed");
    // The stopped operation took effect before the others' remove, or never: if it was helped after
    // the remove, it finds other words than it expects.
    assert!(!records.contains_key(scenario.act.key()), "{label}: a removed key came back");
    done
}

fn explore<D: Domain>(test: &str, scenarios: &[Scenario]) {
    let mut total = 0;
    for scenario in scenarios {
        let (before, ..) = scenario.expected();
        let stops = (0..).find(|&writes| stop::<D>(scenario, &before, writes)).unwrap_or_default();
        println!("{:36} {stops:5} stops", scenario.name);
        total += stops;
    }
    println!("{test}: {} scenarios, {total} stops", scenarios.len());
}

fn in_both_domains(test: &str, scenarios: &[Scenario]) {
    explore::<CutShort>(test, scenarios);
    explore::<WithWriteBack>(&format!("{test}, with write-back"), scenarios);
}

pando_index::tests! {
    fn a_thread_stopped_in_any_operation_holds_nobody_up =>
        in_both_domains("operations", &scenario::operations());
    fn a_thread_stopped_in_a_leaf_modification_holds_nobody_up =>
        in_both_domains("leaf modifications", &scenario::leaf_modifications());
    fn a_thread_stopped_in_an_inner_modification_holds_nobody_up =>
        in_both_domains("inner modifications", &scenario::inner_modifications());
}

#[test]
fn a_thread_stopped_in_a_range_leaf_holds_nobody_up() {
    let ranges = scenario::ranges();
    // Each stopped thread keeps mappings, of which a process may have 65,530. The replacement of a
    // leaf is the same in both domains.
    let (in_place, _) = ranges.split_at(10);
    explore::<CutShort>("ranges", in_place);
    explore::<WithWriteBack>("ranges, with write-back", &ranges);
}

#[test]
fn a_thread_stopped_with_giant_records_or_an_empty_leaf_holds_nobody_up() {
    let edges = scenario::edges();
    // The copy of a long key takes one write for each word; no other thread sees these.
    let seen = edges.iter().filter(|edge| !edge.name.contains("second giant"));
    let seen: Vec<_> = seen.cloned().collect();
    in_both_domains("edges", &seen);
}
