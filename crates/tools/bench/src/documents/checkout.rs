//! The checkout: its root folder, and what git knows of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;

/// Where figures are kept, from the root.
pub const FOLDER: &str = "docs/figures";

/// A checkout of this project.
pub struct Checkout {
    root: PathBuf,
}

impl Checkout {
    /// The checkout that `folder` lies in.
    pub fn around(folder: &Path) -> Result<Self, Error> {
        let is_root = |folder: &&Path| folder.join(FOLDER).is_dir();
        match folder.ancestors().find(is_root) {
            Some(root) => Ok(Self { root: root.to_path_buf() }),
            None => Err(Error::Usage(format!(
                "neither {} nor a folder above it has {FOLDER}: run this inside a checkout of Pando",
                folder.display()
            ))),
        }
    }

    /// The path of `name` below the root.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The Markdown pages: the README and those below `docs`, in order, relative to the root.
    pub fn pages(&self) -> Result<Vec<String>, Error> {
        let mut pages = vec!["README.md".to_owned()];
        let mut folders = vec!["docs".to_owned()];
        while let Some(folder) = folders.pop() {
            let path = self.path(&folder);
            let failed = |source| Error::File { path: path.clone(), source };
            for entry in std::fs::read_dir(&path).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
                if entry.path().is_dir() {
                    folders.push(name);
                } else if name.ends_with(".md") {
                    pages.push(name);
                }
            }
        }
        pages.sort();
        Ok(pages)
    }

    /// The hash that git gives to the sources in each of `folders` at `commit`; `None` if there is
    /// no git, or no such commit.
    pub fn hashes(&self, commit: &str, folders: &[&str]) -> Option<Vec<String>> {
        folders
            .iter()
            .map(|folder| self.git(&["rev-parse", &format!("{commit}:{folder}")]))
            .collect()
    }

    /// Files in `folders` that differ from the commit that is checked out; `None` without git.
    pub fn changed(&self, folders: &[&str]) -> Option<Vec<String>> {
        let mut arguments = vec!["status", "--porcelain", "--"];
        arguments.extend(folders);
        Some(self.git(&arguments)?.lines().map(|line| line.trim().to_owned()).collect())
    }

    fn git(&self, arguments: &[&str]) -> Option<String> {
        let output = Command::new("git").current_dir(&self.root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim_end().to_owned())
    }
}
