//! Upserts and removes of many records by one call: as by single calls, alone and beside other
//! writers.

use std::sync::atomic::{AtomicU64, Ordering};

use super::compare::{agree, same_content};
use super::race::race;
use super::random::Random;
use super::reference::Reference;
use super::stamped::{LENGTHS, stamp_of, stamped};
use super::trial::Trial;
use crate::{Error, RangeIndex, Record};

/// Writes the records by one call.
fn upsert(index: &dyn RangeIndex, records: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Error> {
    let lent: Vec<Record<'_>> =
        records.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
    index.upsert_many(&lent)
}

/// Removes the keys by one call; returns how many were present.
fn remove(index: &dyn RangeIndex, keys: &[[u8; 8]]) -> Result<u64, Error> {
    let lent: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    index.remove_many(&lent)
}

/// Some of the keys below `end`, absent ones and repeated ones among them.
fn some_keys(random: &mut Random, end: usize) -> Vec<[u8; 8]> {
    let mut numbers: Vec<usize> = (0..random.below(40)).map(|_| random.below(2 * end)).collect();
    numbers.extend_from_within(..numbers.len() / 3);
    numbers.into_iter().map(|number| (number as u64).to_be_bytes()).collect()
}

/// Batches whose keys ascend behind all others, or among them, or are in any order, with repeated
/// keys; and removes in between.
pub(super) fn like_single_upserts(trial: &mut Trial<'_>) {
    let batches = trial.scaled(120) as u64;
    for value_bytes in [Some(8), None] {
        trial.on_fresh_index(|index, random| {
            let model = Reference::with_limits(index.limits());
            let mut end = 0;
            for batch in 0..batches {
                // A few of them fill several leaves.
                let most = if random.below(8) == 0 { 300 } else { 60 };
                let count = 1 + random.below(most) as u64;
                let from = match random.below(3) {
                    0 => random.below(end as usize + 1) as u64,
                    _ => end,
                };
                let mut numbers: Vec<u64> = (from..from + count).map(|number| number * 2).collect();
                match random.below(4) {
                    0 => random.shuffle(&mut numbers),
                    1 => numbers.extend_from_within(..numbers.len() / 2),
                    _ => {}
                }
                end = end.max(from + count);
                let records: Vec<_> = numbers
                    .iter()
                    .map(|number| {
                        let bytes = value_bytes.unwrap_or_else(|| LENGTHS[random.below(4)].max(8));
                        (number.to_be_bytes().to_vec(), stamped(batch, bytes))
                    })
                    .collect();
                upsert(index, &records).expect("upserts");
                records.iter().for_each(|(key, value)| {
                    model.upsert(key, value).map(drop).expect("model");
                });
                for _ in 0..random.below(40) {
                    let key = (2 * random.below(end as usize) as u64).to_be_bytes();
                    let removed = index.remove(&key).expect("remove");
                    assert_eq!(removed, model.remove(&key).expect("model"));
                }
                let keys = some_keys(random, end as usize);
                let removed = remove(index, &keys).expect("removes");
                assert_eq!(removed, remove(&model, &keys).expect("model"), "{keys:?}");
            }
            agree(same_content(index, &model));
            let limits = index.limits();
            let long = vec![1; limits.max_key_bytes.saturating_add(1).min(1 << 20)];
            if long.len() > limits.max_key_bytes {
                let refused = upsert(index, &[(long, vec![1; 8])]);
                assert!(matches!(refused, Err(Error::KeyTooLong { .. })), "{refused:?}");
            }
            agree(same_content(index, &model));
        });
    }
}

/// A batch does nothing behind a key that is too long, and all before it. An empty batch is none.
pub(super) fn end_at_an_error(trial: &mut Trial<'_>) {
    let longest = trial.factory.create().index().limits().max_key_bytes;
    if longest >= 1 << 20 {
        return;
    }
    let long = vec![1; longest + 1];
    for (before, behind) in [(0_u64, 1), (3, 20), (15, 1), (16, 1), (20, 40)] {
        trial.on_fresh_index(|index, _| {
            upsert(index, &[]).expect("upserts none");
            assert_eq!(index.remove_many(&[]).expect("removes none"), 0);
            let keys: Vec<_> =
                (0..before + behind).map(|number| number.to_be_bytes().to_vec()).collect();
            let mut records: Vec<_> = keys.iter().map(|key| (key.clone(), vec![2; 8])).collect();
            let is_too_long = |answer: Result<(), Error>| match answer {
                Err(Error::KeyTooLong { found_bytes, max_bytes }) => {
                    assert_eq!((found_bytes, max_bytes), (longest + 1, longest));
                }
                other => panic!("a batch with a key that is too long answered {other:?}"),
            };
            records.insert(before as usize, (long.clone(), vec![2; 8]));
            is_too_long(upsert(index, &records));
            assert_eq!(index.len().expect("len"), before);
            records.remove(before as usize);
            upsert(index, &records).expect("upserts");
            assert_eq!(index.len().expect("len"), before + behind);
            let mut lent: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            lent.insert(before as usize, &long);
            match index.remove_many(&lent) {
                // A key that is too long is absent: an index may return either.
                Ok(removed) => assert_eq!(removed, before + behind),
                refused => {
                    is_too_long(refused.map(drop));
                    assert_eq!(index.len().expect("len"), behind);
                    for key in &keys[before as usize..] {
                        assert!(index.get(key).expect("get").is_some());
                    }
                }
            }
        });
    }
}

/// Threads write the same ascending keys at once, by batches and one by one. Each key then has the
/// last value of one of them. Then all threads remove all keys, and one of them each.
pub(super) fn beside_writers(trial: &mut Trial<'_>) {
    let each = trial.scaled(3_000) as u64;
    trial.on_fresh_index(|index, random| {
        race(4, random, |thread, mut random| {
            let numbers: Vec<u64> = (0..each).collect();
            let mut rest = numbers.as_slice();
            while !rest.is_empty() {
                let (batch, behind) = rest.split_at(rest.len().min(1 + random.below(200)));
                rest = behind;
                let records: Vec<_> = batch
                    .iter()
                    // The last thread writes the keys in between, which no other thread has.
                    .map(|number| if thread == 3 { number * 2 + 1 } else { number * 2 })
                    .map(|number| (number.to_be_bytes().to_vec(), stamped(thread as u64, 8)))
                    .collect();
                match thread {
                    0 | 1 => upsert(index, &records).expect("upserts"),
                    _ => records.iter().for_each(|(key, value)| {
                        index.upsert(key, value).map(drop).expect("upsert");
                    }),
                }
            }
        });
        for number in 0..2 * each {
            let value = index.get(&number.to_be_bytes()).expect("get").expect("is there");
            let writer = stamp_of(&value);
            assert!(if number % 2 == 1 { writer == 3 } else { writer < 3 }, "{number}: {writer}");
        }
        assert_eq!(index.len().expect("len"), 2 * each);
        let removed = AtomicU64::new(0);
        race(4, random, |_, mut random| {
            let mut numbers: Vec<u64> = (0..2 * each).collect();
            // Each thread begins elsewhere.
            numbers.rotate_left(random.below(2 * each as usize));
            let mut rest = numbers.as_slice();
            while !rest.is_empty() {
                let (batch, behind) = rest.split_at(rest.len().min(1 + random.below(60)));
                rest = behind;
                let keys: Vec<_> = batch.iter().map(|number| number.to_be_bytes()).collect();
                // Relaxed: read when all threads have ended.
                removed.fetch_add(remove(index, &keys).expect("removes"), Ordering::Relaxed);
            }
        });
        assert_eq!(removed.into_inner(), 2 * each);
        assert!(index.is_empty().expect("is_empty"));
    });
}
