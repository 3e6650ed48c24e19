//! Reads around damaged pages: what can be read of a map, and which maps have records.
//!
//! A scan ends at a damaged page. So a map is read from both sides. If two of its pages are
//! damaged, nothing between them is read.

use std::collections::BTreeSet;
use std::ops::Bound;

use pando_index::{KeyRange, Order, RangeIndex};
use pando_pmem::Domain;

use crate::cache::Cache;
use crate::error::{Error, Result, damaged_page};
use crate::maps::{Prefix, split};

/// What is called with each record.
pub(crate) type Visit<'call> = dyn FnMut(&[u8], &[u8]) + 'call;

/// Lends each record of the map that can be read, ascending; the damage that it has met.
///
/// # Errors
///
/// Those of reads that fail for other reasons.
pub(crate) fn lend_readable(map: &dyn RangeIndex, visit: &mut Visit<'_>) -> Result<Vec<String>> {
    let mut last = None;
    let lent = lend(map, KeyRange::all(), Order::Ascending, &mut |key, value| {
        last = Some(key.to_vec());
        visit(key, value);
    });
    let mut damage = BTreeSet::new();
    note(lent, &mut damage)?;
    if damage.is_empty() {
        return Ok(Vec::new());
    }
    let behind = |low| KeyRange { low, high: Bound::Unbounded };
    let rest = behind(last.map_or(Bound::Unbounded, Bound::Excluded));
    let mut first = None;
    let lent = lend(map, rest, Order::Descending, &mut |key, _| first = Some(key.to_vec()));
    note(lent, &mut damage)?;
    if let Some(first) = first {
        let rest = behind(Bound::Included(first));
        note(lend(map, rest, Order::Ascending, visit), &mut damage)?;
    }
    Ok(damage.into_iter().collect())
}

fn lend(
    map: &dyn RangeIndex,
    range: KeyRange,
    order: Order,
    visit: &mut Visit<'_>,
) -> pando_index::Result<()> {
    let mut cursor = map.scan(range, order)?;
    while let Some((key, value)) = cursor.next()? {
        visit(key, value);
    }
    Ok(())
}

/// Notes the damage that has ended a scan.
fn note(lent: pando_index::Result<()>, damage: &mut BTreeSet<String>) -> Result<()> {
    match lent {
        Ok(()) => Ok(()),
        Err(error) if damaged_page(&error).is_some() => {
            damage.insert(error.to_string());
            Ok(())
        }
        Err(error) => Err(Error::Index(error)),
    }
}

/// The numbers from `least` on under which the tree has records, ascending, as far as pages can be
/// read. Reads a page or two for each.
///
/// # Errors
///
/// As [`lend_readable`].
pub(crate) fn numbers_with_records<D: Domain>(cache: &Cache<D>, least: u64) -> Result<Vec<u64>> {
    let bound = |number: u64| Prefix::of(number).owned(&[]);
    let (mut numbers, mut damage) = (BTreeSet::new(), BTreeSet::new());
    for order in [Order::Ascending, Order::Descending] {
        let mut range = KeyRange { low: Bound::Included(bound(least)), high: Bound::Unbounded };
        loop {
            let mut found = None;
            let seen = cache.tree.scan(range.clone(), order).and_then(|mut cursor| {
                cursor.expect(1);
                found = cursor.next()?.and_then(|(key, _)| split(key)).map(|(number, _)| number);
                Ok(())
            });
            note(seen, &mut damage)?;
            // Without damage, all are found in the first order.
            let Some(number) = found.filter(|&number| numbers.insert(number)) else { break };
            match (order, number.checked_add(1)) {
                (Order::Ascending, Some(next)) => range.low = Bound::Included(bound(next)),
                (Order::Ascending, None) => break,
                (Order::Descending, _) => range.high = Bound::Excluded(bound(number)),
            }
        }
        if damage.is_empty() {
            break;
        }
    }
    Ok(numbers.into_iter().collect())
}
