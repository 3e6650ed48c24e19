//! The state of the writer, and the block that it is making.
//!
//! The thread that holds the lock of this state is the writer. It alone writes blocks. It puts
//! parts into a block, writes the block, and only then changes the table. The parts of a page are
//! decided when the block is made: a delta continues the page as it is at its place in the order,
//! also if cleaning has moved the page in between.
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | write a block | the chain of blocks without it, or with it |
//! | change the table | the same: the table is process memory |

use std::array;
use std::collections::HashMap;
use std::sync::Arc;

use pando_device::File;
use pando_pmem::mutant;

use crate::address::Address;
use crate::block::{self, BLOCK_ALIGN, Header};
use crate::checkpoint::{Redo, State};
use crate::error::Result;
use crate::part::{self, Kind, MAX_PARTS};
use crate::queue::{Refusal, Slot};
use crate::shared::Shared;
use crate::superblock::Superblock;

/// What the writer knows of a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    pub generation: u32,
    pub state: State,
    /// Bytes of the parts there that pages consist of.
    pub live_bytes: u64,
    /// The last checkpoint does not call it absent. If there is no file, none is made before the
    /// next checkpoint: an opening removes a file that is perhaps not durable only if the
    /// checkpoint calls it absent.
    pub is_named: bool,
}

impl Segment {
    /// Whether no page has a part there any more.
    pub fn is_empty(&self) -> bool {
        self.state == State::Used && self.live_bytes == 0
    }
}

/// The segment that is being written.
#[derive(Debug)]
pub(crate) struct Current {
    pub segment: u32,
    /// The first byte behind the last block.
    pub at: u64,
    pub file: Box<dyn File>,
}

/// Bytes that were written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub appended_bytes: u64,
    pub block_bytes: u64,
    pub moved_bytes: u64,
    pub moved_part_reads: u64,
    pub cleaned_segments: u64,
    pub checkpoint_bytes: u64,
}

/// Why a page cannot be read, and so until when cleaning leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The device refused it: until the next checkpoint.
    Refused,
    /// It is damaged: until it is written.
    Damaged,
}

/// The parts of a page behind its newest one.
pub(crate) type Earlier = [Option<Address>; MAX_PARTS - 1];

/// The state of the writer.
#[derive(Debug)]
pub(crate) struct Writer {
    pub superblock: Superblock,
    pub superblock_file: Box<dyn File>,
    pub segments: Vec<Segment>,
    /// The parts of a page behind its newest one, newest first, if it has several.
    pub earlier: HashMap<u32, Earlier>,
    /// Pages that cleaning could not read: it does not empty the segments of their parts.
    pub unreadable: HashMap<u32, Unreadable>,
    pub current: Option<Current>,
    /// The number of the next block.
    pub sequence: u64,
    /// All blocks up to this one are durable.
    pub durable_sequence: u64,
    pub crc_before: u32,
    /// Files of earlier segments that the next sync covers.
    pub unsynced: Vec<Box<dyn File>>,
    pub since_checkpoint_bytes: u64,
    /// The caller's bytes of the last checkpoint.
    pub client: Vec<u8>,
    pub written: Written,
}

/// A block that is being made.
#[derive(Debug)]
pub(crate) struct Draft {
    bytes: Vec<u8>,
    parts: u32,
    /// The parts of the pages that it changes, newest first; none of a page that it frees.
    pages: HashMap<u32, Vec<Address>>,
    pub appended_bytes: u64,
    pub moved_bytes: u64,
    /// The groups in it.
    pub slots: Vec<Arc<Slot>>,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            bytes: vec![0; block::HEADER_BYTES],
            parts: 0,
            pages: HashMap::new(),
            appended_bytes: 0,
            moved_bytes: 0,
            slots: Vec::new(),
        }
    }
}

impl Draft {
    /// Whether there is room behind it, in the current segment, for parts of so many bytes.
    fn fits(&self, writer: &Writer, shared: &Shared, bytes: usize, most_bytes: usize) -> bool {
        let end = (self.bytes.len() + bytes).next_multiple_of(BLOCK_ALIGN);
        writer.current.as_ref().is_some_and(|current| {
            end <= most_bytes && current.at + end as u64 <= shared.files.segment_bytes()
        })
    }
}

impl Writer {
    /// The parts of a page, newest first.
    pub fn parts_of(&self, shared: &Shared, pid: u32) -> Vec<Address> {
        let newest = shared.table.get(pid).into_iter();
        newest.chain(self.earlier.get(&pid).into_iter().flatten().copied().flatten()).collect()
    }

    /// All pages, each with its parts, newest first.
    pub fn pages(&self, shared: &Shared) -> impl Iterator<Item = (u32, Vec<Address>)> {
        shared.table.pages().map(|(pid, _)| (pid, self.parts_of(shared, pid)))
    }

    /// The parts of a page after the parts that are in the block already.
    pub fn parts_in(&self, shared: &Shared, draft: &Draft, pid: u32) -> Vec<Address> {
        draft.pages.get(&pid).cloned().unwrap_or_else(|| self.parts_of(shared, pid))
    }

    /// Makes room for parts of so many bytes: writes the block, if they do not fit behind it.
    /// Returns false if the current segment has no room; the draft is empty then.
    pub fn has_place(&mut self, shared: &Shared, draft: &mut Draft, bytes: usize) -> Result<bool> {
        if draft.parts > 0 && !draft.fits(self, shared, bytes, block::WANTED_BYTES) {
            self.write(shared, draft)?;
        }
        Ok(draft.fits(self, shared, bytes, usize::MAX))
    }

    /// Adds a part to the block. [`has_place`](Self::has_place) has found room for it.
    pub fn add(
        &mut self,
        shared: &Shared,
        draft: &mut Draft,
        (kind, pid): (Kind, u32),
        pieces: &[&[u8]],
    ) {
        let Some(current) = &self.current else { return };
        let generation = self.segments[current.segment as usize].generation;
        let mut parts = match kind {
            Kind::Delta => self.parts_in(shared, draft, pid),
            Kind::Base | Kind::Free => Vec::new(),
        };
        let at = current.at as usize + draft.bytes.len();
        let bytes = part::push(&mut draft.bytes, (kind, pid, generation), &parts, pieces);
        if kind != Kind::Free {
            parts.insert(0, Address::new(current.segment, at, bytes, generation));
        }
        draft.pages.insert(pid, parts);
        draft.parts += 1;
    }

    /// Writes the block, and then shows its pages to readers. The draft is empty afterwards.
    pub fn write(&mut self, shared: &Shared, draft: &mut Draft) -> Result<()> {
        let draft = std::mem::take(draft);
        if let Err(error) = shared.check_failed() {
            draft.slots.iter().for_each(|slot| slot.end(Err(Refusal::Failed)));
            return Err(error);
        }
        let Some(current) = self.current.as_mut().filter(|_| draft.parts > 0) else {
            return Ok(());
        };
        let header = Header {
            store_id: self.superblock.store_id,
            sequence: self.sequence,
            durable_sequence: self.durable_sequence,
            openings: self.superblock.openings,
            segment_generation: self.segments[current.segment as usize].generation,
            crc_before: self.crc_before,
        };
        let mut bytes = draft.bytes;
        let crc = block::finish(&mut bytes, &header, draft.parts);
        if let Err(error) = current.file.write_at(&bytes, current.at) {
            draft.slots.iter().for_each(|slot| slot.end(Err(Refusal::Failed)));
            return Err(shared.fail(&error));
        }
        current.at += bytes.len() as u64;
        self.sequence += 1;
        self.crc_before = crc;
        self.since_checkpoint_bytes += bytes.len() as u64;
        self.written.block_bytes += bytes.len() as u64;
        self.written.appended_bytes += draft.appended_bytes;
        self.written.moved_bytes += draft.moved_bytes;
        for (pid, parts) in draft.pages {
            self.set_page(shared, pid, &parts);
        }
        draft.slots.iter().for_each(|slot| slot.end(Ok(())));
        Ok(())
    }

    /// Changes the parts of a page, in the counts and for readers.
    pub fn set_page(&mut self, shared: &Shared, pid: u32, parts: &[Address]) {
        for part in self.parts_of(shared, pid) {
            self.segments[part.segment() as usize].live_bytes -= part.bytes() as u64;
        }
        self.unreadable.remove(&pid);
        for part in parts {
            self.segments[part.segment() as usize].live_bytes += part.bytes() as u64;
        }
        shared.table.set(pid, parts);
        match parts {
            [] | [_] => self.earlier.remove(&pid),
            [_, earlier @ ..] => {
                self.earlier.insert(pid, array::from_fn(|at| earlier.get(at).copied()))
            }
        };
    }

    /// Makes all blocks durable that were written before the call.
    pub fn sync(&mut self, shared: &Shared) -> Result<()> {
        shared.check_failed()?;
        if self.durable_sequence + 1 == self.sequence {
            return Ok(());
        }
        let files = self.unsynced.iter().chain(self.current.as_ref().map(|current| &current.file));
        for file in files {
            if !mutant!("lss-not-synced") {
                file.sync().map_err(|error| shared.fail(&error))?;
            }
        }
        self.unsynced.clear();
        self.durable_sequence = self.sequence - 1;
        Ok(())
    }

    /// Where the next block will be.
    pub fn redo(&self) -> Redo {
        let (segment, at) = self.current.as_ref().map_or((0, 0), |at| (at.segment, at.at));
        Redo { sequence: self.sequence, segment, at, crc_before: self.crc_before }
    }
}
