//! The directory of a pool's log, which one process has for itself.
//!
//! The file `pool-path` in it has the path where the pool was opened last. No recovery needs it: if
//! it is missing or wrong, a log that is named for a missing pool is taken for that of a lost one.
//! With it, a mistyped path does not take the log away from a pool that is there.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pando_device::{Directory, DirectoryLock, Disk};
use pando_log::{check_owner, log_id_of, refuse_log_of_store};

use super::superblock::read_superblock;
use crate::Error;

/// The file with the path of the pool, and the name under which it is written.
const POOL_PATH: &str = "pool-path";
const NEW_POOL_PATH: &str = "pool-path.new";

/// The directory of a log.
pub(super) struct LogDirectory {
    disk: Arc<dyn Directory>,
    path: PathBuf,
    /// A directory in memory needs none.
    _lock: Option<DirectoryLock>,
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
        // Before the lock: a store that is open holds it, and the error is to name the store.
        refuse_log_of_store(&disk).map_err(pando_tc::Error::from)?;
        let lock = disk.lock().map_err(Error::of_device)?;
        let lock = lock.ok_or_else(|| Error::LogBusy { path: path.clone() })?;
        Ok(Self { disk: Arc::new(disk), path, _lock: Some(lock) })
    }

    /// These files, as those of the directory `path`, which is not used.
    #[cfg(test)]
    pub fn of_files(disk: Arc<dyn Directory>, path: &Path) -> Self {
        Self { disk, path: path.to_owned(), _lock: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down where its pool is. An error changes nothing: it is only a hint.
    pub fn remember_pool(&self, pool: &Path) {
        let Some(pool) = absolute(pool) else { return };
        let (path, new) = (self.path.join(POOL_PATH), self.path.join(NEW_POOL_PATH));
        let text = pool.as_os_str().as_bytes();
        if fs::read(&path).is_ok_and(|found| found == text) {
            return;
        }
        let _ = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
    }

    /// The pool that is elsewhere than at `pool`, and whose superblock names this log.
    pub fn other_pool(&self, pool: &Path) -> Option<PathBuf> {
        let text = fs::read(self.path.join(POOL_PATH)).ok()?;
        let found = PathBuf::from(OsString::from_vec(text));
        if absolute(pool).is_some_and(|pool| pool == found) {
            return None;
        }
        let superblock = read_superblock(&found).ok()?;
        let log = superblock.log.filter(|log| log.path == self.path)?;
        check_owner(self.disk.as_ref(), log.id, superblock.pool_id).ok()?;
        Some(found)
    }

    /// Its files.
    pub fn files(&self) -> Arc<dyn Directory> {
        self.disk.clone()
    }
}

/// The absolute path of a file, which may be missing.
fn absolute(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(folder.join(path.file_name()?))
}

/// Whether there is a log in the directory `path`, whole, damaged or proposed.
pub(crate) fn has_log(path: &Path) -> bool {
    Disk::open(path)
        .is_ok_and(|disk| !matches!(log_id_of(&disk), Err(pando_log::Error::NotALog { .. })))
}
