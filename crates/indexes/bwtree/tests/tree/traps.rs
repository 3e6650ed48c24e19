//! Traps of `traps.md` that need one or a few threads; each test's name says which. The crash lab
//! explores what a crash leaves at each step of each schedule (`pando-crashlab explore --index
//! bwtree`).

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use pando_bwtree::{BwTrees, CasBwTrees, Options};
use pando_index::random::Random;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::testing::{CutShort, count_writes, kill_after};
use pando_pmem::{Adr, Domain, Process};
use pando_tree::maps::{IndexKind, Tree};
use pando_tree::testing::find_beside_writers;

use crate::common::watchdog::{seed, within_bounds};
use crate::common::{
    Fixture, NAME, Records, abandon, check, dump, folder_and_pool, key, small, small_plain, value,
};

/// Bw-tree: a split racing a merge of the same page at the parent, a parent found deleted on the
/// way, an index entry posted twice. Threads fill and empty neighbouring ranges of a few leaves,
/// under inner pages of a few children, so that pages of all levels are created and merged.
/// Meanwhile readers find the permanent records.
#[test]
fn splits_and_merges_that_meet_at_one_parent_leave_one_entry_each() {
    fn race<K: IndexKind<Options = Options>>(fixture: &Fixture<Process, K>, seed: u64) {
        const KEYS: u64 = 240;
        let stays: Records = (0..KEYS).step_by(40).map(|at| (key(at), b"stays".to_vec())).collect();
        find_beside_writers(&fixture.index, &stays, 3, |thread| {
            let mut random = Random::new(seed ^ thread);
            for _ in 0..60 {
                let from = random.below(KEYS);
                let to = (from + random.below(KEYS)).min(KEYS);
                let fills = random.one_in(2);
                for number in (from..to).filter(|number| number % 40 != 0) {
                    match fills {
                        true => drop(fixture.index.insert(&key(number), &value(number))),
                        false => drop(fixture.index.remove(&key(number))),
                    }
                }
            }
        });
        check(fixture);
        dump(&fixture.index);
    }
    let seed = seed("splits and merges");
    within_bounds("PMwCAS", move || race::<BwTrees>(&Fixture::anonymous(small()), seed));
    within_bounds("plain", move || race::<BwTrees>(&Fixture::anonymous(small_plain()), seed));
    within_bounds("CAS", move || race::<CasBwTrees>(&Fixture::anonymous(small()), seed));
}

/// All mapping words of the tree's anchor and segments that say *removed*.
fn removed<D: Domain, K: IndexKind<Options = Options>>(
    fixture: &Fixture<D, K>,
) -> BTreeSet<(u64, u64)> {
    let blocks = fixture.index.audit().expect("audits").blocks;
    let anchor = blocks[0].off;
    let word = |off| fixture.pool.word(off).load(Ordering::Acquire);
    let mut places: Vec<u64> = (anchor + 64..anchor + 512).step_by(8).collect();
    let mut segment = word(anchor + 8);
    while segment != 0 {
        places.extend((segment + 64..segment + 4096).step_by(8));
        segment = word(segment);
    }
    places.into_iter().map(|off| (off, word(off))).filter(|&(_, word)| word >> 60 == 1).collect()
}

fn churn<D: Domain>(fixture: &Fixture<D>) {
    for number in 0..120 {
        fixture.index.insert(&key(number), &value(number)).expect("inserts");
    }
    for number in 0..120 {
        assert!(fixture.index.remove(&key(number)).expect("removes"));
    }
}

/// Bw-tree: a PID freed while a thread still knows it. Also class 7, reuse; and class 8: blocks
/// that wait for a reader are allocated again when the reader has ended.
#[test]
fn a_pid_is_allocated_again_only_when_no_thread_can_know_it() {
    let fixture = Fixture::<Process, BwTrees>::anonymous(small());
    churn(&fixture);
    let guard = fixture.pool.pin().expect("a slot");
    std::thread::scope(|scope| {
        scope.spawn(|| churn(&fixture));
    });
    let waiting = removed(&fixture);
    assert!(!waiting.is_empty(), "nothing was merged");
    std::thread::scope(|scope| {
        scope.spawn(|| (0..5).for_each(|_| churn(&fixture)));
    });
    let still = removed(&fixture);
    // PIDs that were removed before this thread was pinned may be reused.
    let epoch = waiting.iter().map(|&(_, word)| word & 0xFF_FFFF_FFFF).max();
    let newest = |set: &BTreeSet<(u64, u64)>| -> BTreeSet<u64> {
        let is_newest = |&&(_, word): &&(u64, u64)| Some(word & 0xFF_FFFF_FFFF) == epoch;
        set.iter().filter(is_newest).map(|&(off, _)| off).collect()
    };
    assert!(newest(&waiting).is_subset(&newest(&still)), "a PID was taken that a reader may know");
    drop(guard);
    let segments = || {
        let blocks = fixture.index.audit().expect("audits").blocks;
        blocks.iter().filter(|block| block.bytes == 4096).count()
    };
    (0..20).for_each(|_| churn(&fixture));
    let before = segments();
    (0..40).for_each(|_| churn(&fixture));
    assert_eq!(segments(), before, "the mapping table grows");
    check(&fixture);
}

/// Class 7: a PID removed in an earlier generation is free, whatever its epoch.
#[test]
fn pids_that_were_removed_before_a_restart_are_free() {
    let (_folder, path) = folder_and_pool();
    let fixture = Fixture::<Adr>::create(&path, 16 << 20, small());
    churn(&fixture);
    let before = removed(&fixture);
    assert!(!before.is_empty());
    abandon(fixture);
    let fixture = Fixture::<Adr>::reopen(&path);
    churn(&fixture);
    churn(&fixture);
    let after = removed(&fixture);
    assert!(before.intersection(&after).count() < before.len(), "none was taken");
    check(&fixture);
}

/// Classes 4 and 5: a crash inside a split, a merge, a root split, a root collapse. An insert and a
/// remove that cause one are killed before each of their writes.
#[test]
fn structure_changes_that_a_crash_cuts_short_are_whole_or_not_there() {
    const POOL_BYTES: u64 = 8 << 20;
    let (_folder, path) = folder_and_pool();
    for options in [small(), small_plain()] {
        let shape = |fixture: &Fixture<CutShort<true>>| {
            let stat = fixture.index.audit().expect("audits").stat;
            (stat.height, stat.inner_nodes, stat.leaves)
        };
        let fresh = |records: u64| {
            let _ = std::fs::remove_file(&path);
            let fixture = Fixture::<CutShort<true>>::create(&path, POOL_BYTES, options);
            (0..records).for_each(|number| {
                fixture.index.insert(&key(number), &value(number)).expect("inserts");
            });
            fixture
        };
        // The inserts and the removes that change the number of pages.
        let fixture = fresh(0);
        let (mut growing, mut shrinking) = (Vec::new(), Vec::new());
        for number in 0..160 {
            let before = shape(&fixture);
            fixture.index.insert(&key(number), &value(number)).expect("inserts");
            if shape(&fixture) != before {
                growing.push(number);
            }
        }
        for number in (0..160).rev() {
            let before = shape(&fixture);
            assert!(fixture.index.remove(&key(number)).expect("removes"));
            if shape(&fixture) != before {
                shrinking.push(number);
            }
        }
        drop(fixture);
        assert!(growing.len() > 3 && shrinking.len() > 1, "{growing:?} {shrinking:?}");
        let last = |list: &[u64]| list[list.len() - 1];
        for (removes, number) in [
            (false, growing[1]),
            (false, last(&growing)),
            (true, shrinking[0]),
            (true, last(&shrinking)),
        ] {
            let prepare = || {
                let fixture = fresh(if removes { 160 } else { number });
                if removes {
                    for above in (number + 1..160).rev() {
                        assert!(fixture.index.remove(&key(above)).expect("removes"));
                    }
                }
                fixture
            };
            let act = |fixture: &Fixture<CutShort<true>>| match removes {
                true => assert!(fixture.index.remove(&key(number)).expect("removes")),
                false => fixture.index.insert(&key(number), &value(number)).expect("inserts"),
            };
            let whole = prepare();
            let (_, writes) = count_writes(|| act(&whole));
            drop(whole);
            for cut in (0..writes).step_by(writes as usize / 12 + 1) {
                let fixture = prepare();
                let done = kill_after(cut, || act(&fixture)).is_some();
                abandon(fixture);
                let fixture = Fixture::<CutShort<true>>::reopen(&path);
                check(&fixture);
                let is_there = fixture.index.get(&key(number)).expect("reads").is_some();
                assert!(!done || is_there != removes, "an acknowledged write is lost");
                assert_eq!(dump(&fixture.index).len() as u64, number + u64::from(is_there));
                // It can be used.
                fixture.index.upsert(&key(number), b"new").expect("writes");
                assert!(fixture.index.remove(&key(number)).expect("removes"));
                check(&fixture);
            }
        }
    }
}

/// Class 10: a full pool refuses writes and changes nothing; a refused write leaks nothing; there
/// is room again when something is freed.
#[test]
fn a_full_pool_refuses_and_has_room_again() {
    for options in [small(), small_plain()] {
        let fixture = Fixture::<Adr>::in_file(options);
        for number in 0..100 {
            fixture.index.insert(&key(number), &value(number)).expect("inserts");
        }
        let before = dump(&fixture.index);
        refuse(Resource::Block, 0, u64::MAX, || {
            let mut refused = 0;
            for number in 100..200 {
                match fixture.index.insert(&key(number), &value(number)) {
                    Ok(()) => assert!(fixture.index.get(&key(number)).expect("reads").is_some()),
                    Err(error) => {
                        assert!(error.to_string().contains("the pool is full"), "{error}");
                        assert!(fixture.index.get(&key(number)).expect("reads").is_none());
                        refused += 1;
                    }
                }
            }
            assert!(refused > 80, "{refused}");
        });
        check(&fixture);
        assert!(before.iter().all(|(key, value)| {
            fixture.index.get(key).expect("reads").as_ref() == Some(value)
        }));
        fixture.index.upsert(b"new", b"value").expect("there is room again");
        for number in 0..100 {
            assert!(fixture.index.remove(&key(number)).expect("removes"));
        }
        check(&fixture);
    }
}

/// Class 6: each allocation of a write fails once; the tree stays consistent, and the write takes
/// place or does not.
#[test]
fn each_allocation_that_fails_changes_nothing() {
    for options in [small(), small_plain()] {
        let fixture = Fixture::<Process, BwTrees>::anonymous(options);
        for number in 0..200 {
            let name = key(number * 7 % 200);
            let mut is_there = false;
            for failing in 0.. {
                let (done, was_refused) = refuse(Resource::Block, failing, 1, || {
                    fixture.index.upsert(&name, &value(number))
                });
                // A refusal after the write itself, in a split, does not affect it.
                is_there |= done.is_ok();
                let found = fixture.index.get(&name).expect("reads");
                assert_eq!(found, is_there.then(|| value(number)));
                if !was_refused {
                    break;
                }
            }
        }
        check(&fixture);
    }
}

/// Class 9: a scan notices changes of records that it has not returned yet (paper, III.C), also if
/// the leaf was split or merged meanwhile, in both directions.
#[test]
fn a_scan_notices_updates_to_what_it_has_not_returned() {
    let fixture = Fixture::<Process, BwTrees>::anonymous(small());
    let fill = |step: usize, text: &[u8]| {
        for number in (0..200).step_by(step) {
            fixture.index.upsert(&key(number), text).expect("writes");
        }
    };
    for order in [Order::Ascending, Order::Descending] {
        fill(2, b"old");
        let range = KeyRange { low: Bound::Included(key(10)), high: Bound::Excluded(key(190)) };
        let mut cursor = fixture.index.scan(range, order).expect("scans");
        let (first, _) = cursor.next().expect("the next record").expect("a record");
        let first = u64::from_be_bytes(first.try_into().expect("eight bytes"));
        fill(1, b"new");
        let mut found = vec![first];
        while let Some((key, value)) = cursor.next().expect("the next record") {
            assert_eq!(value, b"new");
            found.push(u64::from_be_bytes(key.try_into().expect("eight bytes")));
        }
        let expected: Vec<u64> = match order {
            Order::Ascending => (10..190).collect(),
            Order::Descending => (10..=first).rev().collect(),
        };
        assert_eq!(found, expected);
        for number in 0..200 {
            fixture.index.remove(&key(number)).expect("removes");
        }
    }
}

/// Classes 11 and 12: keys and values that do not fit into a page beside others, and chains of
/// them, stay within bounds.
#[test]
fn pages_of_the_longest_keys_are_split_and_merged() {
    let fixture = Fixture::<Process, BwTrees>::anonymous(Options::default());
    let long = |number: u64| [vec![b'k'; 32 * 1024 - 8], key(number)].concat();
    for number in 0..60 {
        fixture.index.insert(&long(number * 11 % 60), &vec![7; 1024]).expect("inserts");
    }
    check(&fixture);
    let stat = fixture.index.audit().expect("audits").stat;
    assert!(stat.height < 8, "height {}", stat.height);
    for number in 0..60 {
        assert!(fixture.index.remove(&long(number)).expect("removes"));
    }
    check(&fixture);
    assert!(fixture.index.is_empty().expect("reads"));
}

/// A dropped tree gives back every block, also with deep levels and values in blocks.
#[test]
fn a_dropped_tree_leaves_nothing() {
    fn drop_one<K: IndexKind<Options = Options>>(options: Options) {
        let fixture = Fixture::<Process, K>::anonymous(options);
        for number in 0..3_000 {
            fixture.index.insert(&key(number * 7919 % 3_000), &value(number)).expect("inserts");
        }
        fixture.drop_map(NAME);
        let mut left = 0;
        fixture
            .pool
            .visit_active(&mut |_| {
                left += 1;
                std::ops::ControlFlow::Continue(())
            })
            .expect("a slot");
        assert_eq!(left, 0, "blocks are left");
    }
    drop_one::<BwTrees>(small());
    drop_one::<BwTrees>(small_plain());
    drop_one::<CasBwTrees>(Options::default());
}
