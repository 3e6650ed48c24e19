//! The tree against a map that is right by construction, and from several threads. Nodes with room
//! for four records make a tree of many levels from few records.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use super::Pages;
use super::arena::OutOfNodes;
use super::node::{Node, PAGE_CAPACITY};
use super::tree::Tree;
use crate::keys::key_of;
use crate::rng::Rng;

/// A tree with small nodes.
type Small = Tree<4>;
type Model = BTreeMap<u64, u64>;

/// Asks for the records from `from` in both orders.
fn scans<const CAPACITY: usize>(
    tree: &Tree<CAPACITY>,
    from: u64,
    limit: usize,
) -> [Vec<(u64, u64)>; 2] {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    tree.ascend(from, limit as u64, |key, value| up.push((key, value)));
    tree.descend(from, limit as u64, |key, value| down.push((key, value)));
    [up, down]
}

/// What [`scans`] owes.
fn due(model: &Model, from: u64, limit: usize) -> [Vec<(u64, u64)>; 2] {
    let owned = |(&key, &value): (&u64, &u64)| (key, value);
    [
        model.range(from..).take(limit).map(owned).collect(),
        model.range(..=from).rev().take(limit).map(owned).collect(),
    ]
}

/// Checks the node and those below it: no lock, keys in order and in the node's range, levels.
/// Collects the leaves.
fn check_node<'a, const CAPACITY: usize>(
    tree: &'a Tree<CAPACITY>,
    node: &'a Node<CAPACITY>,
    (low, high): (u64, Option<u64>),
    leaves: &mut Vec<(u64, &'a Node<CAPACITY>)>,
) {
    assert!(node.version().is_some(), "a lock is left");
    assert_eq!(node.low(), low);
    let keys: Vec<_> = (0..node.count()).map(|place| node.key(place)).collect();
    assert!(keys.is_sorted_by(|before, after| before < after), "{keys:?}");
    let is_inside = |&key: &u64| low <= key && high.is_none_or(|high| key < high);
    assert!(keys.iter().all(is_inside), "{keys:?} from {low} to {high:?}");
    if node.level() == 0 {
        return;
    }
    assert_eq!(keys[0], low);
    for (place, &low) in keys.iter().enumerate() {
        let index = node.value(place);
        let child = tree.arena.get(index).unwrap();
        assert_eq!(child.level() + 1, node.level());
        if child.level() == 0 {
            leaves.push((index, child));
        }
        check_node(tree, child, (low, keys.get(place + 1).copied().or(high)), leaves);
    }
}

/// Checks that the structure is right and that the records are those of `model`.
fn check<const CAPACITY: usize>(tree: &Tree<CAPACITY>, model: &Model) {
    let mut leaves = Vec::new();
    check_node(tree, &tree.root, (0, None), &mut leaves);
    for pair in leaves.windows(2) {
        assert_eq!(pair[0].1.next(), pair[1].0, "a leaf is not linked to the next");
    }
    assert!(leaves.last().is_none_or(|(_, last)| tree.arena.get(last.next()).is_none()));
    let all =
        [(0, 0), (u64::MAX, 1)].map(|(from, order)| scans(tree, from, usize::MAX)[order].clone());
    assert!(all[0].iter().copied().eq(model.iter().map(|(&key, &value)| (key, value))));
    assert!(all[1].iter().rev().eq(&all[0]));
    for (&key, &value) in model {
        assert_eq!(tree.get(key), Some(value));
    }
}

/// Inserts `keys` and checks the tree; returns its levels above the leaves.
fn levels_after<const CAPACITY: usize>(keys: impl Iterator<Item = u64>) -> u32 {
    let (tree, mut model) = (Tree::<CAPACITY>::default(), Model::new());
    for key in keys {
        assert_eq!(tree.insert(key, !key), Ok(true));
        assert_eq!(tree.insert(key, 1), Ok(false), "a second insert");
        model.insert(key, !key);
    }
    check(&tree, &model);
    tree.root.level()
}

#[test]
fn inserts_in_each_order_split_at_several_levels() {
    let count = 3_000;
    let ends = [0, u64::MAX, u64::MAX - 1];
    assert!(levels_after::<4>((0..count).map(|number| number * 3)) >= 8);
    assert!(levels_after::<4>((0..count).rev().map(|number| u64::MAX - number * 3)) >= 8);
    assert!(levels_after::<4>((0..count).map(key_of).chain(ends)) >= 4);
    assert!(levels_after::<5>((0..count).map(key_of)) >= 4, "an odd number of records");
}

#[test]
fn nodes_of_4_kib_split_at_two_levels() {
    assert_eq!(levels_after::<PAGE_CAPACITY>(0..40_000), 2);
}

#[test]
fn operations_in_any_order_are_those_of_a_map() {
    let (mut rng, tree, mut model) = (Rng::new(1), Small::default(), Model::new());
    for turn in 0..30_000 {
        // Few keys, and the ends of their range, so that keys are met again.
        let key = match rng.below(1_000) {
            0 => 0,
            1 => u64::MAX,
            number => key_of(number),
        };
        match rng.below(5) {
            0 => {
                let is_new = !model.contains_key(&key);
                model.entry(key).or_insert(turn);
                assert_eq!(tree.insert(key, turn), Ok(is_new));
            }
            1 => {
                model.insert(key, turn);
                assert_eq!(tree.put(key, turn), Ok(()));
            }
            2 => assert_eq!(tree.remove(key), model.remove(&key).is_some()),
            3 => assert_eq!(tree.get(key), model.get(&key).copied()),
            _ => {
                let limit = rng.below(80) as usize;
                assert_eq!(scans(&tree, key, limit), due(&model, key, limit));
            }
        }
    }
    check(&tree, &model);
    for key in std::mem::take(&mut model).into_keys() {
        assert!(tree.remove(key));
    }
    check(&tree, &model);
    assert_eq!(tree.put(7, 7), Ok(()), "a leaf that was empty is used again");
    assert_eq!(scans(&tree, 7, 2), [vec![(7, 7)], vec![(7, 7)]]);
}

#[test]
fn an_insert_without_a_free_node_is_an_error_and_changes_nothing() {
    let (tree, mut model) = (Small::with_segments(1), Model::new());
    let error = loop {
        let key = key_of(model.len() as u64);
        match tree.insert(key, key) {
            Ok(is_new) => assert!(is_new && model.insert(key, key).is_none()),
            Err(error) => break error,
        }
    };
    assert_eq!(error, OutOfNodes { nodes: 256 });
    assert!(error.to_string().contains("all its 256"), "{error}");
    assert!(model.len() > 256);
    check(&tree, &model);
    let key = key_of(0);
    assert_eq!(tree.put(key, 3), Ok(()), "a present key needs no node");
    assert!(tree.remove(key));
}

/// Threads with keys of their own, which share leaves.
fn check_own_keys<const CAPACITY: usize>() {
    const THREADS: u64 = 4;
    let tree = Tree::<CAPACITY>::default();
    thread::scope(|scope| {
        for own in 0..THREADS {
            let tree = &tree;
            scope.spawn(move || {
                let (mut rng, mut model) = (Rng::new(own), Model::new());
                for turn in 0..20_000 {
                    let key = rng.below(500) * THREADS + own;
                    match rng.below(4) {
                        0 => {
                            let is_new = model.insert(key, turn).is_none();
                            if is_new {
                                assert_eq!(tree.insert(key, turn), Ok(true));
                            } else {
                                assert_eq!(tree.put(key, turn), Ok(()));
                            }
                        }
                        1 => assert_eq!(tree.remove(key), model.remove(&key).is_some()),
                        _ => assert_eq!(tree.get(key), model.get(&key).copied()),
                    }
                }
                for key in (own..500 * THREADS).step_by(THREADS as usize) {
                    assert_eq!(tree.get(key), model.get(&key).copied());
                    if !model.contains_key(&key) {
                        assert_eq!(tree.insert(key, key), Ok(true));
                    } else {
                        assert_eq!(tree.put(key, key), Ok(()));
                    }
                }
            });
        }
    });
    check(&tree, &(0..500 * THREADS).map(|key| (key, key)).collect());
}

#[test]
fn threads_with_keys_of_their_own_do_not_disturb_each_other() {
    check_own_keys::<4>();
    check_own_keys::<PAGE_CAPACITY>();
}

/// Inserts and removes of one key alternate, so that their numbers differ by the records left.
#[test]
fn threads_that_share_their_keys_agree_on_each_change() {
    const KEYS: usize = 24;
    let tree = Small::default();
    let balance = [const { AtomicI64::new(0) }; KEYS];
    thread::scope(|scope| {
        for seed in 0..4 {
            let (tree, balance) = (&tree, &balance);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for turn in 0..40_000 {
                    let number = rng.below(KEYS as u64);
                    // The upper half of a value is its key.
                    let value = (number << 32) | turn;
                    let change = match rng.below(3) {
                        0 => i64::from(tree.insert(number, value).unwrap()),
                        1 => -i64::from(tree.remove(number)),
                        _ => {
                            let found = tree.get(number);
                            assert!(found.is_none_or(|value| value >> 32 == number), "{found:?}");
                            0
                        }
                    };
                    // Relaxed: read after the threads are joined.
                    balance[number as usize].fetch_add(change, Ordering::Relaxed);
                }
            });
        }
    });
    for (number, balance) in balance.into_iter().enumerate() {
        let is_present = tree.get(number as u64).is_some();
        assert_eq!(balance.into_inner(), i64::from(is_present), "key {number}");
    }
}

/// Of three adjacent keys, the first is present throughout, the second comes and goes, and the
/// third is absent throughout.
fn check_readers_beside_writers<const CAPACITY: usize>() {
    const KEYS: u64 = 600;
    let value_of = |key: u64| key_of(key) << 16;
    let tree = Tree::<CAPACITY>::default();
    for key in (0..KEYS).step_by(3) {
        assert_eq!(tree.insert(key, value_of(key)), Ok(true));
    }
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|seed| {
                let tree = &tree;
                scope.spawn(move || {
                    let mut rng = Rng::new(seed);
                    for turn in 0..40_000 {
                        let key = rng.below(KEYS / 3) * 3;
                        tree.put(key, value_of(key) | (turn % 1_000)).unwrap();
                        let key = rng.below(KEYS / 3) * 3 + 1;
                        match turn % 2 {
                            0 => drop(tree.insert(key, value_of(key)).unwrap()),
                            _ => drop(tree.remove(key)),
                        }
                    }
                })
            })
            .collect();
        for seed in 0..2 {
            let (tree, is_done) = (&tree, &is_done);
            scope.spawn(move || {
                let mut rng = Rng::new(seed + 9);
                // Above the keys of the writers, so that it is shifted by their changes.
                let own = KEYS + 1 + 3 * seed;
                // Relaxed: only the end of the loop depends on it.
                while !is_done.load(Ordering::Relaxed) {
                    let from = rng.below(KEYS);
                    let limit = 1 + rng.below(100) as usize;
                    let [up, down] = scans(tree, from, limit);
                    assert!(up.is_sorted_by(|before, after| before.0 < after.0), "{up:?}");
                    assert!(down.is_sorted_by(|before, after| before.0 > after.0), "{down:?}");
                    for (key, value) in up.iter().chain(&down) {
                        assert!(key % 3 != 2 && value >> 16 == value_of(*key) >> 16, "{key}");
                    }
                    let end = |full: bool, last: u64, end| if full { last } else { end };
                    let to = end(up.len() == limit, up.last().map_or(0, |last| last.0), KEYS - 1)
                        .min(KEYS - 1);
                    let stable = (from..=to).filter(|key| key % 3 == 0);
                    let found = up.iter().map(|record| record.0).filter(|key| key % 3 == 0);
                    assert!(found.eq(stable), "upwards from {from}: {up:?}");
                    let to = end(down.len() == limit, down.last().map_or(0, |last| last.0), 0);
                    let stable = (to..=from).rev().filter(|key| key % 3 == 0);
                    let found = down.iter().map(|record| record.0).filter(|key| key % 3 == 0);
                    assert!(found.eq(stable), "downwards from {from}: {down:?}");
                    for _ in 0..50 {
                        let key = rng.below(KEYS / 3) * 3;
                        let value = tree.get(key).map(|value| value >> 16);
                        assert_eq!(value, Some(value_of(key) >> 16), "{key}");
                        assert_eq!(tree.insert(key, 0), Ok(false), "{key}");
                        assert_eq!(tree.insert(own, value_of(own)), Ok(true));
                        assert!(tree.remove(own), "a present record was not removed");
                    }
                }
            });
        }
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a writer panicked");
    });
}

#[test]
fn scans_and_gets_beside_writers_are_in_order_and_complete() {
    check_readers_beside_writers::<4>();
    check_readers_beside_writers::<PAGE_CAPACITY>();
}

#[test]
fn the_footprint_is_that_of_the_nodes() {
    use crate::system::System;
    let tree = Pages::default();
    assert_eq!(tree.footprint_bytes(), Some(4096));
    for key in 0..300 {
        assert_eq!(tree.insert(key, key), Ok(true));
    }
    assert_eq!(tree.footprint_bytes(), Some(3 * 4096), "the root and its two leaves");
}
