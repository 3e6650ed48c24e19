//! A block of the log in its file.
//!
//! ```text
//! byte      0        8        16       24       32       40       48       56
//! 0         magic    len, crc log id            generat. place    after    last
//! 64        n, before zero, reserved for later versions
//! 128       records, each padded to a multiple of 8 ...
//!           zeros up to a multiple of 4,096
//!
//! record    0                 4                 8
//!           payload bytes     LSN - after       payload ..
//! ```
//!
//! * `len` (bytes 8 to 11) is the length of the block without the last zeros. `crc` (bytes 12 to
//!   15) is the CRC-32 of these bytes, with itself taken as zero.
//! * `place` is the block's offset in the log: the number of its segment times the bytes of a
//!   segment, plus its offset in the segment. A block that a used segment brings along from an
//!   earlier life has another place.
//! * The block covers the LSNs above `after`, up to `last`. Records that failed are left out, so it
//!   may have no record. Of the others it has what a replay needs
//!   ([`Settle::push_redo`](crate::Settle::push_redo)): payloads may be shorter than in the tail.
//!   A block is sealed only when all LSNs up to `after` are durable.
//! * `n` (bytes 64 to 67) is the number of records; `before` (bytes 68 to 71) is `crc` of the block
//!   before, zero for the first block of a log.

use crate::record::MAX_RECORD_BYTES;

/// The first eight bytes of each block.
pub(crate) const MAGIC: [u8; 8] = *b"PANDOlb1";
/// Blocks begin at multiples of this, in bytes.
pub(crate) const BLOCK_ALIGN: u64 = 4096;
/// Bytes of a block before its records.
pub(crate) const HEADER_BYTES: usize = 128;
/// Bytes of a record before its payload.
const RECORD_HEADER_BYTES: usize = 8;
/// A block covers no more bytes of records than this, unless its only record has more. What a sync
/// costs is spread well over so many, and another thread can write them anew in a few milliseconds.
pub(crate) const WANTED_BYTES: usize = 4 << 20;

const CRC_AT: usize = 12;

const _: () = {
    assert!(HEADER_BYTES.is_multiple_of(8) && RECORD_HEADER_BYTES.is_multiple_of(8));
    // The differences of LSNs within a block fit 32 bits.
    assert!(WANTED_BYTES as u64 + MAX_RECORD_BYTES as u64 <= u32::MAX as u64 / 2);
};

/// What the header of a block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub log_id: u128,
    pub generation: u64,
    pub place: u64,
    /// The block covers the LSNs above this one ..
    pub after_lsn: u64,
    /// .. up to this one.
    pub last_lsn: u64,
    pub crc_before: u32,
}

/// A block that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub header: Header,
    pub crc: u32,
    /// Bytes without the last zeros.
    pub bytes: usize,
    /// Each record with its LSN and the place of its payload in the block.
    pub records: Vec<(u64, std::ops::Range<usize>)>,
}

/// Bytes that a record with a payload of so many takes in a block.
pub(crate) fn record_bytes(payload_bytes: usize) -> usize {
    RECORD_HEADER_BYTES + payload_bytes.next_multiple_of(8)
}

/// Bytes from a block of `bytes` bytes to the next.
pub(crate) fn padded(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(BLOCK_ALIGN)
}

/// Builds a block.
#[derive(Debug)]
pub(crate) struct Builder {
    bytes: Vec<u8>,
    after_lsn: u64,
    records: u32,
}

impl Builder {
    /// An empty block that covers LSNs above `after_lsn`.
    pub fn new(after_lsn: u64) -> Self {
        Self { bytes: vec![0; HEADER_BYTES], after_lsn, records: 0 }
    }

    /// Adds a record, whose payload `push_payload` appends to the bytes that it gets.
    pub fn push(&mut self, lsn: u64, push_payload: impl FnOnce(&mut Vec<u8>)) {
        let distance = (lsn - self.after_lsn) as u32;
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&distance.to_le_bytes());
        push_payload(&mut self.bytes);
        let payload_bytes = (self.bytes.len() - begin - RECORD_HEADER_BYTES) as u32;
        self.bytes[begin..begin + 4].copy_from_slice(&payload_bytes.to_le_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.records += 1;
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The whole block, padded, and its checksum.
    pub fn finish(mut self, header: &Header) -> (Vec<u8>, u32) {
        let bytes = self.bytes.len();
        let fixed = &mut self.bytes[..HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| fixed[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(8, &(bytes as u32).to_le_bytes());
        put(16, &header.log_id.to_le_bytes());
        put(32, &header.generation.to_le_bytes());
        put(40, &header.place.to_le_bytes());
        put(48, &header.after_lsn.to_le_bytes());
        put(56, &header.last_lsn.to_le_bytes());
        put(64, &self.records.to_le_bytes());
        put(68, &header.crc_before.to_le_bytes());
        let crc = checksum(&self.bytes);
        self.bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        self.bytes.resize(padded(bytes) as usize, 0);
        (self.bytes, crc)
    }
}

/// The CRC-32 of at least 16 bytes. Bytes 12 to 15, where the result is stored, are taken as zero.
pub fn checksum(block: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&block[..CRC_AT]);
    hasher.update(&[0; 4]);
    hasher.update(&block[CRC_AT + 4..]);
    hasher.finalize()
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// How many bytes the block whose header is at the start of `bytes` says that it has; `None` if
/// that is no header of a block.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let length = half(bytes, 8)? as usize;
    let most = WANTED_BYTES + HEADER_BYTES + record_bytes(MAX_RECORD_BYTES);
    (bytes.starts_with(&MAGIC) && (HEADER_BYTES..=most).contains(&length)).then_some(length)
}

/// The checksum that the block at the start of `bytes` says that it has.
pub(crate) fn crc(bytes: &[u8]) -> Option<u32> {
    half(bytes, CRC_AT)
}

/// What the header at the start of `bytes` says, unchecked; `None` if it is no header of a block.
pub(crate) fn header(bytes: &[u8]) -> Option<Header> {
    length(bytes)?;
    Some(Header {
        log_id: u128::from_le_bytes(*bytes.get(16..)?.first_chunk()?),
        generation: word(bytes, 32)?,
        place: word(bytes, 40)?,
        after_lsn: word(bytes, 48)?,
        last_lsn: word(bytes, 56)?,
        crc_before: half(bytes, 68)?,
    })
}

/// Decodes the block at the start of `bytes`, if every bit of it is as it was written.
pub(crate) fn decode(bytes: &[u8]) -> Option<Block> {
    let length = length(bytes)?;
    let bytes = bytes.get(..length)?;
    let crc = crc(bytes)?;
    if checksum(bytes) != crc {
        return None;
    }
    let header = header(bytes)?;
    let mut records = Vec::new();
    let mut at = HEADER_BYTES;
    let mut lsn_before = header.after_lsn;
    while at < length {
        let payload_bytes = half(bytes, at)? as usize;
        let lsn = header.after_lsn.checked_add(u64::from(half(bytes, at + 4)?))?;
        let payload = at + RECORD_HEADER_BYTES..at + RECORD_HEADER_BYTES + payload_bytes;
        if payload.end > length || lsn <= lsn_before || lsn > header.last_lsn {
            return None;
        }
        at += record_bytes(payload_bytes);
        lsn_before = lsn;
        records.push((lsn, payload));
    }
    let is_whole = at == length
        && records.len() == half(bytes, 64)? as usize
        && bytes[72..HEADER_BYTES].iter().all(|&byte| byte == 0)
        && header.after_lsn < header.last_lsn;
    is_whole.then_some(Block { header, crc, bytes: length, records })
}

#[cfg(test)]
mod tests {
    use pando_device::simulated::damaged_copies;

    use super::*;

    fn example() -> (Vec<u8>, u32, Header) {
        let header = Header {
            log_id: 0x0123_4567_89AB_CDEF_u128 << 64 | 7,
            generation: 3,
            place: 5 << 20 | 4096,
            after_lsn: 1_000,
            last_lsn: 1_200,
            crc_before: 0xDEAD_BEEF,
        };
        let mut builder = Builder::new(header.after_lsn);
        builder.push(1_048, |bytes| bytes.extend_from_slice(b"oak"));
        builder.push(1_200, |bytes| bytes.extend_from_slice(&[0xAB; 100]));
        let (bytes, crc) = builder.finish(&header);
        (bytes, crc, header)
    }

    /// Fails on any change of the format: then the magic number must change with it.
    #[test]
    fn golden_block() {
        let (bytes, ..) = example();
        assert_eq!(bytes.len(), 4096);
        assert_eq!(crc32fast::hash(&bytes), GOLDEN, "the format of blocks changed");
    }
    const GOLDEN: u32 = 321_479_608;

    #[test]
    fn decodes_what_it_encodes() {
        let (bytes, crc, header) = example();
        let block = decode(&bytes).expect("a block");
        assert_eq!((block.header, block.crc), (header, crc));
        let records: Vec<_> =
            block.records.iter().map(|(lsn, place)| (*lsn, &bytes[place.clone()])).collect();
        assert_eq!(records, [(1_048, &b"oak"[..]), (1_200, &[0xAB; 100])]);
    }

    #[test]
    fn any_flipped_bit_and_any_truncation_is_found() {
        let (bytes, ..) = example();
        let length = length(&bytes).expect("a length");
        for (what, damaged) in damaged_copies(&bytes, length) {
            assert_eq!(decode(&damaged), None, "{what}");
        }
    }

    /// A block with a right checksum and wrong counts, as no sealer writes it, is refused too.
    #[test]
    fn a_block_that_contradicts_itself_is_refused() {
        let (_, _, header) = example();
        let built = |change: &dyn Fn(&mut Builder, &mut Header)| {
            let mut header = header;
            let mut builder = Builder::new(header.after_lsn);
            builder.push(1_100, |bytes| bytes.extend_from_slice(b"ash"));
            change(&mut builder, &mut header);
            decode(&builder.finish(&header).0)
        };
        assert!(built(&|_, _| {}).is_some());
        assert_eq!(built(&|_, header| header.last_lsn = 1_050), None, "a record behind its end");
        assert_eq!(built(&|builder, _| builder.push(1_100, |_| ())), None, "an LSN twice");
        assert_eq!(built(&|builder, _| builder.records = 2), None, "a record too few");
        assert_eq!(built(&|builder, _| builder.bytes[100] = 1), None, "a reserved byte");
    }
}
