//! The files of a tour, and their removal.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use super::child::Running;
use crate::failure::Failure;

const SHARED_MEMORY: &str = "/dev/shm";
/// Room for each byte of the data set, generously, and room that a tour needs in any case.
const ROOM_BY_DATA_BYTE: u64 = 8;
const ROOM_BYTES: u64 = 256 << 20;

/// A temporary folder of the tour, and the pool in it or at the path that the user gave.
pub struct Place {
    folder: Option<TempDir>,
    folder_path: PathBuf,
    pool_path: PathBuf,
    keep: bool,
    /// Whether the tour created the pool's file: a file of others is never removed. The thread that
    /// a signal wakes has it too.
    owns_pool: Arc<AtomicBool>,
}

impl Place {
    /// Memory if there is room, otherwise the folder for temporary files.
    pub fn choose(pool_path: Option<&Path>, data_bytes: u64, keep: bool) -> Result<Self, Failure> {
        if let Some(path) = pool_path
            && path.symlink_metadata().is_ok()
        {
            return Err(Failure::Pool(pando::Error::PoolExists { path: path.to_owned() }));
        }
        let needed_bytes = data_bytes.saturating_mul(ROOM_BY_DATA_BYTE).saturating_add(ROOM_BYTES);
        let shared_memory = Path::new(SHARED_MEMORY);
        let has_room = free_bytes(shared_memory).is_ok_and(|free_bytes| free_bytes >= needed_bytes);
        let temporary = std::env::temp_dir();
        let base = if has_room { shared_memory } else { &temporary };
        let folder = tempfile::Builder::new()
            .prefix("pando-tour-")
            .tempdir_in(base)
            .map_err(Failure::file("create a folder in", base))?;
        let folder_path = folder.path().to_owned();
        let pool_path = pool_path.map_or_else(|| folder_path.join("tour.pool"), Path::to_owned);
        let owns_pool = Arc::default();
        Ok(Self { folder: Some(folder), folder_path, pool_path, keep, owns_pool })
    }

    /// The pool's file.
    pub fn pool_path(&self) -> &Path {
        &self.pool_path
    }

    /// Notes that the tour has created the pool's file.
    pub fn note_created(&self) {
        // Relaxed, here and below: the flag alone is shared, and the file is the system's.
        self.owns_pool.store(true, Ordering::Relaxed);
    }

    /// The data set's file.
    pub fn data_path(&self) -> PathBuf {
        self.folder_path.join("data-set")
    }

    /// The path of the pool, if it is kept.
    pub fn kept_path(&self) -> Option<&Path> {
        self.keep.then_some(&self.pool_path)
    }

    /// Removes the pool's file, for another attempt.
    pub fn remove_pool(&self) -> Result<(), Failure> {
        std::fs::remove_file(&self.pool_path).map_err(Failure::file("remove", &self.pool_path))?;
        // From here on a file of this name is of others.
        self.owns_pool.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// For a tour that a signal ends: ends the child, removes everything that is not kept, and says
    /// so.
    pub fn last_words(&self, running: Running) -> impl FnOnce() -> Option<String> + Send + 'static {
        let (folder, pool, keep) = (self.folder_path.clone(), self.pool_path.clone(), self.keep);
        let owns_pool = self.owns_pool.clone();
        move || {
            running.kill_for_good();
            Some(if keep {
                format!("; the tour's files stay: {} and {}", folder.display(), pool.display())
            } else {
                // The pool is in the folder unless its path was given.
                if owns_pool.load(Ordering::Relaxed) {
                    let _ = std::fs::remove_file(&pool);
                }
                match std::fs::remove_dir_all(&folder) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        format!("; cannot remove {}: {error}", folder.display())
                    }
                    _ => "; the tour's files are removed".to_owned(),
                }
            })
        }
    }

    /// Removes everything that is not kept.
    pub fn remove(&mut self) -> Result<(), Failure> {
        let data_path = self.data_path();
        std::fs::remove_file(&data_path).map_err(Failure::file("remove", &data_path))?;
        if !self.keep {
            self.remove_pool()?;
        }
        let Some(folder) = self.folder.take() else { return Ok(()) };
        if self.pool_path.parent() == Some(&self.folder_path) && self.keep {
            let _ = folder.keep();
            return Ok(());
        }
        folder.close().map_err(Failure::file("remove", &self.folder_path))
    }
}

impl Drop for Place {
    /// After a failure: removes as much as possible.
    fn drop(&mut self) {
        if self.keep {
            if let Some(folder) = self.folder.take() {
                let _ = folder.keep();
            }
        } else if self.owns_pool.load(Ordering::Relaxed) {
            let _ = std::fs::remove_file(&self.pool_path);
        }
    }
}

/// Free bytes of the file system of `path`.
fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: statvfs is plain data, for which all zeroes is a valid value.
    let mut figures: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero byte, and the call may write to `figures`; both outlive the
    // call.
    let outcome = unsafe { libc::statvfs(path.as_ptr(), &mut figures) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(figures.f_bavail.saturating_mul(figures.f_frsize))
}
