//! Text that every Debian machine has: licences, copyright notes, Perl's modules, lists of files.
//!
//! Each line that is not blank is a record: its key is the file's path and the line's number, its
//! value the line.

use std::fs;
use std::path::{Path, PathBuf};

use indicatif::HumanCount;

use super::data_set::{Builder, DataSet};
use super::words;
use crate::failure::Failure;

/// The least number of records that the tour finds without a file of the user.
pub const MIN_RECORDS: usize = 100_000;
const MAX_FILE_BYTES: u64 = 16 << 20;

/// One kind of text: its folder, and the names of its files.
struct Source {
    name: &'static str,
    folders: &'static [&'static str],
    accepts: fn(&Path) -> bool,
}

const SOURCES: [Source; 4] = [
    Source { name: "licences", folders: &["usr/share/common-licenses"], accepts: |_| true },
    Source {
        name: "copyright notes",
        folders: &["usr/share/doc"],
        accepts: |path| path.file_name().is_some_and(|name| name == "copyright"),
    },
    Source {
        name: "Perl modules",
        folders: &["usr/share/perl", "usr/share/perl5", "usr/lib"],
        accepts: |path| path.extension().is_some_and(|name| name == "pm" || name == "pl"),
    },
    Source {
        name: "lists of files",
        folders: &["var/lib/dpkg/info"],
        accepts: |path| path.extension().is_some_and(|name| name == "list" || name == "md5sums"),
    },
];

/// At most `max_records` records from the text of the system under `root`, and lines that say where
/// they are from.
pub fn collect(root: &Path, max_records: usize) -> Result<(DataSet, Vec<String>), Failure> {
    let mut builder = Builder::default();
    let mut told = Vec::new();
    for source in &SOURCES {
        let records_before = builder.len();
        let mut files = Vec::new();
        for folder in source.folders {
            find_files(&root.join(folder), source.accepts, &mut files);
        }
        // Two folders may be one behind a link, and an order makes the tour repeatable.
        files.sort_unstable();
        files.dedup();
        let mut files_read = 0;
        for file in files {
            if builder.len() >= max_records {
                break;
            }
            files_read += usize::from(add_lines(&file, max_records, &mut builder));
        }
        let records = builder.len() - records_before;
        if records > 0 {
            let (records, name) = (HumanCount(records as u64), source.name);
            told.push(format!("{records} lines of {files_read} {name}"));
        }
    }
    let wanted = max_records.min(MIN_RECORDS);
    if builder.len() < wanted {
        let records = HumanCount((wanted - builder.len()) as u64);
        told.push(format!("{records} combinations of their words, for there is no more text"));
        words::fill(&mut builder, wanted);
    }
    Ok((builder.finish(), told))
}

/// Adds the regular files under `folder`; skips links and unreadable files.
fn find_files(folder: &Path, accepts: fn(&Path) -> bool, files: &mut Vec<PathBuf>) {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() && accepts(&path) => files.push(path),
                _ => {}
            }
        }
    }
}

/// Adds the lines of a file; false if it cannot be read.
fn add_lines(path: &Path, max_records: usize, builder: &mut Builder) -> bool {
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() > MAX_FILE_BYTES) {
        return false;
    }
    let Ok(text) = fs::read(path) else { return false };
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        if builder.len() >= max_records {
            break;
        }
        if !line.trim_ascii().is_empty() {
            builder.add(&super::text_file::line_key(path, index as u64 + 1), line);
        }
    }
    true
}
