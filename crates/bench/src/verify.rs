//! What a side must hold when the work is done: exactly the records that are due.
//!
//! A full scan must ascend, and each of its keys must be that of a live record; if as many come
//! as are due, they are all of them. Which key is missing, if one is, is told by a bit a record.
//! A scan and a get may find their way differently, so some gets follow: of records that are
//! there, and of some that are not.

use std::ops::Range;

use crate::error::Fault;
use crate::keys::{belongs, key_of, number_of};
use crate::side::Side;

/// Gets of records that are there, at most.
const PRESENT_GETS: u64 = 1_000_000;
/// Gets of deleted records and of ones that never were, at most, on each side of the live ones.
const ABSENT_GETS: u64 = 10_000;

/// Compares the number of records with what is `due`.
pub fn count<S: Side>(side: &S, due: u64) -> Result<(), Fault> {
    let operation = "the count of records";
    match side.count().map_err(|source| Fault::Refused { key: 0, operation, source })? {
        found if found == due => Ok(()),
        found => Err(Fault::Count { found, due }),
    }
}

/// Compares all records with those of the numbers in `live`.
pub fn all<S: Side>(side: &S, live: &Range<u64>) -> Result<(), Fault> {
    scan_all(side, live)?;
    let operation = "a get after the run";
    let get = |key| side.get(key).map_err(|source| Fault::Refused { key, operation, source });
    let stride = ((live.end - live.start) / PRESENT_GETS).max(1);
    for key in live.clone().step_by(stride as usize).map(key_of) {
        match get(key)? {
            Some(value) if belongs(key, value) => {}
            Some(found) => return Err(Fault::WrongValue { key, found, operation }),
            None => return Err(Fault::Lost { key, operation }),
        }
    }
    let gone = live.start.saturating_sub(ABSENT_GETS)..live.start;
    for key in gone.chain(live.end..live.end + ABSENT_GETS).map(key_of) {
        if get(key)?.is_some() {
            return Err(Fault::Invented { key, operation });
        }
    }
    Ok(())
}

fn scan_all<S: Side>(side: &S, live: &Range<u64>) -> Result<(), Fault> {
    let operation = "the full scan";
    let mut seen = vec![0_u64; (live.end - live.start).div_ceil(64) as usize];
    let (mut found, mut previous, mut fault) = (0, None, None);
    side.scan(0, u64::MAX, |key, value| {
        if fault.is_some() {
            return;
        }
        let number = number_of(key);
        if let Some(previous) = previous.filter(|&previous| previous >= key) {
            fault = Some(Fault::Disorder { previous, key });
        } else if !live.contains(&number) {
            fault = Some(Fault::Invented { key, operation });
        } else if !belongs(key, value) {
            fault = Some(Fault::WrongValue { key, found: value, operation });
        } else {
            let bit = number - live.start;
            seen[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        previous = Some(key);
        found += 1;
    })
    .map_err(|source| Fault::Refused { key: 0, operation, source })?;
    if let Some(fault) = fault {
        return Err(fault);
    }
    if found == live.end - live.start {
        return Ok(());
    }
    let is_missing = |number: &u64| {
        let bit = number - live.start;
        seen[(bit / 64) as usize] >> (bit % 64) & 1 == 0
    };
    match live.clone().find(is_missing) {
        Some(number) => Err(Fault::Lost { key: key_of(number), operation }),
        None => Err(Fault::Count { found, due: live.end - live.start }),
    }
}
