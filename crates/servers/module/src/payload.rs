//! The form of records in RDB files, in payloads of DUMP, in the append-only file and between a
//! server and its saving child. Payloads of RESTORE come from anyone, so every length is checked.
//!
//! A piece is a series of edits, about 64 KiB, or one edit:
//!
//! ```text
//! 0     1           ..            ..   ..
//! kind  key bytes   value bytes   key  value      kind 1: a record, 2: a receipt
//! kind  key bytes                 key             kind 3: a removed record, 4: a removed receipt
//! ```
//!
//! Lengths are LEB128 of at most 4 bytes. A map is a series of pieces with kinds 1 and 2 only, in
//! strictly ascending order of (kind, key), then an empty piece, then the two counts.

use thiserror::Error;

use crate::layout::{Kind, MAX_KEY_BYTES, MAX_VALUE_BYTES, is_receipt};

/// A piece ends when it has so many bytes.
pub const PIECE_BYTES: usize = 64 << 10;

/// The longest piece of a map with more than one edit: the last edit has its kind and its lengths
/// beside what the writer counts.
const MAX_SERIES_BYTES: usize = PIECE_BYTES + 9;

/// One change of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit<'bytes> {
    /// A record or a receipt.
    pub kind: Kind,
    pub key: &'bytes [u8],
    /// The new value; none if the key is removed.
    pub value: Option<&'bytes [u8]>,
}

/// A piece, or a series of pieces, that no encoder has written.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Malformed {
    #[error("it ends inside an edit")]
    Short,
    #[error("an edit has the kind {0}; allowed are 1 to 4")]
    Kind(u8),
    #[error("a key has {0} bytes; allowed are up to {MAX_KEY_BYTES}")]
    Key(usize),
    #[error("a value has {0} bytes; allowed are up to {MAX_VALUE_BYTES}")]
    Value(usize),
    #[error("a length has more than 4 bytes")]
    Length,
    #[error("a receipt needs a session of 1 to 255 bytes, a sequence and a digest of 32 bytes")]
    Receipt,
    #[error("keys do not ascend")]
    Order,
    #[error("a piece of several edits has {0} bytes; allowed are up to {MAX_SERIES_BYTES}")]
    Piece(usize),
    #[error("a map has an edit that removes a key")]
    Removal,
    #[error(
        "it has {found_records} records and {found_receipts} receipts, and says {records} and {receipts}"
    )]
    Counts { found_records: u64, found_receipts: u64, records: u64, receipts: u64 },
    #[error("it has neither records nor receipts")]
    Empty,
    #[error("it has the form {0}; this version reads 1")]
    Form(u64),
    #[error("{0}")]
    Refused(&'static str),
}

fn put_length(piece: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        piece.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    piece.push(length as u8);
}

/// Appends an edit.
pub fn put_edit(piece: &mut Vec<u8>, edit: Edit<'_>) {
    let kind = match (edit.kind, edit.value) {
        (Kind::Receipt, Some(_)) => 2,
        (Kind::Receipt, None) => 4,
        (_, Some(_)) => 1,
        (_, None) => 3,
    };
    piece.push(kind);
    put_length(piece, edit.key.len());
    if let Some(value) = edit.value {
        put_length(piece, value.len());
    }
    piece.extend_from_slice(edit.key);
    piece.extend_from_slice(edit.value.unwrap_or_default());
}

/// The edits of a piece.
pub struct Edits<'bytes> {
    rest: &'bytes [u8],
}

/// Reads a piece.
pub fn edits(piece: &[u8]) -> Edits<'_> {
    Edits { rest: piece }
}

impl<'bytes> Edits<'bytes> {
    fn take(&mut self, length: usize) -> Result<&'bytes [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn length(&mut self) -> Result<usize, Malformed> {
        let mut length = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.take(1)?.first().copied().ok_or(Malformed::Short)?;
            length |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(length);
            }
        }
        Err(Malformed::Length)
    }

    fn edit(&mut self, kind: u8) -> Result<Edit<'bytes>, Malformed> {
        let (part, has_value) = match kind {
            1 => (Kind::Record, true),
            2 => (Kind::Receipt, true),
            3 => (Kind::Record, false),
            4 => (Kind::Receipt, false),
            _ => return Err(Malformed::Kind(kind)),
        };
        let key_bytes = self.length()?;
        let value_bytes = if has_value { Some(self.length()?) } else { None };
        if key_bytes > MAX_KEY_BYTES {
            return Err(Malformed::Key(key_bytes));
        }
        if let Some(bytes) = value_bytes.filter(|&bytes| bytes > MAX_VALUE_BYTES) {
            return Err(Malformed::Value(bytes));
        }
        let key = self.take(key_bytes)?;
        let value = value_bytes.map(|bytes| self.take(bytes)).transpose()?;
        // A removed receipt is checked with a digest in place.
        if part == Kind::Receipt && !is_receipt(key, value.unwrap_or(&[0; 32])) {
            return Err(Malformed::Receipt);
        }
        Ok(Edit { kind: part, key, value })
    }
}

impl<'bytes> Iterator for Edits<'bytes> {
    type Item = Result<Edit<'bytes>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let kind = *self.rest.first()?;
        self.rest = &self.rest[1..];
        let edit = self.edit(kind);
        if edit.is_err() {
            self.rest = &[];
        }
        Some(edit)
    }
}

/// Checks the pieces of a map as they come.
#[derive(Debug, Default)]
pub struct Checker {
    last: Option<(Kind, Vec<u8>)>,
    records: u64,
    receipts: u64,
}

impl Checker {
    /// The edits of the next piece, if the whole piece is correct.
    pub fn piece<'bytes>(&mut self, piece: &'bytes [u8]) -> Result<Vec<Edit<'bytes>>, Malformed> {
        let mut found: Vec<Edit<'_>> = Vec::new();
        for edit in edits(piece) {
            let edit = edit?;
            // So a client cannot make the server keep many edits.
            if !found.is_empty() && piece.len() > MAX_SERIES_BYTES {
                return Err(Malformed::Piece(piece.len()));
            }
            if edit.value.is_none() {
                return Err(Malformed::Removal);
            }
            let before = match (found.last(), &self.last) {
                (Some(before), _) => Some((before.kind, before.key)),
                (None, Some((kind, key))) => Some((*kind, key.as_slice())),
                (None, None) => None,
            };
            if before.is_some_and(|before| before >= (edit.kind, edit.key)) {
                return Err(Malformed::Order);
            }
            match edit.kind {
                Kind::Receipt => self.receipts += 1,
                _ => self.records += 1,
            }
            found.push(edit);
        }
        if let Some(edit) = found.last() {
            self.last = Some((edit.kind, edit.key.to_vec()));
        }
        Ok(found)
    }

    /// Compares the counts that end a map.
    pub fn end(&self, records: u64, receipts: u64) -> Result<(), Malformed> {
        if (self.records, self.receipts) != (records, receipts) {
            let (found_records, found_receipts) = (self.records, self.receipts);
            return Err(Malformed::Counts { found_records, found_receipts, records, receipts });
        }
        match records + receipts {
            0 => Err(Malformed::Empty),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece(edits: &[Edit<'_>]) -> Vec<u8> {
        let mut piece = Vec::new();
        edits.iter().for_each(|&edit| put_edit(&mut piece, edit));
        piece
    }

    fn record<'a>(key: &'a [u8], value: &'a [u8]) -> Edit<'a> {
        Edit { kind: Kind::Record, key, value: Some(value) }
    }

    #[test]
    fn lengths_beyond_the_limits_are_refused_before_they_are_read() {
        let refused = |bytes: &[u8]| edits(bytes).find_map(Result::err);
        assert_eq!(refused(&[1, 0xff, 0xff, 0x03, 0]), Some(Malformed::Key(65_535)));
        assert_eq!(refused(&[1, 1, 0xff, 0xff, 0xff, 0x7f]), Some(Malformed::Value(268_435_455)));
        assert_eq!(refused(&[1, 0x80, 0x80, 0x80, 0x80, 0]), Some(Malformed::Length));
        assert_eq!(refused(&[9]), Some(Malformed::Kind(9)));
        assert_eq!(refused(&[1, 5, 0, b'a']), Some(Malformed::Short));
        assert_eq!(refused(&[2, 1, 1, 0, 0]), Some(Malformed::Receipt));
    }

    #[test]
    fn a_map_needs_ascending_keys_and_its_counts() {
        let mut checker = Checker::default();
        assert_eq!(
            checker.piece(&piece(&[record(b"a", b"1"), record(b"b", b"2")])).unwrap().len(),
            2
        );
        assert_eq!(checker.piece(&piece(&[record(b"b", b"3")])), Err(Malformed::Order));
        assert_eq!(checker.end(2, 0), Ok(()));
        assert!(matches!(checker.end(3, 0), Err(Malformed::Counts { .. })));
        assert_eq!(Checker::default().end(0, 0), Err(Malformed::Empty));
        let (long, tail) = (vec![b'x'; PIECE_BYTES], vec![b'y'; 4]);
        let long = [record(b"a", &long), record(b"b", &tail)];
        assert_eq!(Checker::default().piece(&piece(&long[..1])).unwrap().len(), 1);
        assert_eq!(Checker::default().piece(&piece(&long)), Err(Malformed::Piece(65_550)));
        let removal = Edit { kind: Kind::Record, key: b"a", value: None };
        assert_eq!(Checker::default().piece(&piece(&[removal])), Err(Malformed::Removal));
    }

    proptest! {
        /// Whatever is accepted is encoded again to the same bytes: no two forms, no lost byte.
        /// (A length may be written with more bytes than it needs.)
        #[test]
        fn damaged_pieces_are_refused_or_mean_the_same(
            records in prop::collection::btree_map(
                prop::collection::vec(any::<u8>(), 0..20),
                prop::collection::vec(any::<u8>(), 0..200),
                1..20,
            ),
            cut in any::<prop::sample::Index>(),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let list: Vec<_> = records.iter().map(|(key, value)| record(key, value)).collect();
            let whole = piece(&list);
            prop_assert_eq!(edits(&whole).collect::<Result<Vec<_>, _>>(), Ok(list));
            let mut damaged = whole[..cut.index(whole.len() + 1)].to_vec();
            for (at, flip) in flips.iter().filter(|_| !whole.is_empty()) {
                if let Some(byte) = damaged.get_mut(at.index(whole.len())) {
                    *byte ^= flip;
                }
            }
            if let Ok(read) = edits(&damaged).collect::<Result<Vec<_>, _>>() {
                let again = piece(&read);
                prop_assert!(again.len() <= damaged.len());
                prop_assert_eq!(edits(&again).collect::<Result<Vec<_>, _>>(), Ok(read));
            }
            // Neither order nor counts make it panic.
            let _ = Checker::default().piece(&damaged);
        }
    }
}
