//! An operation that returns an error has changed nothing.

use super::compare::{agree, same_content};
use super::generate::Value;
use super::reference::Reference;
use super::trial::Trial;
use crate::{Error, RangeIndex};

/// Every refusal, on every key, with new values of every size. The content stays the same, and no
/// block leaks (the index's check finds blocks that a refused operation has leaked).
pub(super) fn refusals_change_nothing(trial: &mut Trial<'_>) {
    let count = trial.scaled(300) as u64;
    trial.on_fresh_index(|index, _| {
        let limits = index.limits();
        let model = Reference::with_limits(limits);
        for number in 0..count {
            let (key, value) = record(index, number);
            index.insert(&key, &value).expect("insert");
            model.insert(&key, &value).expect("model");
        }
        for number in 0..count {
            let (key, value) = record(index, number);
            let absent = (2 * number + 1).to_be_bytes();
            let mut other = value.clone();
            other.push(1);
            for length in [0, 8, 400, 20_000] {
                let new = Value { length, seed: 99 }.bytes(limits);
                let answer = index.insert(&key, &new);
                assert!(matches!(answer, Err(Error::KeyExists)), "insert: {answer:?}");
                let answer = index.update(&absent, &new);
                assert!(matches!(answer, Err(Error::KeyNotFound)), "update: {answer:?}");
                let answer = index.compare_exchange(&absent, &value, &new);
                assert!(matches!(answer, Err(Error::KeyNotFound)), "exchange: {answer:?}");
                let answer = index.compare_exchange(&key, &other, &new);
                assert!(matches!(answer, Err(Error::ValueMismatch)), "exchange: {answer:?}");
            }
            assert!(!index.remove(&absent).expect("remove"));
            assert_eq!(index.get(&absent).expect("get"), None);
            if number % 100 == 0 {
                agree(same_content(index, &model));
            }
        }
        agree(same_content(index, &model));
    });
}

/// The record of an even number: values of all sizes, one in forty longer than a page.
fn record(index: &dyn RangeIndex, number: u64) -> (Vec<u8>, Vec<u8>) {
    let length = if number % 40 == 7 { 9_000 } else { (number % 50) as usize };
    let value = Value { length, seed: number as u8 }.bytes(index.limits());
    ((2 * number).to_be_bytes().to_vec(), value)
}
