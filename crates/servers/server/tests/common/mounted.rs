//! A small file system, mounted for a test.

use std::path::Path;
use std::process::{Command, Stdio};

/// A tmpfs, unmounted on drop.
pub struct Mounted(tempfile::TempDir);

impl Mounted {
    /// Mounts one of `bytes` bytes. If this process may not mount one, prints a line and returns
    /// `None`.
    pub fn tmpfs(bytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(folder.path());
        if mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            return Some(Self(folder));
        }
        println!("note: skipped, this process may not mount a tmpfs");
        None
    }

    /// The path where it is mounted.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
