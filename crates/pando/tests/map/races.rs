//! Many threads on one map: the calls that promise to be one step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use pando::{Error, Map};

use crate::common::{Kept, kinds};

const THREADS: u64 = 4;

/// Calls `test` with a map of each kind.
fn of_each_kind(test: impl Fn(&Kept)) {
    kinds().into_iter().for_each(|kind| test(&kind()));
}

/// Calls `work` on as many threads, with their numbers, and returns the results.
fn on_threads<T: Send>(work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

/// Pops as `pop` does until there is no record; each record comes to one thread, and in order on
/// each thread, because none is inserted.
fn drain(name: &str, map: &Map, is_first: bool) {
    const RECORDS: u64 = 1_500;
    (0..RECORDS).for_each(|at| map.put(at.to_be_bytes(), (at * 3).to_be_bytes()).expect("fits"));
    let popped = on_threads(|_| {
        let mut own = Vec::new();
        let pop = || if is_first { map.pop_first() } else { map.pop_last() };
        while let Some((key, value)) = pop().expect("pops") {
            assert_eq!(number(&value), number(&key) * 3, "{name}");
            own.push(number(&key));
        }
        own
    });
    for own in &popped {
        let is_in_order = match is_first {
            true => own.is_sorted_by(|left, right| left < right),
            false => own.is_sorted_by(|left, right| left > right),
        };
        assert!(is_in_order, "{name}");
    }
    let mut all = popped.concat();
    all.sort_unstable();
    assert_eq!(all, (0..RECORDS).collect::<Vec<_>>(), "{name}");
    assert!(map.is_empty().expect("reads"), "{name}");
}

#[test]
fn each_record_is_popped_once() {
    of_each_kind(|Kept { name, map, .. }| {
        drain(name, map, true);
        drain(name, map, false);
    });
}

/// Each value is written once and replaced once, so each is returned once, but the last.
#[test]
fn each_old_value_is_returned_once_by_swaps_and_takes() {
    const SWAPS: u64 = 400;
    of_each_kind(|Kept { name, map, .. }| {
        let returned = on_threads(|thread| {
            let mut own = Vec::new();
            for swap in 0..SWAPS {
                let value = (thread * SWAPS + swap).to_be_bytes();
                own.extend(map.swap("key", value).expect("fits"));
                if swap % 3 == 0 {
                    own.extend(map.take("key").expect("removes"));
                }
            }
            own
        });
        let mut all: Vec<_> = returned.iter().flatten().map(|value| number(value)).collect();
        all.extend(map.take("key").expect("removes").as_deref().map(number));
        all.sort_unstable();
        assert_eq!(all, (0..THREADS * SWAPS).collect::<Vec<_>>(), "{name}");
    });
}

/// A failed exchange returns the value that the next one expects: a counter loses no step.
#[test]
fn exchanges_go_on_from_the_actual_value() {
    const STEPS: u64 = 300;
    of_each_kind(|Kept { name, map, .. }| {
        map.put("count", 0_u64.to_be_bytes()).expect("fits");
        on_threads(|_| {
            let mut expected = 0;
            for _ in 0..STEPS {
                loop {
                    let new = expected + 1_u64;
                    let (old, next) = (expected.to_be_bytes(), new.to_be_bytes());
                    match map.compare_exchange("count", old, next) {
                        Ok(()) => {
                            expected = new;
                            break;
                        }
                        Err(Error::ValueMismatch { actual }) => {
                            assert!(number(&actual) > expected, "{name}");
                            expected = number(&actual);
                        }
                        Err(error) => panic!("{name}: {error}"),
                    }
                }
            }
        });
        let count = map.get("count").expect("reads").expect("it is there");
        assert_eq!(number(&count), THREADS * STEPS, "{name}");
    });
}

#[test]
fn entries_are_one_step() {
    const STEPS: u64 = 300;
    of_each_kind(|Kept { name, map, .. }| {
        let inserted = AtomicU64::new(0);
        on_threads(|thread| {
            for step in 0..STEPS {
                let key = (step % 5).to_be_bytes();
                let add = |value: &mut Vec<u8>| {
                    *value = (number(value) + 1).to_be_bytes().to_vec();
                };
                let left = map.entry(key).and_modify(add).or_insert(1_u64.to_be_bytes());
                assert!(number(&left.expect("fits")) <= THREADS * STEPS);
                // One thread inserts each of these keys.
                let own = [b'k', thread as u8];
                let key = [b'n', step as u8];
                let left = map.entry(key).or_insert_with(|| own).expect("fits");
                inserted.fetch_add(u64::from(left == own), Ordering::Relaxed);
            }
        });
        let counts =
            map.range(..5_u64.to_be_bytes()).map(|record| number(&record.expect("reads").1));
        assert_eq!(counts.sum::<u64>(), THREADS * STEPS, "{name}");
        let keys = map.prefix("n").count() as u64;
        assert_eq!(keys, STEPS.min(256));
        // A thread that comes to its own key again finds its own value.
        assert!(inserted.load(Ordering::Relaxed) >= keys, "{name}");
    });
}

/// While others count the values of all keys up, `retain` removes values that it has seen to be
/// odd. So each removed value was seen, and each writer finds an even value or none.
#[test]
fn retain_removes_no_value_that_it_has_not_seen() {
    const KEYS: u64 = 40;
    of_each_kind(|Kept { name, map, .. }| {
        let key = |at: u64| at.to_be_bytes();
        let is_enough = AtomicBool::new(false);
        let removed = thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|thread| {
                    let is_enough = &is_enough;
                    scope.spawn(move || {
                        let mut removed = 0;
                        let mut present = BTreeMap::new();
                        for step in 0_u64.. {
                            // Relaxed: a late view only writes a little more.
                            if is_enough.load(Ordering::Relaxed) && step > 2_000 {
                                break;
                            }
                            let at = (step * 7 % KEYS) * 2 + thread;
                            // Only this thread writes the key; the value says so much.
                            let value = step.to_be_bytes();
                            let old = map.swap(key(at), value).expect("fits");
                            match (old, present.insert(at, step)) {
                                (Some(old), before) => assert_eq!(Some(number(&old)), before),
                                (None, Some(before)) => {
                                    assert_eq!(before % 2, 1, "{name}: not to be removed");
                                    removed += 1;
                                }
                                (None, None) => {}
                            }
                        }
                        (removed, present)
                    })
                })
                .collect();
            let (mut seen, mut count) = (BTreeSet::new(), 0);
            for _ in 0..20 {
                count += map
                    .retain(|key, value| {
                        let is_odd = number(value) % 2 == 1;
                        if is_odd {
                            seen.insert((key.to_vec(), number(value)));
                        }
                        !is_odd
                    })
                    .expect("removes");
            }
            is_enough.store(true, Ordering::Relaxed);
            let writers = writers.into_iter().map(|writer| writer.join().expect("no panic"));
            let mut found = 0;
            for (removed, present) in writers {
                found += removed;
                for (at, value) in present {
                    match map.get(key(at)).expect("reads") {
                        Some(left) => assert_eq!(number(&left), value),
                        None => {
                            assert!(seen.contains(&(key(at).to_vec(), value)), "{name}");
                            found += 1;
                        }
                    }
                }
            }
            assert_eq!(found, count, "{name}");
            count
        });
        println!("{name}: {removed} removed");
    });
}

/// `clear` removes what is there before it, while others insert.
#[test]
fn clear_removes_what_was_there_before() {
    of_each_kind(|Kept { name, map, .. }| {
        (0..1_000_u64).for_each(|at| map.put(at.to_be_bytes(), "old").expect("fits"));
        thread::scope(|scope| {
            scope.spawn(|| {
                (0..500_u64)
                    .for_each(|at| map.put((at * 5 + 10_000).to_be_bytes(), "new").expect("fits"));
            });
            assert!(map.clear().expect("removes") >= 1_000, "{name}");
        });
        assert_eq!(map.range(..10_000_u64.to_be_bytes()).count(), 0, "{name}");
    });
}

/// Keys that stay are found by scans from both ends, once each, while others come and go.
#[test]
fn scans_from_both_ends_find_all_that_stays() {
    const KEYS: u64 = 600;
    of_each_kind(|Kept { name, map, .. }| {
        let is_enough = AtomicBool::new(false);
        (0..KEYS).for_each(|at| map.put((at * 2).to_be_bytes(), "stays").expect("fits"));
        thread::scope(|scope| {
            for thread in 0..2 {
                let is_enough = &is_enough;
                scope.spawn(move || {
                    for step in 0_u64.. {
                        if is_enough.load(Ordering::Relaxed) {
                            break;
                        }
                        let key = ((step * 7 + thread) % KEYS * 2 + 1).to_be_bytes();
                        match step % 3 {
                            0 => drop(map.remove(key).expect("removes")),
                            _ => map.put(key, vec![7; (step % 50) as usize]).expect("fits"),
                        }
                    }
                });
            }
            for round in 0..12 {
                let (mut scan, mut front, mut back) = (map.range(..), Vec::new(), Vec::new());
                for step in 0.. {
                    let is_front = (step * (round + 3)) % 5 < 2;
                    let next = if is_front { scan.next() } else { scan.next_back() };
                    let Some(record) = next else { break };
                    let ends = if is_front { &mut front } else { &mut back };
                    ends.push(number(&record.expect("reads").0));
                }
                assert!(scan.next().is_none() && scan.next_back().is_none());
                back.reverse();
                front.append(&mut back);
                assert!(front.is_sorted_by(|left, right| left < right), "{name}");
                let stays = front.iter().filter(|key| **key % 2 == 0).count() as u64;
                assert_eq!(stays, KEYS, "{name}");
            }
            is_enough.store(true, Ordering::Relaxed);
        });
    });
}

/// In a transaction the first record is first when it is removed.
#[test]
fn a_transaction_pops_the_first_record_of_its_instant() {
    const ROUNDS: u64 = 200;
    for kind in kinds().into_iter().filter(|kind| kind().map.is_transactional()) {
        let kept = kind();
        let (map, pool) = (&kept.map, &kept.pool);
        // Each round inserts a smaller key than all before, so a key that was passed over stays.
        let popped = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while popped.load(Ordering::Relaxed) < ROUNDS {
                        let first = pool.transaction(|tx| {
                            let Some((key, _)) = tx.pop_first(map)? else { return Ok(None) };
                            // If it finds one, the commit fails.
                            let smaller = tx.range(map, ..&key).next().transpose()?;
                            Ok::<_, Error>(Some(smaller))
                        });
                        let first = first.expect("commits");
                        assert!(first.as_ref().is_none_or(Option::is_none), "{}", kept.name);
                        popped.fetch_add(u64::from(first.is_some()), Ordering::Relaxed);
                    }
                });
            }
            (0..ROUNDS).rev().for_each(|at| map.put(at.to_be_bytes(), "").expect("fits"));
        });
        assert!(map.is_empty().expect("reads"), "{}", kept.name);
        assert_eq!(popped.load(Ordering::Relaxed), ROUNDS, "{}", kept.name);
    }
}
