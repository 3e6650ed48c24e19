//! Every kind of range, while no thread writes.

use std::ops::Bound;

use super::bytes::{Bytes, record};
use super::compare::{BOTH_ORDERS, collect, keys};
use super::random::Random;
use super::trial::Trial;
use crate::{Error, KeyRange, Order, RangeIndex};

/// All pairs of kinds of bounds, with ends that are keys, lie between keys, or lie outside, and
/// with the low end above, at and below the high end. The oracle filters a sorted list: it shares
/// no code with the ranges of `BTreeMap` or of [`KeyRange`].
pub(super) fn every_pair_of_bounds(trial: &mut Trial<'_>) {
    let (count, pairs) = (trial.scaled(3_000) as u64, trial.scaled(60));
    trial.on_fresh_index(|index, random| {
        let sorted = fill(index, count, random);
        for _ in 0..pairs {
            let low = end(count, random);
            let high = match random.below(4) {
                0 => low.clone(),
                // Short ranges begin and end in one leaf, or in two neighbours.
                1 | 2 => near(&low, random),
                _ => end(count, random),
            };
            for low in kinds(&low) {
                for high in kinds(&high) {
                    let range = KeyRange { low: low.clone(), high };
                    let mut expected: Vec<_> =
                        sorted.iter().filter(|(key, _)| lies_in(&key.0, &range)).collect();
                    for order in BOTH_ORDERS {
                        let found = collect(index, &range, order).expect("scan");
                        let same = found.iter().eq(expected.iter().copied());
                        assert!(
                            same,
                            "{order:?} {range:?}: {} records instead of {}: {:?}..{:?} instead \
                             of {:?}..{:?}",
                            found.len(),
                            expected.len(),
                            found.first(),
                            found.last(),
                            expected.first(),
                            expected.last(),
                        );
                        expected.reverse();
                    }
                }
            }
        }
    });
}

/// Bounds need not be allowed keys: they may be longer.
pub(super) fn long_bounds(trial: &mut Trial<'_>) {
    trial.on_fresh_index(|index, _| {
        let longest = index.limits().max_key_bytes.min(1 << 20);
        for key in [&b"a"[..], b"b", b"c"] {
            index.insert(key, b"value").expect("insert");
        }
        let after_b = [b"b".as_slice(), &vec![0; longest]].concat();
        for order in BOTH_ORDERS {
            for low in [Bound::Included(after_b.clone()), Bound::Excluded(after_b.clone())] {
                let range = KeyRange { low, high: Bound::Unbounded };
                match index.scan(range.clone(), order) {
                    Ok(_) => assert_eq!(keys(index, &range, order), [b"c"]),
                    // A refusal with this error is also correct.
                    Err(Error::KeyTooLong { .. }) => {}
                    Err(error) => panic!("a long bound: {error}"),
                }
            }
        }
        assert_eq!(keys(index, &KeyRange::prefix(b"b"), Order::Descending), [b"b"]);
    });
}

/// Records in order, with keys of two lengths, so that some are prefixes of others: 3i, big-endian,
/// and for half of them one byte more.
fn fill(index: &dyn RangeIndex, count: u64, random: &mut Random) -> Vec<(Bytes, Bytes)> {
    let mut records: Vec<_> = (0..count)
        .map(|number| {
            let mut key = (3 * (number / 2)).to_be_bytes().to_vec();
            if number % 2 == 1 {
                key.push(number as u8);
            }
            record(&key, &number.to_le_bytes())
        })
        .collect();
    random.shuffle(&mut records);
    for (key, value) in &records {
        index.insert(&key.0, &value.0).expect("insert");
    }
    records.sort();
    records
}

/// An end of a range: often a key, sometimes between two keys, sometimes beyond all keys.
fn end(count: u64, random: &mut Random) -> Vec<u8> {
    let mut key = (random.below(3 * count as usize / 2 + 3) as u64).to_be_bytes().to_vec();
    match random.below(12) {
        0 => Vec::new(),
        1 => vec![0xFF; 9],
        2..5 => {
            key.push(random.next() as u8);
            key
        }
        _ => key,
    }
}

/// An end shortly after or before `low`.
fn near(low: &[u8], random: &mut Random) -> Vec<u8> {
    let Some(number) = low.first_chunk::<8>() else { return vec![0; 8] };
    let number = u64::from_be_bytes(*number);
    number.saturating_add(random.below(60) as u64).saturating_sub(4).to_be_bytes().to_vec()
}

fn kinds(end: &[u8]) -> [Bound<Vec<u8>>; 3] {
    [Bound::Included(end.to_vec()), Bound::Excluded(end.to_vec()), Bound::Unbounded]
}

fn lies_in(key: &[u8], range: &KeyRange) -> bool {
    let (too_low, too_high) = (
        match &range.low {
            Bound::Included(low) => key < &low[..],
            Bound::Excluded(low) => key <= &low[..],
            Bound::Unbounded => false,
        },
        match &range.high {
            Bound::Included(high) => key > &high[..],
            Bound::Excluded(high) => key >= &high[..],
            Bound::Unbounded => false,
        },
    );
    !too_low && !too_high
}
