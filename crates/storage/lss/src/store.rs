//! The page store, as its users see it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use pando_device::Directory;
use pando_pmem::mutant;

use crate::address::Address;
use crate::block;
use crate::checkpoint::{Checkpoint, MAX_CLIENT_BYTES, Redo, State};
use crate::error::{Error, Result};
use crate::files::{self, Unread};
use crate::part::{Kind, MAX_PAGE_BYTES, MAX_PARTS, PIECE_COSTS_BYTES};
use crate::queue::{Refusal, Slot, Write};
use crate::recovery::{self, Found};
use crate::shared::{PageStoreOptions, Shared};
use crate::state::Writer;
use crate::superblock::{self, Superblock};
use crate::table::Extent;
use crate::writer;

/// Groups of so many bytes wait in the queue at most, before an append writes them itself.
const MOST_QUEUED_BYTES: usize = 32 << 20;
/// The fewest segments with which a store can be cleaned.
const LEAST_SEGMENTS: u64 = 4;

/// Writes that take effect together.
///
/// After a crash the store has all writes of a group or none. A reader of several pages may see one
/// page before the group and another one after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group(Vec<Write>);

impl Group {
    /// A group without writes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The page consists of `bytes` alone. It exists then.
    #[must_use]
    pub fn base(self, pid: u32, bytes: impl Into<Vec<u8>>) -> Self {
        self.with(Kind::Base, pid, bytes.into())
    }

    /// The page goes on with `bytes`. It must exist, with fewer than
    /// [`MAX_PARTS`](crate::MAX_PARTS) parts.
    #[must_use]
    pub fn delta(self, pid: u32, bytes: impl Into<Vec<u8>>) -> Self {
        self.with(Kind::Delta, pid, bytes.into())
    }

    /// The page exists no longer.
    #[must_use]
    pub fn free(self, pid: u32) -> Self {
        self.with(Kind::Free, pid, Vec::new())
    }

    fn with(mut self, kind: Kind, pid: u32, bytes: Vec<u8>) -> Self {
        self.0.push(Write { kind, pid, bytes });
        self
    }
}

/// A group that was appended.
#[derive(Clone, Debug)]
pub struct Ticket(Arc<Slot>);

/// Numbers of a page store. Bytes written are counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// Pages that exist.
    pub pages: u64,
    /// Those of one part, of two, and so on.
    pub pages_by_parts: [u64; MAX_PARTS],
    /// Bytes of the parts that they consist of.
    pub live_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Files of segments.
    pub segments: u64,
    /// Files of segments that can be written anew.
    pub free_segments: u64,
    /// Bytes of the bases and deltas that callers have written.
    pub appended_bytes: u64,
    /// Bytes of all blocks: with their heads, and with the pages that cleaning has moved.
    pub block_bytes: u64,
    /// Bytes of the pages that cleaning has moved.
    pub moved_bytes: u64,
    /// Segments that cleaning has emptied.
    pub cleaned_segments: u64,
    /// Bytes of checkpoints.
    pub checkpoint_bytes: u64,
    /// Bytes of blocks since the last checkpoint, which an opening would read.
    pub tail_bytes: u64,
    /// Parts that were read, for readers of pages and for cleaning.
    pub part_reads: u64,
    /// Those of them that cleaning has read.
    pub moved_part_reads: u64,
}

/// The room that the pages take on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the parts of which the pages consist.
    pub live_bytes: u64,
    /// Bytes of the files of segments.
    pub file_bytes: u64,
}

/// A log-structured store of pages. Any number of threads may use it at once.
#[derive(Debug)]
pub struct PageStore {
    shared: Shared,
    writer: Mutex<Writer>,
    /// The numbers of the last [`space`](Self::space).
    space: [AtomicU64; 2],
}

fn check_options(options: &PageStoreOptions) -> Result<()> {
    let limit = |what, found, allowed: String| Err(Error::Limit { what, found, allowed });
    let PageStoreOptions { segment_bytes, ceiling_percent, max_bytes, .. } = *options;
    if !superblock::is_segment_size(segment_bytes) {
        let (least, most) = superblock::SEGMENT_BYTES.into_inner();
        let allowed = format!("{least} to {most}, a multiple of {}", block::BLOCK_ALIGN);
        return limit("segment_bytes", segment_bytes, allowed);
    }
    if !(120..=10_000).contains(&ceiling_percent) {
        return limit("ceiling_percent", ceiling_percent.into(), "120 to 10,000".to_owned());
    }
    if max_bytes / segment_bytes < LEAST_SEGMENTS {
        let allowed = format!("{LEAST_SEGMENTS} segments of {segment_bytes} bytes, or more");
        return limit("max_bytes", max_bytes, allowed);
    }
    Ok(())
}

impl PageStore {
    /// Creates an empty store in `directory`, which must have no file of a store. `store_id` must
    /// be a random number. Durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`], [`Error::NotEmpty`], or what the device answers.
    pub fn create(
        directory: Arc<dyn Directory>,
        store_id: u128,
        options: PageStoreOptions,
    ) -> Result<Self> {
        check_options(&options)?;
        let found = Superblock::find(directory.as_ref())?.map(|_| superblock::NAME.to_owned());
        let names = directory.names()?;
        let is_ours = |name: &String| files::number_of(name).is_some();
        if let Some(name) = found.or_else(|| names.into_iter().find(is_ours)) {
            return Err(Error::NotEmpty { path: directory.path(), name });
        }
        let segment_bytes = options.segment_bytes;
        let redo = Redo { sequence: 1, ..Redo::default() };
        let first = Checkpoint { store_id, number: 1, redo, ..Checkpoint::default() };
        first.store(directory.as_ref(), std::iter::empty())?;
        let new = Superblock { store_id, writes: 0, checkpoint: 1, segment_bytes, openings: 0 };
        new.create(directory.as_ref())?;
        Ok(Self::open(directory, options)?.0)
    }

    /// Whether `directory` has the superblock of a store, whole or damaged. Nothing is written.
    ///
    /// # Errors
    ///
    /// What the device answers.
    pub fn is_in(directory: &dyn Directory) -> Result<bool> {
        Ok(directory.names()?.iter().any(|name| name == superblock::NAME))
    }

    /// Opens the store in `directory`. Of the options, `segment_bytes` is ignored: the store has
    /// its own. No other store object may use the directory at the same time, in any process.
    ///
    /// It reads the last checkpoint and all blocks behind it.
    ///
    /// # Errors
    ///
    /// [`Error::NotAStore`]; [`Error::Damaged`] if something is missing that was durable;
    /// [`Error::Limit`], or what the device answers.
    pub fn open(directory: Arc<dyn Directory>, options: PageStoreOptions) -> Result<(Self, Found)> {
        let (shared, writer, found) = recovery::open(directory, options)?;
        check_options(&shared.options)?;
        let space = Default::default();
        let store = Self { shared, writer: Mutex::new(writer), space };
        store.space();
        Ok((store, found))
    }

    /// The lock of the writer.
    fn writer(&self) -> Result<MutexGuard<'_, Writer>> {
        self.writer.lock().map_err(|_| {
            let source = std::io::Error::other("a thread has panicked while it wrote");
            let (operation, path) = (pando_device::Operation::Write, String::from("the store"));
            self.shared.fail(&pando_device::Error { operation, path, source })
        })
    }

    /// The most bytes of a group, with 128 bytes more for each of its writes.
    pub fn most_group_bytes(&self) -> usize {
        self.shared.most_group_bytes()
    }

    /// Appends a group. It is written with later ones, or by [`wait`](Self::wait) or
    /// [`sync`](Self::sync). Groups take effect in the order of their appends.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] if the group or a write is too long, [`Error::Failed`].
    pub fn append(&self, group: Group) -> Result<Ticket> {
        let mut group = self.check(group)?;
        loop {
            let slot = self.shared.reserve();
            match self.shared.fill(&slot, group) {
                Ok(()) => break self.write_if_many().map(|()| Ticket(slot)),
                Err(back) => group = back,
            }
        }
    }

    /// Appends the group that `make` returns, if it returns one. It is called after the place of
    /// the group was fixed. So if two threads have captured a page, and each of them looks there
    /// whether the page is as it was, the later state gets the later place.
    ///
    /// Unlike [`append`](Self::append) it never writes, so the caller should [`wait`](Self::wait).
    ///
    /// Returns `None` if `make` did, or if the thread stopped in it for so long that the writer has
    /// abandoned the place. Then capture the pages again.
    ///
    /// # Errors
    ///
    /// Those of `make`; otherwise as [`append`](Self::append).
    pub fn append_with<E: From<Error>>(
        &self,
        make: impl FnOnce() -> Result<Option<Group>, E>,
    ) -> Result<Option<Ticket>, E> {
        self.shared.check_failed()?;
        let (slot, made) = match mutant!("lss-checked-before-reserved") {
            true => {
                let made = make();
                (self.shared.reserve(), made)
            }
            false => (self.shared.reserve(), make()),
        };
        let made = made.and_then(|made| Ok(made.map(|group| self.check(group)).transpose()?));
        let is_filled = match made {
            Ok(Some(group)) => self.shared.fill(&slot, group).is_ok(),
            Ok(None) => slot.take().is_some(),
            Err(error) => {
                slot.take();
                return Err(error);
            }
        };
        Ok(is_filled.then_some(Ticket(slot)))
    }

    fn check(&self, group: Group) -> Result<Vec<Write>> {
        self.shared.check_failed()?;
        let mut bytes = block::HEADER_BYTES;
        for write in &group.0 {
            let page_bytes = write.bytes.len() + PIECE_COSTS_BYTES;
            if page_bytes > MAX_PAGE_BYTES {
                let (found, most) = (write.bytes.len() as u64, MAX_PAGE_BYTES - PIECE_COSTS_BYTES);
                let allowed = format!("at most {most} bytes");
                return Err(Error::Limit { what: "a base or delta", found, allowed });
            }
            bytes += writer::most_bytes(write);
        }
        let most = self.shared.most_group_bytes();
        if bytes > most {
            let allowed = format!("at most {most} bytes, half a segment");
            return Err(Error::Limit { what: "a group", found: bytes as u64, allowed });
        }
        Ok(group.0)
    }

    /// Writes what is in the queue, if that fills a block. The groups have outcomes for their
    /// tickets, so only a store that has failed is told here.
    fn write_if_many(&self) -> Result<()> {
        let queued_bytes = self.shared.queued_bytes();
        if queued_bytes > MOST_QUEUED_BYTES {
            self.writer()?.write_queue(&self.shared)?;
        } else if queued_bytes > block::WANTED_BYTES
            && let Ok(mut writer) = self.writer.try_lock()
        {
            writer.write_queue(&self.shared)?;
        }
        Ok(())
    }

    /// Returns when the group is written: readers see it. It is not durable before a
    /// [`sync`](Self::sync) or a [`checkpoint`](Self::checkpoint).
    ///
    /// # Errors
    ///
    /// The group was not written: [`Error::NeedsBase`], [`Error::Full`]. It is not known whether it
    /// was: [`Error::Failed`]. The next opening tells.
    pub fn wait(&self, ticket: &Ticket) -> Result<()> {
        if ticket.0.outcome().is_none() {
            let written = self.writer()?.write_queue(&self.shared);
            if ticket.0.outcome().is_none() {
                written?;
            }
        }
        match ticket.0.outcome() {
            Some(Ok(())) => Ok(()),
            Some(&Err(Refusal::NeedsBase(pid, why))) => Err(Error::NeedsBase { pid, why }),
            Some(Err(Refusal::Full)) => Err(self.writer()?.full(&self.shared)),
            Some(Err(Refusal::Failed)) | None => {
                self.shared.check_failed()?;
                Err(Error::Failed {
                    path: self.shared.files.directory().path(),
                    cause: "another write has failed".to_owned(),
                })
            }
        }
    }

    /// Makes all groups durable that were appended before the call. One that was refused is not
    /// written; its ticket tells that.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`]: groups that were not durable before may be lost.
    pub fn sync(&self) -> Result<()> {
        let mut writer = self.writer()?;
        writer.write_queue(&self.shared)?;
        writer.sync(&self.shared)
    }

    /// Makes a checkpoint: an opening begins there. `client` are bytes that it gives back then, at
    /// most [`MAX_CLIENT_BYTES`]. All groups that were appended before the call are durable on
    /// return.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`], [`Error::Full`], [`Error::Failed`].
    pub fn checkpoint(&self, client: &[u8]) -> Result<()> {
        if client.len() > MAX_CLIENT_BYTES {
            let allowed = format!("at most {MAX_CLIENT_BYTES}");
            let (what, found) = ("the length of the caller's bytes", client.len() as u64);
            return Err(Error::Limit { what, found, allowed });
        }
        let mut writer = self.writer()?;
        writer.write_queue(&self.shared)?;
        writer.checkpoint(&self.shared, Some(client))
    }

    /// Moves the pages out of the segments that have the fewest bytes of them, and makes a
    /// checkpoint. Appends do that by themselves when the ceiling is reached. Returns false if no
    /// segment became empty.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], [`Error::Failed`].
    pub fn clean(&self) -> Result<bool> {
        let mut writer = self.writer()?;
        writer.write_queue(&self.shared)?;
        let has_cleaned = writer.clean(&self.shared)?;
        writer.checkpoint(&self.shared, None)?;
        Ok(has_cleaned)
    }

    /// The same, if the files are more than the ceiling allows. Returns false if they are not, or
    /// if no segment became empty.
    ///
    /// # Errors
    ///
    /// As [`clean`](Self::clean).
    pub fn clean_surplus(&self) -> Result<bool> {
        let has_surplus = self.writer()?.has_surplus(&self.shared);
        Ok(has_surplus && self.clean()?)
    }

    /// Reads a page: its pieces, oldest first. Each is what a base or a delta was written with.
    /// `None` if the page does not exist. A group that is not written yet is not seen.
    ///
    /// # Errors
    ///
    /// [`Error::DamagedPage`], or what the device answers.
    pub fn read(&self, pid: u32) -> Result<Option<Vec<Vec<u8>>>> {
        loop {
            let Some(newest) = self.shared.table.get(pid) else { return Ok(None) };
            match self.shared.files.read_page(pid, newest) {
                Ok(pieces) => return Ok(Some(pieces)),
                Err(unread) => self.check_named(pid, newest, unread)?,
            }
        }
    }

    /// An error if the table still names the part that could not be read. If not, the page has
    /// changed, and its segment was perhaps written anew.
    fn check_named(&self, pid: u32, newest: Address, unread: Unread) -> Result<()> {
        match self.shared.table.get(pid) == Some(newest) {
            true => Err(self.shared.files.error_of(pid, unread)),
            false => Ok(()),
        }
    }

    /// What the store has of a page, now or shortly before; `None` if the page does not exist. Only
    /// a hint: groups that are not written yet are not seen. Waits for nothing.
    pub fn extent(&self, pid: u32) -> Option<Extent> {
        self.shared.table.extent(pid)
    }

    /// Where the newest part of a page is, as a number; `None` if the page does not exist. It is
    /// another one after each write and each move of the page. Waits for nothing.
    pub fn place(&self, pid: u32) -> Option<u64> {
        self.shared.table.get(pid).map(Address::word)
    }

    /// The PIDs of the pages that exist, ascending, each as of some instant of the call.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.shared.table.pages().map(|(pid, _)| pid)
    }

    /// Reads all pages; those that cannot be read, each with its error.
    pub fn check_pages(&self) -> Vec<(u32, Error)> {
        self.pids().filter_map(|pid| Some((pid, self.read(pid).err()?))).collect()
    }

    /// The room that the pages take. Reads the table of segments. While a thread writes, it is that
    /// of an earlier call: no call waits for the device.
    pub fn space(&self) -> Space {
        // Relaxed: two numbers for people, from about the same time.
        let [live_bytes, file_bytes] = &self.space;
        if let Ok(writer) = self.writer.try_lock() {
            let segments = writer.count(|segment| segment.state != State::Absent) as u64;
            live_bytes.store(writer.live_bytes(), Ordering::Relaxed);
            file_bytes.store(segments * self.shared.files.segment_bytes(), Ordering::Relaxed);
        }
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Space { live_bytes: read(live_bytes), file_bytes: read(file_bytes) }
    }

    /// Numbers of the store. Reads the table of pages.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if a thread has panicked while it wrote.
    pub fn stat(&self) -> Result<Stat> {
        let writer = self.writer()?;
        let written = writer.written;
        let mut pages_by_parts = [0; MAX_PARTS];
        for (pid, _) in self.shared.table.pages() {
            let extent = self.shared.table.extent(pid);
            pages_by_parts[extent.map_or(1, |extent| extent.parts) - 1] += 1;
        }
        Ok(Stat {
            pages: pages_by_parts.iter().sum(),
            pages_by_parts,
            live_bytes: writer.live_bytes(),
            segment_bytes: self.shared.files.segment_bytes(),
            segments: writer.count(|segment| segment.state != State::Absent) as u64,
            free_segments: writer.count(|segment| segment.state == State::Free) as u64,
            appended_bytes: written.appended_bytes,
            block_bytes: written.block_bytes,
            moved_bytes: written.moved_bytes,
            cleaned_segments: written.cleaned_segments,
            checkpoint_bytes: written.checkpoint_bytes,
            tail_bytes: writer.since_checkpoint_bytes,
            // Relaxed: only the number matters.
            part_reads: self.shared.files.part_reads.load(Ordering::Relaxed),
            moved_part_reads: written.moved_part_reads,
        })
    }
}
