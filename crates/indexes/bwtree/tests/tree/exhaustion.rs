//! A full pool (class 10): writes are refused and change nothing; removes succeed, and make room.
//!
//! A remove from a Bw-tree may need a block, for a delta or for the page that consolidates it. So
//! pools of several sizes are filled until they take no more. Then records are removed in several
//! orders: repeatedly in one leaf, or once in each leaf. If a tree cannot promise that each remove
//! succeeds (`write.rs`), enough removes succeed to make room for the others.

use std::path::Path;

use pando_bwtree::Options;
use pando_index::random::Random;
use pando_index::{Error, RangeIndex};
use pando_pmem::Process;
use pando_tree::testing::{in_four_threads, is_full};

use crate::common::watchdog::{seed, within_bounds};
use crate::common::{Fixture, Records, check, dump, folder_and_pool, key, small, small_plain};

/// Smallest pool; the others have a chunk more each.
const LEAST_BYTES: u64 = 1 << 20;
const CHUNK_BYTES: u64 = 64 << 10;

/// The shape of the records of one fill.
#[derive(Clone, Copy, Debug)]
struct Shape {
    options: Options,
    /// Bytes of a key, at least eight.
    key_bytes: usize,
    value_bytes: usize,
}

const fn shape(options: Options, key_bytes: usize, value_bytes: usize) -> Shape {
    Shape { options, key_bytes, value_bytes }
}

impl Shape {
    fn key(self, number: u64) -> Vec<u8> {
        let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        [key(scattered), vec![b'k'; self.key_bytes - 8]].concat()
    }
}

/// Inserts records until forty were refused.
fn fill(fixture: &Fixture<Process>, records: &mut Records, shape: Shape) {
    let (mut refused, mut number) = (0, 0);
    while refused < 40 {
        let (key, value) = (shape.key(number), vec![number as u8; shape.value_bytes]);
        number += 1;
        match fixture.index.insert(&key, &value) {
            Ok(()) => drop(records.insert(key, value)),
            Err(Error::KeyExists) => assert!(records.contains_key(&key)),
            Err(error) => {
                assert!(is_full(&error), "{error}");
                refused += 1;
            }
        }
        assert!(number < 1_000_000, "the pool never fills");
    }
}

fn verify(fixture: &Fixture<Process>, records: &Records) {
    check(fixture);
    assert!(dump(&fixture.index) == *records, "the records differ");
}

/// The order in which the keys of a full tree are removed, and the number of records of a leaf.
type InOrder = fn(&[Vec<u8>]) -> Vec<Vec<u8>>;

/// Ascending; descending; and so that each leaf has one remove before any has a second.
const ORDERS: [InOrder; 3] = [
    |keys| keys.to_vec(),
    |keys| keys.iter().rev().cloned().collect(),
    |keys| {
        let stride = keys.len().div_ceil(7).max(1);
        let each = |first| keys.iter().skip(first).step_by(stride);
        (0..stride).flat_map(each).cloned().collect()
    },
];

fn fill_and_empty(path: &Path, max_bytes: u64, shape: Shape, order: InOrder, always: bool) {
    let fixture = Fixture::<Process>::create(path, max_bytes, shape.options);
    let mut records = Records::new();
    fill(&fixture, &mut records, shape);
    verify(&fixture, &records);
    drop(fixture);
    let fixture = Fixture::<Process>::reopen(path);
    let mut keys = order(&records.keys().cloned().collect::<Vec<_>>());
    while !keys.is_empty() {
        let mut refused = Vec::new();
        for key in &keys {
            match fixture.index.remove(key) {
                Ok(is_removed) => assert!(is_removed),
                Err(error) => {
                    assert!(is_full(&error) && !always, "{max_bytes} bytes, {shape:?}: {error}");
                    refused.push(key.clone());
                }
            }
            let is_there = fixture.index.get(key).expect("reads").is_some();
            assert_eq!(is_there, refused.last() == Some(key));
        }
        check(&fixture);
        // The removes that succeeded make room for the others.
        assert!(refused.len() < keys.len(), "{max_bytes} bytes, {shape:?}: all are refused");
        keys = refused;
    }
    verify(&fixture, &Records::new());
    let mut again = Records::new();
    fill(&fixture, &mut again, shape);
    assert!(again.len() > records.len() / 2, "{} and again {}", records.len(), again.len());
    verify(&fixture, &again);
}

fn fill_and_empty_pools(shape: Shape, always: bool) {
    for chunks in [0, 1, 5, 12] {
        for order in ORDERS {
            let (_folder, path) = folder_and_pool();
            fill_and_empty(&path, LEAST_BYTES + chunks * CHUNK_BYTES, shape, order, always);
        }
    }
}

fn takes_removes(shapes: [Shape; 2]) {
    shapes.into_iter().for_each(|shape| fill_and_empty_pools(shape, true));
}

pando_index::tests! {
    fn a_full_pool_of_small_records_takes_removes =>
        takes_removes([shape(Options::default(), 8, 8), shape(small(), 8, 8)]);
    fn a_full_pool_of_values_in_blocks_takes_removes =>
        takes_removes([shape(small(), 8, 40), shape(Options::default(), 8, 40_000)]);
    fn a_full_pool_of_long_keys_takes_removes =>
        takes_removes([shape(Options::default(), 300, 8), shape(small(), 300, 8)]);
}

/// If deltas are blocks, a base that takes the inserts of its chain is larger than the one before.
#[test]
fn a_full_pool_with_deltas_in_blocks_is_emptied_in_the_end() {
    for options in [Options::plain(), small_plain()] {
        fill_and_empty_pools(shape(options, 8, 8), false);
        fill_and_empty_pools(shape(options, 8, 40), false);
        fill_and_empty_pools(shape(options, 300, 8), false);
    }
}

/// Pages that are larger than the blocks of the reserve.
#[test]
fn a_full_pool_of_large_pages_is_emptied_in_the_end() {
    let large = Options { leaf_bytes: 32_768, inner_bytes: 32_768, ..Options::default() };
    fill_and_empty_pools(shape(large, 8, 8), false);
    fill_and_empty_pools(shape(large, 300, 300), false);
    fill_and_empty_pools(shape(Options::default(), 32 * 1024, 8), false);
}

/// Four threads in a pool that is always full; each key has one owner, which knows whether the key
/// is present.
#[test]
fn threads_in_a_full_pool_lose_nothing() {
    let seed = seed("threads in a full pool");
    for round in 0..12 {
        let (_folder, path) = folder_and_pool();
        let options = [Options::default(), small()][round as usize % 2];
        let shape = shape(options, 8, [8, 40][round as usize / 2 % 2]);
        within_bounds(&format!("PANDO_SEED={seed}, round {round}"), move || {
            let fixture = Fixture::<Process>::create(&path, LEAST_BYTES, shape.options);
            let mut records = Records::new();
            fill(&fixture, &mut records, shape);
            let work = |thread: u64, mut part: Records| {
                let keys: Vec<_> = part.keys().cloned().collect();
                let mut random = Random::new(seed ^ round << 8 ^ thread);
                for turn in 0..1_500 {
                    let key = random.pick(&keys).clone();
                    let value = vec![turn as u8; shape.value_bytes];
                    let done = match random.one_in(3) {
                        true => fixture.index.remove(&key).map(|removed| {
                            assert_eq!(removed, part.remove(&key).is_some());
                        }),
                        false => fixture.index.upsert(&key, &value).map(|_| {
                            part.insert(key, value);
                        }),
                    };
                    // Another thread may have taken the room that a remove gave back.
                    done.unwrap_or_else(|error| assert!(is_full(&error), "{error}"));
                }
                part
            };
            let left = in_four_threads(&records, work);
            verify(&fixture, &left);
            let mut keys: Vec<_> = left.keys().collect();
            for _ in 0..2 {
                keys.retain(|key| fixture.index.remove(key).is_err());
            }
            assert!(keys.is_empty(), "a remove is refused again and again");
            verify(&fixture, &Records::new());
        });
    }
}
