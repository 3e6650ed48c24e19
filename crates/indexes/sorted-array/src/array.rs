//! The block of an array.
//!
//! ```text
//! byte 0          8          16 ..                    16 + 8 n ..                      bytes
//!      n          bytes      n places                 n records: key, value, key, ..
//!
//! place, ascending:  bits 63 .. 32  bytes of the key
//!                    bits 31 .. 0   offset of the record in the block
//! ```
//!
//! A value ends where the next record begins, the last one at `bytes`. The block never changes
//! after its offset has been published.

use pando_index::Record;
use pando_pmem::{Domain, Guard, Pool};

/// Bytes before the places.
pub(crate) const HEADER_BYTES: u64 = 16;
/// Bytes of a place.
pub(crate) const PLACE_BYTES: u64 = 8;
/// The most bytes of an array.
pub const MAX_ARRAY_BYTES: u64 = 1 << 28;

const _: () = assert!(MAX_ARRAY_BYTES <= u32::MAX as u64, "a place has 32 bits for an offset");

/// The array of an empty map.
pub(crate) fn empty() -> Vec<u8> {
    encode(&[])
}

/// The block of `records`, which must ascend.
pub(crate) fn encode(records: &[Record<'_>]) -> Vec<u8> {
    let places_bytes = records.len() as u64 * PLACE_BYTES;
    let (mut places, mut content) = (Vec::with_capacity(places_bytes as usize), Vec::new());
    for (key, value) in records {
        let at = HEADER_BYTES + places_bytes + content.len() as u64;
        places.extend_from_slice(&((key.len() as u64) << 32 | at).to_le_bytes());
        content.extend_from_slice(key);
        content.extend_from_slice(value);
    }
    let bytes = HEADER_BYTES + places_bytes + content.len() as u64;
    let header = [(records.len() as u64).to_le_bytes(), bytes.to_le_bytes()].concat();
    [header, places, content].concat()
}

/// An array in the pool; valid as long as `guard` is held.
#[derive(Clone, Copy)]
pub(crate) struct Array<'guard, D: Domain> {
    pool: &'guard Pool<D>,
    off: u64,
    /// Its records.
    pub len: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl<'guard, D: Domain> Array<'guard, D> {
    /// The array at `off`, which a thread read from the entry word while it held `guard`.
    pub fn at(guard: &'guard Guard<'_, D>, off: u64) -> Self {
        let pool = guard.pool();
        // Written before the offset was published, which the reader of the entry word has acquired.
        let header = pool.load_bytes(off, HEADER_BYTES);
        Self { pool, off, len: word(&header, 0), bytes: word(&header, 1) }
    }

    /// The offset of the record `index`, and the bytes of its key.
    fn place(&self, index: u64) -> (u64, u64) {
        if index == self.len {
            return (self.bytes, 0);
        }
        let place = self.pool.load_bytes(self.off + HEADER_BYTES + index * PLACE_BYTES, 8);
        (word(&place, 0) & u64::from(u32::MAX), word(&place, 0) >> 32)
    }

    /// The key of the record `index`.
    pub fn key(&self, index: u64) -> Vec<u8> {
        let (at, key_bytes) = self.place(index);
        self.pool.load_bytes(self.off + at, key_bytes)
    }

    /// The value of the record `index`.
    pub fn value(&self, index: u64) -> Vec<u8> {
        let (at, key_bytes) = self.place(index);
        let (end, _) = self.place(index + 1);
        self.pool.load_bytes(self.off + at + key_bytes, end - at - key_bytes)
    }

    /// The place of the first record for which `is_before` is false.
    pub fn first_not(&self, is_before: impl Fn(&[u8]) -> bool) -> u64 {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(&self.key(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The place of `key`: that of its record, or where its record would be.
    pub fn find(&self, key: &[u8]) -> Result<u64, u64> {
        let place = self.first_not(|other| other < key);
        if place < self.len && self.key(place) == key { Ok(place) } else { Err(place) }
    }

    /// All bytes of the array.
    pub fn copy(&self) -> Vec<u8> {
        self.pool.load_bytes(self.off, self.bytes)
    }

    /// The records in the bytes of a whole array; what is wrong, if they are damaged.
    pub fn decode(block: &[u8]) -> Result<Vec<Record<'_>>, String> {
        let bytes = block.len() as u64;
        let len = if bytes < HEADER_BYTES { 0 } else { word(block, 0) };
        if bytes < HEADER_BYTES || len > (bytes - HEADER_BYTES) / PLACE_BYTES {
            return Err(format!("{len} records are more than {bytes} bytes hold"));
        }
        let first = HEADER_BYTES + len * PLACE_BYTES;
        let place = |index: u64| {
            if index == len {
                return (bytes, 0);
            }
            let place = word(block, 2 + index as usize);
            (place & u64::from(u32::MAX), place >> 32)
        };
        let mut records = Vec::with_capacity(len as usize);
        for index in 0..len {
            let ((at, key_bytes), (end, _)) = (place(index), place(index + 1));
            if (index == 0 && at != first) || end > bytes || at > end || key_bytes > end - at {
                return Err(format!("record {index} leaves its place"));
            }
            let (key, value) = block[at as usize..end as usize].split_at(key_bytes as usize);
            records.push((key, value));
        }
        Ok(records)
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    bytes.as_chunks::<8>().0.get(index).map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use pando_pmem::Process;

    use super::*;

    #[test]
    fn golden_array() {
        let block = encode(&[(b"ash", b"1"), (b"oak", b"")]);
        let expected = [
            &[2, 0, 0, 0, 0, 0, 0, 0, 39, 0, 0, 0, 0, 0, 0, 0][..],
            &[32, 0, 0, 0, 3, 0, 0, 0, 36, 0, 0, 0, 3, 0, 0, 0],
            b"ash1oak",
        ];
        assert_eq!(block, expected.concat());
        let records = Array::<Process>::decode(&block);
        assert_eq!(records, Ok(vec![(&b"ash"[..], &b"1"[..]), (b"oak", b"")]));
    }

    #[test]
    fn every_damaged_byte_of_header_and_places_is_seen_or_harmless() {
        let undamaged = encode(&[(b"ash", b"1"), (b"oak", b"")]);
        for at in 0..undamaged.len() {
            for bit in 0..8 {
                let mut block = undamaged.clone();
                block[at] ^= 1 << bit;
                // It may decode to other records, but never reads outside the block.
                let _ = Array::<Process>::decode(&block);
            }
        }
        assert!(Array::<Process>::decode(&[]).is_err());
    }
}
