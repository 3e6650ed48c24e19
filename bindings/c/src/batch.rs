//! Batches: writes of several keys as one commit.

use std::mem::MaybeUninit;
use std::sync::Mutex;

use pando::{Pool, WriteBatch};

use crate::bytes::{pando_slice, put, required};
use crate::error::{call, free, pando_error};
use crate::failure::Failure;
use crate::handle::{self, Object, alone};
use crate::map::{map, pando_map};
use crate::pool::{pando_pool, pool};

/// Writes of several keys, and conditions on keys, that take place as one commit.
pub struct pando_batch {
    _private: [u8; 0],
}

/// The batch behind a handle, and the pool of its maps.
struct BatchObject {
    batch: Mutex<WriteBatch>,
    pool: Pool,
}

impl Object for BatchObject {
    const KIND: u64 = 7;
    const NAME: &'static str = "pando_batch";
    fn pool(&self) -> Option<&Pool> {
        Some(&self.pool)
    }
    fn idle(&self) -> Result<(), Failure> {
        alone(&self.batch, Self::NAME).map(drop)
    }
}

fn change(
    batch: *mut pando_batch,
    map: *const pando_map,
    change: impl FnOnce(WriteBatch, &pando::Map) -> WriteBatch,
) -> Result<(), Failure> {
    let object = handle::get::<BatchObject>(batch as usize)?;
    let map = self::map(map)?;
    let mut batch = alone(&object.batch, BatchObject::NAME)?;
    let steps = std::mem::take(&mut *batch);
    *batch = change(steps, map);
    Ok(())
}

/// A copy of the batch behind a handle.
pub(crate) fn batch(batch: *const pando_batch) -> Result<WriteBatch, Failure> {
    let object = handle::get::<BatchObject>(batch as usize)?;
    Ok(alone(&object.batch, BatchObject::NAME)?.clone())
}

/// An empty batch for transactional maps of the pool.
#[unsafe(no_mangle)]
pub extern "C" fn pando_batch_new(
    pool: *const pando_pool,
    batch: Option<&mut MaybeUninit<*mut pando_batch>>,
) -> *mut pando_error {
    call(|| {
        let batch = required(batch, "the place of the batch")?;
        let pool = self::pool(pool)?.clone();
        let object = BatchObject { batch: Mutex::new(WriteBatch::new()), pool };
        batch.write(handle::give(object) as *mut pando_batch);
        Ok(())
    })
}

/// Appends: give the key this value.
#[unsafe(no_mangle)]
pub extern "C" fn pando_batch_put(
    batch: *mut pando_batch,
    map: *const pando_map,
    key: pando_slice,
    value: pando_slice,
) -> *mut pando_error {
    call(|| {
        let (key, value) = (key.bytes("key")?, value.bytes("value")?);
        change(batch, map, |batch, map| batch.put(map, key, value))
    })
}

/// Appends: remove the key, if it is present.
#[unsafe(no_mangle)]
pub extern "C" fn pando_batch_remove(
    batch: *mut pando_batch,
    map: *const pando_map,
    key: pando_slice,
) -> *mut pando_error {
    call(|| {
        let key = key.bytes("key")?;
        change(batch, map, |batch, map| batch.remove(map, key))
    })
}

/// Appends a condition: before the batch the key has this value; or, if value is NULL, it is
/// absent.
#[unsafe(no_mangle)]
pub extern "C" fn pando_batch_require(
    batch: *mut pando_batch,
    map: *const pando_map,
    key: pando_slice,
    value: Option<&pando_slice>,
) -> *mut pando_error {
    call(|| {
        let key = key.bytes("key")?;
        let value = value.map(|value| value.bytes("value")).transpose()?;
        change(batch, map, |batch, map| batch.require(map, key, value))
    })
}

/// Applies the batch as one commit. lsn may be NULL. PANDO_CODE_CONDITION_FAILED if a condition
/// does not hold: nothing has taken place.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_write(
    pool: *const pando_pool,
    batch: *const pando_batch,
    lsn: Option<&mut MaybeUninit<u64>>,
) -> *mut pando_error {
    call(|| {
        put(lsn, self::pool(pool)?.write(&self::batch(batch)?)?);
        Ok(())
    })
}

/// Frees the batch. NULL is left alone.
#[unsafe(no_mangle)]
pub extern "C" fn pando_batch_free(batch: *mut pando_batch) -> *mut pando_error {
    free::<BatchObject>(batch as usize)
}
