//! A checkpoint: the pages and the segments of one instant, and the place in the chain of blocks
//! from which an opening goes on.
//!
//! ```text
//! byte      0        8        16       24       32       40       48       56
//! 0         magic    crc, ver store id          number   sequence at       seg, bef
//! 64        segs, cl pages    words    zero
//! 96        segments, 8 bytes each: generation, state ..
//!           pages: PID and number of parts in 8 bytes, then an address in 8 bytes for each part ..
//!           the caller's bytes
//! ```
//!
//! * `crc` (bytes 8 to 11) is the CRC-32 of all bytes from 12 on.
//! * `sequence` is that of the first block that the checkpoint does not contain. `at` and `seg`
//!   (bytes 56 to 59) are where it is, if it is in the segment of the block before it; `bef` (bytes
//!   60 to 63) is the checksum of that block.
//! * `segs` (bytes 64 to 67) and `cl` (bytes 68 to 71) are the number of segments and of the
//!   caller's bytes. `words` is the number of words of all pages.
//! * The state of a segment is 0 if there is no file, 1 if the file may be written anew, 2 if it is
//!   used.
//!
//! The file `checkpoint-N` is written and synced before a superblock names it. It is never changed.

use std::iter;

use crc32fast::Hasher;
use pando_device::Directory;
use pando_pmem::mutant;

use crate::address::{Address, MAX_SEGMENTS};
use crate::block::{BLOCK_ALIGN, MAX_COUNT};
use crate::error::{Error, Result};
use crate::part::MAX_PARTS;

const PREFIX: &str = "checkpoint-";
const MAGIC: [u8; 8] = *b"PANDOsc1";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 96;
/// Bytes that are written at once.
const CHUNK_BYTES: usize = 256 << 10;

/// The caller's bytes are at most so many.
pub const MAX_CLIENT_BYTES: usize = 64 << 10;

/// Where the first block behind a checkpoint is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redo {
    pub sequence: u64,
    /// The segment of the block before, and the first byte behind that block.
    pub segment: u32,
    pub at: u64,
    pub crc_before: u32,
}

/// What is known of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// It has no file.
    #[default]
    Absent,
    /// No checkpoint that an opening may begin with needs it.
    Free,
    /// Pages have parts there, or had some when the last checkpoint was made.
    Used,
}

/// A checkpoint, without its pages: they may be many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub store_id: u128,
    pub number: u64,
    pub redo: Redo,
    /// Generation and state of each segment.
    pub segments: Vec<(u32, State)>,
    pub client: Vec<u8>,
}

/// The pages of a checkpoint, as its file has them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pages {
    bytes: Vec<u8>,
    at: usize,
    end: usize,
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}

impl Pages {
    /// The pages, each with the addresses of its parts, newest first.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Vec<Address>)> {
        let mut words = self.bytes[self.at..self.end].as_chunks::<8>().0.iter();
        iter::from_fn(move || {
            // They were checked.
            let [pid, count] = words.next()?.as_chunks::<4>().0 else { return None };
            let parts = words.by_ref().take(u32::from_le_bytes(*count) as usize);
            let parts = parts.filter_map(|word| Address::from_word(u64::from_le_bytes(*word)));
            Some((u32::from_le_bytes(*pid), parts.collect()))
        })
    }
}

fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

/// The number of the checkpoint that has this name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (name_of(number) == name).then_some(number)
}

/// Takes bytes, and their place in the file.
type Put<'call, E> = dyn FnMut(u64, &[u8]) -> Result<(), E> + 'call;

/// The part of a checkpoint behind its first bytes, while it is written.
struct Rest<'put, 'call, E> {
    put: &'put mut Put<'call, E>,
    /// Bytes that are not put yet, and where they begin.
    bytes: Vec<u8>,
    at: u64,
    crc: Hasher,
}

impl<E> Rest<'_, '_, E> {
    fn push(&mut self, bytes: &[u8]) -> Result<(), E> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= CHUNK_BYTES { self.put() } else { Ok(()) }
    }

    fn put(&mut self) -> Result<(), E> {
        (self.put)(self.at, &self.bytes)?;
        self.crc.update(&self.bytes);
        self.at += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }
}

impl Checkpoint {
    /// Hands the bytes of the checkpoint with these pages to `put`, in pieces, each with its place;
    /// the first bytes come last. Returns their number.
    fn encode<E>(
        &self,
        pages: impl Iterator<Item = (u32, Vec<Address>)>,
        put: &mut Put<'_, E>,
    ) -> Result<u64, E> {
        let (bytes, at) = (Vec::with_capacity(CHUNK_BYTES), HEADER_BYTES as u64);
        let mut rest = Rest { put, bytes, at, crc: Hasher::new() };
        for &(generation, state) in &self.segments {
            let state: u32 = match state {
                State::Absent => 0,
                State::Free => 1,
                State::Used => 2,
            };
            rest.push(&generation.to_le_bytes())?;
            rest.push(&state.to_le_bytes())?;
        }
        let (mut page_count, mut words) = (0_u64, 0_u64);
        for (pid, parts) in pages {
            rest.push(&pid.to_le_bytes())?;
            rest.push(&(parts.len() as u32).to_le_bytes())?;
            for part in &parts {
                rest.push(&part.word().to_le_bytes())?;
            }
            page_count += 1;
            words += 1 + parts.len() as u64;
        }
        rest.push(&self.client)?;
        if !rest.bytes.is_empty() {
            rest.put()?;
        }
        let Rest { put, at, crc, .. } = rest;
        let mut header = [0; HEADER_BYTES];
        let mut set = |at: usize, field: &[u8]| header[at..at + field.len()].copy_from_slice(field);
        set(0, &MAGIC);
        set(12, &VERSION.to_le_bytes());
        set(16, &self.store_id.to_le_bytes());
        set(32, &self.number.to_le_bytes());
        set(40, &self.redo.sequence.to_le_bytes());
        set(48, &self.redo.at.to_le_bytes());
        set(56, &self.redo.segment.to_le_bytes());
        set(60, &self.redo.crc_before.to_le_bytes());
        set(64, &(self.segments.len() as u32).to_le_bytes());
        set(68, &(self.client.len() as u32).to_le_bytes());
        set(72, &page_count.to_le_bytes());
        set(80, &words.to_le_bytes());
        let mut whole = Hasher::new();
        whole.update(&header[12..]);
        whole.combine(&crc);
        header[8..12].copy_from_slice(&whole.finalize().to_le_bytes());
        put(0, &header)?;
        Ok(at)
    }

    /// Checked: the checkpoint with its pages, or what is wrong.
    fn decode(bytes: Vec<u8>, segment_bytes: u64) -> Result<(Self, Pages), &'static str> {
        let cut_off = "it is cut off";
        let word = |at: usize| {
            let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
            found.map(|found| u32::from_le_bytes(*found)).ok_or(cut_off)
        };
        let long = |at: usize| {
            Ok::<_, &'static str>(u64::from(word(at)?) | u64::from(word(at + 4)?) << 32)
        };
        if bytes.len() < HEADER_BYTES {
            return Err(cut_off);
        }
        if !bytes.starts_with(&MAGIC) || word(8)? != crc32fast::hash(&bytes[12..]) {
            return Err("its checksum is wrong");
        }
        if word(12)? != VERSION || long(88)? != 0 {
            return Err("it has a format that this version does not know");
        }
        let (segment_count, client_bytes) = (word(64)? as usize, word(68)? as usize);
        let (page_count, page_words) = (long(72)?, long(80)?);
        let pages_at = HEADER_BYTES + segment_count.min(MAX_SEGMENTS as usize) * 8;
        let client_at =
            (page_words as usize).checked_mul(8).and_then(|all| all.checked_add(pages_at));
        let client_at = client_at.filter(|at| at.checked_add(client_bytes) == Some(bytes.len()));
        let client_at = client_at.ok_or("its lengths are impossible")?;
        if segment_count > MAX_SEGMENTS as usize || client_bytes > MAX_CLIENT_BYTES {
            return Err("it has too many segments or bytes");
        }
        let mut segments = Vec::new();
        for at in (HEADER_BYTES..pages_at).step_by(8) {
            let state = match word(at + 4)? {
                0 => State::Absent,
                1 => State::Free,
                2 => State::Used,
                _ => return Err("the state of a segment is unknown"),
            };
            segments.push((word(at)?, state));
        }
        let (mut pages, mut at) = (0, pages_at);
        while at < client_at {
            let count = word(at + 4)? as usize;
            let end = at.saturating_add(8).saturating_add(count.saturating_mul(8));
            if !(1..=MAX_PARTS).contains(&count) || end > client_at {
                return Err("a page has an impossible number of parts");
            }
            for at in (at + 8..end).step_by(8) {
                let part = Address::from_word(long(at)?).ok_or("an address is impossible")?;
                let is_inside = (part.at() + part.bytes()) as u64 <= segment_bytes;
                match segments.get(part.segment() as usize) {
                    Some((_, State::Used)) if is_inside => {}
                    _ => return Err("a page has a part where no segment is used"),
                }
            }
            pages += 1;
            at = end;
        }
        if pages != page_count {
            return Err("it has another number of pages");
        }
        let redo =
            Redo { sequence: long(40)?, segment: word(56)?, at: long(48)?, crc_before: word(60)? };
        let number = long(32)?;
        let is_counted = (1..MAX_COUNT).contains(&redo.sequence) && number < MAX_COUNT;
        let is_place = redo.at <= segment_bytes && redo.at.is_multiple_of(BLOCK_ALIGN as u64);
        let segment = segments.get(redo.segment as usize);
        let is_used = redo.at == 0 || segment.is_some_and(|&(_, state)| state == State::Used);
        if !is_counted || !is_place || !is_used {
            return Err("the place of the next block is impossible");
        }
        let id = u128::from(long(16)?) | u128::from(long(24)?) << 64;
        let client = bytes[client_at..].to_vec();
        let found = Self { store_id: id, number, redo, segments, client };
        Ok((found, Pages { bytes, at: pages_at, end: client_at }))
    }

    /// Writes the file of this checkpoint, with these pages: each with the addresses of its parts,
    /// newest first. Durable on return; the bytes that were written.
    pub fn store(
        &self,
        directory: &dyn Directory,
        pages: impl Iterator<Item = (u32, Vec<Address>)>,
    ) -> pando_device::Result<u64> {
        let name = name_of(self.number);
        let file = match directory.create(&name) {
            // A checkpoint that was cut short has left it, and no superblock names it.
            Err(error) if error.is_taken() => {
                directory.remove(&name)?;
                directory.create(&name)?
            }
            created => created?,
        };
        let written = self.encode(pages, &mut |at, bytes| file.write_at(bytes, at));
        let synced = written.and_then(|bytes| match mutant!("lss-checkpoint-not-synced") {
            true => Ok(bytes),
            false => file.sync().map(|()| bytes),
        });
        synced.and_then(|bytes| directory.sync().map(|()| bytes)).inspect_err(|_| {
            // It takes room that a full disk needs. If it stays, the next one replaces it.
            let _ = directory.remove(&name);
        })
    }

    /// The checkpoint `number` of the store `store_id`, and its pages.
    pub fn load(
        directory: &dyn Directory,
        (store_id, number): (u128, u64),
        segment_bytes: u64,
    ) -> Result<(Self, Pages)> {
        let name = name_of(number);
        let damaged = |what: &str| Error::Damaged {
            path: format!("{}/{name}", directory.path()),
            what: what.to_owned(),
        };
        let file = match directory.open(&name) {
            Err(error) if error.is_not_found() => {
                return Err(damaged("the superblock names it, and it is missing"));
            }
            opened => opened?,
        };
        let size = file.size_bytes()? as usize;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| damaged("it is too long for the memory"))?;
        bytes.resize(size, 0);
        file.read_at(&mut bytes, 0)?;
        let found = Self::decode(bytes, segment_bytes).map_err(damaged)?;
        match (found.0.store_id, found.0.number) == (store_id, number) {
            true => Ok(found),
            false => Err(damaged("it belongs to another store")),
        }
    }
}

/// Removes all checkpoints but `number`. Durable on return.
pub(crate) fn remove_others(directory: &dyn Directory, number: u64) -> pando_device::Result<()> {
    let mut has_removed = false;
    for name in directory.names()? {
        if number_of(&name).is_some_and(|other| other != number) {
            directory.remove(&name)?;
            has_removed = true;
        }
    }
    if has_removed {
        directory.sync()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pando_device::simulated::damaged_copies;

    use super::*;

    fn some() -> Checkpoint {
        Checkpoint {
            store_id: 0x0102,
            number: 4,
            redo: Redo { sequence: 9, segment: 1, at: 8192, crc_before: 5 },
            segments: vec![(1, State::Free), (6, State::Used)],
            client: b"redo".to_vec(),
        }
    }

    type Parts = Vec<(u32, Vec<Address>)>;

    fn pages() -> Parts {
        vec![(7, vec![Address::new(1, 64, 32, 6)])]
    }

    /// The bytes of `some` with these pages.
    fn encoded(pages: Parts) -> Vec<u8> {
        let mut all: Vec<u8> = Vec::new();
        let mut put = |at: u64, bytes: &[u8]| {
            let (at, end) = (at as usize, at as usize + bytes.len());
            all.resize(all.len().max(end), 0);
            all[at..end].copy_from_slice(bytes);
            Ok::<_, ()>(())
        };
        let bytes = some().encode(pages.into_iter(), &mut put).expect("no error");
        assert_eq!(bytes, all.len() as u64);
        all
    }

    fn decoded(bytes: &[u8]) -> Result<(Checkpoint, Parts), &'static str> {
        let (found, pages) = Checkpoint::decode(bytes.to_vec(), 65_536)?;
        Ok((found, pages.iter().collect()))
    }

    /// So many that they are written in several pieces.
    #[test]
    fn many_pages() {
        let parts = |page: u32| 1 + page as usize % MAX_PARTS;
        let pages: Vec<_> =
            (0..20_000).map(|page| (page, vec![Address::new(1, 64, 32, 6); parts(page)])).collect();
        let bytes = encoded(pages.clone());
        assert!(bytes.len() > 2 * CHUNK_BYTES);
        assert_eq!(decoded(&bytes), Ok((some(), pages)));
    }

    #[test]
    fn golden_bytes() {
        let bytes = encoded(pages());
        let mut expected = vec![0; 84];
        for (at, value) in [
            (0, 1),
            (4, 2),
            (5, 1),
            (20, 4),
            (28, 9),
            (37, 32),
            (44, 1),
            (48, 5),
            (52, 2),
            (56, 4),
            (60, 1),
            (68, 2),
        ] {
            expected[at] = value;
        }
        expected.extend_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 2, 0, 0, 0]);
        expected.extend_from_slice(&[7, 0, 0, 0, 1, 0, 0, 0]);
        expected.extend_from_slice(&Address::new(1, 64, 32, 6).word().to_le_bytes());
        expected.extend_from_slice(b"redo");
        assert_eq!(bytes[..8], *b"PANDOsc1");
        assert_eq!(bytes[12..], expected);
        assert_eq!(decoded(&bytes), Ok((some(), pages())));
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let bytes = encoded(pages());
        for (what, damaged) in damaged_copies(&bytes, bytes.len()) {
            assert!(decoded(&damaged).is_err(), "{what}");
        }
    }

    /// A checksum may be right although the bytes make no sense: an attacker can compute it.
    #[test]
    fn impossible_contents_with_a_right_checksum_are_refused() {
        let bytes = encoded(pages());
        for at in 12..bytes.len() {
            for value in [0, 1, 3, 255] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                let crc = crc32fast::hash(&damaged[12..]);
                damaged[8..12].copy_from_slice(&crc.to_le_bytes());
                let _ = decoded(&damaged);
            }
        }
    }
}
