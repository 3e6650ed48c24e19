//! What others do between two accesses of an operation, to the pool or to the leaf's metadata and the inner nodes:
//! leaves are split, emptied and dropped, slots claimed and deleted, values changed in every way.

use std::sync::Arc;

use pando_index::conformance::between::{Act, one_between};
use pando_index::{Order, RangeIndex};
use pando_pmem::testing::{Between, Random, between};

use crate::common::{Planted, anonymous, small_nodes};

/// Whether the act has so many accesses.
fn one(there: &[Act], act: Act, others: &[Act], access: u64) -> bool {
    one_in(anonymous::<Between>(&small_nodes()), there, act, others, access)
}

/// The same, in that tree.
fn one_in(planted: Planted<Between>, there: &[Act], act: Act, others: &[Act], access: u64) -> bool {
    let handle = Arc::new(planted.tree.clone());
    let interrupt = |access, meanwhile, work: &mut dyn FnMut()| between(access, meanwhile, work);
    one_between(planted, handle, interrupt, there, (act, others, access))
}

/// Each act with each list of others before each of its accesses.
fn each(there: &[Act], acts: &[Act], others: &[&[Act]]) {
    for others in others {
        for &act in acts {
            let _ = (0..).find(|&access| !one(there, act, others, access));
        }
    }
}

fn inserts(numbers: impl Iterator<Item = u64>) -> Vec<Act> {
    numbers.map(|number| Act::Insert(number * 10, number)).collect()
}

/// A value whose top bits are those of no other here.
const OTHER_CLASS: u64 = 1 << 63;

fn acts_upon(number: u64) -> [Act; 8] {
    [
        Act::Get(number),
        Act::Insert(number, 7),
        Act::Upsert(number, 8),
        Act::Upsert(number, OTHER_CLASS),
        Act::UpsertLong(number, 30),
        Act::Remove(number),
        Act::Scan(Order::Ascending),
        Act::Scan(Order::Descending),
    ]
}

/// The value of a key, present or absent, changes, goes and comes back.
#[test]
fn a_slot_that_is_changed() {
    let there = [&inserts(1..4)[..], &[Act::UpsertLong(40, 20)]].concat();
    for number in [20, 25, 40] {
        each(
            &there,
            &acts_upon(number),
            &[
                &[Act::Upsert(number, 5)],
                &[Act::Upsert(number, 5), Act::Upsert(number, 2)],
                &[Act::Remove(number)],
                &[Act::Remove(number), Act::Insert(number, 2)],
                &[Act::UpsertLong(number, 31), Act::Upsert(number, OTHER_CLASS)],
                &[Act::Upsert(10, 9), Act::Upsert(30, 9), Act::Remove(number)],
            ],
        );
    }
}

/// The leaf is full, so that an insert replaces it: amid that its records are changed and deleted, some or all, and it is
/// replaced by others; so are those beside it.
#[test]
fn a_leaf_that_is_replaced_meanwhile() {
    let there = inserts(0..12);
    let splits: Vec<Act> = (1..6).map(|step| Act::Insert(70 + step, step)).collect();
    let empties: Vec<Act> = (0..12).map(|number| Act::Remove(number * 10)).collect();
    let empties_right: Vec<Act> = (3..12).map(|number| Act::Remove(number * 10)).collect();
    let changes: Vec<Act> = (0..12).map(|number| Act::Upsert(number * 10, 99)).collect();
    let blocks: Vec<Act> = (5..9).map(|number| Act::UpsertLong(number * 10, 30)).collect();
    each(
        &there,
        &[&acts_upon(79)[..], &acts_upon(70)].concat(),
        &[
            &splits,
            &empties,
            &empties_right,
            &changes,
            &blocks,
            &[&empties_right[..], &inserts(3..12)].concat(),
            &[&splits[..], &empties[..]].concat(),
        ],
    );
}

/// The last record of a leaf is deleted, so that the leaf is dropped: amid that, records come into it and into its
/// neighbours, and these are dropped too.
#[test]
fn a_leaf_that_is_emptied_meanwhile() {
    let there = [
        &inserts(0..24)[..],
        // Of the last leaves one record each is left.
        &(10..24)
            .filter(|number| number % 3 != 0)
            .map(|number| Act::Remove(number * 10))
            .collect::<Vec<_>>(),
    ]
    .concat();
    let comes = [Act::Insert(151, 1), Act::Insert(152, 2)];
    let goes: Vec<Act> = (0..24).rev().map(|number| Act::Remove(number * 10)).collect();
    let again = [&goes[..], &inserts(0..24)].concat();
    let many: Vec<Act> = (0..12).map(|step| Act::Insert(141 + step, step)).collect();
    let acts =
        [&acts_upon(150)[..], &[Act::Remove(120), Act::Remove(180), Act::Remove(210)]].concat();
    each(&there, &acts, &[&comes, &goes, &again, &many]);
}

/// Records go from the highest on, so that the root comes down at some of them: amid that, what it has left is split.
#[test]
fn a_root_that_comes_down_meanwhile() {
    let splits: Vec<Act> = (1..9).map(|step| Act::Insert(step, step)).collect();
    for last in 3..20 {
        let goes = (last + 1..20).rev().map(|number| Act::Remove(number * 10));
        let there: Vec<Act> = inserts(0..20).into_iter().chain(goes).collect();
        let in_tree = |access: &u64| {
            let planted = anonymous::<Between>(&small_nodes());
            let tree = planted.tree.clone();
            let is_between = one_in(planted, &there, Act::Remove(last * 10), &splits, *access);
            // What was retired is given back, once, and used again.
            for turn in 0..4 {
                for number in 0..100u64 {
                    let key = (1_000 + number).to_be_bytes();
                    let done = match turn % 2 {
                        0 => tree.insert(&key, &key).is_ok(),
                        _ => tree.remove(&key).expect("removes"),
                    };
                    assert!(done, "{number}, turn {turn}");
                }
            }
            is_between
        };
        let _ = (0..).find(|access| !in_tree(access));
    }
}

/// Runs of inserts, removes and changes before any access of any act.
#[test]
fn runs_of_writes_at_random() {
    const ROUNDS: usize = 3_000;
    let mut random = Random::new(11);
    for _ in 0..ROUNDS {
        let there: Vec<Act> =
            (0..40).map(|number| Act::Insert(number * 23 % 40 * 10, number)).collect();
        let center = 10 * random.below(40);
        let number = center + random.below(6) * 10 + random.below(2);
        let acts = acts_upon(number);
        let act = acts[random.below(acts.len() as u64) as usize];
        let mut others = Vec::new();
        for _ in 0..1 + random.below(4) {
            let from = (center + random.below(100)).saturating_sub(50) / 10;
            let run = (0..1 + random.below(12)).map(|step| (from + step) * 10);
            match random.below(4) {
                0 => others.extend(run.map(Act::Remove)),
                1 => others.extend(run.map(|number| Act::Upsert(number + 1, number))),
                2 => others.extend(run.map(|number| Act::Upsert(number, number << 60))),
                _ => others.extend(run.map(|number| Act::UpsertLong(number, 25))),
            }
        }
        let accesses = 1 << random.below(10);
        one(&there, act, &others, random.below(accesses));
    }
}
