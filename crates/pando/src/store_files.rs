//! The files of a store: reads and reports that change none of them.

use std::path::{Path, PathBuf};

use pando_device::Disk;

use crate::report::{CheckReport, PoolStat};
use crate::{Error, Pool, PoolOptions, Store, engine};

/// What an opening for writing opens or creates files in.
const OPENED: [&str; 5] = ["lock", "control", "pages", "log", "log/lock"];

/// The directory of a [`Store`] that no process has open for writing. Nothing in it is changed, so
/// it may be on a file system that cannot be written, such as a mounted backup.
///
/// Each call opens the store in process memory, and replays its log there. The pages that this
/// changes take memory beyond `memory_bytes`; there are none if the store was closed. So does a
/// copy of the file `control`, of at most 128 MiB. Pages that are only read take none.
///
/// Any number of readers may have the store open so at once, in any processes. Meanwhile it cannot
/// be opened for writing: [`Store::open`] is [`Error::StoreBusy`]. A store whose file `lock` is
/// missing, or on a file system without locks, does not notice its readers; then it must not be
/// opened for writing.
#[derive(Clone, Debug)]
pub struct StoreFiles {
    path: PathBuf,
}

impl StoreFiles {
    /// The store in the directory `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this process may write in the directory, and to the files and directories in it that
    /// [`Store::open`] writes to first, as far as they are there.
    pub fn is_writable(&self) -> bool {
        Disk::open(&self.path)
            .is_ok_and(|disk| disk.is_writable() && OPENED.iter().all(|name| disk.may_write(name)))
    }

    /// Opens the store for reading alone: its maps, scans, snapshots and transactions that write
    /// nothing. Writes that would change something, also in the list of maps, and checkpoints are
    /// [`Error::StoreReadOnly`]. Its close writes nothing. The pages may take `memory_bytes` of
    /// memory.
    ///
    /// # Errors
    ///
    /// As [`Store::open`]; [`Error::StoreNotFound`].
    ///
    /// ```
    /// use pando::{Error, Store, StoreFiles};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("grove");
    /// let store = Store::open(&path, 16 << 20)?;
    /// store.map("trees")?.insert(b"ash", b"Fraxinus")?;
    /// store.close()?;
    /// let store = StoreFiles::at(&path).open(16 << 20)?;
    /// let trees = store.open_map("trees")?;
    /// assert_eq!(trees.get(b"ash")?.as_deref(), Some(&b"Fraxinus"[..]));
    /// assert!(matches!(trees.upsert(b"ash", b""), Err(Error::StoreReadOnly)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(&self, memory_bytes: u64) -> Result<Store, Error> {
        let path = Pool::checked(&self.path)?;
        let engine = engine::open_store_unchanged(path, memory_bytes);
        let engine = engine.map_err(|error| match path.join("pages").try_exists() {
            Ok(false) => Error::StoreNotFound { path: path.to_owned() },
            _ => error,
        })?;
        Pool::from_engine(engine, &PoolOptions::new()).map(Store::of_pool)
    }

    /// The figures of the store, as [`Pool::stat`] has them after an opening now. The pages may
    /// take `memory_bytes` of memory.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// ```
    /// use pando::{Store, StoreFiles};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("grove");
    /// let store = Store::open(&path, 16 << 20)?;
    /// store.map("trees")?.insert(b"ash", b"Fraxinus")?;
    /// store.close()?;
    /// let files = StoreFiles::at(&path);
    /// assert_eq!(files.stat(16 << 20)?.maps.len(), 1);
    /// assert_eq!(files.check(16 << 20)?.records, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stat(&self, memory_bytes: u64) -> Result<PoolStat, Error> {
        self.open(memory_bytes)?.stat()
    }

    /// Reads all pages and records, as [`Pool::check`] does.
    ///
    /// # Errors
    ///
    /// As [`stat`](Self::stat).
    pub fn check(&self, memory_bytes: u64) -> Result<CheckReport, Error> {
        self.open(memory_bytes)?.check()
    }
}
