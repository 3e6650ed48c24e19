//! The final check: a system must hold exactly the expected records.
//!
//! The keys of a full scan must ascend, and each must be the key of a live record. If their number
//! is right, the scan has returned all live records. A bit for each record shows a missing key. A
//! get may take another path than a scan, so that some gets follow: of live records, and of keys
//! that are absent.

use std::ops::Range;

use crate::error::Fault;
use crate::record::{Buffers, Records};
use crate::system::{AnySystem, Refusal, Scan};

/// Maximum number of gets of live records.
const PRESENT_GETS: u64 = 1_000_000;
/// Maximum number of gets of absent records on each side of the live ones: of deleted records, and
/// of records that were never inserted.
const ABSENT_GETS: u64 = 10_000;

/// The first difference between the keys of a full scan and the expected keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stray {
    /// An expected key that the scan did not return.
    Lost(Vec<u8>),
    /// A key that is not expected.
    Invented(Vec<u8>),
    /// An expected key at a wrong position: a second time, or after a greater key.
    Disorder(Vec<u8>),
}

/// Compares the keys of a full scan upwards from `least` with `due`, the expected keys in ascending
/// order.
pub fn keys(system: &dyn AnySystem, least: &[u8], due: &[&[u8]]) -> Result<Option<Stray>, Refusal> {
    let (mut at, mut stray) = (0, None);
    system.scan(Scan::upwards(least), &mut |key, _| match due.get(at) {
        _ if stray.is_some() => {}
        Some(&next) if next == key => at += 1,
        _ => {
            stray = Some(match due.binary_search(&key) {
                Err(_) => Stray::Invented(key.to_vec()),
                Ok(place) if place < at => Stray::Disorder(key.to_vec()),
                Ok(_) => Stray::Lost(due[at].to_vec()),
            });
        }
    })?;
    Ok(stray.or_else(|| due.get(at).map(|next| Stray::Lost(next.to_vec()))))
}

/// Compares the number of records with that of `live`; if it is wrong, searches for the wrong key.
pub fn count(system: &dyn AnySystem, records: Records, live: &Range<u64>) -> Result<(), Fault> {
    let operation = "the count of records";
    let due = live.end - live.start;
    match system.count().map_err(|source| Fault::Refused { key: 0, operation, source })? {
        found if found == due => Ok(()),
        // Scan and gets find exactly the expected records, so that only the count is wrong.
        found => all(system, records, live).and(Err(Fault::Count { found, due })),
    }
}

/// Compares all records with the records `live`.
pub fn all(system: &dyn AnySystem, records: Records, live: &Range<u64>) -> Result<(), Fault> {
    scan_all(system, records, live)?;
    let operation = "a get after the run";
    let mut buffers = Buffers::new(records.shape);
    let mut get = |key: u64| -> Result<bool, Fault> {
        let mut checked = Ok(());
        let mut check =
            |value: &[u8]| checked = records.check_value::<false>(key, value, operation);
        let is_there = system
            .get(buffers.key::<false>(key), &mut check)
            .map_err(|source| Fault::Refused { key, operation, source })?;
        checked.map(|()| is_there)
    };
    let stride = ((live.end - live.start) / PRESENT_GETS).max(1);
    for key in live.clone().step_by(stride as usize).map(|number| records.key(number)) {
        if !get(key)? {
            return Err(records.lost(key, operation));
        }
    }
    let gone = live.start.saturating_sub(ABSENT_GETS)..live.start;
    for key in gone.chain(live.end..live.end + ABSENT_GETS).map(|number| records.key(number)) {
        if get(key)? {
            return Err(Fault::Invented { key, operation });
        }
    }
    Ok(())
}

fn scan_all(system: &dyn AnySystem, records: Records, live: &Range<u64>) -> Result<(), Fault> {
    let operation = "the full scan";
    let mut seen = vec![0_u64; (live.end - live.start).div_ceil(64) as usize];
    let (mut found, mut previous, mut fault) = (0, None, None);
    let (least, _) = Buffers::ends(records.shape);
    let mut check = |key: &[u8], value: &[u8]| {
        let key = records.check_key::<false>(key, operation)?;
        let number = records.number(key);
        if let Some(previous) = previous.filter(|&previous| previous >= key) {
            return Err(Fault::Disorder { previous, key });
        }
        if !live.contains(&number) {
            return Err(Fault::Invented { key, operation });
        }
        records.check_value::<false>(key, value, operation)?;
        let bit = number - live.start;
        seen[(bit / 64) as usize] |= 1 << (bit % 64);
        previous = Some(key);
        found += 1;
        Ok(())
    };
    system
        .scan(Scan::upwards(&least), &mut |key, value| {
            if fault.is_none() {
                fault = check(key, value).err();
            }
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
        Some(number) => Err(records.lost(records.key(number), operation)),
        None => Err(Fault::Count { found, due: live.end - live.start }),
    }
}
