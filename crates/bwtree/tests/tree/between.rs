//! What others do between two accesses of an operation to the pool, in both designs of deltas: records are changed in every
//! way, pages consolidated, split and merged, up to the root.

use std::sync::Arc;

use pando_bwtree::Options;
use pando_index::Order;
use pando_index::conformance::between::{
    Act, OTHER_CLASS, One, acts_upon, at_random, each, inserts, one_between, removes,
};
use pando_pmem::testing::{Between, between};

use crate::common::watchdog::within_bounds;
use crate::common::{Planted, anonymous, small, small_plain};

/// Longer than a value that stays in its page.
const LONG_BYTES: usize = 40;

fn one(options: Options, there: &[Act], act: Act, others: &[Act], access: u64) -> bool {
    let planted: Planted<Between> = anonymous(options);
    let handle = Arc::new(planted.tree.clone());
    let interrupt = |access, meanwhile, work: &mut dyn FnMut()| between(access, meanwhile, work);
    one_between(planted, handle, interrupt, there, (act, others, access))
}

/// In trees of both designs, within bounds.
fn of_both_designs(test: fn(One<'_>)) {
    let designs = [("deltas beside their bases", small()), ("deltas in blocks", small_plain())];
    for (name, options) in designs {
        within_bounds(name, move || {
            test(&|there, act, others, access| one(options, there, act, others, access));
        });
    }
}

/// The value of a key, present or absent, changes, goes and comes back.
#[test]
fn a_record_that_is_changed() {
    of_both_designs(|one| {
        let there = [&inserts(1..4)[..], &[Act::UpsertLong(40, 20)]].concat();
        for key in [20, 25, 40] {
            each(
                one,
                2,
                &there,
                &acts_upon(key, LONG_BYTES),
                &[
                    &[Act::Upsert(key, 5)],
                    &[Act::Upsert(key, OTHER_CLASS), Act::Upsert(key, 2)],
                    &[Act::Remove(key)],
                    &[Act::Remove(key), Act::Insert(key, 2)],
                    &[Act::UpsertLong(key, 31), Act::Upsert(key, OTHER_CLASS)],
                    &[Act::Upsert(10, 9), Act::Upsert(30, 9), Act::Remove(key)],
                    // Enough for a consolidation.
                    &[Act::Upsert(10, 9); 8],
                ],
            );
        }
    });
}

/// Pages of several levels, in whose midst records come: amid an operation pages there are split, emptied and merged.
#[test]
fn pages_that_are_split_and_merged_meanwhile() {
    of_both_designs(|one| {
        let there = inserts(0..40);
        let splits: Vec<Act> = (1..10).map(|step| Act::Insert(200 + step, step)).collect();
        let changes: Vec<Act> = (0..40).map(|number| Act::Upsert(number * 10, 99)).collect();
        let right = removes(18..40);
        let acts = [&acts_upon(209, LONG_BYTES)[..], &acts_upon(200, LONG_BYTES)].concat();
        each(
            one,
            11,
            &there,
            &acts,
            &[
                &splits,
                &removes(0..40),
                &removes((0..40).rev()),
                &right,
                &changes,
                &[&right[..], &inserts(18..40)].concat(),
                &[&splits[..], &removes(0..40)].concat(),
            ],
        );
    });
}

/// An operation that itself splits, consolidates or merges, whichever of a run does: amid it others do the like.
#[test]
fn structure_changes_amid_structure_changes() {
    of_both_designs(|one| {
        let splits: Vec<Act> = (1..8).map(|step| Act::Insert(61 + step, step)).collect();
        let others: [&[Act]; 4] =
            [&splits, &removes(0..12), &removes((2..9).rev()), &inserts(12..24)];
        // The first of these after which a page is split, and so on, is not known here: all are tried.
        for filled in 9..15 {
            each(one, 7, &inserts(0..filled), &[Act::Insert(65, 1), Act::Upsert(60, 1)], &others);
        }
        for emptied in 2..10 {
            let there = [&inserts(0..24)[..], &removes(0..emptied)].concat();
            let acts = [Act::Remove(emptied * 10), Act::Scan(Order::Descending)];
            each(one, 7, &there, &acts, &others);
        }
    });
}

/// Runs of inserts, removes and changes before any access of any act.
#[test]
fn runs_of_writes_at_random() {
    of_both_designs(|one| at_random(one, 1_000, LONG_BYTES));
}
