//! Operations of other threads between two accesses of an operation to the pool: records change in
//! every way; leaves are consolidated, split and merged, up to the root.

use pando_bztree::{BzTrees, Numbers, Options, ValueMode};
use pando_index::RangeIndex;
use pando_index::conformance::between::{
    self as between_acts, Act, One, acts_upon, at_random, each, inserts, removes,
};
use pando_pmem::testing::{CutShort, between};
use pando_tree::maps::Tree;
use pando_tree::testing::{one_in, rewritten_under_scans};

use crate::common::watchdog::within_bounds;
use crate::common::{Fixture, Records, dump, folder_and_pool, small_nodes};

/// Longer than a value inside a leaf.
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
    one_in::<BzTrees>(Fixture::anonymous(options), there, act, others, access)
}

/// In trees with values of both modes, and with range leaves, within bounds.
fn of_all_modes(test: fn(One<'_>)) {
    let pointers = Options { value_mode: ValueMode::Pointer, ..few_records() };
    let ranged = Options { numbers: Numbers::Ranged, leaf_bytes: 512, ..few_records() };
    for options in [few_records(), pointers, ranged] {
        within_bounds("the operations", move || {
            test(&|there, act, others, access| one(options, there, act, others, access));
        });
    }
}

pando_index::tests! {
    /// The value of a key, present or absent, changes, goes and comes back.
    fn a_record_that_is_changed =>
        of_all_modes(|one| between_acts::a_record_that_is_changed(one, 2, LONG_BYTES));
    /// Nodes of several levels, between whose records others are inserted: during an operation,
    /// nodes there are split, emptied and merged.
    fn nodes_that_are_split_and_merged_meanwhile =>
        of_all_modes(|one| between_acts::nodes_that_are_split_and_merged(one, 11, LONG_BYTES));
    /// An operation that itself splits, consolidates or merges; during it, other operations do the
    /// same.
    fn structure_changes_amid_structure_changes =>
        of_all_modes(|one| between_acts::structure_changes_amid_structure_changes(one, 7, 5..13));
    /// Runs of inserts, removes and changes before any access of any act.
    fn runs_of_writes_at_random => of_all_modes(|one| at_random(one, 1_000, LONG_BYTES));
}

/// The value of a key of a range leaf is replaced by one of another class, while the key is read or
/// changed. The only leaf of a tree has no versions, so the key moves. The first of several leaves
/// has. If their keys are far apart, versions end, and the key moves after some changes.
#[test]
fn a_class_that_changes_meanwhile() {
    let options = Options { numbers: Numbers::Ranged, leaf_bytes: 512, ..few_records() };
    within_bounds("the classes", move || {
        let one =
            |there: &[Act], act, others: &[Act], access| one(options, there, act, others, access);
        let class = |class: u64| class << 62;
        for (count, distance) in [(10, 10), (40, 10), (40, 1 << 47)] {
            let there: Vec<_> =
                (0..count).map(|number| Act::Insert(number * distance, number)).collect();
            // Keys that have free slots behind them in their lines, or not.
            for key in (0..10).step_by(3).map(|number| number * distance) {
                let changes = |classes| (1..=classes).map(|at| Act::Update(key, class(at % 4)));
                let changed: Vec<_> = changes(1).collect();
                let often: Vec<_> = changes(7).collect();
                let deleted: Vec<_> = changes(2).chain([Act::Remove(key)]).collect();
                let acts = acts_upon(key, LONG_BYTES);
                each(&one, 2, &there, &acts, &[&changed, &often, &deleted]);
            }
        }
    });
}

/// A leaf is split, so its parent is copied; meanwhile other children of the parent are
/// consolidated.
#[test]
fn a_parent_is_copied_while_its_children_are_replaced() {
    of_all_modes(|one| {
        // So often that a leaf does not have free slots for all.
        let changes = |key: u64| (0..8).map(move |turn| Act::Upsert(key * 10, turn));
        for filled in 12..24 {
            let there = inserts(0..filled);
            let acts = [Act::Insert(filled * 10, 1), Act::Insert(filled * 10 - 5, 1)];
            let left: Vec<Act> = changes(0).collect();
            let near: Vec<Act> = changes(filled / 2).chain(changes(filled - 4)).collect();
            each(one, 1, &there, &acts, &[&left, &near]);
        }
    });
}

/// A leaf is merged with a neighbour; meanwhile one record of the neighbour changes, or is
/// inserted.
#[test]
fn a_neighbour_changes_while_it_is_merged() {
    of_all_modes(|one| {
        for emptied in 1..10 {
            let there = [&inserts(0..24)[..], &removes(0..emptied)].concat();
            let behind = emptied + 1;
            for key in [behind * 10, behind * 10 + 20, behind * 10 + 50] {
                let acts = [Act::Remove(emptied * 10)];
                each(one, 1, &there, &acts, &[&[Act::Upsert(key, 99)], &[Act::Insert(key + 5, 9)]]);
            }
        }
    });
}

/// Full leaves of the usual size, rewritten under scans; values are replaced in place or not.
#[test]
fn full_leaves_rewritten_under_scans() {
    let sorted = Options { numbers: Numbers::Sorted, ..Options::default() };
    let pointers = Options { value_mode: ValueMode::Pointer, ..Options::default() };
    for options in [Options::default(), pointers, sorted] {
        within_bounds("the scans", move || rewritten_under_scans::<BzTrees>(options));
    }
}

/// A refused write makes the only leaf of a tree smaller; meanwhile a record is deleted.
#[test]
fn a_record_that_goes_while_its_leaf_is_swept() {
    within_bounds("the sweeps", || {
        let mut is_smaller = false;
        let mut access = 0;
        loop {
            let (_folder, path) = folder_and_pool();
            let fixture = Fixture::<CutShort<true>>::create(&path, 1 << 20, Options::default());
            let tree = &fixture.index;
            for number in 0..LEFT * 3 {
                tree.insert(&[number], &[number; 50]).expect("inserts");
            }
            for number in LEFT..LEFT * 3 {
                assert!(tree.remove(&[number]).expect("removes"));
            }
            fill_all_but(&fixture, 1000);
            let before = tree.audit().expect("audits").stat.leaf_bytes;
            let handle = tree.clone();
            let remove = move || assert!(handle.remove(&[1]).expect("removes are not refused"));
            let was_amid = between(access, remove, || {
                tree.insert(b"refused", &[7; 200_000]).expect_err("the pool is full");
            });
            is_smaller |= tree.audit().expect("audits").stat.leaf_bytes < before;
            let left = (0..LEFT).filter(|&number| number != 1 || !was_amid);
            let left: Records = left.map(|number| (vec![number], vec![number; 50])).collect();
            assert!(dump(tree) == left, "with a delete before access {access}");
            if !was_amid {
                break;
            }
            access += 1;
        }
        assert!(is_smaller, "the leaf was never copied");
    });
}

/// Records of the leaf that is swept.
const LEFT: u8 = 6;

/// Fills the pool by another tree, except for the room of one value of so many bytes.
fn fill_all_but(fixture: &Fixture<CutShort<true>>, bytes: usize) {
    let other = fixture
        .catalog
        .find_or_create_index::<BzTrees>("other", Options::default())
        .expect("a map");
    other.insert(b"room", &vec![1; bytes]).expect("room");
    let mut number = 0_u32;
    for value_bytes in [200_000, 60_000, 30_000, 4000, 2000, 1000, 500, 200, 100, 20] {
        while other.insert(&number.to_be_bytes(), &vec![1; value_bytes]).is_ok() {
            number += 1;
        }
    }
    assert!(other.remove(b"room").expect("removes are not refused"));
}

/// Records that come at once, behind all others of their leaf; meanwhile, others write the same
/// keys, or before or behind them.
#[test]
fn runs_of_records_amid_writes_to_their_leaf() {
    let key = u64::to_be_bytes;
    // Some leaves of records.
    let run: Vec<_> = (100..140).map(|number| (key(number * 10), [1_u8; 8])).collect();
    let others: [&[Act]; 7] = [
        &[Act::Upsert(1_050, 9)],
        &[Act::Remove(1_050), Act::Upsert(1_500, 9)],
        &[Act::Upsert(1_055, 9)],
        &[Act::Upsert(1_205, 9), Act::Remove(1_300)],
        &[Act::Upsert(995, 9)],
        &[Act::Remove(20), Act::Upsert(21, 9)],
        &[Act::Insert(1_000, 9), Act::Insert(1_110, 9)],
    ];
    within_bounds("the runs", move || {
        for (there, others) in
            [0, 3, 6, 40].into_iter().flat_map(|there| others.map(|others| (there, others)))
        {
            for access in (0..).step_by(3) {
                let fixture = Fixture::<CutShort<true>>::anonymous(few_records());
                let tree = &fixture.index;
                for act in inserts(0..there) {
                    between_acts::run(tree, act);
                }
                let handle = tree.clone();
                let meanwhile =
                    move || others.iter().for_each(|&act| between_acts::run(&handle, act));
                let was_amid = between(access, meanwhile, || {
                    let lent: Vec<_> =
                        run.iter().map(|(key, value)| (&key[..], &value[..])).collect();
                    tree.upsert_many(&lent).expect("room");
                });
                let label = format!("{there} there, {others:?} before access {access}");
                let is_others = |at: u64| {
                    let of = |act: &Act| match *act {
                        Act::Upsert(key, _) | Act::Insert(key, _) | Act::Remove(key) => key,
                        _ => unreachable!(),
                    };
                    was_amid && others.iter().any(|act| of(act) == at)
                };
                for (key, value) in &run {
                    let found = tree.get(key).expect("read");
                    let at = u64::from_be_bytes(*key);
                    assert!(
                        found.as_deref() == Some(value) || is_others(at),
                        "{label}: {at}, {found:?}"
                    );
                }
                for at in [21, 995, 1_055, 1_205, 1_500].into_iter().filter(|&at| is_others(at)) {
                    let found = tree.get(&key(at)).expect("read");
                    assert_eq!(found.as_deref(), Some(&9_u64.to_le_bytes()[..]), "{label}: {at}");
                }
                for at in (0..there).map(|number| number * 10).filter(|&at| !is_others(at)) {
                    assert!(tree.get(&key(at)).expect("read").is_some(), "{label}: {at}");
                }
                assert_eq!(tree.audit().expect("audits").problems, [], "{label}");
                if !was_amid {
                    break;
                }
            }
        }
    });
}
