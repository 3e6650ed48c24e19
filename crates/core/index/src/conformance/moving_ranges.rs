//! Scans of ranges while writers split and merge the leaves.
//!
//! Of every eight consecutive numbers, the first is a key that stays as it is, and the second is a
//! key that is updated all the time. The next four are inserted and removed, and the last two are
//! never keys. Every scan must return all keys of the first two kinds once, in order, and none of
//! the last.

use std::ops::Bound;

use super::compare::{BOTH_ORDERS, agree, same_content};
use super::race::{Together, Worker, race};
use super::random::Random;
use super::reference::Reference;
use super::stamped::{stamp_of, stamped};
use super::trial::Trial;
use crate::{KeyRange, Order, RangeIndex};

const GROUP: u64 = 8;
const UPDATED: u64 = 1;
/// The numbers of a group that are inserted and removed; each of the two writers owns two.
const COMING_AND_GOING: std::ops::Range<u64> = 2..6;

pub(super) fn ranges_under_writers(trial: &mut Trial<'_>) {
    let groups = 400;
    let scans = trial.scaled(800);
    trial.on_fresh_index(|index, random| {
        let model = Reference::with_limits(index.limits());
        for number in (0..groups).flat_map(|group| [group * GROUP, group * GROUP + UPDATED]) {
            index.insert(&number.to_be_bytes(), &stamped(number, 24)).expect("insert");
            model.insert(&number.to_be_bytes(), &stamped(number, 24)).expect("model");
        }
        let together = Together::new(4);
        let written = race(4, random, |thread, random| {
            if thread < 2 {
                scan(index, groups, together.worker(scans), random);
                return Vec::new();
            }
            write(index, groups, thread as u64 - 2, together.worker(scans / 3), random)
        });
        for number in written.into_iter().flatten() {
            model.insert(&number.to_be_bytes(), &stamped(number, 24)).expect("model");
        }
        // Updated values may have any size.
        for number in (0..groups).map(|group| group * GROUP + UPDATED) {
            index.update(&number.to_be_bytes(), &stamped(number, 24)).expect("update");
        }
        agree(same_content(index, &model));
    });
}

/// Fills whole regions with keys and empties them again; returns the keys that are left at the end.
fn write(
    index: &dyn RangeIndex,
    groups: u64,
    writer: u64,
    mut worker: Worker<'_>,
    mut random: Random,
) -> Vec<u64> {
    let owned = COMING_AND_GOING.start + 2 * writer..COMING_AND_GOING.start + 2 * writer + 2;
    let mut present = vec![false; (groups * GROUP) as usize];
    while worker.goes_on() {
        let width = 1 + random.below(120) as u64;
        let first = random.below(groups as usize) as u64;
        let fill = random.coin();
        let backwards = random.coin();
        let last = (first + width).min(groups);
        for step in 0..last - first {
            let group = if backwards { last - 1 - step } else { first + step };
            for number in owned.clone().map(|offset| group * GROUP + offset) {
                let key = number.to_be_bytes();
                let was_present = std::mem::replace(&mut present[number as usize], fill);
                if fill && !was_present {
                    index.insert(&key, &stamped(number, 24)).expect("insert");
                } else if !fill {
                    assert_eq!(index.remove(&key).expect("remove"), was_present, "{number}");
                }
            }
            let updated = group * GROUP + UPDATED;
            let length = if random.below(50) == 0 { 4_000 } else { 8 + random.below(60) };
            index.update(&updated.to_be_bytes(), &stamped(updated, length)).expect("update");
        }
    }
    (0..groups * GROUP).filter(|&number| present[number as usize]).collect()
}

fn scan(index: &dyn RangeIndex, groups: u64, mut worker: Worker<'_>, mut random: Random) {
    while worker.goes_on() {
        let order = *random.pick(&BOTH_ORDERS);
        let mut end = || {
            let number = random.below((groups * GROUP) as usize + 20) as u64;
            match random.below(3) {
                0 => Bound::Included(number),
                1 => Bound::Excluded(number),
                _ => Bound::Unbounded,
            }
        };
        let (low, high) = (end(), end());
        let bytes = |bound: &Bound<u64>| bound.map(|number| number.to_be_bytes().to_vec());
        let range = KeyRange { low: bytes(&low), high: bytes(&high) };
        look_through(index, groups, &range, order);
        // A read must find each key that a scan must find.
        let number = random.below(groups as usize) as u64 * GROUP + random.below(2) as u64;
        let mut stamp = None;
        index
            .read(&number.to_be_bytes(), &mut |value| stamp = Some(stamp_of(value)))
            .expect("read");
        assert_eq!(stamp, Some(number), "a read missed a key that was there throughout");
    }
}

/// One scan, with a check of every record.
fn look_through(index: &dyn RangeIndex, groups: u64, range: &KeyRange, order: Order) {
    let mut seen = Vec::new();
    let mut cursor = index.scan(range.clone(), order).expect("scan");
    if order == Order::Ascending {
        cursor.expect(usize::MAX);
    }
    while let Some((key, value)) = cursor.next().expect("next") {
        assert!(range.contains(key), "{order:?} {range:?} escaped to {key:?}");
        let number = u64::from_be_bytes(key.try_into().expect("a key of 8 bytes"));
        assert!(number % GROUP < COMING_AND_GOING.end, "{number} was never inserted");
        assert_eq!(stamp_of(value), number, "the value of another key");
        seen.push(number);
    }
    match order {
        Order::Ascending => assert!(seen.is_sorted_by(|left, right| left < right), "{seen:?}"),
        Order::Descending => assert!(seen.is_sorted_by(|left, right| left > right), "{seen:?}"),
    }
    let throughout = |number: &u64| number % GROUP <= UPDATED;
    let mut found: Vec<u64> = seen.into_iter().filter(throughout).collect();
    if order == Order::Descending {
        found.reverse();
    }
    let expected = (0..groups * GROUP).filter(throughout);
    let expected: Vec<u64> =
        expected.filter(|number| range.contains(&number.to_be_bytes())).collect();
    if let Some(missed) = expected.iter().find(|number| found.binary_search(number).is_err()) {
        panic!("{order:?} {range:?} missed {missed}, which was there throughout");
    }
    assert_eq!(found.len(), expected.len());
}
