//! The file of an image: the committed versions of all transactional maps.
//!
//! ```text
//! chunk     0        8        12       16       20       24       32 ..
//!           magic    payload  crc      kind     zero     number   payload
//!
//! begin     0                16       24 ..
//!           log id           from     list of the maps (map_list.rs)
//!
//! records   0        8        16       20       24 ..
//!           map      LSN      key      value    key, value; then the next record
//!
//! end       0        8
//!           records  until
//! ```
//!
//! * Chunks lie one behind the other: kind 1 *begin*, then any number of kind 2 *records*, then
//!   kind 3 *end*. `number` counts them from 0. `payload` is its length in bytes. `crc` is the
//!   CRC-32 of the whole chunk, with itself taken as zero.
//! * `from` is the LSN behind which the log is to be replayed over the image; the name of the file
//!   is `image-` and its 16 hexadecimal digits.
//! * The records of a map ascend by key. `LSN` is that of the commit that has written the version.
//! * `records` is the number of records. `until` is the LSN up to which the log must be replayed:
//!   the image may have a part of a commit up to there.
//!
//! A file has its name only when all its bytes are durable. So a chunk that is missing or has
//! another checksum is damage.

use pando_device::{Directory, File};
use pando_log::{checksum, create_unnamed};

use crate::error::Result;
use crate::map_list::MapList;
use crate::rest::Rest;

const MAGIC: [u8; 8] = *b"PANDOim1";
const HEADER_BYTES: usize = 32;
const CRC_AT: usize = 12;
const BEGIN: u32 = 1;
const RECORDS: u32 = 2;
const END: u32 = 3;
/// A chunk is written when it has so many bytes.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// The longest payload of a chunk: a chunk that is nearly full, and the longest record.
const MAX_PAYLOAD_BYTES: usize = CHUNK_BYTES + (32 << 20);
/// Bytes of the payload of the last chunk.
const END_BYTES: usize = 16;
const PREFIX: &str = "image-";

/// The name of the image whose log is replayed from this LSN on.
pub(crate) fn name_of(from: u64) -> String {
    format!("{PREFIX}{from:016x}")
}

/// The LSNs from which the logs of the images in `directory` are replayed, ascending.
pub(crate) fn images(directory: &dyn Directory) -> Result<Vec<u64>> {
    let number_of = |name: &String| {
        let from = u64::from_str_radix(name.strip_prefix(PREFIX)?, 16).ok()?;
        (name_of(from) == *name).then_some(from)
    };
    let names = directory.names().map_err(pando_log::Error::from)?;
    let mut images: Vec<_> = names.iter().filter_map(number_of).collect();
    images.sort_unstable();
    Ok(images)
}

/// The size of an image's file in bytes.
pub(crate) fn size_bytes(directory: &dyn Directory, from: u64) -> Result<u64> {
    let size = directory.open_read_only(&name_of(from)).and_then(|file| file.size_bytes());
    Ok(size.map_err(pando_log::Error::from)?)
}

/// Copies the file of an image; durable on return, but for its name.
pub(crate) fn copy_image(from: &dyn Directory, image: u64, to: &dyn Directory) -> Result<()> {
    let copy = || -> pando_device::Result<()> {
        let source = from.open_read_only(&name_of(image))?;
        let copy = to.create(&name_of(image))?;
        let (mut at, size) = (0, source.size_bytes()?);
        let mut bytes = vec![0; CHUNK_BYTES];
        while at < size {
            let piece = bytes.len().min((size - at) as usize);
            source.read_at(&mut bytes[..piece], at)?;
            copy.write_at(&bytes[..piece], at)?;
            at += piece as u64;
        }
        copy.sync()
    };
    Ok(copy().map_err(pando_log::Error::from)?)
}

/// A version of a key in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'chunk> {
    pub map: u64,
    pub lsn: u64,
    pub key: &'chunk [u8],
    pub value: &'chunk [u8],
}

/// Writes an image into a file without its final name.
pub(crate) struct Writer {
    name: String,
    file: Box<dyn File>,
    chunk: Vec<u8>,
    chunks: u64,
    bytes: u64,
    records: u64,
}

impl Writer {
    /// Begins an image of the log `log_id`.
    pub fn begin(
        directory: &dyn Directory,
        log_id: u128,
        from: u64,
        list: &MapList,
    ) -> Result<Self> {
        let (name, file) = create_unnamed(directory)?;
        let chunk = vec![0; HEADER_BYTES];
        let mut image = Self { name, file, chunk, chunks: 0, bytes: 0, records: 0 };
        image.chunk.extend_from_slice(&log_id.to_le_bytes());
        image.chunk.extend_from_slice(&from.to_le_bytes());
        image.chunk.extend_from_slice(&list.encode());
        image.write(BEGIN).inspect_err(|_| drop(directory.remove(&image.name)))?;
        Ok(image)
    }

    /// The temporary name of its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a record. It stays in memory until [`write_full`](Self::write_full).
    pub fn push(&mut self, Entry { map, lsn, key, value }: Entry<'_>) {
        self.chunk.extend_from_slice(&map.to_le_bytes());
        self.chunk.extend_from_slice(&lsn.to_le_bytes());
        for bytes in [key, value] {
            // Both fit a record of the log.
            self.chunk.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        }
        self.chunk.extend_from_slice(key);
        self.chunk.extend_from_slice(value);
        self.records += 1;
    }

    /// Whether the present chunk is long enough to be written.
    pub fn is_full(&self) -> bool {
        self.chunk.len() >= CHUNK_BYTES
    }

    /// Writes the present chunk, if it is long enough.
    pub fn write_full(&mut self) -> Result<()> {
        if self.is_full() { self.write(RECORDS) } else { Ok(()) }
    }

    fn write(&mut self, kind: u32) -> Result<()> {
        let payload_bytes = (self.chunk.len() - HEADER_BYTES) as u32;
        let mut put = |at: usize, field: &[u8]| {
            self.chunk[at..at + field.len()].copy_from_slice(field);
        };
        put(0, &MAGIC);
        put(8, &payload_bytes.to_le_bytes());
        put(16, &kind.to_le_bytes());
        put(24, &self.chunks.to_le_bytes());
        let crc = checksum(&self.chunk);
        self.chunk[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        self.file.write_at(&self.chunk, self.bytes).map_err(pando_log::Error::from)?;
        self.bytes += self.chunk.len() as u64;
        self.chunks += 1;
        self.chunk.clear();
        self.chunk.resize(HEADER_BYTES, 0);
        Ok(())
    }

    /// Ends the image, which needs the log up to the LSN `until`, and makes its bytes durable; the
    /// size of the file.
    pub fn end(mut self, until: u64) -> Result<u64> {
        if self.chunk.len() > HEADER_BYTES {
            self.write(RECORDS)?;
        }
        self.chunk.extend_from_slice(&self.records.to_le_bytes());
        self.chunk.extend_from_slice(&until.to_le_bytes());
        self.write(END)?;
        self.file.sync().map_err(pando_log::Error::from)?;
        Ok(self.bytes)
    }
}

/// An image that is read.
pub(crate) struct Image {
    file: Box<dyn File>,
    path: String,
    pub size_bytes: u64,
    pub list: MapList,
    /// Where its first chunk of records begins.
    first_at: u64,
}

impl Image {
    /// Opens the image from the LSN `from` of the log `log_id`.
    pub fn open(directory: &dyn Directory, log_id: u128, from: u64) -> Result<Self> {
        let name = name_of(from);
        let file = directory.open_read_only(&name).map_err(pando_log::Error::from)?;
        let size_bytes = file.size_bytes().map_err(pando_log::Error::from)?;
        let path = format!("{}/{name}", directory.path());
        let mut image = Self { file, path, size_bytes, list: MapList::default(), first_at: 0 };
        let (kind, payload) = image.chunk(0, Some(0))?;
        let mut rest = Rest(&payload);
        let id = rest.take(16).and_then(|id| id.try_into().ok()).map(u128::from_le_bytes);
        let found_from = rest.number();
        if kind != BEGIN || id != Some(log_id) || found_from != Some(from) {
            return Err(image.damaged("its first chunk is not the beginning of this image"));
        }
        let list = MapList::decode(rest.0);
        image.list = list.ok_or_else(|| image.damaged("its list of maps is unreadable"))?;
        image.first_at = (HEADER_BYTES + payload.len()) as u64;
        Ok(image)
    }

    fn damaged(&self, what: &str) -> crate::Error {
        pando_log::Error::Damaged { path: self.path.clone(), what: what.to_owned() }.into()
    }

    /// The LSN up to which the log must be replayed over the image.
    pub fn until(&self) -> Result<u64> {
        let at = self.size_bytes.saturating_sub((HEADER_BYTES + END_BYTES) as u64);
        let (kind, payload) = self.chunk(at, None)?;
        let mut rest = Rest(&payload);
        let until = rest.number().and_then(|_| rest.number());
        let until = until.filter(|_| kind == END && payload.len() == END_BYTES);
        until.ok_or_else(|| self.damaged("it has no end"))
    }

    /// The kind and the payload of the chunk at byte `at`, with this number if that is known.
    fn chunk(&self, at: u64, number: Option<u64>) -> Result<(u32, Vec<u8>)> {
        let damaged = || self.damaged(&format!("the chunk at byte {at} is not as it was written"));
        let mut chunk = vec![0; HEADER_BYTES];
        let read = |bytes: &mut [u8], at: u64| match at + bytes.len() as u64 > self.size_bytes {
            true => Err(damaged()),
            false => Ok(self.file.read_at(bytes, at).map_err(pando_log::Error::from)?),
        };
        read(&mut chunk, at)?;
        let mut rest = Rest(&chunk[8..]);
        let [payload_bytes, crc, kind, _] = rest.numbers().ok_or_else(damaged)?;
        let found_number = rest.number().ok_or_else(damaged)?;
        if payload_bytes as usize > MAX_PAYLOAD_BYTES {
            return Err(damaged());
        }
        chunk.resize(HEADER_BYTES + payload_bytes as usize, 0);
        read(&mut chunk[HEADER_BYTES..], at + HEADER_BYTES as u64)?;
        let is_other = number.is_some_and(|number| found_number != number);
        if !chunk.starts_with(&MAGIC) || checksum(&chunk) != crc || is_other {
            return Err(damaged());
        }
        chunk.drain(..HEADER_BYTES);
        Ok((kind, chunk))
    }

    /// Calls `visit` with each record, in the order of maps and keys; how many there are.
    pub fn read(&self, visit: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<u64> {
        let (mut at, mut number, mut records) = (self.first_at, 1, 0);
        loop {
            let (kind, payload) = self.chunk(at, Some(number))?;
            let damaged = || self.damaged(&format!("the chunk at byte {at} contradicts itself"));
            let mut rest = Rest(&payload);
            match kind {
                RECORDS => {
                    while !rest.0.is_empty() {
                        let entry = entry(&mut rest).ok_or_else(damaged)?;
                        visit(entry)?;
                        records += 1;
                    }
                }
                END => {
                    let is_whole = rest.number() == Some(records)
                        && at + (HEADER_BYTES + payload.len()) as u64 == self.size_bytes;
                    return if is_whole { Ok(records) } else { Err(damaged()) };
                }
                _ => return Err(damaged()),
            }
            at += (HEADER_BYTES + payload.len()) as u64;
            number += 1;
        }
    }
}

fn entry<'chunk>(rest: &mut Rest<'chunk>) -> Option<Entry<'chunk>> {
    let [map, lsn] = [rest.number()?, rest.number()?];
    let [key, value] = rest.numbers()?;
    Some(Entry { map, lsn, key: rest.take(key as usize)?, value: rest.take(value as usize)? })
}

#[cfg(test)]
mod tests {
    use pando_device::simulated::Simulated;

    use super::*;

    const ENTRIES: [Entry<'static>; 3] = [
        Entry { map: 1, lsn: 5, key: b"ash", value: b"1" },
        Entry { map: 1, lsn: 9, key: b"elm", value: b"" },
        Entry { map: 2, lsn: 7, key: b"", value: b"a value" },
    ];

    /// An image, and its name.
    fn example() -> (Simulated, String) {
        let directory = Simulated::new();
        let mut writer = Writer::begin(&directory, 42, 3, &MapList::default()).expect("a new file");
        ENTRIES.into_iter().for_each(|entry| writer.push(entry));
        let name = writer.name().to_owned();
        writer.end(11).expect("written");
        directory.rename(&name, &name_of(3)).expect("renamed");
        (directory, name_of(3))
    }

    /// The entries of the image, as text.
    fn read(directory: &Simulated) -> Result<Vec<String>> {
        let mut entries = Vec::new();
        Image::open(directory, 42, 3)?.read(&mut |entry| {
            entries.push(format!("{entry:?}"));
            Ok(())
        })?;
        Ok(entries)
    }

    #[test]
    fn golden_image() {
        let (directory, name) = example();
        let file = directory.open(&name).expect("opens");
        let mut bytes = vec![0; file.size_bytes().expect("measured") as usize];
        file.read_at(&mut bytes, 0).expect("read");
        assert_eq!(crc32fast::hash(&bytes), GOLDEN, "the format of images changed");
        let expected = ENTRIES.map(|entry| format!("{entry:?}"));
        assert_eq!(read(&directory).expect("reads"), expected);
        assert_eq!(images(&directory).expect("lists"), [3]);
        assert_eq!(Image::open(&directory, 42, 3).and_then(|image| image.until()).ok(), Some(11));
    }
    const GOLDEN: u32 = 1_683_230_467;

    #[test]
    fn any_flipped_bit_and_any_cut_is_damage() {
        let (directory, name) = example();
        let bytes = size_bytes(&directory, 3).expect("measured") as usize;
        for bit in 0..bytes * 8 {
            let flip = |bytes: &mut Vec<u8>| bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(directory.damage(&name, flip));
            let found = read(&directory);
            assert!(
                matches!(&found, Err(crate::Error::Log(pando_log::Error::Damaged { .. }))),
                "bit {bit}: {found:?}"
            );
            assert!(directory.damage(&name, flip));
        }
        for length in (0..bytes).rev() {
            assert!(directory.damage(&name, |bytes| bytes.truncate(length)));
            assert!(read(&directory).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn an_image_of_another_log_or_lsn_is_not_read() {
        let (directory, _) = example();
        assert!(Image::open(&directory, 43, 3).is_err());
        directory.rename(&name_of(3), &name_of(4)).expect("renamed");
        assert!(Image::open(&directory, 42, 4).is_err());
    }
}
