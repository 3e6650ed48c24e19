//! Records in blocks of their own: those whose key or value is not of eight bytes, or whose value
//! is not of its slot's class. `layout.rs` draws the block, which never changes.

use std::sync::atomic::Ordering;

use pando_index::Error;
use pando_pmem::{Domain, Guard, Reservation};

use crate::layout::{RECORD_HEADER_BYTES, record_header, record_sizes, split_value};
use crate::separator::Probe;

/// A key with its fingerprint, and the value it is to have.
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
        let number = <&[u8; 8]>::try_from(value).ok().filter(|_| probe.is_eight());
        let inline = number.map(|number| split_value(u64::from_le_bytes(*number)));
        Self { probe, fingerprint: probe.fingerprint(), value, inline }
    }
}

/// A reserved block with the record in it, flushed.
pub(crate) fn reserve<'guard, 'pool, D: Domain>(
    guard: &'guard Guard<'pool, D>,
    key: &[u8],
    value: &[u8],
) -> Result<Reservation<'guard, 'pool, D>, Error> {
    let bytes = RECORD_HEADER_BYTES + key.len() as u64 + value.len() as u64;
    let mut block = guard.reserve(bytes).map_err(Error::storage)?;
    block.write_u64(0, record_header(key.len(), value.len()));
    block.write(RECORD_HEADER_BYTES, key);
    block.write(RECORD_HEADER_BYTES + key.len() as u64, value);
    block.flush(0, bytes);
    Ok(block)
}

/// Key and value of the record in the block at `off`, which was found in a value word under this
/// guard.
#[inline]
pub(crate) fn parts<'guard, D: Domain>(
    guard: &'guard Guard<'_, D>,
    off: u64,
) -> (&'guard [u8], &'guard [u8]) {
    let pool = guard.pool();
    let lent = |off, bytes| {
        // SAFETY: a record's block is written before its offset is, and never afterwards; the
        // caller has found it in a value word while the guard was held, so it is not reused before
        // that is dropped.
        unsafe { pool.bytes(off, bytes) }
    };
    let header =
        lent(off, RECORD_HEADER_BYTES).first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let (key_bytes, value_bytes) = record_sizes(header);
    // None at all, if damage has led here.
    let record = lent(off + RECORD_HEADER_BYTES, key_bytes + value_bytes);
    record.split_at_checked(key_bytes as usize).unwrap_or_default()
}

/// Whether the record in the block at `off` has this key.
#[inline]
pub(crate) fn has_key<D: Domain>(guard: &Guard<'_, D>, off: u64, key: &[u8]) -> bool {
    parts(guard, off).0 == key
}

/// The key of the record in the block at `off`, which may be anything; `None` if no record can be
/// there.
pub(crate) fn checked_key<'guard, D: Domain>(
    guard: &'guard Guard<'_, D>,
    off: u64,
) -> Option<&'guard [u8]> {
    let pool = guard.pool();
    let bytes = pool.active_block(off)?;
    // Relaxed: nobody writes there.
    let (key_bytes, value_bytes) = record_sizes(pool.word(off).load(Ordering::Relaxed));
    let fits = RECORD_HEADER_BYTES + key_bytes + value_bytes <= bytes;
    fits.then(|| parts(guard, off).0)
}
