//! Room for blocks: segments, checkpoints, and cleaning.
//!
//! # The life of a segment
//!
//! ```text
//! absent ── free ── used ── used, and no page has a part there ── free ── absent
//! ```
//!
//! | step | what is written | a crash leaves |
//! | --- | --- | --- |
//! | make | the file, full of zeros, and its name; both synced | a file that the next opening removes |
//! | begin | the first block, with the segment's generation raised by one | a segment without a block of the chain, which is free |
//! | move | the pages of a segment, each as one base, in blocks like any other | pages at the old place, or at the new one |
//! | checkpoint | below | the old checkpoint, or the new one |
//! | free | nothing | a segment that the checkpoint says is free |
//!
//! A segment in which no page has a part becomes free with the next checkpoint. Before that, an
//! opening might begin with a table that names it.
//!
//! # A checkpoint
//!
//! 1. All blocks are synced.
//! 2. The file of the checkpoint is written and synced, and its name.
//! 3. The superblock names it; synced. This decides.
//! 4. The earlier checkpoint is removed. An opening that cannot read the newer superblock would
//!    begin with it, and must fail, because what follows writes over its segments.
//! 5. Segments become free.
//!
//! # The limits of room
//!
//! The ceiling and `max_bytes` limit the number of files. When a segment is needed and the limit is
//! reached, segments are cleaned: those whose pages have the fewest bytes, with their parts in
//! other segments, and no more than fit a free segment. (If each segment has deltas of many pages,
//! one is cleaned that needs several free ones; then cleaning makes files beyond the limits.) The
//! last free segment but one is kept for groups that free pages, and the last one for cleaning. So
//! cleaning goes on in a full store. The current segment is ended first if it has no room for the
//! group, so that it can become free too. If a page cannot be read, the segments of its parts are
//! left: until the next checkpoint, or if the page is damaged, until it is written again.

use std::collections::BTreeSet;

use pando_pmem::mutant;

use crate::address::MAX_SEGMENTS;
use crate::checkpoint::{self, Checkpoint, State};
use crate::error::{Error, Result};
use crate::files::Unread;
use crate::part::{self, Kind};
use crate::shared::Shared;
use crate::state::{Current, Draft, Segment, Unreadable, Writer};

/// The ceiling allows at least so many segments.
const FEWEST_SEGMENTS: u64 = 8;
/// The ceiling allows so many segments more: the current one, and those that are kept.
const MORE_SEGMENTS: u64 = 3;
/// So many segments are cleaned at once at most.
const MOST_VICTIMS: usize = 16;
/// So many passes are made for one segment at most.
const MOST_PASSES: usize = 8;
/// So many earlier segments wait for a sync at most, each with a handle.
const MOST_UNSYNCED: usize = 16;
/// So many free segments are always kept.
const KEPT_FREE: usize = 4;

/// For what a segment is needed. Each purpose leaves some free segments to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Groups of any kind.
    Write,
    /// Groups that only free pages.
    Free,
    /// Pages that are moved.
    Clean,
}

impl Purpose {
    fn leaves(self) -> usize {
        match self {
            Self::Write => 2,
            Self::Free => 1,
            Self::Clean => 0,
        }
    }
}

impl Writer {
    /// The error of a store without room.
    pub fn full(&self, shared: &Shared) -> Error {
        Error::Full {
            path: shared.files.directory().path(),
            segments: self.count(|segment| segment.state != State::Absent),
            segment_bytes: shared.files.segment_bytes(),
            live_bytes: self.live_bytes(),
        }
    }

    pub fn count(&self, which: impl Fn(&Segment) -> bool) -> usize {
        self.segments.iter().filter(|segment| which(segment)).count()
    }

    pub fn live_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.live_bytes).sum()
    }

    fn free_count(&self) -> usize {
        self.count(|segment| segment.state == State::Free)
    }

    /// The segments that the limits allow.
    fn allowed(&self, shared: &Shared) -> u64 {
        let segment_bytes = u128::from(shared.files.segment_bytes());
        let live = u128::from(self.live_bytes()) * u128::from(shared.options.ceiling_percent) / 100;
        let by_ceiling = u64::try_from(live.div_ceil(segment_bytes)).unwrap_or(u64::MAX);
        let by_bytes = shared.options.max_bytes / shared.files.segment_bytes();
        by_ceiling
            .saturating_add(MORE_SEGMENTS)
            .max(FEWEST_SEGMENTS)
            .min(by_bytes)
            .min(u64::from(MAX_SEGMENTS))
    }

    /// Makes the draft a place for parts of so many bytes, and begins a segment if it must.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if there is no segment for this purpose. The draft is empty then.
    pub fn make_place(
        &mut self,
        shared: &Shared,
        draft: &mut Draft,
        bytes: usize,
        purpose: Purpose,
    ) -> Result<()> {
        let has_place = self.has_place(shared, draft, bytes)?;
        if has_place && self.may_use_current(purpose) {
            return Ok(());
        }
        // Segments are made and cleaned between two blocks.
        self.write(shared, draft)?;
        if mutant!("lss-reuse-before-checkpoint") {
            let current = self.current.as_ref().map(|current| current.segment);
            for (number, segment) in (0..).zip(&mut self.segments) {
                if Some(number) != current && segment.live_bytes == 0 {
                    segment.state = State::Free;
                }
            }
        }
        // A pass of cleaning has a free segment, or room behind the last block.
        if purpose != Purpose::Clean
            && self.free_count() <= purpose.leaves()
            && !self.make_segments(shared, purpose, purpose.leaves() + 1)?
        {
            if !has_place {
                self.end_segment(shared)?;
            }
            self.make_room(shared, purpose)?;
        }
        // Cleaning has perhaps begun a segment and left room in it.
        if self.may_use_current(purpose) && self.has_place(shared, draft, bytes)? {
            return Ok(());
        }
        let free = self.segments.iter().position(|segment| segment.state == State::Free);
        let Some(number) = free.filter(|_| self.free_count() > purpose.leaves()) else {
            return Err(self.full(shared));
        };
        self.begin_segment(shared, number)?;
        match self.has_place(shared, draft, bytes)? {
            true => Ok(()),
            false => Err(self.full(shared)),
        }
    }

    /// Whether the current segment was not begun from the reserve for another purpose.
    fn may_use_current(&self, purpose: Purpose) -> bool {
        purpose != Purpose::Write
            || self.free_count() >= purpose.leaves()
            || mutant!("lss-reserve-written")
    }

    /// Ends the current segment. Then cleaning may empty it.
    fn end_segment(&mut self, shared: &Shared) -> Result<()> {
        if let Some(former) = self.current.take() {
            self.unsynced.push(former.file);
        }
        match self.unsynced.len() > MOST_UNSYNCED {
            true => self.sync(shared),
            false => Ok(()),
        }
    }

    fn begin_segment(&mut self, shared: &Shared, number: usize) -> Result<()> {
        let opened = shared.files.open(number as u32);
        let file = opened.map_err(|error| self.no_file(shared, &error))?;
        let segment = &mut self.segments[number];
        segment.generation = segment.generation.wrapping_add(1);
        segment.state = State::Used;
        self.end_segment(shared)?;
        self.current = Some(Current { segment: number as u32, at: 0, file });
        Ok(())
    }

    /// Makes files until so many segments are free; false if the limits or the file system allow
    /// fewer.
    fn make_segments(&mut self, shared: &Shared, purpose: Purpose, free: usize) -> Result<bool> {
        while self.free_count() < free {
            let count = self.count(|segment| segment.state != State::Absent) as u64;
            // Without a free segment, nothing can become free. An opening may have removed all.
            if purpose != Purpose::Clean && count >= self.allowed(shared) {
                return Ok(false);
            }
            let is_unnamed = |segment: &Segment| {
                segment.state == State::Absent
                    && (!segment.is_named || mutant!("lss-named-file-made-again"))
            };
            let number = self.segments.iter().position(is_unnamed).unwrap_or(self.segments.len());
            if number >= MAX_SEGMENTS as usize {
                return Ok(false);
            }
            match shared.files.make(number as u32) {
                Ok(()) => {}
                Err(error) if error.is_full() => {
                    // What was made takes room that pages may need.
                    let removed = shared.files.remove(number as u32);
                    return removed.map(|()| false).map_err(|error| shared.fail(&error));
                }
                // If there is a file, a later call completes it.
                Err(error) if error.is_transient() => return Ok(false),
                Err(error) => return Err(shared.fail(&error)),
            }
            if number == self.segments.len() {
                self.segments.push(Segment::default());
            }
            self.segments[number].state = State::Free;
        }
        Ok(true)
    }

    fn no_file(&self, shared: &Shared, error: &pando_device::Error) -> Error {
        match error.is_full() || error.is_transient() {
            true => self.full(shared),
            false => shared.fail(error),
        }
    }

    /// Cleans until there is a free segment for that purpose, or until it is of no use.
    fn make_room(&mut self, shared: &Shared, purpose: Purpose) -> Result<()> {
        if self.has_empty_segment() {
            self.checkpoint(shared, None)?;
        }
        // Each pass leaves fewer dead bytes, and several may be needed for one segment.
        for _ in 0..MOST_PASSES {
            if self.free_count() > purpose.leaves() || !self.clean(shared)? {
                break;
            }
            self.checkpoint(shared, None)?;
        }
        Ok(())
    }

    /// Whether a checkpoint would free a segment.
    fn has_empty_segment(&self) -> bool {
        let current = self.current.as_ref().map(|current| current.segment);
        let mut segments = (0..).zip(&self.segments);
        segments.any(|(number, segment)| segment.is_empty() && Some(number) != current)
    }

    /// Moves the pages out of the segments that have the fewest bytes of them. They become free
    /// with the next checkpoint. False if no segment became empty.
    pub fn clean(&mut self, shared: &Shared) -> Result<bool> {
        for _ in 0..MOST_PASSES {
            let before = self.unreadable.len();
            if self.clean_once(shared)? {
                return Ok(true);
            }
            // If a page could not be read, other segments are tried.
            if self.unreadable.len() == before {
                break;
            }
        }
        Ok(false)
    }

    fn clean_once(&mut self, shared: &Shared) -> Result<bool> {
        let (victims, needed) = self.victims(shared);
        if victims.is_empty() {
            return Ok(false);
        }
        if !mutant!("lss-cleaning-without-segment") {
            self.make_segments(shared, Purpose::Clean, needed)?;
        }
        let mut pids: Vec<_> = shared.table.pages().map(|(pid, _)| pid).collect();
        pids.retain(|&pid| {
            let mut parts = self.parts_of(shared, pid).into_iter();
            parts.any(|part| victims.contains(&part.segment()))
        });
        let mut draft = Draft::default();
        for pid in pids {
            match self.move_page(shared, &mut draft, pid) {
                // What is moved so far is of use.
                Err(Error::Full { .. }) => break,
                moved => moved?,
            }
        }
        self.write(shared, &mut draft)?;
        let emptied = victims.iter().filter(|&&number| self.segments[number as usize].is_empty());
        let emptied = emptied.count() as u64;
        self.written.cleaned_segments += emptied;
        Ok(emptied > 0)
    }

    /// The segments to clean: those whose pages have the fewest bytes, with all their parts. One
    /// free segment has room for all of these pages, so the segments become empty. But if even the
    /// pages of the first one need more, it is cleaned alone. Returns also how many free segments
    /// the pages need. These are few: a page counts in four segments at most, so the pages of the
    /// cheapest segment have at most four times the live bytes of a segment on average.
    fn victims(&self, shared: &Shared) -> (Vec<u32>, usize) {
        let mut costs_bytes = vec![0; self.segments.len()];
        // Of pages that cannot be read.
        let mut left = BTreeSet::new();
        for (pid, _) in shared.table.pages() {
            let parts = self.parts_of(shared, pid);
            let page_bytes = parts.iter().map(|part| part.bytes() as u64).sum::<u64>();
            let within: BTreeSet<_> = parts.iter().map(|part| part.segment()).collect();
            within.iter().for_each(|&segment| costs_bytes[segment as usize] += page_bytes);
            if self.unreadable.contains_key(&pid) {
                left.extend(within);
            }
        }
        let current = self.current.as_ref().map(|current| current.segment);
        // A block has a head, and zeros behind it.
        let most_bytes = shared.files.segment_bytes() / 8 * 7;
        // To move all bytes of a full segment gains nothing.
        let is_candidate = |number: u32, segment: &Segment| {
            segment.state == State::Used
                && Some(number) != current
                && !left.contains(&number)
                && segment.live_bytes <= most_bytes
        };
        let segments = (0..).zip(&self.segments).zip(costs_bytes);
        let candidates = segments.filter(|&((number, segment), _)| is_candidate(number, segment));
        let mut candidates: Vec<_> =
            candidates.map(|((number, _), costs)| (costs, number)).collect();
        candidates.sort_unstable();
        let needed = match candidates.first() {
            Some(&(costs_bytes, _)) => costs_bytes.div_ceil(most_bytes).max(1) as usize,
            None => return (Vec::new(), 0),
        };
        let mut bytes = 0;
        let few = candidates.iter().take(MOST_VICTIMS).take_while(|(costs_bytes, _)| {
            let is_first = bytes == 0;
            bytes += costs_bytes;
            bytes <= most_bytes || is_first && !mutant!("lss-victims-of-one-segment")
        });
        (few.map(|&(_, number)| number).collect(), needed)
    }

    /// Writes a page again, as one base.
    fn move_page(&mut self, shared: &Shared, draft: &mut Draft, pid: u32) -> Result<()> {
        let Some(newest) = shared.table.get(pid) else { return Ok(()) };
        let mut pieces = match shared.files.read_page(pid, newest) {
            Ok(pieces) => pieces,
            // It stays, and an error tells it to its reader.
            Err(Unread::Device(_)) => {
                self.unreadable.insert(pid, Unreadable::Refused);
                return Ok(());
            }
            Err(Unread::NotThere(..)) => {
                shared.table.takes_no_delta(pid);
                self.unreadable.insert(pid, Unreadable::Damaged);
                return Ok(());
            }
        };
        self.written.moved_part_reads += self.parts_of(shared, pid).len() as u64;
        if mutant!("lss-moved-without-deltas") {
            pieces.truncate(1);
        }
        let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
        let bytes = part::bytes_for(0, pieces.iter().copied());
        self.make_place(shared, draft, bytes, Purpose::Clean)?;
        self.add(shared, draft, (Kind::Base, pid), &pieces);
        draft.moved_bytes += bytes as u64;
        Ok(())
    }

    /// Makes a checkpoint. No block is being made.
    pub fn checkpoint(&mut self, shared: &Shared, client: Option<&[u8]>) -> Result<()> {
        if !mutant!("lss-checkpoint-before-sync") {
            self.sync(shared)?;
        }
        // The next block may be the first one of the current segment.
        let current = self.current.as_ref().filter(|current| current.at != 0);
        let current = current.map(|current| current.segment);
        let segments: Vec<_> = (0..)
            .zip(&self.segments)
            .map(|(number, segment)| match segment.is_empty() && Some(number) != current {
                true => (segment.generation, State::Free),
                false => (segment.generation, segment.state),
            })
            .collect();
        let checkpoint = Checkpoint {
            store_id: self.superblock.store_id,
            number: self.superblock.checkpoint + 1,
            redo: self.redo(),
            segments,
            client: client.unwrap_or(&self.client).to_vec(),
        };
        let directory = shared.files.directory();
        let mut stored = checkpoint.store(directory, self.pages(shared));
        if stored.as_ref().is_err_and(pando_device::Error::is_full)
            && (self.free_count() > 1 || self.has_empty_segment())
        {
            self.remove_free(shared)?;
            stored = checkpoint.store(directory, self.pages(shared));
        }
        let bytes = stored.map_err(|error| self.no_file(shared, &error))?;
        self.superblock.writes += 1;
        self.superblock.checkpoint = checkpoint.number;
        let named = self.superblock.store(self.superblock_file.as_ref());
        named.map_err(|error| shared.fail(&error))?;
        // What the checkpoint says, also of a file that was removed to make room for it.
        for (segment, (_, state)) in self.segments.iter_mut().zip(&checkpoint.segments) {
            segment.is_named = *state != State::Absent;
        }
        self.client = checkpoint.client;
        if !mutant!("lss-earlier-checkpoint-kept") {
            let removed = checkpoint::remove_others(directory, checkpoint.number);
            // Without a descriptor the earlier one stays, and no segment becomes free before the
            // next checkpoint.
            removed.map_err(|error| self.no_file(shared, &error))?;
        }
        let current = self.current.as_ref().map(|current| current.segment);
        for (number, segment) in (0..).zip(&mut self.segments) {
            if segment.is_empty() && Some(number) != current {
                segment.state = State::Free;
            }
        }
        self.unreadable.retain(|_, &mut why| why == Unreadable::Damaged);
        self.since_checkpoint_bytes = 0;
        self.written.checkpoint_bytes += bytes;
        self.remove_surplus(shared)
    }

    /// Removes the files of free segments, if there are many.
    fn remove_surplus(&mut self, shared: &Shared) -> Result<()> {
        while self.free_count() > KEPT_FREE && self.has_surplus(shared) {
            self.remove_free(shared)?;
        }
        Ok(())
    }

    /// Whether there are more files than the limits allow.
    pub fn has_surplus(&self, shared: &Shared) -> bool {
        self.count(|segment| segment.state != State::Absent) as u64 > self.allowed(shared)
    }

    /// Removes the file of a free segment.
    fn remove_free(&mut self, shared: &Shared) -> Result<()> {
        let last = self.segments.iter().rposition(|segment| segment.state == State::Free);
        let Some(number) = last else { return Ok(()) };
        let removed = shared.files.remove(number as u32);
        removed.map_err(|error| shared.fail(&error))?;
        self.segments[number].state = State::Absent;
        Ok(())
    }
}
