//! Files for one run of a target, in memory if the system has a tmpfs.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A folder that is removed when this is dropped.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub fn new() -> Self {
        let shm = Path::new("/dev/shm");
        let made = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
        Self(made.expect("a temporary folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
