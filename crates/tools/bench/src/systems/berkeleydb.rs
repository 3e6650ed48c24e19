//! The peer BerkeleyDB 5.3 (Debian's libdb5.3), B-tree: what the Bw-tree's paper compares with.
//!
//! Settings, after the Programmer's Reference Guide: a transactional environment private to the
//! process (`DB_PRIVATE`), free-threaded handles, a cache of 1 GiB. Every write is a transaction of
//! its own (`DB_AUTO_COMMIT`). Deadlocks are detected at each conflict, and the operation is tried
//! again. There is a checkpoint for each 64 MiB of log, and earlier logs are removed
//! (`DB_LOG_AUTO_REMOVE`).
//!
//! | system | settings | survives |
//! | --- | --- | --- |
//! | `berkeleydb` | `DB_TXN_WRITE_NOSYNC`: a commit gives its log to the operating system | a process crash |
//! | `berkeleydb:sync` | the default: a commit syncs the log | power loss |
//!
//! No maintained crate binds BerkeleyDB, so `berkeleydb.c` beside this file makes plain functions
//! of the calls that are needed. The number of records comes from `DB->stat` without
//! `DB_FAST_STAT`, which walks all pages, so it is a true one.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::entry::BuildError;
use crate::record::{MAX_KEY_BYTES, MAX_VALUE_BYTES, Shape};
use crate::system::{Order, Refusal, Scan, System};

/// Threads that may be at work at once; the harness has at most this many.
const MOST_THREADS: u32 = 1024;
/// Kibibytes of log between checkpoints.
const CHECKPOINT_KIB: u32 = 64 << 10;
/// Writes between two looks at how much was logged.
const WRITES_PER_LOOK: u64 = 1 << 14;
/// `DB_NOTFOUND` of `db.h`.
const NOT_FOUND: c_int = -30988;
/// `DB_KEYEXIST` of `db.h`.
const KEY_EXISTS: c_int = -30994;
/// `DB_LOCK_DEADLOCK` of `db.h`.
const DEADLOCK: c_int = -30993;
#[repr(C)]
struct Handle {
    _private: [u8; 0],
}

#[repr(C)]
struct CursorHandle {
    _private: [u8; 0],
}

// SAFETY: the signatures are those of `berkeleydb.c`.
unsafe extern "C" {
    fn pando_bdb_open(
        folder: *const c_char,
        cache_gib: u32,
        is_synced: c_int,
        most_threads: u32,
        out: *mut *mut Handle,
    ) -> c_int;
    fn pando_bdb_close(map: *mut Handle) -> c_int;
    fn pando_bdb_put(
        map: *mut Handle,
        key: *const c_void,
        key_bytes: u32,
        value: *const c_void,
        value_bytes: u32,
        is_only_new: c_int,
    ) -> c_int;
    fn pando_bdb_delete(map: *mut Handle, key: *const c_void, key_bytes: u32) -> c_int;
    fn pando_bdb_get(
        map: *mut Handle,
        key: *const c_void,
        key_bytes: u32,
        value: *mut c_void,
        capacity: u32,
        value_bytes: *mut u32,
    ) -> c_int;
    fn pando_bdb_checkpoint(map: *mut Handle, logged_kib: u32) -> c_int;
    fn pando_bdb_count(map: *mut Handle, records: *mut u64) -> c_int;
    fn pando_bdb_cursor(map: *mut Handle, cursor: *mut *mut CursorHandle) -> c_int;
    fn pando_bdb_cursor_close(cursor: *mut CursorHandle) -> c_int;
    fn pando_bdb_cursor_get(
        cursor: *mut CursorHandle,
        r#where: c_int,
        key: *mut c_void,
        key_capacity: u32,
        key_bytes: *mut u32,
        value: *mut c_void,
        value_capacity: u32,
        value_bytes: *mut u32,
    ) -> c_int;
    fn pando_bdb_text(error: c_int) -> *const c_char;
}

fn refusal(error: c_int) -> Refusal {
    // SAFETY: `db_strerror` takes any number and returns a string that no code changes while it
    // is copied; for a number that it does not know it may be one that it reuses.
    let text = unsafe { CStr::from_ptr(pando_bdb_text(error)) };
    format!("BerkeleyDB: {} ({error})", text.to_string_lossy()).into()
}

/// A length that the harness's limits keep far below 4 GiB.
fn length(bytes: &[u8]) -> u32 {
    bytes.len() as u32
}

/// Where a cursor goes; the numbers are those of `berkeleydb.c`.
#[derive(Clone, Copy)]
enum Move {
    NotBefore = 0,
    Next = 1,
    Previous = 2,
    Last = 3,
}

/// A cursor, closed when it is dropped.
struct Cursor {
    handle: *mut CursorHandle,
    key: [u8; MAX_KEY_BYTES],
    key_bytes: u32,
    value: Vec<u8>,
    value_bytes: u32,
}

impl Cursor {
    /// Moves to a record; false if there is none.
    fn go(&mut self, to: Move) -> Result<bool, c_int> {
        // SAFETY: the cursor is open and this value's own; key and value have room for as many
        // bytes as is said.
        let done = unsafe {
            pando_bdb_cursor_get(
                self.handle,
                to as c_int,
                self.key.as_mut_ptr().cast(),
                length(&self.key),
                &mut self.key_bytes,
                self.value.as_mut_ptr().cast(),
                length(&self.value),
                &mut self.value_bytes,
            )
        };
        match done {
            0 => Ok(true),
            NOT_FOUND => Ok(false),
            error => Err(error),
        }
    }

    fn key(&self) -> &[u8] {
        &self.key[..self.key_bytes as usize]
    }

    fn value(&self) -> &[u8] {
        &self.value[..self.value_bytes as usize]
    }

    /// Moves to the first record of a scan from `from`, included.
    fn start(&mut self, from: &[u8], order: Order) -> Result<bool, c_int> {
        self.key[..from.len()].copy_from_slice(from);
        self.key_bytes = length(from);
        let is_there = self.go(Move::NotBefore)?;
        match order {
            Order::Ascending => Ok(is_there),
            Order::Descending if !is_there => self.go(Move::Last),
            Order::Descending if self.key() > from => self.go(Move::Previous),
            Order::Descending => Ok(true),
        }
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: the cursor is open and not used after this. That closing it fails leaves
        // nothing to be done: it holds no data.
        unsafe { pando_bdb_cursor_close(self.handle) };
    }
}

/// A B-tree in an environment of its own.
pub struct Tree {
    handle: *mut Handle,
    value_bytes: usize,
    writes: AtomicU64,
}

// SAFETY: environment and database are opened with `DB_THREAD`, so their handles may be used by
// any threads at once; they are closed by the only owner.
unsafe impl Send for Tree {}
// SAFETY: as above.
unsafe impl Sync for Tree {}

impl Tree {
    /// The tree in `folder`, created if it does not exist, with the next number of GiB that has so
    /// many bytes of cache; with `is_synced`, each write is synced.
    pub fn open(
        folder: &Path,
        cache_bytes: u64,
        shape: Shape,
        is_synced: bool,
    ) -> Result<Self, BuildError> {
        let folder = CString::new(folder.as_os_str().as_bytes())?;
        let mut handle = ptr::null_mut();
        let cache_gib = cache_bytes.div_ceil(1 << 30) as u32;
        // SAFETY: the folder's name ends with a zero, and `handle` has room for a pointer.
        let done = unsafe {
            pando_bdb_open(folder.as_ptr(), cache_gib, is_synced.into(), MOST_THREADS, &mut handle)
        };
        match done {
            0 => Ok(Self { handle, value_bytes: shape.value_bytes, writes: AtomicU64::new(0) }),
            error => Err(refusal(error)),
        }
    }

    fn put(&self, key: &[u8], value: &[u8], is_only_new: bool) -> Result<bool, Refusal> {
        // SAFETY: the handle is open; key and value are as long as is said and only read.
        let done = unsafe {
            pando_bdb_put(
                self.handle,
                key.as_ptr().cast(),
                length(key),
                value.as_ptr().cast(),
                length(value),
                is_only_new.into(),
            )
        };
        match done {
            0 => self.wrote().map(|()| true),
            KEY_EXISTS => Ok(false),
            error => Err(refusal(error)),
        }
    }

    /// Counts a write, and now and then sees whether a checkpoint is due.
    fn wrote(&self) -> Result<(), Refusal> {
        // Relaxed: it only has to come round; nothing is read on its word.
        if !self
            .writes
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1)
            .is_multiple_of(WRITES_PER_LOOK)
        {
            return Ok(());
        }
        // SAFETY: the handle is open.
        match unsafe { pando_bdb_checkpoint(self.handle, CHECKPOINT_KIB) } {
            0 => Ok(()),
            error => Err(refusal(error)),
        }
    }

    fn cursor(&self) -> Result<Cursor, Refusal> {
        let mut handle = ptr::null_mut();
        // SAFETY: the handle is open, and the cursor's has room for a pointer.
        match unsafe { pando_bdb_cursor(self.handle, &mut handle) } {
            0 => Ok(Cursor {
                handle,
                key: [0; MAX_KEY_BYTES],
                key_bytes: 0,
                value: vec![0; self.value_bytes],
                value_bytes: 0,
            }),
            error => Err(refusal(error)),
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // SAFETY: all cursors are gone, for they live within a scan, and no other code has the
        // handle after this. That closing fails is no loss: what was committed is in the log.
        unsafe { pando_bdb_close(self.handle) };
    }
}

impl System for Tree {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        self.put(key, value, true)
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.put(key, value, false).map(|_| ())
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        let mut value = [0_u8; MAX_VALUE_BYTES];
        let mut value_bytes = 0;
        // SAFETY: the handle is open; the key is as long as is said and only read, and the value
        // has room for as many bytes as is said.
        let done = unsafe {
            pando_bdb_get(
                self.handle,
                key.as_ptr().cast(),
                length(key),
                value.as_mut_ptr().cast(),
                length(&value),
                &mut value_bytes,
            )
        };
        match done {
            0 => {
                visit(&value[..value_bytes as usize]);
                Ok(true)
            }
            NOT_FOUND => Ok(false),
            error => Err(refusal(error)),
        }
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        // SAFETY: the handle is open; the key is as long as is said and only read.
        match unsafe { pando_bdb_delete(self.handle, key.as_ptr().cast(), length(key)) } {
            0 => self.wrote().map(|()| true),
            NOT_FOUND => Ok(false),
            error => Err(refusal(error)),
        }
    }

    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        let onwards = match order {
            Order::Ascending => Move::Next,
            Order::Descending => Move::Previous,
        };
        let (mut left, mut last) = (limit, None::<Vec<u8>>);
        while left > 0 {
            // A cursor that lost a deadlock cannot be used any more; a new one continues from the
            // last key, which is passed over if it is still there.
            let mut cursor = self.cursor()?;
            let mut is_there = cursor.start(last.as_deref().unwrap_or(from), order);
            if is_there == Ok(true) && last.as_deref() == Some(cursor.key()) {
                is_there = cursor.go(onwards);
            }
            while left > 0 && is_there == Ok(true) {
                visit(cursor.key(), cursor.value());
                left -= 1;
                // Kept for the case of a deadlock on the way to the next record.
                let key = last.get_or_insert_default();
                key.clear();
                key.extend_from_slice(cursor.key());
                if left > 0 {
                    is_there = cursor.go(onwards);
                }
            }
            match is_there {
                Ok(_) => return Ok(()),
                Err(DEADLOCK) => {}
                Err(error) => return Err(refusal(error)),
            }
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Refusal> {
        let mut records = 0;
        // SAFETY: the handle is open, and the number has its room.
        match unsafe { pando_bdb_count(self.handle, &mut records) } {
            0 => Ok(records),
            error => Err(refusal(error)),
        }
    }
}
