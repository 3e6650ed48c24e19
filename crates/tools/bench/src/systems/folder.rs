//! What the durable peers share: a folder for their files, and the size of it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::entry::{BuildError, BuildOptions};
use crate::subject::Subject;
use crate::system::{AnySystem, Order, Refusal, Scan, System};

/// Bytes of the unit in which file systems count what a file takes.
const BLOCK_BYTES: u64 = 512;

/// Where the files of a system lie.
pub enum Place {
    /// A new folder that is removed with the system.
    Temporary(TempDir),
    /// A folder that outlives the system; files of an earlier system in it are opened.
    Kept(PathBuf),
}

impl Place {
    /// A new folder for the files of a durable peer.
    pub fn temporary(options: &BuildOptions) -> Result<Self, BuildError> {
        Self::temporary_in(options.log_dir())
    }

    /// A new folder in `folder`.
    pub fn temporary_in(folder: &Path) -> Result<Self, BuildError> {
        Ok(Self::Temporary(tempfile::tempdir_in(folder)?))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(folder) => folder,
        }
    }
}

/// Hands the first `limit` records of `records` to `visit`, from the end at which `order` begins.
pub fn visit_range<K: AsRef<[u8]>, V: AsRef<[u8]>, E: Into<Refusal>>(
    mut records: impl DoubleEndedIterator<Item = Result<(K, V), E>>,
    limit: u64,
    order: Order,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<(), Refusal> {
    for _ in 0..limit {
        let next = match order {
            Order::Ascending => records.next(),
            Order::Descending => records.next_back(),
        };
        let Some((key, value)) = next.transpose().map_err(Into::into)? else { break };
        visit(key.as_ref(), value.as_ref());
    }
    Ok(())
}

/// A system and the folder that its files lie in. Its operations take microseconds, so they go
/// through a virtual call, and the harness is compiled once for all of these.
struct InFolder {
    // Dropped first: the files are closed before their folder is removed.
    system: Box<dyn AnySystem>,
    place: Place,
}

/// The system that `open` makes of the folder of `place`.
pub fn in_folder<S: System + 'static>(
    place: Place,
    open: impl FnOnce(&Path) -> Result<S, BuildError>,
) -> Result<Box<dyn Subject>, BuildError> {
    Ok(Box::new(InFolder { system: Box::new(open(place.path())?), place }))
}

impl System for InFolder {
    #[inline]
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        self.system.insert_new(key, value)
    }

    #[inline]
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.system.upsert(key, value)
    }

    #[inline]
    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        let mut visit = Some(visit);
        // It is called once, if at all.
        self.system.get(key, &mut |value| {
            if let Some(visit) = visit.take() {
                visit(value);
            }
        })
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        self.system.delete(key)
    }

    #[inline]
    fn scan(&self, scan: Scan<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        self.system.scan(scan, &mut visit)
    }

    fn count(&self) -> Result<u64, Refusal> {
        self.system.count()
    }

    fn footprint_bytes(&self) -> Option<u64> {
        self.system.footprint_bytes()
    }

    /// What the file system has given to all files of the folder.
    fn file_bytes(&self) -> Option<u64> {
        allocated_bytes(self.place.path()).ok()
    }
}

/// The allocated blocks of all files under `folder`. A file that goes away meanwhile, as those of
/// a compaction do, counts as nothing.
pub fn allocated_bytes(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(about) = entry.metadata() else { continue };
        bytes += if about.is_dir() {
            allocated_bytes(&entry.path())?
        } else {
            about.blocks() * BLOCK_BYTES
        };
    }
    Ok(bytes)
}
