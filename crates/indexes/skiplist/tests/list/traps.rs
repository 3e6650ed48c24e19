//! Traps of `traps.md` that need one or a few threads; each test's name says which. The crash lab
//! explores what a crash leaves at each step of each schedule (`pando-crashlab explore --index
//! skiplist`).

use std::sync::atomic::{AtomicBool, Ordering};

use pando_index::random::Random;
use pando_index::{KeyRange, Order, RangeIndex, Upserted};
use pando_pmem::Process;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::testing::{CutShort, count_writes, kill_after};
use pando_skiplist::{CasSkipLists, MAX_HEIGHT, Options, SkipLists};
use pando_tree::maps::{IndexKind, Tree};
use pando_tree::testing::{Records, find_beside_writers, processes_die};

use crate::common::watchdog::{seed, within_bounds};
use crate::common::{Fixture, abandon, check, dump, folder_and_pool, small_values};

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Values of all kinds: in two words of the node, behind the key, in blocks.
fn values() -> [Vec<u8>; 5] {
    [vec![], vec![0xFF; 8], vec![7; 9], vec![9; 32], vec![5; 300]]
}

/// Skip list: a get that misses during an overwrite.
#[test]
fn no_get_misses_a_key_that_is_overwritten() {
    fn overwrite<K: IndexKind<Options = Options>>(fixture: &Fixture<Process, K>) {
        fixture.index.insert(b"key", &values()[0]).expect("inserts");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let found = fixture.index.get(b"key").expect("reads");
                        let value = found.expect("the key is there all the time");
                        assert!(values().contains(&value), "a torn value: {value:?}");
                    }
                });
            }
            for turn in 0..20_000 {
                let done = fixture.index.upsert(b"key", &values()[turn % 5]).expect("writes");
                assert_eq!(done, Upserted::Updated);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        check(fixture);
    }
    overwrite::<SkipLists>(&Fixture::anonymous(small_values()));
    overwrite::<CasSkipLists>(&Fixture::anonymous(small_values()));
}

/// Skip list: a range that leaks every node it visits. Scans, half of which end in the middle,
/// beside removes and inserts; the pool does not grow.
#[test]
fn scans_leak_nothing() {
    let fixture = Fixture::<Process>::in_file(small_values());
    let mut size_bytes = 0;
    for round in 0..300_u64 {
        for number in 0..50 {
            let value = &values()[(number % 5) as usize];
            fixture.index.insert(&key(number), value).expect("inserts");
        }
        for order in [Order::Ascending, Order::Descending] {
            let mut cursor = fixture.index.scan(KeyRange::all(), order).expect("scans");
            for _ in 0..round % 60 {
                cursor.next().expect("the next record");
            }
        }
        for number in 0..50 {
            assert!(fixture.index.remove(&key(number)).expect("removes"));
        }
        if round == 100 {
            size_bytes = fixture.pool.size_bytes();
        }
    }
    check(&fixture);
    assert_eq!(fixture.pool.size_bytes(), size_bytes, "the pool grew");
}

/// Skip list: predecessor pointers after racing deletes. Scans in both directions always find the
/// permanent keys; at the end every pointer is correct.
#[test]
fn predecessors_are_right_after_racing_inserts_and_deletes() {
    fn race<K: IndexKind<Options = Options>>(fixture: &Fixture<Process, K>, seed: u64) {
        const KEYS: u64 = 64;
        let stays: Records = (0..KEYS).step_by(8).map(|at| (key(at), b"stays".to_vec())).collect();
        find_beside_writers(&fixture.index, &stays, 3, |thread| {
            let mut random = Random::new(seed ^ thread);
            for _ in 0..20_000 {
                let number = random.below(KEYS);
                if number.is_multiple_of(8) {
                    continue;
                }
                match random.below(2) {
                    0 => drop(fixture.index.insert(&key(number), b"goes")),
                    _ => drop(fixture.index.remove(&key(number))),
                }
            }
        });
        check(fixture);
        dump(&fixture.index);
    }
    let seed = seed("racing inserts and deletes");
    within_bounds("PMwCAS", move || {
        race::<SkipLists>(&Fixture::anonymous(Options::default()), seed)
    });
    within_bounds("CAS", move || {
        race::<CasSkipLists>(&Fixture::anonymous(Options::default()), seed)
    });
}

/// A key whose node is higher than one operation links, in lists of these options.
fn high_key<K: IndexKind<Options = Options>>() -> Vec<u8> {
    let fixture = Fixture::<Process, K>::anonymous(small_values());
    let height = || fixture.index.audit().expect("audits").stat.height;
    (0..)
        .map(key)
        .find(|key| {
            fixture.index.insert(key, b"").expect("inserts");
            height() > 9
        })
        .expect("one in five hundred is")
}

/// Skip list: a tower half linked at a crash. An insert, and then a remove, of a high node is
/// killed before each of its writes: the result is a consistent list with the record or without it.
#[test]
fn a_tower_that_a_crash_cuts_short_is_a_lower_one() {
    const POOL_BYTES: u64 = 8 << 20;
    let (_folder, path) = folder_and_pool();
    let high = high_key::<SkipLists>();
    let fresh = || {
        let _ = std::fs::remove_file(&path);
        let fixture = Fixture::<CutShort<true>>::create(&path, POOL_BYTES, small_values());
        for number in 0..20 {
            fixture.index.insert(&key(u64::MAX - number), &values()[4]).expect("inserts");
        }
        fixture
    };
    let mut heights = std::collections::BTreeSet::new();
    for removes in [false, true] {
        let act = |fixture: &Fixture<CutShort<true>>| match removes {
            true => assert!(fixture.index.remove(&high).expect("removes")),
            false => fixture.index.insert(&high, &values()[4]).expect("inserts"),
        };
        let prepare = || {
            let fixture = fresh();
            if removes {
                fixture.index.insert(&high, &values()[4]).expect("inserts");
            }
            fixture
        };
        let whole = prepare();
        let (_, writes) = count_writes(|| act(&whole));
        drop(whole);
        for cut in (0..writes).step_by(3) {
            let fixture = prepare();
            let done = kill_after(cut, || act(&fixture)).is_some();
            abandon(fixture);
            let fixture = Fixture::<CutShort<true>>::reopen(&path);
            check(&fixture);
            let is_there = fixture.index.get(&high).expect("reads").is_some();
            heights.insert(fixture.index.audit().expect("audits").stat.height);
            if done {
                assert_eq!(is_there, !removes);
                break;
            }
            // It can be used.
            fixture.index.upsert(&high, b"new").expect("writes");
            assert!(fixture.index.remove(&high).expect("removes"));
            check(&fixture);
            assert_eq!(dump(&fixture.index).len(), 20);
        }
    }
    assert!(heights.len() > 3 && heights.iter().all(|&height| height <= MAX_HEIGHT as u64));
}

/// Class 10: a full pool refuses inserts, changes nothing, takes deletes, and then has room again.
#[test]
fn a_full_pool_takes_deletes_and_writes_in_place() {
    let fixture = Fixture::<Process>::in_file(small_values());
    for number in 0..100 {
        fixture.index.insert(&key(number), &values()[(number % 5) as usize]).expect("inserts");
    }
    let before = dump(&fixture.index);
    refuse(Resource::Block, 0, u64::MAX, || {
        let error = fixture.index.insert(b"new", b"value").expect_err("there is no room");
        assert!(error.to_string().contains("the pool is full"), "{error}");
        fixture.index.update(&key(1), &values()[4]).expect_err("there is no room");
        assert!(dump(&fixture.index) == before, "a refusal changed something");
        // A small value is replaced in its place.
        fixture.index.update(&key(0), b"in place").expect("needs no room");
        for number in 0..50 {
            assert!(fixture.index.remove(&key(number)).expect("removes"));
        }
    });
    check(&fixture);
    fixture.index.insert(b"new", b"value").expect("there is room again");
    assert_eq!(fixture.index.len().expect("counts"), 51);
    check(&fixture);
}

/// PMwCAS: values that use the control bits. And a small value that changes its length.
#[test]
fn small_values_have_all_their_bits() {
    let fixture = Fixture::<Process, SkipLists>::anonymous(Options::default());
    fixture.index.insert(b"key", b"").expect("inserts");
    for shift in 0..64 {
        for value in [1_u64 << shift, !(1 << shift), u64::MAX << shift] {
            let bytes = &value.to_le_bytes()[..1 + shift % 8];
            let before = fixture.index.get(b"key").expect("reads").expect("is there");
            fixture.index.compare_exchange(b"key", &before, bytes).expect("exchanges");
            assert_eq!(fixture.index.get(b"key").expect("reads").as_deref(), Some(bytes));
        }
    }
}

/// Class 13: a checker that is wrong. With any content of one word of a block, the walk ends. Any
/// damage of the words that link nodes, or order them, is found.
#[test]
fn a_damaged_list_is_walked_and_reported() {
    for kinds in [1, 5] {
        let fixture = Fixture::<Process, SkipLists>::anonymous(small_values());
        for number in 0..60_u64 {
            let tail = vec![b'k'; (number % 3) as usize * 5];
            let name = [key(number), tail].concat();
            fixture.index.insert(&name, &values()[(number % kinds) as usize]).expect("inserts");
        }
        let blocks = fixture.index.audit().expect("audits").blocks;
        let mut random = Random::new(seed("a damaged list"));
        // The first is the head.
        for block in blocks.iter().skip(1).take(40) {
            for at in (0..64).step_by(8) {
                let word = fixture.pool.word(block.off + at);
                let undamaged = word.load(Ordering::Relaxed);
                for damage in [1 << random.below(61), random.draw() >> 3, u64::MAX, 1 << 63] {
                    word.store(undamaged ^ damage, Ordering::Relaxed);
                    let audit = fixture.index.audit().expect("audits");
                    // All blocks are nodes: the first, second and sixth word; and in the fourth,
                    // which belongs to a small value, bits that no value has.
                    let is_of_order = [0, 8, 40].contains(&at);
                    let must_be_seen = kinds == 1 && (is_of_order || at == 24 && damage == 1 << 63);
                    assert!(
                        !must_be_seen || !audit.is_consistent(),
                        "{at}: {undamaged:#x} ^ {damage:#x}"
                    );
                    word.store(undamaged, Ordering::Relaxed);
                }
            }
        }
        check(&fixture);
    }
}

/// Class 12: a loop without an end. Keys behind all others are inserted and removed, and concurrent
/// searches for them must find the end of each level.
#[test]
fn a_search_ends_at_the_end_of_the_list() {
    fn race<K: IndexKind<Options = Options>>(fixture: &Fixture<Process, K>) {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    for turn in 0..20_000_u64 {
                        let name = key((turn * 7 + thread) % 4);
                        match thread % 2 {
                            0 => drop(fixture.index.upsert(&name, b"value")),
                            _ => drop(fixture.index.remove(&name)),
                        }
                    }
                });
            }
        });
        check(fixture);
    }
    within_bounds("PMwCAS", || race::<SkipLists>(&Fixture::anonymous(Options::default())));
    within_bounds("CAS", || race::<CasSkipLists>(&Fixture::anonymous(Options::default())));
}

#[test]
fn a_process_that_dies_at_any_write_holds_up_no_other() {
    [1, 2, 9].into_iter().for_each(|records| processes_die::<SkipLists>(small_values(), records));
}
