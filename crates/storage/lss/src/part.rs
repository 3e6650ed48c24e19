//! A part of a page, as it is in a block.
//!
//! ```text
//! byte      0        4        8        12       16       20       24       28
//! 0         crc      k e 0 0  generat. pid      len      pieces   zero
//! 32        addresses of the page's earlier parts, newest first, 8 bytes each
//!           lengths of the pieces, 4 bytes each
//!           pieces ..
//!           zeros up to a multiple of 32
//! ```
//!
//! * `crc` is the CRC-32 of the `len` bytes of the part, with itself taken as zero.
//! * `k` (byte 4) is the kind: 1 base, 2 delta, 3 free. `e` (byte 5) is the number of earlier
//!   parts; only a delta has any. `pieces` (bytes 20 to 23) is the number of pieces.
//! * `generation` is that of the segment. A part that an earlier life of the segment has left there
//!   has another one.
//!
//! A page is its newest base with the deltas behind it. A piece is what a caller has written as one
//! base or one delta. Cleaning copies a page as one base with several pieces, so that one read gets
//! all of it.

use crate::address::{Address, MAX_PART_BYTES, UNIT_BYTES};

/// A page has at most so many parts.
pub const MAX_PARTS: usize = 4;
/// A page has at most so many bytes, in all its pieces; each piece counts 64 bytes more.
pub const MAX_PAGE_BYTES: usize = 480 << 10;

/// What each piece counts more towards [`MAX_PAGE_BYTES`], in bytes.
pub(crate) const PIECE_COSTS_BYTES: usize = 64;

const HEADER_BYTES: usize = 32;
const ADDRESS_BYTES: usize = 8;
const LENGTH_BYTES: usize = 4;

// One part can hold a whole page: each piece costs no more there than it counts.
const _: () = assert!(
    MAX_PAGE_BYTES + HEADER_BYTES + (MAX_PARTS - 1) * ADDRESS_BYTES + UNIT_BYTES <= MAX_PART_BYTES
        && LENGTH_BYTES <= PIECE_COSTS_BYTES
);

/// What a part does to its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The page consists of this part.
    Base,
    /// The page goes on with this part.
    Delta,
    /// The page exists no longer.
    Free,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Base => 1,
            Self::Delta => 2,
            Self::Free => 3,
        }
    }

    fn of(code: u8) -> Option<Self> {
        [Self::Base, Self::Delta, Self::Free].into_iter().find(|kind| kind.code() == code)
    }
}

/// A part that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub kind: Kind,
    pub pid: u32,
    pub generation: u32,
    /// The page's parts before this one, newest first.
    pub earlier: Vec<Address>,
    /// Oldest first.
    pub pieces: Vec<Vec<u8>>,
}

/// Bytes that a part takes, with the zeros behind it.
pub(crate) fn bytes_for<'call>(
    earlier: usize,
    pieces: impl IntoIterator<Item = &'call [u8]>,
) -> usize {
    let pieces = pieces.into_iter().map(|piece| LENGTH_BYTES + piece.len()).sum::<usize>();
    (HEADER_BYTES + earlier * ADDRESS_BYTES + pieces).next_multiple_of(UNIT_BYTES)
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(&bytes[4..])
}

/// Appends a part to `block`; the bytes that it takes.
pub(crate) fn push(
    block: &mut Vec<u8>,
    (kind, pid, generation): (Kind, u32, u32),
    earlier: &[Address],
    pieces: &[&[u8]],
) -> usize {
    let begin = block.len();
    block.extend_from_slice(&[0, 0, 0, 0, kind.code(), earlier.len() as u8, 0, 0]);
    block.extend_from_slice(&generation.to_le_bytes());
    block.extend_from_slice(&pid.to_le_bytes());
    block.extend_from_slice(&[0; 4]);
    block.extend_from_slice(&(pieces.len() as u32).to_le_bytes());
    block.resize(begin + HEADER_BYTES, 0);
    for address in earlier {
        block.extend_from_slice(&address.word().to_le_bytes());
    }
    for piece in pieces {
        block.extend_from_slice(&(piece.len() as u32).to_le_bytes());
    }
    for piece in pieces {
        block.extend_from_slice(piece);
    }
    let bytes = block.len() - begin;
    block[begin + 16..begin + 20].copy_from_slice(&(bytes as u32).to_le_bytes());
    let crc = checksum(&block[begin..]);
    block[begin..begin + 4].copy_from_slice(&crc.to_le_bytes());
    block.resize(begin + bytes.next_multiple_of(UNIT_BYTES), 0);
    block.len() - begin
}

/// Why bytes are no part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotAPart(pub &'static str);

/// The part at the beginning of `bytes`, and the bytes that it takes with the zeros behind it.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Part, usize), NotAPart> {
    let word = |at: usize| {
        let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
        found.map(|found| u32::from_le_bytes(*found)).ok_or(NotAPart("it is cut off"))
    };
    let length = word(16)? as usize;
    let bytes_taken = length.next_multiple_of(UNIT_BYTES);
    if !(HEADER_BYTES..=MAX_PART_BYTES).contains(&length) || bytes_taken > bytes.len() {
        return Err(NotAPart("its length is impossible"));
    }
    let part = &bytes[..length];
    if word(0)? != checksum(part) {
        return Err(NotAPart("its checksum is wrong"));
    }
    let kind = Kind::of(part[4]).ok_or(NotAPart("its kind is unknown"))?;
    let earlier_count = usize::from(part[5]);
    let piece_count = word(20)? as usize;
    let lengths_at = HEADER_BYTES + earlier_count * ADDRESS_BYTES;
    let mut piece_at = lengths_at.saturating_add(piece_count.saturating_mul(LENGTH_BYTES));
    if earlier_count >= MAX_PARTS || piece_at > length {
        return Err(NotAPart("it has too many parts or pieces"));
    }
    let mut earlier = Vec::new();
    for words in part[HEADER_BYTES..lengths_at].as_chunks().0 {
        let address = Address::from_word(u64::from_le_bytes(*words));
        earlier.push(address.ok_or(NotAPart("an address in it is impossible"))?);
    }
    let mut pieces = Vec::new();
    for words in part[lengths_at..piece_at].as_chunks().0 {
        let end = piece_at.saturating_add(u32::from_le_bytes(*words) as usize);
        let piece = part.get(piece_at..end).ok_or(NotAPart("a piece of it is too long"))?;
        pieces.push(piece.to_vec());
        piece_at = end;
    }
    let has_all = match kind {
        Kind::Base => earlier.is_empty() && !pieces.is_empty(),
        Kind::Delta => !earlier.is_empty() && !pieces.is_empty(),
        Kind::Free => earlier.is_empty() && pieces.is_empty(),
    };
    if !has_all || piece_at != length {
        return Err(NotAPart("its kind and its contents disagree"));
    }
    let part = Part { kind, pid: word(12)?, generation: word(8)?, earlier, pieces };
    Ok((part, bytes_taken))
}

#[cfg(test)]
mod tests {
    use pando_device::simulated::damaged_copies;

    use super::*;

    fn delta() -> (Vec<u8>, Part) {
        let earlier = vec![Address::new(3, 64, 100, 9)];
        let pieces = vec![b"abc".to_vec(), b"de".to_vec()];
        let mut bytes = Vec::new();
        let slices: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
        let taken = push(&mut bytes, (Kind::Delta, 7, 9), &earlier, &slices);
        assert_eq!(taken, bytes.len());
        assert_eq!(taken, bytes_for(1, slices.iter().copied()));
        (bytes, Part { kind: Kind::Delta, pid: 7, generation: 9, earlier, pieces })
    }

    #[test]
    fn golden_bytes() {
        let (bytes, part) = delta();
        assert_eq!(decode(&bytes), Ok((part, 64)));
        assert_eq!(bytes[4..32], {
            let mut header = [0; 28];
            header[..4].copy_from_slice(&[2, 1, 0, 0]);
            header[16] = 2;
            header[4] = 9;
            header[8] = 7;
            header[12] = 53;
            header
        });
        assert_eq!(bytes[40..53], *b"\x03\0\0\0\x02\0\0\0abcde");
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let (bytes, _) = delta();
        for (what, damaged) in damaged_copies(&bytes, 53) {
            assert!(decode(&damaged).is_err(), "{what}");
        }
        for length in 53..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    /// A checksum may be right although the bytes make no sense: an attacker can compute it.
    #[test]
    fn impossible_contents_with_a_right_checksum_are_refused() {
        let (bytes, _) = delta();
        for at in 4..53 {
            for value in [0, 1, 3, 255] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                let length =
                    u32::from_le_bytes([damaged[16], damaged[17], damaged[18], damaged[19]]);
                if let Some(part) = damaged.get(..length as usize).filter(|part| part.len() >= 32) {
                    let crc = checksum(part);
                    damaged[..4].copy_from_slice(&crc.to_le_bytes());
                }
                let _ = decode(&damaged);
            }
        }
    }
}
