//! Operations of other threads between two steps of an operation: at each of its loads and writes,
//! one after the other, a second thread completes an operation. The answers and the final records
//! must be those of one order of the two.

use std::collections::BTreeMap;
use std::sync::Arc;

use pando_index::conformance::rewritten::full_leaves_that_are_rewritten;
use pando_index::random::Random;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::testing::{CutShort, Paused, between, between_each, written_back};
use pando_pmem::{Adr, Domain};
use pando_tree::testing::read_after_a_kill;
use pando_wbtree::{NodeKind, Options, WbTree, WbTrees};

use crate::common::{Fixture, check, dump, small_fixed, small_nodes};

#[derive(Clone, Copy, Debug)]
enum Act {
    Insert(u64, u64),
    Upsert(u64, u64),
    Remove(u64),
    Get(u64),
    /// Blocks that other threads have freed are used again.
    Reclaim,
}

type Model = BTreeMap<u64, u64>;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// The answer of an act: whether it succeeded, and what it found.
fn on_tree<D: Domain>(tree: &WbTree<D>, act: Act) -> (bool, Option<u64>) {
    match act {
        Act::Insert(k, v) => (tree.insert(&key(k), &v.to_le_bytes()).is_ok(), None),
        Act::Upsert(k, v) => (tree.upsert(&key(k), &v.to_le_bytes()).is_ok(), None),
        Act::Remove(k) => (tree.remove(&key(k)).expect("an answer"), None),
        Act::Reclaim => (tree.catalog.pool().reclaim().is_ok(), None),
        Act::Get(k) => (true, tree.get(&key(k)).expect("an answer").map(|value| number(&value))),
    }
}

fn on_model(model: &mut Model, act: Act) -> (bool, Option<u64>) {
    match act {
        Act::Insert(k, _) if model.contains_key(&k) => (false, None),
        Act::Insert(k, v) | Act::Upsert(k, v) => {
            model.insert(k, v);
            (true, None)
        }
        Act::Remove(k) => (model.remove(&k).is_some(), None),
        Act::Reclaim => (true, None),
        Act::Get(k) => (true, model.get(&k).copied()),
    }
}

fn records<D: Domain>(tree: &WbTree<D>) -> Model {
    let word = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    dump(tree).iter().map(|(key, value)| (word(key), number(value))).collect()
}

/// One act, with other operations before one of its accesses, in a tree with these records; returns
/// whether it has so many accesses.
fn one_between(options: Options, there: &[Act], act: Act, others: &[Act], access: u64) -> bool {
    let fixture = Fixture::<CutShort<true>>::anonymous(options);
    let mut model = Model::new();
    // By a thread that ends, so that the other threads continue with its slabs, and use the blocks
    // that they free.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for &act in there {
                assert_eq!(on_tree(&fixture.index, act), on_model(&mut model, act));
            }
        });
    });
    let (tree, others_done) = (fixture.index.clone(), others.to_vec());
    let meanwhile = move || {
        for act in others_done {
            on_tree(&tree, act);
        }
    };
    let mut answer = None;
    let is_between = between(access, meanwhile, || answer = Some(on_tree(&fixture.index, act)));
    let found = (answer.expect("an answer"), records(&fixture.index));
    let do_others = |model: &mut Model| {
        for &other in others {
            on_model(model, other);
        }
    };
    let (mut first, mut last) = (model.clone(), model);
    let as_first = on_model(&mut first, act);
    if is_between {
        do_others(&mut first);
    }
    do_others(&mut last);
    let as_last = on_model(&mut last, act);
    assert!(
        found == (as_first, first) || is_between && found == (as_last, last),
        "{options:?}: {act:?} with {others:?} before its access {access}: {found:?}"
    );
    check(&fixture);
    is_between
}

/// Each act of `acts`, with all of `others` before each of its accesses.
fn each_between(options: Options, there: &[Act], acts: &[Act], others: &[Act]) {
    for &act in acts {
        let _ = (0..).find(|&access| !one_between(options, there, act, others, access));
    }
}

/// Rounds of the random test.
const ROUNDS: usize = 3_000;

const KINDS: [NodeKind; 3] = [NodeKind::SlotBitmap, NodeKind::BitmapOnly, NodeKind::SlotOnly];

fn inserts(numbers: impl Iterator<Item = u64>) -> Vec<Act> {
    numbers.map(|number| Act::Insert(number * 10, number)).collect()
}

/// A cell that is being read is released and has another record, or another value, at the next
/// read.
#[test]
fn cells_that_are_used_again() {
    for leaf in KINDS {
        for options in [small_fixed(leaf), small_nodes(leaf)] {
            let acts = [
                Act::Get(10),
                Act::Insert(15, 7),
                Act::Insert(10, 8),
                Act::Upsert(10, 9),
                Act::Remove(10),
            ];
            // The lowest free cell is taken: that of the first record, if there are no near cells,
            // or if these are taken.
            let inserts_behind: Vec<Act> = (15..19).map(|number| Act::Insert(number, 5)).collect();
            for others in [
                &[Act::Remove(10), Act::Insert(15, 5)][..],
                &[&[Act::Remove(10)], &inserts_behind[..]].concat(),
                &[Act::Upsert(10, 5), Act::Upsert(10, 6)],
            ] {
                each_between(options, &inserts(1..4), &acts, others);
            }
        }
    }
}

/// Nodes are merged, and their blocks become nodes again, with other keys in as many cells: in a
/// state that existed before. A reader without a pin must notice.
#[test]
fn blocks_that_are_used_again() {
    for leaf in KINDS {
        let there = inserts(0..24);
        let acts =
            [Act::Get(100), Act::Get(150), Act::Get(230), Act::Upsert(150, 9), Act::Remove(200)];
        let mut others: Vec<Act> = (0..24).map(|number| Act::Remove(number * 10)).collect();
        others.push(Act::Reclaim);
        others.extend((0..24).map(|number| Act::Insert(1000 + number, number)));
        each_between(small_fixed(leaf), &there, &acts, &others);
        // The same keys, with other values.
        others.extend((0..24).map(|number| Act::Insert(number * 10, 100 + number)));
        each_between(small_fixed(leaf), &there, &acts, &others);
    }
}

/// Leaves, and the nodes above them, are split, merged and copied.
#[test]
fn nodes_that_are_split_merged_and_copied() {
    for options in [small_fixed(NodeKind::SlotBitmap), small_nodes(NodeKind::SlotOnly)] {
        let there = inserts(0..16);
        let splits: Vec<Act> = (0..5).map(|step| Act::Insert(71 + step, step)).collect();
        // All records that a split moved are removed again, so that the new node is merged.
        let empties: Vec<Act> = (6..16).map(|number| Act::Remove(number * 10)).collect();
        let acts = [Act::Get(70), Act::Insert(79, 1), Act::Remove(80)];
        for others in [&splits, &empties, &[&splits[..], &empties[..]].concat()] {
            each_between(options, &there, &acts, others);
        }
    }
}

/// Runs of inserts and removes among the smallest possible nodes, before any access of a write or a
/// read.
#[test]
fn runs_of_writes_at_random() {
    let mut random = Random::new(7);
    for round in 0..ROUNDS {
        let leaf = KINDS[round % KINDS.len()];
        let options = Options { node_versions: 40, ..small_fixed(leaf) };
        let there: Vec<Act> =
            (0..40).map(|number| Act::Insert(number * 23 % 40 * 10, number)).collect();
        let center = 10 * random.below(40);
        let near = |random: &mut Random| {
            let number = center + random.below(60);
            match random.below(4) {
                0 => Act::Remove(number / 10 * 10),
                1 => Act::Upsert(number, 8),
                2 => Act::Get(number / 10 * 10),
                _ => Act::Insert(number, 9),
            }
        };
        let act = near(&mut random);
        let mut others = Vec::new();
        for _ in 0..1 + random.below(4) {
            let from = (center + random.below(100)).saturating_sub(50);
            let run = (0..1 + random.below(12)).map(|step| (from / 10 + step) * 10);
            match random.below(2) {
                0 => others.extend(run.map(Act::Remove)),
                _ => others.extend(run.map(|number| Act::Upsert(number + 1, number))),
            }
        }
        let accesses = 1 << random.below(9);
        one_between(options, &there, act, &others, random.below(accesses));
    }
}

/// A leaf is read under one state: permanent records are found, and a record that another thread
/// moves from one key to another is not found twice.
#[test]
fn scans_of_cells_that_are_used_again() {
    for leaf in KINDS {
        for order in [Order::Ascending, Order::Descending] {
            for access in 0.. {
                let fixture = Fixture::<CutShort<true>>::anonymous(small_fixed(leaf));
                for act in inserts(1..4) {
                    on_tree(&fixture.index, act);
                }
                let tree = fixture.index.clone();
                let meanwhile = move || {
                    on_tree(&tree, Act::Remove(10));
                    on_tree(&tree, Act::Insert(25, 1));
                };
                let mut found = Vec::new();
                let is_between = between(access, meanwhile, || {
                    let mut cursor = fixture.index.scan(KeyRange::all(), order).expect("a scan");
                    while let Some((key, _)) = cursor.next().expect("a record") {
                        found.push(u64::from_be_bytes(key.try_into().expect("eight bytes")));
                    }
                });
                if order == Order::Descending {
                    found.reverse();
                }
                let is_one = found == [10, 20, 30] || is_between && found == [20, 25, 30];
                assert!(is_one, "{leaf:?}, {order:?}, before access {access}: {found:?}");
                if !is_between {
                    break;
                }
            }
        }
    }
}

/// Full leaves of the usual size, rewritten under scans.
#[test]
fn full_leaves_rewritten_under_scans() {
    for leaf in KINDS {
        let fresh = || {
            let fixture =
                Fixture::<CutShort<true>>::anonymous(Options { leaf, ..Options::default() });
            let handle: Arc<dyn RangeIndex> = Arc::new(fixture.index.clone());
            (fixture, handle)
        };
        let interrupt = |first, every, step, work: &mut dyn FnMut()| {
            between_each(first, every, step, work);
        };
        full_leaves_that_are_rewritten(&fresh, interrupt, 300);
    }
}

/// A scan finds the permanent records, once, with splits, merges and copies before any of its
/// accesses. Backwards it follows the pointers to the left, which change meanwhile.
#[test]
fn scans_among_splits_merges_and_copies() {
    // The operations of the other thread: a leaf in the middle is split, twice and three times;
    // leaves are emptied and merged; a record is written until the versions of its leaf are used
    // up.
    let splits: Vec<Act> = (1..10).map(|step| Act::Insert(150 + step, step)).collect();
    let merges: Vec<Act> = (11..24).map(|number| Act::Remove(number * 10)).collect();
    let copies: Vec<Act> = (0..30).map(|value| Act::Upsert(150, value)).collect();
    let again = inserts(11..24);
    let both = [&splits[..], &merges[..]].concat();
    let twice = [&merges[..], &again[..]].concat();
    for leaf in KINDS {
        for others in [&splits, &merges, &copies, &both, &twice] {
            for order in [Order::Ascending, Order::Descending] {
                for access in 0.. {
                    let fixture = Fixture::<CutShort<true>>::anonymous(small_fixed(leaf));
                    for act in inserts(0..32) {
                        on_tree(&fixture.index, act);
                    }
                    let (tree, others_done) = (fixture.index.clone(), others.clone());
                    let meanwhile = move || {
                        for act in others_done {
                            on_tree(&tree, act);
                        }
                    };
                    let mut found = Vec::new();
                    let is_between = between(access, meanwhile, || {
                        let mut cursor =
                            fixture.index.scan(KeyRange::all(), order).expect("a scan");
                        while let Some((key, _)) = cursor.next().expect("a record") {
                            found.push(u64::from_be_bytes(key.try_into().expect("eight bytes")));
                        }
                    });
                    if order == Order::Descending {
                        found.reverse();
                    }
                    let label = format!("{leaf:?}, {order:?}, before access {access}: {found:?}");
                    assert!(found.is_sorted_by(|left, right| left < right), "{label}");
                    let is_removed = |number: u64| {
                        others.iter().any(|act| matches!(act, Act::Remove(of) if *of == number))
                    };
                    for number in (0..320).step_by(10).filter(|&number| !is_removed(number)) {
                        assert!(found.binary_search(&number).is_ok(), "{number} is lost: {label}");
                    }
                    check(&fixture);
                    if !is_between {
                        break;
                    }
                }
            }
        }
    }
}

/// Trap: a read that is not yet durable. A reader that finds a value whose writer has not written
/// it back writes it back before it returns it.
#[test]
fn who_reads_an_undurable_state_makes_it_durable() {
    for leaf in KINDS {
        let mut is_seen = false;
        for writes in 0.. {
            let fixture = Fixture::<CutShort<true>>::anonymous(small_fixed(leaf));
            on_tree(&fixture.index, Act::Insert(10, 1));
            let tree = fixture.index.clone();
            let paused = Paused::start(writes, move || on_tree(&tree, Act::Upsert(10, 2)));
            let is_over = paused.is_done();
            let ((_, found), lines) = written_back(|| on_tree(&fixture.index, Act::Get(10)));
            if found == Some(2) && !is_seen {
                // The writer has swapped the state and will write the next word.
                is_seen = true;
                assert!(!is_over && !lines.is_empty(), "{leaf:?}, before write {writes}");
            }
            paused.resume();
            if is_over {
                break;
            }
        }
        assert!(is_seen);
    }
}

/// A split whose node got no cell in the parent, because the pool had no block, stands between two
/// nodes that must be merged.
#[test]
fn merges_pass_over_no_node_that_is_not_posted() {
    for leaf in KINDS {
        for granted in 0..12 {
            let fixture = Fixture::<Adr>::anonymous(small_nodes(leaf));
            let tree = &fixture.index;
            let mut model = Model::new();
            let mut both = |act| {
                let answer = on_tree(tree, act);
                // A refused operation has changed nothing.
                if answer.0 || !matches!(act, Act::Insert(..)) {
                    assert_eq!(answer, on_model(&mut model, act));
                }
            };
            inserts(0..24).into_iter().for_each(&mut both);
            refuse(Resource::Block, granted, u64::MAX, || {
                (0..4).for_each(|step| both(Act::Insert(101 + step, step)));
            });
            for number in (0..24).rev().step_by(2).chain((0..24).step_by(2)) {
                both(Act::Remove(number * 10));
            }
            check(&fixture);
            assert!(records(tree) == model, "{leaf:?}, {granted} blocks");
        }
    }
}

#[test]
fn what_was_read_after_a_kill_is_there_after_a_power_cut() {
    for leaf in KINDS {
        read_after_a_kill::<WbTrees>(small_nodes(leaf), 3);
    }
    // With changes of the structure.
    let small = small_nodes(NodeKind::SlotBitmap);
    (4..10).for_each(|records| read_after_a_kill::<WbTrees>(small, records));
}
