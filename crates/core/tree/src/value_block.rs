//! The block of a value outside its record.
//!
//! ```text
//! byte   0        8 ..
//! 0      bytes    the value
//! ```
//!
//! It never changes after its offset is published.

use pando_pmem::{Domain, mutant};

use crate::blocks::Reserved;
use crate::context::Context;
use crate::maps::{Broken, ProblemClass};

/// Bytes before the value: its length.
pub const HEADER_BYTES: u64 = 8;

/// A reserved block with `value`, written and flushed.
pub fn reserve<'op, D: Domain>(context: Context<'op, D>, value: &[u8]) -> Reserved<'op, D> {
    let bytes = HEADER_BYTES + value.len() as u64;
    let mut block = context.guard.reserve(bytes)?;
    block.write_u64(0, value.len() as u64);
    block.write(HEADER_BYTES, value);
    if !mutant!("value-block-not-flushed") {
        block.flush(0, bytes);
    }
    Ok(block)
}

/// Checks whether a value can be in the block at `off`. The record that names it must still exist.
///
/// # Errors
///
/// What is wrong.
pub fn check<D: Domain>(context: Context<'_, D>, off: u64) -> Result<(), Broken> {
    let bytes = context.pool().active_block(off);
    let bytes = bytes.ok_or((ProblemClass::Block, "a value's block is not allocated"))?;
    match bytes.checked_sub(HEADER_BYTES) {
        Some(room) if context.fixed(off) <= room => Ok(()),
        _ => Err((ProblemClass::Count, "a value is longer than its block")),
    }
}
