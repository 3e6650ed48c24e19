//! The superblock: which store this is, and which checkpoint an opening begins with.
//!
//! The file `superblock` has two places, at bytes 0 and 4,096. Each change is written to the place
//! that was written longer ago, and synced. So a power cut leaves the superblock before the change
//! or the one after it.
//!
//! ```text
//! byte      0        8        16       24       32       40       48       56
//! 0         magic    crc, ver store id          writes   checkp.  seg. len opn, 0
//! ```
//!
//! * `crc` (bytes 8 to 11) is the CRC-32 of bytes 12 to 63; `ver` (bytes 12 to 15) the version of
//!   the format.
//! * `writes` counts the changes; the place is its remainder by two. `checkpoint` is the number of
//!   the checkpoint. `opn` (bytes 56 to 59) is the number of openings.

use pando_device::{Directory, File};

use crate::address::MAX_SEGMENT_BYTES;
use crate::block::{BLOCK_ALIGN, MAX_COUNT, MAX_OPENINGS};
use crate::error::{Error, Result};

/// The name of the file.
pub(crate) const NAME: &str = "superblock";

const MAGIC: [u8; 8] = *b"PANDOss1";
const VERSION: u32 = 1;
const BYTES: usize = 64;
const PLACES: u64 = 2;
const PLACE_BYTES: u64 = 4096;
/// Bytes that a segment may have.
pub(crate) const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=MAX_SEGMENT_BYTES;

/// Whether segments may have so many bytes.
pub(crate) fn is_segment_size(bytes: u64) -> bool {
    SEGMENT_BYTES.contains(&bytes) && bytes.is_multiple_of(BLOCK_ALIGN as u64)
}

/// What a superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub store_id: u128,
    pub writes: u64,
    pub checkpoint: u64,
    pub segment_bytes: u64,
    pub openings: u32,
}

impl Superblock {
    fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[12..16].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store_id.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.writes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.checkpoint.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.openings.to_le_bytes());
        let crc = crc32fast::hash(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; BYTES]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes[at..].first_chunk()?));
        let long = |at: usize| Some(u64::from_le_bytes(*bytes[at..].first_chunk()?));
        if !bytes.starts_with(&MAGIC)
            || word(8)? != crc32fast::hash(&bytes[12..])
            || word(12)? != VERSION
            || word(60)? != 0
        {
            return None;
        }
        let found = Self {
            store_id: u128::from_le_bytes(*bytes[16..].first_chunk()?),
            writes: long(32)?,
            checkpoint: long(40)?,
            segment_bytes: long(48)?,
            openings: word(56)?,
        };
        let is_counted =
            found.writes.max(found.checkpoint) < MAX_COUNT && found.openings < MAX_OPENINGS;
        (is_counted && is_segment_size(found.segment_bytes)).then_some(found)
    }

    /// Writes it to its place of `file`, and syncs it.
    pub fn store(&self, file: &dyn File) -> pando_device::Result<()> {
        file.write_at(&self.encode(), self.writes % PLACES * PLACE_BYTES)?;
        file.sync()
    }

    /// The newest superblock in `directory`, with its file; `None` if there is none.
    pub fn find(directory: &dyn Directory) -> Result<Option<(Self, Box<dyn File>)>> {
        let file = match directory.open(NAME) {
            Err(error) if error.is_not_found() => return Ok(None),
            opened => opened?,
        };
        let size = file.size_bytes()?;
        let mut newest: Option<Self> = None;
        for place in 0..PLACES {
            let at = place * PLACE_BYTES;
            let mut bytes = [0; BYTES];
            if at + BYTES as u64 > size {
                continue;
            }
            file.read_at(&mut bytes, at)?;
            let found = Self::decode(&bytes).filter(|found| found.writes % PLACES == place);
            newest = newest.into_iter().chain(found).max_by_key(|found| found.writes);
        }
        Ok(newest.map(|found| (found, file)))
    }

    /// Makes the file of a new store's superblock, in which this is written. Durable on return.
    pub fn create(&self, directory: &dyn Directory) -> Result<()> {
        let file = match directory.create(NAME) {
            // A creation that was cut short has left it.
            Err(error) if error.is_taken() => directory.open(NAME)?,
            created => created?,
        };
        if let Err(error) = self.store(file.as_ref()).and_then(|()| directory.sync()) {
            // An opening must not take it for durable.
            let _ = directory.remove(NAME);
            return Err(error.into());
        }
        Ok(())
    }
}

/// The error for a store whose superblock is not there, although `name` is.
pub(crate) fn missing(directory: &dyn Directory, name: &str) -> Error {
    Error::Damaged {
        path: format!("{}/{NAME}", directory.path()),
        what: format!("no superblock can be read, and the directory has {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Superblock = Superblock {
        store_id: 0x0102,
        writes: 7,
        checkpoint: 3,
        segment_bytes: 1 << 20,
        openings: 9,
    };

    #[test]
    fn golden_bytes() {
        let bytes = SOME.encode();
        assert_eq!(bytes[..8], *b"PANDOss1");
        let mut fixed = [0; 52];
        for (at, value) in [(0, 1), (4, 2), (5, 1), (20, 7), (28, 3), (38, 16), (44, 9)] {
            fixed[at] = value;
        }
        assert_eq!(bytes[12..], fixed);
        assert_eq!(Superblock::decode(&bytes), Some(SOME));
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let bytes = SOME.encode();
        for bit in 0..BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Superblock::decode(&damaged), None, "bit {bit}");
        }
    }
}
