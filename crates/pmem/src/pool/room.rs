//! The room that a pool's file has, and how it is made: blocks of the file system are allocated before
//! anything is stored there, so that no store finds the file system full.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering;

use super::{Pool, io_error};
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::layout::{CHUNK_BYTES, CHUNK_TABLE_OFF, Geometry, PAGE_BYTES};
use crate::medium::Medium;
use crate::superblock;
use crate::sys;

impl<D: Domain> Pool<D> {
    /// Makes sure that the file reaches to `to_bytes`.
    ///
    /// Several threads may do it at once: allocating twice is harmless, and the size only rises.
    pub(crate) fn grow(&self, to_bytes: u64) -> Result<()> {
        let size = self.word(superblock::SIZE_OFF);
        loop {
            let found = size.load(Ordering::Acquire);
            let from_bytes = superblock::size_of_word(found);
            if from_bytes >= to_bytes {
                return Ok(());
            }
            // A sixteenth at a time: few calls, and little room that stays unused.
            let step = (from_bytes - self.geometry.chunks_off) / 16;
            let generous = (to_bytes + step.clamp(CHUNK_BYTES, 256 << 20))
                .min(self.geometry.chunk_off(self.geometry.max_chunks))
                / CHUNK_BYTES
                * CHUNK_BYTES;
            let mut target = generous.max(to_bytes);
            if let Some(file) = &self.file
                && let Err(error) = extend(&self.path, file, &self.geometry, from_bytes, target)
            {
                if target == to_bytes {
                    return Err(error);
                }
                target = to_bytes;
                extend(&self.path, file, &self.geometry, from_bytes, target)?;
            }
            self.sync_length()?;
            // Durable before a chunk out there is activated: see `flush_extent`.
            let _ = size.compare_exchange(found, superblock::size_word(target));
        }
    }

    /// Makes the file's length durable where its content is: a power cut must not leave a
    /// superblock that is ahead of its file.
    fn sync_length(&self) -> Result<()> {
        match (&self.file, self.medium) {
            (Some(file), Medium::Dax { .. }) => {
                file.sync_data().map_err(io_error(&self.path, "sync the file"))
            }
            _ => Ok(()),
        }
    }

    /// Makes all that was written durable, wherever it still is.
    pub(super) fn sync_data(&self) -> Result<()> {
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

/// Where the part of the chunk table ends that a pool of `size_bytes` has, in whole pages.
pub(super) fn table_end(geometry: &Geometry, size_bytes: u64) -> u64 {
    let chunks = (size_bytes - geometry.chunks_off) / CHUNK_BYTES;
    geometry.chunk_word_off(chunks).next_multiple_of(PAGE_BYTES)
}

/// Allocates the chunks from byte `from` to byte `to`, and their part of the chunk table.
pub(super) fn extend(
    path: &Path,
    file: &File,
    geometry: &Geometry,
    from: u64,
    to: u64,
) -> Result<()> {
    let table_end = |bytes| table_end(geometry, bytes);
    // The page that holds the end of the last step's part is there already.
    let table_from = if from == geometry.chunks_off { CHUNK_TABLE_OFF } else { table_end(from) };
    sys::allocate(file, table_from, table_end(to).max(table_from))
        .and_then(|()| sys::allocate(file, from, to))
        .map_err(|source| not_allocated(path, from, to, source))
}
