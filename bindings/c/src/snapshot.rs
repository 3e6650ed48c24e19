//! Snapshots.

use std::mem::MaybeUninit;
use std::sync::Arc;

use pando::Pool;

use crate::bytes::{pando_bytes, pando_slice, required};
use crate::error::{call, free, pando_error};
use crate::failure::Failure;
use crate::handle::{self, Object};
use crate::map::{answer, map, pando_map};
use crate::options::{pando_range, range};
use crate::pool::{pando_pool, pool};
use crate::scan::{of_snapshot, pando_scan};
use crate::snapshot_cell::SnapshotCell;

/// The transactional maps of a pool at one moment.
pub struct pando_snapshot {
    _private: [u8; 0],
}

/// The snapshot behind a handle. Its scans hold it too.
struct SnapshotObject(Arc<SnapshotCell>);

impl Object for SnapshotObject {
    const KIND: u64 = 5;
    const NAME: &'static str = "pando_snapshot";
    fn pool(&self) -> Option<&Pool> {
        Some(self.0.borrow_owner())
    }
}

fn object<'call>(snapshot: *const pando_snapshot) -> Result<&'call Arc<SnapshotCell>, Failure> {
    handle::get::<SnapshotObject>(snapshot as usize).map(|snapshot| &snapshot.0)
}

/// Takes a snapshot of the transactional maps. It holds up no writer.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_snapshot(
    pool: *const pando_pool,
    snapshot: Option<&mut MaybeUninit<*mut pando_snapshot>>,
) -> *mut pando_error {
    call(|| {
        let snapshot = required(snapshot, "the place of the snapshot")?;
        let cell = SnapshotCell::try_new(self::pool(pool)?.clone(), Pool::snapshot)?;
        snapshot.write(handle::give(SnapshotObject(Arc::new(cell))) as *mut pando_snapshot);
        Ok(())
    })
}

/// The log sequence number of the newest commit of the snapshot; 0 for a wrong handle.
#[unsafe(no_mangle)]
pub extern "C" fn pando_snapshot_lsn(snapshot: *const pando_snapshot) -> u64 {
    object(snapshot).map_or(0, |snapshot| snapshot.borrow_dependent().lsn())
}

/// Copies the value of the key into value, and sets found; otherwise as pando_map_get.
#[unsafe(no_mangle)]
pub extern "C" fn pando_snapshot_get(
    snapshot: *const pando_snapshot,
    map: *const pando_map,
    key: pando_slice,
    value: Option<&mut pando_bytes>,
    found: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| {
        let found = required(found, "found")?;
        let snapshot = object(snapshot)?.borrow_dependent();
        let got = snapshot.get(self::map(map)?, key.bytes("key")?)?;
        answer(got.as_deref(), value, Some(found));
        Ok(())
    })
}

/// Begins a scan of the snapshot; range may be NULL for all records. The scan keeps the snapshot.
#[unsafe(no_mangle)]
pub extern "C" fn pando_snapshot_scan(
    snapshot: *const pando_snapshot,
    map: *const pando_map,
    range: *const pando_range,
    scan: Option<&mut MaybeUninit<*mut pando_scan>>,
) -> *mut pando_error {
    call(|| {
        let scan = required(scan, "the place of the scan")?;
        let (snapshot, map) = (object(snapshot)?, self::map(map)?);
        scan.write(of_snapshot(Arc::clone(snapshot), map, self::range(range)?));
        Ok(())
    })
}

/// Ends the snapshot when its last scan is freed. NULL is left alone.
#[unsafe(no_mangle)]
pub extern "C" fn pando_snapshot_free(snapshot: *mut pando_snapshot) -> *mut pando_error {
    free::<SnapshotObject>(snapshot as usize)
}
