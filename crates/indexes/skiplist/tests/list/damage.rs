//! A checker that is wrong (class 13): what a walk must find in a damaged list, and what it must
//! not miss in a list beside writers.

use std::sync::atomic::{AtomicBool, Ordering};

use pando_index::RangeIndex;
use pando_pmem::Process;
use pando_skiplist::{Options, SkipLists};
use pando_tree::maps::Tree;

use crate::common::watchdog::within_bounds;
use crate::common::{Fixture, check};

/// A list whose nodes are one line, or end within their first: the keys, in order, and the nodes'
/// offsets.
fn with_keys(keys: &[&[u8]]) -> (Fixture<Process>, Vec<u64>) {
    let fixture = Fixture::<Process, SkipLists>::anonymous(Options::default());
    for key in keys {
        fixture.index.insert(key, b"value").expect("inserts");
    }
    let audit = fixture.index.audit().expect("audits");
    assert!(audit.is_consistent());
    // The first is the head; the others are in order.
    let nodes = audit.blocks[1..].iter().map(|block| block.off).collect();
    (fixture, nodes)
}

fn salvaged(fixture: &Fixture<Process>) -> (Vec<Vec<u8>>, bool) {
    let mut keys = Vec::new();
    let mut visit = |key: &[u8], _: &[u8]| keys.push(key.to_vec());
    let audit = fixture.index.walk(&mut visit).expect("walks");
    (keys, audit.is_consistent())
}

/// Bits that no value has, in the word of a small value: the walk finds them, and no write waits
/// for them.
#[test]
fn a_damaged_small_word_is_seen_and_refused() {
    for bit in [62, 63] {
        within_bounds("a write of a damaged value", move || {
            let (fixture, nodes) = with_keys(&[b"ash", b"oak"]);
            let word = fixture.pool.word(nodes[0] + 24);
            let undamaged = word.load(Ordering::Relaxed);
            word.store(undamaged | 1 << bit, Ordering::Relaxed);
            let (keys, is_consistent) = salvaged(&fixture);
            assert!(!is_consistent, "bit {bit}");
            assert_eq!(keys, [b"oak"]);
            let refused = fixture.index.update(b"ash", b"new").expect_err("refused").to_string();
            assert!(refused.contains("damaged"), "{refused}");
            assert!(fixture.index.upsert(b"ash", b"new").is_err());
            fixture.index.update(b"oak", b"new").expect("writes");
            // It can be removed.
            word.store(undamaged, Ordering::Relaxed);
            check(&fixture);
        });
    }
}

/// A node's slice and its key must belong to one key. The head has neither.
#[test]
fn a_slice_that_is_not_its_keys_is_seen() {
    let (fixture, nodes) = with_keys(&[b"abc", b"quaking aspen"]);
    let head = fixture.pool.word(fixture.index.audit().expect("audits").blocks[0].off + 40);
    // In the slice of a key of three bytes, the padding; in the lengths, that of the key, 13 to 5.
    for (word, damage) in [
        (fixture.pool.word(nodes[0] + 40), 1),
        (fixture.pool.word(nodes[1] + 32), 8 << 8),
        (head, 1 << 63),
    ] {
        let undamaged = word.load(Ordering::Relaxed);
        word.store(undamaged ^ damage, Ordering::Relaxed);
        let audit = fixture.index.audit().expect("audits");
        assert!(!audit.is_consistent(), "{undamaged:#x} ^ {damage:#x}");
        word.store(undamaged, Ordering::Relaxed);
    }
    check(&fixture);
}

/// The records salvaged from a damaged list are in order and appear once, also if they are found
/// late.
#[test]
fn records_are_salvaged_in_order() {
    let names: Vec<Vec<u8>> = (0..64_u64).map(|number| number.to_be_bytes().to_vec()).collect();
    let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let (fixture, nodes) = with_keys(&keys);
    let mut found_late = 0;
    for at in 0..nodes.len() - 8 {
        // Past the next six nodes; those that are on higher levels are found there.
        let word = fixture.pool.word(nodes[at]);
        let undamaged = word.load(Ordering::Relaxed);
        let offset = (1 << 48) - 1;
        word.store(undamaged & !offset | nodes[at + 7], Ordering::Relaxed);
        let (keys, is_consistent) = salvaged(&fixture);
        word.store(undamaged, Ordering::Relaxed);
        assert!(!is_consistent && keys.len() >= nodes.len() - 6, "{at}: {}", keys.len());
        assert!(keys.is_sorted_by(|left, right| left < right), "{at}: keys do not ascend");
        found_late += keys.len() - (nodes.len() - 6);
    }
    assert!(found_late > 0);
    check(&fixture);
}

/// A walk beside writers is not exact, but it finds the permanent records behind removed nodes.
#[test]
fn a_walk_beside_removes_goes_on_behind_them() {
    const STAYING: u64 = 2000;
    let fixture = Fixture::<Process, SkipLists>::anonymous(Options::default());
    for number in 0..STAYING {
        fixture.index.insert(&(number * 8).to_be_bytes(), b"stays").expect("inserts");
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 1..3 {
            let (fixture, is_over) = (&fixture, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    for number in 0..STAYING {
                        let key = (number * 8 + thread).to_be_bytes();
                        fixture.index.upsert(&key, b"goes").expect("inserts");
                        fixture.index.remove(&key).expect("removes");
                    }
                }
            });
        }
        for walk in 0..300 {
            let records = fixture.index.audit().expect("audits").stat.records;
            if records < STAYING {
                is_over.store(true, Ordering::Relaxed);
                panic!("walk {walk} found {records} records of {STAYING} that stay");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    check(&fixture);
}
