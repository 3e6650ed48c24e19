//! The files of a log without its pool: backups, and checks.

use std::path::{Path, PathBuf};

use pando_device::{Directory, Disk};
use serde::{Serialize, Serializer};

use crate::Error;
use crate::engine::{has_log, read_superblock};

/// Attempts of a backup. One fails if the pool writes an image meanwhile.
const ATTEMPTS: u32 = 3;

/// The directory of a pool's log ([`PoolOptions::log`](crate::PoolOptions::log)), or a backup. Its
/// pool may be in use meanwhile, also by another process: nothing in it is changed.
#[derive(Clone, Debug)]
pub struct LogFiles {
    path: PathBuf,
}

/// The content of a log ([`LogFiles::verify`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LogReport {
    /// Its directory.
    pub path: PathBuf,
    /// The number of its pool; serialized as 32 hexadecimal digits.
    #[serde(serialize_with = "hexadecimal")]
    pub pool_id: u128,
    /// Its own number; serialized like that of its pool.
    #[serde(serialize_with = "hexadecimal")]
    pub log_id: u128,
    /// Records of the newest image; zero if there is none.
    pub image_records: u64,
    /// Bytes of the newest image.
    pub image_bytes: u64,
    /// The LSN behind which the log is replayed over the image.
    pub image_lsn: u64,
    /// Commits behind that.
    pub commits: u64,
    /// The LSN of the last of them, up to which a recovery comes.
    pub end_lsn: u64,
}

impl LogFiles {
    /// The log in the directory `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The log of the pool at `pool`, where the pool says that it is. The pool may be open.
    ///
    /// # Errors
    ///
    /// [`Error::PoolNotFound`], [`Error::NotAPool`], [`Error::NoLog`], [`Error::Io`] and others as
    /// [`Pool::open`](crate::Pool::open).
    pub fn of_pool(pool: impl AsRef<Path>) -> Result<Self, Error> {
        let superblock = read_superblock(pool.as_ref())?;
        Ok(Self::at(superblock.log.ok_or(Error::NoLog)?.path))
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory has a log, whole or damaged. A missing pool that is opened with it is
    /// rebuilt from it. Otherwise a new pool may get its log there.
    ///
    /// ```
    /// use pando::{LogFiles, Pool, PoolOptions};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let log = folder.path().join("grove.log");
    /// assert!(!LogFiles::at(&log).exists());
    /// Pool::create(folder.path().join("grove.pool"), &PoolOptions::new().log(&log))?;
    /// assert!(LogFiles::at(&log).exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exists(&self) -> bool {
        has_log(&self.path)
    }

    pub(crate) fn open(&self) -> Result<Disk, Error> {
        let disk = Disk::open(&self.path).map_err(Error::of_device)?;
        pando_log::refuse_log_of_store(&disk).map_err(pando_tc::Error::from)?;
        Ok(disk)
    }

    /// Reads the whole log, as a recovery would, and returns its content. While its pool is in use,
    /// it may fail because the pool writes an image meanwhile. Then call it again.
    ///
    /// # Errors
    ///
    /// [`Error::LogDamaged`]: something is missing or damaged, and a recovery would fail;
    /// [`Error::LogOfStore`], [`Error::Log`].
    ///
    /// ```
    /// use pando::{LogFiles, MapOptions, Pool, PoolOptions};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("grove.pool");
    /// let pool = Pool::create(&path, &PoolOptions::new().log(folder.path().join("grove.log")))?;
    /// pool.map_with("trees", &MapOptions::new().transactional(true))?.insert(b"ash", b"1")?;
    /// let lsn = pool.sync()?;
    /// assert_eq!(LogFiles::of_pool(&path)?.verify()?.end_lsn, lsn);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify(&self) -> Result<LogReport, Error> {
        let (recovered, replayed) = pando_tc::verify(&self.open()?)?;
        Ok(LogReport {
            path: self.path.clone(),
            pool_id: recovered.pool_id(),
            log_id: recovered.log_id(),
            image_records: replayed.image_records,
            image_bytes: replayed.image_bytes,
            image_lsn: replayed.from_lsn,
            commits: replayed.commits,
            end_lsn: recovered.end_lsn(),
        })
    }

    /// Copies the newest image and the log behind it into the directory `to`, which is created if
    /// its parent exists. Returns the LSN up to which the backup has the commits, all that survive
    /// a power cut now. Durable on return. [`Pool::restore`](crate::Pool::restore) makes a pool of
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::LogDamaged`]; [`Error::LogNotEmpty`] if `to` has a log or a backup already, which
    /// stays as it is; [`Error::LogOfStore`]; [`Error::Log`]. Then `to` has no new backup.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<u64, Error> {
        let (from, to) = (self.open()?, to.as_ref());
        let to = Disk::open_or_create(to).map_err(Error::of_device)?;
        let before = to.names().map_err(Error::of_device)?;
        let mut attempts = 1;
        loop {
            let copied = pando_tc::copy(&from, &to);
            let Err(error) = copied else { return Ok(copied?) };
            // New files are from this attempt.
            for name in to.names().map_err(Error::of_device)? {
                if !before.contains(&name) {
                    to.remove(&name).map_err(Error::of_device)?;
                }
            }
            if attempts == ATTEMPTS || !is_replaced_meanwhile(&error) {
                return Err(error.into());
            }
            attempts += 1;
        }
    }
}

/// Parsers of JSON round numbers of 128 bits.
fn hexadecimal<S: Serializer>(number: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:032x}"))
}

/// Whether a copy may have failed because a file was removed meanwhile, or used again.
fn is_replaced_meanwhile(error: &pando_tc::Error) -> bool {
    use pando_log::Error as Log;
    match error {
        pando_tc::Error::Log(Log::Device(error)) => error.is_not_found(),
        pando_tc::Error::Log(Log::Missing { .. } | Log::Damaged { .. }) => true,
        _ => false,
    }
}
