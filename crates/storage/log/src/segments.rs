//! The segments: files that hold the blocks of the log.
//!
//! A segment is made when its first block is to be written. It is made under another name, filled
//! with zeros and synced. It gets its name by a rename that fails if a file has the name already,
//! so of two threads that make one segment the slower one uses the other's. Then the directory is
//! synced, and only then is the first block written. A later block finds the name durable: it was
//! sealed when the first one was durable.
//!
//! No two threads sync one handle: Linux reports a failed write-back once for each handle, so one
//! of them could be told that all is well. A thread takes the handle of the last writer, if that
//! has given it back, or opens the segment.
//!
//! # Truncation
//!
//! A segment is not needed if a later one begins with a durable block at or below the LSN from
//! which the log would be read. It becomes a spare, or is removed. A spare is renamed to a new
//! segment later, with the blocks of its former life in it: their places are no longer right. The
//! segments that log writers have announced are removed and never become spares ([the
//! crate](crate), "A late log writer").
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | rename to `spare-N`, or remove | segments that are not needed, which the next truncation finds |
//! | rename `spare-N` to a new segment; sync the directory | a spare, or a segment without a block |

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pando_device::{Directory, File, Operation};
use pando_pmem::mutant;

use crate::block::{self, BLOCK_ALIGN, Header};
use crate::error::{Error, Result};

const SEGMENT: &str = "segment-";
const SPARE: &str = "spare-";
const NEW: &str = "new-";

/// Spares that are kept.
const SPARES: usize = 2;

/// The name of segment `number`.
pub(crate) fn name_of(number: u64) -> String {
    format!("{SEGMENT}{number:016x}")
}

/// The number of the segment, or spare, that has this name; only the name that [`name_of`] gives.
fn number_of(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    // As many segments as there are places for, with room behind the last.
    (format!("{number:016x}") == digits && number < u64::from(u32::MAX)).then_some(number)
}

/// Creates a file in the directory of a log, under a name that no other thread or process uses. It
/// is removed when the log is opened, unless it has got another name by then.
///
/// # Errors
///
/// What the system answers.
pub fn create_unnamed(directory: &dyn Directory) -> Result<(String, Box<dyn File>)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        // Relaxed: a number that no other thread of the process gets.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{NEW}{}-{number}", std::process::id());
        match directory.create(&name) {
            // Left by an earlier process of that number.
            Err(error) if error.is_taken() => {}
            created => return Ok((name, created?)),
        }
    }
}

/// Removes the files that were being made when a process died.
pub(crate) fn remove_unnamed(directory: &dyn Directory) -> Result<()> {
    for name in directory.names()?.iter().filter(|name| name.starts_with(NEW)) {
        directory.remove(name)?;
    }
    Ok(())
}

/// The numbers of all segments, ascending.
pub(crate) fn numbers(directory: &dyn Directory) -> Result<Vec<u64>> {
    let names = directory.names()?;
    let mut numbers: Vec<_> = names.iter().filter_map(|name| number_of(name, SEGMENT)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The segments and spares in a directory, by name.
pub(crate) fn names(directory: &dyn Directory) -> Result<Vec<String>> {
    let mut names = directory.names()?;
    names.retain(|name| name.starts_with(SEGMENT) || name.starts_with(SPARE));
    Ok(names)
}

/// The file of segment `number`, to be read and written, if there is one.
pub(crate) fn existing(directory: &dyn Directory, number: u64) -> Result<Option<Box<dyn File>>> {
    if_present(directory.open(&name_of(number)))
}

/// The same, to be read alone: a backup may be on a file system that cannot be written.
pub(crate) fn readable(directory: &dyn Directory, number: u64) -> Result<Option<Box<dyn File>>> {
    if_present(directory.open_read_only(&name_of(number)))
}

fn if_present(opened: pando_device::Result<Box<dyn File>>) -> Result<Option<Box<dyn File>>> {
    match opened {
        Err(error) if error.is_not_found() => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

/// Whether a header is what a reader looks for.
pub(crate) type Wanted<'call> = &'call dyn Fn(&Header) -> bool;

/// The block at `at` of a segment, with its bytes; `None` if there is none, if it is damaged, or if
/// it is not `wanted`.
pub(crate) fn read_block(
    file: &dyn File,
    at: u64,
    segment_bytes: u64,
    wanted: Wanted<'_>,
) -> Result<Option<(block::Block, Vec<u8>)>> {
    let end = file.size_bytes()?.min(segment_bytes);
    if at.saturating_add(BLOCK_ALIGN) > end {
        return Ok(None);
    }
    let mut bytes = vec![0; BLOCK_ALIGN as usize];
    file.read_at(&mut bytes, at)?;
    let is_wanted = block::header(&bytes).is_some_and(|header| wanted(&header));
    let length = block::length(&bytes).filter(|&length| is_wanted && at + length as u64 <= end);
    let Some(length) = length else { return Ok(None) };
    let first = bytes.len().min(length);
    bytes.resize(length, 0);
    file.read_at(&mut bytes[first..], at + first as u64)?;
    Ok(block::decode(&bytes).map(|block| (block, bytes)))
}

/// The header of the first block of segment `number`, if there is a block of the log `log_id`.
pub(crate) fn first_header(
    directory: &dyn Directory,
    log_id: u128,
    number: u64,
    segment_bytes: u64,
) -> Result<Option<Header>> {
    let Some(file) = readable(directory, number)? else { return Ok(None) };
    let is_ours =
        |header: &Header| header.log_id == log_id && header.place == number * segment_bytes;
    let block = read_block(file.as_ref(), 0, segment_bytes, &is_ours)?;
    Ok(block.map(|(block, _)| block.header))
}

/// Makes the names in `directory` durable.
///
/// # Errors
///
/// [`Error::Failed`]: what the sync covered may be lost, and another sync would prove nothing.
/// [`Error::Device`]: no sync has begun, as without a descriptor for it.
pub(crate) fn sync_names(directory: &dyn Directory) -> Result<()> {
    directory.sync().map_err(|error| match error.operation {
        Operation::SyncDirectory => Error::Failed { path: directory.path() },
        _ => error.into(),
    })
}

/// The segments of an open log.
#[derive(Debug)]
pub(crate) struct Segments {
    directory: Arc<dyn Directory>,
    log_id: u128,
    segment_bytes: u64,
    /// The segment that was written last, while no thread writes it. If it is removed meanwhile,
    /// its room is free when the next block is written.
    idle: Mutex<Option<Segment>>,
}

/// A handle of a segment, which one thread writes and syncs.
#[derive(Debug)]
pub(crate) struct Segment {
    number: u64,
    file: Box<dyn File>,
}

impl Segment {
    /// Writes the bytes of a block at `at`, and syncs them.
    pub fn write(&self, bytes: &[u8], at: u64) -> pando_device::Result<()> {
        self.file.write_at(bytes, at)?;
        match mutant!("log-not-synced") {
            true => Ok(()),
            false => self.file.sync(),
        }
    }
}

impl Segments {
    /// The segments in `directory`; files that were being made are removed.
    pub fn open(directory: Arc<dyn Directory>, log_id: u128, segment_bytes: u64) -> Result<Self> {
        remove_unnamed(directory.as_ref())?;
        Ok(Self { directory, log_id, segment_bytes, idle: Mutex::default() })
    }

    pub fn directory(&self) -> &Arc<dyn Directory> {
        &self.directory
    }

    /// The segment for a block at `place`: made if the block is to be its first. Its name is
    /// durable on return. `None` if there is no file, and `is_needed` says that another thread has
    /// written the block meanwhile.
    pub fn segment_for(&self, place: u64, is_needed: &dyn Fn() -> bool) -> Result<Option<Segment>> {
        let (number, at) = (place / self.segment_bytes, place % self.segment_bytes);
        // The name of a segment that has been written is durable. A thread that stopped may hold
        // the lock.
        let idle = self.idle.try_lock().ok().and_then(|mut idle| idle.take());
        if let Some(segment) = idle.filter(|segment| segment.number == number && at != 0) {
            return Ok(Some(segment));
        }
        let file = match existing(self.directory.as_ref(), number)? {
            Some(file) => file,
            None if !is_needed() => return Ok(None),
            None if at == 0 => self.make(number)?,
            None => {
                return Err(Error::Damaged {
                    path: format!("{}/{}", self.directory.path(), name_of(number)),
                    what: "the file is missing, and the log was being written there".to_owned(),
                });
            }
        };
        if at == 0 {
            sync_names(self.directory.as_ref())?;
        }
        Ok(Some(Segment { number, file }))
    }

    /// Gives a segment to the next writer. All its writes and syncs have succeeded.
    pub fn give_back(&self, segment: Segment) {
        if let Ok(mut idle) = self.idle.try_lock() {
            *idle = Some(segment);
        }
    }

    fn make(&self, number: u64) -> Result<Box<dyn File>> {
        let name = name_of(number);
        let names = self.directory.names()?;
        for spare in names.iter().filter(|name| number_of(name, SPARE).is_some()) {
            match self.directory.rename(spare, &name) {
                Ok(()) => break,
                // Another thread has used the spare, or made the segment.
                Err(error) if error.is_not_found() || error.is_taken() => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(file) = existing(self.directory.as_ref(), number)? {
            return Ok(file);
        }
        let (new, file) = create_unnamed(self.directory.as_ref())?;
        let made = file.allocate(self.segment_bytes).and_then(|()| file.sync());
        match made.and_then(|()| self.directory.rename(&new, &name)) {
            Ok(()) => Ok(file),
            Err(error) => {
                self.directory.remove(&new)?;
                match existing(self.directory.as_ref(), number)? {
                    Some(file) if error.is_taken() => Ok(file),
                    // Then a segment grows as it is written.
                    None if error.is_unsupported() => self.make_empty(&name, number),
                    _ => Err(error.into()),
                }
            }
        }
    }

    fn make_empty(&self, name: &str, number: u64) -> Result<Box<dyn File>> {
        match self.directory.create(name) {
            Err(error) if error.is_taken() => {
                existing(self.directory.as_ref(), number)?.ok_or_else(|| error.into())
            }
            created => Ok(created?),
        }
    }

    /// Whether the block at `place` has this checksum: the file is that of this log.
    pub fn has_block(&self, place: u64, crc: u32) -> Result<bool> {
        let Some(file) = readable(self.directory.as_ref(), place / self.segment_bytes)? else {
            return Ok(false);
        };
        if file.size_bytes()? < place % self.segment_bytes + BLOCK_ALIGN {
            return Ok(false);
        }
        let mut bytes = vec![0; BLOCK_ALIGN as usize];
        file.read_at(&mut bytes, place % self.segment_bytes)?;
        let is_ours = |header: Header| header.log_id == self.log_id && header.place == place;
        Ok(block::header(&bytes).is_some_and(is_ours) && block::crc(&bytes) == Some(crc))
    }

    /// Whether a block of this log at `place` goes on from the LSN `last_lsn`.
    pub fn is_followed(&self, place: u64, last_lsn: u64) -> Result<bool> {
        let (number, at) = (place / self.segment_bytes, place % self.segment_bytes);
        let Some(file) = readable(self.directory.as_ref(), number)? else { return Ok(false) };
        let goes_on = |header: &Header| {
            header.log_id == self.log_id && header.place == place && header.after_lsn == last_lsn
        };
        Ok(read_block(file.as_ref(), at, self.segment_bytes, &goes_on)?.is_some())
    }

    /// The number above those of all segments.
    pub fn next_unused(&self) -> Result<u64> {
        Ok(numbers(self.directory.as_ref())?.last().map_or(0, |last| last + 1))
    }

    /// The segments that are not needed to read the log from the LSN `from` on, of which all up to
    /// `durable` is durable.
    pub fn not_needed(&self, from: u64, durable: u64) -> Result<Vec<u64>> {
        let mut numbers = numbers(self.directory.as_ref())?;
        let mut first_needed = 0;
        for &number in numbers.iter().rev() {
            let first =
                first_header(self.directory.as_ref(), self.log_id, number, self.segment_bytes)?;
            let begins_in_time =
                |header: Header| header.after_lsn <= from && header.last_lsn <= durable;
            if first.is_some_and(begins_in_time) {
                first_needed = number;
                break;
            }
        }
        numbers.retain(|&number| number < first_needed);
        Ok(numbers)
    }

    /// Releases the segments that are not needed to read the log from the LSN `from` on, of which
    /// all up to `durable` is durable. One that a log writer has announced, as `is_announced` says,
    /// is removed and becomes no spare.
    ///
    /// The caller has made durable whatever takes their place.
    pub fn truncate(
        &self,
        from: u64,
        durable: u64,
        is_announced: &dyn Fn(u64) -> bool,
    ) -> Result<()> {
        let released = self.not_needed(from, durable)?;
        let names = self.directory.names()?;
        let mut spares = names.iter().filter(|name| number_of(name, SPARE).is_some()).count();
        for number in released {
            let name = name_of(number);
            if spares < SPARES && !is_announced(number) {
                spares += 1;
                match self.directory.rename(&name, &format!("{SPARE}{number:016x}")) {
                    Err(error) if error.is_unsupported() || error.is_taken() => {}
                    renamed => {
                        unless_gone(renamed)?;
                        continue;
                    }
                }
            }
            unless_gone(self.directory.remove(&name))?;
        }
        Ok(())
    }
}

/// The answer of an operation on a file that another truncation may have released already.
fn unless_gone(answer: pando_device::Result<()>) -> Result<()> {
    match answer {
        Err(error) if error.is_not_found() => Ok(()),
        answer => Ok(answer?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_log_gives_are_segments() {
        assert_eq!(number_of(&name_of(0x1F), SEGMENT), Some(0x1F));
        for name in [
            "segment-1f",
            "segment-000000000000001F",
            "segment-+00000000000001f",
            "segment-ffffffffffffffff",
            "segment-0000000000000001.old",
            "spare-0000000000000001",
        ] {
            assert_eq!(number_of(name, SEGMENT), None, "{name}");
        }
    }
}
