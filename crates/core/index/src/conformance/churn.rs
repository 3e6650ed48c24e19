//! The same work many times: it shows leaks, and structures that only grow or degrade.

use super::compare::{BOTH_ORDERS, agree, collect, same_content};
use super::random::Random;
use super::reference::Reference;
use super::stamped::{stamp_of, stamped};
use super::trial::Trial;
use crate::{Error, KeyRange, RangeIndex};

/// A public implementation fails an assertion of its own here.
pub(super) fn one_key_inserted_and_removed(trial: &mut Trial<'_>) {
    let count = trial.scaled(100_000) as u64;
    trial.on_fresh_index(|index, _| {
        index.insert(b"neighbour", b"stays").expect("insert");
        for round in 0..count {
            let value = round.to_le_bytes();
            index.insert(b"key", &value).expect("insert");
            if round % 16 == 0 {
                assert!(matches!(index.insert(b"key", b"other"), Err(Error::KeyExists)));
                assert_eq!(index.get(b"key").expect("get").as_deref(), Some(&value[..]));
            }
            assert!(index.remove(b"key").expect("remove"), "round {round}");
            if round % 16 == 0 {
                assert!(!index.remove(b"key").expect("remove"), "round {round}");
                assert_eq!(index.get(b"key").expect("get"), None);
                assert_eq!(index.len().expect("len"), 1);
            }
        }
        assert_eq!(index.get(b"neighbour").expect("get"), Some(b"stays".to_vec()));
    });
}

pub(super) fn one_key_updated(trial: &mut Trial<'_>) {
    let count = trial.scaled(60_000) as u64;
    trial.on_fresh_index(|index, random| {
        index.insert(b"key", &stamped(0, 8)).expect("insert");
        for round in 1..=count {
            let length = match round % 512 {
                0 => 12_000,
                1..64 => 8 + random.below(200),
                _ => 8,
            };
            let value = stamped(round, length);
            if round % 2 == 0 {
                index.update(b"key", &value).expect("update");
            } else {
                index.upsert(b"key", &value).expect("upsert");
            }
            if round % 64 == 0 {
                let found = index.get(b"key").expect("get").expect("the key is there");
                assert_eq!((stamp_of(&found), found.len()), (round, length));
                assert_eq!(index.len().expect("len"), 1);
            }
        }
    });
}

/// The order in which keys are inserted or removed.
#[derive(Clone, Copy, Debug)]
enum Sequence {
    Ascending,
    Descending,
    Random,
}

impl Sequence {
    const ALL: [Self; 3] = [Self::Ascending, Self::Descending, Self::Random];

    fn numbers(self, count: u64, random: &mut Random) -> Vec<u64> {
        let mut numbers: Vec<u64> = (0..count).collect();
        match self {
            Self::Ascending => {}
            Self::Descending => numbers.reverse(),
            Self::Random => random.shuffle(&mut numbers),
        }
        numbers
    }
}

/// Inserts all keys, removes all, and inserts all again, in every pair of orders: an emptied index
/// works like a new one.
pub(super) fn filled_and_emptied(trial: &mut Trial<'_>) {
    let count = trial.scaled(2_000) as u64;
    trial.on_fresh_index(|index, random| {
        for filling in Sequence::ALL {
            for emptying in Sequence::ALL {
                let model = Reference::with_limits(index.limits());
                for number in filling.numbers(count, random) {
                    let (key, value) = (number.to_be_bytes(), number.to_le_bytes());
                    index.insert(&key, &value).expect("insert");
                    model.insert(&key, &value).expect("model");
                }
                agree(same_content(index, &model));
                for number in emptying.numbers(count, random) {
                    let key = number.to_be_bytes();
                    assert!(index.remove(&key).expect("remove"), "{emptying:?} {number}");
                    model.remove(&key).expect("model");
                    if number == count / 2 {
                        agree(same_content(index, &model));
                    }
                }
                agree(same_content(index, &model));
            }
        }
    });
}

/// Long runs of deleted records, scanned on a small stack: no recursion for each record or leaf.
pub(super) fn scans_over_an_emptied_index(trial: &mut Trial<'_>) {
    const STACK_BYTES: usize = 256 << 10;
    let count = trial.scaled(20_000) as u64;
    trial.on_fresh_index(|index, _| {
        for number in 0..count {
            index.insert(&number.to_be_bytes(), b"value").expect("insert");
        }
        for number in 0..count {
            assert!(index.remove(&number.to_be_bytes()).expect("remove"));
        }
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            let thread = builder.spawn_scoped(scope, || scan_the_empty_index(index, count));
            let joined = thread.expect("start a thread").join();
            joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        // One record at each end: the scans must pass all empty leaves between them.
        for number in [0, count] {
            index.insert(&number.to_be_bytes(), b"value").expect("insert");
        }
        for order in BOTH_ORDERS {
            assert_eq!(collect(index, &KeyRange::all(), order).expect("scan").len(), 2);
        }
    });
}

fn scan_the_empty_index(index: &dyn RangeIndex, count: u64) {
    assert!(index.is_empty().expect("is_empty"));
    assert_eq!(index.len().expect("len"), 0);
    for low in [0, count / 3, count - 1] {
        for order in BOTH_ORDERS {
            let high = low + count / 2;
            for range in [
                KeyRange::all(),
                KeyRange::from(&low.to_be_bytes()..),
                KeyRange::between(&low.to_be_bytes(), &high.to_be_bytes()),
            ] {
                assert_eq!(collect(index, &range, order).expect("scan"), []);
            }
        }
    }
    for number in (0..count).step_by(97) {
        assert_eq!(index.get(&number.to_be_bytes()).expect("get"), None);
        assert!(!index.remove(&number.to_be_bytes()).expect("remove"));
    }
}
