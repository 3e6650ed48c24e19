//! Random calls on a map and on a `BTreeMap`: every result must be the same.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;

use pando::{Error, Map, Pool, Transaction, Upserted};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::common::kinds;

type Bytes = Vec<u8>;
type Model = BTreeMap<Bytes, Bytes>;

#[derive(Clone, Debug)]
enum Call {
    Insert(Bytes, Bytes),
    Update(Bytes, Bytes),
    Upsert(Bytes, Bytes),
    Put(Bytes, Bytes),
    Swap(Bytes, Bytes),
    Get(Bytes),
    Remove(Bytes),
    Take(Bytes),
    CompareExchange(Bytes, Bytes, Bytes),
    CompareRemove(Bytes, Bytes),
    OrInsert(Bytes, Bytes),
    AndModify(Bytes, Bytes),
    ModifyOrInsert(Bytes, Bytes),
    Ends,
    PopFirst,
    PopLast,
    Retain(u8),
    Clear,
    Range(Bound<Bytes>, Bound<Bytes>, Vec<bool>),
    Prefix(Bytes, Vec<bool>),
}

fn key() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(prop_oneof![Just(0), Just(1), Just(0x61), Just(0xFF)], 0..4)
}

/// Few values, so that comparisons succeed; and some that have a block of their own.
fn value() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        4 => prop::collection::vec(0..2_u8, 0..2),
        1 => (0..4_u8).prop_map(|byte| vec![byte; 3_000]),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Bytes>> {
    prop_oneof![
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
        Just(Bound::Unbounded),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    // From which end each record is taken.
    let ends = || prop::collection::vec(any::<bool>(), 0..40);
    let record = || (key(), value());
    prop_oneof![
        8 => record().prop_map(|(key, value)| Call::Insert(key, value)),
        2 => record().prop_map(|(key, value)| Call::Update(key, value)),
        4 => record().prop_map(|(key, value)| Call::Upsert(key, value)),
        8 => record().prop_map(|(key, value)| Call::Put(key, value)),
        4 => record().prop_map(|(key, value)| Call::Swap(key, value)),
        2 => key().prop_map(Call::Get),
        2 => key().prop_map(Call::Remove),
        3 => key().prop_map(Call::Take),
        3 => (key(), value(), value())
            .prop_map(|(key, old, new)| Call::CompareExchange(key, old, new)),
        3 => record().prop_map(|(key, value)| Call::CompareRemove(key, value)),
        3 => record().prop_map(|(key, value)| Call::OrInsert(key, value)),
        3 => record().prop_map(|(key, value)| Call::AndModify(key, value)),
        3 => record().prop_map(|(key, value)| Call::ModifyOrInsert(key, value)),
        3 => Just(Call::Ends),
        2 => Just(Call::PopFirst),
        2 => Just(Call::PopLast),
        1 => any::<u8>().prop_map(Call::Retain),
        1 => Just(Call::Clear),
        4 => (bound(), bound(), ends()).prop_map(|(low, high, ends)| Call::Range(low, high, ends)),
        2 => (key(), ends()).prop_map(|(key, ends)| Call::Prefix(key, ends)),
    ]
}

fn same<T: PartialEq + Debug>(found: T, due: T) -> Result<(), TestCaseError> {
    prop_assert_eq!(found, due);
    Ok(())
}

/// A result without its error, except for the errors that a call is expected to have.
fn told<T>(result: Result<T, Error>) -> Result<T, Option<Bytes>> {
    result.map_err(|error| match error {
        Error::KeyExists | Error::KeyNotFound => None,
        Error::ValueMismatch { actual } => Some(actual),
        error => panic!("{error}"),
    })
}

fn compare(model: &Model, key: &Bytes, expected: &Bytes) -> Result<(), Option<Bytes>> {
    match model.get(key) {
        None => Err(None),
        Some(found) if found != expected => Err(Some(found.clone())),
        Some(_) => Ok(()),
    }
}

fn is_kept(remainder: u8, key: &[u8], value: &[u8]) -> bool {
    (key.len() + value.len()) as u8 % 3 != remainder % 3
}

/// The records that are taken from both ends, until none is left.
fn taken<T>(mut records: impl DoubleEndedIterator<Item = T>, ends: &[bool]) -> Vec<T> {
    let mut taken = Vec::new();
    for is_front in ends.iter().copied().chain(std::iter::repeat(true)) {
        match if is_front { records.next() } else { records.next_back() } {
            Some(record) => taken.push(record),
            None => break,
        }
    }
    assert!(records.next().is_none() && records.next_back().is_none());
    taken
}

fn in_range(model: &Model, low: &Bound<Bytes>, high: &Bound<Bytes>) -> Vec<(Bytes, Bytes)> {
    let range = pando::KeyRange { low: low.clone(), high: high.clone() };
    let all = model.iter().filter(|(key, _)| range.contains(key));
    all.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn owned((key, value): (&Bytes, &Bytes)) -> (Bytes, Bytes) {
    (key.clone(), value.clone())
}

fn follow(map: &Map, model: &mut Model, call: &Call) -> Result<(), TestCaseError> {
    let read = |result: Result<Option<Bytes>, Error>| result.expect("reads");
    match call.clone() {
        Call::Insert(key, value) => {
            let due = match model.contains_key(&key) {
                true => Err(None),
                false => {
                    drop(model.insert(key.clone(), value.clone()));
                    Ok(())
                }
            };
            same(told(map.insert(key, value)), due)
        }
        Call::Update(key, value) => {
            let due = match model.contains_key(&key) {
                true => {
                    drop(model.insert(key.clone(), value.clone()));
                    Ok(())
                }
                false => Err(None),
            };
            same(told(map.update(key, value)), due)
        }
        Call::Upsert(key, value) => {
            let due = match model.insert(key.clone(), value.clone()) {
                Some(_) => Upserted::Updated,
                None => Upserted::Inserted,
            };
            same(told(map.upsert(key, value)), Ok(due))
        }
        Call::Put(key, value) => {
            model.insert(key.clone(), value.clone());
            same(told(map.put(key, value)), Ok(()))
        }
        Call::Swap(key, value) => same(read(map.swap(&key, &value)), model.insert(key, value)),
        Call::Get(key) => {
            same(map.contains_key(&key).expect("reads"), model.contains_key(&key))?;
            same(read(map.get(&key)), model.get(&key).cloned())
        }
        Call::Remove(key) => same(told(map.remove(&key)), Ok(model.remove(&key).is_some())),
        Call::Take(key) => same(read(map.take(&key)), model.remove(&key)),
        Call::CompareExchange(key, expected, new) => {
            let due = compare(model, &key, &expected);
            if due.is_ok() {
                model.insert(key.clone(), new.clone());
            }
            same(told(map.compare_exchange(key, expected, new)), due)
        }
        Call::CompareRemove(key, expected) => {
            let due = compare(model, &key, &expected);
            if due.is_ok() {
                model.remove(&key);
            }
            same(told(map.compare_remove(key, expected)), due)
        }
        Call::OrInsert(key, value) => {
            let due = model.entry(key.clone()).or_insert(value.clone()).clone();
            same(told(map.entry(key).or_insert(value)), Ok(due))
        }
        Call::AndModify(key, value) => {
            let change = |found: &mut Bytes| found.extend_from_slice(&value);
            if let Some(found) = model.get_mut(&key) {
                change(found);
            }
            let entry = map.entry(&key).and_modify(change);
            same(entry.key(), &key[..])?;
            same(told(entry.or_absent()), Ok(model.get(&key).cloned()))
        }
        Call::ModifyOrInsert(key, value) => {
            let due = model.entry(key.clone());
            let due = due.and_modify(Vec::clear).and_modify(|found| found.push(7));
            let due = due.or_insert_with(|| value.clone()).clone();
            let entry = map.entry(&key).and_modify(Vec::clear).and_modify(|found| found.push(7));
            same(told(entry.or_insert_with(|| &value)), Ok(due))
        }
        Call::Ends => {
            same(map.first().expect("reads"), model.first_key_value().map(owned))?;
            same(map.last().expect("reads"), model.last_key_value().map(owned))?;
            same(map.is_empty().expect("reads"), model.is_empty())?;
            same(map.len().expect("reads"), model.len() as u64)
        }
        Call::PopFirst => same(map.pop_first().expect("pops"), model.pop_first()),
        Call::PopLast => same(map.pop_last().expect("pops"), model.pop_last()),
        Call::Retain(remainder) => {
            let before = model.len();
            model.retain(|key, value| is_kept(remainder, key, value));
            let removed = map.retain(|key, value| is_kept(remainder, key, value));
            same(removed.expect("removes"), (before - model.len()) as u64)
        }
        Call::Clear => {
            same(map.clear().expect("removes"), model.len() as u64)?;
            model.clear();
            Ok(())
        }
        Call::Range(low, high, ends) => {
            let due = taken(in_range(model, &low, &high).into_iter(), &ends);
            let found = taken(map.range((low, high)), &ends);
            same(found.into_iter().collect::<Result<Vec<_>, _>>().expect("reads"), due)
        }
        Call::Prefix(prefix, ends) => {
            let all = in_range(model, &Bound::Unbounded, &Bound::Unbounded);
            let due = all.into_iter().filter(|(key, _)| key.starts_with(&prefix));
            let due = taken(due, &ends);
            let found = taken(map.prefix(prefix).expecting(due.len()), &ends);
            same(found.into_iter().collect::<Result<Vec<_>, _>>().expect("reads"), due)
        }
    }
}

/// The calls that a transaction has too, on a map that has some records before.
fn follow_in(
    tx: &mut Transaction<'_>,
    map: &Map,
    model: &mut Model,
    call: &Call,
) -> Result<(), TestCaseError> {
    match call.clone() {
        Call::Put(key, value) | Call::Insert(key, value) => {
            tx.put(map, &key, &value).expect("fits");
            model.insert(key, value);
            Ok(())
        }
        Call::Swap(key, value) => {
            same(tx.swap(map, &key, &value).expect("fits"), model.insert(key, value))
        }
        Call::Get(key) => {
            same(tx.contains_key(map, &key).expect("reads"), model.contains_key(&key))?;
            same(tx.get(map, &key).expect("reads"), model.get(&key).cloned())
        }
        Call::Remove(key) => {
            tx.remove(map, &key).expect("removes");
            model.remove(&key);
            Ok(())
        }
        Call::Take(key) => same(tx.take(map, &key).expect("removes"), model.remove(&key)),
        Call::Ends => {
            same(tx.first(map).expect("reads"), model.first_key_value().map(owned))?;
            same(tx.last(map).expect("reads"), model.last_key_value().map(owned))
        }
        Call::PopFirst => same(tx.pop_first(map).expect("pops"), model.pop_first()),
        Call::PopLast => same(tx.pop_last(map).expect("pops"), model.pop_last()),
        Call::Range(low, high, ends) => {
            let due = taken(in_range(model, &low, &high).into_iter(), &ends);
            let found = taken(tx.range(map, (low, high)), &ends);
            same(found.into_iter().collect::<Result<Vec<_>, _>>().expect("reads"), due)
        }
        Call::Prefix(prefix, ends) => {
            let all = in_range(model, &Bound::Unbounded, &Bound::Unbounded);
            let due = all.into_iter().filter(|(key, _)| key.starts_with(&prefix));
            let due = taken(due, &ends);
            let found = taken(tx.prefix(map, prefix).expecting(1), &ends);
            same(found.into_iter().collect::<Result<Vec<_>, _>>().expect("reads"), due)
        }
        _ => Ok(()),
    }
}

/// A snapshot of a map that has the records of `model`, while the map changes.
fn same_snapshot(
    pool: &Pool,
    map: &Map,
    model: &Model,
    ends: &[bool],
) -> Result<(), TestCaseError> {
    let snapshot = pool.snapshot().expect("taken");
    let changes = |at: usize| [b'z', at as u8];
    (0..3).for_each(|at| map.put(changes(at), "late").expect("fits"));
    let first = map.pop_first().expect("pops");
    same(snapshot.first(map).expect("reads"), model.first_key_value().map(owned))?;
    same(snapshot.last(map).expect("reads"), model.last_key_value().map(owned))?;
    let due = taken(in_range(model, &Bound::Unbounded, &Bound::Unbounded).into_iter(), ends);
    let found = taken(snapshot.range(map, ..), ends);
    same(found.into_iter().collect::<Result<Vec<_>, _>>().expect("reads"), due)?;
    for key in model.keys() {
        same(snapshot.contains_key(map, key).expect("reads"), true)?;
    }
    same(snapshot.prefix(map, "z").count(), 0)?;
    drop(snapshot);
    (0..3).map(changes).for_each(|key| assert!(map.remove(key).is_ok()));
    first.into_iter().filter(|(key, _)| model.contains_key(key)).for_each(|(key, value)| {
        map.put(key, value).expect("fits");
    });
    Ok(())
}

#[test]
fn every_kind_of_map_does_the_same_as_a_btree_map() {
    let calls = || prop::collection::vec(call(), 1..120);
    for kind in kinds() {
        let config = Config { cases: 24, failure_persistence: None, ..Config::default() };
        let done = TestRunner::new(config).run(&calls(), |calls| {
            let kept = kind();
            let mut model = Model::new();
            calls.iter().try_for_each(|call| follow(&kept.map, &mut model, call))?;
            let records = kept.map.range(..).collect::<Result<Vec<_>, _>>().expect("reads");
            same(records, model.into_iter().collect())
        });
        if let Err(failure) = done {
            panic!("{}: {failure}", kind().name);
        }
    }
}

#[test]
fn transactions_and_snapshots_do_the_same_as_a_btree_map() {
    let calls = || prop::collection::vec(call(), 1..60);
    let ends = prop::collection::vec(any::<bool>(), 0..60);
    let input = (calls(), calls(), any::<bool>(), ends);
    for kind in kinds().into_iter().filter(|kind| kind().map.is_transactional()) {
        let config = Config { cases: 16, failure_persistence: None, ..Config::default() };
        let done =
            TestRunner::new(config).run(&input, |(before, calls, is_over_snapshot, ends)| {
                let kept = kind();
                let mut model = Model::new();
                before.iter().try_for_each(|call| follow(&kept.map, &mut model, call))?;
                let isolation = match is_over_snapshot {
                    true => pando::Isolation::Snapshot,
                    false => pando::Isolation::Serializable,
                };
                let mut transaction = kept.pool.begin_with(isolation).expect("begins");
                calls.iter().try_for_each(|call| {
                    follow_in(&mut transaction, &kept.map, &mut model, call)
                })?;
                transaction.commit().expect("no other writes");
                let records = kept.map.range(..).collect::<Result<Vec<_>, _>>().expect("reads");
                same(records, model.clone().into_iter().collect())?;
                same_snapshot(&kept.pool, &kept.map, &model, &ends)
            });
        if let Err(failure) = done {
            panic!("{}: {failure}", kind().name);
        }
    }
}
