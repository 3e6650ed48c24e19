//! Inserts and removes by many threads, whose results must add up.

use std::sync::atomic::{AtomicI64, Ordering};

use super::compare::{agree, keys, same, same_content};
use super::race::race;
use super::random::Random;
use super::reference::Reference;
use super::stamped::{LENGTHS, stamp_of, stamped};
use super::trial::Trial;
use crate::{Error, KeyRange, Order, RangeIndex};

/// The keys of different threads are all present after their inserts, in every pattern of keys.
pub(super) fn disjoint_inserts(trial: &mut Trial<'_>) {
    let each = trial.scaled(3_000) as u64;
    for threads in [4_u64, 8] {
        for pattern in 0..3 {
            let each = each * 4 / threads;
            trial.on_fresh_index(|index, random| {
                race(threads as usize, random, |thread, mut random| {
                    let thread = thread as u64;
                    let mut numbers: Vec<u64> = match pattern {
                        // Neighbours in every leaf.
                        0 => (0..each).map(|number| number * threads + thread).collect(),
                        // One region for each thread.
                        1 => (0..each).map(|number| thread * each + number).collect(),
                        _ => (0..each).map(|number| number * threads + thread).collect(),
                    };
                    if pattern == 2 {
                        random.shuffle(&mut numbers);
                    }
                    for number in numbers {
                        index.insert(&number.to_be_bytes(), &number.to_le_bytes()).expect("insert");
                    }
                });
                let model = Reference::with_limits(index.limits());
                for number in 0..threads * each {
                    model.insert(&number.to_be_bytes(), &number.to_le_bytes()).expect("model");
                }
                agree(same_content(index, &model));
            });
        }
    }
}

/// When all threads insert the same keys, one insert of each key succeeds, and its value stays.
pub(super) fn same_inserts(trial: &mut Trial<'_>) {
    let count = trial.scaled(4_000) as u64;
    for shuffled in [false, true] {
        trial.on_fresh_index(|index, random| {
            let mut numbers: Vec<u64> = (0..count).collect();
            if shuffled {
                random.shuffle(&mut numbers);
            }
            let won = race(4, random, |thread, mut random| {
                let mut won = Vec::new();
                for &number in &numbers {
                    let value = stamped(thread as u64, LENGTHS[random.below(4)]);
                    match index.insert(&number.to_be_bytes(), &value) {
                        Ok(()) => won.push((number, value)),
                        Err(Error::KeyExists) => {}
                        Err(error) => panic!("insert: {error}"),
                    }
                }
                won
            });
            let model = Reference::with_limits(index.limits());
            for (number, value) in won.into_iter().flatten() {
                let inserted = model.insert(&number.to_be_bytes(), &value);
                assert!(inserted.is_ok(), "two inserts of {number} succeeded");
            }
            assert_eq!(model.len().expect("model"), count, "keys that no insert succeeded for");
            agree(same_content(index, &model));
        });
    }
}

/// When all threads remove the same keys, one remove of each key finds it.
pub(super) fn same_removes(trial: &mut Trial<'_>) {
    let count = trial.scaled(4_000) as u64;
    for backwards in [false, true] {
        trial.on_fresh_index(|index, random| {
            for number in 0..count {
                index.insert(&number.to_be_bytes(), &[1; 16]).expect("insert");
            }
            let removed = race(4, random, |thread, _| {
                // Half of the threads start at the other end, so that they meet in the middle.
                let opposite = backwards && thread % 2 == 1;
                let number = |step| if opposite { count - 1 - step } else { step };
                let removed = (0..count)
                    .map(number)
                    .filter(|number| index.remove(&number.to_be_bytes()).expect("remove"));
                removed.collect::<Vec<u64>>()
            });
            let mut removed: Vec<u64> = removed.into_iter().flatten().collect();
            removed.sort_unstable();
            assert!(removed.is_sorted_by(|left, right| left < right), "a key removed twice");
            assert_eq!(removed.len() as u64, count, "keys that no remove found");
            assert!(index.is_empty().expect("is_empty"));
        });
    }
}

/// All threads insert and remove the same few keys. For each key, the successful inserts minus the
/// successful removes give its presence at the end.
pub(super) fn insert_and_remove(trial: &mut Trial<'_>) {
    const KEYS: usize = 5;
    let each = trial.scaled(25_000);
    trial.on_fresh_index(|index, random| {
        let balances: [AtomicI64; KEYS] = Default::default();
        race(4, random, |thread, mut random| {
            for step in 0..each {
                let number = random.below(KEYS);
                let key = [b'k', number as u8];
                match random.below(8) {
                    0..3 => match index.insert(&key, &stamped(step as u64, *random.pick(&LENGTHS)))
                    {
                        Ok(()) => _ = balances[number].fetch_add(1, Ordering::SeqCst),
                        Err(Error::KeyExists) => {}
                        Err(error) => panic!("insert: {error}"),
                    },
                    3..6 => {
                        if index.remove(&key).expect("remove") {
                            balances[number].fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                    // Updates do not change the balance, but must not insert removed keys.
                    6 => match index.update(&key, &stamped(thread as u64, 8)) {
                        Ok(()) | Err(Error::KeyNotFound) => {}
                        Err(error) => panic!("update: {error}"),
                    },
                    _ => {
                        index.read(&key, &mut |value| _ = stamp_of(value)).expect("read");
                    }
                }
            }
        });
        let present = keys(index, &KeyRange::all(), Order::Ascending);
        for (number, balance) in balances.iter().enumerate() {
            let key = [b'k', number as u8];
            let balance = balance.load(Ordering::SeqCst);
            let found = index.get(&key).expect("get").is_some();
            assert_eq!(i64::from(found), balance, "key {number}: inserts less removes");
            assert_eq!(present.iter().any(|seen| seen[..] == key), found, "scan against get");
        }
        assert_eq!(index.len().expect("len"), present.len() as u64);
    });
}

/// Each thread works on keys of its own, next to those of other threads in every leaf, and compares
/// each result with a model of its own. Splits and merges by other threads must not change a
/// result.
pub(super) fn private_models(trial: &mut Trial<'_>) {
    const THREADS: usize = 4;
    let phases = trial.scaled(32);
    trial.on_fresh_index(|index, random| {
        let models = race(THREADS, random, |thread, mut random| {
            let model = Reference::with_limits(index.limits());
            for phase in 0..phases {
                private_phase(index, &model, thread as u64, phase, &mut random);
            }
            model
        });
        let union = Reference::with_limits(index.limits());
        for model in &models {
            let mut cursor = model.scan(KeyRange::all(), Order::Ascending).expect("model");
            while let Some((key, value)) = cursor.next().expect("model") {
                union.insert(key, value).expect("the keys of two threads are different");
            }
        }
        agree(same_content(index, &union));
    });

    fn private_phase(
        index: &dyn RangeIndex,
        model: &Reference,
        thread: u64,
        phase: usize,
        random: &mut Random,
    ) {
        // Phases that mostly insert and phases that mostly remove, so that leaves split and merge.
        let growing = phase.is_multiple_of(2);
        for step in 0..1_200_u64 {
            let number = random.below(600) as u64 * THREADS as u64 + thread;
            let key = number.to_be_bytes();
            let value = stamped(step, LENGTHS[random.below(if step % 64 == 0 { 7 } else { 3 })]);
            agree(match random.below(10) {
                0..5 if growing => {
                    same("insert", index.insert(&key, &value), model.insert(&key, &value))
                }
                0..6 => same("remove", index.remove(&key), model.remove(&key)),
                6 => same("update", index.update(&key, &value), model.update(&key, &value)),
                7 => same("upsert", index.upsert(&key, &value), model.upsert(&key, &value)),
                8 => {
                    let expected = model.get(&key).expect("model").unwrap_or_default();
                    same(
                        "compare_exchange",
                        index.compare_exchange(&key, &expected, &value),
                        model.compare_exchange(&key, &expected, &value),
                    )
                }
                _ => same("get", index.get(&key), model.get(&key)),
            });
        }
    }
}
