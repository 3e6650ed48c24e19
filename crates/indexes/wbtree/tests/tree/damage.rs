//! Trap: a checker that is wrong (class 13). What a walk must find in a damaged tree. Damage that
//! it does not find must do no harm: scans in both directions agree, and gets find the records of
//! scans. An operation that meets damage ends.

use std::sync::atomic::Ordering;

use pando_index::{KeyRange, RangeIndex};
use pando_pmem::Process;
use pando_pmem::testing::watchdog::within_bounds;
use pando_tree::maps::{Audit, Tree};
use pando_wbtree::{NodeKind, Options, WbTrees};

use crate::common::{Fixture, NAME, check, slotted, small_fixed, small_nodes, small_trees};

const STATE: u64 = 0;
const HEADER: u64 = 16;
const LEFT: u64 = 24;

/// A tree of few records, with two levels and more.
fn with_records(options: Options, records: u64) -> Fixture<Process> {
    let fixture = Fixture::<Process>::anonymous(options);
    for number in 0..records {
        let key = (number * 29 % records * 2).to_be_bytes();
        fixture.index.insert(&key, &[7; 8]).expect("an insert");
    }
    check(&fixture);
    fixture
}

fn load(fixture: &Fixture<Process>, off: u64) -> u64 {
    fixture.pool.word(off).load(Ordering::Acquire)
}

fn store(fixture: &Fixture<Process>, off: u64, word: u64) {
    fixture.pool.word(off).store(word, Ordering::Release);
}

fn walk(fixture: &Fixture<Process>) -> Audit {
    fixture.index.audit().expect("walks")
}

/// The nodes of a level, by their headers.
fn nodes(fixture: &Fixture<Process>, level: u64) -> Vec<u64> {
    let is_one = |off: &u64| {
        let header = load(fixture, off + HEADER);
        header >> 56 == 0x79 && header >> 48 & 0xFF == level
    };
    walk(fixture).blocks.iter().map(|block| block.off).filter(is_one).collect()
}

/// A cell has the child of a cell to its right: the fences still lead to all nodes, but some keys
/// lead to a node that begins above them.
#[test]
fn two_cells_that_lead_to_one_child_are_seen() {
    for options in [small_fixed(NodeKind::SlotBitmap), small_nodes(NodeKind::SlotBitmap)] {
        let fixture = with_records(options, 60);
        let cell_words = if options.is_variable() { 3 } else { 2 };
        let parents = nodes(&fixture, 1);
        // The live cells of all of them, by their children's words.
        let mut links = Vec::new();
        for parent in parents {
            let live = load(&fixture, parent + STATE) & ((1 << 38) - 1);
            let cells = (0..38).filter(|cell| live >> cell & 1 != 0);
            links.extend(cells.map(|cell| parent + 64 + (cell + 1) * cell_words * 8 - 8));
        }
        assert!(links.len() > 8, "{}", links.len());
        for &link in &links {
            let undamaged = load(&fixture, link);
            for &other in links.iter().filter(|&&other| other != link) {
                store(&fixture, link, load(&fixture, other));
                assert!(!walk(&fixture).is_consistent(), "{options:?}: {link:#x} as {other:#x}");
            }
            store(&fixture, link, undamaged);
        }
        check(&fixture);
    }
}

/// A map of an earlier build is refused at opening, with the reason, and not reported as damaged.
#[test]
fn a_map_of_an_earlier_layout_is_refused() {
    let fixture = with_records(small_fixed(NodeKind::BitmapOnly), 40);
    let levels = (0..8).rev().map(|level| nodes(&fixture, level));
    let root = levels.flatten().next().expect("a root");
    let header = load(&fixture, root + HEADER);
    store(&fixture, root + HEADER, header ^ (0x78 ^ 0x79) << 56);
    let refused = fixture.index.catalog.find_index::<WbTrees>(NAME).expect_err("a refusal");
    assert!(refused.to_string().contains("of an earlier layout"), "{refused}");
    assert!(!walk(&fixture).is_consistent());
    store(&fixture, root + HEADER, header);
    assert!(fixture.index.catalog.find_index::<WbTrees>(NAME).is_ok());
    check(&fixture);
}

/// A pointer to the left that leads to a wrong leaf.
#[test]
fn a_pointer_to_another_leaf_is_seen() {
    for leaf in [NodeKind::SlotBitmap, NodeKind::BitmapOnly, NodeKind::SlotOnly] {
        let fixture = with_records(small_fixed(leaf), 40);
        let leaves = nodes(&fixture, 0);
        for &off in leaves.iter().chain(&nodes(&fixture, 1)) {
            let undamaged = load(&fixture, off + LEFT);
            for other in leaves.iter().copied().chain([0]).filter(|&other| other != undamaged) {
                store(&fixture, off + LEFT, other);
                assert!(!walk(&fixture).is_consistent(), "{leaf:?}: {off:#x} to {other:#x}");
                // Only zero is accepted: the fence of any other leaf shows that the pointer is
                // wrong.
                assert!(other == 0 || is_usable(&fixture), "{leaf:?}: {off:#x} to {other:#x}");
            }
            store(&fixture, off + LEFT, undamaged);
        }
        check(&fixture);
    }
}

/// A pointer to the left that leads to no leaf, or is no valid word: scans descend from the root
/// instead, and splits and merges of leaves beside it end, possibly with an error.
#[test]
fn a_pointer_that_leads_nowhere_ends_in_no_panic_and_no_loop() {
    for leaf in [NodeKind::SlotBitmap, NodeKind::BitmapOnly, NodeKind::SlotOnly] {
        within_bounds("operations beside a damaged pointer", move || {
            let damages: [fn(u64) -> u64; 9] = [
                |undamaged| undamaged ^ 1 << 62,
                |undamaged| undamaged ^ 1 << 63,
                |undamaged| undamaged ^ 7 << 61,
                |undamaged| undamaged + 8,
                |undamaged| undamaged + 32,
                |undamaged| undamaged + 64,
                |_| 64,
                |_| 1 << 40,
                |_| (1 << 45) - 64,
            ];
            for damage in damages {
                let fixture = with_records(small_fixed(leaf), 40);
                let at = nodes(&fixture, 0)[2] + LEFT;
                store(&fixture, at, damage(load(&fixture, at)));
                let found = load(&fixture, at);
                assert!(is_usable(&fixture), "{leaf:?}: {found:#x}");
                for number in 0..80u64 {
                    // A refusal must name this damage.
                    let _ = fixture.index.insert(&(2 * number + 1).to_be_bytes(), &[8; 8]);
                }
                for number in 0..160u64 {
                    let _ = fixture.index.remove(&number.to_be_bytes());
                }
            }
        });
    }
}

/// A state that is dead, or no valid word: each operation at the node ends with an answer or an
/// error that names it, also when it is repeated; so does the drop of the map.
#[test]
fn a_state_that_says_dead_ends_in_no_panic_and_no_loop() {
    for options in small_trees() {
        within_bounds("operations that come to a damaged state", move || {
            let height = (0..8).take_while(|&level| !nodes(&sixty(options), level).is_empty());
            let height = height.count() as u64;
            assert!(height > 2, "{height}");
            for level in 0..height {
                for bit in [60, 62, 63] {
                    end_beside_a_damaged_state(options, level, bit);
                }
            }
        });
    }
}

fn sixty(options: Options) -> Fixture<Process> {
    with_records(options, 60)
}

fn end_beside_a_damaged_state(options: Options, level: u64, bit: u32) {
    use pando_index::Order::{Ascending, Descending};
    let count = nodes(&sixty(options), level).len();
    for place in [0, count / 2, count - 1] {
        let fixture = sixty(options);
        let tree = &fixture.index;
        let off = nodes(&fixture, level)[place];
        store(&fixture, off + STATE, load(&fixture, off + STATE) ^ 1 << bit);
        let mut errors = 0;
        let mut expect = |error: Option<pando_index::Error>| {
            if let Some(error) = error {
                let text = error.to_string();
                assert!(text.contains(&format!("{off:#x}")), "{options:?} {level} {bit}: {text}");
                errors += 1;
            }
        };
        for _ in 0..2 {
            for order in [Ascending, Descending] {
                let mut cursor = tree.scan(KeyRange::all(), order).expect("a scan");
                expect(loop {
                    match cursor.next() {
                        Ok(Some(_)) => {}
                        Ok(None) => break None,
                        Err(error) => break Some(error),
                    }
                });
            }
            expect(tree.len().err());
        }
        for number in 0..120u64 {
            expect(tree.get(&number.to_be_bytes()).err());
        }
        for number in 0..60u64 {
            expect(tree.insert(&(2 * number + 1).to_be_bytes(), &[8; 8]).err());
        }
        for number in 0..120u64 {
            expect(tree.remove(&number.to_be_bytes()).err());
        }
        assert!(errors > 0, "{options:?}: bit {bit} of {off:#x}, of level {level}");
        let guard = fixture.pool.pin().expect("a pin");
        let entry = tree.catalog.maps(&guard).remove(0);
        drop(guard);
        // Damaged nodes are skipped.
        tree.catalog.drop_index::<WbTrees>(&entry).expect("is dropped");
    }
}

/// Checks that scans agree, and that gets find their records.
fn is_usable(fixture: &Fixture<Process>) -> bool {
    use pando_index::Order::{Ascending, Descending};
    let keys = |order| {
        let mut keys = Vec::new();
        let mut cursor = fixture.index.scan(KeyRange::all(), order).expect("a scan");
        while let Some((key, _)) = cursor.next().expect("a record") {
            keys.push(key.to_vec());
        }
        keys
    };
    let (ascending, mut descending) = (keys(Ascending), keys(Descending));
    descending.reverse();
    ascending == descending
        && ascending.is_sorted_by(|left, right| left < right)
        && ascending.iter().all(|key| fixture.index.get(key).expect("an answer").is_some())
}

/// The words of all blocks of the tree, except those that no walk reads: claims, and bytes behind a
/// key and a value.
fn words(fixture: &Fixture<Process>, node_bytes: u64) -> Vec<u64> {
    let audit = walk(fixture);
    let is_node = |off: u64| load(fixture, off + HEADER) >> 56 == 0x79;
    let words = audit.blocks.iter().flat_map(|block| {
        let bytes = if is_node(block.off) { node_bytes } else { 24 };
        (block.off..block.off + bytes).step_by(8)
    });
    words.collect()
}

/// Each bit of each word of a tree, flipped.
#[test]
fn each_bit_is_seen_or_harmless() {
    for options in slotted() {
        let fixture = with_records(options, 20);
        for off in words(&fixture, u64::from(options.node_lines) * 64) {
            let undamaged = load(&fixture, off);
            for bit in 0..64 {
                store(&fixture, off, undamaged ^ 1 << bit);
                let is_passed = walk(&fixture).is_consistent();
                assert!(!is_passed || is_usable(&fixture), "{options:?}: bit {bit} of {off:#x}");
            }
            store(&fixture, off, undamaged);
        }
        check(&fixture);
    }
}

/// Each word of a tree is replaced by zero and by each of its other words.
#[test]
fn each_word_of_another_is_seen_or_harmless() {
    for options in [small_fixed(NodeKind::SlotBitmap), small_nodes(NodeKind::SlotBitmap)] {
        let fixture = with_records(options, 16);
        let words = words(&fixture, u64::from(options.node_lines) * 64);
        let mut contents: Vec<u64> = words.iter().map(|&off| load(&fixture, off)).collect();
        contents.push(0);
        contents.sort_unstable();
        contents.dedup();
        for off in words {
            let undamaged = load(&fixture, off);
            for &other in &contents {
                store(&fixture, off, other);
                let is_passed = walk(&fixture).is_consistent();
                assert!(!is_passed || is_usable(&fixture), "{options:?}: {off:#x} as {other:#x}");
            }
            store(&fixture, off, undamaged);
        }
        check(&fixture);
    }
}
