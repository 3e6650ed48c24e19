//! Reading the log from its files, after a power cut or into a new pool.
//!
//! A block is the next one of the log if
//!
//! 1. it is whole (`block.rs`), belongs to the log, and lies at the place that it says; and
//! 2. it covers the LSNs from the last one so far, and its `before` is the checksum of the block so
//!    far.
//!
//! It lies right behind the block so far, or at the start of a later segment. If two blocks fit,
//! the one with the higher generation is the next: it was written when the other had been given up,
//! because it was torn, or because its sync had failed.
//!
//! Where no block is the next one, the log ends. A block further on that belongs to the log, and
//! covers LSNs from that end on, contradicts this: it was sealed when all LSNs before it were
//! durable. So the bytes in between are damaged.
//!
//! # Going on
//!
//! The last block may never have been synced: its bytes may be those of the kernel's cache, after a
//! kill. What is built upon it must not be more durable than it is. So [`Recovered::secure`] writes
//! it again and syncs all segments that were read, before the new generation begins.

use std::collections::BTreeMap;

use pando_device::{Directory, File};
use pando_pmem::mutant;

use crate::block::{BLOCK_ALIGN, Block, Header, padded};
use crate::control::Start;
use crate::error::{Error, Result};
use crate::manifest::{Manifest, Owner};
use crate::segments::{
    existing, first_header, name_of, names, numbers, read_block, readable, sync_names,
};

/// What was read of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    manifest: Manifest,
    /// Where the next generation begins.
    start: Start,
    /// The last block, and its place.
    last: Option<(u64, Vec<u8>)>,
    /// The first segment that was read.
    first_segment: u64,
    /// Records that were read.
    pub records: u64,
    /// Blocks that were read.
    pub blocks: u64,
}

impl Recovered {
    /// The LSN up to which the log has been read.
    pub fn end_lsn(&self) -> u64 {
        self.start.lsn
    }

    /// Which log it is.
    pub fn log_id(&self) -> u128 {
        self.manifest.log_id
    }

    /// The pool to which the log belonged.
    pub fn pool_id(&self) -> u128 {
        self.manifest.pool_id
    }

    pub(crate) fn start(&self) -> Start {
        self.start
    }

    pub(crate) fn next_manifest(&self, pool_id: u128, former_pool_id: u128) -> Manifest {
        let generation = self.manifest.generation + 1;
        Manifest { pool_id, generation, former_pool_id, ..self.manifest }
    }

    /// Makes durable what was read.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`], [`Error::Device`].
    pub fn secure(&self, directory: &dyn Directory) -> Result<()> {
        let segment_bytes = self.manifest.segment_bytes;
        let failed = |_| Error::Failed { path: directory.path() };
        let Some((place, bytes)) = &self.last else { return Ok(()) };
        for number in numbers(directory)?.into_iter().filter(|&n| n >= self.first_segment) {
            let Some(file) = existing(directory, number)? else { continue };
            if number == place / segment_bytes {
                file.write_at(bytes, place % segment_bytes).map_err(failed)?;
            }
            file.sync().map_err(failed)?;
        }
        sync_names(directory)
    }
}

/// The number of the log in `directory`.
///
/// # Errors
///
/// [`Error::NotALog`], [`Error::Proposed`], [`Error::Damaged`], [`Error::Device`].
pub fn log_id_of(directory: &dyn Directory) -> Result<u128> {
    Ok(Manifest::load(directory)?.log_id)
}

/// Whose log the one in `directory` is, as its manifest says: of a store that an earlier version
/// has created, a pool's.
///
/// # Errors
///
/// As [`log_id_of`].
pub fn owner_of(directory: &dyn Directory) -> Result<Owner> {
    Ok(Manifest::load(directory)?.owner)
}

/// Refuses the log in `directory` if it is that of a store, by [`Error::OfStore`]. It may be
/// anything else, or nothing.
///
/// # Errors
///
/// [`Error::OfStore`].
pub fn refuse_log_of_store(directory: &dyn Directory) -> Result<()> {
    match Manifest::load(directory) {
        Ok(manifest) => manifest.check_owner(Owner::Pool, directory),
        Err(_) => Ok(()),
    }
}

/// Refuses the log in `directory` if it is not the log `log_id` of the pool `pool_id`.
///
/// # Errors
///
/// [`Error::Foreign`]; otherwise as [`log_id_of`].
pub fn check_owner(directory: &dyn Directory, log_id: u128, pool_id: u128) -> Result<()> {
    let manifest = Manifest::load(directory)?;
    let is_owner = [manifest.pool_id, manifest.former_pool_id].contains(&pool_id);
    let (field, found, expected) = match manifest.log_id == log_id {
        true if is_owner => return Ok(()),
        true => ("the pool", manifest.pool_id, pool_id),
        false => ("the log", manifest.log_id, log_id),
    };
    Err(Error::Foreign { path: directory.path(), field, found, expected })
}

/// Reads the log in `directory` and calls `visit` with the LSN and payload of each committed record
/// above the LSN `from`, in the order of LSNs. It changes nothing, and may be repeated.
///
/// # Errors
///
/// [`Error::NotALog`], [`Error::Proposed`]; [`Error::Missing`] if the log begins behind `from` or
/// ends before it; [`Error::Damaged`] if bytes are missing that were durable; [`Error::Device`];
/// and what `visit` returns.
pub fn recover(
    directory: &dyn Directory,
    from: u64,
    visit: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<Recovered> {
    let manifest = Manifest::load(directory)?;
    let mut reader = Reader::open(directory, manifest)?;
    let mut so_far = reader.begin(from)?;
    let first_segment = so_far.place / manifest.segment_bytes;
    let (mut records, mut blocks, mut last) = (0, 0, None);
    while let Some((block, bytes)) = reader.next_or_end(&so_far)? {
        for (lsn, payload) in &block.records {
            if *lsn > from {
                visit(*lsn, &bytes[payload.clone()])?;
                records += 1;
            }
        }
        blocks += 1;
        so_far = SoFar::after(&block);
        last = Some((block.header.place, bytes));
    }
    if so_far.lsn < from {
        let what = format!("it ends at LSN {}", so_far.lsn);
        return Err(Error::Missing { path: directory.path(), from, what });
    }
    let place = reader.firsts.keys().last().map_or(0, |last| last + 1) * manifest.segment_bytes;
    let start = Start { place, lsn: so_far.lsn, crc: so_far.crc };
    Ok(Recovered { manifest, start, last, first_segment, records, blocks })
}

/// Copies the log in `from`, as far as it is needed to read it from the LSN `lsn` on, into the
/// directory `to`, durably; the LSN at which the copy ends. The log may be in use meanwhile: only
/// whole blocks are copied. `to` becomes a log by the last step.
///
/// # Errors
///
/// As [`recover`]; [`Error::NotEmpty`] if `to` has files of a log; [`Error::Missing`] if
/// `is_enough` says that the copy ends too early.
pub fn copy(
    from: &dyn Directory,
    lsn: u64,
    to: &dyn Directory,
    is_enough: &dyn Fn(u64) -> bool,
) -> Result<u64> {
    let manifest = Manifest::load(from)?;
    let is_taken = Manifest::find(to)?.is_some();
    if let Some(name) = names(to)?.into_iter().next().or(is_taken.then(|| "manifest".to_owned())) {
        return Err(Error::NotEmpty { path: to.path(), name });
    }
    let mut reader = Reader::open(from, manifest)?;
    let mut so_far = reader.begin(lsn)?;
    let mut open: Option<(u64, Box<dyn File>)> = None;
    while let Some((block, mut bytes)) = reader.next_or_end(&so_far)? {
        let (segment, at) = (
            block.header.place / manifest.segment_bytes,
            block.header.place % manifest.segment_bytes,
        );
        if let Some((_, file)) = open.take_if(|(number, _)| *number != segment) {
            file.sync()?;
        }
        let (_, file) = match &mut open {
            Some(open) => open,
            none => none.insert((segment, to.create(&name_of(segment))?)),
        };
        bytes.resize(padded(block.bytes) as usize, 0);
        file.write_at(&bytes, at)?;
        so_far = SoFar::after(&block);
    }
    if let Some((_, file)) = &open {
        file.sync()?;
    }
    if so_far.lsn < lsn || !is_enough(so_far.lsn) {
        let what = format!("it ends at LSN {}", so_far.lsn);
        return Err(Error::Missing { path: from.path(), from: lsn, what });
    }
    if let Some((last, _)) = &open
        && readable(from, *last)?.is_none()
    {
        return Err(released(from, lsn));
    }
    sync_names(to)?;
    manifest.store(to)?;
    Ok(so_far.lsn)
}

/// The error of a log that was truncated while it was read.
fn released(directory: &dyn Directory, from: u64) -> Error {
    let what = "they were released while it was read".to_owned();
    Error::Missing { path: directory.path(), from, what }
}

/// How far the log was read.
#[derive(Clone, Copy, Debug)]
struct SoFar {
    lsn: u64,
    crc: u32,
    generation: u64,
    /// The place behind the last block; that of the first block, before one was read.
    place: u64,
}

impl SoFar {
    fn after(block: &Block) -> Self {
        let Header { last_lsn, generation, place, .. } = block.header;
        Self { lsn: last_lsn, crc: block.crc, generation, place: place + padded(block.bytes) }
    }

    fn is_followed_by(&self, header: &Header) -> bool {
        header.after_lsn == self.lsn && header.crc_before == self.crc
    }
}

struct Reader<'directory> {
    directory: &'directory dyn Directory,
    log_id: u128,
    segment_bytes: u64,
    /// The LSN before the first record of the log.
    after_lsn: u64,
    /// All segments, with the header of the first block of each.
    firsts: BTreeMap<u64, Option<Header>>,
}

impl<'directory> Reader<'directory> {
    fn open(directory: &'directory dyn Directory, manifest: Manifest) -> Result<Self> {
        let Manifest { log_id, segment_bytes, after_lsn, .. } = manifest;
        let firsts = BTreeMap::new();
        let mut reader = Self { directory, log_id, segment_bytes, after_lsn, firsts };
        reader.read_firsts()?;
        Ok(reader)
    }

    /// Reads the first header of each segment. A segment that is released meanwhile stays listed,
    /// so that a reader that needs it finds out.
    fn read_firsts(&mut self) -> Result<()> {
        for number in numbers(self.directory)? {
            let first = first_header(self.directory, self.log_id, number, self.segment_bytes)?;
            self.firsts.insert(number, first);
        }
        Ok(())
    }

    /// The state before the first block that is to be read for the records above `from`.
    fn begin(&self, from: u64) -> Result<SoFar> {
        let begins_in_time = |first: &&Header| first.after_lsn <= from;
        let of_start = |first: &Header| SoFar {
            lsn: first.after_lsn,
            crc: first.crc_before,
            generation: first.generation,
            place: first.place,
        };
        if let Some(first) = self.firsts.values().flatten().rfind(begins_in_time) {
            return Ok(of_start(first));
        }
        let is_empty = self.firsts.values().flatten().next().is_none();
        if from == self.after_lsn && is_empty {
            // No block was ever written, or the first one is torn.
            return Ok(SoFar { lsn: from, crc: 0, generation: 0, place: 0 });
        }
        let path = self.directory.path();
        match self.firsts.first_key_value() {
            None => Err(Error::Missing { path, from, what: "it has no segment".to_owned() }),
            Some((_, Some(first))) => {
                let what = format!("it begins at LSN {}", first.after_lsn);
                Err(Error::Missing { path, from, what })
            }
            Some((number, None)) => Err(Error::Damaged {
                path: format!("{path}/{}", name_of(*number)),
                what: format!("no block begins it, and no other one begins before LSN {from}"),
            }),
        }
    }

    /// The next block, with its bytes.
    fn next(&self, so_far: &SoFar) -> Result<Option<(Block, Vec<u8>)>> {
        let segment = so_far.place / self.segment_bytes;
        let starts = || {
            let later = self.firsts.range(segment..).filter_map(|(_, first)| *first);
            later.filter(|first| first.place > so_far.place && so_far.is_followed_by(first))
        };
        let newer = starts().rfind(|first| first.generation > so_far.generation);
        if let Some(first) = newer
            && !mutant!("log-any-generation")
        {
            return self.block_at(first.place, so_far);
        }
        if let Some(found) = self.block_at(so_far.place, so_far)?
            && so_far.is_followed_by(&found.0.header)
        {
            return Ok(Some(found));
        }
        match starts().next() {
            Some(first) => self.block_at(first.place, so_far),
            None => Ok(None),
        }
    }

    /// The block at `place`, if there is one that belongs there.
    fn block_at(&self, place: u64, so_far: &SoFar) -> Result<Option<(Block, Vec<u8>)>> {
        let number = place / self.segment_bytes;
        let Some(file) = readable(self.directory, number)? else {
            if !self.firsts.contains_key(&number) {
                return Ok(None);
            }
            return Err(released(self.directory, so_far.lsn));
        };
        let is_ours = |header: &Header| self.is_ours(header, place);
        read_block(file.as_ref(), place % self.segment_bytes, self.segment_bytes, &is_ours)
    }

    fn is_ours(&self, header: &Header, place: u64) -> bool {
        header.log_id == self.log_id && header.place == place
    }

    /// The next block, or `None` if the log ends here. A pool in use may write the block between
    /// two looks, also as the first one of a segment, so a look that finds damage is repeated.
    fn next_or_end(&mut self, so_far: &SoFar) -> Result<Option<(Block, Vec<u8>)>> {
        if let Some(found) = self.next(so_far)? {
            return Ok(Some(found));
        }
        let Err(damaged) = self.check_end(so_far) else { return Ok(None) };
        self.read_firsts()?;
        match self.next(so_far)? {
            Some(found) => Ok(Some(found)),
            None => Err(damaged),
        }
    }

    /// Looks for blocks behind the end, which cannot be there.
    fn check_end(&self, end: &SoFar) -> Result<()> {
        let first = end.place / self.segment_bytes;
        for &segment in self.firsts.range(first..).map(|(segment, _)| segment) {
            let start = segment * self.segment_bytes;
            let Some(file) = readable(self.directory, segment)? else { continue };
            let from = end.place.saturating_sub(start);
            for at in (from..self.segment_bytes).step_by(BLOCK_ALIGN as usize) {
                let is_later = |header: &Header| {
                    self.is_ours(header, start + at) && header.after_lsn >= end.lsn
                };
                let found = read_block(file.as_ref(), at, self.segment_bytes, &is_later)?;
                if found.is_some() && !mutant!("log-ends-at-damage") {
                    let what = format!(
                        "the block behind LSN {}, expected at byte {} or at the start of a later segment, is missing or \
                         damaged, and the block at byte {at} of {} was written after it was durable",
                        end.lsn,
                        end.place % self.segment_bytes,
                        name_of(segment)
                    );
                    let path = format!("{}/{}", self.directory.path(), name_of(first));
                    return Err(Error::Damaged { path, what });
                }
            }
        }
        Ok(())
    }
}
