//! What others do between two accesses of an operation to the pool: records are changed in every way, leaves consolidated,
//! split and merged, up to the root.

use std::sync::Arc;

use pando_bztree::{Options, ValueMode};
use pando_index::Order;
use pando_index::conformance::between::{
    Act, OTHER_CLASS, One, acts_upon, at_random, each, inserts, one_between, removes,
};
use pando_pmem::testing::{Between, between};

use crate::common::watchdog::within_bounds;
use crate::common::{anonymous, small_nodes};

/// Longer than a value that stays in its leaf.
const LONG_BYTES: usize = 40;

/// Trees whose leaves have room for few records.
fn few_records() -> Options {
    Options {
        leaf_bytes: 256,
        inner_bytes: 256,
        free_bytes: 64,
        merge_bytes: 100,
        inline_bytes: 32,
        ..small_nodes()
    }
}

fn one(options: Options, there: &[Act], act: Act, others: &[Act], access: u64) -> bool {
    let planted = anonymous::<Between>(options);
    let handle = Arc::new(planted.tree.clone());
    let interrupt = |access, meanwhile, work: &mut dyn FnMut()| between(access, meanwhile, work);
    one_between(planted, handle, interrupt, there, (act, others, access))
}

/// In trees with values of both modes, within bounds.
fn of_both_modes(test: fn(One<'_>)) {
    for value_mode in [ValueMode::Inline, ValueMode::Pointer] {
        within_bounds("the operations", move || {
            let options = Options { value_mode, ..few_records() };
            test(&|there, act, others, access| one(options, there, act, others, access));
        });
    }
}

/// The value of a key, present or absent, changes, goes and comes back.
#[test]
fn a_record_that_is_changed() {
    of_both_modes(|one| {
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

/// Nodes of several levels, in whose midst records come: amid an operation nodes there are split, emptied and merged.
#[test]
fn nodes_that_are_split_and_merged_meanwhile() {
    of_both_modes(|one| {
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
    of_both_modes(|one| {
        let splits: Vec<Act> = (1..8).map(|step| Act::Insert(61 + step, step)).collect();
        let others: [&[Act]; 4] =
            [&splits, &removes(0..12), &removes((2..9).rev()), &inserts(12..24)];
        // The first of these after which a node is split, and so on, is not known here: all are tried.
        for filled in 5..13 {
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
    of_both_modes(|one| at_random(one, 1_000, LONG_BYTES));
}
