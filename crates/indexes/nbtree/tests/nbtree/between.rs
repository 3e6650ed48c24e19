//! Operations of other threads between two accesses of an operation, to the pool or to the leaf's
//! metadata and the inner nodes: leaves are split, emptied and dropped, slots claimed and deleted,
//! values changed in every way.

use pando_index::RangeIndex;
use pando_index::conformance::between::{
    self as between_acts, Act, acts_upon, at_random, each, inserts, removes,
};
use pando_nbtree::NbTrees;
use pando_pmem::testing::CutShort;
use pando_tree::testing::{one_in, rewritten_under_scans};

use crate::common::{Fixture, Options, small_nodes};

/// Whether the act has so many accesses.
fn one(there: &[Act], act: Act, others: &[Act], access: u64) -> bool {
    one_in::<NbTrees>(Fixture::anonymous(small_nodes()), there, act, others, access)
}

/// Longer than a value inside a slot.
const LONG_BYTES: usize = 30;

/// The value of a key, present or absent, changes, goes and comes back.
#[test]
fn a_slot_that_is_changed() {
    between_acts::a_record_that_is_changed(&one, 1, LONG_BYTES);
}

/// The leaf is full, so that an insert replaces it; meanwhile some or all of its records are
/// changed and deleted, and other threads replace it and its neighbours.
#[test]
fn a_leaf_that_is_replaced_meanwhile() {
    let there = inserts(0..12);
    let splits: Vec<Act> = (1..6).map(|step| Act::Insert(70 + step, step)).collect();
    let (empties, empties_right) = (removes(0..12), removes(3..12));
    let changes: Vec<Act> = (0..12).map(|number| Act::Upsert(number * 10, 99)).collect();
    let blocks: Vec<Act> = (5..9).map(|number| Act::UpsertLong(number * 10, 30)).collect();
    each(
        &one,
        1,
        &there,
        &[&acts_upon(79, LONG_BYTES)[..], &acts_upon(70, LONG_BYTES)].concat(),
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

/// The last record of a leaf is deleted, so that the leaf is dropped; meanwhile records are
/// inserted into it and into its neighbours, and these are dropped too.
#[test]
fn a_leaf_that_is_emptied_meanwhile() {
    // Each of the last leaves has one record left.
    let few = removes((10..24).filter(|number| number % 3 != 0));
    let there = [&inserts(0..24)[..], &few].concat();
    let comes = [Act::Insert(151, 1), Act::Insert(152, 2)];
    let goes = removes((0..24).rev());
    let again = [&goes[..], &inserts(0..24)].concat();
    let many: Vec<Act> = (0..12).map(|step| Act::Insert(141 + step, step)).collect();
    let acts =
        [&acts_upon(150, LONG_BYTES)[..], &[Act::Remove(120), Act::Remove(180), Act::Remove(210)]]
            .concat();
    each(&one, 1, &there, &acts, &[&comes, &goes, &again, &many]);
}

/// Records are removed from the highest on, so that the root is lowered at some of them; meanwhile
/// the remaining nodes are split.
#[test]
fn a_root_that_comes_down_meanwhile() {
    let splits: Vec<Act> = (1..9).map(|step| Act::Insert(step, step)).collect();
    for last in 3..20 {
        let there = [&inserts(0..20)[..], &removes((last + 1..20).rev())].concat();
        let in_tree = |access: &u64| {
            let fixture = Fixture::<CutShort<true>>::anonymous(small_nodes());
            let tree = fixture.index.clone();
            let is_between = one_in(fixture, &there, Act::Remove(last * 10), &splits, *access);
            // Retired nodes are freed once, and their memory is used again.
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
    at_random(&one, 3_000, LONG_BYTES);
}

/// Full leaves of the usual size, rewritten under scans.
#[test]
fn full_leaves_rewritten_under_scans() {
    rewritten_under_scans::<NbTrees>(Options::default());
}
