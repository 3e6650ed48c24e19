//! What others do between two accesses of an operation to the pool, in both designs of deltas: records are changed in every
//! way, pages consolidated, split and merged, up to the root.

use std::sync::Arc;

use pando_bwtree::Options;
use pando_index::conformance::between::{self as between_acts, Act, One, at_random, one_between};
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
    of_both_designs(|one| between_acts::a_record_that_is_changed(one, 2, LONG_BYTES));
}

/// Pages of several levels, in whose midst records come: amid an operation pages there are split, emptied and merged.
#[test]
fn pages_that_are_split_and_merged_meanwhile() {
    of_both_designs(|one| between_acts::nodes_that_are_split_and_merged(one, 11, LONG_BYTES));
}

/// An operation that itself splits, consolidates or merges, whichever of a run does: amid it others do the like.
#[test]
fn structure_changes_amid_structure_changes() {
    of_both_designs(|one| between_acts::structure_changes_amid_structure_changes(one, 7, 9..15));
}

/// Runs of inserts, removes and changes before any access of any act.
#[test]
fn runs_of_writes_at_random() {
    of_both_designs(|one| at_random(one, 1_000, LONG_BYTES));
}
