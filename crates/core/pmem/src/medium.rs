//! The medium of a pool, what it really guarantees, and the domain that fits it.

use std::fs::File;
use std::io::Read;

use crate::superblock::BootId;
use crate::sys;

/// The medium of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Anonymous memory of this process.
    Anonymous,
    /// A file in memory: tmpfs, by name. (Ramfs and hugetlbfs cannot hold a pool: they cannot
    /// allocate room ahead, or can be written only through a mapping.)
    MemoryFile(&'static str),
    /// A file behind the page cache of the file system named.
    PageCache(&'static str),
    /// Persistent memory, mapped directly.
    Dax {
        /// The platform flushes the caches at power loss: the kernel reports the persistence domain
        /// `cpu_cache`.
        caches_are_durable: bool,
    },
}

/// What a write survives after it has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// No write outlives the pool object.
    Nothing,
    /// Acknowledged writes survive the death of any process, but no crash of the machine.
    ProcessDeath,
    /// Acknowledged writes survive power loss.
    PowerLoss,
}

impl Guarantee {
    /// The rest of the sentence "survives ...", for reports.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Nothing => "nothing: the data ends with the pool object",
            Self::ProcessDeath => "the death of any process, not of the machine",
            Self::PowerLoss => "power loss",
        }
    }
}

impl std::fmt::Display for Medium {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Anonymous => write!(out, "anonymous memory"),
            Self::MemoryFile(name) => write!(out, "{name}, in memory"),
            Self::PageCache(name) => write!(out, "{name}, through the page cache"),
            Self::Dax { caches_are_durable: true } => write!(out, "DAX, durable caches (eADR)"),
            Self::Dax { caches_are_durable: false } => write!(out, "DAX"),
        }
    }
}

impl Medium {
    /// Whether power loss undoes stores whose lines were not written back, and only those.
    pub fn needs_write_back(self) -> bool {
        matches!(self, Self::Dax { caches_are_durable: false })
    }

    /// The guarantee of the medium if lines are written back, or not.
    pub fn guarantee(self, write_back: bool) -> Guarantee {
        match self {
            Self::Anonymous => Guarantee::Nothing,
            Self::Dax { .. } if write_back || !self.needs_write_back() => Guarantee::PowerLoss,
            _ => Guarantee::ProcessDeath,
        }
    }

    /// Whether write-backs reach the medium directly, without a page cache.
    pub fn is_dax(self) -> bool {
        matches!(self, Self::Dax { .. })
    }

    /// Whether writes may be kept, in part, when the machine goes down.
    pub fn outlives_machine(self) -> bool {
        matches!(self, Self::Dax { .. } | Self::PageCache(_))
    }
}

/// Finds the medium of `file`. Tries a synchronous mapping only where one is possible.
pub fn find(file: &File) -> std::io::Result<Medium> {
    // The numbers are the kernel's (include/uapi/linux/magic.h).
    let name = match sys::file_system_type(file)? {
        0x0102_1994 => return Ok(Medium::MemoryFile("tmpfs")),
        0x8584_58F6 => return Ok(Medium::MemoryFile("ramfs")),
        0x9584_58F6 => return Ok(Medium::MemoryFile("hugetlbfs")),
        0xEF53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0x794C_7630 => "overlayfs",
        _ => "a file system",
    };
    if sys::Mapping::shared(file, crate::layout::PAGE_BYTES, true).is_ok() {
        return Ok(Medium::Dax { caches_are_durable: caches_are_durable() });
    }
    Ok(Medium::PageCache(name))
}

/// Whether every persistent-memory region reports that its platform flushes the caches.
fn caches_are_durable() -> bool {
    let Ok(devices) = std::fs::read_dir("/sys/bus/nd/devices") else { return false };
    let mut regions = devices
        .flatten()
        .filter(|device| device.file_name().to_string_lossy().starts_with("region"))
        .filter_map(|region| std::fs::read_to_string(region.path().join("persistence_domain")).ok())
        .peekable();
    regions.peek().is_some() && regions.all(|domain| domain.trim() == "cpu_cache")
}

/// The boot id of the running system. Zero, the id of no boot, where the system has none: then
/// Pando cannot know whether the machine went down meanwhile.
pub fn boot_id() -> BootId {
    let mut text = [0; 64];
    let Ok(mut file) = File::open("/proc/sys/kernel/random/boot_id") else {
        return BootId::default();
    };
    let Ok(bytes) = file.read(&mut text) else { return BootId::default() };
    let digits = text[..bytes].iter().filter_map(|&digit| char::from(digit).to_digit(16));
    BootId(digits.fold(0, |id, digit| id << 4 | u128::from(digit)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

    use super::*;
    use crate::layout::PAGE_BYTES;
    use crate::sys::Zeroed;

    /// Where the file has no persistent memory, a synchronous mapping is refused. If that gave back
    /// a page that another thread has got meanwhile, an access to the page would end the process.
    #[test]
    fn a_refused_mapping_takes_no_memory_of_other_threads() {
        // On a disk, where there is one.
        let file = tempfile::tempfile().expect("a file");
        file.set_len(PAGE_BYTES).expect("it has a page");
        let is_done = AtomicBool::new(false);
        let map_and_use = || {
            // Relaxed, here and below: it orders nothing.
            while !is_done.load(Ordering::Relaxed) {
                let mapped = || Zeroed::<AtomicU8>::new(PAGE_BYTES).expect("memory");
                let pages: Vec<_> = std::iter::repeat_with(mapped).take(8).collect();
                pages.iter().for_each(|page| page[0].store(1, Ordering::Relaxed));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(map_and_use);
            scope.spawn(map_and_use);
            for _ in 0..10_000 {
                find(&file).expect("a medium");
            }
            is_done.store(true, Ordering::Relaxed);
        });
    }
}
