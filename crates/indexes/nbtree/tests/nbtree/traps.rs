//! Traps of `traps.md`; each test's name says which.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pando_index::random::Random;
use pando_index::{Error, KeyRange, Order, RangeIndex};
use pando_nbtree::NbTrees;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::testing::{CutShort, Paused, run_until_stopped, written_back};
use pando_pmem::{Adr, CreateOptions, Pool, Process};
use pando_tree::maps::Tree;

use crate::common::{Fixture, NAME, Options, check, dump, small_nodes};

fn eight(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// NBTree: value bits (copy and sync) visible to a user whose value uses them; key 0 as "empty"
/// against a user whose key is 0.
#[test]
fn every_key_and_every_value_is_allowed() {
    let fixture = Fixture::<Process>::anonymous(small_nodes());
    let tree = &fixture.index;
    let numbers: Vec<u64> = (0..64)
        .flat_map(|bit| [1 << bit, u64::MAX << bit, u64::MAX >> bit, (1 << bit) - 1])
        .chain([0, u64::MAX])
        .collect();
    let mut expected = std::collections::BTreeMap::new();
    for (turn, &number) in numbers.iter().enumerate() {
        // Inserted with one class of value, replaced by the others, in every order.
        for other in &numbers[turn..(turn + 6).min(numbers.len())] {
            tree.upsert(&eight(number), &other.to_le_bytes()).expect("an upsert");
            let found = tree.get(&eight(number)).expect("reads");
            assert_eq!(found.as_deref(), Some(&other.to_le_bytes()[..]), "{number:#x}");
            expected.insert(eight(number).to_vec(), other.to_le_bytes().to_vec());
        }
    }
    assert_eq!(dump(tree), expected);
    check(&fixture);
}

/// NBTree: the public one lost 1 to 3 of a million keys in most four-thread loads.
#[test]
fn a_load_by_four_threads_loses_no_key() {
    const EACH: u64 = 50_000;
    for options in [Options::default(), small_nodes()] {
        let fixture = Fixture::<Process>::anonymous(options);
        let key = |number: u64| eight(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let tree = &fixture.index;
                scope.spawn(move || {
                    for at in 0..EACH {
                        let number = at * 4 + thread;
                        tree.insert(&key(number), &number.to_le_bytes()).expect("is new");
                    }
                });
            }
        });
        assert_eq!(fixture.index.len().expect("counts"), 4 * EACH);
        for number in 0..4 * EACH {
            let found = fixture.index.get(&key(number)).expect("reads");
            assert_eq!(found.as_deref(), Some(&number.to_le_bytes()[..]), "lost {number}");
        }
        check(&fixture);
    }
}

/// NBTree: a lost update between copy and link; a key deleted, then found again, because the sync
/// phase re-copied it; the next pointer of a predecessor that is itself replaced. Each writer has
/// its own keys, so it knows what it must find, while inserts of other threads between these keys
/// replace the leaves all the time.
fn own_keys_among_splits<D: pando_pmem::Domain>() {
    let fixture = Fixture::<D>::anonymous(small_nodes());
    let is_over = AtomicBool::new(false);
    let turns = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (tree, is_over, turns) = (&fixture.index, &is_over, &turns);
        for thread in 0..2u64 {
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut known = vec![None; 64];
                for turn in 0..12_000u64 {
                    let at = random.below(64);
                    let key = eight(at << 16 | thread << 8);
                    let found = tree.get(&key).expect("reads");
                    assert_eq!(found.as_deref(), known[at as usize].as_deref(), "key {at}");
                    known[at as usize] = match random.below(4) {
                        0 => {
                            let was = tree.remove(&key).expect("removes");
                            assert_eq!(was, known[at as usize].is_some());
                            None
                        }
                        _ => {
                            // Any class, and sometimes a block of its own.
                            let value = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
                            let value =
                                if turn % 9 == 0 { value.repeat(2) } else { value.to_vec() };
                            tree.upsert(&key, &value).expect("writes");
                            Some(value)
                        }
                    };
                    turns.fetch_add(1, Ordering::Relaxed);
                }
                is_over.store(true, Ordering::Release);
            });
        }
        scope.spawn(move || {
            let mut random = Random::new(99);
            while !is_over.load(Ordering::Acquire) {
                let low = random.below(64) << 16 | 0xF000;
                (0..24).for_each(|at| drop(tree.insert(&eight(low + at), &eight(at))));
                (0..24).for_each(|at| drop(tree.remove(&eight(low + at))));
            }
        });
    });
    check(&fixture);
    drop(dump(&fixture.index));
}

#[test]
fn updates_and_deletes_survive_every_phase_of_a_split() {
    own_keys_among_splits::<Process>();
}

#[test]
fn updates_and_deletes_survive_every_phase_of_a_split_with_write_backs() {
    own_keys_among_splits::<Adr>();
}

/// Emptied leaves are dropped, and their blocks and records' blocks freed; also the first leaf of
/// an inner node.
#[test]
fn deletes_give_leaves_and_blocks_back() {
    let fixture = Fixture::<Process>::in_file(small_nodes());
    for round in 0..3 {
        for number in 0..3_000u64 {
            let value = vec![7; if number % 3 == 0 { 100 } else { 8 }];
            fixture.index.insert(&eight(number), &value).expect("an insert");
        }
        let full = fixture.index.audit().expect("audits").stat;
        assert!(full.leaves > 500 && full.height > 3 && full.value_blocks == 1_000);
        for number in 0..3_000u64 {
            let number = if round == 1 { 2_999 - number } else { number };
            assert!(fixture.index.remove(&eight(number)).expect("removes"));
        }
        check(&fixture);
        let empty = fixture.index.audit().expect("audits").stat;
        assert_eq!((empty.leaves, empty.records, empty.value_blocks), (1, 0, 0), "round {round}");
        assert_eq!((empty.height, empty.inner_nodes), (1, 0), "round {round}");
    }
}

/// The tree becomes lower when it is emptied, also by several threads while others write.
#[test]
fn the_root_comes_down_amid_writes() {
    const THREADS: u64 = 4;
    const KEYS: u64 = 1_500;
    let fixture = Fixture::<Process>::in_file(small_nodes());
    let tree = &fixture.index;
    for round in 0..3u64 {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let own = move |turn: u64| eight(turn * THREADS + thread);
                    for turn in 0..KEYS {
                        tree.insert(&own(turn), &own(round)).expect("an insert");
                    }
                    for turn in 0..KEYS {
                        let turn = if thread % 2 == 0 { turn } else { KEYS - 1 - turn };
                        assert!(tree.remove(&own(turn)).expect("removes"));
                        if turn.is_multiple_of(64) {
                            // Records for which the tree has just become too low.
                            tree.insert(&own(turn), &own(round)).expect("an insert");
                            assert!(tree.remove(&own(turn)).expect("removes"));
                        }
                    }
                });
            }
        });
        check(&fixture);
        let empty = tree.audit().expect("audits").stat;
        assert_eq!((empty.records, empty.leaves), (0, 1), "round {round}");
        assert_eq!((empty.height, empty.inner_nodes), (1, 0), "round {round}");
    }
}

/// Exhaustion: a clean error, nothing corrupted, and room again once something is removed.
#[test]
fn a_full_pool_refuses_and_takes_deletes() {
    let create = CreateOptions { max_bytes: 2 << 20, initial_bytes: 0 };
    let fixture =
        Fixture::<Process>::of(Pool::anonymous(&create).expect("memory"), Options::default());
    let mut count = 0u64;
    let refused = loop {
        match fixture.index.insert(&eight(count), &[count as u8; 40]) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Storage(_)), "{refused}");
    assert_eq!(dump(&fixture.index).len() as u64, count);
    check(&fixture);
    for number in 0..count {
        assert!(fixture.index.remove(&eight(number)).expect("a remove"), "{number}");
    }
    for number in 0..count / 2 {
        fixture.index.insert(&eight(number), &[1; 40]).expect("there is room again");
    }
    check(&fixture);
}

/// A thread stops for ever before any of its writes: the others continue.
#[test]
fn a_stopped_thread_holds_nobody_up() {
    type Domain = CutShort<true>;
    for writes in 0.. {
        let fixture = Fixture::<Domain>::anonymous(small_nodes());
        for number in 0..6u64 {
            fixture.index.insert(&eight(number * 10), &eight(1)).expect("an insert");
        }
        let tree = fixture.index.clone();
        // It splits a leaf, updates a value in a block, and deletes.
        let is_done = run_until_stopped(writes, move || {
            tree.insert(&eight(15), &eight(2)).expect("an insert");
            tree.update(&eight(20), &[3; 30]).expect("an update");
            assert!(tree.remove(&eight(30)).expect("a remove"));
        });
        for number in 0..60u64 {
            tree_goes_on(&fixture.index, number);
        }
        let mut last = None;
        let mut cursor = fixture.index.scan(KeyRange::all(), Order::Descending).expect("a scan");
        while let Some((key, _)) = cursor.next().expect("a record") {
            assert!(last.as_deref().is_none_or(|last| last > key), "out of order");
            last = Some(key.to_vec());
        }
        if is_done {
            check(&fixture);
            assert!(writes > 30, "{writes}");
            return;
        }
    }
}

/// Scans beside a thread that has stopped during a change, in a pool without any room: they find
/// everything all the same.
#[test]
fn scans_in_a_full_pool_pass_a_stopped_thread() {
    type Tree = pando_nbtree::NbTree<CutShort<true>>;
    let writes: [fn(&Tree); 3] = [
        |tree| tree.update(&eight(20), &eight(9)).expect("is there"),
        |tree| assert!(tree.remove(&eight(30)).expect("removes")),
        |tree| tree.insert(&eight(5), &eight(9)).expect("is new"),
    ];
    for write in writes {
        for stopped_before in 0.. {
            let fixture = Fixture::<CutShort<true>>::anonymous(small_nodes());
            for number in 0..7u64 {
                fixture.index.insert(&eight(number * 10), &eight(1)).expect("an insert");
            }
            let tree = fixture.index.clone();
            let is_done = run_until_stopped(stopped_before, move || write(&tree));
            refuse(Resource::Block, 0, u64::MAX, || {
                let stays = [0, 10, 40, 50, 60].map(|key| (eight(key).to_vec(), eight(1).to_vec()));
                let found = dump(&fixture.index);
                assert!(
                    stays.iter().all(|(key, value)| found.get(key) == Some(value)),
                    "{found:?}"
                );
                assert!((6..=8).contains(&found.len()), "{found:?}");
            });
            if is_done {
                break;
            }
        }
    }
}

fn tree_goes_on(tree: &pando_nbtree::NbTree<CutShort<true>>, number: u64) {
    tree.upsert(&eight(number), &eight(number)).expect("an upsert");
    assert_eq!(tree.get(&eight(number)).expect("reads").as_deref(), Some(&eight(number)[..]));
    if number.is_multiple_of(2) {
        assert!(tree.remove(&eight(number)).expect("a remove"));
        assert_eq!(tree.get(&eight(number)).expect("reads"), None);
    }
}

/// ABA and reuse: two handles of one tree share its process memory, and a dropped map leaves
/// nothing behind for the next one at its place.
#[test]
fn handles_share_a_tree_and_a_dropped_map_is_gone() {
    let fixture = Fixture::<Process>::in_file(small_nodes());
    let catalog = &fixture.index.catalog;
    let other = catalog.find_index::<NbTrees>(NAME).expect("a map").expect("is there");
    for number in 0..500 {
        let tree = if number % 2 == 0 { &other } else { &fixture.index };
        tree.insert(&eight(number), &eight(number)).expect("an insert");
    }
    assert_eq!(dump(&other), dump(&fixture.index));
    fixture.drop_map(NAME);
    let again = catalog.find_or_create_index::<NbTrees>(NAME, small_nodes()).expect("a map");
    assert_eq!(again.len().expect("counts"), 0);
    again.insert(&eight(1), &eight(1)).expect("an insert");
    assert_eq!(dump(&again).len(), 1);
}

/// NBTree: reads of data that a crash may still lose, which the paper accepts without eADR. A
/// thread pauses before each write of its update, delete or insert; a reader that sees the change
/// writes its line back.
#[test]
fn what_may_be_lost_is_written_back_by_who_reads_it() {
    type WithWriteBack = CutShort<true>;
    type Tree = pando_nbtree::NbTree<WithWriteBack>;
    type Write = fn(&Tree);
    let writes: [(&str, Write); 5] = [
        ("an update", |tree| tree.update(&eight(5), &eight(50)).expect("is there")),
        ("an update to a block", |tree| tree.update(&eight(5), &[9; 30]).expect("is there")),
        ("a delete", |tree| assert!(tree.remove(&eight(5)).expect("removes"))),
        ("a delete of a block", |tree| assert!(tree.remove(&eight(3)).expect("removes"))),
        ("an insert", |tree| tree.insert(&eight(6), &eight(60)).expect("is new")),
    ];
    type Look = fn(&Tree) -> Vec<Option<Vec<u8>>>;
    let looks: [(&str, Look); 2] = [
        ("gets", |tree| [3, 5, 6].map(|key| tree.get(&eight(key)).expect("reads")).to_vec()),
        ("a scan", |tree| {
            let mut found = vec![None; 3];
            let mut cursor = tree.scan(KeyRange::all(), Order::Ascending).expect("a scan");
            while let Some((key, value)) = cursor.next().expect("a record") {
                let at = [3, 5, 6].iter().position(|&other| eight(other) == key);
                found[at.expect("a key of this test")] = Some(value.to_vec());
            }
            found
        }),
    ];
    for (what, write) in writes {
        for (by, look) in looks {
            let mut seen_undone = 0;
            for paused_before in 1.. {
                let create = CreateOptions { max_bytes: 4 << 20, ..CreateOptions::default() };
                let pool = Pool::anonymous(&create).expect("memory");
                let fixture = Fixture::<WithWriteBack>::of(pool, small_nodes());
                fixture.index.insert(&eight(3), &[1; 30]).expect("is new");
                fixture.index.insert(&eight(5), &eight(1)).expect("is new");
                let before = look(&fixture.index);
                let tree = fixture.index.clone();
                let victim = Paused::start(paused_before, move || write(&tree));
                let is_done = victim.is_done();
                let (found, lines) = written_back(|| look(&fixture.index));
                if !is_done && found != before {
                    seen_undone += 1;
                    assert!(!lines.is_empty(), "{what}, before write {paused_before}, by {by}");
                }
                victim.resume();
                if is_done {
                    break;
                }
            }
            assert!(seen_undone > 0, "{what} is seen by {by} only when it is done");
        }
    }
}

/// A thread that has written a block's name into a value word has a log of it until the word is
/// durable. Recovery takes the block back if it does not find the name there. So a leaf with such a
/// word is replaced only after the word's write-back.
#[test]
fn a_replacement_writes_back_the_words_that_logs_need() {
    let mut seen = 0;
    for paused_before in 1.. {
        let fixture = Fixture::<CutShort<true>>::anonymous(small_nodes());
        for number in 0..6 {
            fixture.index.insert(&eight(10 * number), &eight(number)).expect("is new");
        }
        let leaf = fixture.index.audit().expect("audits").blocks[0];
        let words = || -> Vec<u64> {
            let words = fixture.pool.words(leaf.off, leaf.bytes / 8);
            (0..leaf.bytes / 8).map(|index| words.load(index, Ordering::Relaxed)).collect()
        };
        // A slot's value follows its key.
        let value_word = || {
            let words = words();
            words[words.iter().position(|&word| word == 20).expect("the key's slot") + 1]
        };
        let before = value_word();
        let tree = fixture.index.clone();
        let victim = Paused::start(paused_before, move || tree.update(&eight(20), &[3; 30]));
        let (is_done, word) = (victim.is_done(), value_word());
        let insert = || fixture.index.insert(&eight(15), &eight(2)).expect("is new");
        let ((), lines) = written_back(insert);
        if !is_done && word != before {
            seen += 1;
            // The new leaf's line, and the old one's, in which the word is closed (`layout.rs`).
            const CLOSED: u64 = 1 << 61;
            let names = |line: &&[u64; 8]| line.iter().any(|&found| found & !CLOSED == word);
            let named = lines.values().filter(names).count();
            assert!(named >= 2, "before write {paused_before}: {named}");
        }
        victim.resume().expect("is there");
        check(&fixture);
        if is_done {
            break;
        }
    }
    assert!(seen > 0);
}

/// A small pool, with one leaf whose slots are all claimed: by the even keys below twelve.
fn with_a_full_leaf() -> crate::common::Fixture<CutShort<true>> {
    let create = CreateOptions { max_bytes: 4 << 20, ..CreateOptions::default() };
    let pool = Pool::anonymous(&create).expect("memory");
    let fixture = Fixture::<CutShort<true>>::of(pool, small_nodes());
    for number in 0..6 {
        fixture.index.insert(&eight(2 * number), &eight(number)).expect("is new");
    }
    fixture
}

/// Threads that claim a leaf's slots, and one that finds none free, could delay each other for
/// ever, if the replacement of the leaf and the insert were two steps. Wherever the thread stops,
/// its record is present when the leaf is replaced.
#[test]
fn a_leaf_is_replaced_with_the_record_that_had_no_slot() {
    for value_bytes in [8, 30] {
        let mut seen_undone = 0;
        for paused_before in 1.. {
            let fixture = with_a_full_leaf();
            let first_leaf = |fixture: &crate::common::Fixture<CutShort<true>>| {
                fixture.index.audit().expect("audits").blocks[0].off
            };
            let before = first_leaf(&fixture);
            let tree = fixture.index.clone();
            let value = vec![7; value_bytes];
            let victim = Paused::start(paused_before, move || tree.insert(&eight(5), &value));
            let is_done = victim.is_done();
            if first_leaf(&fixture) != before {
                // Gets may not find it until a thread publishes the new leaf, as this does.
                let again = fixture.index.insert(&eight(5), &[]);
                assert!(matches!(again, Err(Error::KeyExists)), "before write {paused_before}");
                assert!(fixture.index.get(&eight(5)).expect("reads").is_some());
                seen_undone += u64::from(!is_done);
            }
            victim.resume().expect("is new");
            assert_eq!(dump(&fixture.index).len(), 7);
            check(&fixture);
            if is_done {
                break;
            }
        }
        assert!(seen_undone > 0, "the leaf is replaced only when the insert is done");
    }
}

/// The same holds for threads that claim slots, and one that always finds its value word closed:
/// when the leaf is replaced, by any thread, its insert, update or delete has taken place.
#[test]
fn a_leaf_is_replaced_with_the_change_of_a_closed_word() {
    type Tree = pando_nbtree::NbTree<CutShort<true>>;
    let changes: [fn(&Tree) -> bool; 5] = [
        |tree| tree.update(&eight(2), &eight(9)).is_ok(),
        |tree| tree.upsert(&eight(2), &[9; 30]).is_ok(),
        |tree| tree.compare_exchange(&eight(4), &[4; 30], &eight(9)).is_ok(),
        |tree| tree.remove(&eight(2)).expect("removes"),
        |tree| tree.remove(&eight(4)).expect("removes"),
    ];
    for change in changes {
        let mut gone_along = 0;
        for stopped_before in 1.. {
            let mut is_over = false;
            for paused_before in (1 + stopped_before % 3..).step_by(3) {
                let fixture = with_a_full_leaf();
                fixture.index.update(&eight(4), &[4; 30]).expect("is there");
                let records = dump(&fixture.index);
                let first_leaf = || fixture.index.audit().expect("audits").blocks[0].off;
                let before = first_leaf();
                let tree = fixture.index.clone();
                let other = Paused::start(stopped_before, move || {
                    tree.insert(&eight(5), &eight(5)).expect("is new");
                });
                is_over = other.is_done() || first_leaf() != before;
                if is_over {
                    // It belongs to the insert alone.
                    other.resume();
                    break;
                }
                let tree = fixture.index.clone();
                let victim = Paused::start(paused_before, move || change(&tree));
                let is_done = victim.is_done();
                if first_leaf() != before {
                    // Publishes the replacement.
                    drop(fixture.index.insert(&eight(11), &[]));
                    let now = dump(&fixture.index);
                    let is_made = records.iter().any(|(key, value)| now.get(key) != Some(value));
                    let is_inserted = now.contains_key(&eight(5)[..]);
                    let at = format!("{stopped_before}, {paused_before}: {now:?}");
                    assert!(is_made || is_inserted, "the success of nobody: {at}");
                    gone_along += u64::from(is_made && !is_done);
                }
                assert!(victim.resume(), "{stopped_before}, {paused_before}");
                other.resume();
                check(&fixture);
                if is_done {
                    break;
                }
            }
            if is_over {
                break;
            }
        }
        assert!(gone_along > 0, "no change has gone along with a replacement");
    }
}

/// A full pool: a delete of a closed word needs at most one block, which it gives back, wherever
/// the thread that replaces the leaf has stopped.
#[test]
fn a_delete_that_goes_along_takes_no_more_room_than_it_gives_back() {
    for paused_before in 1.. {
        let fixture = with_a_full_leaf();
        let tree = fixture.index.clone();
        let victim = Paused::start(paused_before, move || tree.insert(&eight(5), &eight(5)));
        let is_done = victim.is_done();
        let (removed, _) = refuse(Resource::Block, 1, u64::MAX, || fixture.index.remove(&eight(4)));
        assert!(removed.expect("removes"), "before write {paused_before}");
        victim.resume().expect("is new");
        check(&fixture);
        if is_done {
            break;
        }
    }
}
