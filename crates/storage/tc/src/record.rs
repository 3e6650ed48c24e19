//! The record of a commit: the payload of one record of the log.
//!
//! ```text
//! byte      0        8        12       16       20       24 ..
//!           conflict writes   reads    ranges   zero     the writes, the reads, the ranges
//!
//! write     0        8        16       24       28       32       36       40 ..
//!           map      replaced stamp    key      new      old      zero     key, new value, old value
//!
//! read      0        8        16       24       28       32 ..
//!           map      seen stamp        key      zero     key
//!
//! range     0        8        9        10       16       20       24       28       32 ..
//!           map      low      high     zero     low      high     stamps   order    low key, high key, stamps
//! ```
//!
//! * `conflict` is zero until the commit has failed, and changes once: bits 0..31 hold one more
//!   than the index of the write, the read or the range, bits 32.. what happened ([`Cause`]). It is
//!   all that changes in a payload.
//! * Writes ascend by map and key, and no key comes twice. The length of a value is `0xFFFF_FFFF`
//!   if there is none. `replaced` is [`Stamp::ABSENT`] if the key had no version.
//! * `replaced` is [`Stamp::UNRECORDED`] in a bare commit (`bare.rs`): one write, no old value, no
//!   read and no range.
//! * All of this is in the tail. What goes to the disk has no old value, no read and no range
//!   ([`push_redo`]).
//! * The kind of a bound is 0 open, 1 included, 2 excluded. `order` is 1 if the keys descend.
//!   `stamps` are those of the versions with a value, in the order of the scan.

use std::ops::Bound;

use pando_index::{KeyRange, Order};
use pando_log::Record;
use pando_pmem::Domain;

use crate::rest::Rest;
use crate::stamp::{STAMP_BYTES, Stamp, Version};

/// Bytes before the first write.
const HEADER_BYTES: usize = 24;
/// Bytes of a record with one write, without its key and values.
pub(crate) const RECORD_BYTES_OF_WRITE: usize = HEADER_BYTES + WRITE_BYTES;
/// Bytes of a write, without its key and values.
const WRITE_BYTES: usize = 40;
/// The length of a value that is none.
const NO_VALUE: u32 = u32::MAX;

/// A write of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub map: u64,
    pub key: Vec<u8>,
    /// The version that it replaces.
    pub old: Version,
    /// `None` removes the key.
    pub new: Option<Vec<u8>>,
}

/// A key that was read and not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub map: u64,
    pub key: Vec<u8>,
    /// The stamp of the version that was read.
    pub stamp: Stamp,
}

/// A range that was scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeRead {
    pub map: u64,
    pub range: KeyRange,
    pub order: Order,
    /// The stamps of its versions with a value, in that order.
    pub stamps: Vec<Stamp>,
}

impl RangeRead {
    /// The key where the scan began; the empty key if it has none.
    fn start(&self) -> &[u8] {
        let start = match self.order {
            Order::Ascending => &self.range.low,
            Order::Descending => &self.range.high,
        };
        match start {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        }
    }
}

/// What a commit writes, and what it has read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commit {
    pub writes: Vec<Write>,
    pub reads: Vec<Read>,
    pub ranges: Vec<RangeRead>,
}

/// Why a commit failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The write with this index found another version than the one that it replaces. No thread has
    /// written the keys from there on.
    Write(usize),
    /// The read with this index found another version.
    Read(usize),
    /// The range with this index has other versions.
    Range(usize),
    /// An earlier commit has read what the write with this index replaces.
    ReadByOther(usize),
}

impl Cause {
    pub fn word(self) -> u64 {
        let (kind, index) = match self {
            Self::Write(index) => (0, index),
            Self::Read(index) => (1, index),
            Self::Range(index) => (2, index),
            Self::ReadByOther(index) => (3, index),
        };
        kind << 32 | (index as u64 + 1)
    }

    pub fn of(word: u64) -> Option<Self> {
        let index = (word as u32).checked_sub(1)? as usize;
        match word >> 32 {
            0 => Some(Self::Write(index)),
            1 => Some(Self::Read(index)),
            2 => Some(Self::Range(index)),
            3 => Some(Self::ReadByOther(index)),
            _ => None,
        }
    }
}

impl Commit {
    /// The payload of its record.
    pub fn encode(&self) -> Vec<u8> {
        let of_writes = self.writes.iter().map(|write| {
            let values =
                [&write.new, &write.old.value].map(|value| value.as_ref().map_or(0, Vec::len));
            WRITE_BYTES + write.key.len() + values[0] + values[1]
        });
        let mut bytes = Vec::with_capacity(HEADER_BYTES + of_writes.sum::<usize>());
        push_header([self.writes.len(), self.reads.len(), self.ranges.len()], &mut bytes);
        for Write { map, key, old, new } in &self.writes {
            let [new, value] = [new, &old.value].map(Option::as_deref);
            WriteRef { map: *map, stamp: old.stamp, key, new, old: value }.push(&mut bytes);
        }
        for Read { map, key, stamp } in &self.reads {
            bytes.extend_from_slice(&map.to_le_bytes());
            bytes.extend_from_slice(&stamp.encode());
            push(&mut bytes, key.len());
            push(&mut bytes, 0);
            bytes.extend_from_slice(key);
        }
        for RangeRead { map, range, order, stamps } in &self.ranges {
            bytes.extend_from_slice(&map.to_le_bytes());
            let (low, high) = (bound(&range.low), bound(&range.high));
            bytes.extend_from_slice(&[low.0, high.0, 0, 0, 0, 0, 0, 0]);
            let is_descending = usize::from(*order == Order::Descending);
            for number in [low.1.len(), high.1.len(), stamps.len(), is_descending] {
                push(&mut bytes, number);
            }
            bytes.extend_from_slice(low.1);
            bytes.extend_from_slice(high.1);
            stamps.iter().for_each(|stamp| bytes.extend_from_slice(&stamp.encode()));
        }
        bytes
    }

    /// The commit of a payload; `None` if it is none.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut rest = Rest(payload.get(8..)?);
        let [writes, reads, ranges, _] = rest.numbers()?;
        let mut commit = Self::default();
        for _ in 0..writes {
            let WriteRef { map, stamp, key, new, old } = rest.write()?;
            let [new, value] = [new, old].map(|value| value.map(<[u8]>::to_vec));
            let old = Version { stamp, value };
            commit.writes.push(Write { map, key: key.to_vec(), old, new });
        }
        for _ in 0..reads {
            let (map, stamp) = (rest.number()?, rest.stamp()?);
            let [key, _] = rest.numbers()?;
            commit.reads.push(Read { map, key: rest.take(key as usize)?.to_vec(), stamp });
        }
        for _ in 0..ranges {
            let map = rest.number()?;
            let kinds = rest.take(8)?;
            let [low_bytes, high_bytes, stamps, is_descending] = rest.numbers()?;
            let low = of_bound(kinds[0], rest.take(low_bytes as usize)?)?;
            let high = of_bound(kinds[1], rest.take(high_bytes as usize)?)?;
            let order = if is_descending == 1 { Order::Descending } else { Order::Ascending };
            let stamps = (0..stamps).map(|_| rest.stamp()).collect::<Option<_>>()?;
            commit.ranges.push(RangeRead { map, range: KeyRange { low, high }, order, stamps });
        }
        rest.0.is_empty().then_some(commit)
    }

    /// Calls `visit` with each write of the commit of a payload: its map, its key, and the new
    /// value; whether the payload is that of a commit so far.
    pub fn visit_writes<E>(
        payload: &[u8],
        mut visit: impl FnMut(u64, &[u8], Option<&[u8]>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut rest = Rest(payload.get(8..).unwrap_or_default());
        let Some([writes, ..]) = rest.numbers::<4>() else { return Ok(false) };
        for _ in 0..writes {
            let Some(WriteRef { map, key, new, .. }) = rest.write() else { return Ok(false) };
            visit(map, key, new)?;
        }
        Ok(true)
    }

    /// The map and the key of a cause of failure; of a range, the key where its scan began.
    pub fn place_of(&self, cause: Option<Cause>) -> (u64, Vec<u8>) {
        let of_write =
            |index: usize| self.writes.get(index).map(|write| (write.map, write.key.clone()));
        let place = match cause {
            Some(Cause::Write(index) | Cause::ReadByOther(index)) => of_write(index),
            Some(Cause::Read(index)) => {
                self.reads.get(index).map(|read| (read.map, read.key.clone()))
            }
            Some(Cause::Range(index)) => {
                self.ranges.get(index).map(|read| (read.map, read.start().to_vec()))
            }
            None => None,
        };
        place.or_else(|| of_write(0)).unwrap_or_default()
    }

    /// Whether the version that it replaces is not recorded (`bare.rs`).
    pub fn is_bare(&self) -> bool {
        matches!(self.writes.as_slice(), [write] if write.old.stamp == Stamp::UNRECORDED)
    }

    /// Whether it only removes: then it gives more room back than it takes.
    pub fn gives_room(&self) -> bool {
        self.writes.iter().all(|write| write.new.is_none())
    }

    /// The index of the write of `key`.
    pub fn write_of(&self, map: u64, key: &[u8]) -> Option<usize> {
        self.writes
            .binary_search_by(|write| (write.map, write.key.as_slice()).cmp(&(map, key)))
            .ok()
    }
}

/// Whether the commit of a record is bare: [`Commit::is_bare`], without the rest of its payload.
pub(crate) fn is_bare<D: Domain>(record: Record<'_, D>) -> bool {
    let stamp_at = HEADER_BYTES + 8;
    let end = stamp_at + STAMP_BYTES;
    let Some(bytes) = record.payload_from(8, end - 8) else { return false };
    let mut rest = Rest(&bytes);
    rest.numbers() == Some([1, 0, 0, 0])
        && rest.number().is_some()
        && rest.stamp() == Some(Stamp::UNRECORDED)
}

/// Appends what goes to the disk of a committed payload: its writes without the old values, and
/// neither reads nor ranges. It is a payload too. The rest is needed until the commit is decided,
/// and by pages of a store until it is durable (`durable.rs`). All of that reads the tail.
pub fn push_redo(payload: &[u8], bytes: &mut Vec<u8>) {
    let begin = bytes.len();
    if try_push_redo(payload, bytes).is_none() {
        // No commit.
        bytes.truncate(begin);
        bytes.extend_from_slice(payload);
    }
}

fn try_push_redo(payload: &[u8], bytes: &mut Vec<u8>) -> Option<()> {
    // Else it is a list of maps (`map_list.rs`).
    let mut rest = Rest(payload.strip_prefix(&[0; 8])?);
    let [writes, ..] = rest.numbers::<4>()?;
    push_header([writes as usize, 0, 0], bytes);
    for _ in 0..writes {
        WriteRef { old: None, ..rest.write()? }.push(bytes);
    }
    Some(())
}

/// The beginning of a payload with so many writes, reads and ranges.
fn push_header(counts: [usize; 3], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&[0; 8]);
    counts.into_iter().chain([0]).for_each(|count| push(bytes, count));
}

fn push(bytes: &mut Vec<u8>, number: usize) {
    // A record has less than 4 GiB: the log refuses it otherwise.
    bytes.extend_from_slice(&(number as u32).to_le_bytes());
}

fn bound(bound: &Bound<Vec<u8>>) -> (u8, &[u8]) {
    match bound {
        Bound::Unbounded => (0, &[]),
        Bound::Included(key) => (1, key),
        Bound::Excluded(key) => (2, key),
    }
}

fn of_bound(kind: u8, key: &[u8]) -> Option<Bound<Vec<u8>>> {
    match kind {
        0 => Some(Bound::Unbounded),
        1 => Some(Bound::Included(key.to_vec())),
        2 => Some(Bound::Excluded(key.to_vec())),
        _ => None,
    }
}

/// A write in a payload.
pub(crate) struct WriteRef<'payload> {
    pub map: u64,
    /// The stamp of the version that it replaces.
    pub stamp: Stamp,
    pub key: &'payload [u8],
    pub new: Option<&'payload [u8]>,
    pub old: Option<&'payload [u8]>,
}

impl WriteRef<'_> {
    /// The payload of a commit that makes only this write, up to the key, which the values follow.
    pub fn head(&self) -> [u8; RECORD_BYTES_OF_WRITE] {
        let Self { map, stamp, key, new, old } = self;
        let [new, old] = [new, old].map(|value| value.map_or(NO_VALUE, |value| value.len() as u32));
        let stamp = stamp.words();
        let lengths = u64::from(new) << 32 | key.len() as u64;
        let words = [0, 1, 0, *map, stamp[0], stamp[1], lengths, old.into()];
        let mut bytes = [0; RECORD_BYTES_OF_WRITE];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    fn push(&self, bytes: &mut Vec<u8>) {
        let Self { map, stamp, key, new, old } = self;
        bytes.extend_from_slice(&map.to_le_bytes());
        bytes.extend_from_slice(&stamp.encode());
        push(bytes, key.len());
        let values = [new, old];
        for value in values {
            push(bytes, value.map_or(NO_VALUE as usize, <[u8]>::len));
        }
        push(bytes, 0);
        bytes.extend_from_slice(key);
        values.iter().for_each(|value| bytes.extend_from_slice(value.unwrap_or_default()));
    }
}

impl<'payload> Rest<'payload> {
    fn stamp(&mut self) -> Option<Stamp> {
        Stamp::decode(self.take(STAMP_BYTES)?)
    }

    fn value(&mut self, bytes: u32) -> Option<Option<&'payload [u8]>> {
        match bytes {
            NO_VALUE => Some(None),
            bytes => Some(Some(self.take(bytes as usize)?)),
        }
    }

    fn write(&mut self) -> Option<WriteRef<'payload>> {
        let (map, stamp) = (self.number()?, self.stamp()?);
        let [key, new, old, _] = self.numbers()?;
        let key = self.take(key as usize)?;
        Some(WriteRef { map, stamp, key, new: self.value(new)?, old: self.value(old)? })
    }
}

const _: () = assert!(HEADER_BYTES == 8 + 4 * 4);

#[cfg(test)]
mod tests {
    use super::*;

    fn commit() -> Commit {
        let old = Version { stamp: Stamp::new(5, 64), value: Some(b"o".to_vec()) };
        let range = KeyRange { low: Bound::Included(b"a".to_vec()), high: Bound::Unbounded };
        Commit {
            writes: vec![
                Write { map: 1, key: b"k".to_vec(), old, new: None },
                Write { map: 2, key: Vec::new(), old: Version::ABSENT, new: Some(b"new".to_vec()) },
            ],
            reads: vec![Read { map: 3, key: b"r".to_vec(), stamp: Stamp::ABSENT }],
            ranges: vec![RangeRead {
                map: 4,
                range,
                order: Order::Descending,
                stamps: vec![Stamp::new(6, 8)],
            }],
        }
    }

    #[test]
    fn golden_bytes_of_a_commit() {
        let expected = [
            &[0; 8][..],
            b"\x02\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0",
            b"\x01\0\0\0\0\0\0\0\x14\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0",
            b"\x01\0\0\0\xff\xff\xff\xff\x01\0\0\0\0\0\0\0ko",
            b"\x02\0\0\0\0\0\0\0",
            &[0; 16],
            b"\0\0\0\0\x03\0\0\0\xff\xff\xff\xff\0\0\0\0new",
            b"\x03\0\0\0\0\0\0\0",
            &[0; 16],
            b"\x01\0\0\0\0\0\0\0r",
            b"\x04\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0",
            b"\x01\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0a",
            b"\x18\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0",
        ];
        assert_eq!(commit().encode(), expected.concat());
        assert_eq!(Commit::decode(&commit().encode()), Some(commit()));
    }

    #[test]
    fn the_head_of_one_write_is_that_of_its_commit() {
        for write in commit().writes {
            let bytes = Commit { writes: vec![write.clone()], ..Commit::default() }.encode();
            let Write { map, key, old, new } = &write;
            let [new, value] = [new, &old.value].map(Option::as_deref);
            let head = WriteRef { map: *map, stamp: old.stamp, key, new, old: value }.head();
            let rest = [key.as_slice(), new.unwrap_or_default(), value.unwrap_or_default()];
            assert_eq!([&head[..], &rest.concat()].concat(), bytes);
        }
    }

    #[test]
    fn a_payload_that_is_cut_or_longer_is_no_commit() {
        let bytes = commit().encode();
        for len in 0..bytes.len() {
            assert_eq!(Commit::decode(&bytes[..len]), None, "{len} bytes");
        }
        assert_eq!(Commit::decode(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn what_goes_to_the_disk_has_the_writes_without_old_values() {
        let mut bytes = b"before".to_vec();
        push_redo(&commit().encode(), &mut bytes);
        let redo = Commit::decode(bytes.strip_prefix(b"before").expect("appended"));
        let mut writes = commit().writes;
        writes.iter_mut().for_each(|write| write.old.value = None);
        assert_eq!(redo, Some(Commit { writes, ..Commit::default() }));

        // Replays tell of what is no commit.
        let cut = &commit().encode()[..50];
        bytes.clear();
        push_redo(cut, &mut bytes);
        assert_eq!(bytes, cut);
    }

    #[test]
    fn a_cause_is_read_as_it_was_written() {
        for cause in [Cause::Write(0), Cause::Read(7), Cause::Range(1), Cause::ReadByOther(3)] {
            assert_eq!(Cause::of(cause.word()), Some(cause));
        }
        assert_eq!((Cause::of(0), Cause::of(9 << 32 | 1)), (None, None));
    }
}
