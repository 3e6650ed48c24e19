//! File systems that are mounted for a test.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// A file system, unmounted on drop.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a tmpfs of `bytes` bytes at `at`, which is created. If this process may not do so,
    /// prints a line and returns `None`; with `PANDO_REQUIRE` it panics, as all mounts here.
    pub fn tmpfs(at: &Path, bytes: u64) -> Option<Self> {
        Self::mount(at, &["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
    }

    /// Mounts the directory `of` at `at`, so that nothing can be written there.
    pub fn read_only(at: &Path, of: &Path) -> Option<Self> {
        let mounted = Self::mount(at, &["--bind", of.to_str().expect("a text")])?;
        mounted.remount("bind,ro");
        Some(mounted)
    }

    /// Mounts the file or directory `at` where it is, so that nothing can be written there.
    pub fn made_read_only(at: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        if !run(mount.arg("--bind").args([at, at])) {
            skipped();
            return None;
        }
        let mounted = Self(at.to_owned());
        mounted.remount("bind,ro");
        Some(mounted)
    }

    /// Mounts the ext4 on the disk at `at`.
    pub fn ext4(at: &Path, disk: &MemoryDisk) -> Option<Self> {
        Self::mount(at, &["-o", "loop", &disk.path()])
    }

    fn mount(at: &Path, arguments: &[&str]) -> Option<Self> {
        std::fs::create_dir(at).expect("created");
        if run(Command::new("mount").args(arguments).arg(at)) {
            return Some(Self(at.to_owned()));
        }
        std::fs::remove_dir(at).expect("removed");
        skipped();
        None
    }

    /// Changes the options of the file system.
    pub fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        assert!(run(Command::new("mount").args(["-o", &options]).arg(&self.0)), "{options}");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run(Command::new("umount").arg("-l").arg(&self.0));
    }
}

/// A disk in memory that can fail for ever.
pub struct MemoryDisk(File);

impl MemoryDisk {
    /// A disk of `bytes` bytes with an empty ext4; `None` as of [`Mounted::tmpfs`].
    pub fn new(bytes: u64) -> Option<Self> {
        let disk = Self::zeroed();
        disk.0.set_len(bytes).expect("room");
        if run(Command::new("mkfs.ext4").args(["-q", &disk.path()])) {
            return Some(disk);
        }
        skipped();
        None
    }

    fn zeroed() -> Self {
        let memory = memfd_create("disk", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC);
        Self(File::from(memory.expect("memory")))
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Each write to the disk fails from now on, with `EIO`.
    pub fn fail(&self) {
        fcntl_add_seals(&self.0, SealFlags::WRITE).expect("sealed");
    }

    /// A disk with the same bytes, that does not fail.
    pub fn copied(&self) -> Self {
        let copy = Self::zeroed();
        std::fs::copy(self.path(), copy.path()).expect("copied");
        copy
    }
}

fn skipped() {
    assert!(std::env::var_os("PANDO_REQUIRE").is_none(), "this process may mount nothing");
    println!("note: skipped, this process may not mount a file system");
}

fn run(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
