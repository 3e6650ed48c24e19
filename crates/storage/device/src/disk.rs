//! A directory of a file system.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pando_pmem::ProcessHere;
use rustix::fs::{Access, CWD, FallocateFlags, RenameFlags, access, fallocate, renameat_with};
use rustix::io::{Errno, retry_on_intr};

use crate::{Directory, Error, File, Operation, Result};

/// Zeros are written in pieces of this many bytes.
const ZEROS_BYTES: usize = 1 << 20;
/// The file that is locked.
const LOCK: &str = "lock";

/// A directory of a file system, used by `pread`, `pwrite` and `fdatasync`.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Opens the directory `path`.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] if there is none; else what the system answers.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |source| error(Operation::OpenDirectory, path, source);
        if !fs::metadata(path).map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        Ok(Self { path: path.to_owned() })
    }

    /// Opens the directory `path`, and creates it if there is none. Its name is durable on return.
    ///
    /// # Errors
    ///
    /// If its parent is missing; else what the system answers.
    pub fn open_or_create(path: &Path) -> Result<Self> {
        match fs::create_dir(path) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error(Operation::OpenDirectory, path, source));
            }
            _ => {}
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Self::open(parent.unwrap_or(Path::new(".")))?.sync()?;
        Self::open(path)
    }

    /// Whether this process may write in the directory.
    pub fn is_writable(&self) -> bool {
        access(&self.path, Access::WRITE_OK).is_ok()
    }

    /// Whether this process may write to the file or directory `name` in the directory, or there is
    /// none.
    pub fn may_write(&self, name: &str) -> bool {
        matches!(access(self.path.join(name), Access::WRITE_OK), Ok(()) | Err(Errno::NOENT))
    }

    /// Takes the directory for as long as the result is held: by an advisory lock on the file
    /// `lock` in it, which is created. `None` if another handle has it, in this process or in
    /// another one. The lock ends with its process. If that is killed, the lock ends with the last
    /// forked child that has the process's files open.
    ///
    /// # Errors
    ///
    /// What the system answers.
    pub fn lock(&self) -> Result<Option<DirectoryLock>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).append(true).create(true);
        self.lock_of(&self.path.join(LOCK), &options, fs::File::try_lock)
    }

    /// The same for a reader: without the file, if it is missing; it is not created. Readers share
    /// the directory, and exclude a process that has [`lock`](Self::lock). If the file is missing,
    /// or the file system has no locks, a later [`lock`](Self::lock) does not see this one.
    ///
    /// # Errors
    ///
    /// What the system answers.
    pub fn lock_read_only(&self) -> Result<Option<DirectoryLock>> {
        let options = fs::OpenOptions::new().read(true).clone();
        let try_lock = |file: &fs::File| match file.try_lock_shared() {
            Err(fs::TryLockError::Error(source)) if has_no_locks(&source) => Ok(()),
            locked => locked,
        };
        match self.lock_of(&self.path.join(LOCK), &options, try_lock) {
            Err(error) if error.is_not_found() => self.lock_of(&self.path, &options, try_lock),
            locked => locked,
        }
    }

    fn lock_of(
        &self,
        path: &Path,
        options: &fs::OpenOptions,
        try_lock: impl Fn(&fs::File) -> Result<(), fs::TryLockError>,
    ) -> Result<Option<DirectoryLock>> {
        let failed = |source| error(Operation::Open, path, source);
        let file = options.open(path).map_err(failed)?;
        match try_lock(&file) {
            Ok(()) => Ok(Some(DirectoryLock { file, process: ProcessHere::this() })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    fn file(&self, name: &str, operation: Operation, options: &fs::OpenOptions) -> Result<OnDisk> {
        let path = self.path.join(name);
        match options.open(&path) {
            Ok(file) => Ok(OnDisk { path, file }),
            Err(source) => Err(error(operation, &path, source)),
        }
    }
}

/// Whether a lock was refused because the file system has none, or none for files that are open for
/// reading.
fn has_no_locks(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::BADF | Errno::NOLCK | Errno::OPNOTSUPP))
}

/// The right to use a directory, until it is dropped.
///
/// The drop of this object releases the lock explicitly. Closing the file is not enough while a
/// forked child of this process still has its descriptor. The drop of the child's copy releases
/// nothing.
#[derive(Debug)]
pub struct DirectoryLock {
    file: fs::File,
    process: ProcessHere,
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // The lock does not belong to a forked child.
        if self.process.is_this() {
            // If this fails, closing the file releases the lock.
            let _ = self.file.unlock();
        }
    }
}

fn error(operation: Operation, path: &Path, source: io::Error) -> Error {
    Error { operation, path: path.display().to_string(), source }
}

impl Directory for Disk {
    fn path(&self) -> String {
        self.path.display().to_string()
    }

    fn names(&self) -> Result<Vec<String>> {
        let failed = |source| error(Operation::List, &self.path, source);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // All names of ours are text, so others are foreign files.
            if let Ok(name) = entry.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> Result<Box<dyn File>> {
        let options = fs::OpenOptions::new().read(true).write(true).clone();
        Ok(Box::new(self.file(name, Operation::Open, &options)?))
    }

    fn open_read_only(&self, name: &str) -> Result<Box<dyn File>> {
        let options = fs::OpenOptions::new().read(true).clone();
        Ok(Box::new(self.file(name, Operation::Open, &options)?))
    }

    fn create(&self, name: &str) -> Result<Box<dyn File>> {
        let options = fs::OpenOptions::new().read(true).write(true).create_new(true).clone();
        Ok(Box::new(self.file(name, Operation::Create, &options)?))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.path.join(from), self.path.join(to));
        let failed = |source| error(Operation::Rename, &from, source);
        match renameat_with(CWD, &from, CWD, &to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(Errno::INVAL | Errno::NOSYS) => Err(failed(io::ErrorKind::Unsupported.into())),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    fn replace(&self, from: &str, to: &str) -> Result<()> {
        let path = self.path.join(from);
        fs::rename(&path, self.path.join(to))
            .map_err(|source| error(Operation::Rename, &path, source))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        fs::remove_file(&path).map_err(|source| error(Operation::Remove, &path, source))
    }

    fn sync(&self) -> Result<()> {
        // Opened for each sync: a handle reports a failure only once, to the first sync.
        let failed = |operation| move |source| error(operation, &self.path, source);
        let directory = fs::File::open(&self.path).map_err(failed(Operation::OpenDirectory))?;
        directory.sync_all().map_err(failed(Operation::SyncDirectory))
    }
}

/// A file of a file system.
#[derive(Debug)]
struct OnDisk {
    path: PathBuf,
    file: fs::File,
}

impl OnDisk {
    fn answer<T>(&self, operation: Operation, answer: io::Result<T>) -> Result<T> {
        answer.map_err(|source| error(operation, &self.path, source))
    }
}

impl File for OnDisk {
    fn size_bytes(&self) -> Result<u64> {
        self.answer(Operation::Read, self.file.metadata()).map(|metadata| metadata.len())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        self.answer(Operation::Read, self.file.read_exact_at(bytes, at))
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.answer(Operation::Write, self.file.write_all_at(bytes, at))
    }

    fn allocate(&self, bytes: u64) -> Result<()> {
        let mut at = self.size_bytes()?;
        if at >= bytes {
            return Ok(());
        }
        // Refuses at once what does not fit. A file system that has no such call is asked by the
        // writes themselves.
        let allocate = || fallocate(&self.file, FallocateFlags::empty(), 0, bytes);
        match retry_on_intr(allocate) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(errno) => return self.answer(Operation::Allocate, Err(errno.into())),
        }
        let zeros = vec![0; ZEROS_BYTES];
        while at < bytes {
            let piece = zeros.len().min(usize::try_from(bytes - at).unwrap_or(usize::MAX));
            self.answer(Operation::Allocate, self.file.write_all_at(&zeros[..piece], at))?;
            at += piece as u64;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.answer(Operation::Sync, self.file.sync_data())
    }
}
