//! The content of an index, and how it differs from the expected content.

use super::bytes::{Bytes, record};
use super::reference::Reference;
use crate::{Cursor, Error, KeyRange, Order, RangeIndex};

pub(super) const BOTH_ORDERS: [Order; 2] = [Order::Ascending, Order::Descending];

/// The records of `range`, in the order of a scan.
pub(super) fn collect(
    index: &dyn RangeIndex,
    range: &KeyRange,
    order: Order,
) -> Result<Vec<(Bytes, Bytes)>, Error> {
    rest_of(&mut *index.scan(range.clone(), order)?)
}

fn rest_of(cursor: &mut dyn Cursor) -> Result<Vec<(Bytes, Bytes)>, Error> {
    let mut records = Vec::new();
    while let Some((key, value)) = cursor.next()? {
        records.push(record(key, value));
    }
    Ok(records)
}

/// The keys of `range`, in the order of a scan.
pub(super) fn keys(index: &dyn RangeIndex, range: &KeyRange, order: Order) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut cursor = index.scan(range.clone(), order).expect("scan");
    while let Some((key, _)) = cursor.next().expect("next") {
        keys.push(key.to_vec());
    }
    keys
}

/// Fails unless a scan of `range` returns the same records in the index as in the model.
pub(super) fn same_scan(
    index: &dyn RangeIndex,
    model: &Reference,
    range: &KeyRange,
    order: Order,
) -> Result<(), String> {
    let expected = collect(model, range, order).map_err(|error| format!("model: {error}"))?;
    let failed = |error| format!("scan failed: {error}");
    let mut cursor = index.scan(range.clone(), order).map_err(failed)?;
    // Every other time, any number: it changes nothing.
    if expected.len() % 2 == 1 {
        cursor.expect(expected.len() / 4);
    }
    let found = rest_of(&mut *cursor).map_err(failed)?;
    let differs =
        (0..found.len().max(expected.len())).find(|&at| found.get(at) != expected.get(at));
    match differs {
        None => Ok(()),
        Some(at) => Err(format!(
            "{order:?} scan: record {at} is {:?} instead of {:?} ({} records instead of {})",
            found.get(at),
            expected.get(at),
            found.len(),
            expected.len()
        )),
    }
}

/// Fails unless the index has the same content as the model, by every operation that reads all of
/// it.
pub(super) fn same_content(index: &dyn RangeIndex, model: &Reference) -> Result<(), String> {
    for order in BOTH_ORDERS {
        same_scan(index, model, &KeyRange::all(), order)?;
    }
    same("len", index.len(), model.len())?;
    same("is_empty", index.is_empty(), model.is_empty())?;
    for key in keys(model, &KeyRange::all(), Order::Ascending) {
        same_value(index, model, &key)?;
    }
    same_values(index, model)
}

/// Fails unless a read of many keys, present and absent, returns the model's values in their order.
fn same_values(index: &dyn RangeIndex, model: &Reference) -> Result<(), String> {
    let mut all = Vec::new();
    for mut key in keys(model, &KeyRange::all(), Order::Ascending) {
        all.push(key.clone());
        // Most likely absent, and searched in the same leaf.
        if key.pop().is_some() {
            all.push(key);
        }
    }
    let keys: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    let mut lent = Vec::new();
    let found = index.read_many(&keys, &mut |at, value| {
        lent.push((at, value.map(|value| Bytes(value.to_vec()))));
    });
    let mut expected = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        expected.push((at, model.get(key).map_err(|error| error.to_string())?.map(Bytes)));
    }
    same("read_many", found.map(|()| lent), Ok(expected))
}

/// Fails unless a read of `key` returns the model's value, exactly once.
pub(super) fn same_value(
    index: &dyn RangeIndex,
    model: &Reference,
    key: &[u8],
) -> Result<(), String> {
    let mut lent = Vec::new();
    let found = index.read(key, &mut |value| lent.push(Bytes(value.to_vec())));
    let expected = model.get(key);
    same(
        "read",
        found.map(|_| lent),
        expected.map(|value| value.map(Bytes).into_iter().collect()),
    )?;
    same("whether read finds", index.read(key, &mut |_| ()), model.read(key, &mut |_| ()))
}

/// Fails unless the index and the model return the same. Errors are equal if their texts are equal.
pub(super) fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: Result<T, Error>,
    expected: Result<T, Error>,
) -> Result<(), String> {
    let found = found.map_err(|error| error.to_string());
    let expected = expected.map_err(|error| error.to_string());
    if found == expected {
        return Ok(());
    }
    Err(format!("{what} answered {found:?} instead of {expected:?}"))
}

/// Panics if an operation had different results on the index and on the model.
#[track_caller]
pub(super) fn agree(outcome: Result<(), String>) {
    if let Err(difference) = outcome {
        panic!("{difference}");
    }
}
