//! The stamp in front of each value of a transactional map, which says which commit wrote it.
//!
//! ```text
//! byte      0        8        16 ..
//!           word     record   the user's value; nothing behind the stamp of a removed key
//! ```
//!
//! * `word`: the LSN of the commit, shifted by 2; bit 0 *removed*, bit 1 *undone*.
//! * `record` is the offset of the commit's record in the log's tail. It is read only while the
//!   LSN is not settled.
//!
//! No version of a key has the stamp of an earlier one: LSNs rise, and a commit writes a key at
//! most twice, the second time *undone*. So a write that expects a stamp cannot succeed late.
//! A record of the log has word 0 for the stamp of a key without a version, with 1 in the place of
//! `record` for that of a version that is not recorded (`bare.rs`).

/// Bytes of a stamp.
pub(crate) const STAMP_BYTES: usize = 16;
/// The least that the longest value of a transactional map's index may have, in bytes.
pub const LEAST_VALUE_BYTES: usize = 64;

const _: () = assert!(LEAST_VALUE_BYTES > STAMP_BYTES);

const REMOVED: u64 = 1;
const UNDONE: u64 = 2;
const LSN_SHIFT: u32 = 2;

/// The stamp of a version of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    word: u64,
    record_off: u64,
}

impl Stamp {
    /// Stands for the stamp of a key that has no version.
    pub const ABSENT: Self = Self { word: 0, record_off: 0 };
    /// Stands for that of a version that a commit replaces and does not record (`bare.rs`). No map
    /// has it.
    pub const UNRECORDED: Self = Self { word: 0, record_off: 1 };

    /// The stamp of what the commit with this LSN writes, whose record is at `record_off`.
    pub fn new(lsn: u64, record_off: u64) -> Self {
        Self { word: lsn << LSN_SHIFT, record_off }
    }

    /// The same, of a version without a value, or of one with a value.
    pub fn removed_if(self, is_removed: bool) -> Self {
        Self { word: self.word & !REMOVED | if is_removed { REMOVED } else { 0 }, ..self }
    }

    /// The same, of a version by which the failed commit gives the old value back.
    pub fn undone(self) -> Self {
        Self { word: self.word | UNDONE, ..self }
    }

    /// The LSN of the commit.
    pub fn lsn(self) -> u64 {
        self.word >> LSN_SHIFT
    }

    /// The offset of the commit's record.
    pub fn record_off(self) -> u64 {
        self.record_off
    }

    /// Whether the version has no value.
    pub fn is_removed(self) -> bool {
        self.word == 0 || self.word & REMOVED != 0
    }

    /// Whether a failed commit has given an old value back by it.
    pub fn is_undone(self) -> bool {
        self.word & UNDONE != 0
    }

    /// Whether `other` is a stamp of what the same commit writes, and not undone.
    pub fn is_installed_by(self, commit: Self) -> bool {
        self.word & !REMOVED == commit.word & !REMOVED && self.record_off == commit.record_off
    }

    /// Its bytes, as words.
    pub fn words(self) -> [u64; 2] {
        [self.word, self.record_off]
    }

    /// Its bytes.
    pub fn encode(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[..8].copy_from_slice(&self.word.to_le_bytes());
        bytes[8..].copy_from_slice(&self.record_off.to_le_bytes());
        bytes
    }

    /// The stamp with these bytes; `None` if `bytes` has another length.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; STAMP_BYTES] = bytes.try_into().ok()?;
        let (word, record_off) = bytes.split_at(8);
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
        Some(Self { word: number(word)?, record_off: number(record_off)? })
    }

    /// The stamp of a key's value in a map, [`ABSENT`](Self::ABSENT) if there is no value.
    /// `None` if the value has no whole stamp.
    pub fn of_value(found: Option<&[u8]>) -> Option<Self> {
        found.map_or(Some(Self::ABSENT), |value| Self::split(value).map(|(stamp, _)| stamp))
    }

    /// The stamp and the user's value of a value in a map; `None` if it has no whole stamp.
    pub fn split(value: &[u8]) -> Option<(Self, &[u8])> {
        let (stamp, value) = value.split_at_checked(STAMP_BYTES)?;
        let stamp = Self::decode(stamp)?;
        (stamp.lsn() > 0).then_some((stamp, value))
    }
}

/// The user's value in a value of a transactional map's index; `None` if the key is removed, or the
/// value has no stamp. Whether it is committed is not looked at: after
/// [`settle`](crate::TransactionComponent::settle) it is, if nothing is written meanwhile.
pub fn value_of(value: &[u8]) -> Option<&[u8]> {
    let (stamp, value) = Stamp::split(value)?;
    (!stamp.is_removed()).then_some(value)
}

/// Whether a value of a transactional map's index has a stamp, as each has that is not damaged.
pub fn has_stamp(value: &[u8]) -> bool {
    Stamp::split(value).is_some()
}

/// A version of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub stamp: Stamp,
    /// `None` if the key is absent.
    pub value: Option<Vec<u8>>,
}

impl Version {
    /// The version of a key that was never written.
    pub const ABSENT: Self = Self { stamp: Stamp::ABSENT, value: None };
}

/// Appends what a map keeps for a version with this stamp and value to `bytes`.
pub(crate) fn put(stamp: Stamp, value: Option<&[u8]>, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&stamp.removed_if(value.is_none()).encode());
    bytes.extend_from_slice(value.unwrap_or_default());
}

/// What a map keeps for a version with this stamp and value.
pub(crate) fn bytes_of(stamp: Stamp, value: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(STAMP_BYTES + value.map_or(0, <[u8]>::len));
    put(stamp, value, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_versions() {
        let written = Stamp::new(0x0102, 0x0304);
        let mut bytes = Vec::new();
        put(written, Some(b"oak"), &mut bytes);
        assert_eq!(bytes, [b"\x08\x04\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0", &b"oak"[..]].concat());
        assert_eq!(Stamp::split(&bytes), Some((written, &b"oak"[..])));

        bytes.clear();
        put(written.undone(), None, &mut bytes);
        assert_eq!(bytes, *b"\x0b\x04\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0");
        let (stamp, value) = Stamp::split(&bytes).expect("a stamp");
        assert!(stamp.is_removed() && stamp.is_undone() && value.is_empty());
        assert!(!stamp.is_installed_by(written));
        assert!(written.removed_if(true).is_installed_by(written));
        // A value that a failed removal has hidden is given back under the removal's stamp.
        let given_back = bytes_of(written.removed_if(true), Some(b"oak"));
        assert_eq!(Stamp::split(&given_back), Some((written, &b"oak"[..])));
    }

    #[test]
    fn a_value_without_a_stamp_is_told() {
        for bytes in [&b""[..], &[1; 15], &[0; 16], &[0; 40]] {
            assert_eq!(Stamp::split(bytes), None, "{bytes:?}");
        }
    }
}
