//! The part of a pool's API that a log adds: syncs, images, backups, and new logs.

use std::path::Path;

use crate::log_files::LogFiles;
use crate::{Acknowledge, Error, LogProgress, LogStat, Pool, PoolOptions, engine};

impl Pool {
    /// Waits until a change of the maps is durable, if the pool's options say so.
    pub(crate) fn acknowledge(&self) -> Result<(), Error> {
        match self.shared().acknowledge {
            Acknowledge::Buffered => Ok(()),
            Acknowledge::Synced => self.shared().engine.sync(None).map(drop),
        }
    }

    /// Waits until all commits so far, of all threads, survive a power cut. Returns the LSN of the
    /// newest of them. Waiting threads share the syncs.
    ///
    /// # Errors
    ///
    /// [`Error::NoLog`]; [`Error::AppliedNotDurable`] if the log could not be written or synced.
    pub fn sync(&self) -> Result<u64, Error> {
        self.check_not_salvaged()?;
        self.shared().engine.sync(None)
    }

    /// Waits until all commits up to `lsn` survive a power cut
    /// ([`Transaction::commit`](crate::Transaction::commit)).
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    pub fn sync_to(&self, lsn: u64) -> Result<(), Error> {
        self.check_not_salvaged()?;
        self.shared().engine.sync(Some(lsn)).map(drop)
    }

    /// The LSN up to which all commits survive a power cut. It waits for nothing.
    ///
    /// # Errors
    ///
    /// [`Error::NoLog`], [`Error::TooManyThreads`].
    pub fn durable_lsn(&self) -> Result<u64, Error> {
        self.log_progress()?.map(|log| log.durable_lsn).ok_or(Error::NoLog)
    }

    /// How far the log is durable, without a read of its directory. It waits for nothing. `None` if
    /// the pool has no log.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyThreads`].
    ///
    /// ```
    /// let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// assert_eq!(pool.log_progress()?, None);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn log_progress(&self) -> Result<Option<LogProgress>, Error> {
        self.shared().engine.log_progress()
    }

    /// The figures of the log, as in [`PoolStat::log`](crate::PoolStat::log), without a walk over
    /// the maps: the cost is a few reads of the directory of the log. `None` if the pool has no
    /// log.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] if the directory cannot be read; [`Error::TooManyThreads`].
    ///
    /// ```
    /// let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// assert_eq!(pool.log_stat()?, None);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn log_stat(&self) -> Result<Option<LogStat>, Error> {
        self.shared().engine.log_stat()
    }

    /// Writes an image of the transactional maps into the directory of the log, and releases the
    /// part of the log that is not needed any more. Writers continue meanwhile. The pool does this
    /// by itself whenever the log behind the newest image has four times its bytes, and more than
    /// 64 MiB. A recovery after it is faster.
    ///
    /// # Errors
    ///
    /// [`Error::NoLog`]; [`Error::Log`] if the disk refuses, and the former image stays;
    /// [`Error::AppliedNotDurable`].
    pub fn write_image(&self) -> Result<(), Error> {
        self.check_not_salvaged()?;
        self.shared().engine.write_image()
    }

    /// Copies all commits so far into the directory `to`, while writers continue. Returns the LSN
    /// of the newest commit in the backup. A backup has the records of transactional maps only.
    /// [`LogFiles::backup`] does the same for a pool that another process has open, but copies only
    /// commits that survive a power cut.
    ///
    /// # Errors
    ///
    /// [`Error::NoLog`], [`Error::NotInAStore`], [`Error::AppliedNotDurable`]; otherwise as
    /// [`LogFiles::backup`].
    ///
    /// ```
    /// use pando::{MapOptions, Pool, PoolOptions};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let place = |name: &str| folder.path().join(name);
    /// let pool = Pool::create(place("a.pool"), &PoolOptions::new().log(place("a.log")))?;
    /// pool.map_with("trees", &MapOptions::new().transactional(true))?.insert(b"ash", b"1")?;
    /// pool.backup(place("backup"))?;
    ///
    /// let options = PoolOptions::new().log(place("b.log"));
    /// let restored = Pool::restore(place("backup"), place("b.pool"), &options)?;
    /// assert_eq!(restored.map("trees")?.get(b"ash")?.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<u64, Error> {
        let log = self.shared().engine.log_to_copy()?;
        self.sync()?;
        LogFiles::at(log).backup(to)
    }

    /// Creates a pool at `path` from a backup, with a new log in the directory that `options` name.
    /// The backup stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if `options` name no log; [`Error::LogDamaged`] if the backup is damaged,
    /// or there is none; [`Error::Log`]; otherwise as [`create`](Self::create).
    pub fn restore(
        backup: impl AsRef<Path>,
        path: impl AsRef<Path>,
        options: &PoolOptions,
    ) -> Result<Self, Error> {
        let path = Self::checked(path.as_ref())?;
        let backup = LogFiles::at(backup.as_ref()).open()?;
        Self::from_engine(engine::restore(path, options, &backup)?, options)
    }

    /// Gives the pool at `path` a new, empty log, and opens it. This is for a pool whose file is
    /// whole and whose log is lost, damaged or that of another pool, so that [`open`](Self::open)
    /// refuses it; or for a log that is to be in another directory. Nothing of the pool is lost,
    /// but for commits that a crash has left undecided, as at each opening.
    ///
    /// The new log is in the directory that `options` name, or else where the former one was. The
    /// directory is created if its parent exists; it may not have files of another log. Nothing of
    /// the former log is read, changed or removed: after the call its files are of no use, and may
    /// be removed. The new log begins with an image of all transactional maps, so the call takes
    /// time that grows with them, and the log alone can rebuild the pool. Durable on return.
    ///
    /// After a crash during the call, the pool opens with its former log, or with the new one. In
    /// the first case it may have left files in the directory. They are no log:
    /// [`open`](Self::open) refuses them, also without the pool's file, and the same call replaces
    /// them.
    ///
    /// # Errors
    ///
    /// [`Error::LogIsOnlyCopy`] if there is no pool; [`Error::NoLog`] if the pool has none;
    /// [`Error::NotTrusted`], since only its log can rebuild such a pool; [`Error::LogBusy`];
    /// [`Error::LogNotEmpty`] if the directory has files of another log; [`Error::Log`] if the disk
    /// refuses;
    /// [`Error::UnknownIndex`] and [`Error::Damaged`] if a transactional map cannot be read;
    /// [`Error::PoolFull`] if there is no room to undo a commit that a crash has left undecided;
    /// otherwise as [`open`](Self::open).
    ///
    /// ```
    /// use pando::{Error, MapOptions, Pool, PoolOptions};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let place = |name: &str| folder.path().join(name);
    /// let pool = Pool::create(place("a.pool"), &PoolOptions::new().log(place("a.log")))?;
    /// pool.map_with("trees", &MapOptions::new().transactional(true))?.insert(b"ash", b"1")?;
    /// pool.close()?;
    /// std::fs::remove_dir_all(place("a.log"))?;
    ///
    /// let refused = Pool::open(place("a.pool"), &PoolOptions::new());
    /// assert!(matches!(refused, Err(Error::LogNotFound { .. })));
    /// let pool = Pool::reset_log(place("a.pool"), &PoolOptions::new())?;
    /// assert_eq!(pool.map("trees")?.get(b"ash")?.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset_log(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self, Error> {
        let path = Self::checked(path.as_ref())?;
        let options = PoolOptions { salvage: false, ..options.clone() };
        Self::from_engine(engine::reset_log(path, &options)?, &options)
    }
}
