//! Scans of maps and of snapshots.

use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex};

use pando::{Error, Order, Pool, Record, Scan};
use self_cell::self_cell;

use crate::bytes::{pando_slice, put, required};
use crate::error::{call, free, pando_error};
use crate::failure::Failure;
use crate::handle::{self, Object, alone};
use crate::map::{map, pando_map};
use crate::options::{Range, pando_range, range};
use crate::snapshot_cell::SnapshotCell;

/// A scan in progress.
pub struct pando_scan {
    _private: [u8; 0],
}

self_cell!(
    struct SnapshotScan {
        owner: Arc<SnapshotCell>,
        #[not_covariant]
        dependent: Scan,
    }
);

enum Source {
    Map(Box<Scan<'static>>),
    Snapshot(SnapshotScan),
}

struct Records {
    source: Source,
    order: Order,
}

impl Records {
    /// Passes the next record on, or none at the end.
    fn next<R>(&mut self, then: impl FnOnce(Option<Record<'_>>) -> R) -> Result<R, Error> {
        let order = self.order;
        match &mut self.source {
            Source::Map(scan) => scan.next_record_in(order).map(then),
            Source::Snapshot(scan) => {
                scan.with_dependent_mut(|_, scan| scan.next_record_in(order).map(then))
            }
        }
    }
}

/// The scan behind a handle.
pub(crate) struct ScanObject {
    records: Mutex<Records>,
    pool: Pool,
}

impl Object for ScanObject {
    const KIND: u64 = 4;
    const NAME: &'static str = "pando_scan";
    fn pool(&self) -> Option<&Pool> {
        Some(&self.pool)
    }
    fn idle(&self) -> Result<(), Failure> {
        alone(&self.records, Self::NAME).map(drop)
    }
}

fn expecting(scan: Scan<'_>, expected: Option<usize>) -> Scan<'_> {
    match expected {
        Some(records) => scan.expecting(records),
        None => scan,
    }
}

/// A handle of a scan of `snapshot`.
pub(crate) fn of_snapshot(
    snapshot: Arc<SnapshotCell>,
    map: &pando::Map,
    range: Range,
) -> *mut pando_scan {
    let Range { keys, order, expected } = range;
    let pool = snapshot.borrow_owner().clone();
    let scan = SnapshotScan::new(snapshot, |snapshot| {
        expecting(snapshot.borrow_dependent().range(map, keys), expected)
    });
    give(Source::Snapshot(scan), order, pool)
}

fn give(source: Source, order: Order, pool: Pool) -> *mut pando_scan {
    let records = Mutex::new(Records { source, order });
    handle::give(ScanObject { records, pool }) as *mut pando_scan
}

/// Begins a scan; range may be NULL for all records. It is not a snapshot: each record was in the
/// map at some instant of the scan. It holds nothing between two records, and may be kept.
#[unsafe(no_mangle)]
pub extern "C" fn pando_map_scan(
    map: *const pando_map,
    range: *const pando_range,
    scan: Option<&mut MaybeUninit<*mut pando_scan>>,
) -> *mut pando_error {
    call(|| {
        let scan = required(scan, "the place of the scan")?;
        let Range { keys, order, expected } = self::range(range)?;
        let object = handle::get::<crate::map::MapObject>(map as usize)?;
        let records = expecting(self::map(map)?.range(keys), expected);
        scan.write(give(Source::Map(Box::new(records)), order, object.pool.clone()));
        Ok(())
    })
}

/// Lends the next record, and sets found to false at the end. The record is valid until the next
/// call with the scan. key and value may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pando_scan_next(
    scan: *mut pando_scan,
    key: Option<&mut MaybeUninit<pando_slice>>,
    value: Option<&mut MaybeUninit<pando_slice>>,
    found: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| {
        let found = required(found, "found")?;
        let object = handle::get::<ScanObject>(scan as usize)?;
        let mut records = alone(&object.records, ScanObject::NAME)?;
        let is_there = records.next(|record| {
            let Some((found_key, found_value)) = record else { return false };
            put(key, pando_slice::lend(found_key));
            put(value, pando_slice::lend(found_value));
            true
        })?;
        found.write(is_there);
        Ok(())
    })
}

/// Ends the scan, and with it the record that it has lent. NULL is left alone.
#[unsafe(no_mangle)]
pub extern "C" fn pando_scan_free(scan: *mut pando_scan) -> *mut pando_error {
    free::<ScanObject>(scan as usize)
}
