//! The block of a record with its key.
//!
//! ```text
//! byte   0                                  8 ..    8 + key bytes ..
//! 0      bytes of key and value, 32 bits    key     value
//!        each, in the index's order
//! ```
//!
//! It never changes after its offset is published.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Pool, mutant};

use crate::blocks::Reserved;
use crate::context::Context;
use crate::maps::{Broken, ProblemClass};

/// Bytes before the key.
pub const HEADER_BYTES: u64 = 8;
const HALF_BITS: u32 = 32;
const HALF: u64 = (1 << HALF_BITS) - 1;

/// Which half of the first word has the length of the key. The other half has that of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLength {
    /// The upper half.
    Upper,
    /// The lower half.
    Lower,
}

impl KeyLength {
    fn encode(self, key_bytes: usize, value_bytes: usize) -> u64 {
        let (key_bytes, value_bytes) = (key_bytes as u64, value_bytes as u64);
        match self {
            Self::Upper => key_bytes << HALF_BITS | value_bytes,
            Self::Lower => value_bytes << HALF_BITS | key_bytes,
        }
    }

    /// The lengths of key and value, from the first word of a block.
    #[inline(always)]
    pub fn lengths(self, word: u64) -> (u64, u64) {
        match self {
            Self::Upper => (word >> HALF_BITS, word & HALF),
            Self::Lower => (word & HALF, word >> HALF_BITS),
        }
    }

    /// A reserved block with the record, written and flushed.
    pub fn reserve<'op, D: Domain>(
        self,
        context: Context<'op, D>,
        key: &[u8],
        value: &[u8],
    ) -> Reserved<'op, D> {
        let bytes = HEADER_BYTES + (key.len() + value.len()) as u64;
        let mut block = context.guard.reserve(bytes)?;
        if let Some(mut target) = block.range_mut(0, bytes) {
            target.write_u64(0, self.encode(key.len(), value.len()));
            target.write(HEADER_BYTES as usize, key);
            target.write(HEADER_BYTES as usize + key.len(), value);
        }
        if !mutant!("record-block-not-flushed") {
            block.flush(0, bytes);
        }
        Ok(block)
    }

    /// The lengths of key and value of the block at `off`, which may be any offset.
    ///
    /// # Errors
    ///
    /// What is wrong, if no record can be there.
    pub fn check<D: Domain>(self, pool: &Pool<D>, off: u64) -> Result<(u64, u64), Broken> {
        let bytes = pool.active_block(off).filter(|&bytes| bytes >= HEADER_BYTES);
        let bytes = bytes.ok_or((ProblemClass::Block, "a record's block is not allocated"))?;
        // Acquire: pairs with the store that published the block.
        let (key_bytes, value_bytes) = self.lengths(pool.word(off).load(Ordering::Acquire));
        if key_bytes + value_bytes > bytes - HEADER_BYTES {
            return Err((ProblemClass::Count, "a record is longer than its block"));
        }
        Ok((key_bytes, value_bytes))
    }

    /// Copies of key and value.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Self::check).
    pub fn load<D: Domain>(self, pool: &Pool<D>, off: u64) -> Result<(Vec<u8>, Vec<u8>), Broken> {
        let (key_bytes, value_bytes) = self.check(pool, off)?;
        let mut key = pool.load_bytes(off + HEADER_BYTES, key_bytes + value_bytes);
        let value = key.split_off(key_bytes as usize);
        Ok((key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_headers() {
        assert_eq!(KeyLength::Upper.encode(3, 7), 3 << 32 | 7);
        assert_eq!(KeyLength::Lower.encode(3, 5), 0x0000_0005_0000_0003);
        for order in [KeyLength::Upper, KeyLength::Lower] {
            assert_eq!(order.lengths(order.encode(3, 5)), (3, 5));
        }
    }
}
