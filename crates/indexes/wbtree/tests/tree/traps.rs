//! Defects of other systems, each with a test that fails if the protection against it is removed.
//! `pando-crashlab` explores crashes at each step, with lost lines, and schedules.

use pando_index::random::Random;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::testing::{CutShort, kill_after};
use pando_pmem::{Adr, Process};
use pando_tree::maps::Tree;
use pando_tree::testing::find_beside_writers;
use pando_wbtree::{NodeKind, Options, RecordBytes};

use crate::common::{
    Fixture, NAME, Records, abandon, check, dump, folder, folder_and_pool, slotted, small_fixed,
    small_nodes,
};

const KINDS: [NodeKind; 3] = [NodeKind::SlotBitmap, NodeKind::BitmapOnly, NodeKind::SlotOnly];
const MAX_BYTES: u64 = 8 << 20;

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Traps: published before durable; a slot array that is invalid after a crash and used anyway; a
/// crash inside splits, merges and copies; leaked blocks. An operation is killed before each of its
/// writes, slot words included. The tree is as before or after it, and works.
#[test]
fn a_kill_at_every_write_leaves_all_or_nothing() {
    for options in slotted().into_iter().chain([small_nodes(NodeKind::BitmapOnly)]) {
        let folder = folder();
        let (undamaged, copy) = (folder.path().join("undamaged"), folder.path().join("copy"));
        let fixture = Fixture::<CutShort>::create(&undamaged, MAX_BYTES, options);
        let value = |tag: u64| tag.to_le_bytes();
        for number in 0..40 {
            fixture.index.insert(&key(number * 29 % 40 * 2), &value(number)).unwrap();
        }
        for number in 16..22 {
            fixture.index.remove(&key(number * 2)).unwrap();
        }
        let before = dump(&fixture.index);
        abandon(fixture);
        // Inserts at one place fill a leaf and split it; removes empty one and merge it.
        let acts: [(&str, u64); 3] = [("insert", 1), ("remove", 22 * 2), ("upsert", 2 * 23)];
        for (act, first) in acts {
            let run = |tree: &pando_wbtree::WbTree<CutShort>| {
                for step in 0..6 {
                    match act {
                        "insert" => tree.insert(&key(first + 2 * step), &value(99)).unwrap(),
                        "upsert" => drop(tree.upsert(&key(first), &value(step)).unwrap()),
                        _ => drop(tree.remove(&key(first + 2 * step)).unwrap()),
                    }
                }
            };
            let model = |steps: u64| {
                let mut model: Records = before.clone();
                for step in 0..steps {
                    match act {
                        "insert" => drop(model.insert(key(first + 2 * step), value(99).to_vec())),
                        "upsert" => drop(model.insert(key(first), value(step).to_vec())),
                        _ => drop(model.remove(&key(first + 2 * step))),
                    }
                }
                model
            };
            for writes in 0.. {
                std::fs::copy(&undamaged, &copy).unwrap();
                let fixture = Fixture::<CutShort>::reopen(&copy);
                let is_over = kill_after(writes, || run(&fixture.index)).is_some();
                abandon(fixture);
                let fixture = Fixture::<CutShort>::reopen(&copy);
                check(&fixture);
                let found = dump(&fixture.index);
                let label = format!("{options:?}, {act}, killed before write {writes}");
                assert!((0..=6).any(|steps| model(steps) == found), "{label}");
                for number in 0..30 {
                    let number = number * 2 + 1;
                    fixture.index.upsert(&key(number), &value(number)).expect(&label);
                    assert_eq!(
                        fixture.index.get(&key(number)).unwrap(),
                        Some(value(number).to_vec())
                    );
                }
                check(&fixture);
                if is_over {
                    break;
                }
            }
        }
    }
}

/// Trap: a redo log that is replayed over a later change. The tree has no log of its own, so a pool
/// that is opened again and again does not change.
#[test]
fn opening_again_changes_nothing() {
    let (_folder, path) = folder_and_pool();
    let fixture = Fixture::<Adr>::create(&path, MAX_BYTES, small_nodes(NodeKind::SlotBitmap));
    for number in 0..100 {
        fixture.index.insert(&key(number), b"first").unwrap();
        fixture.index.upsert(&key(number / 2), b"second").unwrap();
    }
    let expected = dump(&fixture.index);
    abandon(fixture);
    for _ in 0..3 {
        let fixture = Fixture::<Adr>::reopen(&path);
        assert!(dump(&fixture.index) == expected);
        check(&fixture);
        abandon(fixture);
    }
}

/// Trap: an overflow of a fixed field. Versions are used up repeatedly, in leaves, in inner nodes
/// and in the root, and nodes are copied.
#[test]
fn versions_run_out_and_nodes_are_copied() {
    for leaf in KINDS {
        let options = Options { node_versions: 8, ..small_fixed(leaf) };
        let fixture = Fixture::<Adr>::anonymous(options);
        let tree = &fixture.index;
        let value = |step: u64| step.to_le_bytes();
        for number in 0..60 {
            tree.insert(&key(number), &value(0)).unwrap();
        }
        for step in 0..300 {
            for number in [0, 31, 59] {
                tree.update(&key(number), &value(step)).unwrap();
            }
            assert_eq!(tree.get(&key(31)).unwrap(), Some(value(step).to_vec()));
        }
        for round in 0..20 {
            for number in 20..40 {
                assert!(tree.remove(&key(number)).unwrap(), "round {round}");
            }
            for number in 20..40 {
                tree.insert(&key(number), &value(round)).unwrap();
            }
            check(&fixture);
        }
        assert_eq!(dump(tree).len(), 60);
    }
}

/// Trap: scans that skip or repeat a key during splits and merges, in either direction.
#[test]
fn scans_find_what_stays_among_splits_and_merges() {
    for leaf in KINDS {
        let fixture = Fixture::<Adr>::anonymous(small_fixed(leaf));
        let tree = &fixture.index;
        const STEP: u64 = 8;
        let stays: Records = (0..60).map(|number| (key(number * STEP), vec![7; 8])).collect();
        find_beside_writers(tree, &stays, 1, |_| {
            for round in 0..30 {
                for number in (0..60 * STEP).filter(|number| !number.is_multiple_of(STEP)) {
                    match round % 2 {
                        0 => tree.insert(&key(number), &[8; 8]).unwrap(),
                        _ => assert!(tree.remove(&key(number)).unwrap()),
                    }
                }
            }
        });
        check(&fixture);
    }
}

/// Trap: exhaustion. A full pool refuses inserts and takes deletes, which free their room even if
/// the versions of the nodes are used up. Then it has room again. A map can also be dropped in it.
#[test]
fn a_full_pool_refuses_and_takes_deletes() {
    let kinds = [small_fixed(NodeKind::SlotBitmap), small_nodes(NodeKind::SlotBitmap)];
    let last = kinds.map(|options| Options { node_versions: 30_000, ..options });
    let few = kinds.map(|options| Options { node_versions: 8, node_lines: 0, ..options });
    for options in [last, few].concat() {
        let (_folder, path) = folder_and_pool();
        let fixture = Fixture::<Adr>::create(&path, 2 << 20, options);
        let tree = &fixture.index;
        let leaves = || tree.audit().unwrap().stat.leaves;
        let mut random = Random::new(3);
        let mut there = Vec::new();
        let mut fill = |there: &mut Vec<u64>| loop {
            let number = random.draw();
            match tree.insert(&key(number), &[1; 8]) {
                Ok(()) => there.push(number),
                Err(error) => break error,
            }
        };
        let refused = fill(&mut there);
        assert!(refused.to_string().contains("full"), "{refused}");
        check(&fixture);
        assert_eq!(tree.len().unwrap(), there.len() as u64);
        let full = leaves();
        for number in &there {
            assert!(tree.remove(&key(*number)).unwrap());
        }
        assert!(tree.is_empty().unwrap());
        assert!(leaves() * 4 < full, "{options:?}: {} leaves of {full} are left", leaves());
        for number in there.iter().take(there.len() / 2) {
            tree.insert(&key(*number), &[2; 8]).unwrap();
        }
        check(&fixture);
        fill(&mut there);
        fixture.drop_map(NAME);
        check(&fixture);
    }
}

/// The same without any free block, and with nodes that have used up their versions: merges take no
/// room.
#[test]
fn merges_take_no_room() {
    for records in [RecordBytes::Fixed, RecordBytes::Variable] {
        let options = Options { records, node_versions: 8, ..Options::default() };
        let fixture = Fixture::<Adr>::anonymous(options);
        let tree = &fixture.index;
        let leaves = || tree.audit().unwrap().stat.leaves;
        for number in 0..1000 {
            tree.insert(&key(number * 389 % 1000), &[1; 8]).unwrap();
        }
        let full = leaves();
        refuse(Resource::Block, 0, u64::MAX, || {
            for number in 0..1000 {
                assert!(tree.remove(&key(number)).unwrap());
            }
        });
        assert!(leaves() * 4 < full, "{options:?}: {} leaves of {full} are left", leaves());
        check(&fixture);
    }
}

/// Trap: keys and values at the ends of their fields; keys with a common beginning, and with zeros
/// like those that pad slices.
#[test]
fn keys_and_values_at_the_ends_of_their_fields() {
    let fixture = Fixture::<Process>::anonymous(small_nodes(NodeKind::SlotBitmap));
    let tree = &fixture.index;
    let limits = tree.limits();
    let mut keys = vec![Vec::new(), vec![0], vec![0; 7], vec![0; 8], vec![0; 9], vec![0xFF; 8]];
    keys.extend((0..20).map(|length| [b"prefix".as_slice(), &vec![0; length]].concat()));
    keys.push(vec![0xFF; limits.max_key_bytes]);
    for key in &keys {
        tree.insert(key, key).unwrap();
    }
    keys.sort();
    let mut expected = keys.iter();
    let mut cursor = tree.scan(KeyRange::all(), Order::Ascending).unwrap();
    while let Some((key, value)) = cursor.next().unwrap() {
        assert_eq!((Some(&key.to_vec()), key), (expected.next(), value));
    }
    assert!(expected.next().is_none());
    assert!(tree.insert(&vec![0; limits.max_key_bytes + 1], b"").is_err());
    check(&fixture);
}
