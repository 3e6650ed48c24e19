//! Trees whose keys and values have eight bytes each.

use std::collections::BTreeMap;
use std::ops::Bound;

use pando_index::random::Random;
use pando_index::{Error, KeyRange, Order, RangeIndex, Upserted};
use pando_pmem::{Adr, Domain, Process};
use pando_wbtree::{NodeKind, Options, RecordBytes};

use crate::common::{Fixture, Records, check, dump, small_fixed};

const KINDS: [NodeKind; 3] = [NodeKind::SlotBitmap, NodeKind::BitmapOnly, NodeKind::SlotOnly];

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Random operations against a map, on so few keys that nodes split and merge all the time.
fn follows_a_model<D: Domain>(fixture: &Fixture<D>, seed: u64, keys: u64, operations: u64) {
    let tree = &fixture.index;
    let mut random = Random::new(seed);
    let mut model: Records = BTreeMap::new();
    for step in 0..operations {
        // Alternating growth and shrinking.
        let grows = (step / (2 * keys)).is_multiple_of(2);
        let number = random.below(keys);
        // Including the ends of the range of keys.
        let key = key(if number == 0 { u64::MAX } else { number - 1 });
        let value = step.to_le_bytes();
        let is_there = model.contains_key(&key[..]);
        match random.below(10) {
            0..5 if grows => match tree.insert(&key, &value) {
                Ok(()) => assert!(model.insert(key.to_vec(), value.to_vec()).is_none()),
                Err(Error::KeyExists) => assert!(is_there),
                Err(error) => panic!("{error}"),
            },
            0..5 => {
                assert_eq!(tree.remove(&key).expect("an answer"), model.remove(&key[..]).is_some())
            }
            5 => {
                let did = tree.upsert(&key, &value).expect("an answer");
                let was = model.insert(key.to_vec(), value.to_vec());
                assert_eq!(did == Upserted::Updated, was.is_some());
            }
            6 => match tree.update(&key, &value) {
                Ok(()) => assert!(model.insert(key.to_vec(), value.to_vec()).is_some()),
                Err(Error::KeyNotFound) => assert!(!is_there),
                Err(error) => panic!("{error}"),
            },
            7 => {
                let expected = model.get(&key[..]).cloned().unwrap_or(vec![0; 8]);
                match tree.compare_exchange(&key, &expected, &value) {
                    Ok(()) => drop(model.insert(key.to_vec(), value.to_vec())),
                    Err(Error::KeyNotFound) => assert!(!is_there),
                    Err(error) => panic!("{error}"),
                }
            }
            8 => {
                let low = random.below(keys).to_be_bytes();
                let order = [Order::Ascending, Order::Descending][random.below(2) as usize];
                let (low, high) = (low.min(key), low.max(key));
                let range = KeyRange {
                    low: Bound::Excluded(low.to_vec()),
                    high: Bound::Included(high.to_vec()),
                };
                let bounds = (range.low.clone(), range.high.clone());
                let mut expected: Vec<_> =
                    if low == high { Vec::new() } else { model.range(bounds).collect() };
                if order == Order::Descending {
                    expected.reverse();
                }
                let mut cursor = tree.scan(range, order).expect("an answer");
                for (key, value) in expected {
                    assert_eq!(cursor.next().expect("an answer"), Some((&key[..], &value[..])));
                }
                assert_eq!(cursor.next().expect("an answer"), None);
            }
            _ => assert_eq!(tree.get(&key).expect("an answer").as_ref(), model.get(&key[..])),
        }
        if step.is_multiple_of(512) {
            check(fixture);
        }
    }
    assert_eq!(dump(tree), model);
    assert_eq!(tree.len().expect("an answer"), model.len() as u64);
    check(fixture);
}

#[test]
fn small_nodes_follow_a_model() {
    for leaf in KINDS {
        let fixture = Fixture::<Adr>::anonymous(small_fixed(leaf));
        follows_a_model(&fixture, 7, 90, 12_000);
    }
}

#[test]
fn usual_nodes_follow_a_model() {
    for leaf in KINDS {
        let options =
            Options { leaf, records: RecordBytes::Fixed, node_versions: 99, ..Options::default() };
        let fixture = Fixture::<Process>::anonymous(options);
        follows_a_model(&fixture, 8, 2000, 30_000);
    }
}

/// Threads insert, update and remove their own keys among those of others, and find them as they
/// left them.
#[test]
fn threads_find_their_own_records() {
    const THREADS: u64 = 3;
    for leaf in KINDS {
        let fixture = Fixture::<Adr>::anonymous(small_fixed(leaf));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let tree = &fixture.index;
                scope.spawn(move || {
                    let mut random = Random::new(thread + 1);
                    let mut model: Records = BTreeMap::new();
                    for step in 0..6000 {
                        let key = key(random.below(60) * THREADS + thread);
                        let value = u64::from(step as u32).to_le_bytes();
                        match random.below(3) {
                            0 => {
                                let did = tree.remove(&key).expect("an answer");
                                assert_eq!(did, model.remove(&key[..]).is_some());
                            }
                            1 => assert_eq!(
                                tree.get(&key).expect("an answer").as_ref(),
                                model.get(&key[..]),
                                "{key:?} at step {step}"
                            ),
                            _ => {
                                let did = tree.upsert(&key, &value).expect("an answer");
                                let was = model.insert(key.to_vec(), value.to_vec());
                                assert_eq!(did == Upserted::Updated, was.is_some());
                            }
                        }
                    }
                    for number in 0..60 {
                        let key = key(number * THREADS + thread);
                        assert_eq!(
                            tree.get(&key).expect("an answer").as_ref(),
                            model.get(&key[..])
                        );
                    }
                });
            }
        });
        dump(&fixture.index);
        check(&fixture);
    }
}

/// Trap: a scan that begins beside its bound. Bounds may be longer than keys; the usual one for "up
/// to this key" is the key followed by a zero byte.
#[test]
fn bounds_that_are_longer_than_keys() {
    let fixture = Fixture::<Process>::anonymous(small_fixed(NodeKind::SlotBitmap));
    let tree = &fixture.index;
    for number in 0..60 {
        tree.insert(&key(number), &key(number)).expect("an insert");
    }
    for number in 0..60 {
        let long = [&key(number)[..], &[0]].concat();
        for (bound, order, first) in [
            (Bound::Excluded(long.clone()), Order::Descending, Some(number)),
            (Bound::Included(long.clone()), Order::Descending, Some(number)),
            (Bound::Excluded(long.clone()), Order::Ascending, Some(number + 1)),
            (Bound::Included(long), Order::Ascending, Some(number + 1)),
        ] {
            let (low, high) = match order {
                Order::Ascending => (bound, Bound::Unbounded),
                Order::Descending => (Bound::Unbounded, bound),
            };
            let mut cursor = tree.scan(KeyRange { low, high }, order).expect("a scan");
            let found = cursor.next().expect("a record").map(|(key, _)| key.to_vec());
            let first = first.filter(|&first| first < 60).map(|first| key(first).to_vec());
            assert_eq!(found, first, "{order:?} from {number}");
        }
    }
}

#[test]
fn other_lengths_are_refused_by_name() {
    let fixture = Fixture::<Process>::anonymous(small_fixed(NodeKind::SlotBitmap));
    let tree = &fixture.index;
    let refused = |key: &[u8], value: &[u8]| {
        let told = tree.insert(key, value).expect_err("refused").to_string();
        assert_eq!(tree.upsert(key, value).expect_err("refused").to_string(), told);
        told
    };
    let told = refused(b"short", &[0; 8]);
    assert_eq!(told, "a key of 5 bytes is shorter than the 8 bytes that keys have here");
    let told = refused(&[0; 8], b"short");
    assert_eq!(told, "a value of 5 bytes is shorter than the 8 bytes that values have here");
    assert!(refused(&[0; 9], &[0; 8]).contains("longer than the 8 bytes"));
    assert!(refused(&[0; 8], &[0; 9]).contains("longer than the 8 bytes"));
}

/// An impossible key is absent; also one that is a prefix of a present key.
#[test]
fn a_shorter_key_is_absent() {
    let fixture = Fixture::<Process>::anonymous(small_fixed(NodeKind::SlotBitmap));
    let tree = &fixture.index;
    tree.insert(&[0; 8], &[1; 8]).expect("an insert");
    for bytes in 0..8 {
        let short = &[0; 8][..bytes];
        assert_eq!(tree.get(short).expect("an answer"), None);
        assert!(!tree.remove(short).expect("an answer"));
        assert!(matches!(tree.update(short, &[2; 8]), Err(Error::KeyNotFound)));
        let exchange = tree.compare_exchange(short, &[1; 8], &[2; 8]);
        assert!(matches!(exchange, Err(Error::KeyNotFound)));
    }
    assert_eq!(dump(tree), [(vec![0; 8], vec![1; 8])].into());
}
