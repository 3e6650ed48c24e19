//! Opening a store: the newest checkpoint, and the blocks behind it.
//!
//! The chain of blocks goes on with a block that has the next number and the checksum of the block
//! before it. It is behind that block, or at the beginning of a segment that was free when the
//! checkpoint was made. The first block that is missing, cut off or damaged ends the chain. If
//! another block says that it was durable, the store is damaged, and the opening fails.
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | read the checkpoint and the chain; write blocks again that no later block calls durable, with the same bytes | the same store |
//! | remove files of segments that the checkpoint does not know and the chain does not use | the same store |
//! | raise the number of openings in the superblock; synced | the same store |
//! | remove all checkpoints but the one that the superblock names | the same store |
//!
//! A process that was killed may have left blocks in the page cache alone, and after a failed sync
//! the kernel never writes them. So they are written again, and count as not yet durable: the next
//! sync covers them. Their bytes are in memory until then, so the oldest are written before the end
//! of the chain is found, if there are many.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use pando_device::{Directory, File};
use pando_pmem::mutant;

use crate::address::{Address, MAX_SEGMENTS};
use crate::block::{self, BLOCK_ALIGN, Header};
use crate::checkpoint::{self, Checkpoint, Redo, State};
use crate::error::{Error, Result};
use crate::files::{self, Files, Handles, Unread};
use crate::part::Kind;
use crate::shared::{PageStoreOptions, Shared};
use crate::state::{Current, Segment, Writer};
use crate::superblock::{self, Superblock};

/// Bytes that are read at once where headers are looked for.
const SCAN_BYTES: usize = 1 << 20;
/// Bytes of blocks that wait in memory for a later block that calls them durable, beside one block.
const MOST_DOUBTFUL_BYTES: usize = 8 << 20;

/// What an opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The caller's bytes of the last checkpoint; empty if there is none.
    pub client: Vec<u8>,
    /// Blocks behind the last checkpoint.
    pub blocks: u64,
    /// Their bytes.
    pub block_bytes: u64,
}

/// A block of the chain.
struct Next {
    segment: u32,
    at: u64,
    header: Header,
    crc: u32,
    bytes: Vec<u8>,
}

/// Reads the chain of blocks.
struct Chain<'call> {
    files: &'call Files,
    store_id: u128,
    /// The segments that may begin with a block of the chain, by the number of their first block.
    beginnings: BTreeMap<u64, Vec<u32>>,
    redo: Redo,
}

impl Chain<'_> {
    fn device<T>(&self, read: Result<T, Unread>) -> Result<T> {
        read.map_err(|unread| self.files.error_of(0, unread))
    }

    /// The block at `at` of a segment, if its checksum is right and it is of this store.
    fn block_at(&self, segment: u32, at: u64) -> Result<Option<Next>> {
        let room = self.files.segment_bytes().saturating_sub(at) as usize;
        if room < BLOCK_ALIGN {
            return Ok(None);
        }
        let mut bytes = vec![0; BLOCK_ALIGN];
        self.device(self.files.read(segment, &mut bytes, at))?;
        let Some(length) = block::length(&bytes).filter(|&length| length <= room) else {
            return Ok(None);
        };
        bytes.resize(length.max(BLOCK_ALIGN), 0);
        let rest = &mut bytes[BLOCK_ALIGN..];
        self.device(self.files.read(segment, rest, at + BLOCK_ALIGN as u64))?;
        let checked = block::check(&bytes).filter(|(header, _)| header.store_id == self.store_id);
        Ok(checked.map(|(header, crc)| Next { segment, at, header, crc, bytes }))
    }

    fn goes_on(&self, block: &Next) -> bool {
        block.header.sequence == self.redo.sequence
            && (block.header.crc_before == self.redo.crc_before || mutant!("lss-any-predecessor"))
    }

    /// The next block of the chain.
    fn next(&mut self) -> Result<Option<Next>> {
        let Redo { segment, at, sequence, .. } = self.redo;
        let mut found = None;
        if at != 0 {
            found = self.block_at(segment, at)?.filter(|block| self.goes_on(block));
        }
        for segment in self.beginnings.get(&sequence).cloned().unwrap_or_default() {
            if found.is_none() {
                found = self.block_at(segment, 0)?.filter(|block| self.goes_on(block));
            }
        }
        if let Some(block) = &found {
            let bytes = block::length(&block.bytes).unwrap_or_default();
            self.redo = Redo {
                sequence: sequence + 1,
                segment: block.segment,
                at: block.at + bytes.next_multiple_of(BLOCK_ALIGN) as u64,
                crc_before: block.crc,
            };
        }
        Ok(found)
    }

    /// A block that says that the next block of the chain was durable. It is behind that block, in
    /// the same segment or in one that was free.
    fn find_contradiction(&self, free: impl Iterator<Item = u32>) -> Result<Option<Next>> {
        let Redo { segment, at, sequence, .. } = self.redo;
        if at != 0
            && let Some(block) = self.find_in(segment, at)?
        {
            return Ok(Some(block));
        }
        for segment in free.filter(|&segment| segment != self.redo.segment || at == 0) {
            // All behind an older block is older.
            let is_older = |block: &Next| block.header.sequence < sequence;
            if !self.block_at(segment, 0)?.is_some_and(|block| is_older(&block))
                && let Some(block) = self.find_in(segment, 0)?
            {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// A block from byte `from` of a segment on that says that the next block was durable.
    fn find_in(&self, segment: u32, mut from: u64) -> Result<Option<Next>> {
        let sequence = self.redo.sequence;
        while from < self.files.segment_bytes() {
            let length = (self.files.segment_bytes() - from).min(SCAN_BYTES as u64) as usize;
            let mut bytes = vec![0; length];
            self.device(self.files.read(segment, &mut bytes, from))?;
            for offset in (0..length).step_by(BLOCK_ALIGN) {
                let claimed = block::claimed_sequences(&bytes[offset..], self.store_id);
                if claimed.is_some_and(|(number, durable)| number > sequence && durable >= sequence)
                    && let Some(block) = self.block_at(segment, from + offset as u64)?
                    && block.header.durable_sequence >= sequence
                {
                    return Ok(Some(block));
                }
            }
            from += length as u64;
        }
        Ok(None)
    }
}

/// Blocks of the chain that no later block calls durable, to be written again.
#[derive(Default)]
struct Doubtful {
    /// In the order of the chain.
    blocks: VecDeque<Next>,
    bytes: usize,
    /// Of the segments that have blocks of the chain.
    handles: BTreeMap<u32, Box<dyn File>>,
}

impl Doubtful {
    /// Adds the next block of the chain. Forgets those that it calls durable, and writes some if
    /// there are many.
    fn add(&mut self, files: &Files, block: Next) -> Result<()> {
        if let Entry::Vacant(vacant) = self.handles.entry(block.segment) {
            vacant.insert(files.open(block.segment)?);
        }
        let durable = block.header.durable_sequence;
        while self.blocks.front().is_some_and(|first| first.header.sequence <= durable) {
            self.take_first();
        }
        self.bytes += block.bytes.len();
        self.blocks.push_back(block);
        self.write(MOST_DOUBTFUL_BYTES)
    }

    fn take_first(&mut self) -> Option<Next> {
        let first = self.blocks.pop_front()?;
        self.bytes -= first.bytes.len();
        Some(first)
    }

    /// Writes the oldest, until so many bytes are left.
    fn write(&mut self, left_bytes: usize) -> Result<()> {
        while self.bytes > left_bytes
            && let Some(block) = self.take_first()
        {
            if let Some(file) = self.handles.get(&block.segment)
                && !mutant!("lss-tail-not-written-again")
            {
                file.write_at(&block.bytes, block.at)?;
            }
        }
        Ok(())
    }
}

/// The segments of the checkpoint, and those that were made since.
fn segments(files: &Files, known: &[(u32, State)]) -> Result<Vec<Segment>> {
    let names = files.directory().names()?;
    let there: BTreeSet<u32> = names.iter().filter_map(|name| files::number_of(name)).collect();
    let count = there.last().map_or(0, |&last| last as usize + 1).max(known.len());
    let mut segments = vec![Segment::default(); count.min(MAX_SEGMENTS as usize)];
    let mut handles = Handles::new();
    handles.resize(segments.len(), None);
    for (number, segment) in (0..).zip(&mut segments) {
        let (generation, state) = known.get(number as usize).copied().unwrap_or_default();
        segment.generation = generation;
        segment.is_named = state != State::Absent;
        segment.state = match (state, there.contains(&number)) {
            (State::Used, false) => {
                return Err(Error::Damaged {
                    path: files.path_of(number),
                    what: "the file is missing, and pages are in it".to_owned(),
                });
            }
            (State::Used, true) => State::Used,
            (State::Absent | State::Free, true) => State::Free,
            (State::Absent | State::Free, false) => State::Absent,
        };
        if segment.state != State::Absent {
            let file = files.open(number)?;
            let bytes = file.size_bytes()?;
            let is_whole = bytes >= files.segment_bytes();
            if !is_whole && segment.state == State::Used {
                return Err(Error::Damaged {
                    path: files.path_of(number),
                    what: format!("it has {bytes} bytes instead of {}", files.segment_bytes()),
                });
            }
            // It was being made when a process died.
            if is_whole {
                handles[number as usize] = Some(Arc::from(file));
            } else {
                files.remove(number)?;
                segment.state = State::Absent;
            }
        }
    }
    files.set_all(handles);
    Ok(segments)
}

/// The numbers of the first blocks of all free segments.
fn beginnings(
    files: &Files,
    segments: &[Segment],
    store_id: u128,
) -> Result<BTreeMap<u64, Vec<u32>>> {
    let mut beginnings: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (number, segment) in (0..).zip(segments) {
        if segment.state == State::Free {
            let mut bytes = vec![0; BLOCK_ALIGN];
            let read = files.read(number, &mut bytes, 0);
            read.map_err(|unread| files.error_of(0, unread))?;
            if let Some((sequence, _)) = block::claimed_sequences(&bytes, store_id) {
                beginnings.entry(sequence).or_default().push(number);
            }
        }
    }
    Ok(beginnings)
}

impl Writer {
    /// Applies the parts of a block of the chain.
    fn apply(&mut self, shared: &Shared, block: &Next) -> Result<()> {
        let damaged = |what: String| Error::Damaged {
            path: shared.files.path_of(block.segment),
            what: format!("the block at byte {}: {what}", block.at),
        };
        let segment = &mut self.segments[block.segment as usize];
        segment.generation = block.header.segment_generation;
        segment.state = State::Used;
        let parts = block::parts(&block.bytes).map_err(|why| damaged(why.0.to_owned()))?;
        for (part, range) in parts {
            let before = self.parts_of(shared, part.pid);
            if part.generation != block.header.segment_generation
                || (part.kind == Kind::Delta && part.earlier != before)
            {
                return Err(damaged(format!("a part of page {} has no place", part.pid)));
            }
            let at = block.at as usize + range.start;
            let address = Address::new(block.segment, at, range.len(), part.generation);
            let after = match part.kind {
                Kind::Free => Vec::new(),
                Kind::Base => vec![address],
                Kind::Delta => [vec![address], before].concat(),
            };
            self.set_page(shared, part.pid, &after);
        }
        Ok(())
    }
}

/// Opens the store in `directory`.
pub(crate) fn open(
    directory: Arc<dyn Directory>,
    options: PageStoreOptions,
) -> Result<(Shared, Writer, Found)> {
    let Some((mut superblock, superblock_file)) = Superblock::find(directory.as_ref())? else {
        let names = directory.names()?;
        // A creation that was cut short has left a checkpoint at most.
        let is_segment = |name: &&String| files::number_of(name).is_some();
        return Err(match names.iter().find(is_segment) {
            Some(name) => superblock::missing(directory.as_ref(), name),
            None => Error::NotAStore { path: directory.path() },
        });
    };
    let names = (superblock.store_id, superblock.checkpoint);
    let (checkpoint, pages) =
        Checkpoint::load(directory.as_ref(), names, superblock.segment_bytes)?;
    let files = Files::new(directory, superblock.segment_bytes);
    let segments = segments(&files, &checkpoint.segments)?;
    let beginnings = beginnings(&files, &segments, superblock.store_id)?;
    let options = PageStoreOptions { segment_bytes: superblock.segment_bytes, ..options };
    let shared = Shared::new(files, options);
    let mut writer = Writer {
        superblock,
        superblock_file,
        segments,
        earlier: HashMap::new(),
        unreadable: HashMap::new(),
        current: None,
        sequence: checkpoint.redo.sequence,
        durable_sequence: checkpoint.redo.sequence - 1,
        crc_before: checkpoint.redo.crc_before,
        unsynced: Vec::new(),
        since_checkpoint_bytes: 0,
        client: checkpoint.client.clone(),
        written: Default::default(),
    };
    for (pid, parts) in pages.iter() {
        writer.set_page(&shared, pid, &parts);
    }
    drop(pages);
    let mut found = Found { client: checkpoint.client.clone(), ..Found::default() };
    let (store_id, redo) = (superblock.store_id, checkpoint.redo);
    let mut chain = Chain { files: &shared.files, store_id, beginnings, redo };
    let mut doubtful = Doubtful::default();
    while let Some(block) = chain.next()? {
        writer.apply(&shared, &block)?;
        superblock.openings = superblock.openings.max(block.header.openings);
        found.blocks += 1;
        found.block_bytes += block.bytes.len().next_multiple_of(BLOCK_ALIGN) as u64;
        doubtful.add(&shared.files, block)?;
    }
    let segments = (0..).zip(&writer.segments);
    let free = segments.filter(|(_, segment)| segment.state == State::Free);
    if !mutant!("lss-ends-at-damage")
        && let Some(block) = chain.find_contradiction(free.map(|(number, _)| number))?
    {
        return Err(Error::Damaged {
            path: shared.files.path_of(chain.redo.segment),
            what: format!(
                "block {} is missing at byte {}, and the one at byte {} of {} says that it was \
                 durable",
                chain.redo.sequence,
                chain.redo.at,
                block.at,
                shared.files.path_of(block.segment),
            ),
        });
    }
    let Redo { segment, at, .. } = chain.redo;
    (writer.sequence, writer.crc_before) = (chain.redo.sequence, chain.redo.crc_before);
    writer.since_checkpoint_bytes = found.block_bytes;
    doubtful.write(0)?;
    if at != 0 {
        let handle = doubtful.handles.remove(&segment);
        let file = handle.map_or_else(|| shared.files.open(segment), Ok)?;
        writer.current = Some(Current { segment, at, file });
    }
    writer.unsynced.extend(doubtful.handles.into_values());
    // A file whose making was cut short, or refused, is perhaps not durable.
    for (number, segment) in (0..).zip(&mut writer.segments) {
        let is_doubtful = segment.state == State::Free && !segment.is_named;
        if is_doubtful && !mutant!("lss-half-made-file-taken") {
            shared.files.remove(number)?;
            segment.state = State::Absent;
        }
    }
    if mutant!("lss-earlier-checkpoint-removed-early") {
        checkpoint::remove_others(shared.files.directory(), superblock.checkpoint)?;
    }
    shared.files.directory().sync()?;
    if mutant!("lss-tail-taken-for-durable") {
        writer.durable_sequence = writer.sequence - 1;
    }
    superblock.writes += 1;
    if !mutant!("lss-same-opening") {
        superblock.openings += 1;
    }
    writer.superblock = superblock;
    writer.superblock.store(writer.superblock_file.as_ref())?;
    // Not before: a power cut may bring the superblock back that names another one.
    checkpoint::remove_others(shared.files.directory(), superblock.checkpoint)?;
    Ok((shared, writer, found))
}
