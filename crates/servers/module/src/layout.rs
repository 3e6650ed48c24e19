//! The bytes of the three maps in the pool.
//!
//! All maps of Redis share one Pando map, `pando.records`, because a pool's catalog has room for
//! 1,024 maps only. Numbers are never used twice in a pool. In a key they are big-endian, so that
//! the records of a map lie side by side; in a value integers are little-endian.
//!
//! ```text
//! pando.records
//!   key     0                  8 ..
//!           number * 4 + kind  the client's key, or of a receipt: length, session, sequence
//!   kind 0  the head           the key ends after 8 bytes
//!   value   0         8        16                                     (head, 24 bytes)
//!           records   receipts bytes of the clients' keys and values
//!   kind 1  a record           value: the client's value
//!   kind 2  a receipt          value: the SHA-256 of its request, 32 bytes
//!
//! pando.directory
//!   key     0           8  9 ..
//!           generation  0  the name, up to 1,024 bytes
//!           generation  1  the SHA-256 of a longer name
//!   value   0        8                      16 ..
//!           number   expiry, ms since 1970  the name
//!                    (2^64-1: none)
//!
//! pando.meta
//!   "format"             version, 4 bytes
//!   "id"                 of the pool, 16 random bytes
//!   "state"              1 byte: 0 while files are loaded, 1 when the maps are complete
//!   "numbers"            8 bytes: the next number that no thread has reserved
//!   "saves"              8 bytes: the number of the latest save
//!   "db" database        8 bytes: the generation of its directory
//!   "from" pool          empty: files of that pool were loaded into this one
//!   "map" number         empty: the records of this map are removed
//!   "generation" number  empty: the entries of this generation are removed
//! ```

use sha2::{Digest, Sha256};

/// The version of the layout.
pub const FORMAT: u32 = 1;

/// The longest key of a client in bytes. A pool has room for 32 KiB with the number.
pub const MAX_KEY_BYTES: usize = 16 << 10;
/// The longest value of a client in bytes. A commit is at most 16 MiB long, and has the old value
/// and the new one.
pub const MAX_VALUE_BYTES: usize = 4 << 20;
/// The longest name of a map in bytes. A commit has room for the changes of some names.
pub const MAX_NAME_BYTES: usize = 4 << 20;

/// No expiry.
pub const NEVER: u64 = u64::MAX;

/// The parts of a map in `pando.records`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Head = 0,
    Record = 1,
    Receipt = 2,
}

/// The beginning of the keys of a part.
pub fn prefix(number: u64, kind: Kind) -> [u8; 8] {
    (number << 2 | kind as u64).to_be_bytes()
}

/// A key of `pando.records`.
pub fn record_key(number: u64, kind: Kind, key: &[u8]) -> Vec<u8> {
    [&prefix(number, kind)[..], key].concat()
}

/// The client's part of a key of `pando.records`.
pub fn client_key(key: &[u8]) -> &[u8] {
    key.get(8..).unwrap_or_default()
}

/// The beginning of a session's receipts.
pub fn receipts_of(session: &[u8]) -> Vec<u8> {
    let length = u8::try_from(session.len()).unwrap_or(u8::MAX);
    [&[length], session].concat()
}

/// The key of a receipt, without the number of its map.
pub fn receipt_key(session: &[u8], sequence: u64) -> Vec<u8> {
    [&receipts_of(session)[..], &sequence.to_be_bytes()].concat()
}

/// The sequence of a receipt's key.
pub fn sequence_of(key: &[u8]) -> Option<u64> {
    key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Whether a receipt's key and value have the right lengths.
pub fn is_receipt(key: &[u8], value: &[u8]) -> bool {
    let session_bytes = key.len().checked_sub(9);
    session_bytes.is_some_and(|bytes| bytes > 0 && key.first().map(|&of| of.into()) == Some(bytes))
        && value.len() == 32
}

/// The figures of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub records: u64,
    pub receipts: u64,
    /// Of the clients' keys and values.
    pub bytes: u64,
}

impl Head {
    /// Whether the map has neither records nor receipts.
    pub fn is_empty(self) -> bool {
        self.records == 0 && self.receipts == 0
    }

    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let words = [self.records, self.receipts, self.bytes];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| {
            to.copy_from_slice(&word.to_le_bytes());
        });
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [records, receipts, bytes] = words(bytes)?;
        Some(Self { records, receipts, bytes })
    }
}

/// An entry of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub number: u64,
    /// In milliseconds since 1970, or [`NEVER`].
    pub expiry_ms: u64,
}

impl Entry {
    pub fn to_bytes(self, name: &[u8]) -> Vec<u8> {
        [&self.number.to_le_bytes()[..], &self.expiry_ms.to_le_bytes(), name].concat()
    }

    /// The entry and the name.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (entry, name) = bytes.split_at_checked(16)?;
        let [number, expiry_ms] = words(entry)?;
        Some((Self { number, expiry_ms }, name))
    }
}

/// A key of `pando.directory`.
pub fn directory_key(generation: u64, name: &[u8]) -> Vec<u8> {
    let generation = generation.to_be_bytes();
    match name.len() {
        ..=1024 => [&generation[..], &[0], name].concat(),
        _ => [&generation[..], &[1], &Sha256::digest(name)].concat(),
    }
}

/// `N` little-endian words, and no byte more.
fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    if bytes.len() != 8 * N {
        return None;
    }
    let (chunks, _) = bytes.as_chunks::<8>();
    let mut words = [0; N];
    words.iter_mut().zip(chunks).for_each(|(word, chunk)| *word = u64::from_le_bytes(*chunk));
    Some(words)
}

/// A little-endian word.
pub fn word(bytes: &[u8]) -> Option<u64> {
    words::<1>(bytes).map(|[word]| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if the layout changes without a new [`FORMAT`].
    #[test]
    fn the_layout_is_the_documented_one() {
        assert_eq!(FORMAT, 1);
        assert_eq!(record_key(5, Kind::Record, b"k"), [0, 0, 0, 0, 0, 0, 0, 21, b'k']);
        assert_eq!(receipt_key(b"ab", 3), [2, b'a', b'b', 0, 0, 0, 0, 0, 0, 0, 3]);
        assert!(is_receipt(&receipt_key(b"ab", 3), &[0; 32]));
        assert!(!is_receipt(&receipt_key(b"", 3), &[0; 32]));
        let head = Head { records: 1, receipts: 2, bytes: 3 };
        assert_eq!(Head::from_bytes(&head.to_bytes()), Some(head));
        assert_eq!(head.to_bytes()[8], 2);
        let entry = Entry { number: 7, expiry_ms: NEVER };
        assert_eq!(Entry::from_bytes(&entry.to_bytes(b"n")), Some((entry, &b"n"[..])));
        assert_eq!(directory_key(1, b"n"), [0, 0, 0, 0, 0, 0, 0, 1, 0, b'n']);
        assert_eq!(directory_key(1, &[7; 2000]).len(), 8 + 1 + 32);
    }
}
