//! A checker that is wrong (class 13): what a walk must find in a damaged list, and what it must
//! not miss in a list beside writers.

use std::sync::atomic::{AtomicBool, Ordering};

use pando_index::RangeIndex;
use pando_pmem::Process;
use pando_skiplist::{Options, SkipLists};
use pando_tree::maps::Tree;

use crate::common::watchdog::within_bounds;
use crate::common::{Planted, check};

/// A list whose nodes are one line, or end within their first: the keys, in order, and the nodes'
/// offsets.
fn with_keys(keys: &[&[u8]]) -> (Planted<Process>, Vec<u64>) {
    let planted = Planted::<Process, SkipLists>::anonymous(Options::default());
    for key in keys {
        planted.index.insert(key, b"value").expect("inserts");
    }
    let audit = planted.index.audit().expect("audits");
    assert!(audit.is_consistent());
    // The first is the head; the others are in order.
    let nodes = audit.blocks[1..].iter().map(|block| block.off).collect();
    (planted, nodes)
}

fn salvaged(planted: &Planted<Process>) -> (Vec<Vec<u8>>, bool) {
    let mut keys = Vec::new();
    let mut visit = |key: &[u8], _: &[u8]| keys.push(key.to_vec());
    let audit = planted.index.walk(&mut visit).expect("walks");
    (keys, audit.is_consistent())
}

/// Bits that no value has, in the word of a small value: the walk finds them, and no write waits
/// for them.
#[test]
fn a_damaged_small_word_is_seen_and_refused() {
    for bit in [62, 63] {
        within_bounds("a write of a damaged value", move || {
            let (planted, nodes) = with_keys(&[b"ash", b"oak"]);
            let word = planted.pool.word(nodes[0] + 24);
            let undamaged = word.load(Ordering::Relaxed);
            word.store(undamaged | 1 << bit, Ordering::Relaxed);
            let (keys, is_consistent) = salvaged(&planted);
            assert!(!is_consistent, "bit {bit}");
            assert_eq!(keys, [b"oak"]);
            let refused = planted.index.update(b"ash", b"new").expect_err("refused").to_string();
            assert!(refused.contains("damaged"), "{refused}");
            assert!(planted.index.upsert(b"ash", b"new").is_err());
            planted.index.update(b"oak", b"new").expect("writes");
            // It can be removed.
            word.store(undamaged, Ordering::Relaxed);
            check(&planted);
        });
    }
}

/// A node's slice and its key must belong to one key. The head has neither.
#[test]
fn a_slice_that_is_not_its_keys_is_seen() {
    let (planted, nodes) = with_keys(&[b"abc", b"quaking aspen"]);
    let head = planted.pool.word(planted.index.audit().expect("audits").blocks[0].off + 40);
    // In the slice of a key of three bytes, the padding; in the lengths, that of the key, 13 to 5.
    for (word, damage) in [
        (planted.pool.word(nodes[0] + 40), 1),
        (planted.pool.word(nodes[1] + 32), 8 << 8),
        (head, 1 << 63),
    ] {
        let undamaged = word.load(Ordering::Relaxed);
        word.store(undamaged ^ damage, Ordering::Relaxed);
        let audit = planted.index.audit().expect("audits");
        assert!(!audit.is_consistent(), "{undamaged:#x} ^ {damage:#x}");
        word.store(undamaged, Ordering::Relaxed);
    }
    check(&planted);
}

/// The records salvaged from a damaged list are in order and appear once, also if they are found
/// late.
#[test]
fn records_are_salvaged_in_order() {
    let names: Vec<Vec<u8>> = (0..64_u64).map(|number| number.to_be_bytes().to_vec()).collect();
    let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let (planted, nodes) = with_keys(&keys);
    let mut found_late = 0;
    for at in 0..nodes.len() - 8 {
        // Past the next six nodes; those that are on higher levels are found there.
        let word = planted.pool.word(nodes[at]);
        let undamaged = word.load(Ordering::Relaxed);
        let offset = (1 << 48) - 1;
        word.store(undamaged & !offset | nodes[at + 7], Ordering::Relaxed);
        let (keys, is_consistent) = salvaged(&planted);
        word.store(undamaged, Ordering::Relaxed);
        assert!(!is_consistent && keys.len() >= nodes.len() - 6, "{at}: {}", keys.len());
        assert!(keys.is_sorted_by(|left, right| left < right), "{at}: keys do not ascend");
        found_late += keys.len() - (nodes.len() - 6);
    }
    assert!(found_late > 0);
    check(&planted);
}

/// A walk beside writers is not exact, but it finds the permanent records behind removed nodes.
#[test]
fn a_walk_beside_removes_goes_on_behind_them() {
    const STAYING: u64 = 2000;
    let planted = Planted::<Process, SkipLists>::anonymous(Options::default());
    for number in 0..STAYING {
        planted.index.insert(&(number * 8).to_be_bytes(), b"stays").expect("inserts");
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 1..3 {
            let (planted, is_over) = (&planted, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    for number in 0..STAYING {
                        let key = (number * 8 + thread).to_be_bytes();
                        planted.index.upsert(&key, b"goes").expect("inserts");
                        planted.index.remove(&key).expect("removes");
                    }
                }
            });
        }
        for walk in 0..300 {
            let records = planted.index.audit().expect("audits").stat.records;
            if records < STAYING {
                is_over.store(true, Ordering::Relaxed);
                panic!("walk {walk} found {records} records of {STAYING} that stay");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    check(&planted);
}
