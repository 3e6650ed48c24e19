//! Cursors that stay open: the index changes meanwhile, and they hold no resource of it.

use super::compare::BOTH_ORDERS;
use super::trial::Trial;
use crate::{KeyRange, Order, RangeIndex};

/// Between two calls of `next`, the same thread splits, merges and empties the leaves around the
/// cursor. Keys ascend (or descend) all the same, keys that stay are returned, and keys that never
/// existed are not.
pub(super) fn cursors_across_changes(trial: &mut Trial<'_>) {
    let count = trial.scaled(1_500) as u64;
    trial.on_fresh_index(|index, random| {
        let key = |stable: u64, offset: u64| (stable * 8 + offset).to_be_bytes();
        for stable in 0..count {
            index.insert(&key(stable, 0), &stable.to_le_bytes()).expect("insert");
        }
        for order in BOTH_ORDERS {
            let mut cursor = index.scan(KeyRange::all(), order).expect("scan");
            let mut seen: Vec<u64> = Vec::new();
            while let Some((key, _)) = cursor.next().expect("next") {
                let number = u64::from_be_bytes(key.try_into().expect("a key of 8 bytes"));
                seen.push(number);
                assert!(number % 8 < 4, "{number} was never inserted");
                // Around the cursor: some leaves ahead, some behind, and most often this one.
                for _ in 0..4 {
                    let near = (number / 8 + 12).saturating_sub(random.below(24) as u64);
                    let offset = 1 + random.below(3) as u64;
                    let noise = (near.min(count) * 8 + offset).to_be_bytes();
                    if random.coin() {
                        index.upsert(&noise, &[7; 40]).expect("upsert");
                    } else {
                        index.remove(&noise).expect("remove");
                    }
                }
                if random.below(100) == 0 {
                    empty_of_noise(index, number / 8, count);
                }
            }
            drop(cursor);
            match order {
                Order::Ascending => assert!(seen.is_sorted_by(|left, right| left < right)),
                Order::Descending => assert!(seen.is_sorted_by(|left, right| left > right)),
            }
            let stable = seen.iter().filter(|&&number| number % 8 == 0).count();
            assert_eq!(stable as u64, count, "{order:?}: keys that stayed and were not seen");
        }
    });
}

fn empty_of_noise(index: &dyn RangeIndex, around: u64, count: u64) {
    for stable in around.saturating_sub(40)..(around + 40).min(count + 1) {
        for offset in 1..4 {
            index.remove(&(stable * 8 + offset).to_be_bytes()).expect("remove");
        }
    }
}

/// A thousand cursors at once stay where they are while the index is emptied and filled again. If
/// each held an epoch, a page or a participant, a resource would run out.
pub(super) fn many_open_cursors(trial: &mut Trial<'_>) {
    let cursors = trial.scaled(1_000);
    trial.on_fresh_index(|index, random| {
        let count = 2_000_u64;
        let fill = |stamp: u64| {
            for number in 0..count {
                index.upsert(&number.to_be_bytes(), &stamp.to_le_bytes()).expect("upsert");
            }
        };
        fill(0);
        let mut open = Vec::new();
        for _ in 0..cursors {
            let order = *random.pick(&BOTH_ORDERS);
            let mut cursor = index.scan(KeyRange::all(), order).expect("scan");
            for _ in 0..random.below(40) {
                assert!(cursor.next().expect("next").is_some());
            }
            open.push((cursor, order));
        }
        for round in 1..4 {
            for number in 0..count {
                assert!(index.remove(&number.to_be_bytes()).expect("remove"));
            }
            fill(round);
        }
        for (mut cursor, order) in open.into_iter().step_by(20) {
            let mut last = None;
            let mut records = 0;
            while let Some((key, _)) = cursor.next().expect("next") {
                let ordered = last.as_deref().is_none_or(|last: &[u8]| match order {
                    Order::Ascending => last < key,
                    Order::Descending => last > key,
                });
                assert!(ordered, "{order:?}: {key:?} after {last:?}");
                last = Some(key.to_vec());
                records += 1;
            }
            // It has copied one batch at most; all records after it exist again.
            assert!(records > 0, "{order:?}: the rest of the index was not seen");
        }
    });
}
