//! Records in blocks of their own: those whose key or value does not have eight bytes, or whose
//! value does not have its slot's class.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard};
use pando_tree::key::Probe;
use pando_tree::record_block::HEADER_BYTES;

use crate::layout::{RECORD, split_value};
use crate::separator::{fingerprint, is_eight};

/// A key with its fingerprint, and its new value.
pub(crate) struct Record<'record> {
    pub probe: Probe<'record>,
    pub fingerprint: u8,
    pub value: &'record [u8],
    /// Class and value word, if key and value are of eight bytes.
    pub inline: Option<(u64, u64)>,
}

impl<'record> Record<'record> {
    #[inline(always)]
    pub fn new(key: &'record [u8], value: &'record [u8]) -> Self {
        let probe = Probe::new(key);
        let number = <&[u8; 8]>::try_from(value).ok().filter(|_| is_eight(&probe));
        let inline = number.map(|number| split_value(u64::from_le_bytes(*number)));
        Self { probe, fingerprint: fingerprint(&probe), value, inline }
    }
}

/// Key and value of the record in the block at `off`, which was read from a value word under this
/// guard.
#[inline]
pub(crate) fn parts<'guard, D: Domain>(
    guard: &'guard Guard<'_, D>,
    off: u64,
) -> (&'guard [u8], &'guard [u8]) {
    let pool = guard.pool();
    // Relaxed: written before its offset was published.
    let (key_bytes, value_bytes) = RECORD.lengths(pool.word(off).load(Ordering::Relaxed));
    // SAFETY: a record's block is written before its offset is, and never afterwards. The caller
    // has read the offset from a value word while it held the guard, so the block is not reused
    // before the guard is dropped.
    let record = unsafe { pool.bytes(off.wrapping_add(HEADER_BYTES), key_bytes + value_bytes) };
    // Empty slices, if damage has led here.
    record.split_at_checked(key_bytes as usize).unwrap_or_default()
}

/// Whether the record in the block at `off` has this key.
#[inline]
pub(crate) fn has_key<D: Domain>(guard: &Guard<'_, D>, off: u64, key: &[u8]) -> bool {
    parts(guard, off).0 == key
}

/// The key of the record in the block at `off`, which may be any offset; `None` if no record can be
/// there.
pub(crate) fn checked_key<'guard, D: Domain>(
    guard: &'guard Guard<'_, D>,
    off: u64,
) -> Option<&'guard [u8]> {
    RECORD.check(guard.pool(), off).ok().map(|_| parts(guard, off).0)
}
