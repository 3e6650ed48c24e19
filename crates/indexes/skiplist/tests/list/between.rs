//! Operations of other threads between two accesses of an operation to the pool: values change in
//! every way; towers are raised, lowered and removed; the last nodes are removed during a search.

use pando_index::conformance::between::{
    self as between_acts, Act, One, acts_upon, at_random, each, inserts, removes,
};
use pando_skiplist::{CasSkipLists, Options, SkipLists};
use pando_tree::maps::{IndexKind, Tree};
use pando_tree::testing::{one_in, read_after_a_kill, rewritten_under_scans};

use crate::common::watchdog::within_bounds;
use crate::common::{Fixture, small_values};

/// Longer than a value inside a node.
const LONG_BYTES: usize = 40;

/// Lists whose nodes are linked one level at a time, with the same heights each time.
fn a_level_at_a_time() -> Options {
    Options { levels_at_once: 1, ..small_values() }
}

/// In lists of both styles, within bounds: a search that goes round for ever fails.
fn of_both_styles(test: fn(One<'_>)) {
    fn of<K: IndexKind<Options = Options>>(test: fn(One<'_>)) {
        test(&|there, act, others, access| {
            one_in::<K>(Fixture::anonymous(a_level_at_a_time()), there, act, others, access)
        });
    }
    within_bounds("PMwCAS", move || of::<SkipLists>(test));
    within_bounds("CAS", move || of::<CasSkipLists>(test));
}

/// The value of a key, present or absent, changes, goes and comes back.
#[test]
fn a_record_that_is_changed() {
    of_both_styles(|one| between_acts::a_record_that_is_changed(one, 1, LONG_BYTES));
}

/// Keys of high nodes are inserted and removed; meanwhile they and their neighbours are removed and
/// inserted.
#[test]
fn towers_that_are_raised_and_lowered() {
    of_both_styles(|one| {
        let there = inserts(0..12);
        let goes = removes(0..12);
        let comes = inserts(12..20);
        for key in high_keys() {
            each(
                one,
                4,
                &there,
                &[Act::Insert(key, 1), Act::Upsert(key, 2), Act::Remove(key), Act::Get(key)],
                &[
                    &[Act::Remove(key)],
                    &[Act::Remove(key), Act::Insert(key, 3)],
                    &[Act::Insert(key, 3), Act::Remove(key)],
                    &goes,
                    &comes,
                    &[&goes[..], &inserts(0..12)].concat(),
                ],
            );
        }
    });
}

/// Between two nodes, and behind all: with heights that one operation can neither link nor remove.
fn high_keys() -> [u64; 2] {
    let is_high = |&key: &u64| {
        let fixture = Fixture::<pando_pmem::Process, SkipLists>::anonymous(a_level_at_a_time());
        pando_index::RangeIndex::insert(&fixture.index, &key.to_be_bytes(), b"").expect("inserts");
        fixture.index.audit().expect("audits").stat.height > 4
    };
    let high = |mut keys: std::ops::Range<u64>| keys.find(is_high).expect("one in sixteen is");
    [high(51..110), high(1_000..2_000)]
}

/// The last nodes are removed while searches and scans are at them, from both sides.
#[test]
fn the_end_of_the_list_comes_nearer() {
    of_both_styles(|one| {
        let there = inserts(0..16);
        for key in [75, 150, 155] {
            each(
                one,
                3,
                &there,
                &acts_upon(key, LONG_BYTES),
                &[
                    &removes((4..16).rev()),
                    &removes(4..16),
                    &removes(0..16),
                    &[&removes((0..16).rev())[..], &inserts(8..10)].concat(),
                ],
            );
        }
    });
}

/// Runs of inserts, removes and changes before any access of any act.
#[test]
fn runs_of_writes_at_random() {
    of_both_styles(|one| at_random(one, 700, LONG_BYTES));
}

/// Many records, rewritten under scans.
#[test]
fn records_rewritten_under_scans() {
    within_bounds("PMwCAS", || rewritten_under_scans::<SkipLists>(Options::default()));
    within_bounds("CAS", || rewritten_under_scans::<CasSkipLists>(Options::default()));
}

#[test]
fn what_was_read_after_a_kill_is_there_after_a_power_cut() {
    (1..5).for_each(|records| read_after_a_kill::<SkipLists>(Options::default(), records));
}
