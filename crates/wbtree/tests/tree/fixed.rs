//! Trees whose keys and values have eight bytes each.

use std::collections::BTreeMap;
use std::ops::Bound;

use pando_index::{Error, KeyRange, Order, RangeIndex, Upserted};
use pando_pmem::testing::Random;
use pando_pmem::{Adr, Domain, Volatile};
use pando_wbtree::{NodeKind, Options};

use crate::common::{Planted, Records, anonymous, check, dump, small_fixed};

const KINDS: [NodeKind; 3] = [NodeKind::SlotBitmap, NodeKind::BitmapOnly, NodeKind::SlotOnly];

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Random operations against a map, on so few keys that nodes split and merge all the time.
fn follows_a_model<D: Domain>(planted: &Planted<D>, seed: u64, keys: u64, operations: u64) {
    let tree = &planted.tree;
    let mut random = Random::new(seed);
    let mut model: Records = BTreeMap::new();
    for step in 0..operations {
        // Now growing, now shrinking.
        let grows = (step / (2 * keys)).is_multiple_of(2);
        let number = random.below(keys);
        // The ends of the range of keys too.
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
            check(planted);
        }
    }
    assert_eq!(dump(tree), model);
    assert_eq!(tree.len().expect("an answer"), model.len() as u64);
    check(planted);
}

#[test]
fn small_nodes_follow_a_model() {
    for leaf in KINDS {
        let planted = anonymous::<Adr>(small_fixed(leaf));
        follows_a_model(&planted, 7, 90, 12_000);
    }
}

#[test]
fn usual_nodes_follow_a_model() {
    for leaf in KINDS {
        let options = Options { leaf, is_variable: false, node_versions: 99, ..Options::default() };
        let planted = anonymous::<Volatile>(options);
        follows_a_model(&planted, 8, 2000, 30_000);
    }
}

/// Threads that insert, update and remove their own keys among those of others find them as they left them.
#[test]
fn threads_find_their_own_records() {
    const THREADS: u64 = 3;
    for leaf in KINDS {
        let planted = anonymous::<Adr>(small_fixed(leaf));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let tree = &planted.tree;
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
        dump(&planted.tree);
        check(&planted);
    }
}

#[test]
fn other_lengths_are_refused_by_name() {
    let planted = anonymous::<Volatile>(small_fixed(NodeKind::SlotBitmap));
    let refused = |key: &[u8], value: &[u8]| {
        planted.tree.insert(key, value).expect_err("refused").to_string()
    };
    assert!(refused(b"short", &[0; 8]).starts_with("a key of 5 bytes; this map was created with"));
    assert!(refused(&[0; 8], b"short").starts_with("a value of 5 bytes; this map was created"));
    assert!(refused(&[0; 9], &[0; 8]).contains("longer than the 8 bytes"));
    assert!(refused(&[0; 8], &[0; 9]).contains("longer than the 8 bytes"));
    assert!(planted.tree.get(b"x").is_err() && planted.tree.remove(b"x").is_err());
}
