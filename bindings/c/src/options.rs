//! The structs of options. A caller says how large its struct is, so that later versions may append
//! fields.

use std::ffi::c_char;
use std::ops::Bound;
use std::time::Duration;

use pando::{Acknowledge, DomainChoice, Isolation, KeyRange, MapOptions, Order, PoolOptions};

use crate::bytes::{optional_path, optional_text, pando_slice};
use crate::failure::Failure;

/// The persistence domain of a pool.
#[repr(u32)]
pub enum pando_domain {
    /// The one that the medium needs.
    Auto = 0,
    /// Writes are ordered, and not written back.
    Process = 1,
    /// Writes are written back and fenced.
    Adr = 2,
}

/// When writes of transactional maps return.
#[repr(u32)]
pub enum pando_acknowledge {
    /// When they survive the death of the process.
    Buffered = 0,
    /// When they survive a power cut too. The pool must have a log, or be a store.
    Synced = 1,
}

/// Whether a map takes part in transactions.
#[repr(u32)]
pub enum pando_transactional {
    /// A new map does not (in a store it does); of an existing map this is not compared.
    Unset = 0,
    /// It does.
    Yes = 1,
    /// It does not.
    No = 2,
}

/// The isolation of a transaction.
#[repr(u32)]
pub enum pando_isolation {
    /// Committed transactions are as if each had taken place alone.
    Serializable = 0,
    /// Reads are of one moment and never conflict. Write skew is possible.
    Snapshot = 1,
}

/// An end of a range.
#[repr(u32)]
pub enum pando_bound {
    /// The range has no such end.
    None = 0,
    /// The key is part of the range.
    Included = 1,
    /// The key is not part of the range.
    Excluded = 2,
}

/// How a pool or a store is created or opened.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pando_pool_options {
    /// sizeof(pando_pool_options).
    struct_size: usize,
    /// The largest size of a pool in bytes, 1 MiB to 16 TiB; 0 is 64 GiB, or the size of an
    /// existing pool.
    max_bytes: u64,
    /// The first size of a new pool in bytes; 0 is 1 MiB.
    initial_bytes: u64,
    /// The directory of the pool's log, or NULL.
    log: *const c_char,
    /// A pando_domain.
    domain: u32,
    /// A pando_acknowledge.
    acknowledge: u32,
    /// 1 if other processes may have the pool open too, up to 256.
    shared: u32,
    /// For alignment; 0.
    reserved: u32,
    /// Age at which a snapshot is revoked, in milliseconds; 0 is an hour.
    snapshot_max_age_ms: u64,
    /// Bytes of process memory that all snapshots may keep; 0 is 1 GiB.
    snapshot_max_bytes: u64,
}

/// How a map is created. Options that are set must match those of an existing map.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pando_map_options {
    /// sizeof(pando_map_options).
    struct_size: usize,
    /// The name of the index, or NULL for a bztree.
    index: *const c_char,
    /// Options of the index, such as "leaf_bytes=4096 value_mode=pointer", or NULL.
    settings: *const c_char,
    /// A pando_transactional.
    transactional: u32,
    /// For alignment; 0.
    reserved: u32,
}

/// The keys of a scan, and its order.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pando_range {
    /// sizeof(pando_range).
    struct_size: usize,
    /// The low end, if low_bound is set.
    low: pando_slice,
    /// The high end, if high_bound is set.
    high: pando_slice,
    /// The first bytes of the keys, if data is not NULL. Set no bounds then.
    prefix: pando_slice,
    /// A pando_bound.
    low_bound: u32,
    /// A pando_bound.
    high_bound: u32,
    /// 1 if the scan begins at the high end.
    reverse: u32,
    /// How many records the caller will take, if it knows; 0 otherwise.
    expected: u32,
}

/// A struct that begins with its size.
///
/// # Safety
///
/// The type is `repr(C)`, begins with the size as a `usize`, and zeros are a value of it.
unsafe trait Versioned: Copy {
    const NAME: &'static str;
}

// SAFETY: integers and a pointer, the size first.
unsafe impl Versioned for pando_pool_options {
    const NAME: &'static str = "pando_pool_options";
}

// SAFETY: integers and pointers, the size first.
unsafe impl Versioned for pando_map_options {
    const NAME: &'static str = "pando_map_options";
}

// SAFETY: integers and pointers, the size first.
unsafe impl Versioned for pando_range {
    const NAME: &'static str = "pando_range";
}

/// A copy of a caller's struct, or none if it is NULL.
fn copied<T: Versioned>(options: *const T) -> Result<Option<T>, Failure> {
    if options.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's struct begins with its size (`pando.h`).
    let found = unsafe { options.cast::<usize>().read() };
    let (known, name) = (size_of::<T>(), T::NAME);
    let refused = || {
        let allowed = format!("sizeof({name}), which is {known} in this version");
        Failure::option(&format!("struct_size of {name}"), found, &allowed)
    };
    if found < size_of::<usize>() || found > known + 4096 {
        return Err(refused());
    }
    // SAFETY: zeros are a value of the type. As many bytes are copied as both structs have.
    let copy = unsafe {
        let mut copy = std::mem::MaybeUninit::<T>::zeroed();
        let bytes = found.min(known);
        std::ptr::copy_nonoverlapping(options.cast::<u8>(), copy.as_mut_ptr().cast(), bytes);
        copy.assume_init()
    };
    // A struct of a later version may be used if the fields that are not known here are zero.
    for at in known..found {
        // SAFETY: the caller's struct has `found` bytes.
        if unsafe { options.cast::<u8>().add(at).read() } != 0 {
            return Err(refused());
        }
    }
    Ok(Some(copy))
}

fn flag(what: &str, value: u32) -> Result<bool, Failure> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Failure::option(what, other, "0 or 1")),
    }
}

/// A later version may give the field a meaning.
fn reserved(value: u32) -> Result<(), Failure> {
    match value {
        0 => Ok(()),
        other => Err(Failure::option("reserved", other, "0")),
    }
}

fn domain(value: u32) -> Result<DomainChoice, Failure> {
    const AUTO: u32 = pando_domain::Auto as u32;
    const PROCESS: u32 = pando_domain::Process as u32;
    const ADR: u32 = pando_domain::Adr as u32;
    match value {
        AUTO => Ok(DomainChoice::Auto),
        PROCESS => Ok(DomainChoice::Process),
        ADR => Ok(DomainChoice::Adr),
        other => Err(Failure::option("domain", other, "a pando_domain, 0 to 2")),
    }
}

pub(crate) fn acknowledge(value: u32) -> Result<Acknowledge, Failure> {
    const BUFFERED: u32 = pando_acknowledge::Buffered as u32;
    const SYNCED: u32 = pando_acknowledge::Synced as u32;
    match value {
        BUFFERED => Ok(Acknowledge::Buffered),
        SYNCED => Ok(Acknowledge::Synced),
        other => Err(Failure::option("acknowledge", other, "a pando_acknowledge, 0 or 1")),
    }
}

pub(crate) fn isolation(value: u32) -> Result<Isolation, Failure> {
    const SERIALIZABLE: u32 = pando_isolation::Serializable as u32;
    const SNAPSHOT: u32 = pando_isolation::Snapshot as u32;
    match value {
        SERIALIZABLE => Ok(Isolation::Serializable),
        SNAPSHOT => Ok(Isolation::Snapshot),
        other => Err(Failure::option("isolation", other, "a pando_isolation, 0 or 1")),
    }
}

pub(crate) fn pool_options(options: *const pando_pool_options) -> Result<PoolOptions, Failure> {
    let mut built = PoolOptions::new();
    let Some(options) = copied(options)? else { return Ok(built) };
    built = built.domain(domain(options.domain)?);
    built = built.acknowledge(acknowledge(options.acknowledge)?);
    built = built.shared(flag("shared", options.shared)?);
    reserved(options.reserved)?;
    if options.max_bytes != 0 {
        built = built.max_bytes(options.max_bytes);
    }
    if options.initial_bytes != 0 {
        built = built.initial_bytes(options.initial_bytes);
    }
    if let Some(log) = optional_path(options.log) {
        built = built.log(log);
    }
    let or = |value: u64, default: u64| if value == 0 { default } else { value };
    let age = Duration::from_millis(or(options.snapshot_max_age_ms, 3_600_000));
    Ok(built.snapshot_limits(age, or(options.snapshot_max_bytes, 1 << 30)))
}

pub(crate) fn map_options(options: *const pando_map_options) -> Result<MapOptions, Failure> {
    let mut built = MapOptions::new();
    let Some(options) = copied(options)? else { return Ok(built) };
    reserved(options.reserved)?;
    if let Some(index) = optional_text(options.index, "the index")? {
        built = built.index(index);
    }
    for setting in
        optional_text(options.settings, "settings")?.unwrap_or_default().split_ascii_whitespace()
    {
        let (name, value) = setting.split_once('=').ok_or_else(|| {
            Failure::option(
                "a setting",
                format!("{setting:?}"),
                "NAME=VALUE, with spaces between them",
            )
        })?;
        built = built.set(name, value);
    }
    const UNSET: u32 = pando_transactional::Unset as u32;
    const YES: u32 = pando_transactional::Yes as u32;
    const NO: u32 = pando_transactional::No as u32;
    match options.transactional {
        UNSET => Ok(built),
        YES => Ok(built.transactional(true)),
        NO => Ok(built.transactional(false)),
        other => Err(Failure::option("transactional", other, "a pando_transactional, 0 to 2")),
    }
}

/// The keys of a scan, its order, and how many records are expected.
pub(crate) struct Range {
    pub keys: KeyRange,
    pub order: Order,
    pub expected: Option<usize>,
}

pub(crate) fn range(range: *const pando_range) -> Result<Range, Failure> {
    const NONE: u32 = pando_bound::None as u32;
    const INCLUDED: u32 = pando_bound::Included as u32;
    const EXCLUDED: u32 = pando_bound::Excluded as u32;
    let Some(range) = copied(range)? else {
        return Ok(Range { keys: KeyRange::all(), order: Order::Ascending, expected: None });
    };
    let bound = |what: &str, bound: u32, key: pando_slice| {
        Ok(match bound {
            NONE => Bound::Unbounded,
            INCLUDED => Bound::Included(key.bytes(what)?.to_vec()),
            EXCLUDED => Bound::Excluded(key.bytes(what)?.to_vec()),
            other => {
                return Err(Failure::option(
                    &format!("{what}_bound"),
                    other,
                    "a pando_bound, 0 to 2",
                ));
            }
        })
    };
    let keys = if range.prefix.is_unset() {
        KeyRange {
            low: bound("low", range.low_bound, range.low)?,
            high: bound("high", range.high_bound, range.high)?,
        }
    } else if (range.low_bound, range.high_bound) == (NONE, NONE) {
        KeyRange::prefix(range.prefix.bytes("prefix")?)
    } else {
        return Err(Failure::option("a range", "a prefix with bounds", "a prefix or bounds"));
    };
    let is_reverse = flag("reverse", range.reverse)?;
    let order = if is_reverse { Order::Descending } else { Order::Ascending };
    let expected = (range.expected != 0).then_some(range.expected as usize);
    Ok(Range { keys, order, expected })
}
