//! Extreme keys and values: empty, longest, one byte too long, huge, equal for 30 KiB.

use super::bytes::Bytes;
use super::compare::{BOTH_ORDERS, agree, collect, same_content, same_scan};
use super::generate::Value;
use super::reference::Reference;
use super::trial::Trial;
use crate::{Error, KeyRange, Order, RangeIndex, Upserted};

/// Longer keys and values are not allocated, even if the index's limits allow them.
const AFFORDABLE_BYTES: usize = 2 << 30;

pub(super) fn empty_key(trial: &mut Trial<'_>) {
    trial.on_fresh_index(|index, _| {
        assert_eq!(index.get(b"").expect("get"), None);
        assert!(!index.remove(b"").expect("remove"));
        index.insert(b"", b"first").expect("insert the empty key");
        assert!(matches!(index.insert(b"", b"second"), Err(Error::KeyExists)));
        index.insert(b"\0", b"next").expect("insert");
        index.insert(b"\xff", b"last").expect("insert");
        assert_eq!(index.get(b"").expect("get"), Some(b"first".to_vec()));
        let found = collect(index, &KeyRange::all(), Order::Ascending).expect("scan");
        assert_eq!(found[0].0, Bytes(Vec::new()));
        assert_eq!(found.len(), 3);
        let found = collect(index, &KeyRange::from(b""..), Order::Descending).expect("scan");
        assert_eq!(found[2].0, Bytes(Vec::new()));
        index.compare_exchange(b"", b"first", b"third").expect("compare_exchange");
        assert!(index.remove(b"").expect("remove"));
        assert_eq!(index.get(b"").expect("get"), None);
        assert_eq!(index.len().expect("len"), 2);
    });
}

pub(super) fn empty_value(trial: &mut Trial<'_>) {
    trial.on_fresh_index(|index, _| {
        index.insert(b"key", b"").expect("insert an empty value");
        assert_eq!(index.get(b"key").expect("get"), Some(Vec::new()));
        assert!(index.read(b"key", &mut |_| ()).expect("read"), "an empty value is a value");
        assert!(matches!(index.insert(b"key", b"x"), Err(Error::KeyExists)));
        assert!(matches!(index.compare_exchange(b"key", b"x", b"y"), Err(Error::ValueMismatch)));
        index.compare_exchange(b"key", b"", b"full").expect("compare_exchange from empty");
        index.compare_exchange(b"key", b"full", b"").expect("compare_exchange to empty");
        assert!(matches!(index.compare_remove(b"key", b"x"), Err(Error::ValueMismatch)));
        assert!(matches!(index.compare_remove(b"none", b""), Err(Error::KeyNotFound)));
        assert_eq!(index.upsert(b"key", b"").expect("upsert"), Upserted::Updated);
        assert_eq!(index.len().expect("len"), 1);
        assert!(index.remove(b"key").expect("remove"));
        assert_eq!(index.get(b"key").expect("get"), None);
    });
}

/// Unsigned bytes: 0x80 comes after 0x7F and after 0x00; a proper prefix comes before its
/// extensions.
pub(super) fn bytewise_order(trial: &mut Trial<'_>) {
    trial.on_fresh_index(|index, random| {
        let ordered: Vec<Vec<u8>> = [
            &b""[..],
            b"\x00",
            b"\x00\x00",
            b"\x00\x80",
            b"\x01",
            b"\x7f",
            b"\x7f\x00",
            b"\x7f\x7f\xff",
            b"\x7f\x80",
            b"\x7f\xff\xff\xff\xff\xff\xff\xff",
            b"\x7f\xff\xff\xff\xff\xff\xff\xff\x00",
            b"\x80",
            b"\x80\x00\x00\x00\x00\x00\x00\x00",
            b"\x80\x00\x00\x00\x00\x00\x00\x01",
            b"\xfe\xff",
            b"\xff",
            b"\xff\x00",
            b"\xff\xff",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ]
        .map(<[u8]>::to_vec)
        .into();
        let mut shuffled = ordered.clone();
        random.shuffle(&mut shuffled);
        for key in &shuffled {
            index.insert(key, key).expect("insert");
        }
        let expected: Vec<_> =
            ordered.iter().map(|key| (Bytes(key.clone()), Bytes(key.clone()))).collect();
        let all = KeyRange::all();
        assert_eq!(collect(index, &all, Order::Ascending).expect("scan"), expected);
        let backwards: Vec<_> = expected.into_iter().rev().collect();
        assert_eq!(collect(index, &all, Order::Descending).expect("scan"), backwards);
    });
}

pub(super) fn longest_key(trial: &mut Trial<'_>) {
    trial.on_fresh_index(|index, _| {
        let longest = index.limits().max_key_bytes;
        if longest > AFFORDABLE_BYTES / 64 {
            return;
        }
        let model = Reference::with_limits(index.limits());
        for last in [b'a', b'c', b'b'] {
            let mut key = vec![b'k'; longest];
            key[longest - 1] = last;
            index.insert(&key, b"value").expect("insert the longest key");
            model.insert(&key, b"value").expect("model");
            assert!(matches!(index.insert(&key, b"other"), Err(Error::KeyExists)));
            // The prefix of the longest key is another key, and comes before it.
            assert_eq!(index.get(&key[..longest - 1]).expect("get"), None);
        }
        agree(same_content(index, &model));
        for key in super::compare::keys(&model, &KeyRange::all(), Order::Ascending) {
            assert!(index.remove(&key).expect("remove"));
        }
        assert!(index.is_empty().expect("is_empty"));
    });
}

pub(super) fn key_too_long(trial: &mut Trial<'_>) {
    trial.on_fresh_index(|index, _| {
        let longest = index.limits().max_key_bytes;
        if longest >= AFFORDABLE_BYTES {
            return;
        }
        let key = vec![b'k'; longest + 1];
        let refused = |what: &str, answer: Result<(), Error>| match answer {
            Err(Error::KeyTooLong { found_bytes, max_bytes }) => {
                assert_eq!((found_bytes, max_bytes), (longest + 1, longest), "{what}");
            }
            other => panic!("{what} of a key that is too long answered {other:?}"),
        };
        refused("insert", index.insert(&key, b""));
        refused("upsert", index.upsert(&key, b"").map(|_| ()));
        refused("put", index.put(&key, b""));
        refused("modify", modify_to_zeros(index, &key, 0));
        // A key that is too long is absent: an index may return either error.
        for (what, answer) in [
            ("get", index.get(&key).map(|value| value.is_some())),
            ("remove", index.remove(&key)),
            ("update", absent(index.update(&key, b""))),
            ("compare_exchange", absent(index.compare_exchange(&key, b"", b"x"))),
            ("compare_remove", absent(index.compare_remove(&key, b""))),
        ] {
            match answer {
                Ok(present) => assert!(!present, "{what} found a key that is too long"),
                Err(error) => refused(what, Err(error)),
            }
        }
        assert!(index.is_empty().expect("is_empty"));
        // After a refusal, the index still accepts allowed keys and values.
        index.insert(b"key", b"value").expect("insert");
    });
}

fn absent(answer: Result<(), Error>) -> Result<bool, Error> {
    match answer {
        Err(Error::KeyNotFound) => Ok(false),
        other => other.map(|()| true),
    }
}

pub(super) fn value_too_long(trial: &mut Trial<'_>) {
    trial.on_fresh_index(|index, _| {
        let longest = index.limits().max_value_bytes;
        if longest >= AFFORDABLE_BYTES {
            return;
        }
        // Zeroed, so that the kernel reserves addresses, and no memory until a read.
        let value = vec![0; longest + 1];
        index.insert(b"present", b"value").expect("insert");
        for (what, answer) in [
            ("insert", index.insert(b"key", &value)),
            ("update", index.update(b"present", &value)),
            ("upsert", index.upsert(b"present", &value).map(|_| ())),
            ("put", index.put(b"present", &value)),
            ("compare_exchange", index.compare_exchange(b"present", b"value", &value)),
            ("modify", modify_to_zeros(index, b"present", value.len())),
            ("modify of none", modify_to_zeros(index, b"key", value.len())),
        ] {
            match answer {
                Err(Error::ValueTooLong { found_bytes, max_bytes }) => {
                    assert_eq!((found_bytes, max_bytes), (longest + 1, longest), "{what}");
                }
                other => panic!("{what} of a value that is too long answered {other:?}"),
            }
        }
        // No value equals one that is too long.
        let answer = index.compare_exchange(b"present", &value, b"new");
        assert!(matches!(answer, Err(Error::ValueMismatch | Error::ValueTooLong { .. })));
        assert_eq!(index.get(b"present").expect("get"), Some(b"value".to_vec()));
        assert_eq!(index.len().expect("len"), 1);
    });
}

/// As above, no memory is touched.
fn modify_to_zeros(index: &dyn RangeIndex, key: &[u8], bytes: usize) -> Result<(), Error> {
    let put = |_: Option<&[u8]>, new: &mut Vec<u8>| {
        *new = vec![0; bytes];
        true
    };
    index.modify(key, &mut { put }).map(|_| ())
}

pub(super) fn value_of_20_mebibytes(trial: &mut Trial<'_>) {
    trial.on_fresh_index(|index, _| {
        let limits = index.limits();
        let [first, second] = [1, 2].map(|seed| Value { length: 20 << 20, seed }.bytes(limits));
        index.insert(b"key", &first).expect("insert");
        index.insert(b"neighbour", b"small").expect("insert");
        assert!(index.get(b"key").expect("get").as_ref() == Some(&first), "another value");
        let mut nearly = first.clone();
        if let Some(last) = nearly.last_mut() {
            *last ^= 1;
        }
        let answer = index.compare_exchange(b"key", &nearly, &second);
        assert!(matches!(answer, Err(Error::ValueMismatch)), "{answer:?}");
        index.compare_exchange(b"key", &first, &second).expect("compare_exchange");
        let found = collect(index, &KeyRange::all(), Order::Ascending).expect("scan");
        assert!(found[0].1.0 == second, "another value");
        index.update(b"key", b"short").expect("update");
        index.upsert(b"key", &first).expect("upsert");
        assert!(index.get(b"key").expect("get").as_ref() == Some(&first), "another value");
        assert!(index.remove(b"key").expect("remove"));
        assert_eq!(index.get(b"neighbour").expect("get"), Some(b"small".to_vec()));
    });
}

/// A record far larger than all others of its leaf together: no split makes two equal halves.
pub(super) fn one_giant_record(trial: &mut Trial<'_>) {
    for giant_at in [0_u32, 50, 99] {
        trial.on_fresh_index(|index, random| {
            let limits = index.limits();
            let model = Reference::with_limits(limits);
            let mut numbers: Vec<u32> = (0..100).collect();
            random.shuffle(&mut numbers);
            let giant_key_bytes = limits.max_key_bytes.min(20_000);
            for round in 0..4_u8 {
                for &number in &numbers {
                    let mut key = number.to_be_bytes().to_vec();
                    let mut length = 10;
                    if number == giant_at {
                        key.resize(giant_key_bytes.max(4), 7);
                        length = 30_000;
                    }
                    let value = Value { length, seed: round }.bytes(limits);
                    let expected = model.upsert(&key, &value).expect("model");
                    assert_eq!(index.upsert(&key, &value).expect("upsert"), expected);
                }
                agree(same_content(index, &model));
                for &number in numbers.iter().filter(|&&number| number % 3 != 0) {
                    let range = KeyRange::prefix(&number.to_be_bytes());
                    for key in super::compare::keys(&model, &range, Order::Ascending) {
                        assert!(index.remove(&key).expect("remove"));
                        model.remove(&key).expect("model");
                    }
                }
                agree(same_content(index, &model));
            }
        });
    }
}

/// Keys that are equal for 30 KiB: separators cannot be short, and comparisons read all bytes.
pub(super) fn long_shared_prefix(trial: &mut Trial<'_>) {
    let count = trial.scaled(200).min(60_000) as u16;
    trial.on_fresh_index(|index, random| {
        let limits = index.limits();
        let model = Reference::with_limits(limits);
        let prefix = vec![0xFF; limits.max_key_bytes.saturating_sub(8).min(30 << 10)];
        let mut keys: Vec<Vec<u8>> =
            (0..count).map(|tail| [&prefix[..], &tail.to_be_bytes()].concat()).collect();
        random.shuffle(&mut keys);
        for key in &keys {
            index.insert(key, b"value").expect("insert");
            model.insert(key, b"value").expect("model");
        }
        agree(same_content(index, &model));
        random.shuffle(&mut keys);
        let (half, rest) = keys.split_at(keys.len() / 2);
        for key in half {
            assert!(index.remove(key).expect("remove"));
            model.remove(key).expect("model");
        }
        for order in BOTH_ORDERS {
            agree(same_scan(index, &model, &KeyRange::prefix(&prefix), order));
        }
        for key in rest {
            assert!(index.remove(key).expect("remove"));
        }
        assert!(index.is_empty().expect("is_empty"));
    });
}
