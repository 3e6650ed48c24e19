//! Pools and stores.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use pando::{Pool, Store, StoreFiles};

use crate::bytes::{pando_bytes, path, put, required, text};
use crate::error::{call, pando_error};
use crate::failure::Failure;
use crate::handle::{self, Object};
use crate::map::{MapObject, pando_map};
use crate::options::{map_options, pando_map_options, pando_pool_options, pool_options};

/// A pool, or a store: named maps in one file, in process memory, or in a directory.
pub struct pando_pool {
    _private: [u8; 0],
}

/// The pool behind a handle.
pub(crate) struct PoolObject(pub Pool);

impl Object for PoolObject {
    const KIND: u64 = 2;
    const NAME: &'static str = "pando_pool";
    fn pool(&self) -> Option<&Pool> {
        Some(&self.0)
    }
}

pub(crate) fn pool<'call>(pool: *const pando_pool) -> Result<&'call Pool, Failure> {
    handle::get::<PoolObject>(pool as usize).map(|pool| &pool.0)
}

/// Writes a handle of the pool that `open` returns. Nothing is opened if there is no place for it.
fn opened(
    out: Option<&mut MaybeUninit<*mut pando_pool>>,
    open: impl FnOnce() -> Result<Pool, Failure>,
) -> *mut pando_error {
    call(|| {
        let out = required(out, "the place of the pool")?;
        out.write(handle::give(PoolObject(open()?)) as *mut pando_pool);
        Ok(())
    })
}

/// The version of the library, such as "0.1.0". Never freed.
#[unsafe(no_mangle)]
pub extern "C" fn pando_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Creates a pool in a new file. options may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_create(
    path: *const c_char,
    options: *const pando_pool_options,
    pool: Option<&mut MaybeUninit<*mut pando_pool>>,
) -> *mut pando_error {
    opened(pool, || Ok(Pool::create(self::path(path)?, &pool_options(options)?)?))
}

/// Opens a pool, and recovers it if a crash interrupted writes. options may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_open(
    path: *const c_char,
    options: *const pando_pool_options,
    pool: Option<&mut MaybeUninit<*mut pando_pool>>,
) -> *mut pando_error {
    opened(pool, || Ok(Pool::open(self::path(path)?, &pool_options(options)?)?))
}

/// Opens the pool, or creates it if there is none. options may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_open_or_create(
    path: *const c_char,
    options: *const pando_pool_options,
    pool: Option<&mut MaybeUninit<*mut pando_pool>>,
) -> *mut pando_error {
    opened(pool, || Ok(Pool::open_or_create(self::path(path)?, &pool_options(options)?)?))
}

/// Creates a pool in process memory, which ends with its last handle. options may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_volatile(
    options: *const pando_pool_options,
    pool: Option<&mut MaybeUninit<*mut pando_pool>>,
) -> *mut pando_error {
    opened(pool, || Ok(Pool::volatile(&pool_options(options)?)?))
}

/// Opens the store in a directory, whose maps may be larger than memory, or creates it. Its pages
/// take memory_bytes at most, 16 MiB or more. All of its maps are transactional. options may be
/// NULL; acknowledge and the limits of snapshots are used.
#[unsafe(no_mangle)]
pub extern "C" fn pando_store_open(
    path: *const c_char,
    memory_bytes: u64,
    options: *const pando_pool_options,
    store: Option<&mut MaybeUninit<*mut pando_pool>>,
) -> *mut pando_error {
    opened(store, || {
        let store = Store::open_with(self::path(path)?, memory_bytes, &pool_options(options)?)?;
        Ok(store.into_pool())
    })
}

/// Opens the store in a directory for reading alone, and changes none of its files. Writes are
/// PANDO_CODE_READ_ONLY. Any number of processes may read a store at once, and none may write it
/// meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn pando_store_open_read_only(
    path: *const c_char,
    memory_bytes: u64,
    store: Option<&mut MaybeUninit<*mut pando_pool>>,
) -> *mut pando_error {
    opened(store, || Ok(StoreFiles::at(self::path(path)?).open(memory_bytes)?.into_pool()))
}

/// Creates a pool at path from a backup. options must name a log.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_restore(
    backup: *const c_char,
    path: *const c_char,
    options: *const pando_pool_options,
    pool: Option<&mut MaybeUninit<*mut pando_pool>>,
) -> *mut pando_error {
    opened(pool, || {
        Ok(Pool::restore(self::path(backup)?, self::path(path)?, &pool_options(options)?)?)
    })
}

/// Frees the handle, and closes the pool if no handle of it, of its maps, scans, transactions,
/// snapshots, guards, batches or sessions is left; the last of them closes it otherwise. NULL is
/// left alone. The error says that the handle is wrong, or that a disk refused: the handle has
/// ended then too.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_free(pool: *mut pando_pool) -> *mut pando_error {
    call(|| {
        if pool.is_null() {
            return Ok(());
        }
        let Some(PoolObject(pool)) = handle::take(pool as usize)? else { return Ok(()) };
        match pool.close() {
            Err(pando::Error::PoolInUse { .. }) => Ok(()),
            closed => Ok(closed?),
        }
    })
}

/// Opens the map of that name, or creates it. options may be NULL: an existing map is opened as it
/// is, a new one is a bztree. Durable on return.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_map(
    pool: *const pando_pool,
    name: *const c_char,
    options: *const pando_map_options,
    map: Option<&mut MaybeUninit<*mut pando_map>>,
) -> *mut pando_error {
    call(|| {
        let map = required(map, "the place of the map")?;
        let pool = self::pool(pool)?;
        let opened = pool.map_with(text(name, "the name")?, &map_options(options)?)?;
        map.write(MapObject::new(opened, pool).into_handle());
        Ok(())
    })
}

/// Opens the map of that name, which must exist.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_open_map(
    pool: *const pando_pool,
    name: *const c_char,
    map: Option<&mut MaybeUninit<*mut pando_map>>,
) -> *mut pando_error {
    call(|| {
        let map = required(map, "the place of the map")?;
        let pool = self::pool(pool)?;
        let opened = pool.open_map(text(name, "the name")?)?;
        map.write(MapObject::new(opened, pool).into_handle());
        Ok(())
    })
}

/// Drops the map of that name, of which no handle may be held. Durable on return.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_drop_map(
    pool: *const pando_pool,
    name: *const c_char,
) -> *mut pando_error {
    call(|| Ok(self::pool(pool)?.drop_map(text(name, "the name")?)?))
}

/// Waits until all commits so far survive a power cut. lsn may be NULL; it gets the log sequence
/// number of the newest of them.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_sync(
    pool: *const pando_pool,
    lsn: Option<&mut MaybeUninit<u64>>,
) -> *mut pando_error {
    call(|| {
        put(lsn, self::pool(pool)?.sync()?);
        Ok(())
    })
}

/// Waits until all commits up to lsn survive a power cut.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_sync_to(pool: *const pando_pool, lsn: u64) -> *mut pando_error {
    call(|| Ok(self::pool(pool)?.sync_to(lsn)?))
}

/// The log sequence number up to which all commits survive a power cut.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_durable_lsn(
    pool: *const pando_pool,
    lsn: Option<&mut MaybeUninit<u64>>,
) -> *mut pando_error {
    call(|| {
        required(lsn, "lsn")?.write(self::pool(pool)?.durable_lsn()?);
        Ok(())
    })
}

/// Writes an image of the transactional maps to the log, so that a recovery is faster.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_write_image(pool: *const pando_pool) -> *mut pando_error {
    call(|| Ok(self::pool(pool)?.write_image()?))
}

/// Copies all commits so far into the new directory to. lsn may be NULL; it gets the log sequence
/// number of the newest of them. Of a store it is an error.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_backup(
    pool: *const pando_pool,
    to: *const c_char,
    lsn: Option<&mut MaybeUninit<u64>>,
) -> *mut pando_error {
    call(|| {
        put(lsn, self::pool(pool)?.backup(path(to)?)?);
        Ok(())
    })
}

fn json(place: Option<&mut pando_bytes>, value: &impl serde::Serialize) -> Result<(), Failure> {
    let place = place.ok_or_else(|| Failure::null("the place of the report"))?;
    let text = serde_json::to_vec(value)
        .map_err(|error| Failure::new(crate::failure::pando_code::Other, error.to_string()))?;
    place.fill(&text);
    Ok(())
}

/// The figures of the pool as one object of JSON, as `pando stat --json` prints them. It visits all
/// nodes of the maps.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_stat(
    pool: *const pando_pool,
    report: Option<&mut pando_bytes>,
) -> *mut pando_error {
    call(|| json(report, &self::pool(pool)?.stat()?))
}

/// The maps of the pool as an array of JSON.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_maps(
    pool: *const pando_pool,
    report: Option<&mut pando_bytes>,
) -> *mut pando_error {
    call(|| json(report, &self::pool(pool)?.maps()?))
}

/// Checks the whole pool. problems gets how many problems there are, and report the report as an
/// object of JSON; report may be NULL. No other thread may use the pool meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_check(
    pool: *const pando_pool,
    problems: Option<&mut MaybeUninit<usize>>,
    report: Option<&mut pando_bytes>,
) -> *mut pando_error {
    call(|| {
        let problems = required(problems, "the place of the number of problems")?;
        let found = self::pool(pool)?.check()?;
        if report.is_some() {
            json(report, &found)?;
        }
        problems.write(found.problems.len());
        Ok(())
    })
}
