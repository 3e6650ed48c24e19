//! A store: maps that are larger than memory.

use std::ops::Deref;
use std::path::Path;

use crate::{Error, Pool, PoolOptions, engine};

/// A directory that holds named maps, of which memory has only some pages (Bw-tree paper, section
/// V). Its maps have the API of a [`Pool`]'s, and a `Store` is used like one.
///
/// | | |
/// | --- | --- |
/// | maps | Bw-trees, all transactional; names of 1 to 64 bytes |
/// | keys, values | 32 KiB less 9 bytes; 16 KiB less 16 bytes. A transaction takes at most 1/512 of the memory, at least 128 KiB, at most 8 MiB; and its pages, 8 KiB for each write and more for long values, 1/8 of it |
/// | memory | 16 MiB and more. The pages of the maps take no more. The tables of pages take 16 bytes for each page, and each open segment of 16 MiB a file descriptor |
/// | processes that have a store open | 1 ([`Error::StoreBusy`]), or any number that only read it ([`StoreFiles`](crate::StoreFiles)) |
///
/// # What survives
///
/// A commit that has returned survives the death of any process. A commit that was synced
/// ([`Pool::sync`], [`Acknowledge::Synced`](crate::Acknowledge::Synced)) survives a power cut; and
/// after a power cut the store has all commits up to some LSN, and none behind it. No image is
/// loaded at an opening: the log since the last checkpoint is replayed, about 128 MiB at most.
///
/// # Differences from a pool
///
/// * An operation that needs a page that is not in memory waits for the disk. A thread that finds
///   the memory full writes and evicts pages.
/// * [`Pool::salvage`], [`Pool::compact`], [`Pool::drop_slot`] and [`Pool::backup`] return
///   [`Error::NotInAStore`]. [`Snapshot::dump`](crate::Snapshot::dump) reads all maps as of one
///   instant, and the directory of a closed store can be copied.
/// * A store opens with a damaged page. If names of maps are in it, these maps are listed by number
///   ([`MapInfo::damage`](crate::MapInfo::damage)). [`Pool::salvage_slot`] copies what can be read
///   of a map, by its number.
/// * [`Map::len`](crate::Map::len) reads all records of the map.
/// * A dropped map's records are removed by a thread of the store. [`Pool::drop_map`] does not wait
///   for it; [`Pool::clear_dropped`] does.
///
/// ```
/// use pando::{Error, Store};
///
/// let folder = tempfile::tempdir()?;
/// let store = Store::open(folder.path().join("grove"), 16 << 20)?;
/// let trees = store.map("trees")?;
/// trees.insert(b"ash", b"Fraxinus")?;
/// store.transaction(|transaction| {
///     transaction.put(&trees, b"oak", b"Quercus")?;
///     transaction.remove(&trees, b"ash")
/// })?;
/// assert_eq!(trees.len()?, 1);
/// drop(trees);
/// store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Store(Pool);

impl Store {
    /// Opens the store in the directory `path`, whose pages may take `memory_bytes` of memory.
    /// Creates it, and the directory, if there is none; the parent of the directory must be there.
    ///
    /// # Errors
    ///
    /// [`Error::FolderNotFound`]; [`Error::StoreBusy`] if it is open elsewhere; [`Error::Option`]
    /// if `memory_bytes` is less than 16 MiB, or than 32 bytes for each page; [`Error::Damaged`],
    /// [`Error::LogDamaged`], [`Error::LogForeign`], [`Error::Log`], [`Error::Storage`].
    pub fn open(path: impl AsRef<Path>, memory_bytes: u64) -> Result<Self, Error> {
        Self::open_with(path, memory_bytes, &PoolOptions::new())
    }

    /// The same, with options: [`acknowledge`](PoolOptions::acknowledge) and
    /// [`snapshot_limits`](PoolOptions::snapshot_limits). The others are not looked at.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(
        path: impl AsRef<Path>,
        memory_bytes: u64,
        options: &PoolOptions,
    ) -> Result<Self, Error> {
        let path = Pool::checked(path.as_ref())?;
        let options = PoolOptions { salvage: false, ..options.clone() };
        let engine =
            engine::open_store(path, memory_bytes).map_err(|error| match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => {
                    Error::FolderNotFound { path: folder.to_owned() }
                }
                _ => error,
            })?;
        Pool::from_engine(engine, &options).map(Self)
    }

    /// A pool that is a store.
    pub(crate) fn of_pool(pool: Pool) -> Self {
        Self(pool)
    }

    /// Closes the store with a checkpoint, so that the next opening has nothing to replay.
    ///
    /// # Errors
    ///
    /// [`Error::PoolInUse`] if other handles are held; [`Error::Storage`] or
    /// [`Error::AppliedNotDurable`] if the disk refuses.
    pub fn close(self) -> Result<(), Error> {
        self.0.close()
    }

    /// The store as a pool.
    pub fn into_pool(self) -> Pool {
        self.0
    }
}

impl Deref for Store {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.0
    }
}
