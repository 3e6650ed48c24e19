//! Operations of other threads between two accesses of an operation to the pool, in both designs of
//! deltas: records change in every way; pages are consolidated, split and merged, up to the root.

use pando_bwtree::{BwTrees, Options};
use pando_index::conformance::between::{
    self as between_acts, Act, One, at_random, each, inserts, removes,
};
use pando_tree::testing::{one_in, read_after_a_kill, rewritten_under_scans};

use crate::common::watchdog::within_bounds;
use crate::common::{Fixture, small, small_plain};

/// Longer than a value inside a page.
const LONG_BYTES: usize = 40;

fn one(options: Options, there: &[Act], act: Act, others: &[Act], access: u64) -> bool {
    one_in::<BwTrees>(Fixture::anonymous(options), there, act, others, access)
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

pando_index::tests! {
    /// The value of a key, present or absent, changes, goes and comes back.
    fn a_record_that_is_changed =>
        of_both_designs(|one| between_acts::a_record_that_is_changed(one, 2, LONG_BYTES));
    /// Pages of several levels, between whose records others are inserted: during an operation,
    /// pages there are split, emptied and merged.
    fn pages_that_are_split_and_merged_meanwhile =>
        of_both_designs(|one| between_acts::nodes_that_are_split_and_merged(one, 11, LONG_BYTES));
    /// An operation that itself splits, consolidates or merges; during it, other operations do the
    /// same.
    fn structure_changes_amid_structure_changes =>
        of_both_designs(|one| {
            between_acts::structure_changes_amid_structure_changes(one, 7, 9..15);
        });
    /// Runs of inserts, removes and changes before any access of any act.
    fn runs_of_writes_at_random => of_both_designs(|one| at_random(one, 1_000, LONG_BYTES));
}

/// A leaf is merged; meanwhile its parent gets an entry, because another leaf under it is split.
#[test]
fn a_leaf_is_merged_while_its_parent_gets_an_entry() {
    of_both_designs(|one| {
        // Leaves of six records each under few inner pages.
        for leaf in [1_u64, 3, 5] {
            let first = leaf * 6;
            // One of these removes leaves so few records that the leaf is merged.
            for gone in 1..5 {
                let there = [&inserts(0..48)[..], &removes(first..first + gone)].concat();
                let acts = [Act::Remove((first + gone) * 10)];
                let splits =
                    |from: u64| (1..9).map(move |step| Act::Insert(from * 10 + step, step));
                let left: Vec<Act> = splits(first.saturating_sub(12)).collect();
                let right: Vec<Act> = splits(first + 14).collect();
                each(one, 1, &there, &acts, &[&left, &right]);
            }
        }
    });
}

/// A leaf is merged while a search is on its way to it, and a split takes a PID when no other is
/// free: it must not be the one that the search has read.
#[test]
fn a_pid_that_a_search_has_read_is_not_allocated() {
    within_bounds("deltas beside their bases", || {
        // About as many pages as the anchor has PIDs, so that with one of these numbers none is
        // free.
        for records in (300..348).step_by(3) {
            let there = inserts(0..records);
            let emptied = removes(12..30);
            let splits: Vec<Act> = (1..60).map(|step| Act::Insert(2_400 + step, step)).collect();
            let others = [&emptied[..], &splits].concat();
            let one: One<'_> =
                &|there, act, others, access| one(small(), there, act, others, access);
            each(one, 1, &there, &[Act::Get(200), Act::Insert(205, 1)], &[&others]);
        }
    });
}

/// Full pages of the usual size, rewritten under scans.
#[test]
fn full_pages_rewritten_under_scans() {
    let designs =
        [("deltas beside their bases", Options::default()), ("deltas in blocks", Options::plain())];
    for (name, options) in designs {
        within_bounds(name, move || rewritten_under_scans::<BwTrees>(options));
    }
}

#[test]
fn what_was_read_after_a_kill_is_there_after_a_power_cut() {
    read_after_a_kill::<BwTrees>(small_plain(), 3);
    // With changes of the structure.
    (1..10).for_each(|records| read_after_a_kill::<BwTrees>(small(), records));
}
