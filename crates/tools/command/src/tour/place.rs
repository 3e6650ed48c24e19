//! The files of a tour, and their removal.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use super::child::Running;
use crate::failure::Failure;

const SHARED_MEMORY: &str = "/dev/shm";
/// Room for each byte of the data set, generously, and room that a tour needs in any case.
const ROOM_BY_DATA_BYTE: u64 = 8;
const ROOM_BYTES: u64 = 256 << 20;

/// How often a log's directory is emptied and removed: a log writer may create a file meanwhile.
const REMOVALS: u32 = 3;
/// The files that a log has in its directory, and how the names of the others begin.
const LOG_FILES: [&str; 3] = ["manifest", "proposal", "lock"];
const LOG_PREFIXES: [&str; 5] = ["segment-", "spare-", "new-", "image-", "pool-path"];

/// A temporary folder of the tour, the pool in it or at the path that the user gave, and the pool's
/// log if the user gave a directory for it.
///
/// The directory of the log is created by the tour, and refused if it exists: so its files are the
/// tour's. The tour still removes only files with names of a log, and then the empty directory.
pub struct Place {
    folder: Option<TempDir>,
    folder_path: PathBuf,
    pool_path: PathBuf,
    log_path: Option<PathBuf>,
    keep: bool,
    /// The thread that a signal wakes has it too.
    pool_file: Arc<Mutex<PoolFile>>,
}

/// The file at the pool's path. It is locked while the tour creates the pool, so that a signal
/// finds a whole pool or none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PoolFile {
    /// If there is one, it is of others, and never removed.
    Foreign,
    /// The tour has created it.
    Own,
    /// A signal has ended the tour, which creates no further one.
    Over,
}

impl Place {
    /// Memory if there is room, otherwise the folder for temporary files.
    pub fn choose(
        pool_path: Option<&Path>,
        log_path: Option<&Path>,
        data_bytes: u64,
        keep: bool,
    ) -> Result<Self, Failure> {
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
        if let Some(log) = log_path {
            create_log_directory(log)?;
        }
        let pool_file = Arc::new(Mutex::new(PoolFile::Foreign));
        let (folder, log_path) = (Some(folder), log_path.map(Path::to_owned));
        Ok(Self { folder, folder_path, pool_path, log_path, keep, pool_file })
    }

    /// The pool's file.
    pub fn pool_path(&self) -> &Path {
        &self.pool_path
    }

    /// Creates the pool by `create`. From then on its file is the tour's.
    pub fn create<T>(&self, create: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let mut pool_file = lock(&self.pool_file);
        if *pool_file == PoolFile::Over {
            return Err(Failure::system("the tour is over")(io::ErrorKind::Interrupted.into()));
        }
        let created = create()?;
        *pool_file = PoolFile::Own;
        Ok(created)
    }

    /// The data set's file.
    pub fn data_path(&self) -> PathBuf {
        self.folder_path.join("data-set")
    }

    /// The paths of the pool and of its log, if they are kept.
    pub fn kept_paths(&self) -> impl Iterator<Item = &Path> {
        let log = self.log_path.as_deref();
        std::iter::once(&*self.pool_path).chain(log).filter(|_| self.keep)
    }

    /// Removes the files of the pool and of its log, for another attempt.
    pub fn remove_pool(&self) -> Result<(), Failure> {
        let mut pool_file = lock(&self.pool_file);
        std::fs::remove_file(&self.pool_path).map_err(Failure::file("remove", &self.pool_path))?;
        if *pool_file == PoolFile::Own {
            // From here on a file of this name is of others.
            *pool_file = PoolFile::Foreign;
        }
        let Some(log) = &self.log_path else { return Ok(()) };
        remove_log_files(log).map_err(Failure::file("remove the log in", log))
    }

    /// For a tour that a signal ends: ends the child, removes everything that is not kept, and says
    /// so.
    pub fn last_words(&self, running: Running) -> impl FnOnce() -> Option<String> + Send + 'static {
        let (folder, pool, keep) = (self.folder_path.clone(), self.pool_path.clone(), self.keep);
        let (log, pool_file) = (self.log_path.clone(), self.pool_file.clone());
        move || {
            running.kill_for_good();
            let pool_file = std::mem::replace(&mut *lock(&pool_file), PoolFile::Over);
            if keep {
                let log = log.map(|log| format!(" and {}", log.display())).unwrap_or_default();
                let (folder, pool) = (folder.display(), pool.display());
                return Some(format!("; the tour's files stay: {folder} and {pool}{log}"));
            }
            // The pool is in the folder unless its path was given.
            if pool_file == PoolFile::Own {
                let _ = std::fs::remove_file(&pool);
            }
            let removed = [
                (log.as_deref(), log.as_deref().map_or(Ok(()), remove_log)),
                (Some(&*folder), std::fs::remove_dir_all(&folder)),
            ];
            for (path, removed) in removed {
                if let (Some(path), Err(error)) = (path, removed)
                    && error.kind() != io::ErrorKind::NotFound
                {
                    return Some(format!("; cannot remove {}: {error}", path.display()));
                }
            }
            Some("; the tour's files are removed".to_owned())
        }
    }

    /// Removes everything that is not kept.
    pub fn remove(&mut self) -> Result<(), Failure> {
        let data_path = self.data_path();
        std::fs::remove_file(&data_path).map_err(Failure::file("remove", &data_path))?;
        if !self.keep {
            self.remove_pool()?;
            if let Some(log) = self.log_path.take() {
                remove_log(&log).map_err(Failure::file("remove", &log))?;
            }
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
            return;
        }
        if *lock(&self.pool_file) == PoolFile::Own {
            let _ = std::fs::remove_file(&self.pool_path);
        }
        if let Some(log) = &self.log_path {
            let _ = remove_log(log);
        }
    }
}

fn lock(pool_file: &Mutex<PoolFile>) -> MutexGuard<'_, PoolFile> {
    pool_file.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates the directory of the log; one that exists is of others.
fn create_log_directory(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::Input(format!(
            "{} exists; the tour creates the directory of its log, and removes it: name another \
             one by --log",
            path.display()
        )),
        _ => Failure::file("create", path)(error),
    })
}

/// Removes the files in a directory that have names of a log.
fn remove_log_files(directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let has_prefix = LOG_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        if has_prefix || LOG_FILES.contains(&name) {
            match std::fs::remove_file(entry.path()) {
                // A log writer has given it another name, or removed it.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Removes the files of a log, and its directory unless it has files of others.
fn remove_log(directory: &Path) -> io::Result<()> {
    for _ in 0..REMOVALS {
        remove_log_files(directory)?;
        match std::fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            removed => return removed,
        }
    }
    Ok(())
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
