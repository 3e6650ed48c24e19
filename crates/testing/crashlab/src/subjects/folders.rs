//! Folders of the simulated device: a subject has one, and a store has two directories.
//!
//! The names of all folders are in one directory. So a sync of a folder makes the names of the
//! others durable too.

use pando_device::simulated::Simulated;
use pando_device::{Directory, File, Result};

use crate::lab::domain::uninterrupted;

/// A folder.
#[derive(Clone, Debug)]
pub struct Folder {
    files: Simulated,
    name: &'static str,
    /// Whether its user holds a lock of the process meanwhile.
    is_under_lock: bool,
}

impl Folder {
    /// The folder `name`.
    pub fn new(files: &Simulated, name: &'static str) -> Self {
        Self { files: files.clone(), name, is_under_lock: false }
    }

    /// The same for a user that holds a lock of the process meanwhile: a thread is not stopped at
    /// an operation on it. All logical threads are one thread of the system, so another one would
    /// wait for the lock for ever.
    pub fn under_lock(files: &Simulated, name: &'static str) -> Self {
        Self { is_under_lock: true, ..Self::new(files, name) }
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }

    fn with<R>(&self, operate: impl FnOnce(&Simulated) -> R) -> R {
        within(self.is_under_lock, || operate(&self.files))
    }

    fn file(&self, file: Box<dyn File>) -> Box<dyn File> {
        Box::new(Held { file, is_under_lock: self.is_under_lock })
    }
}

fn within<R>(is_under_lock: bool, operate: impl FnOnce() -> R) -> R {
    if is_under_lock { uninterrupted(operate) } else { operate() }
}

impl Directory for Folder {
    fn path(&self) -> String {
        self.path_of("")
    }

    fn names(&self) -> Result<Vec<String>> {
        let names = self.with(Directory::names)?.into_iter();
        let start = self.path_of("");
        Ok(names.filter_map(|name| Some(name.strip_prefix(&start)?.to_owned())).collect())
    }

    fn open(&self, name: &str) -> Result<Box<dyn File>> {
        self.with(|files| files.open(&self.path_of(name))).map(|file| self.file(file))
    }

    fn open_read_only(&self, name: &str) -> Result<Box<dyn File>> {
        let opened = self.with(|files| files.open_read_only(&self.path_of(name)));
        opened.map(|file| self.file(file))
    }

    fn create(&self, name: &str) -> Result<Box<dyn File>> {
        self.with(|files| files.create(&self.path_of(name))).map(|file| self.file(file))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.with(|files| files.rename(&self.path_of(from), &self.path_of(to)))
    }

    fn replace(&self, from: &str, to: &str) -> Result<()> {
        self.with(|files| files.replace(&self.path_of(from), &self.path_of(to)))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.with(|files| files.remove(&self.path_of(name)))
    }

    fn sync(&self) -> Result<()> {
        self.with(Directory::sync)
    }
}

/// A file of a folder.
#[derive(Debug)]
struct Held {
    file: Box<dyn File>,
    is_under_lock: bool,
}

impl File for Held {
    fn size_bytes(&self) -> Result<u64> {
        within(self.is_under_lock, || self.file.size_bytes())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        within(self.is_under_lock, || self.file.read_at(bytes, at))
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()> {
        within(self.is_under_lock, || self.file.write_at(bytes, at))
    }

    fn allocate(&self, bytes: u64) -> Result<()> {
        within(self.is_under_lock, || self.file.allocate(bytes))
    }

    fn sync(&self) -> Result<()> {
        within(self.is_under_lock, || self.file.sync())
    }
}
