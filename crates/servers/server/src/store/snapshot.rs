//! Snapshots: a file with all that was there at one moment, written while commands go on.
//!
//! # Protocol
//!
//! * It begins while all stripes are held alone, for as long as it takes to raise a number: that is
//!   its moment.
//! * Then one stripe after the other is written, each under its shared lock, with all keys whose
//!   hashes it has, of all databases.
//! * Who takes a stripe alone that was not written yet writes it first, before it changes anything.
//!   So every stripe is written as it was at the moment; nothing is copied in memory; and a command
//!   that writes may have to wait until one stripe, a 1,024th of the keys, is written.
//! * The file is written under a temporary name, synced, and then renamed: whoever sees it under
//!   its own name sees all of it. Before that the snapshots of earlier get the names `PATH.1`,
//!   `PATH.2` and so on, as many as are kept. A crash between two renames leaves a gap in the
//!   numbers; so who looks for the newest one goes by the moments in the files ([`all_at`]).
//!
//! # The file
//!
//! ```text
//! byte   0             8          12         16
//! 0      "PANDOSNP"    version    0          moment, ms of the system's clock
//! 24     blocks
//!
//! block  bytes (4)  crc32 of them (4)  entries
//! entry  tag (1)  name's bytes (4)  value's bytes (4)  name  value
//! ```
//!
//! Tag 0 to 15: a key of that database; the name is the key, and the value a head's (`layout.rs`),
//! whose expiry is by the system's clock. Tag 0x80 or 0x81: an element of the collection before it;
//! the name is the field, and the section is the tag's low bit. Tag 0x82: a piece of the long
//! string before it; the name is its index (4 bytes, big-endian). A block holds at most 1 MiB of
//! entries or one entry. The last block is empty, and its checksum field counts the keys, modulo
//! 2^32.
//!
//! Version 1 had no pieces, and strings of any length in heads; it is read, and not written.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use pando::{KeyRange, Order};
use parking_lot::Mutex;

use super::layout::{
    Content, Count, Element, Head, Kind, LongString, Memcached, Section, piece_key, section_prefix,
    split_head_key, split_piece_key,
};
use super::pieces::{counted_bytes, pieces_of};
use super::stripes::{Access, Held, STRIPES, Stripe, StripeIndex};
use super::transaction::has_expired;
use super::{DATABASES, RESTORING, Store, clock, own_keys};
use crate::failure::{Failure, Result, told};

const MAGIC: &[u8; 8] = b"PANDOSNP";
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 24;
const BLOCK_BYTES: usize = 1 << 20;
/// Longest block that is read: one entry of the longest name and value.
const MAX_BLOCK_BYTES: u32 = (1 << 30) + (1 << 20);
const FIELD_TAG: u8 = 0x80;
const ORDERED_TAG: u8 = 0x81;
const PIECE_TAG: u8 = 0x82;

/// Snapshots of a store.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    /// The number of the one that is being written; else zero.
    writing: AtomicU64,
    writer: Mutex<Option<Writer>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    begun: u64,
    last: SnapshotState,
}

/// Most snapshots that are kept.
pub(crate) const MAX_SNAPSHOTS: usize = 99;

/// The snapshots at `path` and the earlier ones beside it, with their moments in milliseconds of
/// the system's clock, the newest first. What has no snapshot's header is none.
pub(crate) fn all_at(path: &Path) -> Vec<(PathBuf, u64)> {
    let earlier = (1..MAX_SNAPSHOTS).map(|number| numbered(path, number));
    let all = std::iter::once(path.to_owned()).chain(earlier);
    let mut found: Vec<_> =
        all.filter_map(|path| moment_of(&path).map(|moment| (path, moment))).collect();
    found.sort_by_key(|(_, moment)| std::cmp::Reverse(*moment));
    found
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

fn moment_of(path: &Path) -> Option<u64> {
    let mut header = [0; HEADER_BYTES];
    File::open(path).ok()?.read_exact(&mut header).ok()?;
    let moment = header[16..].try_into().ok()?;
    header.starts_with(MAGIC).then(|| u64::from_le_bytes(moment))
}

/// Puts `unfinished` in place of the snapshot at `path`, and keeps `kept` in all.
fn rotate(unfinished: &Path, path: &Path, kept: usize) -> io::Result<()> {
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

/// What became of snapshots.
#[derive(Clone, Debug, Default)]
pub(crate) struct SnapshotState {
    /// Whether one is being written.
    pub is_writing: bool,
    /// When the last one that succeeded was finished, in milliseconds of the system's clock; zero
    /// if none has since the server began.
    pub finished_system_ms: u64,
    /// Whether the last one failed.
    pub has_failed: bool,
}

#[derive(Debug)]
struct Writer {
    file: BufWriter<File>,
    block: Vec<u8>,
    keys: u64,
    /// Why nothing is written any more.
    failed: Option<io::Error>,
}

impl Writer {
    fn begin(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(MAGIC)?;
        file.write_all(&VERSION.to_le_bytes())?;
        file.write_all(&[0; 4])?;
        file.write_all(&clock::system_ms().to_le_bytes())?;
        Ok(Self { file, block: Vec::new(), keys: 0, failed: None })
    }

    fn entry(&mut self, tag: u8, name: &[u8], value: &[u8]) {
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

    fn finish(mut self) -> io::Result<()> {
        self.end_block();
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.file.write_all(&0u32.to_le_bytes())?;
        self.file.write_all(&(self.keys as u32).to_le_bytes())?;
        self.file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}

impl Store {
    /// What became of snapshots so far.
    pub(crate) fn snapshot_state(&self) -> SnapshotState {
        self.snapshots.state.lock().last.clone()
    }

    /// Writes a snapshot to `path`, and keeps `kept` in all: with 1 it takes the place of the one
    /// there. How many keys it has. The caller must hold no stripe.
    pub(crate) fn save(&self, path: &Path, kept: usize) -> Result<u64> {
        {
            let mut state = self.snapshots.state.lock();
            if state.last.is_writing {
                return Err(crate::failure::said("ERR Background save already in progress"));
            }
            state.last.is_writing = true;
        }
        let saved = self.write_snapshot(path, kept);
        let mut state = self.snapshots.state.lock();
        state.last.is_writing = false;
        state.last.has_failed = saved.is_err();
        if saved.is_ok() {
            state.last.finished_system_ms = clock::system_ms();
        }
        saved
    }

    fn write_snapshot(&self, path: &Path, kept: usize) -> Result<u64> {
        let failed = |error: io::Error| {
            told(format!("ERR the snapshot {} cannot be written: {error}", path.display()))
        };
        let unfinished = PathBuf::from({
            let mut name = path.as_os_str().to_owned();
            name.push(".new");
            name
        });
        let writer = Writer::begin(&unfinished).map_err(failed)?;
        *self.snapshots.writer.lock() = Some(writer);
        {
            let _all = self.stripes.lock_all(Access::Alone);
            let mut state = self.snapshots.state.lock();
            state.begun += 1;
            // Release: with the loads of who holds a stripe, which the lock orders anyhow.
            self.snapshots.writing.store(state.begun, Ordering::Release);
        }
        let mut written = Ok(());
        for index in 0..STRIPES as StripeIndex {
            let held = self.stripes.lock([index].into_iter().collect(), Access::Shared);
            if let Some(stripe) = held.stripe(index) {
                written = self.save_stripe(index, stripe);
            }
            if written.is_err() {
                break;
            }
        }
        // From here on nobody writes a stripe for it any more.
        self.snapshots.writing.store(0, Ordering::Release);
        let writer = self.snapshots.writer.lock().take();
        let finished = written.and_then(|()| match writer {
            Some(writer) => {
                let keys = writer.keys;
                let finished = writer.finish().and_then(|()| rotate(&unfinished, path, kept));
                finished.map(|()| keys).map_err(failed)
            }
            None => Ok(0),
        });
        if finished.is_err() {
            let _ = std::fs::remove_file(&unfinished);
        }
        finished
    }

    /// Writes the stripes that are held alone, if a snapshot wants them and has them not yet.
    pub(super) fn save_before_writes(&self, held: &mut Held<'_>) -> Result<()> {
        if self.snapshots.writing.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        for (index, stripe) in held.alone() {
            self.save_stripe(index, stripe)?;
        }
        Ok(())
    }

    fn save_stripe(&self, index: StripeIndex, stripe: &Stripe) -> Result<()> {
        let snapshot = self.snapshots.writing.load(Ordering::Acquire);
        // Two that hold a stripe shared do not come here: only one thread writes snapshots.
        if snapshot == 0 || stripe.saved_in.load(Ordering::Acquire) == snapshot {
            return Ok(());
        }
        // Who fell behind said so before it let go of the stripe.
        if self.is_behind() {
            return Err(crate::failure::said("ERR writes are owed; no snapshot can be taken"));
        }
        let mut writer = self.snapshots.writer.lock();
        let Some(writer) = writer.as_mut() else { return Ok(()) };
        let now_ms = self.clock.now_ms();
        for database in 0..DATABASES {
            let range = super::stripe_range(self.space(database), index);
            let mut scan = self.map.scan(range, Order::Ascending)?;
            while let Some((full, value)) = scan.next_record()? {
                let (_, _, key) = split_head_key(full).ok_or(Failure::Damaged)?;
                let head = Head::decode(value).ok_or(Failure::Damaged)?;
                if !has_expired(&head, now_ms) {
                    self.save_key(writer, database, key, &head)?;
                }
            }
        }
        stripe.saved_in.store(snapshot, Ordering::Release);
        Ok(())
    }

    fn save_key(
        &self,
        writer: &mut Writer,
        database: u8,
        key: &[u8],
        head: &Head<'_>,
    ) -> Result<()> {
        let by_system = |at_ms: u64| self.clock.by_system(at_ms).max(0) as u64;
        let expires_at = head.expires_at.map(by_system);
        writer.entry(database, key, &Head { expires_at, ..*head }.encode());
        writer.keys += 1;
        let (kind, id) = match head.content {
            Content::String(_) => return Ok(()),
            Content::Long(long) => return self.save_pieces(writer, long),
            Content::Collection(kind, id, _) => (kind, id),
        };
        let (section, tag) = match kind {
            Kind::RangeIndex => (Section::Ordered, ORDERED_TAG),
            _ => (Section::Fields, FIELD_TAG),
        };
        let range = KeyRange::prefix(&section_prefix(id, section));
        let mut scan = self.map.scan(range, Order::Ascending)?;
        while let Some((full, value)) = scan.next_record()? {
            match super::layout::split_element_key(full) {
                Some(Element::Field(field) | Element::Ordered(field)) => {
                    writer.entry(tag, field, value);
                }
                _ => return Err(Failure::Damaged),
            }
        }
        Ok(())
    }

    fn save_pieces(&self, writer: &mut Writer, long: LongString) -> Result<()> {
        let mut scan = self.map.scan(pieces_of(long), Order::Ascending)?;
        while let Some((full, piece)) = scan.next_record()? {
            let index = split_piece_key(full).ok_or(Failure::Damaged)?;
            let counted = piece.len().min(counted_bytes(long, index));
            writer.entry(PIECE_TAG, &index.to_be_bytes(), &piece[..counted]);
        }
        Ok(())
    }

    /// Loads a snapshot into this store, which must be empty; how many keys it had. Keys that have
    /// expired since are left out. A store in which it was cut short is refused when it is opened:
    /// it has a part of the keys, and nobody would know which.
    pub(crate) fn restore(&self, path: &Path) -> Result<u64> {
        if !self.count_none()? {
            return Err(told(format!(
                "the store is not empty; restore {} into a new pool",
                path.display()
            )));
        }
        let wrong = |what: String| told(format!("cannot restore {}: {what}", path.display()));
        let mut file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header).map_err(|_| wrong("it is no snapshot: too short".into()))?;
        if &header[..8] != MAGIC {
            return Err(wrong("it is no snapshot".into()));
        }
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if !(1..=VERSION).contains(&version) {
            return Err(wrong(format!(
                "it is of version {version}; this one reads 1 to {VERSION}"
            )));
        }
        let mut file = io::BufReader::new(file);
        self.begin_restoring()?;
        let (mut keys, mut collection) = (0u64, None);
        let mut block = Vec::new();
        loop {
            let mut lengths = [0; 8];
            file.read_exact(&mut lengths)
                .map_err(|_| wrong(format!("it ends early, after {keys} keys")))?;
            let (bytes, sum) = lengths.split_at(4);
            let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap_or_default());
            let (bytes, sum) = (word(bytes), word(sum));
            if bytes == 0 {
                if sum != keys as u32 {
                    return Err(wrong(format!("{keys} keys were found, and {sum} expected")));
                }
                self.end_collection(&mut collection)?;
                self.end_restoring()?;
                return Ok(keys);
            }
            if bytes > MAX_BLOCK_BYTES {
                return Err(wrong(format!("a block of {bytes} bytes cannot be")));
            }
            block.clear();
            (&mut file)
                .take(u64::from(bytes))
                .read_to_end(&mut block)
                .map_err(|error| wrong(error.to_string()))?;
            if block.len() != bytes as usize || crc32fast::hash(&block) != sum {
                return Err(wrong(format!("a block is damaged, after {keys} keys")));
            }
            self.restore_block(&block, &mut keys, &mut collection)?;
        }
    }

    /// From here on the store is refused when it is opened, until the restoring has ended.
    pub(super) fn begin_restoring(&self) -> Result<()> {
        self.map.upsert(&own_keys::own(RESTORING), &[])?;
        Ok(())
    }

    /// All is restored.
    pub(super) fn end_restoring(&self) -> Result<()> {
        self.map.remove(&own_keys::own(RESTORING))?;
        Ok(())
    }

    fn restore_block(
        &self,
        mut block: &[u8],
        keys: &mut u64,
        collection: &mut Option<Restored>,
    ) -> Result<()> {
        while !block.is_empty() {
            let (tag, name, value) = take_entry(&mut block).ok_or(Failure::Damaged)?;
            match tag {
                0..DATABASES => {
                    self.end_collection(collection)?;
                    *keys += 1;
                    *collection = self.restore_key(tag, name, value)?;
                }
                FIELD_TAG | ORDERED_TAG => {
                    // Of a key that has expired since.
                    let Some(collection) = collection else { continue };
                    let element = match tag {
                        ORDERED_TAG => Element::Ordered(name),
                        _ => Element::Field(name),
                    };
                    self.restore_element(collection, element, value)?;
                }
                PIECE_TAG => {
                    let Some(collection) = collection else { continue };
                    let index = name.try_into().map_err(|_| Failure::Damaged)?;
                    self.restore_piece(collection, u32::from_be_bytes(index), value)?;
                }
                _ => return Err(Failure::Damaged),
            }
        }
        Ok(())
    }

    fn restore_key(&self, database: u8, key: &[u8], value: &[u8]) -> Result<Option<Restored>> {
        let head = Head::decode(value).ok_or(Failure::Damaged)?;
        let by_store = |at_system_ms: u64| {
            u64::try_from(self.clock.by_store(at_system_ms as i64)).unwrap_or(0)
        };
        let head = Head { expires_at: head.expires_at.map(by_store), ..head };
        Ok(self.restore_head(database, key, &head)?.map(|(_, collection)| collection))
    }

    /// Puts a key, unless it has expired; a collection is put when its elements are there, and
    /// returned with the number that it had.
    pub(super) fn restore_head(
        &self,
        database: u8,
        key: &[u8],
        head: &Head<'_>,
    ) -> Result<Option<(u64, Restored)>> {
        let expires_at = head.expires_at;
        if expires_at.is_some_and(|at_ms| at_ms <= self.clock.now_ms()) {
            return Ok(None);
        }
        let memcached = head.memcached.map(|kept| Memcached { cas: self.new_cas(), ..kept });
        match head.content {
            Content::String(_) => {
                self.put_restored(database, key, &Head { memcached, ..*head })?;
                Ok(None)
            }
            Content::Long(long) => {
                let content = Content::Long(LongString { id: self.new_id()?, ..long });
                let key = key.to_vec();
                Ok(Some((long.id, Restored { database, key, expires_at, memcached, content })))
            }
            Content::Collection(kind, old_id, _) => {
                let content = Content::Collection(kind, self.new_id()?, Count::Known(0));
                let key = key.to_vec();
                Ok(Some((old_id, Restored { database, key, expires_at, memcached: None, content })))
            }
        }
    }

    fn put_restored(&self, database: u8, key: &[u8], head: &Head<'_>) -> Result<()> {
        let stripes = [Self::stripe_of_key(key)].into_iter().collect();
        let held = self.lock(stripes, Access::Alone)?;
        let mut transaction = self.begin(held, self.clock.now_ms());
        transaction.put_head(self.space(database), key, head)?;
        transaction.commit()
    }

    /// Nothing leads to the element yet, so it needs no lock; a restore that is cut short leaves
    /// some that nothing ever will.
    pub(super) fn restore_element(
        &self,
        restored: &mut Restored,
        element: Element<'_>,
        value: &[u8],
    ) -> Result<()> {
        let Content::Collection(kind, id, Count::Known(count)) = &mut restored.content else {
            return Err(Failure::Damaged);
        };
        let put = |element: Element<'_>, value: &[u8]| -> Result<()> {
            self.map.upsert(&super::layout::element_key(*id, element), value)?;
            Ok(())
        };
        if let (Kind::SortedSet, Element::Field(name)) = (*kind, element) {
            let bits = value.try_into().map_err(|_| Failure::Damaged)?;
            put(Element::Scored(f64::from_bits(u64::from_le_bytes(bits)), name), b"")?;
        }
        put(element, value)?;
        *count += 1;
        Ok(())
    }

    /// Puts a piece of a long string, which has no more bytes than count.
    pub(super) fn restore_piece(
        &self,
        restored: &Restored,
        index: u32,
        piece: &[u8],
    ) -> Result<()> {
        let Content::Long(long) = restored.content else { return Err(Failure::Damaged) };
        if piece.len() > counted_bytes(long, index) {
            return Err(Failure::Damaged);
        }
        self.map.upsert(&piece_key(long.id, index), piece)?;
        Ok(())
    }

    pub(super) fn end_collection(&self, collection: &mut Option<Restored>) -> Result<()> {
        let Some(Restored { database, key, expires_at, memcached, content }) = collection.take()
        else {
            return Ok(());
        };
        self.put_restored(database, &key, &Head { expires_at, memcached, content })
    }
}

/// A collection whose elements are being restored, or a long string whose pieces are.
pub(super) struct Restored {
    database: u8,
    key: Vec<u8>,
    expires_at: Option<u64>,
    memcached: Option<Memcached>,
    pub(super) content: Content<'static>,
}

/// Tag, name and value of the first entry.
fn take_entry<'block>(block: &mut &'block [u8]) -> Option<(u8, &'block [u8], &'block [u8])> {
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

/// The folder that `path` lies in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}
