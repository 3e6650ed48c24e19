//! Random operations on the index and on a `BTreeMap`: every result must be the same.
//!
//! Sequences fill and empty whole ranges at a time. So leaves split and merge many times in a few
//! hundred steps, and a failing sequence shrinks to a few lines.

use std::ops::Bound;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use super::compare::{keys, same, same_content, same_scan, same_value};
use super::generate::{self, Key, Value};
use super::reference::Reference;
use super::trial::Trial;
use crate::{KeyRange, Limits, Order, RangeIndex};

/// Sequences of operations for each family of keys.
const SEQUENCES: usize = 40;

pub(super) fn few_keys(trial: &mut Trial<'_>) {
    check(trial, generate::few_keys());
}

pub(super) fn adversarial_bytes(trial: &mut Trial<'_>) {
    check(trial, generate::adversarial_bytes());
}

pub(super) fn integers(trial: &mut Trial<'_>) {
    check(trial, generate::integers());
}

pub(super) fn long_prefixes(trial: &mut Trial<'_>) {
    check(trial, generate::long_prefixes());
}

pub(super) fn mixed_keys(trial: &mut Trial<'_>) {
    check(trial, generate::mixed_keys());
}

#[derive(Clone, Debug)]
enum Operation {
    Insert(Key, Value),
    InsertMany(Vec<Key>, Value),
    Update(Key, Value),
    Upsert(Key, Value),
    Get(Key),
    Remove(Key),
    Take(Key),
    RemoveRange(Bound<Key>, Bound<Key>, Order),
    CompareExchange(Key, Expected, Value),
    CompareRemove(Key, Expected),
    Modify(Key, Value, bool),
    Scan(Bound<Key>, Bound<Key>, Order),
    Length,
}

/// The expected value of a compare-exchange or a compare-remove.
#[derive(Clone, Debug)]
enum Expected {
    /// The current value, or the empty one.
    Current,
    /// A proper prefix of the current value.
    Shortened,
    /// The current value and one byte more.
    Lengthened,
    /// Any value.
    Other(Value),
}

fn operation(key: BoxedStrategy<Key>) -> impl Strategy<Value = Operation> {
    let value = generate::values;
    let bound = || {
        prop_oneof![
            key.clone().prop_map(Bound::Included),
            key.clone().prop_map(Bound::Excluded),
            Just(Bound::Unbounded),
        ]
    };
    let order = || prop_oneof![Just(Order::Ascending), Just(Order::Descending)];
    let expected = prop_oneof![
        4 => Just(Expected::Current),
        1 => Just(Expected::Shortened),
        1 => Just(Expected::Lengthened),
        1 => value().prop_map(Expected::Other),
    ];
    prop_oneof![
        8 => (key.clone(), value()).prop_map(|(key, value)| Operation::Insert(key, value)),
        6 => (prop::collection::vec(key.clone(), 1..250), value())
            .prop_map(|(keys, value)| Operation::InsertMany(keys, value)),
        6 => (key.clone(), value()).prop_map(|(key, value)| Operation::Update(key, value)),
        6 => (key.clone(), value()).prop_map(|(key, value)| Operation::Upsert(key, value)),
        6 => key.clone().prop_map(Operation::Get),
        8 => key.clone().prop_map(Operation::Remove),
        2 => key.clone().prop_map(Operation::Take),
        2 => (bound(), bound(), order())
            .prop_map(|(low, high, order)| Operation::RemoveRange(low, high, order)),
        6 => (key.clone(), expected.clone(), value())
            .prop_map(|(key, expected, new)| Operation::CompareExchange(key, expected, new)),
        4 => (key.clone(), expected)
            .prop_map(|(key, expected)| Operation::CompareRemove(key, expected)),
        6 => (key.clone(), value(), prop::bool::weighted(0.8))
            .prop_map(|(key, value, changes)| Operation::Modify(key, value, changes)),
        6 => (bound(), bound(), order())
            .prop_map(|(low, high, order)| Operation::Scan(low, high, order)),
        1 => Just(Operation::Length),
    ]
}

/// Runs random sequences over keys of one family, and shrinks a sequence that fails.
fn check(trial: &mut Trial<'_>, key: BoxedStrategy<Key>) {
    let config = Config {
        cases: trial.scaled(SEQUENCES) as u32,
        failure_persistence: None,
        max_shrink_iters: if trial.shrinks { 20_000 } else { 0 },
        max_shrink_time: 30_000,
        ..Config::default()
    };
    let seed: Vec<u8> = (0..4).flat_map(|_| trial.random.next().to_le_bytes()).collect();
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let sequences = prop::collection::vec(operation(key), 1..300);
    let factory = trial.factory;
    let outcome = runner.run(&sequences, |operations| {
        let subject = factory.create();
        follow(subject.index(), &operations).map_err(TestCaseError::fail)?;
        subject.check();
        Ok(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Abort(reason)) => panic!("no sequence could be made: {reason}"),
        Err(TestError::Fail(reason, operations)) => {
            let steps: Vec<String> =
                operations.iter().enumerate().map(|step| format!("  {step:?}\n")).collect();
            panic!("{reason}\nafter these operations on an empty index:\n{}", steps.concat());
        }
    }
}

/// Runs every step on the index and on a model, until their results differ.
fn follow(index: &dyn RangeIndex, operations: &[Operation]) -> Result<(), String> {
    let limits = index.limits();
    let model = Reference::with_limits(limits);
    for (number, operation) in operations.iter().enumerate() {
        step(index, &model, operation, limits).map_err(|why| format!("step {number}: {why}"))?;
    }
    same_content(index, &model).map_err(|why| format!("at the end: {why}"))
}

fn step(
    index: &dyn RangeIndex,
    model: &Reference,
    operation: &Operation,
    limits: Limits,
) -> Result<(), String> {
    match operation {
        Operation::Insert(key, value) => {
            let (key, value) = (key.bytes(limits), value.bytes(limits));
            same("insert", index.insert(&key, &value), model.insert(&key, &value))
        }
        Operation::InsertMany(keys, value) => {
            let value = value.bytes(limits);
            keys.iter().map(|key| key.bytes(limits)).try_for_each(|key| {
                same("insert", index.insert(&key, &value), model.insert(&key, &value))
            })
        }
        Operation::Update(key, value) => {
            let (key, value) = (key.bytes(limits), value.bytes(limits));
            same("update", index.update(&key, &value), model.update(&key, &value))
        }
        Operation::Upsert(key, value) => {
            let (key, value) = (key.bytes(limits), value.bytes(limits));
            match key.len().abs_diff(value.len()) % 2 {
                0 => same("upsert", index.upsert(&key, &value), model.upsert(&key, &value)),
                _ => same("put", index.put(&key, &value), model.put(&key, &value)),
            }
        }
        Operation::Get(key) => same_value(index, model, &key.bytes(limits)),
        Operation::Remove(key) => {
            let key = key.bytes(limits);
            same("remove", index.remove(&key), model.remove(&key))
        }
        Operation::Take(key) => {
            let key = key.bytes(limits);
            same("take", index.take(&key), model.take(&key))
        }
        Operation::RemoveRange(low, high, order) => {
            let doomed = keys(model, &range(low, high, limits), *order);
            doomed.iter().try_for_each(|key| same("remove", index.remove(key), model.remove(key)))
        }
        Operation::CompareExchange(key, expected, new) => {
            let (key, new) = (key.bytes(limits), new.bytes(limits));
            let expected = expected_value(expected, model, &key, limits);
            same(
                "compare_exchange",
                index.compare_exchange(&key, &expected, &new),
                model.compare_exchange(&key, &expected, &new),
            )
        }
        Operation::CompareRemove(key, expected) => {
            let key = key.bytes(limits);
            let expected = expected_value(expected, model, &key, limits);
            same(
                "compare_remove",
                index.compare_remove(&key, &expected),
                model.compare_remove(&key, &expected),
            )
        }
        Operation::Modify(key, value, changes) => {
            let (key, value) = (key.bytes(limits), value.bytes(limits));
            let modify = |index: &dyn RangeIndex| {
                let mut seen = Vec::new();
                let answer = index.modify(&key, &mut |found, new| {
                    // It may be called again, but no other thread changes the value here.
                    seen.push(found.map(<[u8]>::to_vec));
                    seen.dedup();
                    // From the current and the given value, so that a wrong read shows in the
                    // value.
                    new.extend(found.and_then(<[u8]>::first));
                    new.extend_from_slice(&value[..value.len().saturating_sub(new.len())]);
                    *changes
                });
                answer.map(|upserted| (upserted, seen))
            };
            same("modify", modify(index), modify(model))
        }
        Operation::Scan(low, high, order) => {
            same_scan(index, model, &range(low, high, limits), *order)
        }
        Operation::Length => {
            same("len", index.len(), model.len())?;
            same("is_empty", index.is_empty(), model.is_empty())
        }
    }
}

fn range(low: &Bound<Key>, high: &Bound<Key>, limits: Limits) -> KeyRange {
    let bytes = |bound: &Bound<Key>| bound.as_ref().map(|key| key.bytes(limits));
    KeyRange { low: bytes(low), high: bytes(high) }
}

fn expected_value(expected: &Expected, model: &Reference, key: &[u8], limits: Limits) -> Vec<u8> {
    let mut value = model.get(key).ok().flatten().unwrap_or_default();
    match expected {
        Expected::Current => {}
        Expected::Shortened => value.truncate(value.len().saturating_sub(1)),
        Expected::Lengthened => value.push(0),
        Expected::Other(other) => return other.bytes(limits),
    }
    value
}
