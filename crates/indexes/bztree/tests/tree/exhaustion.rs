//! A pool that is full (trap 10; BzTree: the abort path of a split leaking its new nodes).
//!
//! Pools of many sizes are filled with records of several shapes until they take no more. So the
//! allocation that fails is that of a leaf, of a parent or of a value, the first or the last of a
//! split. The caller gets an error, nothing is changed, and nothing leaks. Deletes work in a full
//! pool, and make room again.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_tree::testing::{in_four_threads, is_full};

use crate::common::scenario::{Answer, Op, inline, long, pointed, short};
use crate::common::watchdog::{seed, within_bounds};
use crate::common::{Fixture, Records, check, dump, folder, folder_and_pool};
use crate::common::{small_nodes, small_ranges};
use pando_bztree::{Numbers, Options};
use pando_index::RangeIndex;
use pando_index::random::Random;
use pando_pmem::Process;
use pando_pmem::testing::refusal::{Resource, refuse};

/// Smallest pool; the others have a chunk more each.
const LEAST_BYTES: u64 = 1 << 20;
const CHUNK_BYTES: u64 = 64 << 10;

/// The shape of the records of one fill.
#[derive(Clone, Copy, Debug)]
struct Shape {
    options: Options,
    key: fn(u64) -> Vec<u8>,
    value: fn(u8) -> Vec<u8>,
}

fn shapes() -> [Shape; 6] {
    let (small, default) = (small_nodes(), Options::default());
    let sorted = Options { numbers: Numbers::Sorted, ..default };
    let large: fn(u8) -> Vec<u8> = |tag| vec![tag; 40_000];
    [
        Shape { options: sorted, key: short, value: inline },
        Shape { options: small, key: long, value: inline },
        Shape { options: small, key: short, value: pointed },
        Shape { options: default, key: long, value: large },
        Shape { options: default, key: short, value: inline },
        Shape { options: small_ranges(), key: short_or_long, value: inline_or_pointed },
    ]
}

/// Where most keys and values have eight bytes, leaves change their kind all the time.
fn short_or_long(index: u64) -> Vec<u8> {
    if index.is_multiple_of(8) { long(index) } else { short(index) }
}

fn inline_or_pointed(tag: u8) -> Vec<u8> {
    if tag.is_multiple_of(16) { pointed(tag) } else { inline(tag) }
}

/// Runs `op` on tree and model; returns whether the pool had room.
fn attempt(fixture: &Fixture<Process>, records: &mut Records, op: &Op, label: &str) -> bool {
    match op.try_run(&fixture.index) {
        Ok(answer) => {
            assert_eq!(answer, op.apply(records), "{label}: {op:?}");
            true
        }
        Err(error) => {
            assert!(is_full(&error), "{label}: {error}");
            false
        }
    }
}

/// A key of the number `index`; consecutive numbers are far apart in the tree.
fn scattered(index: u64) -> u64 {
    index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
}

fn fill(fixture: &Fixture<Process>, records: &mut Records, shape: Shape, label: &str) -> u64 {
    let mut refused = 0;
    let mut index = 0;
    while refused < 40 {
        let op = Op::Insert((shape.key)(scattered(index)), (shape.value)(index as u8));
        index += 1;
        refused += u64::from(!attempt(fixture, records, &op, label));
        assert!(index < 1_000_000, "{label}: the pool never fills");
    }
    records.len() as u64
}

fn verify(fixture: &Fixture<Process>, records: &Records, label: &str) {
    check(fixture);
    assert!(dump(&fixture.index) == *records, "{label}: the records differ");
}

/// A merge of leaves takes a block for the new leaf and one for its parent. If no such blocks were
/// free, nothing could be merged, and deletes would give no room back.
fn fill_and_empty(path: &Path, max_bytes: u64, shape: Shape) {
    let label = format!("a pool of {max_bytes} bytes, {:?}", shape.options);
    let fixture = Fixture::<Process>::create(path, max_bytes, shape.options);
    let mut records = Records::new();
    let filled = fill(&fixture, &mut records, shape, &label);
    verify(&fixture, &records, &label);
    // Updates and exchanges may or may not find room; the tree must stay consistent.
    let keys: Vec<_> = records.keys().cloned().collect();
    for key in keys.iter().step_by(7) {
        attempt(&fixture, &mut records, &Op::Update(key.clone(), (shape.value)(0xAA)), &label);
        attempt(&fixture, &mut records, &Op::Upsert(key.clone(), inline(0xBB)), &label);
    }
    verify(&fixture, &records, &label);
    drop(fixture);
    // A full pool is still full, and consistent, after a restart.
    let fixture = Fixture::<Process>::reopen(path);
    verify(&fixture, &records, &label);
    // Every second record is removed; each remove must succeed.
    for key in keys.iter().step_by(2) {
        let answer = Op::Remove(key.clone()).try_run(&fixture.index);
        let answer = answer.unwrap_or_else(|error| panic!("{label}: a remove failed: {error}"));
        assert_eq!(answer, Answer::Done, "{label}");
        records.remove(key);
    }
    verify(&fixture, &records, &label);
    let left = records.len() as u64;
    let refilled = fill(&fixture, &mut records, shape, &label);
    verify(&fixture, &records, &label);
    assert!(
        refilled > left + filled / 8,
        "{label}: {filled} records, {left} left, {refilled} again"
    );
    // Everything is removed, and the pool is as good as new.
    for key in records.keys() {
        assert!(fixture.index.remove(key).expect("a remove in a full pool"), "{label}");
    }
    verify(&fixture, &Records::new(), &label);
    let mut records = Records::new();
    let again = fill(&fixture, &mut records, shape, &label);
    assert!(again > filled / 2, "{label}: {filled} records at first, {again} after emptying");
    println!("{label}: {filled}, {left} left, {refilled}; emptied: {again}");
}

fn fill_pools_of_many_sizes(shape: Shape) {
    for chunks in 0..12 {
        let folder = folder();
        let path = folder.path().join("pool");
        fill_and_empty(&path, LEAST_BYTES + chunks * CHUNK_BYTES, shape);
    }
}

pando_index::tests! {
    fn a_full_pool_refuses_inline_records_and_recovers => fill_pools_of_many_sizes(shapes()[0]);
    fn a_full_pool_refuses_long_keys_in_small_nodes_and_recovers =>
        fill_pools_of_many_sizes(shapes()[1]);
    fn a_full_pool_refuses_value_blocks_and_recovers => fill_pools_of_many_sizes(shapes()[2]);
    fn a_full_pool_refuses_large_values_and_recovers => fill_pools_of_many_sizes(shapes()[3]);
    fn a_full_pool_refuses_records_of_range_leaves_and_recovers =>
        fill_pools_of_many_sizes(shapes()[4]);
    fn a_full_pool_refuses_records_of_mixed_leaves_and_recovers =>
        fill_pools_of_many_sizes(shapes()[5]);
}

/// Four threads in a pool that is always full: each key has one owner, which knows whether the key
/// is present after each answer. Leaves are closed and opened during the writes of other threads.
#[test]
fn threads_in_a_full_pool_lose_nothing() {
    let seed = seed("threads in a full pool");
    for round in 0..66 {
        let (_folder, path) = folder_and_pool();
        let shape = shapes()[[0, 1, 2, 4, 5][(round % 5) as usize]];
        let label = format!("PANDO_SEED={seed}, round {round}");
        within_bounds(&label.clone(), move || {
            let fixture = Fixture::<Process>::create(&path, LEAST_BYTES, shape.options);
            let mut records = Records::new();
            fill(&fixture, &mut records, shape, &label);
            let refused = AtomicU64::new(0);
            let work = |thread: u64, mut part: Records| {
                let keys: Vec<_> = part.keys().cloned().collect();
                let mut random = Random::new(seed ^ round << 8 ^ thread);
                for turn in 0..1_500 {
                    let key = keys[random.below(keys.len() as u64) as usize].clone();
                    let value = (shape.value)(turn as u8);
                    let op = match random.below(4) {
                        0 => Op::Insert(key, value),
                        1 => Op::Update(key, value),
                        2 => Op::Upsert(key, value),
                        _ => Op::Remove(key),
                    };
                    let done = attempt(&fixture, &mut part, &op, &label);
                    assert!(done || !matches!(op, Op::Remove(_)), "{label}: {op:?}");
                    refused.fetch_add(u64::from(!done), Ordering::Relaxed);
                }
                part
            };
            let all = in_four_threads(&records, work);
            verify(&fixture, &all, &label);
            drop(fixture);
            verify(&Fixture::reopen(&path), &all, &label);
            let refused = refused.into_inner();
            println!("{label}: {refused} of 6000 operations refused");
        });
    }
}

/// The value's block is reserved before a slot is claimed. Otherwise each refusal would cost the
/// leaf a slot, and small records that still fit would be refused too.
#[test]
fn refused_blocks_of_values_leave_the_slots_of_a_leaf_alone() {
    let fixture = crate::common::Fixture::<Process>::anonymous(Options::default());
    fixture.index.insert(b"there", b"short").expect("room");
    refuse(Resource::Block, 0, u64::MAX, || {
        for turn in 0..100 {
            let long = vec![turn; 5_000];
            assert!(fixture.index.insert(b"new", &long).is_err());
            assert!(fixture.index.update(b"there", &long).is_err());
        }
        for small in [b"a", b"b", b"c"] {
            fixture.index.insert(small, b"fits").expect("the leaf has slots and bytes");
        }
    });
    assert_eq!(fixture.index.len().expect("counts"), 4);
    check(&fixture);
}

/// The block of a long value waits for an epoch like any other. Many such blocks must not wait for
/// as many frees as short ones may.
#[test]
fn long_values_that_were_replaced_make_room_for_the_next() {
    let folder = folder();
    let fixture =
        Fixture::<Process>::create(&folder.path().join("pool"), 16 << 20, Options::default());
    for turn in 0..200_u64 {
        let value = vec![turn as u8; 1 << 20];
        fixture.index.upsert(b"one", &value).unwrap_or_else(|error| panic!("turn {turn}: {error}"));
    }
    check(&fixture);
}
