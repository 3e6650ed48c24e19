//! A check of a pool that threads and processes use meanwhile.
//!
//! Each map is scanned upwards, in parts, and each key that a scan finds is searched for from the
//! root. So a leaf that scans reach and gets do not is found, as is each node on these ways that
//! cannot be read. A leaf that only gets reach is not looked for. Another thread may remove a
//! key between the scan and the get: then the scan is repeated at this key.

use std::ops::Bound;

use pando_index::KeyRange;

use crate::error::Error;
use crate::map::Map;
use crate::pool::Pool;
use crate::report::{CheckReport, Problem, ProblemClass};

/// Records of a part, which are searched for after they were scanned.
const PART: usize = 256;
/// How often a get must miss a key that a scan finds.
const MISSES: usize = 100;

impl Pool {
    /// Checks the maps while other threads and processes use them. Scans each map upwards, and
    /// searches for each key that the scan finds. The report has the problems: damage that one of
    /// these meets, keys out of order, keys that a scan finds and a get does not. It has no nodes
    /// and no blocks: leaks, and blocks that are free although they are reached, are found only by
    /// [`check`](Self::check).
    ///
    /// In a shared pool, maps that processes cannot share are left out.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyThreads`], and those of [`Store`](crate::Store) reads.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// pool.map("trees")?.insert(b"aspen", b"")?;
    /// let report = pool.check_online()?;
    /// assert_eq!((report.is_consistent(), report.maps, report.records), (true, 1, 1));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn check_online(&self) -> Result<CheckReport, Error> {
        check(self)
    }
}

fn check(pool: &Pool) -> Result<CheckReport, Error> {
    let mut report = CheckReport::default();
    for info in pool.maps()? {
        let mut problem = |class, message| {
            let map = (!info.name.is_empty()).then(|| info.name.clone());
            report.problems.push(Problem { class, map, message });
        };
        if let Some(damage) = info.damage {
            problem(ProblemClass::Unreadable, damage);
            continue;
        }
        let map = match pool.open_map(&info.name) {
            Ok(map) => map,
            // It was or is being dropped, or may not be used in this way.
            Err(
                Error::MapNotFound { .. }
                | Error::MapOpenElsewhere { .. }
                | Error::NotShareable { .. },
            ) => continue,
            Err(
                error @ (Error::Damaged(_) | Error::MapDamaged { .. } | Error::UnknownIndex { .. }),
            ) => {
                problem(ProblemClass::Unreadable, error.to_string());
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut records = 0;
        match check_map(&map, &mut records) {
            Ok(None) => {}
            Ok(Some(message)) => problem(ProblemClass::Separator, message),
            Err(error @ Error::KeysOutOfOrder { .. }) => {
                problem(ProblemClass::Order, error.to_string());
            }
            Err(error @ (Error::Damaged(_) | Error::MapDamaged { .. })) => {
                problem(ProblemClass::Unreadable, error.to_string());
            }
            Err(error) => return Err(error),
        }
        report.maps += 1;
        report.records += records;
    }
    Ok(report)
}

/// The first problem of a map.
fn check_map(map: &Map, records: &mut u64) -> Result<Option<String>, Error> {
    // Keys that others append meanwhile are not looked at: the check ends.
    let Some((last, _)) = map.last()? else { return Ok(None) };
    let mut after = Bound::Unbounded;
    loop {
        let mut keys: Vec<Vec<u8>> = Vec::with_capacity(PART);
        let mut scan =
            map.range(KeyRange { low: after.clone(), high: Bound::Included(last.clone()) });
        while keys.len() < PART
            && let Some((key, _)) = scan.next_record()?
        {
            // A scan checks the order of its keys, but not that they lie in its range.
            if let Bound::Excluded(before) = &after
                && key <= &before[..]
            {
                let (key, before) = (key.escape_ascii(), before.escape_ascii());
                return Ok(Some(format!("a scan behind the key \"{before}\" finds \"{key}\"")));
            }
            keys.push(key.to_vec());
        }
        for key in &keys {
            if !is_found(map, key)? {
                let key = key.escape_ascii();
                return Ok(Some(format!("a scan finds the key \"{key}\", and a get does not")));
            }
        }
        *records += keys.len() as u64;
        match keys.pop() {
            Some(key) => after = Bound::Excluded(key),
            None => return Ok(None),
        }
    }
}

/// Whether a get finds the key, or a scan does not find it any more.
fn is_found(map: &Map, key: &[u8]) -> Result<bool, Error> {
    for _ in 0..MISSES {
        if map.contains_key(key)? {
            return Ok(true);
        }
        let this_key = || Bound::Included(key.to_vec());
        let mut scan = map.range(KeyRange { low: this_key(), high: this_key() });
        if scan.next_record()?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}
