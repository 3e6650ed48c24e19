//! The room of a pool's file. Blocks of the file system are allocated before a store to them, so no
//! store finds the file system full. Chunks that are not used may be without room: `alloc/holes.rs`
//! says when.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::Ordering;

use super::Pool;
use crate::alloc::is_hole_word;
use crate::domain::Domain;
use crate::error::{Error, Result, io_error};
use crate::layout::{CHUNK_BYTES, CHUNK_TABLE_OFF, Geometry, PAGE_BYTES, PUNCHED_OFF};
use crate::medium::Medium;
use crate::superblock;
use crate::sys::{self, HUGE_PAGE_BYTES, Mapping};
#[cfg(feature = "testing")]
use crate::testing::refusal;

/// The unit in which every file system counts the room of a file.
pub(super) const BLOCK_BYTES: u64 = 512;

impl<D: Domain> Pool<D> {
    /// Makes the pool at least `to_bytes` long.
    ///
    /// Several threads may do it at once: a second allocation does no harm, and the size only
    /// rises.
    pub(crate) fn grow(&self, to_bytes: u64) -> Result<()> {
        let size = self.word(superblock::SIZE_OFF);
        loop {
            let found = size.load(Ordering::Acquire);
            let from_bytes = superblock::size_of_word(found);
            if from_bytes >= to_bytes {
                return Ok(());
            }
            // A sixteenth at a time: few calls, and little unused room.
            let step = (from_bytes - self.geometry.chunks_off) / 16;
            let generous = (to_bytes + step.clamp(CHUNK_BYTES, 64 << 20))
                .min(self.geometry.chunk_off(self.geometry.max_chunks))
                / CHUNK_BYTES
                * CHUNK_BYTES;
            let mut target = generous.max(to_bytes);
            if let Some(file) = &self.file {
                target = self.whole_huge_pages(from_bytes, target);
                let range = from_bytes..target;
                take_huge_pages(&self.mapping, file, self.medium, &self.geometry, range);
                let extend = |to| extend(&self.path, file, &self.geometry, from_bytes, to);
                if extend(target).is_err() {
                    target = to_bytes;
                    match extend(target) {
                        // Another thread has made it, and perhaps punched a part of it since.
                        Err(_)
                            if superblock::size_of_word(size.load(Ordering::Acquire))
                                >= to_bytes =>
                        {
                            return Ok(());
                        }
                        extended => extended?,
                    }
                }
            }
            self.use_huge_pages(from_bytes, target);
            self.sync_length()?;
            // Before the size, and so before an offset in the new part is published. Relaxed: a
            // thread that uses such an offset has acquired it.
            self.end_words.fetch_max(target / 8, Ordering::Relaxed);
            // Durable before a chunk in the new part is activated: see `flush_extent`.
            let _ = size.compare_exchange(found, superblock::size_word(target));
        }
    }

    /// `to_bytes`, or more: a file in memory that grows by a huge page or more ends with a whole
    /// one.
    fn whole_huge_pages(&self, from_bytes: u64, to_bytes: u64) -> u64 {
        let whole = to_bytes.next_multiple_of(HUGE_PAGE_BYTES);
        let is_possible = matches!(self.medium, Medium::MemoryFile(_))
            && to_bytes - from_bytes >= HUGE_PAGE_BYTES
            && whole <= self.geometry.chunk_off(self.geometry.max_chunks);
        if is_possible { whole } else { to_bytes }
    }

    /// Requests huge pages for the chunks of a file in memory that has grown from `from_bytes` to
    /// `to_bytes`: for each huge page that is complete now and was not before.
    pub(super) fn use_huge_pages(&self, from_bytes: u64, to_bytes: u64) {
        if let Medium::MemoryFile(_) = self.medium {
            let begun = from_bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
            let first = begun.max(self.geometry.chunks_off);
            self.mapping.collapse_into_huge_pages(first, to_bytes);
        }
    }

    /// Makes room for chunks that are held as holes. Durable on return, if the content is durable.
    pub(crate) fn make_room(&self, first: u64, chunks: u64) -> Result<()> {
        #[cfg(feature = "testing")]
        if self.emulates_room {
            if refusal::is_refused(refusal::Resource::FileRoom) {
                // A part of the room is made before the file system is full.
                self.emulate_room(first, chunks / 2, true);
                let (from, to) =
                    (self.geometry.chunk_off(first), self.geometry.chunk_off(first + chunks));
                let source = std::io::ErrorKind::StorageFull.into();
                return Err(not_allocated(&self.path, from, to, source));
            }
            self.emulate_room(first, chunks, true);
        }
        let Some(file) = &self.file else { return Ok(()) };
        let (from, to) = (self.geometry.chunk_off(first), self.geometry.chunk_off(first + chunks));
        sys::allocate(file, from, to)
            .map_err(|source| not_allocated(&self.path, from, to, source))?;
        self.sync_length()
    }

    /// Returns the room of chunks that are held as holes to the system; false if the file system
    /// has no holes.
    pub(crate) fn give_room_back(&self, first: u64, chunks: u64) -> Result<bool> {
        #[cfg(feature = "testing")]
        {
            if refusal::is_refused(refusal::Resource::Hole) {
                return Ok(false);
            }
            if self.emulates_room {
                self.emulate_room(first, chunks, false);
                return Ok(true);
            }
        }
        let (off, bytes) = (self.geometry.chunk_off(first), chunks * CHUNK_BYTES);
        let given = match &self.file {
            Some(file) => sys::punch(file, off, bytes),
            None => self.mapping.discard(off, bytes),
        };
        given.map_err(io_error(&self.path, "return room to the system"))
    }

    /// Bytes that the file takes on its file system; without a file, the bytes of the pool without
    /// its holes. Costs a system call.
    pub fn occupied_bytes(&self) -> Result<u64> {
        let Some(file) = &self.file else {
            let punched_bytes = self.word(PUNCHED_OFF).load(Ordering::Acquire) * CHUNK_BYTES;
            return Ok(self.size_bytes().saturating_sub(punched_bytes));
        };
        let metadata = file.metadata().map_err(io_error(&self.path, "measure the file"))?;
        Ok(metadata.blocks() * BLOCK_BYTES)
    }

    /// Bytes that a file in memory takes and its pool does not need: the system has kept the room
    /// of some holes. Zero on other media. Costs a system call.
    pub(crate) fn kept_bytes(&self) -> Result<u64> {
        // In a test's memory holes are always punched again, so that explorations see it.
        #[cfg(feature = "testing")]
        if self.emulates_room {
            return Ok(CHUNK_BYTES);
        }
        let (Some(_), Medium::MemoryFile(_)) = (&self.file, self.medium) else { return Ok(0) };
        let punched_chunks = self.word(PUNCHED_OFF).load(Ordering::Acquire);
        let needed = needed_bytes(&self.geometry, self.size_bytes(), punched_chunks);
        Ok(self.occupied_bytes()?.saturating_sub(needed))
    }

    /// Whether to punch holes again of which the system keeps so many bytes: a chunk more than the
    /// last punches have left. Less is no hole, since the system counts in pages.
    pub(crate) fn may_return_kept(&self, kept_bytes: u64) -> bool {
        #[cfg(feature = "testing")]
        if self.emulates_room {
            return true;
        }
        // Relaxed, also below: a hint. It falls with what is kept, so that more is noticed later.
        let left = self.kept_bytes_left.fetch_min(kept_bytes, Ordering::Relaxed);
        kept_bytes >= left.saturating_add(CHUNK_BYTES)
    }

    /// Holes were punched again, and of so many bytes of them the system returns nothing.
    pub(crate) fn note_kept(&self, kept_bytes: u64) {
        self.kept_bytes_left.store(kept_bytes, Ordering::Relaxed);
    }

    /// Truncates the file to `bytes`, the end of the pool.
    pub(crate) fn truncate(&self, bytes: u64) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.set_len(bytes).map_err(io_error(&self.path, "cut the file"))?;
        self.sync_length()
    }

    /// Whether holes may be punched now: in a file in memory, a load from a hole takes room, and an
    /// optimistic read may load from one.
    pub(crate) fn may_have_holes(&self) -> bool {
        !matches!(self.medium, Medium::MemoryFile(_))
            || !self.had_optimistic_reads.load(Ordering::SeqCst)
    }

    /// Notes that an optimistic read begins.
    #[inline(always)]
    pub(crate) fn note_optimistic_read(&self) {
        // Relaxed: a thread that sees it set comes after the store below.
        if !self.had_optimistic_reads.load(Ordering::Relaxed) {
            self.had_optimistic_reads.store(true, Ordering::SeqCst);
            std::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    /// In a test's memory: the word that says whether a chunk has no room, after the chunk table.
    /// Changes of the file system are durable, so the word is flushed.
    #[cfg(feature = "testing")]
    fn room_word_off(&self, chunk: u64) -> Option<u64> {
        let off = self.geometry.chunks_off - 8 * (chunk + 1);
        (off >= self.geometry.chunk_word_off(self.geometry.max_chunks)).then_some(off)
    }

    #[cfg(feature = "testing")]
    fn emulate_room(&self, first: u64, chunks: u64, has_room: bool) {
        for off in (first..first + chunks).filter_map(|chunk| self.room_word_off(chunk)) {
            self.word(off).store(u64::from(!has_room), Ordering::Release);
            self.word(off).flush();
        }
        D::fence();
    }

    /// In a test's memory, while no thread uses the pool: checks that each chunk that is no hole
    /// has room, and that the count of punched chunks is not larger than the number without room.
    #[cfg(feature = "testing")]
    pub fn check_holes(&self) -> std::result::Result<(), String> {
        let mut without_room = 0;
        for chunk in 0..self.frontier() {
            let lacks_room = |off| self.word(off).load(Ordering::Acquire) != 0;
            if self.room_word_off(chunk).is_some_and(lacks_room) {
                if !is_hole_word(self.chunk_word(chunk).load(Ordering::Acquire)) {
                    return Err(format!("chunk {chunk} has no room, and is no hole"));
                }
                without_room += 1;
            }
        }
        // An interrupted claim, or a hole that has room, may make the count negative.
        let counted = self.word(PUNCHED_OFF).load(Ordering::Acquire) as i64;
        if counted > without_room {
            return Err(format!(
                "{counted} chunks are counted as punched, {without_room} have no room"
            ));
        }
        Ok(())
    }

    /// Panics where a store would be a SIGBUS, in a file on a full file system.
    #[cfg(feature = "testing")]
    pub(super) fn check_room(&self, off: u64) {
        if self.emulates_room
            && let Some(chunk) = self.geometry.chunk_of(off)
            && let Some(word_off) = self.room_word_off(chunk)
        {
            let lacks_room = self.word(word_off).load(Ordering::Acquire);
            assert_eq!(lacks_room, 0, "chunk {chunk} is written to and has no room");
        }
    }

    /// Makes the file's length durable, if its content is: after a power cut, the superblock must
    /// not have a larger size than the file.
    fn sync_length(&self) -> Result<()> {
        match (&self.file, self.medium) {
            (Some(file), Medium::Dax { .. }) => {
                file.sync_data().map_err(io_error(&self.path, "sync the file"))
            }
            _ => Ok(()),
        }
    }

    /// Makes all earlier writes durable.
    pub(super) fn sync_data(&self) -> Result<()> {
        #[cfg(feature = "testing")]
        if refusal::is_refused(refusal::Resource::Sync) {
            let refused = std::io::Error::from_raw_os_error(libc::EIO);
            return Err(io_error(&self.path, "sync the file")(refused));
        }
        match &self.file {
            Some(file) if self.medium.outlives_machine() => {
                file.sync_data().map_err(io_error(&self.path, "sync the file"))
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn not_allocated(
    path: &Path,
    from_bytes: u64,
    to_bytes: u64,
    source: std::io::Error,
) -> Error {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match source.kind() {
        StorageFull | QuotaExceeded => Error::FileSystemFull { from_bytes, to_bytes, source },
        FileTooLarge => {
            Error::FileTooLarge { path: path.to_path_buf(), from_bytes, to_bytes, source }
        }
        _ => io_error(path, "allocate room in the file")(source),
    }
}

/// The end of the used part of the chunk table in a pool of `size_bytes`, in whole pages.
pub(super) fn table_end(geometry: &Geometry, size_bytes: u64) -> u64 {
    let chunks = (size_bytes - geometry.chunks_off) / CHUNK_BYTES;
    geometry.chunk_word_off(chunks).next_multiple_of(PAGE_BYTES)
}

/// Makes room for the part of a file in memory from byte `from` to byte `to` in huge pages, as far
/// as the system gives them. [`extend`] makes the room that is missing then, and reports errors.
///
/// The system clears a huge page once. Small pages would be cleared, copied to a huge one, and
/// freed.
pub(super) fn take_huge_pages(
    mapping: &Mapping,
    file: &File,
    medium: Medium,
    geometry: &Geometry,
    chunks: Range<u64>,
) {
    let Medium::MemoryFile(_) = medium else { return };
    let Range { start, end } = chunks;
    let table = table_part(geometry, start, end);
    // Unlike `extend`, this would leave a part of the room behind when the file system gets full.
    // The table's room comes first: without it, the rest could not be used.
    if sys::free_bytes(file).is_ok_and(|free| free / 2 >= end - start)
        && sys::allocate_unrefused(file, table.start, table.end).is_ok()
        && sys::allocate_first_pages(file, start, end).is_ok()
    {
        mapping.collapse_into_huge_pages(start, end);
    }
}

/// The part of the chunk table that the chunks from byte `from` to byte `to` need, without the page
/// that holds the end of the former part: it exists already.
fn table_part(geometry: &Geometry, from: u64, to: u64) -> Range<u64> {
    let is_first = from == geometry.chunks_off;
    let start = if is_first { CHUNK_TABLE_OFF } else { table_end(geometry, from) };
    start..table_end(geometry, to).max(start)
}

/// Allocates the chunks from byte `from` to byte `to`, and their part of the chunk table.
pub(super) fn extend(
    path: &Path,
    file: &File,
    geometry: &Geometry,
    from: u64,
    to: u64,
) -> Result<()> {
    let table = table_part(geometry, from, to);
    sys::allocate(file, table.start, table.end)
        .and_then(|()| sys::allocate(file, from, to))
        .map_err(|source| not_allocated(path, from, to, source))
}

/// Bytes that the file of a pool of `size_bytes` takes, without the chunks that are counted as
/// punched.
pub(super) fn expected_bytes(
    path: &Path,
    file: &File,
    geometry: &Geometry,
    size_bytes: u64,
) -> Result<u64> {
    let mut count = [0; 8];
    file.read_exact_at(&mut count, PUNCHED_OFF).map_err(io_error(path, "read the file"))?;
    Ok(needed_bytes(geometry, size_bytes, u64::from_le_bytes(count)))
}

/// The same, with the count.
fn needed_bytes(geometry: &Geometry, size_bytes: u64, punched_chunks: u64) -> u64 {
    let chunks_bytes = size_bytes - geometry.chunks_off;
    // A larger count than chunks exist is damaged, or comes from a claim that a crash interrupted.
    // Then all chunks are checked.
    let punched_bytes = punched_chunks.saturating_mul(CHUNK_BYTES);
    let punched_bytes = if punched_bytes > chunks_bytes { 0 } else { punched_bytes };
    table_end(geometry, size_bytes) + chunks_bytes - punched_bytes
}

/// Words of the chunk table that are read at once.
const TABLE_PART: u64 = 8192;

/// Makes room for the chunk table and for all chunks that are no holes; punches the holes, and
/// stores their count.
pub(super) fn restore(
    path: &Path,
    file: &File,
    geometry: &Geometry,
    size_bytes: u64,
) -> Result<()> {
    let refused = |to| move |source| not_allocated(path, CHUNK_TABLE_OFF, to, source);
    let table_end = table_end(geometry, size_bytes);
    sys::allocate(file, CHUNK_TABLE_OFF, table_end).map_err(refused(table_end))?;
    let chunks = (size_bytes - geometry.chunks_off) / CHUNK_BYTES;
    let mut holes: u64 = 0;
    for part in (0..chunks).step_by(TABLE_PART as usize) {
        let count = TABLE_PART.min(chunks - part);
        let mut bytes = vec![0; count as usize * 8];
        let at = geometry.chunk_word_off(part);
        file.read_exact_at(&mut bytes, at).map_err(io_error(path, "read the file"))?;
        let words = bytes.as_chunks::<8>().0.iter();
        let is_hole: Vec<bool> =
            words.map(|&word| is_hole_word(u64::from_le_bytes(word))).collect();
        let mut first = part;
        for run in is_hole.chunk_by(|left, right| left == right) {
            let end = first + run.len() as u64;
            let (from, to) = (geometry.chunk_off(first), geometry.chunk_off(end));
            if run[0] {
                sys::punch(file, from, to - from).map_err(io_error(path, "punch a hole"))?;
                holes += end - first;
            } else {
                sys::allocate(file, from, to).map_err(refused(to))?;
            }
            first = end;
        }
    }
    file.write_all_at(&holes.to_le_bytes(), PUNCHED_OFF).map_err(io_error(path, "write the file"))
}
