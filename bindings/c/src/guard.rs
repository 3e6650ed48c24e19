//! Guards: values that are lent without a copy for longer than a call.

use std::mem::MaybeUninit;
use std::sync::Mutex;

use pando::{Pin, PinnedValue, Pool};

use crate::bytes::{pando_slice, put, required};
use crate::error::{call, free, pando_error};
use crate::failure::Failure;
use crate::handle::{self, Object, alone};
use crate::map::{map, pando_map};
use crate::pool::{pando_pool, pool};

/// Keeps the values that it has lent, until it is freed.
pub struct pando_guard {
    _private: [u8; 0],
}

/// The guard behind a handle.
struct GuardObject {
    lent: Mutex<Vec<PinnedValue>>,
    pin: Pin,
    pool: Pool,
}

impl Object for GuardObject {
    const KIND: u64 = 9;
    const NAME: &'static str = "pando_guard";
    fn pool(&self) -> Option<&Pool> {
        Some(&self.pool)
    }
    fn idle(&self) -> Result<(), Failure> {
        alone(&self.lent, Self::NAME).map(drop)
    }
}

/// Begins a guard. While it lives, the pool reuses almost no value that is removed or replaced, in
/// any map, and grows with each write: free it soon. No call on records waits for it. Transactional
/// maps cannot be dropped meanwhile, nor the maps of values that it has lent. A process has at most
/// 1,024 guards of a pool at a time, and 128 of a shared one; else PANDO_CODE_TOO_MANY_THREADS.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_guard(
    pool: *const pando_pool,
    guard: Option<&mut MaybeUninit<*mut pando_guard>>,
) -> *mut pando_error {
    call(|| {
        let guard = required(guard, "the place of the guard")?;
        let pool = self::pool(pool)?.clone();
        let object = GuardObject { lent: Mutex::new(Vec::new()), pin: pool.pin()?, pool };
        guard.write(handle::give(object) as *mut pando_guard);
        Ok(())
    })
}

/// Lends the value of the key, and sets found; value is unchanged if the key is absent. A value is
/// copied only if it has at most eight bytes, is in a store, or is being replaced by a commit. It
/// is valid until the guard is freed, whatever others write meanwhile. The guard takes some memory
/// for each value.
#[unsafe(no_mangle)]
pub extern "C" fn pando_guard_read(
    guard: *mut pando_guard,
    map: *const pando_map,
    key: pando_slice,
    value: Option<&mut MaybeUninit<pando_slice>>,
    found: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| {
        let found = required(found, "found")?;
        let object = handle::get::<GuardObject>(guard as usize)?;
        let (map, key) = (self::map(map)?, key.bytes("key")?);
        let mut lent = alone(&object.lent, GuardObject::NAME)?;
        let read = object.pin.get(map, key)?;
        found.write(read.is_some());
        if let Some(read) = read {
            put(value, pando_slice::lend(&read));
            // A copy stays where it is: it lies behind a pointer.
            lent.push(read);
        }
        Ok(())
    })
}

/// Ends the guard, and with it all values that it has lent. Any thread may free it. NULL is left
/// alone.
#[unsafe(no_mangle)]
pub extern "C" fn pando_guard_free(guard: *mut pando_guard) -> *mut pando_error {
    free::<GuardObject>(guard as usize)
}
