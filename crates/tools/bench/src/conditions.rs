//! Machine and build of a figure.

use std::path::Path;

use procfs::{CpuInfo, Current};
use serde::Serialize;

use crate::machine;

/// Machine and build.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    /// The processor, as it names itself.
    pub cpu_model: String,
    /// Number of cores that the process may use; if there are more threads, none is pinned.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The commit that this program was built from, if it was built in a repository.
    pub commit: Option<&'static str>,
    /// The file system of the pools of durable systems.
    pub pool_file_system: String,
    /// The file system of logs, and of the files of durable peers.
    pub log_file_system: String,
    /// Memory of the process of each system, if that is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Emulated medium: delay in nanoseconds of a cache line that is written back.
    pub write_back_ns: u64,
    /// Emulated medium: delay in nanoseconds of a cache line that is read and not cached.
    pub read_line_ns: u64,
}

/// A row with machine and build, as one object.
#[derive(Serialize)]
struct Placed<'row, R> {
    #[serde(flatten)]
    row: &'row R,
    #[serde(flatten)]
    conditions: &'row Conditions,
}

impl Conditions {
    /// The conditions of this process, with pools and logs in `pool_dir`.
    pub fn here(pool_dir: &Path) -> Self {
        let unknown = || "unknown".to_owned();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        let pool_file_system = file_system(pool_dir).unwrap_or_else(unknown);
        Self {
            cpu_model: cpu_model().unwrap_or_else(unknown),
            cores: machine::cores().len(),
            kernel: kernel.map_or_else(|_| unknown(), |release| release.trim().to_owned()),
            commit: option_env!("PANDO_BENCH_COMMIT"),
            log_file_system: pool_file_system.clone(),
            pool_file_system,
            memory_bytes: None,
            write_back_ns: 0,
            read_line_ns: 0,
        }
    }

    /// The same conditions with logs in `log_dir`.
    pub fn with_logs_in(self, log_dir: &Path) -> Self {
        Self { log_file_system: file_system(log_dir).unwrap_or(self.log_file_system), ..self }
    }

    /// A line of JSON for each of `rows`, with these conditions.
    pub fn json_lines<R: Serialize>(&self, rows: &[R]) -> String {
        let line = |row| {
            let placed = Placed { row, conditions: self };
            // Strings and numbers only, which JSON can always represent.
            serde_json::to_string(&placed).unwrap_or_default() + "\n"
        };
        rows.iter().map(line).collect()
    }

    /// The conditions in one line.
    pub fn line(&self) -> String {
        format!(
            "{}, {} cores, Linux {}, pools on {}{}{}",
            self.cpu_model,
            self.cores,
            self.kernel,
            self.pool_file_system,
            match self.log_file_system == self.pool_file_system {
                true => String::new(),
                false => format!(", logs on {}", self.log_file_system),
            },
            self.commit.map_or(String::new(), |commit| format!(", commit {commit}")),
        ) + &self.limited()
            + &self.emulated()
    }

    fn limited(&self) -> String {
        let mib = |bytes: u64| format!(", each system in a process of {} MiB", bytes >> 20);
        self.memory_bytes.map_or(String::new(), mib)
    }

    fn emulated(&self) -> String {
        match (self.write_back_ns, self.read_line_ns) {
            (0, 0) => String::new(),
            (write, read) => format!(
                ", emulated media {write} ns slower for a line written back, {read} ns for a line read"
            ),
        }
    }
}

fn cpu_model() -> Option<String> {
    CpuInfo::current().ok()?.model_name(0).map(str::to_owned)
}

/// The type of the file system of `folder`: that of the longest mount point above it.
fn file_system(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    // Of equal mount points, the last one hides the earlier ones.
    let mounts = procfs::mounts().ok()?.into_iter();
    let above = mounts.filter(|mount| folder.starts_with(&mount.fs_file));
    above.max_by_key(|mount| mount.fs_file.len()).map(|mount| mount.fs_vfstype)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_says_what_it_is() {
        let here = Conditions::here(Path::new("/dev/shm"));
        assert!(here.cores > 0 && !here.kernel.is_empty());
        assert!(here.line().contains("cores"));
        assert_eq!(file_system(Path::new("/proc")).as_deref(), Some("proc"));
    }
}
