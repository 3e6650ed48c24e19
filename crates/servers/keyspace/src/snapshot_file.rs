//! The file format of a snapshot, and the names of earlier ones.
//!
//! ```text
//! byte   0             8          12         16
//! 0      "PANDOSNP"    version    0          time, ms of the system's clock
//! 24     blocks
//!
//! block  bytes (4)  crc32 of them (4)  entries
//! entry  tag (1)  name's bytes (4)  value's bytes (4)  name  value
//! ```
//!
//! Tag 0 to 15: a key of that database; the name is the key, and the value is that of a head
//! (`layout.rs`), with its expiry in the system's clock. Tag 0x80 or 0x81: an element of the
//! collection before it; the name is the field, and the section is the tag's low bit. Tag 0x82: a
//! piece of the long string before it; the name is its index (4 bytes, big-endian). A block has at
//! most 1 MiB of entries, or one entry. The last block is empty, and its checksum field is the
//! number of keys, modulo 2^32.
//!
//! Version 1 has no pieces, and heads with strings of any length. It is read, but not written.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::clock;

pub(crate) const MAGIC: &[u8; 8] = b"PANDOSNP";
pub(crate) const VERSION: u32 = 2;
pub(crate) const HEADER_BYTES: usize = 24;
const BLOCK_BYTES: usize = 1 << 20;
/// The longest block that is read: one entry of the longest name and value.
pub(crate) const MAX_BLOCK_BYTES: u32 = (1 << 30) + (1 << 20);
pub(crate) const FIELD_TAG: u8 = 0x80;
pub(crate) const ORDERED_TAG: u8 = 0x81;
pub(crate) const PIECE_TAG: u8 = 0x82;

/// Most snapshots that are kept.
pub const MAX_SNAPSHOTS: usize = 99;

/// The snapshot at `path` and the earlier ones beside it, the newest first, with their times in
/// milliseconds of the system's clock. Files without the header of a snapshot are skipped.
pub(crate) fn all_at(path: &Path) -> Vec<(PathBuf, u64)> {
    let earlier = (1..MAX_SNAPSHOTS).map(|number| numbered(path, number));
    let all = std::iter::once(path.to_owned()).chain(earlier);
    let mut found: Vec<_> =
        all.filter_map(|path| time_of(&path).map(|time_ms| (path, time_ms))).collect();
    found.sort_by_key(|(_, time_ms)| std::cmp::Reverse(*time_ms));
    found
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

fn time_of(path: &Path) -> Option<u64> {
    let mut header = [0; HEADER_BYTES];
    File::open(path).ok()?.read_exact(&mut header).ok()?;
    let time_ms = header[16..].try_into().ok()?;
    header.starts_with(MAGIC).then(|| u64::from_le_bytes(time_ms))
}

/// Renames `unfinished` to `path`, and keeps `kept` snapshots in all.
pub(crate) fn rotate(unfinished: &Path, path: &Path, kept: usize) -> io::Result<()> {
    let rename = |from: &Path, to: &Path| match std::fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    };
    for number in (1..kept.saturating_sub(1)).rev() {
        rename(&numbered(path, number), &numbered(path, number + 1))?;
    }
    if kept > 1 {
        rename(path, &numbered(path, 1))?;
    }
    std::fs::rename(unfinished, path)?;
    sync_folder_of(path)?;
    for number in kept.max(1)..MAX_SNAPSHOTS {
        match std::fs::remove_file(numbered(path, number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[derive(Debug)]
pub(crate) struct Writer {
    file: BufWriter<File>,
    block: Vec<u8>,
    pub(crate) keys: u64,
    /// The error after which nothing is written.
    failed: Option<io::Error>,
}

impl Writer {
    pub(crate) fn begin(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(MAGIC)?;
        file.write_all(&VERSION.to_le_bytes())?;
        file.write_all(&[0; 4])?;
        file.write_all(&clock::system_ms().to_le_bytes())?;
        Ok(Self { file, block: Vec::new(), keys: 0, failed: None })
    }

    pub(crate) fn entry(&mut self, tag: u8, name: &[u8], value: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        self.block.push(tag);
        self.block.extend_from_slice(&(name.len() as u32).to_le_bytes());
        self.block.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.block.extend_from_slice(name);
        self.block.extend_from_slice(value);
        if self.block.len() >= BLOCK_BYTES {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        let block = std::mem::take(&mut self.block);
        if block.is_empty() || self.failed.is_some() {
            return;
        }
        let written = self.file.write_all(&(block.len() as u32).to_le_bytes());
        let written = written
            .and_then(|()| self.file.write_all(&crc32fast::hash(&block).to_le_bytes()))
            .and_then(|()| self.file.write_all(&block));
        self.failed = written.err();
        self.block = block;
        self.block.clear();
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.end_block();
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.file.write_all(&0u32.to_le_bytes())?;
        self.file.write_all(&(self.keys as u32).to_le_bytes())?;
        self.file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}

/// Takes tag, name and value of the first entry.
pub(crate) fn take_entry<'block>(
    block: &mut &'block [u8],
) -> Option<(u8, &'block [u8], &'block [u8])> {
    let (&tag, rest) = block.split_first()?;
    let (name_bytes, rest) = rest.split_first_chunk::<4>()?;
    let (value_bytes, rest) = rest.split_first_chunk::<4>()?;
    let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*name_bytes) as usize)?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_bytes) as usize)?;
    *block = rest;
    Some((tag, name, value))
}

/// Makes the names in the folder of `path` durable.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// The folder of `path`.
pub(crate) fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}
