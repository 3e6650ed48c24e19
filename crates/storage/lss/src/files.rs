//! The files of the segments, and reading parts from them.
//!
//! Readers share one handle of each file. The writer has another one, which it alone syncs: Linux
//! reports a failed write-back once for each handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use pando_device::{Directory, File};
use pando_pmem::mutant;

use crate::address::{Address, MAX_SEGMENTS};
use crate::error::Error;
use crate::part::{self, Part};

const PREFIX: &str = "segment-";

/// The name of a segment.
pub(crate) fn name_of(segment: u32) -> String {
    format!("{PREFIX}{segment:06x}")
}

/// The segment that has this name.
pub(crate) fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_prefix(PREFIX)?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    (number < MAX_SEGMENTS && name_of(number) == name).then_some(number)
}

/// Why a part could not be read.
#[derive(Debug)]
pub(crate) enum Unread {
    Device(pando_device::Error),
    /// What is wrong with the part at that address. Perhaps the segment was written anew.
    NotThere(Address, &'static str),
}

impl From<pando_device::Error> for Unread {
    fn from(error: pando_device::Error) -> Self {
        Self::Device(error)
    }
}

pub(crate) type Handles = Vec<Option<Arc<dyn File>>>;

/// The files of the segments.
#[derive(Debug)]
pub(crate) struct Files {
    directory: Arc<dyn Directory>,
    segment_bytes: u64,
    /// Changed by the writer alone.
    handles: ArcSwap<Handles>,
    /// Parts that were read, for readers of pages and for cleaning.
    pub part_reads: AtomicU64,
}

impl Files {
    pub fn new(directory: Arc<dyn Directory>, segment_bytes: u64) -> Self {
        Self { directory, segment_bytes, handles: ArcSwap::default(), part_reads: 0.into() }
    }

    pub fn directory(&self) -> &dyn Directory {
        self.directory.as_ref()
    }

    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// A path for messages.
    pub fn path_of(&self, segment: u32) -> String {
        format!("{}/{}", self.directory.path(), name_of(segment))
    }

    fn set(&self, segment: u32, handle: Option<Arc<dyn File>>) {
        let mut handles = self.handles.load().as_ref().clone();
        let length = handles.len().max(segment as usize + 1);
        handles.resize(length, None);
        handles[segment as usize] = handle;
        self.handles.store(Arc::new(handles));
    }

    /// Gives readers the handles of all segments.
    pub fn set_all(&self, handles: Handles) {
        self.handles.store(Arc::new(handles));
    }

    /// A handle of the file of a segment.
    pub fn open(&self, segment: u32) -> pando_device::Result<Box<dyn File>> {
        self.directory.open(&name_of(segment))
    }

    /// Makes the file of a segment, with all its room. Durable on return, also its name.
    ///
    /// # Errors
    ///
    /// What the system answers. The file may be there, too short: it is completed by another call.
    pub fn make(&self, segment: u32) -> pando_device::Result<()> {
        let name = name_of(segment);
        let file = match self.directory.create(&name) {
            Err(error) if error.is_taken() => self.directory.open(&name)?,
            created => created?,
        };
        file.allocate(self.segment_bytes)?;
        file.sync()?;
        self.directory.sync()?;
        self.set(segment, Some(Arc::from(self.directory.open(&name)?)));
        Ok(())
    }

    /// Removes the file of a segment that no checkpoint needs.
    pub fn remove(&self, segment: u32) -> pando_device::Result<()> {
        self.set(segment, None);
        match self.directory.remove(&name_of(segment)) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads bytes of a segment.
    pub fn read(&self, segment: u32, bytes: &mut [u8], at: u64) -> Result<(), Unread> {
        let handles = self.handles.load();
        match handles.get(segment as usize).and_then(Option::as_ref) {
            Some(file) => Ok(file.read_at(bytes, at)?),
            None => {
                let source = std::io::ErrorKind::NotFound.into();
                let operation = pando_device::Operation::Open;
                Err(pando_device::Error { operation, path: self.path_of(segment), source }.into())
            }
        }
    }

    /// Reads the part of page `pid` at `address`.
    fn read_part(&self, pid: u32, address: Address) -> Result<Part, Unread> {
        // Relaxed: only the number matters.
        self.part_reads.fetch_add(1, Ordering::Relaxed);
        let mut bytes = vec![0; address.bytes()];
        self.read(address.segment(), &mut bytes, address.at() as u64)?;
        let not_there = |what| Unread::NotThere(address, what);
        let (part, taken) = part::decode(&bytes).map_err(|why| not_there(why.0))?;
        if part.pid != pid {
            return Err(not_there("it belongs to another page"));
        }
        if !address.is_of(part.generation) && !mutant!("lss-generation-ignored") {
            return Err(not_there("it was written at another time"));
        }
        match taken == address.bytes() {
            true => Ok(part),
            false => Err(not_there("it has another length")),
        }
    }

    /// Reads the page `pid`, whose newest part is at `newest`: its pieces, oldest first.
    pub fn read_page(&self, pid: u32, newest: Address) -> Result<Vec<Vec<u8>>, Unread> {
        let part = self.read_part(pid, newest)?;
        let mut parts = vec![part.pieces];
        for (number, &address) in part.earlier.iter().enumerate() {
            let earlier = self.read_part(pid, address)?;
            let is_base = number + 1 == part.earlier.len();
            if earlier.earlier.len() != part.earlier.len() - number - 1
                || earlier.pieces.is_empty()
                || is_base != earlier.earlier.is_empty()
            {
                return Err(Unread::NotThere(address, "it is another part of the page"));
            }
            parts.push(earlier.pieces);
        }
        parts.reverse();
        Ok(parts.concat())
    }

    /// The error for a page that cannot be read, although the table still names that part.
    pub fn error_of(&self, pid: u32, unread: Unread) -> Error {
        match unread {
            Unread::Device(error) => error.into(),
            Unread::NotThere(address, what) => {
                let path = self.path_of(address.segment());
                Error::DamagedPage { pid, path, at: address.at(), what }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_store_gives_are_segments() {
        assert_eq!(number_of(&name_of(0x1F)), Some(0x1F));
        for name in ["segment-1f", "segment-00001F", "segment-ffffff", "segment-000001.old", "x"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
