//! A block of a segment: what the writer writes at once.
//!
//! ```text
//! byte      0        8        16       24       32       40       48       56
//! 0         magic    len, crc store id          sequence durable  opn, gen before,n
//! 64        parts ..
//!           zeros up to a multiple of 4,096
//! ```
//!
//! * `len` (bytes 8 to 11) is the length of the block without the last zeros. `crc` (bytes 12 to
//!   15) is the CRC-32 of bytes 16 to `len`.
//! * `sequence` numbers the blocks of the store, from 1 on. `before` (bytes 56 to 59) is `crc` of
//!   the block before, zero for the first one. So blocks are a chain.
//! * `durable`: all blocks up to that sequence number were durable before this one was written.
//! * `opn` (bytes 48 to 51) is the number of openings: it is raised each time that the store is
//!   opened. A block that is written again after a power cut, with the same parts, has another
//!   checksum therefore, and a block that was behind the lost one is not behind it.
//! * `gen` (bytes 52 to 55) is the generation of the segment. `n` (bytes 60 to 63) is the number of
//!   parts.

use std::ops::Range;

use crate::part;

/// Blocks begin at multiples of this, in bytes.
pub(crate) const BLOCK_ALIGN: usize = 4096;
/// Bytes of a block before its parts.
pub(crate) const HEADER_BYTES: usize = 64;
/// A block has no more bytes than this, unless its only group has more.
pub(crate) const WANTED_BYTES: usize = 1 << 20;

/// Counters on the medium are below this, so that they can be raised.
pub(crate) const MAX_COUNT: u64 = 1 << 62;
/// Numbers of openings are below this, so that they can be raised.
pub(crate) const MAX_OPENINGS: u32 = 1 << 31;

const MAGIC: [u8; 8] = *b"PANDOsb1";
const CRC_FROM: usize = 16;

const _: () = assert!(HEADER_BYTES.is_multiple_of(crate::address::UNIT_BYTES));

/// What the header of a block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub store_id: u128,
    pub sequence: u64,
    pub durable_sequence: u64,
    pub openings: u32,
    pub segment_generation: u32,
    pub crc_before: u32,
}

/// Makes a block of a header's bytes and the parts behind them, without the last zeros; its
/// checksum.
pub(crate) fn finish(block: &mut Vec<u8>, header: &Header, parts: u32) -> u32 {
    let length = block.len() as u32;
    let mut put = |at: usize, field: &[u8]| block[at..at + field.len()].copy_from_slice(field);
    put(0, &MAGIC);
    put(8, &length.to_le_bytes());
    put(16, &header.store_id.to_le_bytes());
    put(32, &header.sequence.to_le_bytes());
    put(40, &header.durable_sequence.to_le_bytes());
    put(48, &header.openings.to_le_bytes());
    put(52, &header.segment_generation.to_le_bytes());
    put(56, &header.crc_before.to_le_bytes());
    put(60, &parts.to_le_bytes());
    let crc = crc32fast::hash(&block[CRC_FROM..]);
    block[12..16].copy_from_slice(&crc.to_le_bytes());
    block.resize(block.len().next_multiple_of(BLOCK_ALIGN), 0);
    crc
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The length that the block at the beginning of `bytes` says it has, without the last zeros.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let length = word(bytes, 8)? as usize;
    (bytes.starts_with(&MAGIC) && length > HEADER_BYTES).then_some(length)
}

/// What a block of the store says in its first bytes, which are not checked: its number, and the
/// number up to which all were durable.
pub(crate) fn claimed_sequences(bytes: &[u8], store_id: u128) -> Option<(u64, u64)> {
    let id = u128::from_le_bytes(*bytes.get(16..)?.first_chunk()?);
    length(bytes).filter(|_| id == store_id)?;
    let long = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    Some((long(32)?, long(40)?))
}

/// The header of a whole block, and its checksum, if that is right.
pub(crate) fn check(bytes: &[u8]) -> Option<(Header, u32)> {
    let length = length(bytes)?;
    let crc = word(bytes, 12)?;
    if crc != crc32fast::hash(bytes.get(CRC_FROM..length)?) {
        return None;
    }
    let long = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let header = Header {
        store_id: u128::from_le_bytes(*bytes.get(16..)?.first_chunk()?),
        sequence: long(32)?,
        durable_sequence: long(40)?,
        openings: word(bytes, 48)?,
        segment_generation: word(bytes, 52)?,
        crc_before: word(bytes, 56)?,
    };
    let is_counted = header.sequence < MAX_COUNT && header.openings < MAX_OPENINGS;
    is_counted.then_some((header, crc))
}

/// The parts of a block, each with its bytes of the block. The block was checked, so an error means
/// that it was written wrong.
pub(crate) fn parts(bytes: &[u8]) -> Result<Vec<(part::Part, Range<usize>)>, part::NotAPart> {
    let cut_off = part::NotAPart("the block is cut off");
    let length = length(bytes).ok_or(cut_off)?;
    let block = bytes.get(..length).ok_or(cut_off)?;
    let count = word(bytes, 60).ok_or(cut_off)?;
    let mut parts = Vec::new();
    let mut at = HEADER_BYTES;
    while at < block.len() {
        let (part, taken) = part::decode(&block[at..])?;
        parts.push((part, at..at + taken));
        at += taken;
    }
    match parts.len() == count as usize {
        true => Ok(parts),
        false => Err(part::NotAPart("the block has another number of parts")),
    }
}

#[cfg(test)]
mod tests {
    use pando_device::simulated::damaged_copies;

    use super::*;
    use crate::part::Kind;

    const HEADER: Header = Header {
        store_id: 0x1122,
        sequence: 3,
        durable_sequence: 2,
        openings: 5,
        segment_generation: 6,
        crc_before: 7,
    };

    fn block() -> (Vec<u8>, u32) {
        let mut bytes = vec![0; HEADER_BYTES];
        part::push(&mut bytes, (Kind::Base, 1, 6), &[], &[b"one"]);
        part::push(&mut bytes, (Kind::Free, 2, 6), &[], &[]);
        let crc = finish(&mut bytes, &HEADER, 2);
        (bytes, crc)
    }

    #[test]
    fn golden_header() {
        let (bytes, crc) = block();
        assert_eq!(bytes.len(), BLOCK_ALIGN);
        assert_eq!(bytes[..12], *b"PANDOsb1\xA0\0\0\0");
        assert_eq!(bytes[12..16], crc.to_le_bytes());
        let mut fixed = [0; 48];
        for (at, value) in
            [(1, 0x11), (0, 0x22), (16, 3), (24, 2), (32, 5), (36, 6), (40, 7), (44, 2)]
        {
            fixed[at] = value;
        }
        assert_eq!(bytes[16..64], fixed);
        assert_eq!(check(&bytes), Some((HEADER, crc)));
        let parts = parts(&bytes).expect("parts");
        let found: Vec<_> = parts.iter().map(|(part, at)| (part.pid, at.clone())).collect();
        assert_eq!(found, [(1, 64..128), (2, 128..160)]);
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let (bytes, _) = block();
        for (what, damaged) in damaged_copies(&bytes, 160) {
            assert_eq!(check(&damaged), None, "{what}");
        }
    }
}
