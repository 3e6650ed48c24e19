//! The initial file system of the virtual machine: an archive for the kernel.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use cpio::newc::{self, Builder};

use super::packages::run;

const FOLDER: u32 = 0o04_0755;
const PROGRAM: u32 = 0o10_0755;
const FOLDERS: [&str; 11] =
    ["bin", "dax", "cached", "disk", "dev", "proc", "sys", "run", "lib", "lib/modules", "lib64"];

/// An archive in the making.
pub struct Initramfs {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Initramfs {
    /// The folders.
    pub fn new() -> std::io::Result<Self> {
        let mut archive = Self { bytes: Vec::new(), names: BTreeSet::new() };
        FOLDERS.iter().try_for_each(|name| archive.entry(name, FOLDER, &[]))?;
        Ok(archive)
    }

    /// Adds a file under `name`.
    pub fn file(&mut self, name: &str, content: &[u8]) -> std::io::Result<()> {
        self.entry(name, PROGRAM, content)
    }

    /// Adds the program at `path` under `name`, and the libraries that it needs. Libraries that
    /// this system does not have are in `libraries`.
    pub fn program(&mut self, name: &str, path: &Path, libraries: &str) -> Result<(), String> {
        let mut add = |name: &str, path: &Path| {
            std::fs::read(path)
                .and_then(|content| self.file(name, &content))
                .map_err(|error| format!("{}: {error}", path.display()))
        };
        add(name, path)?;
        let found = run(Command::new("ldd").arg(path).env("LD_LIBRARY_PATH", libraries))?;
        for library in String::from_utf8_lossy(&found.stdout)
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
            .map(Path::new)
        {
            let file_name = library.file_name().unwrap_or_default().display();
            // Each program contains the path of the loader. The other libraries are searched for.
            let folder = if library.starts_with("/lib64") { "lib64" } else { "lib" };
            add(&format!("{folder}/{file_name}"), library)?;
        }
        Ok(())
    }

    /// Writes the archive.
    pub fn write(self, path: &Path) -> std::io::Result<()> {
        std::fs::write(path, newc::trailer(self.bytes)?)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> std::io::Result<()> {
        if self.names.insert(name.to_owned()) {
            let size = u32::try_from(content.len()).map_err(std::io::Error::other)?;
            let mut writer = Builder::new(name).mode(mode).write(&mut self.bytes, size);
            writer.write_all(content)?;
            writer.finish()?;
        }
        Ok(())
    }
}
