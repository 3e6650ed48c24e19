//! The parameters `pando.*`.

use std::path::PathBuf;
use std::sync::atomic::AtomicI64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::redis::{Ctx, Number, Parameter, ServerInfo, Text};
use crate::store::{Limits, RECORD_BYTES, Store};

/// Room that stays for changes of names in a full pool.
const RESERVE_BYTES: u64 = 8 << 20;

static POOL: Text = Text { name: "pool", default: "pando.pool", value: Mutex::new(None) };

/// A parameter in bytes.
const fn bytes(name: &'static str, default: i64, is_fixed: bool) -> Number {
    Number {
        name,
        default,
        least: 0,
        most: i64::MAX,
        is_memory: true,
        is_truth: false,
        is_fixed,
        value: AtomicI64::new(default),
    }
}

/// A parameter that is `yes` or `no`.
const fn truth(name: &'static str, default: bool, is_fixed: bool) -> Number {
    Number {
        name,
        default: default as i64,
        least: 0,
        most: 1,
        is_memory: false,
        is_truth: true,
        is_fixed,
        value: AtomicI64::new(default as i64),
    }
}

/// Another parameter.
const fn number(name: &'static str, default: i64, least: i64, most: i64, is_fixed: bool) -> Number {
    Number {
        name,
        default,
        least,
        most,
        is_memory: false,
        is_truth: false,
        is_fixed,
        value: AtomicI64::new(default),
    }
}

static POOL_BYTES: Number = bytes("pool-bytes", 0, true);
static RESTORE: Number = truth("restore", false, true);
static MAX_BYTES: Number = bytes("max-bytes", 0, false);
static MAX_DUMP_BYTES: Number = bytes("max-dump-bytes", 64 << 20, false);
static SNAPSHOT_BYTES: Number = bytes("snapshot-bytes", 1 << 30, true);
static SNAPSHOT_SECONDS: Number = number("snapshot-seconds", 3600, 1, 1 << 31, true);
static READ_THREADS: Number = number("read-threads", 2, 1, 64, true);
static SAVE_AFTER_START: Number = truth("save-after-start", true, false);

/// All of them.
pub static PARAMETERS: [Parameter; 9] = [
    Parameter::Text(&POOL),
    Parameter::Number(&POOL_BYTES),
    Parameter::Number(&RESTORE),
    Parameter::Number(&MAX_BYTES),
    Parameter::Number(&MAX_DUMP_BYTES),
    Parameter::Number(&SNAPSHOT_BYTES),
    Parameter::Number(&SNAPSHOT_SECONDS),
    Parameter::Number(&READ_THREADS),
    Parameter::Number(&SAVE_AFTER_START),
];

fn as_bytes(number: &Number) -> u64 {
    u64::try_from(number.get()).unwrap_or(0)
}

/// The file of the pool; relative to the directory of the server.
pub fn pool() -> PathBuf {
    POOL.get().into()
}

pub fn limits() -> Limits {
    Limits {
        pool_bytes: as_bytes(&POOL_BYTES),
        snapshot_bytes: as_bytes(&SNAPSHOT_BYTES),
        snapshot_age: Duration::from_secs(as_bytes(&SNAPSHOT_SECONDS)),
    }
}

/// Whether files have precedence at a start.
pub fn restore() -> bool {
    RESTORE.get() != 0
}

/// How many bytes the pool may use. Writes that add are refused beyond.
pub fn max_bytes(store: &Store) -> u64 {
    let of_pool = store.max_bytes().saturating_sub(RESERVE_BYTES);
    match as_bytes(&MAX_BYTES) {
        0 => of_pool,
        bytes => bytes.min(of_pool),
    }
}

/// A policy by which the server may remove maps, to make room in memory that they do not use.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "maxmemory-policy is {0}, which may evict maps; PANDO keys need noeviction or a volatile policy"
)]
pub struct Evicts(String);

/// The policy of `maxmemory`, since a parameter of the server was set: INFO takes a while.
static POLICY: Mutex<Option<String>> = Mutex::new(None);

/// A parameter of the server was set.
pub fn forget_policy() {
    *POLICY.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Whether the policy lets the server make maps.
pub fn check_policy() -> Result<(), Evicts> {
    if Ctx::server_flags().evicts() {
        let read = || ServerInfo::of("memory").text("maxmemory_policy").unwrap_or_default();
        let mut known = POLICY.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = known.get_or_insert_with(read);
        if policy.starts_with("allkeys") {
            return Err(Evicts(policy.clone()));
        }
    }
    Ok(())
}

/// A write that has no room.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "the pool uses {used} bytes of the {allowed} that are allowed, and {adds} more are to be written; \
     remove data, or raise pando.max-bytes"
)]
pub struct Full {
    used: u64,
    allowed: u64,
    adds: u64,
}

/// Whether so many records, with so many bytes of keys and values, may be added. What stays is room
/// for deletes and changes of names.
pub fn check_room(store: &Store, records: u64, bytes: u64) -> Result<(), Full> {
    let (used, allowed) = (store.used_bytes(), max_bytes(store));
    let adds = records.saturating_mul(RECORD_BYTES).saturating_add(bytes);
    match used.saturating_add(adds) > allowed {
        true => Err(Full { used, allowed, adds }),
        false => Ok(()),
    }
}

/// How many bytes of keys and values DUMP and MIGRATE take.
pub fn max_dump_bytes() -> u64 {
    as_bytes(&MAX_DUMP_BYTES)
}

pub fn read_threads() -> usize {
    usize::try_from(READ_THREADS.get()).unwrap_or(1)
}

/// Whether a start from the pool is followed by a save, so that the files are equal to it.
pub fn saves_after_start() -> bool {
    SAVE_AFTER_START.get() != 0
}
