//! What all threads of a page store share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::files::Files;
use crate::queue::{Queue, Slot, Write};
use crate::table::Table;

/// Options of a page store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageStoreOptions {
    /// Bytes of a segment: 64 KiB to 64 MiB, a multiple of 4,096. Fixed when the store is created.
    pub segment_bytes: u64,
    /// The files of all segments together take at most so many percent of the bytes of the parts
    /// that pages consist of, and three segments; but always eight segments: 120 to 10,000. It is
    /// looked at when a segment is needed, and by [`clean`](crate::PageStore::clean).
    pub ceiling_percent: u32,
    /// The files of all segments together take at most so many bytes. Cleaning may take one segment
    /// more, if none is free; a few more, if most segments have deltas of many pages.
    pub max_bytes: u64,
    /// A checkpoint is made when so many bytes have been written since the last one. An opening
    /// reads about so many.
    pub checkpoint_bytes: u64,
}

impl Default for PageStoreOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            ceiling_percent: 200,
            max_bytes: u64::MAX,
            checkpoint_bytes: 256 << 20,
        }
    }
}

/// What all threads of a page store share, apart from the state of the writer.
#[derive(Debug)]
pub(crate) struct Shared {
    pub files: Files,
    pub table: Table,
    pub queue: Queue,
    pub options: PageStoreOptions,
    /// See [`queued_bytes`](Self::queued_bytes).
    queued_bytes: AtomicUsize,
    /// The first failed write or sync.
    failure: OnceLock<String>,
}

/// What a slot, and each of its writes, count more than their bytes.
const COSTS_BYTES: usize = 128;

fn bytes_of(group: &[Write]) -> usize {
    group.iter().map(|write| COSTS_BYTES + write.bytes.len()).sum()
}

impl Shared {
    pub fn new(files: Files, options: PageStoreOptions) -> Self {
        let (table, queue) = (Table::default(), Queue::default());
        Self { files, table, queue, options, queued_bytes: 0.into(), failure: OnceLock::new() }
    }

    /// A group, with all that is around it in a block, has at most so many bytes.
    pub fn most_group_bytes(&self) -> usize {
        self.files.segment_bytes() as usize / 2
    }

    /// Reserves a slot of the queue.
    pub fn reserve(&self) -> Arc<Slot> {
        // Relaxed: a threshold only.
        self.queued_bytes.fetch_add(COSTS_BYTES, Ordering::Relaxed);
        self.queue.reserve()
    }

    /// Fills a slot; gives the group back if the slot is abandoned.
    pub fn fill(&self, slot: &Slot, group: Vec<Write>) -> Result<(), Vec<Write>> {
        let bytes = bytes_of(&group);
        // Relaxed: as above. It is counted before the writer can take it.
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        slot.fill(group).inspect_err(|_| {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        })
    }

    /// Counts a slot that leaves the queue, with its group.
    pub fn leaves_queue(&self, group: Option<&[Write]>) {
        let bytes = COSTS_BYTES + group.map_or(0, bytes_of);
        // Relaxed: as above.
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes of the groups in the queue, and of the queue itself.
    pub fn queued_bytes(&self) -> usize {
        // Relaxed: as above.
        self.queued_bytes.load(Ordering::Relaxed)
    }

    /// Ends all writing, because it is not known what the device holds.
    pub fn fail(&self, cause: &pando_device::Error) -> Error {
        let first = self.failure.get_or_init(|| cause.to_string());
        self.failed(first)
    }

    fn failed(&self, cause: &str) -> Error {
        Error::Failed { path: self.files.directory().path(), cause: cause.to_owned() }
    }

    /// An error if the store takes no more writes.
    pub fn check_failed(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |cause| Err(self.failed(cause)))
    }
}
