//! The directory of a pool's log, which one process has for itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pando_device::{Directory, DirectoryLock, Disk};
use pando_log::log_id_of;

use crate::Error;

/// The directory of a log.
pub(super) struct LogDirectory {
    disk: Arc<Disk>,
    path: PathBuf,
    _lock: DirectoryLock,
}

impl LogDirectory {
    /// The directory for the log of a new pool, created if there is none.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let directory = Self::open_or_create(path)?;
        let is_empty = match log_id_of(directory.disk.as_ref()) {
            Err(pando_log::Error::NotALog { .. }) => true,
            Err(proposed @ pando_log::Error::Proposed { .. }) => {
                return Err(pando_tc::Error::from(proposed).into());
            }
            _ => false,
        };
        match is_empty && !pando_tc::has_image(directory.disk.as_ref())? {
            true => Ok(directory),
            false => Err(Error::LogExists { path: path.to_owned() }),
        }
    }

    /// The directory `path`, created if there is none, whatever it has.
    pub fn open_or_create(path: &Path) -> Result<Self, Error> {
        Disk::open_or_create(path).map_err(Error::of_device)?;
        Self::locked(path)
    }

    /// The directory of the log of `pool`.
    pub fn open(pool: &Path, path: &Path) -> Result<Self, Error> {
        match Disk::open(path) {
            Err(error) if error.is_not_found() => {
                Err(Error::LogNotFound { pool: pool.to_owned(), path: path.to_owned() })
            }
            disk => {
                disk.map_err(Error::of_device)?;
                Self::locked(path)
            }
        }
    }

    fn locked(path: &Path) -> Result<Self, Error> {
        // A later change of the current directory does not change the path.
        let path = path.canonicalize().map_err(|cause| Error::Io {
            action: "find the directory of the log",
            path: path.to_owned(),
            cause,
        })?;
        let disk = Disk::open(&path).map_err(Error::of_device)?;
        let lock = disk.lock().map_err(Error::of_device)?;
        let lock = lock.ok_or_else(|| Error::LogBusy { path: path.clone() })?;
        Ok(Self { disk: Arc::new(disk), path, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its files.
    pub fn files(&self) -> Arc<dyn Directory> {
        self.disk.clone()
    }
}

/// Whether there is a log in the directory `path`, whole, damaged or proposed.
pub(super) fn has_log(path: &Path) -> bool {
    Disk::open(path)
        .is_ok_and(|disk| !matches!(log_id_of(&disk), Err(pando_log::Error::NotALog { .. })))
}
