//! Traps of `traps.md` that need one or a few threads and no crash; each test's name says which.
//! Crashes are in `crash.rs` and `kill.rs`, stopped threads in `stopped.rs`, full pools in
//! `exhaustion.rs`, dead reservations in `generations.rs`.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicI64, Ordering};

use pando_tree::maps::Tree;

use crate::common::scenario::{Answer, Op, inline, long, pointed, short};
use crate::common::watchdog::{seed, within_bounds};
use crate::common::{Fixture, Records, check, dump, small_nodes, small_ranges};
use pando_bztree::Options;
use pando_index::random::Random;
use pando_index::{Error, KeyRange, Order, RangeIndex};
use pando_pmem::Process;

/// Small nodes, with leaves of the paper and with range leaves.
fn both_kinds() -> [Options; 2] {
    [small_nodes(), small_ranges()]
}

/// Keys of eight bytes, and a few of other lengths: leaves change their kind.
fn mixed(index: u64) -> Vec<u8> {
    if index % 64 < 2 { long(index) } else { short(index) }
}

/// Makes the key of a number.
type KeyOf = fn(u64) -> Vec<u8>;

/// Both kinds of leaves, and both in one tree; five times, because threads race.
fn kinds_with_keys() -> Vec<(Options, KeyOf)> {
    let kinds: [(Options, KeyOf); 3] =
        [(small_nodes(), long), (small_ranges(), short), (small_ranges(), mixed)];
    kinds.repeat(5)
}

/// BzTree: two inserts of one key racing through the unsorted part while a third deletes it. Of
/// each key, successful inserts and removes must balance.
#[test]
fn racing_inserts_and_deletes_of_one_key_happen_exactly_once() {
    let seed = seed("racing inserts");
    for round in 0..120 {
        within_bounds("racing inserts", move || {
            let options = both_kinds()[(round / 2 % 2) as usize];
            let fixture = Fixture::<Process>::anonymous(options);
            let balance: Vec<_> = (0..6).map(|_| AtomicI64::new(0)).collect();
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (tree, balance) = (&fixture.index, &balance);
                    let mut random = Random::new(seed ^ round << 8 ^ thread);
                    scope.spawn(move || {
                        for _ in 0..2_000 {
                            let index = random.below(6);
                            let key = if round % 2 == 0 { short(index) } else { long(index) };
                            let value = if random.below(4) == 0 { pointed(1) } else { inline(1) };
                            let (op, change) = match random.below(3) {
                                0 => (Op::Remove(key), -1),
                                _ => (Op::Insert(key, value), 1),
                            };
                            if op.run(tree) == Answer::Done {
                                // Relaxed: only the sum after the end of all threads matters.
                                balance[index as usize].fetch_add(change, Ordering::Relaxed);
                            }
                        }
                    });
                }
            });
            check(&fixture);
            let found = dump(&fixture.index);
            for (index, balance) in balance.iter().enumerate() {
                let index = index as u64;
                let key = if round % 2 == 0 { short(index) } else { long(index) };
                let there = i64::from(found.contains_key(&key));
                assert_eq!(balance.load(Ordering::Relaxed), there, "key {index}, seed {seed}");
            }
        });
    }
}

/// BzTree: repeated insert and delete of one key (a public implementation trips an assertion), and
/// no growth from it.
#[test]
fn insert_and_delete_of_one_key_may_repeat_for_ever() {
    let mixed = |turn: u64| if turn.is_multiple_of(3) { pointed(1) } else { inline(2) };
    let of_every_class = |turn: u64| inline((turn * 77) as u8);
    let values: [fn(u64) -> Vec<u8>; 2] = [mixed, of_every_class];
    for (options, value) in both_kinds().into_iter().flat_map(|kind| values.map(|of| (kind, of))) {
        let fixture = Fixture::<Process>::in_file(options);
        // More than a leaf keeps.
        for index in 0..100 {
            fixture.index.insert(&short(index * 16), &inline(1)).expect("inserts");
        }
        let key = short(1);
        let mut size_bytes = 0;
        for turn in 0..30_000 {
            assert_eq!(Op::Insert(key.clone(), value(turn)).run(&fixture.index), Answer::Done);
            assert_eq!(Op::Remove(key.clone()).run(&fixture.index), Answer::Done);
            if turn == 3_000 {
                size_bytes = fixture.pool.size_bytes();
            }
        }
        check(&fixture);
        assert_eq!(fixture.pool.size_bytes(), size_bytes, "the pool grew");
    }
}

/// Four threads, each in waves of inserts and removes of its own keys between those of the others.
fn waves(fixture: &Fixture<Process>, key: KeyOf, count: u64, rounds: u64, keep: bool) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let tree = &fixture.index;
            scope.spawn(move || {
                // Adjacent regions: one shrinks while its neighbour grows.
                let key = |index: u64| key((index / 8 * 4 + thread) * 8 + index % 8);
                for round in 0..rounds {
                    for index in 0..count {
                        let op = Op::Insert(key(index), inline(thread as u8));
                        assert_eq!(op.run(tree), Answer::Done);
                    }
                    for index in 0..count {
                        let found = tree.get(&key(index)).expect("reads");
                        assert_eq!(found, Some(inline(thread as u8)), "round {round}, {index}");
                    }
                    if keep && round + 1 == rounds {
                        return;
                    }
                    for index in 0..count {
                        let at = if round % 2 == 0 { index } else { count - 1 - index };
                        assert_eq!(Op::Remove(key(at)).run(tree), Answer::Done);
                    }
                }
            });
        }
    });
    check(fixture);
}

fn waves_in_each_kind(name: &'static str, test: fn(&Fixture<Process>, KeyOf)) {
    for (options, key) in kinds_with_keys() {
        within_bounds(name, move || test(&Fixture::anonymous(options), key));
    }
}

/// BzTree: merge racing split of the same parent.
#[test]
fn merges_race_splits_under_one_parent() {
    waves_in_each_kind("merges and splits", |fixture, key| {
        waves(fixture, key, 200, 10, true);
        assert_eq!(dump(&fixture.index).len(), 800);
    });
}

/// BzTree: merge of the last two leaves, and root collapse, while others grow the tree again.
#[test]
fn root_growth_races_root_collapse() {
    waves_in_each_kind("growth and collapse", |fixture, key| {
        for (count, rounds) in [(8, 200), (60, 30)] {
            waves(fixture, key, count, rounds, false);
            assert_eq!(dump(&fixture.index), Records::new());
        }
    });
}

/// BzTree: `delete_size` and `record_count` after a failed insert.
#[test]
fn a_failed_operation_leaves_the_counters_alone() {
    let fixture = Fixture::<Process>::anonymous(small_nodes());
    for index in 0..50 {
        fixture.index.insert(&short(index), &inline(1)).expect("inserts");
    }
    let before = fixture.index.audit().expect("audits").stat;
    for index in 0..50 {
        let key = short(index);
        assert_eq!(Op::Insert(key.clone(), pointed(2)).run(&fixture.index), Answer::Exists);
        let wrong = Op::Exchange(key, inline(9), inline(2));
        assert_eq!(wrong.run(&fixture.index), Answer::Mismatch);
        assert_eq!(Op::Update(long(index), inline(2)).run(&fixture.index), Answer::Missing);
        assert_eq!(Op::Remove(long(index)).run(&fixture.index), Answer::Missing);
    }
    assert_eq!(fixture.index.audit().expect("audits").stat, before);
    check(&fixture);
}

/// BzTree: a leaf whose live records cannot be split in two; keys that share 30 KiB.
#[test]
fn giant_records_and_long_shared_prefixes_find_their_place() {
    for options in [small_nodes(), Options::default()] {
        let fixture = Fixture::<Process>::anonymous(options);
        let mut records = Records::new();
        let giant = |index: u64| [vec![b'p'; 30_000].as_slice(), &short(index)].concat();
        for index in 0..40_u64 {
            for key in [giant(index * 7 % 40), short(index), vec![b'p'; index as usize * 800]] {
                let value = if index % 2 == 0 { inline(1) } else { vec![2; 900] };
                Op::Upsert(key.clone(), value.clone()).run(&fixture.index);
                records.insert(key, value);
            }
        }
        check(&fixture);
        assert!(dump(&fixture.index) == records);
        for (index, key) in records.keys().enumerate() {
            if index % 3 != 0 {
                assert_eq!(Op::Remove(key.clone()).run(&fixture.index), Answer::Done);
            }
        }
        check(&fixture);
        let left: Records = records.into_iter().step_by(3).collect();
        assert!(dump(&fixture.index) == left);
    }
}

/// Trap 11: lengths at the ends of their fields.
#[test]
fn keys_and_values_at_the_ends_of_their_fields() {
    let fixture =
        Fixture::<Process>::anonymous(Options { inline_bytes: 16_384, ..Options::default() });
    let limits = fixture.index.limits();
    let mut records = Records::new();
    for key_bytes in [0, 1, 7, 8, 9, limits.max_key_bytes - 1, limits.max_key_bytes] {
        for (tag, value_bytes) in [0, 1, 8, 16_384, 16_385, 32_767, 65_536].into_iter().enumerate()
        {
            let key = vec![b'k'; key_bytes];
            Op::Upsert(key.clone(), vec![tag as u8; value_bytes]).run(&fixture.index);
            records.insert(key.clone(), vec![tag as u8; value_bytes]);
            assert!(dump(&fixture.index) == records, "{key_bytes}, {value_bytes}");
        }
    }
    let long = fixture.index.insert(&vec![0; limits.max_key_bytes + 1], b"");
    assert!(matches!(long, Err(Error::KeyTooLong { .. })), "{long:?}");
    check(&fixture);
}

/// BzTree: short keys compared as signed bytes, so that 0x80 sorts before 0x00.
#[test]
fn keys_compare_as_unsigned_bytes() {
    let fixture = Fixture::<Process>::anonymous(small_nodes());
    let mut records = Records::new();
    for length in [1, 2, 7, 8, 9, 16] {
        for first in [0x00, 0x01, 0x7F, 0x80, 0x81, 0xFE, 0xFF] {
            for last in [0x00, 0x7F, 0x80, 0xFF] {
                let mut key = vec![first; length];
                key[length - 1] = last;
                records.insert(key.clone(), inline(first));
                Op::Upsert(key, inline(first)).run(&fixture.index);
            }
        }
    }
    check(&fixture);
    assert!(dump(&fixture.index) == records);
    for key in records.keys() {
        let mut cursor =
            fixture.index.scan(KeyRange::from(key..), Order::Ascending).expect("a scan");
        let first = cursor.next().expect("the next record").expect("a record");
        assert_eq!(first.0, key.as_slice());
    }
}

/// Keys close together, and one so far away that no distance within a range leaf reaches it. Random
/// values of 64 bits are updated in place, with the far key and without it.
#[test]
fn keys_close_together_and_one_far_away_keep_random_values() {
    let mut random = Random::new(seed("a key far away"));
    for options in [Options::default(), small_ranges()] {
        let fixture = Fixture::<Process>::anonymous(options);
        let mut records = Records::new();
        let mut settled_bytes = 0;
        for turn in 0..40_u64 {
            for key in (0..100).chain([1 << 63]) {
                let value = random.draw().to_be_bytes().to_vec();
                let op = Op::Upsert(short(key), value);
                assert_eq!(op.run(&fixture.index), op.apply(&mut records));
            }
            if turn.is_multiple_of(4) {
                let op = Op::Remove(short(1 << 63));
                assert_eq!(op.run(&fixture.index), op.apply(&mut records));
            }
            assert!(dump(&fixture.index) == records, "turn {turn}");
            check(&fixture);
            if turn == 8 {
                settled_bytes = fixture.pool.size_bytes();
            }
        }
        assert_eq!(fixture.pool.size_bytes(), settled_bytes, "the pool grew");
    }
}

/// Changes of the tree while a cursor pauses.
type Change = fn(&Fixture<Process>, &mut BTreeMap<Vec<u8>, Vec<u8>>);

/// Trap 9; BzTree: a scan across a leaf that split, merged or became empty after its snapshot. For
/// each place where the cursor may pause: the order of keys continues, no permanent record is
/// missing, no other key appears, and the bounds hold.
#[test]
fn a_scan_rests_while_leaves_split_merge_and_become_empty() {
    let split: Change = |fixture, _| {
        for index in 0..600 {
            fixture.index.upsert(&short(index * 4 + 1), &inline(2)).expect("inserts");
        }
    };
    let merge: Change = |fixture, stays| {
        for index in (0..150).filter(|index| index % 10 != 0) {
            fixture.index.remove(&short(index * 16)).expect("removes");
            stays.remove(&short(index * 16));
        }
    };
    let empty: Change = |fixture, stays| {
        for index in 20..130 {
            fixture.index.remove(&short(index * 16)).expect("removes");
            stays.remove(&short(index * 16));
        }
    };
    // Without merges, empty leaves remain.
    let unmerged = both_kinds().map(|kind| Options { merge_bytes: 0, ..kind });
    let merged =
        both_kinds().into_iter().flat_map(|kind| [split, merge, empty].map(|act| (kind, act)));
    let unmerged = unmerged.into_iter().flat_map(|kind| [merge, empty].map(|act| (kind, act)));
    for (options, change) in merged.chain(unmerged) {
        for (order, rest) in (0..150)
            .step_by(7)
            .flat_map(|rest| [(Order::Ascending, rest), (Order::Descending, rest)])
        {
            let fixture = Fixture::<Process>::anonymous(options);
            let mut stays = Records::new();
            for index in 0..150 {
                fixture.index.insert(&short(index * 16), &inline(1)).expect("inserts");
                stays.insert(short(index * 16), inline(1));
            }
            let (low, high) = (short(3 * 16), short(147 * 16));
            let range =
                KeyRange { low: Bound::Excluded(low.clone()), high: Bound::Included(high.clone()) };
            let mut cursor = fixture.index.scan(range.clone(), order).expect("a scan");
            let mut seen: Vec<Vec<u8>> = Vec::new();
            for _ in 0..rest {
                let record = cursor.next().expect("the next record");
                seen.extend(record.map(|(key, _)| key.to_vec()));
            }
            change(&fixture, &mut stays);
            while let Some((key, _)) = cursor.next().expect("the next record") {
                seen.push(key.to_vec());
            }
            let ordered = |pair: &[Vec<u8>]| match order {
                Order::Ascending => pair[0] < pair[1],
                Order::Descending => pair[0] > pair[1],
            };
            assert!(seen.windows(2).all(ordered), "{order:?}, resting after {rest}");
            assert!(seen.iter().all(|key| range.contains(key)), "{order:?}, after {rest}");
            let missing = |key: &&Vec<u8>| range.contains(key) && !seen.contains(key);
            let missing: Vec<_> = stays.keys().filter(missing).collect();
            assert_eq!(missing, [] as [&Vec<u8>; 0], "{order:?}, resting after {rest}");
            check(&fixture);
        }
    }
}

/// Trap 8: a reader that stalls delays reclamation, but not the writers. It still reads its old
/// data, and the memory is freed when it continues.
#[test]
fn a_stalled_reader_blocks_no_writer_and_memory_comes_back() {
    let fixture = Fixture::<Process>::anonymous(small_nodes());
    for index in 0..20 {
        fixture.index.insert(&short(index), &pointed(1)).expect("inserts");
    }
    let churn = |turns: u64| {
        for turn in 0..turns {
            fixture.index.update(&short(turn % 20), &pointed(turn as u8)).expect("updates");
        }
    };
    churn(10_000);
    let settled_bytes = fixture.pool.size_bytes();
    let before = fixture.index.get(&short(3)).expect("reads").expect("there");
    let stalled = fixture.index.read_with(&short(3), |value| {
        std::thread::scope(|scope| {
            let churning = scope.spawn(|| churn(20_000));
            churning.join().expect("writers go on");
        });
        let lags = fixture.pool.participants().iter().filter_map(|one| one.pinned_for_epochs).max();
        assert!(lags >= Some(1), "the stalled reader shows: {lags:?}");
        assert_eq!(value, before, "the value changed under its reader");
    });
    assert_eq!(stalled.expect("reads"), Some(()));
    let stalled_bytes = fixture.pool.size_bytes();
    assert!(stalled_bytes > settled_bytes, "nothing was held back: the test tests nothing");
    churn(60_000);
    assert_eq!(fixture.pool.size_bytes(), stalled_bytes, "what was held back is not reused");
    check(&fixture);
}

/// Trap 12: no recursion whose depth grows with the data, and no long loop over empty or deleted
/// data.
#[test]
fn a_tall_tree_needs_little_stack() {
    let work = || {
        let options =
            Options { leaf_bytes: 256, inner_bytes: 256, free_bytes: 32, ..small_nodes() };
        let fixture = Fixture::<Process>::anonymous(Options { merge_bytes: 0, ..options });
        let key = |index: u64| [vec![b'k'; 100].as_slice(), &index.to_be_bytes()].concat();
        let count = 20_000;
        for index in 0..count {
            fixture.index.insert(&key(index), b"value").expect("inserts");
        }
        let height = fixture.index.audit().expect("audits").stat.height;
        assert!(height >= 8, "the tree has only {height} levels");
        for index in 1..count - 1 {
            assert!(fixture.index.remove(&key(index)).expect("removes"));
        }
        // Thousands of empty leaves lie between the two remaining records.
        assert_eq!(dump(&fixture.index).len(), 2);
        assert_eq!(fixture.index.len().expect("counts"), 2);
        check(&fixture);
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(work).expect("starts");
    thread.join().expect("a stack of 256 KiB is enough");
}

/// Slices may be equal while keys differ: by zeros behind a short key, and by bytes after the first
/// eight.
#[test]
fn keys_that_share_their_slices_are_told_apart() {
    for options in [small_nodes(), Options::default()] {
        let fixture = Fixture::<Process>::anonymous(options);
        let mut records = Records::new();
        for head in [&b""[..], b"user:", &[0xFF; 300]] {
            for zeros in 0..24 {
                for tail in [&b""[..], b"\0\x01", b"x", b"xyzabcdefg", b"xyzabcdefh"] {
                    let key = [head, &vec![0; zeros], tail].concat();
                    Op::Upsert(key.clone(), inline(zeros as u8)).run(&fixture.index);
                    records.insert(key, inline(zeros as u8));
                }
            }
        }
        check(&fixture);
        assert!(dump(&fixture.index) == records);
        for (key, value) in &records {
            assert_eq!(fixture.index.get(key).unwrap().as_ref(), Some(value), "{key:x?}");
            let beside = [key.as_slice(), b"\0\0\0\x07"].concat();
            assert_eq!(fixture.index.get(&beside).unwrap(), None, "{beside:x?}");
        }
    }
}

#[test]
fn a_slice_that_is_not_its_keys_is_reported() {
    let fixture = Fixture::<Process>::anonymous(Options::default());
    for index in 0..2_000_u64 {
        Op::Upsert(format!("user:{index:06}").into_bytes(), inline(1)).run(&fixture.index);
    }
    let undamaged = fixture.index.audit().unwrap();
    assert!(undamaged.is_consistent());
    let pool = fixture.index.catalog.pool();
    for block in &undamaged.blocks {
        // The first word behind the header, the gate and the shape of a leaf.
        let is_leaf = pool.word(block.off).load(Ordering::Relaxed) >> 56 == 1;
        let slice = pool.word(block.off + if is_leaf { 24 } else { continue });
        let before = slice.load(Ordering::Relaxed);
        slice.store(before ^ 1 << 40, Ordering::Relaxed);
        let problems = fixture.index.audit().unwrap().problems;
        assert!(problems.iter().any(|problem| problem.node_off == block.off), "{problems:?}");
        slice.store(before, Ordering::Relaxed);
    }
    assert!(fixture.index.audit().unwrap().is_consistent());
}
