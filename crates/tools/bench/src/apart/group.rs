//! Control groups that limit the memory of a process, its share of the system's cache of files
//! included. Linux alone has them, and a user who is not the superuser needs a group of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use procfs::process::Process;

use crate::error::Error;

/// Where control groups of version 2 are, and those for memory of version 1.
const ROOT: &str = "/sys/fs/cgroup";
const ROOT_OF_MEMORY: &str = "/sys/fs/cgroup/memory";

/// A group of one process with a limit of memory. Its folder goes with it.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// A new group below that of this process.
    ///
    /// # Errors
    ///
    /// [`Error::Limited`] if this process may not make one.
    pub fn new(memory_bytes: u64) -> Result<Self, Error> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the number matters.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("pando-bench-{}-{number}", std::process::id());
        let (parent, limit) = parent();
        let group = Self(parent.join(name));
        let limited = fs::create_dir(&group.0)
            .and_then(|()| fs::write(group.0.join(limit), memory_bytes.to_string()));
        match limited {
            Ok(()) => Ok(group),
            Err(source) => Err(Error::Limited { path: group.0.clone(), source }),
        }
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Moves this process into the group in the folder `path`.
    pub fn join(path: &Path) -> Result<(), Error> {
        let procs = path.join("cgroup.procs");
        fs::write(&procs, std::process::id().to_string())
            .map_err(|source| Error::Limited { path: procs, source })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It is empty, for its process has ended. If it stays, it does no harm.
        let _ = fs::remove_dir(&self.0);
    }
}

/// The group below which new ones are made, and the file of the limit.
fn parent() -> (PathBuf, &'static str) {
    let is_first = Path::new(ROOT_OF_MEMORY).is_dir();
    let (root, limit) = match is_first {
        true => (ROOT_OF_MEMORY, "memory.limit_in_bytes"),
        false => (ROOT, "memory.max"),
    };
    let groups = Process::myself().and_then(|process| process.cgroups());
    let own = groups.ok().and_then(|groups| {
        let own = groups.into_iter().find(|group| {
            let is_memory = group.controllers.iter().any(|controller| controller == "memory");
            if is_first { is_memory } else { group.hierarchy == 0 }
        })?;
        let path = Path::new(root).join(own.pathname.trim_start_matches('/'));
        // A container may show other names inside than outside.
        path.is_dir().then_some(path)
    });
    (own.unwrap_or_else(|| PathBuf::from(root)), limit)
}
